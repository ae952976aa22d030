"""Encoders of pictures and sound against transformers: tests/records/projectors has a small mmproj file of each type, made by llama.cpp's converter, and the rows that transformers makes with it
(tests/tools/record_projectors.py). Files that say something else than they have are refused with file, key and value.
"""
import json
import lzma
import math
import os
import re
import resource
import subprocess
from array import array
from pathlib import Path

import gguf
import numpy as np
import pytest
from conftest import load_tool
from test_broken import place

THREADS = 1

change_gguf = load_tool("change_gguf")

RECORDS = Path(__file__).resolve().parents[1] / "records" / "projectors"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))
ERROR = 1e-4                    # of a row's length; what is measured is 2e-6


@pytest.fixture(scope="module")
def tool(built_tool, weft_env):
    program = built_tool("encode_tool", "WEFT_ENCODE_TOOL")
    return lambda *args, data, env=(), **more: subprocess.run([program, *map(str, args)], input=data, env={**weft_env, **dict(env)}, capture_output=True, timeout=120, **more)


def pixels(channels, height, width):
    """As record_projectors.py makes them."""
    values = ((((c * 7 + y * 13 + x * 5 + (x * y) % 11) % 33) - 16) / 16 for c in range(channels) for y in range(height) for x in range(width))
    return array("f", values).tobytes()


def encode(tool, file, medium, width, height, data, *how):
    return tool(file, medium, width, height, *how, data=data)


def unpacked(name, tmp_path):
    file = tmp_path / f"{name}.gguf"
    file.write_bytes(lzma.decompress((RECORDS / f"{name}.gguf.xz").read_bytes()))
    return file


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_transformers(tool, tmp_path, name):
    record = json.loads((RECORDS / f"{name}.json").read_text())
    size = record["width"], record["height"]
    done = encode(tool, unpacked(name, tmp_path), record["medium"], *size, pixels(1 if record["medium"] == "audio" else 3, size[1], size[0]))
    assert done.returncode == 0, done.stderr.decode()
    flat = array("f")
    flat.frombytes(done.stdout)
    n = record["n_embd"]
    rows = [flat[i * n:(i + 1) * n] for i in range(len(flat) // n)]
    assert len(rows) == record["n_rows"]
    worst = max(math.dist(rows[int(i)], row) / math.hypot(*row) for i, row in record["rows"].items())
    lengths = max(abs(math.hypot(*row) / length - 1) for row, length in zip(rows, record["norms"], strict=True))
    print(f"{name}: {worst:.2g} of a row, {lengths:.2g} of a length")
    assert worst < ERROR and lengths < ERROR


def with_matrices(file, kind, odd=False):
    """The file with its matrices in another type. Their values are numbers of BF16; odd: some are not, but all are halves."""
    reader, out = gguf.GGUFReader(file), file.with_name(f"{file.stem}-{kind.name}-{odd}.gguf")
    writer = gguf.GGUFWriter(out, "clip")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        data = np.array(tensor.data, dtype=np.float32)
        if "blk" in tensor.name and data.ndim == 2 or tensor.name.startswith("mm") and data.ndim == 2:
            data = (data.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float16).astype(np.float32)
            if odd:
                data = (data * np.float32(1 + 2**-9)).astype(np.float16).astype(np.float32)
            writer.add_tensor(tensor.name, gguf.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def far(some, others):
    """The largest difference, of the largest value."""
    some, others = (np.frombuffer(x, dtype=np.float32) for x in (some, others))
    return float(np.abs(some - others).max() / np.abs(others).max())


@pytest.mark.parametrize("name", ["qwen3vl", "voxtral"])
def test_halves_that_are_bf16(tool, tmp_path, name):
    """Models are published in BF16, and files of theirs in F16 have the same values: where dot products of BF16 are fast, they are multiplied as BF16, with the same bits. Halves with more bits are multiplied as they are."""
    kinds = gguf.GGMLQuantizationType
    record = json.loads((RECORDS / f"{name}.json").read_text())
    file, size = unpacked(name, tmp_path), (record["width"], record["height"])
    rows = {}
    for odd in (False, True):
        for kind in (kinds.F32, kinds.F16, kinds.BF16)[:2 if odd else 3]:
            done = encode(tool, with_matrices(file, kind, odd), record["medium"], *size, pixels(1 if record["medium"] == "audio" else 3, size[1], size[0]), "fast")
            assert done.returncode == 0, done.stderr.decode()
            rows[kind, odd] = done.stdout
    assert far(rows[kinds.F16, True], rows[kinds.F32, True]) < 1e-5
    assert far(rows[kinds.BF16, False], rows[kinds.F32, False]) < 2e-2
    cpu = Path("/proc/cpuinfo").read_text()
    if "avx512_bf16" in cpu:                              # those of Sapphire Rapids and Emerald Rapids are slow
        slow = "GenuineIntel" in cpu and re.search(r"^model\s*: (143|207)$", cpu, re.MULTILINE) is not None
        assert rows[kinds.F16, False] == rows[kinds.BF16, False]
        assert (rows[kinds.F16, False] == rows[kinds.F32, False]) == slow


def test_windows_are_as_pictures_of_their_own(tool, tmp_path):
    """Windows that are smaller at the edges, several of them in a block of rows: if no layer sees other windows, a window has the rows of a picture that is that window, where places matter by their differences alone."""
    side, width, height = 32, 104, 72
    file = tmp_path / "windows.gguf"
    reader, writer = gguf.GGUFReader(unpacked("qwen25", tmp_path)), gguf.GGUFWriter(file, "clip")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, 99 if name == "clip.vision.n_wa_pattern" else field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    writer.add_uint32("clip.vision.window_size", side)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def rows(planes):
        done = encode(tool, file, "vision", planes.shape[2], planes.shape[1], planes.tobytes())
        assert done.returncode == 0, done.stderr.decode()
        return np.frombuffer(done.stdout, dtype=np.float32).reshape(planes.shape[1] // 8, planes.shape[2] // 8, -1)
    planes = np.frombuffer(pixels(3, height, width), dtype=np.float32).reshape(3, height, width)
    all_rows, worst = rows(planes), 0
    for y in range(0, height, side):
        for x in range(0, width, side):
            alone = rows(np.ascontiguousarray(planes[:, y:y + side, x:x + side]))
            together = all_rows[y // 8:(y + side) // 8, x // 8:(x + side) // 8]
            worst = max(worst, float((np.linalg.norm(alone - together, axis=2) / np.linalg.norm(alone, axis=2)).max()))
    assert worst < ERROR, worst


@pytest.mark.parametrize("name", ["gemma3", "idefics3", "qwen2vl"])
def test_names_of_early_converters(tool, tmp_path, name):
    """Files that were published before the converter knew better have the first matrix of the feed-forward as ffn_down, and the last one as ffn_up."""
    record = json.loads((RECORDS / f"{name}.json").read_text())
    file, size = unpacked(name, tmp_path), (record["width"], record["height"])
    wanted = encode(tool, file, "vision", *size, pixels(3, *size[::-1]))
    data = file.read_bytes()
    for layer in range(3):
        for kind in (b"weight", b"bias"):
            names = [b"v.blk.%d.ffn_%s.%s" % (layer, way, kind) for way in (b"up", b"down")]
            old, new = ([len(n).to_bytes(8, "little") + n for n in order] for order in (names, names[::-1]))
            at = [data.find(n) for n in old]
            for i, n in sorted(zip(at, new), reverse=True):
                data = data[:i] + n + data[i + len(old[at.index(i)]):] if i >= 0 else data
    file.write_bytes(data)
    done = encode(tool, file, "vision", *size, pixels(3, *size[::-1]))
    assert done.returncode == 0 and done.stdout == wanted.stdout, done.stderr.decode()


def test_names_of_another_converter(tool, tmp_path):
    """Published files of llama4 have its second norm as ln2; the converter of the record gives it the name that gemma4 has for another one."""
    record = json.loads((RECORDS / "llama4.json").read_text())
    file, size = unpacked("llama4", tmp_path), (record["width"], record["height"])
    with_other(file, tmp_path / "early.gguf", {}, {}, lambda name: name.replace("attn_post_norm", "ln2"))
    one, other = (encode(tool, f, "vision", *size, pixels(3, *size[::-1])) for f in (file, tmp_path / "early.gguf"))
    assert one.returncode == 0 and one.stdout == other.stdout, (one.stderr + other.stderr).decode()


def changed(file, key, value, to):
    """The file with a 32-bit number of its metadata replaced."""
    data = file.read_bytes()
    at = data.index(key.encode()) + len(key) + 4
    assert int.from_bytes(data[at:at + 4], "little") == value
    file.write_bytes(data[:at] + to.to_bytes(4, "little") + data[at + 4:])
    return file


@pytest.mark.parametrize(("key", "value", "to", "words"), [
    ("clip.vision.patch_size", 6, 5, r"tensor 'v.patch_embd.weight' has shape \{6, 6, 3, 24\}, expected \{5, 5, 3, 24\} \(.*clip.vision.patch_size = 5"),
    ("clip.vision.patch_size", 6, 0, r"key 'clip.vision.patch_size': 0 is not in 1\.\."),
    ("clip.vision.image_size", 48, 96, r"tensor 'v.position_embd.weight' has shape .*clip.vision.image_size = 96"),
    ("clip.vision.attention.head_count", 2, 7, r"key 'clip.vision.attention.head_count': 7 does not make heads of an even size of 24"),
    ("clip.vision.block_count", 2, 3, r"tensor 'v.blk.2.ln1.weight' is missing"),
    ("clip.vision.block_count", 2, 1, r"tensor 'v.blk.1.[a-z0-9_.]+' is not one that idefics3 is known to have"),
    ("clip.vision.projection_dim", 40, 44, r"tensor 'mm.model.fc.weight' has shape \{96, 40, 1, 1\}, expected \{96, 44\}"),
    ("clip.vision.projector.scale_factor", 2, 4, r"tensor 'mm.model.fc.weight' has shape .*clip.vision.projector.scale_factor = 4"),
])
def test_keys_and_tensors_agree(tool, tmp_path, key, value, to, words):
    file = changed(unpacked("idefics3", tmp_path), key, value, to)
    done = encode(tool, file, "vision", 48, 48, pixels(3, 48, 48))
    assert done.returncode == 1 and file.name in done.stderr.decode() and re.search(words, done.stderr.decode()), done.stderr.decode()


@pytest.mark.parametrize(("name", "keys", "shapes", "words"), [
    ("minicpmv", {"clip.vision.projector.scale_factor": 3}, {}, "key 'clip.vision.projector.scale_factor': 3 is not 2 or 4"),
    ("minicpmv", {"clip.vision.wa_layer_indexes": [3]}, {}, "key 'clip.vision.wa_layer_indexes': 3, but there are 3 layers"),
    ("minicpmv", {"clip.vision.wa_layer_indexes": [0, 1]}, {}, "key 'clip.vision.wa_layer_indexes': "),
    ("minicpmv", {}, {"v.vit_merger.attn_q.weight": None}, "tensor 'v.vit_merger.attn_q.weight' is missing"),
    ("minicpmv", {}, {"v.position_embd.weight": (80, 24)}, "tensor 'v.position_embd.weight' has shape {24, 80, 1, 1}, expected {24, 64}"),
    *[(name, {}, {"v.position_embd.weight": None}, "tensor 'v.position_embd.weight' is missing") for name in ("gemma3", "idefics3", "internvl", "kimik25", "kimivl", "lfm2", "llava", "minicpmv", "paddleocr", "qwen3vl")],
    ("minicpmv_4x", {"clip.vision.projector.scale_factor": 4}, {}, "tensor 'v.vit_merger.ln1.weight' is missing"),
    ("llama4", {}, {"mm.model.mlp.2.weight": (32, 31)}, "tensor 'mm.model.mlp.2.weight' has shape {31, 32, 1, 1}, expected {32, 32}"),
    ("llama4", {}, {"v.patch_embd.weight": (24, 107)}, "tensor 'v.patch_embd.weight' has shape {107, 24, 1, 1}, expected {108, 24}"),
    ("kimik25", {}, {"v.position_embd.weight": (7, 8, 24)}, "tensor 'v.position_embd.weight' has shape {24, 8, 7, 1}, expected {24, 8, 8}"),
    *[(name, {}, {"mm.input_norm.bias": None}, "tensor 'mm.input_norm.bias' is missing") for name in ("kimivl", "lfm2", "paddleocr")],
    ("lfm2", {}, {"v.position_embd.weight": (65 * 65, 24)}, "tensor 'v.position_embd.weight' has 65 x 65 positions; 64 x 64 are the most of this type"),
    ("lfm2", {}, {"mm.2.weight": (40, 55)}, "tensor 'mm.2.weight' has shape {55, 40, 1, 1}, expected {56, 40}"),
    ("gemma3nv", {"clip.vision.image_size": 8192}, {}, "key 'clip.vision.image_size': 8192 pixels, 1536 at most"),
    ("gemma3nv", {"clip.vision.image_size": 257}, {}, "key 'clip.vision.image_size': 257 is not a multiple of 256 pixels"),
    ("gemma3nv", {}, {"v.msfa.norm.weight": None}, "tensor 'v.msfa.norm.weight' is missing"),
    ("gemma3nv", {}, {"mm.embedding.weight": None}, "tensor 'mm.embedding.weight' is missing"),
    ("gemma3nv", {}, {"v.blk.1.0.dw_start.conv.weight": None, "v.blk.1.0.dw_mid.conv.weight": None}, "'v.blk.1.0' has no tensor of a convolution with steps of 2"),
    ("resampler", {"clip.minicpmv_version": 1}, {}, "key 'clip.minicpmv_version': 1 is not 2 to 6 or 100045"),
    ("resampler", {"clip.minicpmv_version": 7}, {}, "key 'clip.minicpmv_version': 7 is not 2 to 6 or 100045"),
    ("resampler", {"clip.minicpmv_query_num": 64}, {}, "key 'clip.minicpmv_query_num': 64, but tensor 'resampler.query' has 5 rows"),
    ("resampler", {}, {"resampler.query": (5, 255)}, "tensor 'resampler.query' has shape {255, 5, 1, 1}, expected {256, 5}"),
    ("resampler", {"clip.minicpmv_query_num": None}, {"resampler.query": (4097, 256)}, "tensor 'resampler.query' has shape {256, 4097, 1, 1}, expected {256, 4096}"),
    ("resampler", {"clip.minicpmv_query_num": None}, {"resampler.query": None}, "tensor 'resampler.query' is missing"),
    ("resampler", {}, {"resampler.kv.weight": None}, "tensor 'resampler.kv.weight' is missing"),
    ("resampler", {}, {"resampler.proj.weight": None}, "tensor 'resampler.proj.weight' is missing"),
    ("resampler", {}, {"resampler.proj.weight": (192, 192)}, "tensor 'resampler.proj.weight' has 192 rows, not a multiple of 128"),
    ("resampler", {}, {"resampler.attn.q.bias": None}, "tensor 'resampler.attn.q.bias' is missing"),
    ("llava_next", {"clip.vision.image_grid_pinpoints": [48, 97]}, {}, "key 'clip.vision.image_grid_pinpoints': 97 is not 1 to 32 times image_size = 48"),
    ("llava_next", {"clip.vision.image_grid_pinpoints": [48, 48]}, {}, "key 'clip.vision.image_grid_pinpoints': {48, 48} is 1 tiles, not 2 to 64"),
    ("llava_next", {"clip.vision.image_grid_pinpoints": [48, 96, 432, 384]}, {}, "key 'clip.vision.image_grid_pinpoints': {432, 384} is 72 tiles, not 2 to 64"),
    ("llava_next", {"clip.vision.image_aspect_ratio": "pad"}, {}, "key 'clip.vision.image_aspect_ratio': 'pad' is not 'anyres', which goes with image_grid_pinpoints"),
    ("llava_next", {"clip.vision.image_grid_pinpoints": None}, {}, "key 'clip.vision.image_aspect_ratio': 'anyres' is not 'square' or 'pad', which go without image_grid_pinpoints"),
    ("llava_next", {"clip.vision.image_grid_pinpoints": [48]}, {}, "key 'clip.vision.image_grid_pinpoints': expected an array of at most 64 pairs"),
    ("llava_next", {"clip.vision.image_grid_pinpoints": [-48, 96]}, {}, "key 'clip.vision.image_grid_pinpoints': -48 is not 1 to 32 times"),
    ("llava_next", {"clip.vision.mm_patch_merge_type": "flat"}, {}, "key 'clip.vision.mm_patch_merge_type': only 'spatial_unpad'"),
    ("llava_next", {}, {"model.image_newline": None}, "tensor 'model.image_newline' is missing"),
])
def test_what_types_ask_of_their_files(tool, tmp_path, name, keys, shapes, words):
    with_other(unpacked(name, tmp_path), tmp_path / "other.gguf", keys, shapes)
    done = encode(tool, tmp_path / "other.gguf", "vision", 48, 48, pixels(3, 48, 48))
    assert done.returncode == 1 and f"other.gguf: {words}" in done.stderr.decode(), done.stderr.decode()


def test_sizes_and_kinds_of_files(tool, tmp_path):
    file = unpacked("idefics3", tmp_path)
    done = encode(tool, file, "vision", 48, 36, pixels(3, 36, 48))
    assert done.returncode == 1 and b"a picture of 48 x 36 pixels, but the encoder takes 48 x 48" in done.stderr
    done = encode(tool, file, "audio", 48, 16, pixels(1, 16, 48))
    assert done.returncode == 1 and b"there is no encoder of sound" in done.stderr
    done = encode(tool, Path(__file__).resolve().parents[2] / "models" / "tinypy.gguf", "vision", 48, 48, pixels(3, 48, 48))
    assert done.returncode == 1 and b"key 'general.architecture': 'llama', but a file with an encoder of pictures or sound has 'clip'" in done.stderr
    data = file.read_bytes()
    file.write_bytes(data.replace(b"idefics3", b"idefics9"))
    done = encode(tool, file, "vision", 48, 48, pixels(3, 48, 48))
    assert done.returncode == 1 and b"key 'clip.projector_type': 'idefics9' is not supported (supported: gemma3, " in done.stderr


def test_frames_that_leave_one_over(tool, tmp_path):
    """qwen2a makes a row of two: a table of positions with an odd number of rows is refused."""
    file, odd = unpacked("qwen2audio", tmp_path), tmp_path / "odd.gguf"
    change_gguf.with_dims(file, odd, lambda name, dims: [dims[0], dims[1] - 1] if name == "a.position_embd.weight" else dims)
    done = encode(tool, odd, "audio", 46, 16, pixels(1, 16, 46))
    assert done.returncode == 1 and b"odd.gguf: tensor 'a.position_embd.weight' has 23 rows, and each 2 of them become one" in done.stderr, done.stderr


def test_a_graph_that_cannot_be_made(tool, repo, tmp_path):
    """A check that breaks while the plan is made is an error of the file, and all that was half made is given back once."""
    at = place(repo, "graph/graph.c", "reshape to another number of elements")
    done = tool(unpacked("idefics3", tmp_path), "vision", 48, 48, data=pixels(3, 48, 48), env={"WEFT_DIE": at})
    assert done.returncode == 1 and b"idefics3.gguf: internal error at " in done.stderr and at.encode() in done.stderr, done.stderr


def with_other(file, out, keys, shapes, renamed=lambda name: name):
    """The file with other numbers (None: without the key) and texts, zeros in other shapes in place of tensors (None: without), and other names."""
    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(out, "clip")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        if keys.get(key, ()) is not None:
            writer.add_key_value(key, keys.get(key, field.contents()), field.types[0], sub)
    for key in keys.keys() - reader.fields.keys():
        writer.add_string(key, keys[key])
    for t in reader.tensors:
        shape = shapes.get(t.name, ())
        if shape is not None:
            writer.add_tensor(renamed(t.name), np.zeros(shape, np.float32) if shape else t.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def answer(run_weft, tmp_path, picture, size="512", **keys):
    """Of the small pair of LLaVA, or of LLaVA 1.6, with a picture and other keys."""
    image, pair = pytest.importorskip("PIL.Image"), RECORDS.parent / "pictures"
    name = keys.pop("name", "llava")
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((pair / f"{name}-{kind}.gguf.xz").read_bytes()))
    with_other(tmp_path / "mmproj.gguf", tmp_path / "other.gguf", {f"clip.vision.{k}": v for k, v in keys.items()}, {})
    image.fromarray(picture).save(tmp_path / "p.png")
    return run_weft(["run", "-m", tmp_path / "model.gguf", "--mmproj", tmp_path / "other.gguf", "--image", tmp_path / "p.png", "-p", "Look at <__media__>.", "--temp", 0, "-n", 4, "--ignore-eos",
                     "--json", "--top-logprobs", 20, "-c", size])


def test_pictures_that_are_laid_in_a_square(run_weft, tmp_path):
    """image_aspect_ratio 'pad', as LLaVA's own code has it: the mean around the picture. Without it the centre is cut out."""
    wide = np.random.default_rng(1).integers(0, 256, (70, 150, 3), dtype=np.uint8)
    done = {how: answer(run_weft, tmp_path, wide, **({"image_aspect_ratio": how} if how else {})) for how in ("pad", "square", "")}
    mean = gguf.GGUFReader(tmp_path / "mmproj.gguf").fields["clip.vision.image_mean"].contents()
    square = np.tile(np.array([int(m * 255) for m in mean], dtype=np.uint8), (150, 150, 1))
    square[40:110] = wide
    padded = answer(run_weft, tmp_path, square)
    assert padded.returncode == 0 and done["pad"].stdout == padded.stdout != done[""].stdout == done["square"].stdout != "", padded.err
    bad = answer(run_weft, tmp_path, wide, image_aspect_ratio="anyres")
    assert bad.returncode == 1 and "key 'clip.vision.image_aspect_ratio': 'anyres' is not 'square' or 'pad'" in bad.err, bad.err


def test_tiles_that_the_context_has_no_room_for(run_weft, tmp_path):
    """Said before one is encoded: the whole and {1, 2} tiles of 8 x 8 rows are 64 and 7 lines of 16 and one more."""
    wide = np.zeros((70, 150, 3), dtype=np.uint8)
    done = answer(run_weft, tmp_path, wide, "128", name="llava_next", image_grid_pinpoints=[48, 96])
    assert done.returncode == 1 and "p.png: a picture of 150 x 70 pixels is 200 rows; the context has 128 positions" in done.err, done.err


def test_a_row_between_lines_that_is_no_number(run_weft, tmp_path, monkeypatch):
    pair = lzma.decompress((RECORDS.parent / "pictures" / "llava_next-mmproj.gguf.xz").read_bytes())
    (tmp_path / "reader.gguf").write_bytes(pair)
    [tensor] = [t for t in gguf.GGUFReader(tmp_path / "reader.gguf").tensors if t.name == "model.image_newline"]
    broken = pair[:tensor.data_offset] + np.float32(np.nan).tobytes() + pair[tensor.data_offset + 4:]
    monkeypatch.setattr(lzma, "decompress", lambda data, real=lzma.decompress: broken if (out := real(data)) == pair else out)
    done = answer(run_weft, tmp_path, np.zeros((70, 150, 3), dtype=np.uint8), name="llava_next")
    assert done.returncode == 1 and "other.gguf: tensor 'model.image_newline' has a float that is no number" in done.err, done.err


def test_no_memory_for_the_sizes_of_a_file(tool, tmp_path):
    """Rows of 1024 x 1024 pixels, of which a plan has 256: an error with the numbers before memory is taken, where `ulimit -v` gives less."""
    if os.environ.get("WEFT_SANITIZED"):
        pytest.skip("sanitizers need more addresses than this limit leaves; the plain build runs this test")
    file = tmp_path / "large.gguf"
    with_other(unpacked("mistral3", tmp_path), file, {"clip.vision.patch_size": 64, "clip.vision.spatial_merge_size": 16, "clip.vision.image_size": 1024},
               {"v.patch_embd.weight": (24, 3, 64, 64), "mm.patch_merger.weight": (24, 24 * 256)})
    most = 3 << 30
    done = tool(file, "vision", 1024, 1024, data=bytes(12 << 20), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
    assert done.returncode == 1, done
    assert re.search(rb"the encoder needs 3\d{3} MB of memory for it, and [23]\d{3} MB are left", done.stderr), done.stderr


def test_sizes_of_one_file(tool, tmp_path):
    """A picture's rows do not depend on what was encoded before it, and a larger one is taken after a smaller one."""
    file = unpacked("qwen25", tmp_path)
    one, two = (encode(tool, file, "vision", 24, 40, pixels(3, 40, 24) * n).stdout for n in (1, 2))
    assert len(one) == 15 * 40 * 4 and two == one * 2
    wide = encode(tool, file, "vision", 256, 256, pixels(3, 256, 256))
    assert wide.returncode == 0 and len(wide.stdout) == 32 * 32 * 40 * 4
    done = encode(tool, file, "vision", 30, 40, pixels(3, 40, 30))
    assert done.returncode == 1 and b"a picture of 30 x 40 pixels is not one of rows of 8 x 8" in done.stderr


def test_places_that_an_encoder_knows(tool, tmp_path):
    """A table of 16 columns and 16 lines of patches of 4 pixels."""
    file = unpacked("gemma4", tmp_path)
    assert encode(tool, file, "vision", 60, 12, pixels(3, 12, 60)).returncode == 0
    done = encode(tool, file, "vision", 12, 72, pixels(3, 72, 12))
    assert done.returncode == 1 and b"a picture of 12 x 72 pixels, but the encoder knows places of 64 x 64" in done.stderr


def test_of_two_encoders_the_known_one_is_used(run_weft, tool, tmp_path):
    """Files of Gemma 3n have an encoder of sound besides, which is not there yet."""
    gguf = pytest.importorskip("gguf")
    file, both = unpacked("gemma4", tmp_path), tmp_path / "both.gguf"
    old, new = gguf.GGUFReader(file), gguf.GGUFWriter(both, "clip")
    for key, field in old.fields.items():
        if key.startswith("clip."):
            new.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    new.add_bool("clip.has_audio_encoder", True)
    new.add_string("clip.audio.projector_type", "gemma3na")
    for t in old.tensors:
        new.add_tensor(t.name, t.data)
    new.add_tensor("a.input_projection.weight", old.tensors[0].data)
    new.write_header_to_file(), new.write_kv_data_to_file(), new.write_tensors_to_file(), new.close()
    one, other = (encode(tool, f, "vision", 48, 36, pixels(3, 36, 48)) for f in (file, both))
    assert one.returncode == other.returncode == 0 and one.stdout == other.stdout
    done = encode(tool, both, "audio", 48, 16, pixels(1, 16, 48))
    assert done.returncode == 1 and b"there is no encoder of sound" in done.stderr
    assert "pictures (gemma4v): any size, a token for 12 x 12 pixels; for models with 40 elements in an embedding" in run_weft(["inspect", both]).out
    assert "sound: of a type that is not supported" in run_weft(["inspect", both]).out
    for name, words in {"qwen25omni": "sound (qwen2.5o): 50 tokens for each 2 s", "qwen3omni": "sound (qwen3a): 13 tokens for each 1 s", "gemma4a": "sound (gemma4a): 1 tokens for each 0.04 s"}.items():
        assert words in run_weft(["inspect", unpacked(name, tmp_path)]).out


def test_chunks_of_sounds(tool, tmp_path):
    """Rows for each length are those that transformers counts; what was encoded before does not matter, and chunks do not see each other (Qwen2.5-Omni), 8 of them do (Qwen3-Omni), or a row sees earlier ones (Gemma 4)."""
    for name, counts in {"qwen25omni": {471: 118, 200: 50, 201: 50, 3: 1, 3000: 750}, "qwen3omni": {371: 48, 100: 13, 101: 14, 1: 1, 800: 104}, "gemma4a": {1: 1, 4: 1, 5: 2, 67: 17, 3000: 750}, "qwen2audio": {5: 1, 8: 1, 9: 2, 43: 10, 50: 12}}.items():
        file = unpacked(name, tmp_path)
        for frames, rows in counts.items():
            done = encode(tool, file, "audio", frames, 16, pixels(1, 16, frames))
            assert done.returncode == 0 and len(done.stdout) == rows * 40 * 4, (name, frames, done.stderr)
        last = min(471, max(counts))
        one, two = (encode(tool, file, "audio", last, 16, pixels(1, 16, last) * n).stdout for n in (1, 2))
        assert two == one * 2
    done = encode(tool, tmp_path / "qwen25omni.gguf", "audio", 2, 16, pixels(1, 16, 2))
    assert done.returncode == 1 and b"a sound of 2 frames is too short for this model" in done.stderr
    for frames in 4, 51:
        done = encode(tool, tmp_path / "qwen2audio.gguf", "audio", frames, 16, pixels(1, 16, frames))
        assert done.returncode == 1 and (b"a sound of 2 frames is too short" if frames == 4 else b"51 frames, but the encoder takes 16 and 48") in done.stderr, done.stderr
    done = encode(tool, tmp_path / "qwen3omni.gguf", "audio", 801, 16, pixels(1, 16, 801))
    assert done.returncode == 1 and b"a spectrogram of 16 bins and 801 frames, but the encoder takes 16 and 800" in done.stderr


def test_pictures_of_omni(tool, tmp_path):
    """One type for both of its encoders; its pictures are read as Qwen2.5-VL's."""
    file = unpacked("qwen25omni", tmp_path)
    with_other(file, tmp_path / "other.gguf", {"clip.vision.projector_type": "qwen2.5vl_merger"}, {})
    one, other = (encode(tool, f, "vision", 48, 40, pixels(3, 40, 48)) for f in (file, tmp_path / "other.gguf"))
    assert one.returncode == 0 and one.stdout == other.stdout != b"", one.stderr


@pytest.mark.parametrize(("name", "shapes", "words"), [
    ("qwen25omni", {"a.position_embd.weight": (99, 24)}, "tensor 'a.position_embd.weight' has 99 rows, and each 2 of them become one"),
    ("qwen25omni", {"a.position_embd.weight": (98, 24)}, "tensor 'a.position_embd.weight' has 98 rows, fewer than the 100 of a chunk"),
    *[(name, {"a.position_embd.weight": None}, "tensor 'a.position_embd.weight' is missing") for name in ("qwen25omni", "qwen2audio", "qwen3omni", "voxtral")],
    ("qwen25omni", {"a.conv1d.1.weight": None}, "tensor 'a.conv1d.1.weight' is missing"),
    ("qwen3omni", {"a.conv2d.1.weight": None}, "tensor 'a.conv2d.1.weight' is missing"),
    ("qwen3omni", {"a.conv2d.2.weight": (6, 5, 3, 3)}, "tensor 'a.conv2d.2.weight' has shape {3, 3, 5, 6}, expected {3, 3, 6, 6}"),
    ("qwen3omni", {"a.conv_out.weight": (24, 18)}, "tensor 'a.conv_out.weight' has shape {18, 24, 1, 1}, expected {12, 24}"),
    ("gemma4a", {"a.conv1d.0.weight": None}, "tensor 'a.conv1d.0.weight' is missing"),
    ("gemma4a", {"a.input_projection.weight": (24, 23)}, "tensor 'a.input_projection.weight' has shape {23, 24, 1, 1}, expected {24, 24}"),
    ("gemma4a", {"a.blk.1.conv_dw.weight": (24, 4)}, "tensor 'a.blk.1.conv_dw.weight' has shape {4, 24, 1, 1}, expected {5, 24}"),
    ("gemma4a", {"a.blk.2.per_dim_scale.weight": None}, "tensor 'a.blk.2.per_dim_scale.weight' is missing"),
    ("qwen3omni", {"a.position_embd.weight": (12, 24)}, "tensor 'a.position_embd.weight' has 12 rows, fewer than the 13 of a chunk"),
])
def test_what_sounds_in_chunks_ask_of_their_files(tool, tmp_path, name, shapes, words):
    with_other(unpacked(name, tmp_path), tmp_path / "other.gguf", {}, shapes)
    done = encode(tool, tmp_path / "other.gguf", "audio", 200, 16, pixels(1, 16, 200))
    assert done.returncode == 1 and f"other.gguf: {words}" in done.stderr.decode(), done.stderr.decode()


def test_queries_of_pictures_of_all_sizes(tool, tmp_path):
    """As many rows of a picture of one patch as of many."""
    file = unpacked("resampler", tmp_path)
    for width, height in ((4, 4), (80, 48), (4, 1200), (256, 256)):
        done = encode(tool, file, "vision", width, height, pixels(3, height, width))
        assert done.returncode == 0 and len(done.stdout) == 5 * 256 * 4, done.stderr


def test_inspect_counts_the_row_that_ends_a_picture(run_weft, tmp_path):
    assert "pictures (gemma3nv): resized to 256 x 256 pixels, 257 tokens; for" in run_weft(["inspect", unpacked("gemma3nv", tmp_path)]).out


@pytest.mark.parametrize(("name", "words"), [("gemma3", "pictures (gemma3): resized to 48 x 48 pixels, 16 tokens; for models with 40 elements in an embedding"),
                                             ("resampler", "pictures (resampler): the whole and slices of about 64 x 64 pixels, 5 tokens each; for models with 256 elements in an embedding"),
                                             ("qwen25", "pictures (qwen2.5vl_merger): any size, a token for 8 x 8 pixels; for models with 40 elements in an embedding")])
def test_inspect_says_what_it_encodes(run_weft, tmp_path, name, words):
    file = unpacked(name, tmp_path)
    assert words in run_weft(["inspect", file]).out
    told = json.loads(run_weft(["inspect", file, "--json"]).stdout)
    assert told["encodes"] == words and "-m names the model, and --mmproj this file" in told["why_not"]
    done = run_weft(["run", "-m", file, "-p", "x"])
    assert done.returncode == 1 and "'clip': this file encodes pictures or sound" in done.err, done.err
    changed(file, "clip.vision.patch_size", {"gemma3": 6, "qwen25": 4, "resampler": 4}[name], 3)
    done = run_weft(["inspect", file])
    assert done.returncode == 0 and "cannot encode: " in done.out and "clip.vision.patch_size = 3" in done.out
