"""Vectors of texts from weft serve, as OpenAI's and ollama's Python packages ask for them, and as llama.cpp's endpoint gives them."""
import importlib.util
import json
import math
import sys

import pytest
from serving import Server

ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def model(repo, tmp_path_factory):
    sys.path.insert(0, str(repo / "tests" / "tools"))
    spec = importlib.util.spec_from_file_location("make_encoder", repo / "tests" / "tools" / "make_encoder.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.pop(0)
    path = tmp_path_factory.mktemp("model") / "bert.gguf"
    module.write("bert", path)
    return path


@pytest.fixture(scope="module")
def server(weft, weft_env, model):
    with Server(weft, weft_env, model) as s:
        yield s


@pytest.fixture(scope="module")
def vector(run_weft, model):
    def embed(*args, normalize=2):
        done = run_weft(["embed", "-m", model, *args, "--embd-output-format", "array", "--embd-normalize", normalize])
        assert done.returncode == 0, done.err
        return json.loads(done.stdout)[0]
    return embed


@pytest.fixture(scope="module")
def ai(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def near(a, b):
    return a == pytest.approx(b, rel=1e-6, abs=1e-9)


def test_openai(ai, vector):
    r = ai.embeddings.create(model="bert", input="a cat")                      # this client asks for base64
    assert near(r.data[0].embedding, vector("-p", "a cat")) and r.usage.prompt_tokens == r.usage.total_tokens == 4
    r = ai.embeddings.create(model="bert", input=["a cat", "the dog walks!"], encoding_format="float")
    assert [d.index for d in r.data] == [0, 1] and r.object == "list" and r.model == "bert"
    assert near(r.data[0].embedding, vector("-p", "a cat")) and near(r.data[1].embedding, vector("-p", "the dog walks!"))
    assert near(ai.embeddings.create(model="bert", input=[7, 8, 9]).data[0].embedding, vector("--ids", "7,8,9"))
    r = ai.embeddings.create(model="bert", input=[[7, 8, 9], [10]])
    assert near(r.data[0].embedding, vector("--ids", "7,8,9")) and near(r.data[1].embedding, vector("--ids", "10"))
    many = ai.embeddings.create(model="bert", input=[f"{'cat ' * (i % 7)}dog" for i in range(200)])
    assert len(many.data) == 200 and many.data[3].embedding == many.data[10].embedding
    assert ai.embeddings.create(model="bert", input="a", dimensions=128).data


@pytest.mark.parametrize("wrong, words", [
    ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [[301]]}, "input"), ({"input": [""] * 2049}, "2048"), ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ({"input": "a", "dimensions": 64}, "128"), ({"input": ["a", "cat " * 400]}, "384"), ({"input": [[]]}, "without tokens"), ({}, "input")])
def test_openai_refuses(server, wrong, words):
    status, answer = server.ask("/v1/embeddings", {"model": "bert", **wrong})
    assert status == 400 and words in answer["error"]["message"], answer


def test_it_predicts_nothing(server):
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"})):
        status, answer = server.ask(path, body)
        assert status in (400, 501), answer
    assert "/v1/embeddings" in answer["error"]["message"]


def test_llama_cpp(server, vector):
    for path, body in (("/embedding", {"content": "a cat"}), ("/embeddings", {"input": "a cat"}), ("/embedding", {"content": ["a cat"], "embd_normalize": 2})):
        status, answer = server.ask(path, body)
        assert status == 200 and answer[0]["index"] == 0 and near(answer[0]["embedding"][0], vector("-p", "a cat")), answer
    status, answer = server.ask("/embedding", {"content": "a cat", "embd_normalize": -1})
    assert near(answer[0]["embedding"][0], vector("-p", "a cat", normalize=-1))


def test_ollama(server, vector):
    client = ollama.Client(host=server.url)
    r = client.embed(model="bert", input="a cat")
    assert near(list(r.embeddings[0]), vector("-p", "a cat")) and r.prompt_eval_count == 4
    r = client.embed(model="bert", input=["a cat", "the dog"])
    assert near(list(r.embeddings[1]), vector("-p", "the dog"))
    assert near(list(client.embeddings(model="bert", prompt="a cat").embedding), vector("-p", "a cat", normalize=-1))
    long = client.embed(model="bert", input="cat " * 500)                      # cut, with [SEP] at its end
    assert near(list(long.embeddings[0]), vector("-p", "cat " * 382))
    with pytest.raises(ollama.ResponseError, match="384"):
        client.embed(model="bert", input="cat " * 500, truncate=False)
    with pytest.raises(ollama.ResponseError, match="dimensions"):
        client.embed(model="bert", input="cat", dimensions=7)


def test_a_model_that_predicts(weft, weft_env, run_weft, tinypy):
    """Its file does not say how a vector is made of a whole text: whoever starts the server does. An answer is the same before and after."""
    question = {"prompt": "def ", "temperature": 0, "max_tokens": 8}
    with Server(weft, weft_env, tinypy) as s:
        status, answer = s.ask("/v1/embeddings", {"input": "def f"})
        assert status == 400 and "--pooling" in answer["error"]["message"]
        status, answer = s.ask("/embedding", {"content": "def f"})
        assert status == 200 and len(answer[0]["embedding"]) > 1
    with Server(weft, weft_env, tinypy, "--pooling", "last") as s:
        before = s.ask("/v1/completions", question)[1]["choices"][0]["text"]
        status, answer = s.ask("/v1/embeddings", {"input": ["def f", "class A"]})
        assert status == 200
        v = answer["data"][1]["embedding"]
        assert math.hypot(*v) == pytest.approx(1, rel=1e-5)
        done = run_weft(["embed", "-m", tinypy, "-p", "class A", "--pooling", "last", "--embd-output-format", "array"])
        assert near(v, json.loads(done.stdout)[0])
        assert s.ask("/v1/completions", question)[1]["choices"][0]["text"] == before
