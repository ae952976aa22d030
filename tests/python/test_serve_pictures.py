"""Pictures and sounds of conversations in weft serve: what transformers answers, by OpenAI's, Anthropic's and ollama's own clients; what is sent again is not encoded again; what cannot be taken
is refused with the reason.

The pairs of models and the records are among the shared files (vision/README.md there).
"""
import base64
import concurrent.futures
import io
import json
import lzma
import re
import shutil
import struct
import subprocess
import time
import urllib.request
import wave
import zlib

import pytest
from serving import Server, until

CASES = [("gemma3", "a.png"), ("qwen2.5vl", "b.jpg"), ("idefics3", "c.webp"), ("ultravox", "s.wav")]
PLAIN = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"


def start(weft, weft_env, folder, tmp_path, *args):
    (tmp_path / "plain.jinja").write_text(PLAIN)
    limits = ["--image-min-tokens", "8"] if folder.name == "qwen2.5vl" else []       # as the records were made
    return Server(weft, weft_env, folder / "model.gguf", "--chat-template-file", tmp_path / "plain.jinja", "--chat-bos", "-c", "1024", *limits, *args)


def coded(path):
    return base64.b64encode(path.read_bytes()).decode()


def content(vision, media, before, after):
    data = coded(vision / "media" / media)
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}} if media.endswith("wav") else \
        {"type": "image_url", "image_url": {"url": f"data:image/{media.rpartition('.')[2]};base64,{data}"}}
    return [{"type": "text", "text": before}, part, {"type": "text", "text": after}]


def ask(server, messages, **more):
    return server.ask("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 8, "ignore_eos": True, "logprobs": True, **more})


def ids(answer):
    return [one["id"] for one in answer["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize(("kind", "media"), CASES)
def test_answers_are_those_of_transformers(weft, weft_env, vision, tmp_path, kind, media):
    """The encoder is found beside the model. The second time all but one token is known; a restarted server takes up what the first one kept."""
    record = json.loads((vision / kind / f"{media}.json").read_text())
    before, after = record["prompt"].split("<__media__>")
    theirs = record["transformers"]["own_preprocessing"]["greedy"]
    message = [{"role": "user", "content": content(vision, media, before, after)}]
    kept = tmp_path / "kept"
    kept.mkdir()
    with start(weft, weft_env, vision / kind, tmp_path, "--keep-in", kept) as s:
        status, first = ask(s, message)
        assert status == 200 and ids(first) == theirs, first
        status, again = ask(s, message)
        assert ids(again) == theirs and again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1
        assert again["choices"][0]["logprobs"] == first["choices"][0]["logprobs"]
        sound = media.endswith("wav")
        assert s.ask("/props")[1]["modalities"] == {"vision": not sound, "audio": sound}
        n = s.ask("/v1/chat/completions/input_tokens", {"messages": message})[1]["input_tokens"]
        assert n == first["usage"]["prompt_tokens"]
        assert s.ask("/apply-template", {"messages": message})[1]["prompt"] == record["prompt"]
        assert s.end() == 0
    with start(weft, weft_env, vision / kind, tmp_path, "--keep-in", kept) as s:
        status, later = ask(s, message)
        assert status == 200 and later["choices"][0]["logprobs"] == first["choices"][0]["logprobs"]


@pytest.mark.parametrize(("kind", "media"), [CASES[0], CASES[1], CASES[3]])
def test_slots_with_media(weft, weft_env, vision, tmp_path, kind, media):
    """A slot that was saved has its picture or sound after a restart: nothing but the last token is read again, to the same bits."""
    record = json.loads((vision / kind / f"{media}.json").read_text())
    message = [{"role": "user", "content": content(vision, media, *record["prompt"].split("<__media__>"))}]
    folder = tmp_path / "slots"
    folder.mkdir()
    with start(weft, weft_env, vision / kind, tmp_path, "--slot-save-path", folder) as s:
        status, first = ask(s, message, id_slot=0)
        assert status == 200 and ids(first) == record["transformers"]["own_preprocessing"]["greedy"], first
        saved = s.ask("/slots/0?action=save", {"filename": "a.bin"})[1]["n_saved"]
        assert saved >= first["usage"]["prompt_tokens"] and s.end() == 0
    with start(weft, weft_env, vision / kind, tmp_path, "--slot-save-path", folder) as s:
        assert s.ask("/slots/0?action=restore", {"filename": "a.bin"})[1]["n_restored"] == saved
        later = ask(s, message, id_slot=0)[1]
        assert later["choices"][0]["logprobs"] == first["choices"][0]["logprobs"]
        assert later["usage"]["prompt_tokens_details"]["cached_tokens"] == later["usage"]["prompt_tokens"] - 1


def test_clients(weft, weft_env, vision, tmp_path):
    """openai (chat and Responses), anthropic and ollama send the same picture in their own ways, and get the same answer."""
    openai, anthropic, ollama = (pytest.importorskip(name) for name in ("openai", "anthropic", "ollama"))
    record = json.loads((vision / "gemma3" / "a.png.json").read_text())
    before, after = record["prompt"].split("<__media__>")
    path = vision / "media" / "a.png"
    url = f"data:image/png;base64,{coded(path)}"
    with start(weft, weft_env, vision / "gemma3", tmp_path) as s:
        one = openai.OpenAI(base_url=f"{s.url}/v1", api_key="none")
        chat = one.chat.completions.create(model="model", temperature=0, max_tokens=8, messages=[{"role": "user", "content": content(vision, "a.png", before, after)}])
        wanted = chat.choices[0].message.content
        assert wanted
        answer = one.responses.create(model="model", temperature=0, max_output_tokens=8, input=[{"role": "user", "content": [
            {"type": "input_text", "text": before}, {"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": after}]}])
        assert answer.output_text == wanted
        message = anthropic.Anthropic(base_url=s.url, api_key="none").messages.create(model="model", extra_body={"temperature": 0}, max_tokens=8, messages=[{"role": "user", "content": [
            {"type": "text", "text": before}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": coded(path)}}, {"type": "text", "text": after}]}])
        assert message.content[0].text == wanted
        alone = one.chat.completions.create(model="model", temperature=0, max_tokens=8, messages=[{"role": "user", "content": content(vision, "a.png", "", after)}])
        told = ollama.Client(host=s.url).chat(model="model", messages=[{"role": "user", "content": after, "images": [str(path)]}], options={"temperature": 0, "num_predict": 8})
        assert told.message.content == alone.choices[0].message.content
        made = ollama.Client(host=s.url).generate(model="model", prompt=after, images=[str(path)], options={"temperature": 0, "num_predict": 8})
        assert made.response == told.message.content
        assert s.ask("/api/generate", {"prompt": "x", "raw": True, "images": [coded(path)]})[0] == 400


@pytest.mark.parametrize(("kind", "media"), [CASES[0], CASES[3]])
def test_completions_with_media(weft, weft_env, vision, tmp_path, kind, media):
    """llama-server's form of a prompt, at its endpoint and at OpenAI's, whole and as a stream: what transformers answers."""
    record = json.loads((vision / kind / f"{media}.json").read_text())
    prompt, wanted = {"prompt_string": record["prompt"], "multimodal_data": [coded(vision / "media" / media)]}, record["transformers"]["own_preprocessing"]["greedy"]
    with start(weft, weft_env, vision / kind, tmp_path) as s:
        body = {"temperature": 0, "n_predict": len(wanted), "ignore_eos": True, "return_tokens": True}
        status, first = s.ask("/completion", body | {"prompt": prompt})
        assert status == 200 and first["tokens"] == wanted, first
        status, two = s.ask("/completions", body | {"prompt": [prompt, "x", prompt]})
        assert status == 200 and [one["tokens"] == wanted for one in two] == [True, False, True] and two[2]["tokens_evaluated"] == first["tokens_evaluated"]
        lines = s.ask("/completion", body | {"prompt": [prompt], "stream": True})[1].splitlines()
        assert "".join(json.loads(line[6:])["content"] for line in lines if line.startswith("data: {")) == first["content"]
        ai = pytest.importorskip("openai").OpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=0)
        assert ai.completions.create(model="m", prompt="", temperature=0, max_tokens=len(wanted), extra_body={"prompt": prompt, "ignore_eos": True}).choices[0].text == first["content"]


# ---- with the model of this tree and an encoder for it ------------------------------------------------------------------

def small(weft, weft_env, tinypy, tmp_path, *args):
    (tmp_path / "plain.jinja").write_text(PLAIN)
    return Server(weft, weft_env, tinypy, "--mmproj", pytest.importorskip("projector").write(tmp_path / "mmproj.gguf"), "--chat-template-file", tmp_path / "plain.jinja", *args)


def picture(color=(9, 9, 9), size=(60, 40)):
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", size, color).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def shown(url, text="def f("):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": url if isinstance(url, dict) else {"url": url}}, {"type": "text", "text": text}]}]


def sound(rate):
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes(bytes(200))
    return [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": base64.b64encode(out.getvalue()).decode(), "format": "wav"}}]}]


def test_other_pictures_other_scores(weft, weft_env, tinypy, tmp_path):
    """The same one again: the same, and most of it is known."""
    with small(weft, weft_env, tinypy, tmp_path) as s:
        red, blue, again = (ask(s, shown(picture(color))) for color in ((255, 0, 0), (0, 0, 255), (255, 0, 0)))
        assert red[0] == blue[0] == 200, red
        assert red[1]["choices"][0]["logprobs"] == again[1]["choices"][0]["logprobs"] != blue[1]["choices"][0]["logprobs"]
        assert again[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 60


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_what_is_refused(weft, weft_env, tinypy, tmp_path):
    huge = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 20000, 20000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    with small(weft, weft_env, tinypy, tmp_path) as s:
        for messages, words in [(shown("https://example.com/a.png"), "nothing is fetched"), (shown("file:///etc/passwd"), "nothing is fetched"),
                                (shown("data:image/png,abc"), "not in base64"), (shown("!!"), "not in base64"), (shown("aGVsbG8="), "no picture (PNG, JPEG, WebP)"),
                                (shown(base64.b64encode(huge).decode()), "20000 x 20000 = 400000000 pixels"), (sound(16000), "takes no sound"),
                                (shown({"url": 5}), "messages"), (shown("data:;base64,"), "no picture")]:
            status, got = ask(s, messages)
            assert status == 400 and words in got["error"]["message"], got
        part = shown(picture())[0]["content"][:1]
        status, got = ask(s, [{"role": "user", "content": part * 65}])
        assert status == 400 and "64 are the most" in got["error"]["message"]
        assert ask(s, shown(picture()))[0] == 200
    with small(weft, weft_env, tinypy, tmp_path, "--max-request-memory", "16") as s:
        status, got = ask(s, shown(picture(size=(1025, 1024))))
        assert status == 400 and "1025 x 1024 = 1049600 pixels; 1048576 are allowed" in got["error"]["message"], got
        assert ask(s, shown(picture(size=(1024, 1024))))[0] == 200
    with Server(weft, weft_env, tinypy, "--chat-template-file", tmp_path / "plain.jinja") as s:
        status, got = ask(s, shown(picture()))
        assert status == 400 and "the model understands only text" in got["error"]["message"]
        assert s.ask("/props")[1]["modalities"] == {"vision": False, "audio": False}


BROKEN = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
static const volatile char *full;
__attribute__((constructor)) static void look(void) { int fd = open(getenv("FULL"), O_RDONLY); full = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0); }
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from) {
  if (full && *full == '2' && flags & MAP_ANONYMOUS && flags & MAP_NORESERVE) { errno = ENOMEM; return MAP_FAILED; }
  return ((void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap"))(at, n, prot, flags, fd, from);
}
pid_t fork(void) { if (*full == '1') { errno = EAGAIN; return -1; } return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))(); }
"""


SLOW = """#include <string.h>
#include <time.h>
struct info { long frames; int samplerate, channels, format, sections, seekable; };
static long left = 1000;
void *sf_open_virtual(void *io, int mode, struct info *info, void *data) {
  while (clock() < 1.2 * CLOCKS_PER_SEC) continue;
  *info = (struct info){.frames = left, .samplerate = 16000, .channels = 1};
  return info;
}
long sf_readf_float(void *f, float *to, long n) { n = left < n ? left : n; memset(to, 0, 4 * n); left -= n; return n; }
int sf_error(void *f) { return 0; }
const char *sf_strerror(void *f) { return ""; }
int sf_close(void *f) { return 0; }
"""


def needs_library_of_its_own(sanitized):
    if sanitized:
        pytest.skip("a sanitizer must be the first library; the plain build runs this test")
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")


def test_failures_of_the_server(weft, weft_env, tinypy, tmp_path, sanitized):
    """A library that is not here is no fault of the request, nor is a system that makes no process or has no memory."""
    needs_library_of_its_own(sanitized)
    full = tmp_path / "full"
    full.write_bytes(b"0")
    (tmp_path / "x.c").write_text(BROKEN)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "fork.so", tmp_path / "x.c"], check=True)
    subprocess.run(["gcc", "-shared", "-x", "c", "-o", tmp_path / "libjpeg.so.62", "/dev/null"], check=True)
    jpeg = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (60, 40)).save(jpeg, "JPEG")
    env = {**weft_env, "LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(tmp_path / "fork.so"), "FULL": str(full)}
    with small(weft, env, tinypy, tmp_path) as s:
        status, got = ask(s, shown(base64.b64encode(jpeg.getvalue()).decode()))
        assert status == 500 and "the library libjpeg.so.62 (Debian's package libjpeg62-turbo) has no function" in got["error"]["message"], got
        full.write_bytes(b"2")
        status, got = ask(s, shown(picture()))
        assert status == 503 and "memory: reserving " in got["error"]["message"] and s.headers["Retry-After"], got
        full.write_bytes(b"0")
        assert ask(s, shown(picture()))[0] == 200
        full.write_bytes(b"1")
        status, got = ask(s, shown(picture((1, 2, 3))))
        assert status == 503 and "the process that decodes cannot be made: Resource temporarily unavailable" in got["error"]["message"], got
        full.write_bytes(b"0")
        assert ask(s, shown(picture((1, 2, 3))))[0] == 200


def test_what_is_made_of_a_picture_is_charged(weft, weft_env, repo, tmp_path):
    """A picture of 120,000 pixels in a square is one of 144,000,000."""
    with_other = pytest.importorskip("test_projectors").with_other
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((repo / "tests" / "records" / "pictures" / f"llava-{kind}.gguf.xz").read_bytes()))
    with_other(tmp_path / "mmproj.gguf", tmp_path / "pad.gguf", {"clip.vision.image_aspect_ratio": "pad"}, {})
    (tmp_path / "plain.jinja").write_text(PLAIN)
    with Server(weft, weft_env, tmp_path / "model.gguf", "--mmproj", tmp_path / "pad.gguf", "--chat-template-file", tmp_path / "plain.jinja") as s:
        status, got = ask(s, shown(picture(size=(12000, 10))))
        assert status == 413 and re.search(r"4\d\d MB of memory are needed for it, beside \d+ MB that are held; 256 MB is the most \(--max-request-memory\)", got["error"]["message"]), got
        assert ask(s, shown(picture(size=(120, 100))))[0] == 200


def test_decoding_is_charged_to_its_request(weft, weft_env, repo, make_model, tmp_path, sanitized):
    """A FLAC of ten minutes of silence is small and becomes 100 MB; a decoder that works for longer than its request may ends with what it has decoded refused."""
    needs_library_of_its_own(sanitized)
    soundfile, numpy = pytest.importorskip("soundfile"), pytest.importorskip("numpy")
    out = io.BytesIO()
    soundfile.write(out, numpy.zeros(590 * 48000, "int16"), 48000, format="FLAC")
    make_model.write("llama-yarn", tmp_path / "m.gguf", dim=40)
    (tmp_path / "mmproj.gguf").write_bytes(lzma.decompress((repo / "tests" / "records" / "projectors" / "voxtral.gguf.xz").read_bytes()))
    (tmp_path / "plain.jinja").write_text(PLAIN)
    messages = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": base64.b64encode(out.getvalue()).decode(), "format": "flac"}}]}]
    with Server(weft, weft_env, tmp_path / "m.gguf", "--chat-template-file", tmp_path / "plain.jinja", "--max-request-memory", "64") as s:
        status, got = ask(s, messages)
        assert status == 413 and "MB that are held; 64 MB is the most (--max-request-memory)" in got["error"]["message"], got
    (tmp_path / "x.c").write_text(SLOW)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "libsndfile.so.1", tmp_path / "x.c"], check=True)
    with Server(weft, {**weft_env, "LD_LIBRARY_PATH": str(tmp_path)}, tmp_path / "m.gguf", "--chat-template-file", tmp_path / "plain.jinja", "--max-request-work", "1") as s:
        status, got = ask(s, messages)
        assert status == 400 and "a picture or a sound: the work for this request has taken 1." in got["error"]["message"] and "--max-request-work" in got["error"]["message"], got


def test_an_encoder_of_another_model(weft, weft_env, repo, tinypy, tmp_path):
    """Beside the model it costs a warning; named, it is an error. --no-mmproj does not look."""
    shutil.copy(tinypy, tmp_path / "m.gguf")
    (tmp_path / "mmproj.gguf").write_bytes(lzma.decompress((repo / "tests" / "records" / "projectors" / "idefics3.gguf.xz").read_bytes()))
    for args, warned in ((), True), (("--no-mmproj",), False):
        with Server(weft, weft_env, tmp_path / "m.gguf", *args) as s:
            assert s.ask("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
            assert ("takes text alone: " in "".join(s.said)) == warned
    done = subprocess.run([weft, "serve", "-m", tmp_path / "m.gguf", "--mmproj", tmp_path / "mmproj.gguf", "--port", "0"], env=weft_env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "clip.vision.projection_dim" in done.stderr


def takes(server):
    """What each model of the list takes, as /v1/models and /api/show say it."""
    listed = {m["id"]: m["architecture"]["input_modalities"] for m in server.ask("/v1/models")[1]["data"]}
    shown = {name: [w for w in server.ask("/api/show", {"model": name})[1]["capabilities"] if w in ("vision", "audio")] for name in listed}
    assert shown == {name: ["vision"] if "image" in inputs else [] for name, inputs in listed.items()}
    return listed


def test_encoders_of_a_folder(weft, weft_env, tinypy, tmp_path):
    """Each model has the encoder that its name, its folder or a note of weft pull says, and the list tells what it takes before it is loaded."""
    write, folder = pytest.importorskip("projector").write, tmp_path / "models"
    (folder / "alone").mkdir(parents=True)
    (folder / "both").mkdir()
    (folder / "alone" / "weights-Q4_K_M.gguf").symlink_to(tinypy)                 # a link that leads elsewhere, as in Hugging Face's cache
    write(folder / "alone" / "mmproj-F16.gguf")
    for name in "a-Q8_0", "b-Q8_0":
        shutil.copy(tinypy, folder / "both" / f"{name}.gguf")
    write(folder / "both" / "A-mmproj-f16.gguf")
    for name in "pair-Q8_0", "plain", "later":
        shutil.copy(tinypy, folder / f"{name}.gguf")
    write(folder / "mmproj-pair-BF16.gguf")
    write(folder / "mmproj-wide-F16.gguf", 64)
    shutil.copy(tinypy, folder / "wide.gguf")
    (tmp_path / "plain.jinja").write_text(PLAIN)
    text, both = ["text"], ["text", "image"]
    with small(weft, weft_env, tinypy, tmp_path) as s:
        wanted = ask(s, shown(picture()))[1]["choices"][0]["logprobs"]
    with Server(weft, weft_env, None, "--models-dir", folder, "--chat-template-file", tmp_path / "plain.jinja") as s:
        assert takes(s) == {"alone": both, "a-Q8_0": both, "b-Q8_0": text, "pair-Q8_0": both, "plain": text, "later": text, "wide": text}
        assert any("wide takes text alone: " in line and "clip.vision.projection_dim" in line for line in s.said) and not any("mmproj-pair" in line for line in s.said)
        for name in "alone", "a-Q8_0", "pair-Q8_0":
            status, got = ask(s, shown(picture()), model=name)
            assert status == 200 and got["choices"][0]["logprobs"] == wanted
            assert s.ask(f"/props?model={name}")[1]["modalities"] == {"vision": True, "audio": False}
        status, got = ask(s, shown(picture()), model="plain")
        assert status == 400 and "the model understands only text" in got["error"]["message"]
        write(folder / "later.mmproj-f16.gguf")
        until(lambda: takes(s)["later"] == both)
        assert ask(s, shown(picture()), model="later")[0] == 200
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in "one.gguf", "two.gguf":
        shutil.copy(tinypy, cache / name)
    write(cache / "u_r_mmproj.gguf")
    (cache / "two.gguf.mmproj").write_text("u_r_mmproj.gguf\n")
    shutil.copy(tinypy, cache / "u_r_three.gguf")
    # names of llama.cpp's cache, of repositories whose names have a line in them: one encoder does not go with a model of this width
    for size, width in ("4b", 256), ("12b", 64):
        write(cache / f"bartowski_google_gemma-3-{size}-it-GGUF_mmproj-google_gemma-3-{size}-it-f16.gguf", width)
    shutil.copy(tinypy, cache / "bartowski_google_gemma-3-4b-it-GGUF_google_gemma-3-4b-it-Q8_0.gguf")
    with Server(weft, {**weft_env, "LLAMA_CACHE": str(cache)}, None, "--chat-template-file", tmp_path / "plain.jinja") as s:
        assert takes(s) == {"one": text, "two": both, "u_r_three": both, "bartowski_google_gemma-3-4b-it-GGUF_google_gemma-3-4b-it-Q8_0": both}
        assert ask(s, shown(picture()), model="two")[1]["choices"][0]["logprobs"] == wanted
    with Server(weft, {**weft_env, "LLAMA_CACHE": str(cache)}, None, "--no-mmproj") as s:
        assert takes(s) == {"one": text, "two": text, "u_r_three": text, "bartowski_google_gemma-3-4b-it-GGUF_google_gemma-3-4b-it-Q8_0": text}


def mebibytes(server):
    """Resident memory."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "left"])
def test_many_pictures(weft, weft_env, tinypy, tmp_path, sanitized, streams):
    """Each with a picture of its own, four at a time, with plain questions between them; a fifth of the streams are left. Memory of requests is where it was, and the process hardly grows."""
    def one(i):
        messages = shown(picture((i % 256, 7 * i % 256, 99), (40 + i % 7, 30 + i % 5)))
        client = Server.__new__(Server)
        client.url = s.url
        if streams and i % 5 == 0:
            body = json.dumps({"messages": messages, "max_tokens": 100, "stream": True}).encode()
            with urllib.request.urlopen(urllib.request.Request(f"{s.url}/v1/chat/completions", body, {"Content-Type": "application/json"})) as answer:
                return answer.read(20) and answer.status
        if i % 7 == 0:
            assert client.ask("/health")[0] == 200
        return ask(client, messages)[0]
    with small(weft, weft_env, tinypy, tmp_path, "-c", "512") as s:
        assert one(1) == 200
        time.sleep(0.5)
        held = s.metric("weft:request_memory_bytes")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert set(pool.map(one, range(20 if sanitized else 50))) == {200}
            resident = mebibytes(s)
            assert sanitized or set(pool.map(one, range(50, 200 if streams else 100))) == {200}
        assert sanitized or mebibytes(s) < resident + 16                        # 3 are measured: rows of pictures that are kept
        until(lambda: s.metric("weft:request_memory_bytes") == held, 10, 0.1)      # the question before may have its answer still


def test_a_model_that_goes_with_its_pictures(weft, weft_env, tinypy, tmp_path):
    """Pictures that are kept go before their model does; the next time they are encoded anew, to the same answer."""
    with small(weft, weft_env, tinypy, tmp_path) as s:
        first = ask(s, shown(picture()))
        assert s.ask("/models/unload", {"model": "tinypy"})[1] == {"success": True}
        until(lambda: s.ask("/v1/models")[1]["data"][0]["status"]["value"] == "unloaded")
        again = ask(s, shown(picture()))
        assert first[0] == again[0] == 200 and first[1]["choices"][0]["logprobs"] == again[1]["choices"][0]["logprobs"]


# ---- vectors ------------------------------------------------------------------------------------------------------------

def near(a, b):
    return a == pytest.approx(b, rel=1e-6, abs=1e-9)


def test_prompts_of_completions(weft, weft_env, tinypy, tmp_path):
    """What an object in the place of a prompt may say, and what is wrong with it. Without data its marker is text."""
    data = picture((200, 10, 10))
    refusals = [
        ({}, "'prompt[0]' must have 'prompt_string'"), ([{"prompt_string": 3}], "a 'prompt_string' that is no string"), (["x", {"prompt_string": "x", "multimodal_data": "x"}], "'prompt[1]' has 'multimodal_data'"),
        ({"content": []}, "must have 'prompt_string'"), ({"prompt_string": "<__media__><__media__>", "multimodal_data": [data]}, "2 markers (<__media__>) for 1 pictures"),
        ({"prompt_string": "x", "multimodal_data": [data] * 65}, "64 are the most"), ({"prompt_string": "x", "multimodal_data": [3]}, "must have texts in base64"),
        ({"prompt_string": "x", "multimodal_data": ["aGVsbG8="]}, "no picture (PNG, JPEG, WebP)"), ({"prompt_string": "x" * 70000, "multimodal_data": ["no base64"]}, "the context holds")]
    with small(weft, weft_env, tinypy, tmp_path) as s:
        ask = lambda prompt, path="/completion", **more: s.ask(path, {"prompt": prompt, "temperature": 0, "n_predict": 4, "return_tokens": True, **more})
        marked, plain = ask({"prompt_string": "def f(<__media__>", "multimodal_data": [data]}), ask({"prompt_string": "def f("})
        assert marked[0] == plain[0] == 200 and marked[1]["tokens_evaluated"] > 64 > plain[1]["tokens_evaluated"]
        assert plain[1]["tokens"] == ask("def f(")[1]["tokens"] and ask({"prompt_string": "<__media__>"})[1]["tokens"] == ask("<__media__>")[1]["tokens"]
        front = ask({"prompt_string": "def f(", "multimodal_data": [data]})[1]
        assert front["tokens_evaluated"] == marked[1]["tokens_evaluated"] and front["tokens"] == ask({"prompt_string": "<__media__>def f(", "multimodal_data": [data]})[1]["tokens"]
        for path in "/completion", "/v1/completions":
            for prompt, words in refusals:
                status, got = ask(prompt, path)
                assert status == 400 and words in got["error"]["message"], (path, got)
        status, got = ask({"prompt_string": "x", "multimodal_data": [data]}, "/v1/completions", echo=True)
        assert status == 400 and got["error"]["param"] == "echo", got
        assert ask({"prompt_string": "x"}, "/v1/completions", echo=True)[1]["choices"][0]["text"].startswith("x")
        status, got = ask({"prompt_string": "x"}, "/infill")
        assert status == 400 and "'prompt'" in got["error"]["message"], got
    with Server(weft, weft_env, tinypy) as s:
        status, got = s.ask("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": [data]}})
        assert status == 400 and "the model understands only text" in got["error"]["message"], got


def test_vectors_of_conversations(weft, weft_env, run_weft, tinypy, tmp_path):
    """vLLM's form of a request for a vector, as its manual sends it: messages in the place of input, through the template, without the beginning of an answer unless it is asked for."""
    openai = pytest.importorskip("openai")
    data = picture((200, 10, 10))
    (tmp_path / "a.png").write_bytes(base64.b64decode(data))
    (tmp_path / "roles.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{{ more }}{% endif %}")
    messages = shown(f"data:image/png;base64,{data}")
    with small(weft, weft_env, tinypy, tmp_path, "--pooling", "mean", "--chat-template-file", tmp_path / "roles.jinja") as s:
        ai = openai.OpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=0)

        def theirs(messages, **more):
            body = {"messages": messages, "model": "m", "encoding_format": "float", "add_special_tokens": True, **more}
            made = ai.post("/embeddings", cast_to=openai.types.CreateEmbeddingResponse, body=body)
            assert len(made.data) == 1
            return made.data[0].embedding

        def ours(text):
            done = run_weft(["embed", "-m", tinypy, "--mmproj", tmp_path / "mmproj.gguf", "--image", tmp_path / "a.png", "-p", text, "--pooling", "mean", "--embd-output-format", "array"])
            assert done.returncode == 0, done.err
            return json.loads(done.stdout)[0]

        assert near(theirs(messages), ours("<user><__media__>def f(</user>"))
        assert near(theirs(messages, add_generation_prompt=True, chat_template_kwargs={"more": "x"}), ours("<user><__media__>def f(</user><assistant>x"))
        begun = [*messages, {"role": "assistant", "content": "x = 1"}]
        assert near(theirs(begun), ours("<user><__media__>def f(</user><assistant>x = 1</assistant>"))
        assert near(theirs(begun, continue_final_message=True), ours("<user><__media__>def f(</user><assistant>x = 1"))
        assert theirs(messages, encoding_format="base64")
        for more, words in (({"input": "x"}, "'messages' and 'input'"), ({"messages": []}, "'messages' must be an array with messages"), ({"chat_template": "x"}, "'chat_template' is not supported"),
                            ({"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}, "'video_url', which is not understood")):
            status, got = s.ask("/v1/embeddings", {"messages": messages, **more})
            assert status == 400 and words in got["error"]["message"], got
        status, got = s.ask("/v1/embeddings", {"model": "x"})
        assert status == 400 and "'input' is missing" in got["error"]["message"], got


def test_vectors_of_pictures(weft, weft_env, run_weft, tinypy, tmp_path):
    """llama-server's two forms of a text with pictures, at its endpoints and by OpenAI's client: the vectors of weft embed. Control tokens are names in parts, and tokens in a prompt."""
    openai = pytest.importorskip("openai")
    coded_picture = picture((200, 10, 10))
    (tmp_path / "a.png").write_bytes(base64.b64decode(coded_picture))
    part, said = shown(f"data:image/png;base64,{coded_picture}", "def f(")[0]["content"]
    with small(weft, weft_env, tinypy, tmp_path, "--pooling", "mean") as s:
        def ours(text, *args):
            done = run_weft(["embed", "-m", tinypy, "--mmproj", tmp_path / "mmproj.gguf", "--image", tmp_path / "a.png", "-p", text, "--pooling", "mean", "--embd-output-format", "array", *args])
            assert done.returncode == 0, done.err
            return json.loads(done.stdout)[0]

        first, last = ours("<__media__>def f("), ours("def f(<__media__>")
        assert not near(first, last)
        ai = openai.OpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=0)
        made = ai.embeddings.create(model="m", input=[{"content": [part, said]}, "def f(", {"content": [said, part]}, {"content": [{"type": "text", "text": "def "}, {"type": "text", "text": "f("}]}])
        assert near(made.data[0].embedding, first) and near(made.data[2].embedding, last) and made.data[1].embedding == made.data[3].embedding
        for path, field in ("/embedding", "content"), ("/embeddings", "input"):
            status, got = s.ask(path, {field: {"prompt_string": "def f(<__media__>", "multimodal_data": [coded_picture]}})
            assert status == 200 and near(got[0]["embedding"][0], last), got
        special = "</s><__media__>def f("
        assert near(s.ask("/embedding", {"content": {"prompt_string": special, "multimodal_data": [coded_picture]}})[1][0]["embedding"][0], ours(special, "--parse-special"))
        told = s.ask("/v1/embeddings", {"input": {"content": [{"type": "text", "text": "</s>"}, part, said]}})[1]
        assert near(told["data"][0]["embedding"], ours(special)) and told["usage"]["prompt_tokens"] > 64
        for path, body, words in (
                ("/v1/embeddings", {"input": {"content": "text"}}, "'input[0]' must be an array of parts"), ("/v1/embeddings", {"input": [{}]}, "'input[0]' must have either"),
                ("/v1/embeddings", {"input": [{"content": [{"type": "video_url"}]}]}, "'input[0]' has a part that is no text, no picture and no sound"),
                ("/v1/embeddings", {"input": [{"content": [{"type": "text", "text": "<__media__>"}, part]}]}, "2 markers (<__media__>) for 1 pictures"),
                ("/embedding", {"content": {"prompt_string": "x", "multimodal_data": "x"}}, "'multimodal_data' that is no array"), ("/embedding", {"content": {"prompt_string": 1}}, "no string"),
                ("/embedding", {"content": {"prompt_string": "x" * 70000 + "<__media__>", "multimodal_data": ["no base64"]}}, "the context holds"),
                ("/embedding", {"content": {"prompt_string": "x", "multimodal_data": ["aGVsbG8="]}}, "no picture (PNG, JPEG, WebP)"),
                ("/api/embed", {"input": [{"content": [part]}]}, "must be a string or an array, not an object")):
            status, got = s.ask(path, body)
            assert status == 400 and words in str(got["error"]), got
    with Server(weft, weft_env, tinypy, "--pooling", "mean") as s:
        status, got = s.ask("/v1/embeddings", {"input": [{"content": [part]}]})
        assert status == 400 and "the model understands only text" in got["error"]["message"], got
