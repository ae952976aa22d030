"""weft embed: vectors of texts, against records of llama.cpp on small files that tests/tools/make_encoder.py makes, and of transformers on those that are as published models are.

llama.cpp takes GELU from a table of 16-bit floats, and its caches hold 16 bits: vectors can agree no further. Those of an encoder with SiLU agree in five digits.
"""
import json
import math
from pathlib import Path

import gguf
import pytest
from test_model_errors import inspect, without

THREADS = 1

RECORDS = Path(__file__).resolve().parents[1] / "records" / "embeddings"
ALL = sorted(path.stem for path in RECORDS.glob("*.json"))
NAMES, RANKING = [[n for n in ALL if n.endswith("-rank") is ranks] for ranks in (False, True)]
PRECISE = {"nomic-bert": 2e-5, "neo-bert": 4e-5, "t5encoder-plain": 4e-5, "nomic-embed": 2e-5, "granite-embedding": 4e-5}                                  # largest difference, of elements near 1
AGREE = 0.9999


@pytest.fixture(scope="module")
def model(make_encoder, make_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def find(name):
        path = folder / f"{name}.gguf"
        if not path.exists():
            (make_encoder if name in make_encoder.ENCODERS else make_model).write(name, path)
        return path
    return find


@pytest.fixture(scope="module")
def vectors(run_weft, model):
    def embed(name, *args, **more):
        done = run_weft(["embed", "-m", model(name), "--embd-output-format", "array", *args], **more)
        assert done.returncode == 0, done.err
        return json.loads(done.stdout)
    return embed


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def of_ids(ids):
    return ["--ids", ",".join(map(str, ids))]


def test_a_cap_of_scores(vectors):
    """With a cap of next to nothing a text is read evenly, as where scores are next to nothing."""
    ids, cap, scale = of_ids([1, 2, 30, 45, 99, 7]), "nomic-bert.attn_logit_softcapping=float:1e-6", "nomic-bert.attention.scale=float:1e-6"
    plain, capped, scaled = (vectors("nomic-bert", *ids, *more)[0] for more in ([], ["--override-kv", cap], ["--override-kv", scale]))
    assert max(abs(a - b) for a, b in zip(capped, scaled, strict=True)) < 1e-4 < max(abs(a - b) for a, b in zip(capped, plain, strict=True))


def test_every_encoder_has_a_record(make_encoder):
    assert set(make_encoder.ENCODERS) <= set(ALL)


@pytest.mark.parametrize("name", NAMES)
def test_as_llama_cpp(vectors, name):
    """Of quantised weights both round activations to 8 bits, unless we are asked not to: then our vectors are those that llama.cpp makes of the same weights as floats.
    Where its own rounding moves a vector further than the rest of what is allowed, ours is no further from the floats than llama.cpp's."""
    worst, apart = 1, 0
    for text in json.loads((RECORDS / f"{name}.json").read_text()):
        floats = text.get("floats", text)
        for how in ("mean", "cls", "last"):
            fast = vectors(name, *of_ids(text["ids"]), "--pooling", how, "--embd-normalize", -1)[0]
            exact = vectors(name, *of_ids(text["ids"]), "--pooling", how, "--embd-normalize", -1, "--precision", "exact")[0]
            alike, theirs = cosine(fast, text[how]), cosine(text[how], floats[how])
            assert alike >= AGREE or (theirs < AGREE and cosine(fast, floats[how]) >= theirs), (how, len(text["ids"]), alike, theirs)
            worst = min(worst, cosine(exact, floats[how]))
            apart = max(apart, max(abs(x - y) for x, y in zip(exact, floats[how], strict=True)))
    print(f"{name}: 1 - cosine {1 - worst:.2g}, apart {apart:.2g}")
    assert worst >= (0.999999 if "floats" in text else AGREE)
    assert apart <= PRECISE.get(name, math.inf)


@pytest.mark.parametrize("name", RANKING)
def test_scores_as_llama_cpp(vectors, name):
    """Of models that rank texts, with their own pooling. llama.cpp's GELU has 11 bits."""
    for text in json.loads((RECORDS / f"{name}.json").read_text()):
        assert vectors(name, *of_ids(text["ids"])) == [pytest.approx(text["rank"], abs=5e-4)] == vectors(name, *of_ids(text["ids"]), "--pooling", "rank")


@pytest.mark.parametrize("name", ["bert", "modern-bert", "gemma3"])
def test_pooling_is_of_the_tokens(vectors, name):
    ids = list(range(10, 50))
    rows = vectors(name, *of_ids(ids), "--pooling", "none", "--embd-normalize", -1)
    assert len(rows) == len(ids)
    for how, expected in (("cls", rows[0]), ("last", rows[-1]), ("mean", [sum(x) / len(ids) for x in zip(*rows)])):
        assert vectors(name, *of_ids(ids), "--pooling", how, "--embd-normalize", -1)[0] == pytest.approx(expected, abs=1e-6)


def test_the_file_says_how(vectors):
    ids = of_ids([7, 8, 9])
    assert vectors("bert", *ids) == vectors("bert", *ids, "--pooling", "cls")            # pooling_type 2
    assert vectors("nomic-bert", *ids) == vectors("nomic-bert", *ids, "--pooling", "mean")
    assert len(vectors("gemma3", *ids)) == 3                                               # says nothing


def test_normalised(vectors):
    ids = of_ids([7, 8, 9])
    v = vectors("bert", *ids, "--embd-normalize", -1)[0]
    for p, length in ((0, max(map(abs, v)) / 32760), (1, sum(map(abs, v))), (2, math.hypot(*v)), (3, sum(abs(x) ** 3 for x in v) ** (1 / 3))):
        assert vectors("bert", *ids, "--embd-normalize", p)[0] == pytest.approx([x / length for x in v], rel=1e-5, abs=1e-9)
    assert vectors("bert", *ids)[0] == vectors("bert", *ids, "--embd-normalize", 2)[0]


# ---- texts ---------------------------------------------------------------------------------------------------------------

def test_texts(vectors, run_weft, model, tmp_path):
    tokens = run_weft(["tokenize", "-m", model("bert"), "-p", "The cat walks!", "--ids"]).out
    ids = json.loads(tokens)
    assert ids[0] == 2 and ids[-1] == 3                       # [CLS] and [SEP]
    one = vectors("bert", *of_ids(ids))
    assert vectors("bert", "-p", "The cat walks!") == one
    two = vectors("bert", "-p", "The cat walks!\na dog")
    assert len(two) == 2 and two[0] == one[0]
    (tmp_path / "texts").write_text("The cat walks!\na dog\n")
    assert vectors("bert", "-f", tmp_path / "texts") == two
    assert vectors("bert", input="The cat walks!\na dog\n") == two
    assert vectors("bert", "-p", "The cat walks!<#sep#>a dog", "--embd-separator", "<#sep#>") == two
    assert vectors("bert", "-p", "The cat walks!\\na dog", "-e") == two


def test_pairs(vectors, run_weft, model):
    """A question and a text, as the tokenizer joins two, or as the file's template says."""
    def ids(name, text, *args):
        return json.loads(run_weft(["tokenize", "-m", model(name), "-p", text, "--ids", *args]).out)
    pair = ids("bert-rank", "The cat?") + ids("bert-rank", "a dog walks")[1:]
    assert [pair.index(2), pair.count(2), pair.count(3), pair[-1]] == [0, 1, 2, 3]
    expected = vectors("bert-rank", *of_ids(pair))
    assert vectors("bert-rank", "-p", "The cat?\ta dog walks") == expected == vectors("bert-rank", "-p", "The cat? | a dog walks", "--cls-separator", " | ")
    two = vectors("bert-rank", "-p", "The cat?\ta dog walks\nThe cat?\ta cat")
    assert two[0] == expected[0] != two[1] and len(two) == 2
    assert run_weft(["embed", "-m", model("bert-rank"), "-p", "The cat?\ta dog walks"]).out == f"rerank score 0: {expected[0][0]:8.3f}\n"
    by_template = ids("qwen3-rank", "[CLS]does a dog walk: cat?[SEP]", "--parse-special")
    assert vectors("qwen3-rank", "-p", "cat\ta dog") == vectors("qwen3-rank", *of_ids(by_template))


def test_forms(run_weft, model):
    def embed(form, *args):
        done = run_weft(["embed", "-m", model("bert"), "-p", "a cat\na dog\na cat", "--embd-output-format", form, *args])
        assert done.returncode == 0, done.err
        return done.out
    array = json.loads(embed("array"))
    assert [[float(x) for x in line.split()] for line in embed("raw").splitlines()] == array
    plain, more = json.loads(embed("json")), json.loads(embed("json+"))
    assert plain["object"] == "list" and [d["embedding"] for d in plain["data"]] == array and [d["index"] for d in plain["data"]] == [0, 1, 2]
    assert plain["data"][0]["object"] == "embedding" and "cosineSimilarity" not in plain
    assert more["data"] == plain["data"]
    for i, row in enumerate(more["cosineSimilarity"]):
        assert row == pytest.approx([cosine(array[i], other) for other in array], abs=1e-5)
    text = embed("text").splitlines()
    assert [float(x) for x in text[0].split()[2:18]] == pytest.approx(array[0][:16], abs=1e-5)
    assert [line.split() for line in text[-3:]] == [[f"{x:.2f}" for x in row] for row in more["cosineSimilarity"]]


# ---- what cannot be had ----------------------------------------------------------------------------------------------------

def fails(run_weft, args, *words, status=1, **more):
    done = run_weft(args, **more)
    assert done.returncode == status and done.err.count("\n") == 1 and all(word in done.err for word in words), done.err
    assert not done.stdout


def test_errors(run_weft, model):
    bert = ["embed", "-m", model("bert")]
    fails(run_weft, [*bert, *of_ids([5] * 385)], "text 1", "385 tokens", "384")
    fails(run_weft, [*bert, "-p", "a\n" + "cat " * 400], "text 2", "384")
    fails(run_weft, [*bert, "-c", 400, "-p", "a"], "400", "384")
    fails(run_weft, [*bert, *of_ids([301])], "301", "vocabulary")
    fails(run_weft, [*bert, "-p", "a", "--ids", "1"], "--ids", status=2)
    fails(run_weft, [*bert, "-p", "a", "--pooling", "most"], "--pooling", status=2)
    fails(run_weft, ["embed", "-p", "a"], "-m", status=2)
    fails(run_weft, [*bert, "-p", "a\tb", "--pooling", "rank"], "does not rank")
    fails(run_weft, ["embed", "-m", model("bert-rank"), "-p", "a\tb", "--pooling", "mean"], "makes no vectors")
    fails(run_weft, ["embed", "-m", model("bert-rank"), "-p", "a\tb\nb"], "text 2", "a tab")
    done = run_weft(["tune", "-m", model("bert"), "--budget", 1])
    assert done.returncode == 1 and "not searched yet" in done.err, done.err
    done = run_weft([*bert, "-p", "a"], env={"WEFT_TUNE": "now"})
    assert done.returncode == 0 and "not searched yet" in done.err and done.stdout
    for command in (["run", "-p", "a", "-n", "1"], ["bench", "-p", "8", "-n", "0"], ["profile"]):
        done = run_weft([command[0], "-m", model("bert"), *command[1:]])
        assert done.returncode == 1 and "weft embed" in done.err, done.err


@pytest.mark.parametrize("name", ["jina-bert-v2", "jina-bert-v2-code", "nomic-bert-moe", "jina-bert-v3"])
def test_small_epsilon(run_weft, make_encoder, vectors, tmp_path, name, monkeypatch):
    """1e-12, as published models have it, instead of 1e-5: hardly other vectors."""
    shape, ids = make_encoder.ENCODERS[name], of_ids([7, 8, 9, 100, 20, 7])
    monkeypatch.setitem(make_encoder.ENCODERS, "small", {**shape, "keys": {**shape["keys"], "attention.layer_norm_epsilon": 1e-12}})
    make_encoder.write("small", tmp_path / "m.gguf")
    done = run_weft(["embed", "-m", tmp_path / "m.gguf", "--embd-output-format", "array", *ids])
    assert done.returncode == 0, done.err
    small, usual = json.loads(done.stdout)[0], vectors(name, *ids)[0]
    assert small != usual and cosine(small, usual) > 0.99999


# What a model may lack.
ABSENT = {"bert": {"token_types.weight"}, "bert-rank": {"token_types.weight", "cls.bias", "cls.output.bias"}, "nomic-bert-moe": {"token_types.weight"}, "jina-bert-v2": {"token_types.weight"}}


@pytest.mark.parametrize("name", ["bert", "bert-rank", "nomic-bert-moe", "jina-bert-v2", "modern-bert", "gemma-embedding"])
def test_every_tensor_taken_out(run_weft, model, tmp_path, name):
    data, reader, path, accepted = model(name).read_bytes(), gguf.GGUFReader(model(name)), tmp_path / "m.gguf", set()
    for taken in [t.name for t in reader.tensors if not t.name.startswith("blk.") or t.name.startswith("blk.1.")]:
        header, size = without(data, reader, {taken})
        with open(path, "wb") as f:
            f.write(header)
            f.truncate(len(header) + size)
        if inspect(run_weft, path) is None:
            accepted.add(taken)
    assert accepted == ABSENT.get(name, set())


@pytest.mark.parametrize("keys, words", [({"attention.causal": True}, ["attention.causal"]), ({"pooling_type": 7}, ["pooling_type", "7"]), ({"pooling_type": 4}, ["pooling_type 4"]),
                                         ({"hidden_activation": "sine"}, ["hidden_activation", "'sine' is not known"]), ({"hidden_activation": 3}, ["hidden_activation", "expected a STRING"])])
def test_keys(run_weft, make_encoder, tmp_path, keys, words, monkeypatch):
    shape = make_encoder.ENCODERS["nomic-bert"]
    monkeypatch.setitem(make_encoder.ENCODERS, "odd", {**shape, "keys": {**shape["keys"], **keys}})
    make_encoder.write("odd", tmp_path / "odd.gguf")
    fails(run_weft, ["embed", "-m", tmp_path / "odd.gguf", "-p", "a"], *words)
