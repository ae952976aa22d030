"""Pictures and sounds: what src/media/ makes of files, beside Pillow, soundfile, scipy and transformers.

tests/tools/media_tool.c answers; every expected value comes from another program.  Libraries that are hostile, or are not
there, are small ones made here, which the tool's child loads in the place of the real ones.
"""
import io
import os
import shutil
import struct
import subprocess
import threading
import zlib

import pytest
from conftest import SANITIZED, SHARED

THREADS = 1

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image", reason="needs Pillow (tests/python/requirements.txt)")
from PIL import ImageOps, PngImagePlugin  # noqa: E402

soundfile = pytest.importorskip("soundfile", reason="needs soundfile (tests/python/requirements.txt)")
transformers = pytest.importorskip("transformers", reason="needs transformers (tests/python/requirements.txt)")
from transformers.image_transforms import convert_to_rgb  # noqa: E402

FILTERS = [("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC), ("lanczos", Image.Resampling.LANCZOS)]


class Tool:
    """A media_tool that answers one command after another."""

    def __init__(self, path, env=None):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **(env or {})})

    def say(self, line):
        self.process.stdin.write((line + "\n").encode())
        self.process.stdin.flush()

    def ask(self, line):
        self.say(line)
        words = self.process.stdout.readline().decode().rstrip("\n").split(" ")
        if words[0] != "ok":
            return " ".join(words[1:]), None
        return [w if ":" in w else int(w) for w in words[1:-1]], self.process.stdout.read(int(words[-1]))

    def image(self, line):
        head, data = self.ask(line)
        assert data is not None, head
        return np.frombuffer(data, np.uint8).reshape(head[1], head[0], 3)

    def floats(self, line):
        head, data = self.ask(line)
        assert data is not None, head
        return head, np.frombuffer(data, np.float32)

    def planes(self, line):
        head, values = self.floats(line)
        out = []
        for size in head[3:]:
            w, h = map(int, size.split(":"))
            out.append(values[:3 * w * h].reshape(3, h, w))
            values = values[3 * w * h:]
        return head[:3], out

    def error(self, line):
        text, data = self.ask(line)
        assert data is None, f"{line}: no error, but {text}"
        return text

    def close(self):
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err.decode()


@pytest.fixture(scope="module")
def tool(built_tool):
    t = Tool(built_tool("media_tool", "WEFT_MEDIA_TOOL"))
    yield t
    code, err = t.close()
    assert code == 0, err


@pytest.fixture
def rng():
    return np.random.default_rng(46)


def smooth(rng, w, h, channels=3):
    """A picture with edges, noise and soft parts."""
    a = rng.integers(0, 256, (h, w, channels), dtype=np.uint8)
    soft = Image.fromarray(a[..., :3]).resize((max(1, w // 3), max(1, h // 3)), 2).resize((w, h), 3)
    a[h // 2:, :, :3] = np.array(soft)[h // 2:]
    return a


def as_transformers(path):
    """The RGB pixels that transformers' processors start from."""
    return convert_to_rgb(ImageOps.exif_transpose(Image.open(path)), return_numpy=True)


# ---- decoding ---------------------------------------------------------------------------------------------------------

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, colour, rows, *extra):
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + r for r in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(extra) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def exif(orientation):
    e = Image.Exif()
    e[0x112] = orientation
    return e


def saved(image, name, **options):
    def save(path):
        image.save(path, name, **options)
    return save


def written(data):
    return lambda path: path.write_bytes(data)


def lossless_files(rng):
    """name: what writes it. Pixels must be Pillow's."""
    rgb, rgba = Image.fromarray(smooth(rng, 61, 43)), Image.fromarray(smooth(rng, 61, 43, 4))
    grey, palette = rgb.convert("L"), rgb.quantize(37)
    files = {f"png-{im.mode}": saved(im, "PNG") for im in (rgb, rgba, grey, grey.convert("1"), palette, rgba.convert("LA"))}
    files |= {f"png-palette-{n}": saved(rgb.quantize(n), "PNG", bits=b) for n, b in ((2, 1), (4, 2), (16, 4))}
    files["png-palette-clear"] = saved(rgba.quantize(30), "PNG")
    files["png-rgb-clear"] = saved(rgb, "PNG", transparency=tuple(int(v) for v in np.array(rgb)[5, 7]))
    files["png-grey-clear"] = saved(grey, "PNG", transparency=int(np.array(grey)[5, 7]))
    files["png-1x1"] = saved(Image.new("RGB", (1, 1), (1, 2, 3)), "PNG")
    files["png-1x20000"] = saved(Image.fromarray(rng.integers(0, 256, (20000, 1, 3), dtype=np.uint8)), "PNG")
    files["png-20000x1"] = saved(Image.fromarray(rng.integers(0, 256, (1, 20000, 3), dtype=np.uint8)), "PNG")
    for colour, channels in ((2, 3), (4, 2), (6, 4)):
        rows = [rng.integers(0, 256, 9 * channels * 2, dtype=np.uint8).tobytes() for _ in range(5)]
        files[f"png-16-{colour}"] = written(png(9, 5, 16, colour, rows))
    for depth in (1, 2, 4):
        rows = [rng.integers(0, 256, (11 * depth + 7) // 8, dtype=np.uint8).tobytes() for _ in range(6)]
        files[f"png-grey-{depth}"] = written(png(11, 6, depth, 0, rows))
    files["png-interlaced"] = written(interlaced(smooth(rng, 29, 13)))
    files["png-animated"] = saved(rgb, "PNG", save_all=True, append_images=[rgb.rotate(90), rgb.rotate(180)])
    files["webp-lossless"] = saved(rgb, "WEBP", lossless=True)
    files["webp-lossy"] = saved(rgb, "WEBP", quality=60)
    files["webp-alpha"] = saved(rgba, "WEBP", lossless=True, exact=True)
    files["webp-alpha-lossy"] = saved(rgba, "WEBP", quality=70)
    files["webp-animated"] = saved(rgba, "WEBP", save_all=True, append_images=[rgba.rotate(90)], duration=100)
    for o in range(1, 9):
        files[f"png-turned-{o}"] = saved(rgb, "PNG", exif=exif(o))
        files[f"webp-turned-{o}"] = saved(rgb, "WEBP", lossless=True, exif=exif(o).tobytes())
    return files


def interlaced(a):
    """Adam7, which Pillow does not write."""
    h, w, _ = a.shape
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = a[y0::dy, x0::dx]
        if part.size:
            rows += b"".join(b"\0" + r.tobytes() for r in part)
    head = struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_lossless_pictures_are_pillows(tool, rng, tmp_path):
    for name, write in lossless_files(rng).items():
        path = tmp_path / (name + ".jpg")  # a name that says nothing
        write(path)
        got, want = tool.image(f"image {path}"), as_transformers(path)
        assert got.shape == want.shape, name
        assert (got == want).all(), f"{name}: {(got != want).sum()} bytes differ, by up to {np.abs(got.astype(int) - want).max()}"


def test_jpegs_are_pillows(tool, rng, tmp_path):
    """Pillow brings a libjpeg-turbo of its own, whose inverse transform and upsampling may round differently: 2 steps at most."""
    rgb = Image.fromarray(smooth(rng, 131, 77))
    cases = {f"sub{s}": dict(subsampling=s) for s in (0, 1, 2)}
    cases |= {"progressive": dict(progressive=True), "low": dict(quality=5), "best": dict(quality=100),
              "restart": dict(restart_marker_rows=1)}
    cases |= {f"turned-{o}": dict(exif=exif(o)) for o in range(1, 9)}
    pictures = {name: (rgb, options) for name, options in cases.items()}
    pictures |= {"grey": (rgb.convert("L"), {}), "cmyk": (rgb.convert("CMYK"), {}), "1x1": (rgb.crop((0, 0, 1, 1)), {}),
                 "rgb": (rgb, dict(keep_rgb=True))}
    for name, (image, options) in pictures.items():
        path = tmp_path / (name + ".png")
        image.save(path, "JPEG", **options)
        got, want = tool.image(f"image {path}"), as_transformers(path)
        assert got.shape == want.shape, name
        off = np.abs(got.astype(int) - want)
        assert off.max() <= 2 and (off > 0).mean() < 0.01, f"{name}: off by {off.max()}, {(off > 0).mean():.2%} of the bytes"


def test_sixteen_bits_of_grey(tool, rng, tmp_path):
    """The upper 8 bits, as for colours. Pillow cuts them at 255, which leaves a white picture: this is not copied."""
    values = rng.integers(0, 65536, (7, 9), dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "g.png")
    got = tool.image(f"image {tmp_path / 'g.png'}")
    assert (got == (values >> 8).astype(np.uint8)[..., None]).all()
    assert (as_transformers(tmp_path / "g.png") == np.minimum(values, 255)[..., None]).all()


@pytest.mark.parametrize("kind, name, options", [("JPEG", "JPEG", {}), ("JPEG", "JPEG", {"progressive": True}), ("PNG", "PNG", {}),
                                                 ("WebP", "WEBP", {}), ("WebP", "WEBP", {"lossless": True})])
def test_truncated_files_are_errors(tool, rng, tmp_path, kind, name, options):
    whole = io.BytesIO()
    Image.fromarray(smooth(rng, 64, 48)).save(whole, name, **options)
    data = whole.getvalue()
    for n in sorted({3, 9, 13, 40, len(data) // 3, len(data) // 2, len(data) * 9 // 10}):
        path = tmp_path / f"cut-{n}"
        path.write_bytes(data[:n])
        text = tool.error(f"image {path}")
        assert text.startswith(f"{path}: ")
        if n > 13:
            assert kind in text, text
            with pytest.raises(Exception):
                Image.open(path).load()


def test_other_content_is_named(tool, rng, tmp_path):
    image = Image.fromarray(smooth(rng, 8, 8))
    for name, word in (("GIF", "GIF"), ("BMP", "BMP"), ("TIFF", "TIFF")):
        image.save(tmp_path / "x.png", name)
        assert f"the content is {word}, which is not read here" in tool.error(f"image {tmp_path / 'x.png'}")
    for data in (b"hello", b"\0" * 100, b"%PDF-1.4"):
        (tmp_path / "x.png").write_bytes(data)
        assert "the content is" in tool.error(f"image {tmp_path / 'x.png'}")
    (tmp_path / "x.png").write_bytes(b"")
    assert "the file is empty" in tool.error(f"image {tmp_path / 'x.png'}")
    assert "No such file" in tool.error(f"image {tmp_path / 'nothing'}")
    assert "not a regular file" in tool.error(f"image {tmp_path}")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in tool.error(f"image {tmp_path / 'pipe'}")
    image.save(tmp_path / "x.png")
    assert "a sound is wanted" in tool.error(f"sound {tmp_path / 'x.png'}")


def peak_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def test_large_pictures_are_refused_before_memory_is_taken(tool, tmp_path):
    row = zlib.compress(b"\0" * 100)
    head = struct.pack(">IIBBBBB", 20000, 20000, 8, 2, 0, 0, 0)
    path = tmp_path / "large.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", row) + chunk(b"IEND", b""))
    text = tool.error(f"image {path}")
    assert "20000 x 20000 = 400000000 pixels; 100000000 are allowed" in text
    Image.new("L", (60000, 1)).save(tmp_path / "j", "JPEG")
    data = bytearray((tmp_path / "j").read_bytes())
    at = data.index(b"\xff\xc0")
    data[at + 5:at + 9] = struct.pack(">HH", 20000, 20000)
    path.write_bytes(data)
    assert "20000 x 20000 = 400000000 pixels" in tool.error(f"image {path}")
    if not SANITIZED:
        assert peak_kib(tool.process.pid) < 200 << 10


def test_limits_are_the_callers(built_tool, rng, tmp_path):
    t = Tool(built_tool("media_tool", "WEFT_MEDIA_TOOL"))
    path = tmp_path / "p.png"
    Image.fromarray(smooth(rng, 50, 40)).save(path)
    t.say("limit pixels 1999")
    assert "50 x 40 = 2000 pixels; 1999 are allowed" in t.error(f"image {path}")
    t.say("limit pixels 2000")
    assert t.image(f"image {path}").shape == (40, 50, 3)
    t.say("limit side 49")
    assert "an edge may have 49" in t.error(f"image {path}")
    t.say("limit file_bytes 100")
    assert f"the file has {path.stat().st_size} bytes; 100 are allowed" in t.error(f"image {path}")
    t.say("limit file_bytes 1000000")
    soundfile.write(tmp_path / "s.wav", np.zeros(16001), 8000)
    t.say("limit sound_s 2")
    assert "longer than 2 s" in t.error(f"sound {tmp_path / 's.wav'}")
    assert t.close()[0] == 0


# ---- sounds -----------------------------------------------------------------------------------------------------------

def test_sounds_are_soundfiles(tool, rng, tmp_path):
    """One channel: the same floats, but for lossy formats, whose decoders are others in soundfile's wheel: 1e-6."""
    n = np.arange(12000)
    wave = (0.4 * np.sin(n / 17) + 0.1 * rng.standard_normal(len(n))).clip(-1, 1)
    stereo = np.stack([wave, 0.3 * np.roll(wave, 50)], 1)
    cases = [("WAV", s, c) for s in ("PCM_16", "PCM_24", "PCM_32", "PCM_U8", "FLOAT", "DOUBLE", "ULAW", "IMA_ADPCM") for c in (1, 2)]
    cases += [("FLAC", "PCM_16", 2), ("FLAC", "PCM_24", 1), ("OGG", "VORBIS", 1), ("OGG", "VORBIS", 2), ("OGG", "OPUS", 1),
              ("MP3", "MPEG_LAYER_III", 1), ("MP3", "MPEG_LAYER_III", 2), ("AIFF", "PCM_16", 1), ("RF64", "PCM_16", 1)]
    for format, subtype, channels in cases:
        path = tmp_path / "sound.png"
        soundfile.write(path, wave if channels == 1 else stereo, 48000, format=format, subtype=subtype)
        want, rate = soundfile.read(path, dtype="float32", always_2d=True)
        head, got = tool.floats(f"sound {path}")
        assert head == [rate, len(want)], (format, subtype, channels)
        off = np.abs(got - want.mean(1)).max()
        lossy = subtype in ("MPEG_LAYER_III", "OPUS", "VORBIS")
        assert off <= (1e-6 if lossy else 0 if channels == 1 else 1e-7), (format, subtype, channels, off)


def test_broken_sounds_are_errors(tool, tmp_path):
    soundfile.write(tmp_path / "s.flac", np.zeros(4000), 16000)
    data = (tmp_path / "s.flac").read_bytes()
    for n in (4, 20, 42):
        (tmp_path / "x").write_bytes(data[:n])
        assert str(tmp_path / "x") in tool.error(f"sound {tmp_path / 'x'}")
    soundfile.write(tmp_path / "s.wav", np.array([0.0, np.nan, 0.5], np.float32), 16000, subtype="FLOAT")
    assert "not a number" in tool.error(f"sound {tmp_path / 's.wav'}")
    soundfile.write(tmp_path / "s.wav", np.zeros(0), 16000)
    assert "no samples" in tool.error(f"sound {tmp_path / 's.wav'}")
    assert "a picture is wanted" in tool.error(f"image {tmp_path / 's.wav'}")


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 44100, 48000])
def test_other_rates_are_scipys(tool, rng, tmp_path, rate):
    signal = pytest.importorskip("scipy.signal")
    wave = rng.standard_normal(rate // 5).astype(np.float32) * 0.2
    soundfile.write(tmp_path / "s.wav", wave, rate, subtype="FLOAT")
    head, got = tool.floats(f"rate {tmp_path / 's.wav'}")
    want = signal.resample_poly(wave, 16000, rate)
    assert head == [16000, len(want)]
    assert np.abs(got - want).max() < 1e-5


@pytest.mark.parametrize("bands, seconds, rate", [(80, 30, 16000), (128, 30, 16000), (80, 3, 16000)])
def test_spectrograms_are_whispers(tool, rng, tmp_path, bands, seconds, rate):
    n = np.arange(int(rate * 2.3))
    wave = (0.5 * np.sin(n * n / 90000) + 0.02 * rng.standard_normal(len(n)) * (n % 16000 > 9000)).astype(np.float32)
    soundfile.write(tmp_path / "s.wav", wave, rate, subtype="FLOAT")
    extract = transformers.WhisperFeatureExtractor(feature_size=bands, chunk_length=seconds)
    want = extract(wave, sampling_rate=rate)["input_features"][0]
    _, got = tool.floats(f"mel {bands} {seconds * 100} {tmp_path / 's.wav'}")
    assert np.abs(got.reshape(want.shape) - want).max() < 1e-4


def test_spectrograms_that_end_with_the_sound(tool, rng, tmp_path):
    """As Qwen3-Omni's processor has it: no silence behind, but a reflection, and the maximum is that of its frames."""
    for n in (400, 16000, 36837):
        wave = (rng.standard_normal(n) * np.linspace(0.001, 1, n)).astype(np.float32)
        soundfile.write(tmp_path / "s.wav", wave, 16000, subtype="FLOAT")
        want = transformers.WhisperFeatureExtractor(feature_size=80)(wave, sampling_rate=16000, padding=True, truncation=False)["input_features"][0]
        _, got = tool.floats(f"mel 80 300 mirrored {tmp_path / 's.wav'}")
        assert want.shape == (80, n // 160) and np.abs(got.reshape(80, 300)[:, :n // 160] - want).max() < 1e-4


def test_spectrograms_are_gemmas(tool, rng, tmp_path):
    """As Gemma 4's processor has it: frames whose window ends before the sound mean something."""
    for n in (321, 16000, 36837):
        wave = (rng.standard_normal(n) * np.linspace(0.001, 1, n)).astype(np.float32)
        soundfile.write(tmp_path / "s.wav", wave, 16000, subtype="FLOAT")
        want = transformers.Gemma4AudioFeatureExtractor()([wave], sampling_rate=16000)
        frames = int(want["input_features_mask"][0].sum())
        _, got = tool.floats(f"mel 128 300 gemma {tmp_path / 's.wav'}")
        assert frames == (n - 1) // 160 and np.abs(got.reshape(128, 300)[:, :frames].T - want["input_features"][0][:frames]).max() < 1e-4


def test_records_of_a_spectrogram(tool):
    """The record of transformers with torch, whose Fourier transform is another one."""
    import json
    record = SHARED / "vision/ultravox/s.wav.json"
    if not record.exists():
        pytest.skip(f"no {record}")
    mel = json.loads(record.read_text())["transformers"]["own_preprocessing"]["mel"]
    _, got = tool.floats(f"mel {mel['shape'][1]} {mel['shape'][2]} {SHARED / 'vision/media/s.wav'}")
    assert max(abs(got[int(i)] - v) for i, v in mel["samples"].items()) < 1e-4


# ---- pixels -----------------------------------------------------------------------------------------------------------

def test_resizing_is_pillows(tool, rng, tmp_path):
    for i in range(12 if SANITIZED else 50):
        w, h, to_w, to_h = (max(1, int(v)) for v in np.exp(rng.uniform(0, 6.3, 4)))
        image = Image.fromarray(smooth(rng, w, h))
        image.save(tmp_path / "p.png")
        for number, (name, filter) in enumerate(FILTERS):
            got = tool.image(f"resample {number} {to_w} {to_h} {tmp_path / 'p.png'}")
            assert (got == np.array(image.resize((to_w, to_h), filter))).all(), f"{w} x {h} to {to_w} x {to_h}, {name}"


def processor(model, name):
    module = __import__(f"transformers.models.{model}.image_processing_pil_{model}", fromlist=[name])
    return getattr(module, name + "ImageProcessorPil")


def square(n):
    return {"height": n, "width": n}


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
RULES = [  # rule and what is set in it; the processor of transformers, and the same in its words
    ("gemma3 side=112", "gemma3 Gemma3", {"size": square(112)}),
    ("siglip side=98", "siglip Siglip", {"size": square(98)}),
    ("qwen2vl max_pixels=200704", "qwen2_vl Qwen2VL", {"size": {"shortest_edge": 3136, "longest_edge": 200704}}),
    ("qwen3vl max_pixels=262144", "qwen2_vl Qwen2VL", {"size": {"shortest_edge": 65536, "longest_edge": 262144}, "patch_size": 16,
                                                        "image_mean": [0.5] * 3, "image_std": [0.5] * 3}),
    ("qwen2vl min_tokens=16 max_tokens=64", "qwen2_vl Qwen2VL", {"size": {"shortest_edge": 16 * 784, "longest_edge": 64 * 784}}),
    ("glm4v max_pixels=200704", "glm4v Glm4v", {"size": {"shortest_edge": 12544, "longest_edge": 401408}}),
    ("paddleocr max_pixels=200704", "paddleocr_vl PaddleOCRVL", {"size": {"shortest_edge": 147456, "longest_edge": 200704}}),
    ("gemma4", "gemma4 Gemma4", {}),
    ("gemma4 max_tokens=70", "gemma4 Gemma4", {"max_soft_tokens": 70}),
    ("gemma4 max_tokens=1120", "gemma4 Gemma4", {"max_soft_tokens": 1120}),
    ("pixtral side=256", "pixtral Pixtral", {"size": {"longest_edge": 256}}),
    ("mistral3 side=224", "pixtral Pixtral", {"size": {"longest_edge": 224}, "patch_size": square(28)}),
    ("idefics3 side=64 longest=256", "idefics3 Idefics3", {"size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 64}}),
    ("smolvlm side=64 longest=200", "smolvlm SmolVLM", {"size": {"longest_edge": 200}, "max_image_size": {"longest_edge": 64}}),
    ("internvl side=56", "got_ocr2 GotOcr2", {"size": square(56), "crop_to_patches": True, **IMAGENET}),
    ("internvl side=56 min_tiles=3 max_tiles=6", "got_ocr2 GotOcr2",
     {"size": square(56), "crop_to_patches": True, "min_patches": 3, "max_patches": 6, **IMAGENET}),
    ("minicpmv side=112", "minicpmv4_6 MiniCPMV4_6", {"scale_resolution": 112}),
    ("minicpmv side=112 merge=2 max_tiles=4", "minicpmv4_6 MiniCPMV4_6", {"scale_resolution": 112, "downsample_mode": "4x", "max_slice_nums": 4}),
    ("clip side=70", "clip CLIP", {"size": {"shortest_edge": 70}, "crop_size": square(70)}),
    ("llava side=98", "llava Llava", {"size": {"shortest_edge": 98}, "crop_size": square(98)}),
    ("llava_next side=98", "llava_next LlavaNext", {"size": {"shortest_edge": 98}, "crop_size": square(98), "image_grid_pinpoints": [[98, 196], [196, 98], [196, 196], [294, 98], [98, 294]]}),
    ("llava_pad side=98", "llava Llava", {"size": {"shortest_edge": 98}, "crop_size": square(98), "do_pad": True}),
]
SHAPES = [(1, 1), (97, 61), (640, 200), (33, 400), (2, 300), (28, 28), (5, 900), (64, 64), (65, 64), (200, 1), (445, 870)]


def whole(out, settings):
    """Pictures of planes: transformers' own layout, or the patches of Qwen, Gemma 4 or MiniCPM-V put back together."""
    pixels = out["pixel_values"]
    if "target_sizes" in out:
        ends = np.cumsum(np.prod(out["target_sizes"], 1))[:-1] * 14
        return [part.reshape(3, 14, rows, columns, 14).transpose(0, 2, 1, 3, 4).reshape(3, rows * 14, columns * 14)
                for part, (rows, columns) in zip(np.split(pixels[0], ends, -1), out["target_sizes"], strict=True)]
    if "image_position_ids" in out:
        at = out["image_position_ids"][0]
        columns, rows, p = at[:, 0].max() + 1, at[:, 1].max() + 1, 16
        return [pixels[0][:rows * columns].reshape(rows, columns, p, p, 3).transpose(4, 0, 2, 1, 3).reshape(3, rows * p, columns * p)]
    if "image_grid_thw" not in out:
        return list(pixels[0] if np.ndim(pixels) == 5 else pixels)
    (_, rows, columns), p, m = out["image_grid_thw"][0], settings.get("patch_size", 14), 2
    if np.ndim(pixels) == 4:                                        # PaddleOCR-VL: patches line by line, one frame
        return [pixels.reshape(rows, columns, 3, p, p).transpose(2, 0, 3, 1, 4).reshape(3, rows * p, columns * p)]
    parts = pixels.reshape(rows // m, columns // m, m, m, 3, 2, p, p)
    assert (parts[..., 0, :, :] == parts[..., 1, :, :]).all()
    return [parts[..., 0, :, :].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * p, columns * p)]


@pytest.mark.parametrize("rule, name, settings", RULES, ids=[r[0].replace(" ", "-") for r in RULES])
def test_pixels_are_transformers(tool, rng, tmp_path, rule, name, settings):
    process = processor(*name.split())(**settings)
    shapes = SHAPES + [tuple(int(v) for v in np.exp(rng.uniform(2, 6.5, 2))) for _ in range(4)]
    for w, h in shapes[::3] if SANITIZED else shapes:
        image = Image.fromarray(smooth(rng, w, h))
        image.save(tmp_path / "p.png")
        want = whole(process([image], return_tensors="np"), settings)
        (n, columns, rows), got = tool.planes(f"prepare {rule} : {tmp_path / 'p.png'}")
        assert n == len(got) == len(want) and n == (columns * rows + 1 if columns else 1), (w, h)
        for i, (a, b) in enumerate(zip(got, want)):
            assert a.shape == b.shape, (w, h, i)
            assert (a == b).all(), f"{w} x {h}, image {i}: off by {np.abs(a - b).max()}"


# Of MiniCPM-V 2.6's published processor with squares of 112: a picture, columns and rows of slices, the whole picture, a slice
SLICES = [(1, 1, 0, 0, 112, 112, 0, 0), (97, 61, 0, 0, 140, 84, 0, 0), (640, 200, 4, 2, 196, 56, 140, 84), (33, 400, 1, 3, 28, 392, 56, 224), (2, 300, 0, 0, 14, 1372, 0, 0),
          (5, 900, 0, 0, 14, 1498, 0, 0), (200, 1, 0, 0, 1400, 14, 0, 0), (445, 870, 2, 4, 84, 154, 112, 112), (352, 357, 3, 3, 112, 112, 112, 112), (87, 29, 0, 0, 196, 70, 0, 0),
          (9, 894, 0, 0, 14, 1120, 0, 0), (59, 793, 1, 5, 28, 406, 70, 182), (549, 425, 3, 3, 126, 98, 126, 98), (48, 78, 0, 0, 84, 140, 0, 0), (192, 481, 2, 4, 70, 182, 98, 126)]


def test_slices(tool, tmp_path):
    for w, h, columns, rows, *sizes in SLICES:
        Image.new("RGB", (w, h)).save(tmp_path / "p.png")
        (n, *grid), got = tool.planes(f"prepare minicpmv side=112 merge=1 : {tmp_path / 'p.png'}")
        assert grid == [columns, rows] and n == len(got) == columns * rows + 1, (w, h)
        assert [got[0].shape[::-1][:2], *(g.shape[::-1][:2] for g in got[1:])] == [tuple(sizes[:2])] + [tuple(sizes[2:])] * (n - 1), (w, h)


# Of Llama 4's processor, which needs torchvision: width, height, columns, rows; and a byte's value
CANVASES = [(1, 1, 1, 1), (97, 61, 3, 2), (640, 200, 7, 2), (33, 400, 1, 9), (2, 300, 1, 7), (5, 900, 1, 16), (65, 64, 2, 2), (200, 1, 5, 1), (445, 870, 3, 5), (48, 48, 1, 1), (96, 48, 2, 1),
            (144, 96, 3, 2), (49, 48, 2, 1), (1000, 1000, 4, 4), (52, 673, 1, 13), (330, 29, 7, 1), (214, 61, 5, 2), (211, 13, 5, 1), (718, 181, 8, 2), (101, 245, 3, 5), (112, 381, 2, 7)]
IN_BF16 = {7: -0.9453125, 100: -0.21484375, 201: 0.578125, 254: 0.9921875}


def test_canvases(tool, tmp_path):
    for w, h, columns, rows in CANVASES:
        Image.new("RGB", (w, h)).save(tmp_path / "p.png")
        (n, *grid), got = tool.planes(f"prepare llama4 side=48 : {tmp_path / 'p.png'}")
        assert grid == ([columns, rows] if columns * rows > 1 else [0, 0]) and n == len(got) == columns * rows + (columns * rows > 1), (w, h)
    for byte, value in IN_BF16.items():
        Image.new("RGB", (48, 48), (byte,) * 3).save(tmp_path / "p.png")
        assert (tool.planes(f"prepare llama4 side=48 : {tmp_path / 'p.png'}")[1][0] == value).all()


# Of Kimi K2.5's with at most 200 patches: width, height, and those of the pixels
NATIVE = [(640, 200, 364, 112), (33, 400, 56, 420), (5, 900, 28, 924), (445, 870, 168, 280), (20, 9000, 28, 5040), (9000, 13, 5040, 28), (5, 8, 28, 28), (101, 245, 112, 252), (268, 90, 280, 112),
          (260, 549, 140, 308), (56, 28, 56, 28), (3, 730, 28, 756)]


def test_native_sizes(tool, tmp_path):
    for w, h, width, height in NATIVE:
        Image.new("RGB", (w, h), "white").save(tmp_path / "p.png")
        _, (got,) = tool.planes(f"prepare kimik25 max_pixels=39200 : {tmp_path / 'p.png'}")
        assert got.shape == (3, height, width) and (got[:, 0, 0] == 1).all()
        assert (got[:, -1, -1] == (1 if (w, h) == (width, height) else -1)).all(), (w, h)      # black beside


# Of LFM2-VL's, which needs torchvision, with tiles of 64 and 4 to 16 tokens: width, height, columns and rows of tiles, the whole picture
IF_LARGE = [(1, 1, 0, 0, 64, 64), (97, 61, 0, 0, 96, 64), (640, 200, 3, 1, 224, 64), (33, 400, 0, 0, 32, 384), (2, 300, 0, 0, 32, 288), (5, 900, 0, 0, 32, 1696), (65, 64, 0, 0, 64, 64),
            (200, 1, 0, 0, 192, 32), (445, 870, 2, 4, 64, 160), (128, 300, 2, 5, 64, 192), (1000, 1000, 3, 3, 128, 128), (52, 673, 1, 10, 32, 448), (330, 29, 0, 0, 320, 32),
            (214, 61, 0, 0, 224, 64), (182, 181, 3, 3, 128, 96), (181, 181, 3, 3, 128, 128)]


def test_tiles_of_large_pictures(tool, tmp_path):
    rule = "lfm2 side=64 min_pixels=4096 max_pixels=16384"
    for w, h, columns, rows, width, height in IF_LARGE:
        Image.new("RGB", (w, h)).save(tmp_path / "p.png")
        (n, *grid), got = tool.planes(f"prepare {rule} : {tmp_path / 'p.png'}")
        assert grid == [columns, rows] and n == len(got) == columns * rows + 1, (w, h)
        assert [g.shape for g in got] == [(3, 64, 64)] * (n - 1) + [(3, height, width)], (w, h)
    for most, tiles in ((16, 0), (32, 4), (24, 2), (1000, 9)):      # with the whole picture, of 16
        Image.new("RGB", (400, 400)).save(tmp_path / "p.png")
        (_, *grid), _ = tool.planes(f"prepare {rule} max_tokens={most} : {tmp_path / 'p.png'}")
        assert grid[0] * grid[1] == tiles, most


RECORDS = [("gemma3", "gemma3"), ("qwen2.5vl", "qwen2vl"), ("idefics3", "idefics3")]


@pytest.mark.parametrize("folder, rule", RECORDS)
def test_pixels_of_records(tool, folder, rule):
    """What transformers recorded with the small projectors, to the last bit: settings are those of their files."""
    import json

    import gguf
    records = SHARED / "vision" / folder
    if not records.exists():
        pytest.skip(f"no {records}")
    fields = gguf.GGUFReader(records / "mmproj.gguf").fields
    key = {name: fields[f"clip.vision.{name}"].contents() for name in ("image_size", "patch_size", "preproc_image_size") if f"clip.vision.{name}" in fields}
    for path in sorted(records.glob("*.json")):
        pixels = json.loads(path.read_text())["transformers"]["own_preprocessing"]["pixels"]
        words = f"side={key['image_size']} patch={key['patch_size']}"
        if "preproc_image_size" in key:
            words += f" longest={key['preproc_image_size']}"
        words += " min_tokens=8 max_tokens=4096" if rule == "qwen2vl" else ""  # as the records were made
        _, got = tool.planes(f"prepare {rule} {words} : {SHARED / 'vision/media' / path.stem}")
        got = np.stack(got)
        if rule == "qwen2vl":
            p, m = key["patch_size"], 2
            h, w = got.shape[2] // p // m, got.shape[3] // p // m
            patches = got.reshape(3, h, m, p, w, m, p).transpose(1, 4, 2, 5, 0, 3, 6)
            got = np.repeat(patches[:, :, :, :, :, None], 2, 5)
        assert got.size == np.prod(pixels["shape"]), path
        assert [round(float(v), 6) for v in got.flat[:12]] == [round(v, 6) for v in pixels["first"]], path
        assert abs(float(got.astype(np.float64).sum()) - pixels["sum"]) < 0.01, path
        for i, v in pixels["samples"].items():
            assert abs(float(got.flat[int(i)]) - v) < 2e-6, (path, i)


def test_shapes_that_models_refuse(tool, tmp_path):
    Image.new("RGB", (201, 1)).save(tmp_path / "p.png")
    for rule in ("qwen2vl", "lfm2"):
        assert "one edge is more than 200 times the other" in tool.error(f"prepare {rule} : {tmp_path / 'p.png'}")
    with pytest.raises(ValueError, match="aspect ratio"):
        processor("qwen2_vl", "Qwen2VL")()(Image.open(tmp_path / "p.png"))
    for words, text in (("side=0", "a side of 0 pixels"), ("patch=0", "a patch of 0 pixels"), ("side=1000000", "a side of 1000000"),
                        ("min_tokens=5 max_tokens=4", "at least 5 is more than at most 4"), ("max_tokens=-1", "at most -1")):
        assert text in tool.error(f"prepare gemma3 {words} : {tmp_path / 'p.png'}")


def test_sizes_that_are_too_large(tool, tmp_path):
    """What a file says can make a small picture very large: refused before memory is taken."""
    Image.new("L", (65536, 1)).save(tmp_path / "p.png")
    Image.new("L", (65500, 330)).save(tmp_path / "q.png")
    text = tool.error(f"prepare lfm2 patch=16384 merge=1 max_pixels=268435456 min_pixels=1 side=64 : {tmp_path / 'q.png'}")
    assert "becomes one of 229376 x 16384: 268435456 pixels are the most" in text, text
    for rule, size in (("llava_next side=16384", "32768 x 16384"), ("llama4 side=16384 max_tiles=1024", "65536 x 16384"), ("kimik25 patch=512 merge=32 max_pixels=268435456", "65536 x 16384"),
                       ("clip side=16384", "1073741824 x 16384")):
        text = tool.error(f"prepare {rule} : {tmp_path / 'p.png'}")
        assert f"a picture of 65536 x 1 pixels becomes one of {size}: 268435456 pixels are the most" in text, text
    if not SANITIZED:
        assert peak_kib(tool.process.pid) < 600 << 10


def test_limits_on_tokens(tool, rng, tmp_path):
    Image.fromarray(smooth(rng, 700, 500)).save(tmp_path / "p.png")
    for rule, edge, tokens in (("qwen2vl", 28, 100), ("qwen3vl", 32, 64), ("pixtral", 16, 300), ("mistral3", 28, 40)):
        (n, *_), planes = tool.planes(f"prepare {rule} max_tokens={tokens} : {tmp_path / 'p.png'}")
        have = planes[0].shape[1] * planes[0].shape[2] // edge ** 2
        assert tokens * 0.5 <= have <= tokens, (rule, have)
    for rule, per_tile in (("internvl", 256), ("smolvlm", 64), ("idefics3", 169)):
        for most in (2, 5, 9):
            (n, *_), _ = tool.planes(f"prepare {rule} max_tokens={most * per_tile} : {tmp_path / 'p.png'}")
            assert n <= most, (rule, most, n)
    for most, want in ((9, 5), (5, 5), (4, 3), (3, 3), (1, 3)):       # the smallest canvas has two tiles
        (n, *_), _ = tool.planes(f"prepare llava_next max_tokens={most * 576} : {tmp_path / 'p.png'}")
        assert n == want, (most, n)


# ---- the child --------------------------------------------------------------------------------------------------------

HOSTILE = r"""
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
static char said[900];
static void tell(const char *what, long result) {
  sprintf(said + strlen(said), "%s=%s ", what, result < 0 ? strerrorname_np(errno) : "DONE");
}
void *sf_open_virtual(void *io, int mode, void *info, void *data) {
  const char *how = HOW;
  if (!strcmp(how, "crash")) *(volatile int *)8 = 1;
  if (!strcmp(how, "spin")) for (volatile int i = 0;; i++) continue;
  if (!strcmp(how, "garbage")) { for (int fd = 3; fd < 8; fd++) send(fd, said, sizeof said, MSG_NOSIGNAL); _exit(0); }
  if (!strcmp(how, "asks")) {                                 /* for memory, and reads no answer */
    struct { unsigned magic, said; long a, b; unsigned long bytes; } r = {0x4d544657, 3};
    struct iovec v = {&r, sizeof r};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    for (int fd = 3; fd < 8; fd++) for (int i = 0; i < 2000 && sendmsg(fd, &m, MSG_NOSIGNAL) > 0; i++) continue;
    for (;;) pause();
  }
  if (!strcmp(how, "memory")) for (long n = 0;; n++) { char *p = malloc(1 << 24); if (!p) { sprintf(said, "stopped after %ld MiB", n * 16); return NULL; } }
  tell("open", open("/etc/passwd", O_RDONLY));
  tell("create", open("made-by-a-decoder", O_CREAT | O_WRONLY, 0600));
  tell("socket", socket(AF_INET, SOCK_STREAM, 0));
  tell("fork", fork());
  tell("kill", 0 * write(1, "", 0) - (kill(getppid(), 0) != 0));
  tell("code", mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
  return NULL;
}
long sf_readf_float(void *f, float *to, long n) { return 0; }
int sf_error(void *f) { return 0; }
const char *sf_strerror(void *f) { return said; }
int sf_close(void *f) { return 0; }
"""


@pytest.fixture
def hostile(built_tool, tmp_path):
    """hostile(how): a media_tool whose libsndfile does that."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    soundfile.write(tmp_path / "s.wav", np.zeros(100), 16000)

    def make(how):
        folder = tmp_path / how
        folder.mkdir()
        (folder / "x.c").write_text("#define _GNU_SOURCE\n#include <signal.h>\n" + HOSTILE.replace("HOW", f'"{how}"'))
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libsndfile.so.1", "-o", folder / "libsndfile.so.1", folder / "x.c"], check=True)
        return Tool(built_tool("media_tool", "WEFT_MEDIA_TOOL"), {"LD_LIBRARY_PATH": str(folder)})
    return make, tmp_path / "s.wav"


INSIDE = pytest.mark.skipif("TSAN_OPTIONS" in os.environ, reason="a build with ThreadSanitizer decodes in the program")


@INSIDE
def test_a_decoder_can_do_nothing_else(hostile):
    make, path = hostile
    t = make("calls")
    text = t.error(f"sound {path}")
    for what in ("open", "create", "socket", "fork", "kill", "code"):
        assert f"{what}=EPERM" in text, text
    assert t.close()[0] == 0 and not (path.parent / "made-by-a-decoder").exists()


@INSIDE
@pytest.mark.parametrize("how, text", [("crash", "signal 11"), ("spin", "takes more than 1 s"), ("garbage", "without an answer"),
                                       ("memory", "stopped after"), ("asks", "takes more than 1 s")])
def test_a_decoder_that_fails_ends_one_request(hostile, tmp_path, how, text):
    make, path = hostile
    t = make(how)
    t.say("limit cpu_s 1")
    t.say("limit sound_s 60")
    hangs = threading.Timer(100, t.process.kill)
    hangs.start()
    said = t.error(f"sound {path}")
    hangs.cancel()
    assert text in said and str(path) in said, said
    if how == "memory":
        assert int(said.split("after ")[1].split()[0]) < 200
    Image.new("RGB", (3, 2)).save(tmp_path / "p.png")
    assert t.image(f"image {tmp_path / 'p.png'}").shape == (2, 3, 3)  # the next one is well
    assert t.close()[0] == 0


def test_a_turned_copy_is_asked_for(built_tool, rng, tmp_path):
    """The bytes for which a decoder asks: three more for each pixel of a picture that is turned."""
    t = Tool(built_tool("media_tool", "WEFT_MEDIA_TOOL"))
    image, exif = Image.fromarray(smooth(rng, 40, 30)), Image.Exif()
    exif[0x112] = 6
    for name in ("PNG", "JPEG", "WEBP"):
        asked = []
        for more in ({}, {"exif": exif}):
            image.save(tmp_path / "p", name, **more)
            (bytes_, width), data = t.ask(f"asks {tmp_path / 'p'}")
            assert data == b"" and width == (30 if more else 40)
            asked.append(bytes_)
        assert asked[1] - asked[0] == 40 * 30 * 3, (name, asked)
    assert t.close()[0] == 0


@pytest.mark.skipif(SANITIZED, reason="a confined process may not look for leaks")
def test_a_confined_server_decodes(built_tool, rng, tmp_path):
    t = Tool(built_tool("media_tool", "WEFT_MEDIA_TOOL"))
    t.say("confine")
    for name in ("PNG", "JPEG", "WEBP"):
        Image.fromarray(smooth(rng, 40, 30)).save(tmp_path / "p", name)
        assert t.image(f"image {tmp_path / 'p'}").shape == (30, 40, 3)
    for format in ("WAV", "FLAC", "OGG", "MP3"):
        soundfile.write(tmp_path / "s", np.zeros(4000), 16000, format=format)
        assert t.floats(f"sound {tmp_path / 's'}")[0][0] == 16000
    assert t.close()[0] == 0


def test_a_missing_library_is_named(built_tool, tmp_path):
    """A library that cannot be loaded, in the place of the real one."""
    for soname, package, name in (("libpng16.so.16", "libpng16-16", "PNG"), ("libwebpdemux.so.2", "libwebpdemux2", "WEBP"),
                                  ("libjpeg.so.62", "libjpeg62-turbo", "JPEG")):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run(["gcc", "-shared", "-x", "c", "-o", folder / soname, "/dev/null"], check=True)
        Image.new("RGB", (3, 2)).save(tmp_path / "p", name)
        t = Tool(built_tool("media_tool", "WEFT_MEDIA_TOOL"), {"LD_LIBRARY_PATH": str(folder)})
        text = t.error(f"image {tmp_path / 'p'}")
        assert f"{soname} (Debian's package {package}) has no function" in text, text
        assert t.close()[0] == 0


@INSIDE
def test_no_decoder_is_loaded_here(tool, tmp_path):
    Image.new("RGB", (3, 2)).save(tmp_path / "p.png")
    tool.image(f"image {tmp_path / 'p.png'}")
    with open(f"/proc/{tool.process.pid}/maps") as f:
        maps = f.read()
    assert not any(name in maps for name in ("libpng", "libjpeg", "libwebp", "libsndfile"))
