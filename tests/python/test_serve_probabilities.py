"""post_sampling_probs: the probabilities that tokens are drawn by, behind all samplers. Expected ones are those that llama.cpp's own server (the one in
llama-cpp-python 0.3.36) answers of the same file, to 0.01 (the two round differently), and what the samplers' definitions make of log-probabilities."""
import json
import math
import pytest
from serving import Server, TEMPLATE

THREADS = 1

ASKED = {"prompt": "def add(a, b):\n    return a", "n_predict": 3, "seed": 1, "n_probs": 5, "post_sampling_probs": True}


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy, "--chat-template", TEMPLATE) as s:
        yield s


def asked(server, path="/completion", **more):
    status, o = server.ask(path, {**ASKED, **more})
    assert status == 200, o
    return o


@pytest.mark.parametrize("sampling, expected", [
    ({"temperature": 0}, [1]),
    ({"temperature": 2, "top_k": 1}, [1]),
    ({"temperature": 1, "top_k": 3}, [.732, .1467, .1213]),
    ({"temperature": .5, "top_k": 0, "top_p": 1, "min_p": 0}, [.9227, .0371, .0253, .0067, .0017]),
    ({"temperature": 1.5, "top_k": 8, "top_p": .9}, [.5442, .1864, .1642, .1053]),
    ({"temperature": 1, "repeat_penalty": 1.5, "top_k": 4}, [.7779, .1559, .0662]),
    ({"temperature": 1, "typical_p": .5, "top_k": 0}, [.6891, .1381, .1142, .0586]),
    ({"temperature": 1, "top_n_sigma": 1}, [.6891, .1381, .1142, .0586]),
    ({"temperature": 1, "dynatemp_range": .5}, [.6255, .1604, .1365, .0776]),
    ({"temperature": 1, "mirostat": 2}, [.5416, .1085, .0898, .0461, .0232]),
    ({"temperature": 1, "top_k": 4, "logit_bias": [["\n", 5]]}, [1]),
])
def test_as_llama_server(server, sampling, expected):
    first = asked(server, **sampling)["completion_probabilities"][0]
    assert set(first) == {"id", "token", "bytes", "prob", "top_probs"}
    assert [x["prob"] for x in first["top_probs"]] == pytest.approx(expected, abs=.01)
    assert all(set(x) == {"id", "token", "bytes", "prob"} for x in first["top_probs"])


def test_they_are_what_the_samplers_say(server):
    """By the definitions of top-k and the temperature from all log-probabilities before sampling; a token's is one of those beside it."""
    before = asked(server, post_sampling_probs=False, n_probs=1000, temperature=0)["completion_probabilities"][0]["top_logprobs"]
    for temp, k in ((.7, 5), (1, 2), (3, 40)):
        weights = [math.exp(x["logprob"] / temp) for x in before[:k]]
        seen = set()
        for seed in range(8):
            first = asked(server, temperature=temp, top_k=k, top_p=1, min_p=0, seed=seed, n_probs=100)["completion_probabilities"][0]
            top = {x["id"]: x["prob"] for x in first["top_probs"]}
            assert list(top) == [x["id"] for x in before[:k]] and list(top.values()) == pytest.approx([w / sum(weights) for w in weights])
            assert sum(top.values()) == pytest.approx(1) and first["prob"] == pytest.approx(top[first["id"]])
            seen.add(first["id"])
        assert temp < 3 or len(seen) > 1


def test_in_all_forms(server):
    """Chats have the same names, a stream brings the same; OpenAI's older form has logarithms of the same; with a grammar they are of what it allows."""
    more = {"temperature": 1, "top_k": 3}
    whole = asked(server, **more)["completion_probabilities"]
    lines = asked(server, stream=True, **more).splitlines()
    streamed = [p for e in lines if e.startswith("data: {") for p in json.loads(e[6:]).get("completion_probabilities", [])]
    assert streamed == whole
    chat = asked(server, "/v1/chat/completions", messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=3, **more)
    content = chat["choices"][0]["logprobs"]["content"]
    assert [sorted(x) for x in content] == [["bytes", "id", "prob", "token", "top_probs"]] * 3
    older = asked(server, "/v1/completions", logprobs=5, **more)["choices"][0]["logprobs"]
    assert [math.exp(x) for x in older["token_logprobs"]] == pytest.approx([x["prob"] for x in whole])
    only = asked(server, grammar='root ::= "xyz"', temperature=1)["completion_probabilities"]
    assert all(x["top_probs"] and all("xyz".find(y["token"]) >= 0 for y in x["top_probs"]) for x in only)
    plain = asked(server, post_sampling_probs=False)["completion_probabilities"][0]
    assert set(plain) == {"id", "token", "bytes", "logprob", "top_logprobs"}
