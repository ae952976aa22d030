"""Models with sliding windows in weft serve: a sequence whose windows have moved on serves others that share its beginning, with the same bits."""
import random
import time

import pytest
from serving import Server

THREADS = 1

pytest.importorskip("gguf")

LONG, SHARED, ANSWER = 2000, 300, 700              # tokens; an answer that goes beyond a window of 16 and what stays behind it


@pytest.fixture(scope="module", params=["gemma3", "gpt-oss"])
def windowed(make_model, tmp_path_factory, request):
    path = tmp_path_factory.mktemp("windowed") / "model.gguf"
    make_model.write(request.param, path, n_ctx=4096)
    return path


def tokens(seed, n, first=()):
    draw = random.Random(seed)
    return [*first, 40 + seed, *(draw.randrange(33, 120) for _ in range(n - len(first) - 1))]


def ask(server, ids, most=8, **more):
    body = {"prompt": ids, "max_tokens": most, "temperature": 1, "seed": 5, "logprobs": 1, "ignore_eos": True, **more}
    status, got = server.ask("/v1/completions", body)
    assert status == 200, got
    return got["choices"], got["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_others_share_a_beginning(weft, weft_env, windowed, tmp_path):
    first = tokens(1, LONG)
    second, third, fourth = (tokens(i, 800, first[:SHARED]) for i in (2, 3, 4))
    with Server(weft, weft_env, windowed) as s:
        expected = [ask(s, second)[0], ask(s, fourth)[0]]
    with Server(weft, weft_env, windowed, "--keep-in", tmp_path) as s:
        assert ask(s, first, ANSWER)[1] == 0
        choices, cached = ask(s, second)
        assert choices == expected[0] and SHARED - 128 <= cached <= SHARED
        assert ask(s, third)[1] == SHARED          # where two have parted, the place itself is kept
        assert ask(s, second)[1] == 799
        assert s.end() == 0
    with Server(weft, weft_env, windowed, "--keep-in", tmp_path) as s:
        choices, cached = ask(s, fourth)
        assert choices == expected[1] and cached == SHARED


def test_an_answer_is_drawn_again(weft, weft_env, windowed):
    """However long the answer was, its prompt is there: for another one, for a further choice, and for the next turn."""
    prompt = tokens(1, 1000)
    with Server(weft, weft_env, windowed, "-np", "1") as s:
        once = ask(s, prompt, ANSWER)
        again = ask(s, prompt, ANSWER)
        assert once[1] == 0 and again == (once[0], len(prompt) - 1)
        while s.metric("llamacpp:requests_processing"):                # what it took is counted by then
            time.sleep(0.02)
        before = s.metric("llamacpp:prompt_tokens_total")
        choices, cached = ask(s, tokens(2, 1000), ANSWER, n=3)         # one after another
        assert cached == 0 and len(choices) == 3
        while s.metric("llamacpp:requests_processing"):
            time.sleep(0.02)
        assert s.metric("llamacpp:prompt_tokens_total") - before == 1000 + 2
