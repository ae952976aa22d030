"""Vectors of texts from weft serve, as OpenAI's and ollama's Python packages ask for them, and as llama.cpp's endpoint gives them."""
import json
import math

import pytest
from serving import Server

THREADS = 1

ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def write(make_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")

    def make(name):
        make_encoder.write(name, folder / f"{name}.gguf")
        return folder / f"{name}.gguf"
    return make


@pytest.fixture(scope="module")
def model(write):
    return write("bert")


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


@pytest.mark.parametrize("name", ["bert-rank", "qwen3-rank"])
def test_rerank(weft, weft_env, run_weft, write, name):
    path = write(name)
    texts = ["a dog walks", "the cat", "a cat walks!", "dog dog dog"]
    pairs = "\n".join(f"the cat?\t{t}" for t in texts)
    done = run_weft(["embed", "-m", path, "--embd-output-format", "array", "-p", pairs])
    scores = [v[0] for v in json.loads(done.stdout)]
    order = sorted(range(4), key=lambda i: -scores[i])
    with Server(weft, weft_env, path) as s:
        for route in "/v1/rerank", "/rerank", "/v1/reranking", "/reranking":
            status, answer = s.ask(route, {"query": "the cat?", "documents": texts})
            assert status == 200 and [r["index"] for r in answer["results"]] == order, answer
        assert near([r["relevance_score"] for r in answer["results"]], [scores[i] for i in order])
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 20
        status, answer = s.ask("/rerank", {"query": "the cat?", "documents": [{"text": t} for t in texts], "top_n": 2})
        assert [r["index"] for r in answer["results"]] == order[:2]
        for wrong, words in (({"documents": texts}, "'query' is missing"), ({"query": "a"}, "'documents' is missing"),
                             ({"query": "a", "documents": []}, "from 1 to"),
                             ({"query": 1, "documents": texts}, "query"), ({"query": "a", "documents": "b"}, "documents"),
                             ({"query": "a", "documents": ["b", 3]}, "documents[1]"),
                             ({"query": "a", "documents": texts, "top_n": 0}, "top_n"),
                             ({"query": "a", "documents": ["b", "cat " * 5000]}, "context holds")):
            status, answer = s.ask("/v1/rerank", wrong)
            assert status == 400 and words in answer["error"]["message"], answer
        status, answer = s.ask("/v1/embeddings", {"input": "a"})
        assert status == 501 and "/v1/rerank" in answer["error"]["message"]


def test_a_model_that_does_not_rank(server):
    for route in "/v1/rerank", "/rerank":
        status, answer = server.ask(route, {"query": "a", "documents": ["b"]})
        assert status == 501 and "does not rank" in answer["error"]["message"], answer


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
