"""Tokens that a file names in tokenizer.ggml.suppress_tokens are never drawn, as in llama.cpp's tools."""
import json

import gguf
import pytest

from conftest import copy_with_keys
from serving import Server

PROMPT = ["-p", "def ", "-n", "1", "--temp", "0", "--json", "--top-logprobs", "2"]


@pytest.fixture(scope="module")
def suppressing(tinypy, tmp_path_factory):
    """A copy of the small model whose file has this value under the key, written by the gguf package."""
    reader = gguf.GGUFReader(tinypy)

    def write(value, kind=gguf.GGUFValueType.ARRAY, elem=gguf.GGUFValueType.INT32):
        path = tmp_path_factory.mktemp("suppressed") / "m.gguf"
        copy_with_keys(reader, path, {"tokenizer.ggml.suppress_tokens": (value, kind, elem if kind == gguf.GGUFValueType.ARRAY else None)})
        return path
    return write


def first(run_weft, path, *more):
    """The first token drawn, and the likeliest two before any sampler."""
    done = run_weft(["run", "-m", path, *PROMPT, *more])
    assert done.returncode == 0, done.err
    token = next(t for t in map(json.loads, done.stdout.splitlines()) if "id" in t)
    return token["id"], [t for t, _ in token["top"]]


def test_run(run_weft, tinypy, suppressing):
    best, top = first(run_weft, tinypy)
    assert top[0] == best
    path = suppressing([best])
    for more in ((), ("-l", f"{best}+1000"), ("--ignore-eos",), ("--temp", "1", "--top-k", "1")):
        assert first(run_weft, path, *more) == (top[1], top), more            # log-probabilities are those before samplers
    assert first(run_weft, tinypy, "-l", f"{best}+1000")[0] == best


def test_ids_of_no_token_are_left_out(run_weft, tinypy, suppressing):
    best, top = first(run_weft, tinypy)
    assert first(run_weft, suppressing([-1, 2**31 - 1, -2**31, 10**6]))[0] == best
    assert first(run_weft, suppressing([-1, best, 10**6, best]))[0] == top[1]
    done = run_weft(["run", "-m", suppressing([-1, best, 10**6, best]), *PROMPT])
    assert "m.gguf: key 'tokenizer.ggml.suppress_tokens': 2 of its 4 ids are no token, and are ignored" in done.err
    assert first(run_weft, suppressing([best], elem=gguf.GGUFValueType.UINT32))[0] == top[1]


def test_no_list_of_ids(run_weft, suppressing):
    for path in (suppressing(3, gguf.GGUFValueType.INT32), suppressing(["a"], elem=gguf.GGUFValueType.STRING),
                 suppressing([1.0], elem=gguf.GGUFValueType.FLOAT32)):
        done = run_weft(["run", "-m", path, *PROMPT])
        assert done.returncode == 1 and "tokenizer.ggml.suppress_tokens" in done.err and str(path) in done.err, done.err


def test_no_token_is_left(run_weft, suppressing, tinypy):
    n = len(gguf.GGUFReader(tinypy).fields["tokenizer.ggml.tokens"].data)
    done = run_weft(["run", "-m", suppressing(list(range(n))), *PROMPT])
    assert done.returncode == 1 and f"no token can be drawn: all {n} are banned (0 by the grammar; {n} by biases" in done.err
    done = run_weft(["run", "-m", suppressing(list(range(1, n))), *PROMPT, "--grammar", 'root ::= "("'])
    assert done.returncode == 1 and f"({n - 1} by the grammar; {n - 1} by biases" in done.err, done.err


def test_inspect_shows_them(run_weft, suppressing):
    done = run_weft(["inspect", suppressing([3, 5])])
    assert "tokenizer.ggml.suppress_tokens" in done.stdout.decode() and "[3, 5]" in done.stdout.decode()


def test_serve(weft, weft_env, run_weft, tinypy, suppressing):
    best, top = first(run_weft, tinypy)
    ask = {"prompt": "def ", "n_predict": 1, "temperature": 0, "n_probs": 2, "logit_bias": [[best, 100]]}
    with Server(weft, weft_env, suppressing([best])) as s:
        _, answer = s.ask("/completion", ask)
        said = answer["completion_probabilities"][0]
        assert said["id"] == top[1] and [t["id"] for t in said["top_logprobs"]] == top
        _, answer = s.ask("/completion", {**ask, "temperature": 1, "seed": 3, "post_sampling_probs": True})
        said = answer["completion_probabilities"][0]
        assert best not in [said["id"], *(t["id"] for t in said["top_probs"])]
