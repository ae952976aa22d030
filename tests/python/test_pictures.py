"""Pictures and sound in prompts of weft run, against records of transformers with its own preprocessing: greedy ids and log-probabilities after decoding, resizing, encoding and evaluating.

The pairs of models and the records are among the shared files (vision/README.md there); what needs none of them is tested on files of this tree.
"""
import json
import lzma
import math
import re
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest

KL = 1e-3                       # what is measured is 7.4e-5 where halves are multiplied as BF16, else 5e-6; with exact products and a cache in F32 1e-10
CASES = [(kind, media) for kind in ("gemma3", "qwen2.5vl", "idefics3") for media in ("a.png", "b.jpg", "c.webp")] + [("ultravox", "s.wav")]
RECORDS = Path(__file__).resolve().parents[1] / "records" / "pictures"
LIMITS = {"qwen2.5vl": ["--image-min-tokens", "8"]}      # as the records were made


def divergence(recorded, ours):
    """KL(recorded || ours) of the recorded tokens, and of all others as one."""
    p, q = [math.exp(x) for _, x in recorded], [math.exp(ours[token]) for token, _ in recorded]
    p.append(max(1 - sum(p), 0))
    q.append(max(1 - sum(q), 0))
    return sum(a * math.log(a / max(b, 1e-12)) for a, b in zip(p, q) if a > 1e-9)


def steps(run_weft, vision, kind, media, prompt, *more):
    done = run_weft(["run", "-m", vision / kind / "model.gguf", "--image", vision / "media" / media, "-p", prompt, "--temp", 0, "-n", 8, "--ignore-eos", "--json", "--top-logprobs", 1000,
                     "-c", 1024, *LIMITS.get(kind, []), *more])
    assert done.returncode == 0, done.err
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("kind", "media"), CASES)
def test_answers_are_those_of_transformers(run_weft, vision, kind, media):
    """The encoder is found beside the model."""
    record = json.loads((vision / kind / f"{media}.json").read_text())
    theirs = record["transformers"]["own_preprocessing"]
    ours = steps(run_weft, vision, kind, media, record["prompt"])
    kl = [divergence(r, dict(map(tuple, mine["top"]))) for r, mine in zip(theirs["steps_top20"], ours, strict=True)]
    print(f"{kind} {media}: largest KL {max(kl):.2g}")
    assert [x["id"] for x in ours] == theirs["greedy"] and max(kl) <= KL


def picture(width, height):
    """As record_answers.py makes it, as a PNG."""
    def pixel(x, y):
        planes = [x * 255 // (width - 1), y * 255 // (height - 1), (x * 7 + y * 13 + x * y % 11) % 256]
        return bytes(p if (x + y) % 40 < 20 else 255 - p for p in planes)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(width)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def sound(samples):
    """As record_answers.py makes it, as a WAV."""
    return wav(struct.pack(f"<{samples}h", *((i * i // 97 % 2001 - 1000) * 16 for i in range(samples))))


def wav(data):
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16) + b"data" + struct.pack("<I", len(data)) + data


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDS.glob("*.json")))
def test_answers_of_small_pairs(run_weft, tmp_path, name):
    """Pairs that llama.cpp's converter wrote of random small models: tiles, what the prompt has around a picture, who sees whom; all as transformers' processor and model have it."""
    record = json.loads((RECORDS / f"{name}.json").read_text())
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((RECORDS / f"{record.get('files', name)}-{kind}.gguf.xz").read_bytes()))
    if "version" in record:
        data, key = (tmp_path / "mmproj.gguf").read_bytes(), b"clip.minicpmv_version\5\0\0\0"
        (tmp_path / "mmproj.gguf").write_bytes(data.replace(key + b"\6", key + bytes([record["version"]])))
    media = ["--audio", tmp_path / "sound.wav"] if "sound" in record else ["--image", tmp_path / "picture.png"]
    media[1].write_bytes(sound(record["sound"]) if "sound" in record else picture(*record["picture"]))
    images = media * record["prompt"].count("<__media__>")
    done = run_weft(["run", "-m", tmp_path / "model.gguf", *images, "-p", record["prompt"], "--temp", 0, "-n", 8, "--ignore-eos", "--json", "--top-logprobs", 264,
                     "-c", 512, *record["options"]])
    assert done.returncode == 0, done.err
    ours = [json.loads(line) for line in done.stdout.splitlines()]
    kl = [divergence(r, dict(map(tuple, mine["top"]))) for r, mine in zip(record["steps"], ours, strict=True)]
    print(f"{name}: largest KL {max(kl):.2g}")
    assert f"{record['n_tokens']} tokens read" in done.err, done.err
    assert [x["id"] for x in ours] == record["greedy"] and max(kl) <= KL


def test_drafts_after_a_picture(run_weft, tmp_path):
    """A model with recurrent layers and an MTP block, whose drafts after a picture change nothing: ids and log-probabilities. A few of them are right."""
    record = json.loads((RECORDS / "qwen35.json").read_text())
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((RECORDS / f"qwen35-{kind}.gguf.xz").read_bytes()))
    (tmp_path / "picture.png").write_bytes(picture(*record["picture"]))
    assert "drafts further tokens (MTP) by block 2" in run_weft(["inspect", tmp_path / "model.gguf"]).out
    for sampling in ["--temp", "0"], ["--temp", "1", "-s", "3"]:
        for prompt in record["prompt"], f"{record['prompt']} <__media__>":
            args = ["run", "-m", tmp_path / "model.gguf", *["--image", tmp_path / "picture.png"] * prompt.count("<__media__>"), "-p", prompt, "-n", "200", "--ignore-eos", "--json", "--top-logprobs", "5",
                    "-c", "512", *sampling, *record["options"]]
            plain = run_weft([*args, "--no-speculation"])
            assert plain.returncode == 0 and len(plain.stdout.splitlines()) == 200, plain.err
            done = run_weft([*args, "--draft-always", "--stats", tmp_path / "s"])
            counts = json.loads((tmp_path / "s").read_text())
            print(sampling, counts)
            assert done.returncode == 0 and done.stdout == plain.stdout
            assert counts["draft_model_tokens"] > 20 and (counts["draft_model_accepted"] > 0 or sampling[1] == "1")


def test_drafts_see_the_picture(run_weft, tmp_path):
    """The MTP block of this model is the model itself, and right if it reads what the model reads: the rows of the picture, too."""
    record = json.loads((RECORDS / "qwen35_foresees.json").read_text())
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((RECORDS / f"qwen35_foresees-{kind}.gguf.xz").read_bytes()))
    (tmp_path / "picture.png").write_bytes(picture(*record["picture"]))
    args = ["run", "-m", tmp_path / "model.gguf", "--image", tmp_path / "picture.png", "-p", record["prompt"], "-n", "300", "--ignore-eos", "--temp", "0", "-c", "512", "--json", "--top-logprobs", "264", *record["options"]]
    plain = run_weft([*args, "--no-speculation"])
    for _ in range(2):                # plans of drafts are made beside the first tokens: scores slow those down
        done = run_weft([*args, "--draft-always", "--stats", tmp_path / "s"])
        assert done.returncode == 0 and done.stdout == plain.stdout
    counts = json.loads((tmp_path / "s").read_text())
    assert counts["draft_model_accepted"] >= 0.9 * counts["draft_model_tokens"] > 25, counts


@pytest.mark.parametrize("name", ["qwen25omni", "qwen3omni"])
def test_sounds_of_more_than_five_minutes(run_weft, tmp_path, name):
    """They are read in pieces of 300 s: a piece of so few samples that it makes no row is nothing, one of more has its rows."""
    record = json.loads((RECORDS / f"{name}.json").read_text())
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((RECORDS / f"{record.get('files', name)}-{kind}.gguf.xz").read_bytes()))
    read = []
    for more in 0, 240, 480, 16000:
        (tmp_path / "sound.wav").write_bytes(wav(bytes(2 * (300 * 16000 + more))))
        done = run_weft(["run", "-m", tmp_path / "model.gguf", "--audio", tmp_path / "sound.wav", "-p", record["prompt"], "-n", 1, "-c", 8192, *record["options"]])
        assert done.returncode == 0, done.err
        read.append(int(re.search(r"(\d+) tokens read", done.err)[1]))
    assert read[0] <= read[1] <= read[2] < read[3] and read[3] - read[0] in (13, 25), read


def vectors(run_weft, *args):
    done = run_weft(["embed", "--embd-normalize", -1, "--embd-output-format", "array", *args])
    assert done.returncode == 0, done.err
    return json.loads(done.stdout)


@pytest.mark.parametrize("vector", map(json.loads, (RECORDS / "vectors.jsonl").read_text().splitlines()), ids=lambda v: v["name"])
def test_vectors_of_prompts_with_pictures(run_weft, tmp_path, vector):
    """The hidden states of transformers' model, pooled; products are exact, since LLaVA's file has halves that some processors multiply as BF16. What is said without a picture is another vector."""
    numpy = pytest.importorskip("numpy")
    name = vector["name"]
    record = json.loads((RECORDS / f"{name}.json").read_text())
    for kind in ("model", "mmproj"):
        (tmp_path / f"{kind}.gguf").write_bytes(lzma.decompress((RECORDS / f"{name}-{kind}.gguf.xz").read_bytes()))
    (tmp_path / "picture.png").write_bytes(picture(*record["picture"]))
    command = ["-m", tmp_path / "model.gguf", "-ctk", "f32", "-ctv", "f32", "--precision", "exact", *record["options"]]
    for how in "mean", "last":
        [ours] = vectors(run_weft, *command, "--image", tmp_path / "picture.png", "-p", record["prompt"], "--pooling", how)
        error = numpy.linalg.norm(numpy.array(ours) - vector[how]) / numpy.linalg.norm(vector[how])
        print(f"{name}: {how}: relative error {error:.2g}")
        assert error < 1e-4
    [without] = vectors(run_weft, *command, "-p", record["prompt"].replace("<__media__>", ""), "--pooling", "last")
    assert numpy.abs(numpy.array(without) - ours).max() > 1e-3


def test_pictures_among_texts(run_weft, repo, make_encoder, tmp_path):
    """Each picture is a text of its own, or stands where texts have markers; what cannot be is said."""
    command = ["-m", *small(repo, tmp_path)[2:7], "--pooling", "mean"]
    seen, text = vectors(run_weft, *command, "-p", "def f(")
    assert [text] == vectors(run_weft, *command[:4], "--pooling", "mean", "-p", "def f(")
    assert [seen] == vectors(run_weft, *command) == vectors(run_weft, *command, "-p", "<__media__>")
    assert [seen, seen, text] == vectors(run_weft, *command, "--image", tmp_path / "a.png", "-p", "def f(")
    (tmp_path / "texts").write_text("def f(\n<__media__>\na <__media__>\n")
    assert [text, seen] == vectors(run_weft, *command, "--image", tmp_path / "a.png", "-f", tmp_path / "texts")[:2]
    for args, words in (["-f", tmp_path / "texts"], "there are more markers (<__media__>)"), (["--image", tmp_path / "a.png", "-p", "<__media__>"], "have 1 markers (<__media__>) for 2 pictures"):
        done = run_weft(["embed", *command, *args])
        assert done.returncode == 1 and words in done.err, done.err
    make_encoder.write("nomic-bert", tmp_path / "bert.gguf")
    done = run_weft(["embed", "-m", tmp_path / "bert.gguf", *command[2:]])
    assert done.returncode == 1 and "bert.gguf: this model sees texts as a whole: it reads no pictures and sounds" in done.err, done.err


def test_bits_do_not_depend_on_chunks(run_weft, vision):
    record = json.loads((vision / "gemma3" / "a.png.json").read_text())
    one, other = (steps(run_weft, vision, "gemma3", "a.png", record["prompt"], "-ub", n) for n in (16, 512))
    assert one == other


def test_markers_and_pictures(run_weft, vision):
    """Without a marker pictures stand before the text; otherwise there is one for each."""
    record = json.loads((vision / "gemma3" / "a.png.json").read_text())
    without = steps(run_weft, vision, "gemma3", "a.png", " What is on it?")
    assert without == steps(run_weft, vision, "gemma3", "a.png", "<__media__> What is on it?")
    assert without != steps(run_weft, vision, "gemma3", "b.jpg", " What is on it?")
    folder = vision / "gemma3"
    done = run_weft(["run", "-m", folder / "model.gguf", "--image", vision / "media" / "a.png", "-p", record["prompt"] + "<__media__>"])
    assert done.returncode == 1 and "the prompt has 2 markers (<__media__>) for 1 pictures and sounds" in done.err
    done = run_weft(["run", "-m", folder / "model.gguf", "--audio", vision / "media" / "s.wav", "-p", "x"])
    assert done.returncode == 1 and "s.wav: this model takes no sound" in done.err
    done = run_weft(["run", "-m", folder / "model.gguf", "--image", folder / "model.gguf", "-p", "x"])
    assert done.returncode == 1 and "model.gguf: " in done.err and "no picture (PNG, JPEG, WebP)" in done.err


def test_files_that_do_not_go_together(run_weft, repo, tmp_path):
    model, picture = repo / "models" / "tinypy.gguf", tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    done = run_weft(["run", "-m", model, "--image", picture, "-p", "x"])
    assert done.returncode == 1 and "has 0 files called *mmproj*.gguf: --mmproj FILE names the one" in done.err
    mmproj = tmp_path / "mmproj-small.gguf"
    mmproj.write_bytes(lzma.decompress((repo / "tests" / "records" / "projectors" / "idefics3.gguf.xz").read_bytes()))
    done = run_weft(["run", "-m", model, "--mmproj", mmproj, "--image", picture, "-p", "x"])
    assert done.returncode == 1 and "key 'clip.vision.projection_dim': 40, but the language model's embeddings have" in done.err
    done = run_weft(["run", "-m", model, "--mmproj", model, "--image", picture, "-p", "x"])
    assert done.returncode == 1 and "key 'general.architecture': 'llama', but a file with an encoder of pictures or sound has 'clip'" in done.err


def small(repo, tmp_path):
    """A picture, and what names the model of this tree with an encoder for it."""
    pytest.importorskip("PIL.Image").new("RGB", (30, 20), (200, 10, 10)).save(tmp_path / "a.png")
    mmproj = pytest.importorskip("projector").write(tmp_path / "mmproj.gguf")
    return ["run", "-m", repo / "models" / "tinypy.gguf", "--mmproj", mmproj, "--image", tmp_path / "a.png", "-n", 2, "--temp", 0, "--json", "--top-logprobs", 50]


def test_special_tokens_are_around_the_whole(run_weft, repo, tmp_path):
    """EOS stands behind the last text, not behind the one before the picture."""
    command = small(repo, tmp_path)
    for text in ("def <__media__> f(", "def f("):
        added, spelled, without = (run_weft([*command, *more]) for more in (["--override-kv", "tokenizer.ggml.add_eos_token=bool:true", "-p", text],
                                                                            ["--parse-special", "-p", text + "<|endoftext|>"], ["-p", text]))
        assert added.returncode == 0 and added.stdout == spelled.stdout != without.stdout


def test_rows_both_ways_and_blocks(run_weft, repo, make_model, tmp_path):
    """Gemma 3's rows see each other both ways; a run of a mamba ends at the end of a block."""
    small(repo, tmp_path)
    make_model.write("mamba", tmp_path / "m.gguf", dim=40)
    (tmp_path / "g.gguf").write_bytes(lzma.decompress((repo / "tests" / "records" / "projectors" / "gemma3.gguf.xz").read_bytes()))
    done = run_weft(["run", "-m", tmp_path / "m.gguf", "--mmproj", tmp_path / "g.gguf", "--image", tmp_path / "a.png", "-p", "x", "-n", 2])
    assert done.returncode == 1 and "rows that see each other both ways are evaluated together, and this model's runs end at multiples of 16 positions" in done.err


def schedules(folder):
    [path] = folder.rglob("kernels-*.db")
    db = sqlite3.connect(path)
    return db.execute("SELECT count(*) FROM kernel WHERE substr(key, 1, 9) = CAST('schedule ' AS BLOB)").fetchone()[0]


def test_the_schedule_of_an_encoder_is_kept(run_weft, repo, tmp_path, cache_dir):
    """Another encoder has another graph; the model's is the same."""
    command = small(repo, tmp_path)
    data = (tmp_path / "mmproj.gguf").read_bytes()
    key = b"clip.vision.attention.layer_norm_epsilon"
    at, kept = data.index(key) + len(key) + 4, []
    for epsilon in 1e-6, 2e-6:
        (tmp_path / "mmproj.gguf").write_bytes(data[:at] + struct.pack("<f", epsilon) + data[at + 4:])
        done = run_weft([*command, "-p", "def f("], env={"WEFT_CACHE": cache_dir})
        assert done.returncode == 0, done.err
        kept.append(schedules(cache_dir))
    assert kept[1] == kept[0] + 1


def test_an_encoder_whose_rows_are_no_numbers(run_weft, repo, tmp_path):
    gguf = pytest.importorskip("gguf")
    command = small(repo, tmp_path)
    data = bytearray((tmp_path / "mmproj.gguf").read_bytes())
    [tensor] = [t for t in gguf.GGUFReader(tmp_path / "mmproj.gguf").tensors if t.name == "v.post_ln.bias"]
    data[tensor.data_offset:tensor.data_offset + 4] = struct.pack("<f", math.nan)
    (tmp_path / "mmproj.gguf").write_bytes(data)
    done = run_weft([*command, "-p", "def f("])
    assert done.returncode == 1 and "mmproj.gguf: the encoder's rows have floats that are no finite numbers" in done.err, done.err


def talk(run_weft, vision, kind, template, *more, say=None):
    """What a conversation answers; `say`: lines of a conversation."""
    done = run_weft(["chat", "-m", vision / kind / "model.gguf", "--chat-template-file", template, "--temp", 0, "-n", 8, "--ignore-eos", "-c", 1024, "--chat-bos", *LIMITS.get(kind, []),
                     *more], **({"input": say} if say else {}))
    assert done.returncode == 0, done.err
    return done


@pytest.mark.parametrize(("kind", "media"), [("gemma3", "a.png"), ("qwen2.5vl", "b.jpg"), ("idefics3", "c.webp"), ("ultravox", "s.wav")])
def test_pictures_of_conversations(run_weft, vision, tmp_path, kind, media):
    """A template that writes a message as it is makes the prompt of the record: the answer is transformers'. By options and by /image, of which the mark is nothing that a message can spell."""
    record = json.loads((vision / kind / f"{media}.json").read_text())
    before, after = record["prompt"].split("<__media__>")
    plain = tmp_path / "plain.jinja"
    plain.write_text("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    wanted = run_weft(["run", "-m", vision / kind / "model.gguf", "--image", vision / "media" / media, "-p", record["prompt"], "--temp", 0, "-n", 8, "--ignore-eos", "-c", 1024,
                       *LIMITS.get(kind, [])])
    got = talk(run_weft, vision, kind, plain, "--image", vision / "media" / media, "-p", record["prompt"])
    assert wanted.returncode == 0 and got.stdout.strip() == wanted.stdout.strip() != ""
    first = talk(run_weft, vision, kind, plain, "--image", vision / "media" / media, "-p", after)
    lines = talk(run_weft, vision, kind, plain, "--simple-io", say=f"/image {vision / 'media' / media}\n{after.replace(chr(10), chr(92) + chr(10))}\n")
    assert "tokens of" in lines.err and lines.stdout.strip() == first.stdout.strip()
    spelled = talk(run_weft, vision, kind, plain, "--image", vision / "media" / media, "-p", "<__media_0> <__media__> <__media__0> " + after)
    assert spelled.stdout.strip() != first.stdout.strip()


def test_what_a_conversation_cannot_show(run_weft, vision, tmp_path):
    plain = tmp_path / "plain.jinja"
    plain.write_text("{{ messages[-1].content }}")
    said = talk(run_weft, vision, "gemma3", plain, "--simple-io", say=f"/image\n/image {tmp_path}/none.png\n/audio {vision}/media/s.wav\n/image {vision}/README.md\nx\n").err
    for words in ("/image needs the name of a file", "No such file", "this model takes no sound", "no picture (PNG, JPEG, WebP)"):
        assert words in said, said


def test_sounds_of_gemma_4(run_weft, make_model, tmp_path):
    """A row for each 40 ms, the last one also of fewer frames; what is longer than 30 seconds is another piece."""
    numpy, soundfile = pytest.importorskip("numpy"), pytest.importorskip("soundfile")
    make_model.write("llama-yarn", tmp_path / "m.gguf", dim=40)
    (tmp_path / "mmproj.gguf").write_bytes(lzma.decompress((RECORDS.parent / "projectors" / "gemma4a.gguf.xz").read_bytes()))
    rows = {}
    for n in (100, 8000, 16000, 31 * 16000):
        soundfile.write(tmp_path / "s.wav", numpy.sin(numpy.arange(n) ** 2 / 90000), 16000)
        rows[n] = vectors(run_weft, "-m", tmp_path / "m.gguf", "-c", 1024, "--audio", tmp_path / "s.wav", "--pooling", "none")
    around = len(rows[100]) - 1
    assert [len(r) - around for r in rows.values()] == [1, 13, 25, 775]
    assert all(numpy.isfinite(r).all() for r in rows.values())
