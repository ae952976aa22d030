"""Models with an encoder and a decoder (T5), against records of transformers on small files that tests/tools/make_source.py makes."""
import concurrent.futures
import json
import math
import subprocess
import sys
from pathlib import Path

import gguf
import pytest
from conftest import load_tool
from serving import Server
from test_model_errors import inspect, without

THREADS = 2

RECORDS = Path(__file__).resolve().parents[1] / "records" / "source"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))
MOST_KL, ALL = 1e-4, 100000
GAP = 1e-3                     # of likelinesses nearer than that either token may be drawn
without_key = load_tool("change_gguf").without_key


@pytest.fixture(scope="module")
def model(make_source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def find(name):
        path = folder / f"{name}.gguf"
        if not path.exists():
            make_source.write(name, path)
        return path
    return find


def recorded(name):
    return json.loads((RECORDS / f"{name}.json").read_text())


def listed(ids):
    return ",".join(map(str, ids))


def answer(run_weft, path, source, n, *args):
    """The lines of an answer, and the logarithms of all tokens' probabilities at each of its places."""
    done = run_weft(["run", "-m", path, "--ids", listed(source), "-n", n, "--temp", 0, "--ignore-eos", "--json", "--top-logprobs", ALL, *args])
    assert done.returncode == 0, done.err
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines, [dict(line["top"]) for line in lines]


def test_every_model_has_a_record(make_source):
    assert sorted(make_source.SOURCES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_as_transformers(run_weft, model, name):
    """The likeliness of every token, behind an answer that is forced; then the likeliest token each time."""
    worst = 0
    for text in recorded(name):
        n = len(text["answer"])
        _, ours = answer(run_weft, model(name), text["source"], n, "--force", listed(text["answer"]))
        for place, row in text["logprobs"].items():
            worst = max(worst, sum(math.exp(p) * (p - ours[int(place)][i]) for i, p in enumerate(row)))
        lines, tops = answer(run_weft, model(name), text["source"], n)
        for line, top, theirs in zip(lines, tops, text["drawn"], strict=True):
            assert line["id"] == theirs or line["logprob"] - top[theirs] < GAP
            if line["id"] != theirs:
                break
    print(f"{name}: largest KL {worst:.2g}")
    assert worst <= MOST_KL


def test_the_same_bits(run_weft, model):
    """On one thread and on two, with room for a longer context, token by token and with tokens that are guessed."""
    ids = recorded("t5")[1]["source"]
    ask = ["-n", 60, "--temp", 0, "--ignore-eos", "--json", "--top-logprobs", 5]
    outs = {run_weft(["run", "-m", model("t5"), "--ids", listed(ids), *ask, *more]).out
            for more in ([], ["-t", 1], ["-c", 300], ["--no-speculation"], ["-ub", 7])}
    assert len(outs) == 1 and len(outs.pop().splitlines()) == 60


BY_THE_LIBRARY = """
import sys
from weft._library import ffi, lib
model, err, rows, ids, n = (ffi.new(t) for t in ("weft_model **", "weft_error *", "weft_rows **", "int32_t **", "size_t *"))
assert not lib.weft_model_open(sys.argv[1].encode(), ffi.NULL, model, err), ffi.string(err.text)
source, logits = ffi.new("int32_t[]", [5, 6, 7, 8, 1]), ffi.new("const float **")
def said(status):
    return ffi.string(err.text).decode() if status else ""
def decode(at, n, pos, wanted=False):
    return said(lib.weft_decode(model[0], ids[0] + at, n, pos, logits if wanted else ffi.NULL, err))
def of_all():
    return bytes(ffi.buffer(logits[0], 4 * lib.weft_model_vocab_size(model[0])))
def encode(n_source):
    return said(lib.weft_encode_source(model[0], source, n_source, rows, ids, n, err))
assert encode(0) == "a source without tokens"
assert encode(5) == "" and n[0] == 6 and ids[0][5] == 0 and max(ids[0][0:5]) < -1 and lib.weft_model_has_source(model[0])
assert decode(0, 6, 0, True) == ""
whole = of_all()
for cuts in [1, 3, 5], [2, 4], [1, 2, 3, 4, 5]:
    at = 0
    for cut in cuts:
        assert decode(at, cut - at, at) == ""
        at = cut
    assert decode(at, 6 - at, at, True) == "" and of_all() == whole
assert "position 6 is a row of a source, behind tokens" in decode(0, 1, 6)
assert "logits of a row of a source are wanted" in decode(0, 5, 0, True)
assert "this model answers a source" in decode(5, 1, 0, True)
assert "does not follow the one before it" in decode(1, 1, 0)
embedded = ffi.new("float[]", 4 * lib.weft_model_embedding_size(model[0]))
assert "reads tokens, and no rows of floats" in said(lib.weft_embed(model[0], ids[0], 4, lib.WEFT_POOLING_NONE, embedded, err))
"""


def test_the_library(run_weft, weft, weft_env, repo, model, sanitized):
    """A source is cut anywhere, and what comes in another order is refused."""
    library = Path(weft).parent / "libweft.so"
    if sanitized:
        pytest.skip("Python would have to be built with the sanitizer, too")
    assert library.exists()
    env = {**weft_env, "PYTHONPATH": f"{repo}/python", "WEFT_LIBRARY": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", BY_THE_LIBRARY, model("t5")], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def server(weft, weft_env, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slots")
    with Server(weft, weft_env, model("t5"), "-np", 4, "--slot-save-path", folder) as s:
        yield s


def complete(server, ids, n=16, **more):
    status, o = server.ask("/completion", {"prompt": ids, "n_predict": n, "temperature": 0, "ignore_eos": True, "n_probs": 4, **more})
    assert status == 200, o
    return o


def probabilities(o):
    return [(t["id"], [(x["id"], x["logprob"]) for x in t["top_logprobs"]]) for t in o["completion_probabilities"]]


def test_the_server_answers_as_run_does(run_weft, server, model):
    """One after another, at once, and from what is kept of an earlier answer."""
    texts = [t["source"] for t in recorded("t5")] + [recorded("t5")[1]["source"][:20], recorded("t5")[2]["source"][:128]]
    alone = [probabilities(complete(server, ids, cache_prompt=False)) for ids in texts]
    for ids, ours in zip(texts, alone, strict=True):
        lines, _ = answer(run_weft, model("t5"), ids, 16)
        assert [i for i, _ in ours] == [line["id"] for line in lines]
        assert [top[0][1] for _, top in ours] == pytest.approx([line["logprob"] for line in lines], abs=1e-6)
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        for _ in range(2):
            assert [probabilities(o) for o in pool.map(lambda ids: complete(server, ids), texts)] == alone
    complete(server, texts[1])
    again = complete(server, texts[1])
    assert again["timings"]["cache_n"] >= len(texts[1]) and probabilities(again) == alone[1]
    # a source that begins alike is another one
    assert complete(server, texts[1][:25])["timings"]["cache_n"] == 0


def test_several_answers_of_one_source(server):
    status, o = server.ask("/v1/completions", {"prompt": recorded("t5")[1]["source"], "max_tokens": 8, "n": 3, "temperature": 1, "seed": 4})
    assert status == 200 and len(o["choices"]) == 3 and o["usage"]["completion_tokens"] <= 24
    assert len({c["text"] for c in o["choices"]}) > 1


def test_a_sequence_is_saved_and_restored(server):
    ids = recorded("t5")[2]["source"]
    first = complete(server, ids, id_slot=1)
    for action in ("save", "erase", "restore"):
        status, o = server.ask(f"/slots/1?action={action}", {"filename": "source.bin"}, method="POST")
        assert status == 200, o
    again = complete(server, ids, id_slot=1)
    assert again["timings"]["cache_n"] >= len(ids) and probabilities(again) == probabilities(first)


def test_a_sequence_outlives_the_server(weft, weft_env, model, tmp_path):
    ids, answers = recorded("t5")[2]["source"], []
    for kept in 0, len(ids):
        with Server(weft, weft_env, model("t5"), "--keep-in", tmp_path) as s:
            answers.append(complete(s, ids))
            assert answers[-1]["timings"]["cache_n"] == kept and s.end() == 0
    assert probabilities(answers[0]) == probabilities(answers[1])


@pytest.mark.parametrize("path,body,words", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a b"}]}, "has no chat"),
    ("/v1/completions", {"prompt": "a b", "echo": True, "logprobs": 2, "max_tokens": 2}, "encoder reads the prompt"),
])
def test_what_the_server_refuses(server, path, body, words):
    status, o = server.ask(path, body)
    assert status == 400 and words in o["error"]["message"], o


def test_a_text_ends_as_the_file_says(server):
    """The tokenizer puts the end behind a source; the answer's first token is no part of any text."""
    tokens = server.ask("/tokenize", {"content": "a b c", "add_special": True})[1]["tokens"]
    status, o = server.ask("/v1/completions", {"prompt": "a b c", "max_tokens": 3, "temperature": 0})
    assert tokens[-1] == 1 and status == 200 and o["usage"]["prompt_tokens"] == len(tokens) + 1 and "<pad>" not in o["choices"][0]["text"]


@pytest.mark.parametrize("command,words", [
    (["chat"], "has no chat"), (["tune"], "are not searched yet"), (["imatrix", "-f", "TEXT", "-o", "OUT"], "are not made of models with an encoder"),
    (["perplexity", "-f", "TEXT", "--override-kv", "tokenizer.ggml.add_eos_token=bool:false"], "this model answers a source"), (["export", "--c", "-o", "OUT"], "has an encoder and a decoder"),
    (["bench", "-npl", "2", "-p", "8", "-n", "2"], "one sequence is measured at a time"),
])
def test_what_commands_refuse(run_weft, model, tmp_path, command, words):
    (tmp_path / "text").write_text("a b c d e f g h " * 400)
    named = {"TEXT": tmp_path / "text", "OUT": tmp_path / "out"}
    done = run_weft([command[0], *([] if command[0] == "export" else ["-m"]), model("t5"), *(named.get(word, word) for word in command[1:])])
    assert done.returncode == 1 and words in done.err, done.err


def test_adapters_and_control_vectors(run_weft, model, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for option in "--lora", "--control-vector":
        done = run_weft(["run", "-m", model("t5"), "--ids", "5", option, tmp_path / "x.gguf"])
        assert done.returncode == 1 and "with an encoder and a decoder takes no" in done.err, done.err


def test_the_encoder_makes_vectors(run_weft, make_source, model, tmp_path):
    """Those of a file that has the encoder alone, with the same weights."""
    p, made = make_source.SOURCES["t5"], []
    alone = make_source.Model(tmp_path / "encoder.gguf", "t5encoder", {**p, "keys": {"attention.relative_buckets_count": p["ranges"]}})
    make_source.keys(alone)
    make_source.vocabulary(alone)
    for t in gguf.GGUFReader(model("t5")).tensors:
        if t.name == "token_embd.weight" or t.name.startswith("enc."):
            alone.put(t.name, t.data)
    alone.close()
    for path in model("t5"), tmp_path / "encoder.gguf":
        done = run_weft(["embed", "-m", path, "--ids", listed(recorded("t5")[1]["source"]), "--pooling", "mean", "--embd-output-format", "array"])
        assert done.returncode == 0, done.err
        made.append(json.loads(done.stdout)[0])
    assert made[0] == made[1] and len(made[0]) == p["dim"]


def test_bench_and_profile(run_weft, model):
    done = run_weft(["bench", "-m", model("t5"), "-p", 32, "-n", 4, "-r", 1, "-o", "json"])
    assert done.returncode == 0 and [(t["n_prompt"], t["n_gen"]) for t in json.loads(done.stdout)] == [(32, 0), (0, 4)], done.err
    assert run_weft(["profile", "-m", model("t5"), "-n", 2]).returncode == 0


def test_a_source_that_fills_the_context(run_weft, model):
    done = run_weft(["run", "-m", model("t5"), "-c", 64, "--ids", listed([5] * 64), "-n", 1])
    assert done.returncode == 1 and "leaves no room for an answer in a context of 64" in done.err
    _, ours = answer(run_weft, model("t5"), [5] * 62, 2, "-c", 64)
    assert len(ours) == 2


@pytest.mark.parametrize("tensor", ["enc.blk.0.attn_rel_b.weight", "dec.blk.0.attn_rel_b.weight", "enc.output_norm.weight", "dec.output_norm.weight", "dec.blk.1.cross_attn_k.weight",
                                    "dec.blk.3.cross_attn_norm.weight", "dec.blk.2.ffn_up.weight", "enc.blk.2.attn_o.weight", "dec.blk.1.ffn_gate.weight"])
def test_tensors_that_are_missing(run_weft, model, tmp_path, tensor):
    header, size = without(model("t5").read_bytes(), gguf.GGUFReader(model("t5")), [tensor])
    (tmp_path / "less.gguf").write_bytes(header + bytes(size))
    why = inspect(run_weft, tmp_path / "less.gguf")
    assert why and f"tensor '{tensor}' is missing" in why, why


def test_keys_that_are_missing(run_weft, model, tmp_path):
    def less(key):
        without_key(model("t5"), tmp_path / "less.gguf", f"t5.{key}")
        return inspect(run_weft, tmp_path / "less.gguf") or ""
    for key in "decoder_start_token_id", "attention.relative_buckets_count":
        assert f"key 't5.{key}'" in less(key) and "is missing" in less(key), less(key)
    assert "dec.blk.3." in less("decoder_block_count")                         # as many layers as the encoder has: one is left over


def test_an_answer_begins_with_bos_if_the_file_names_no_other_token(run_weft, model, tmp_path):
    without_key(model("t5"), tmp_path / "less.gguf", "t5.decoder_start_token_id")
    ours = [answer(run_weft, path, [5, 6, 1], 4, "--override-kv", f"{key}=int:7")[0]
            for path, key in ((model("t5"), "t5.decoder_start_token_id"), (tmp_path / "less.gguf", "tokenizer.ggml.bos_token_id"))]
    assert ours[0] == ours[1] != answer(run_weft, model("t5"), [5, 6, 1], 4)[0]


@pytest.mark.parametrize("change,words", [
    ({"starts": 301}, "301 is outside the vocabulary of 301"), ({"keys": {"decoder_block_count": 0}}, "0 is not in 1.."), ({"keys": {"decoder_block_count": 600}}, "600 is not in 1.."),
    ({"keys": {"block_count": 300}}, "300 is not in 1.."), ({"keys": {"attention.relative_buckets_count": 16}}, "t5.attention.relative_buckets_count = 16"), ({"keys": {"attention.key_length": 24}}, "t5.attention.key_length = 24"),
    ({"keys": {"alibi": 3}}, "t5.alibi"),
])
def test_keys_that_do_not_fit(run_weft, make_source, tmp_path, change, words):
    p = make_source.SOURCES["t5"]
    more = {**change.get("keys", {}), **({"decoder_start_token_id": change["starts"]} if "starts" in change else {})}
    make_source.write("t5", tmp_path / "m.gguf", keys={**p["keys"], **more})
    why = inspect(run_weft, tmp_path / "m.gguf")
    assert why and words in why, why
