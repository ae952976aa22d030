"""A draft model changes how soon tokens come, and nothing else."""
import concurrent.futures as futures
import json

import pytest

from conftest import SHARED
from test_serve import start

MODELS = SHARED / "models"
CODE = "def add(a, b):\n    return a + b\n\n"


@pytest.fixture(scope="module")
def draft():
    path = MODELS / "tinypy-q4_0.gguf"
    if not path.exists():
        pytest.skip("no second model with this vocabulary")
    return path


@pytest.mark.parametrize("how", [["--temp", "0"], ["--temp", "0.9", "-s", "7"]], ids=["greedy", "drawn"])
def test_tokens_are_the_same(run_weft, tinypy, draft, tmp_path, how):
    args = ["run", tinypy, "-p", CODE, "-n", "250", "--ignore-eos", "-q", "--json", "--top-logprobs", "2", *how]
    plain = run_weft([*args, "--no-guess"])
    counted = 0
    for more in [], ["--draft-max", "2", "--draft-p-min", "0.1"]:
        done = run_weft([*args, "-md", draft, *more, "--stats", tmp_path / "s"])
        assert done.returncode == 0 and done.stdout == plain.stdout
        s = json.loads((tmp_path / "s").read_text())
        assert 0 <= s["draft_n_accepted"] <= s["draft_n"] <= s["guessed"]
        counted += s["draft_n_accepted"]
    assert counted > 0


def test_what_is_no_draft_of_it(run_weft, tinypy):
    other = MODELS / "tiny-llama.gguf"
    if not other.exists():
        pytest.skip("no model with another vocabulary")
    done = run_weft(["run", tinypy, "-p", "x", "-n", "1", "-md", other])
    assert done.returncode == 1 and "token 0 is" in str(done.stderr)
    done = run_weft(["run", tinypy, "-p", "x", "-n", "1", "--draft-max", "3"])
    assert done.returncode == 2
    done = run_weft(["serve", "-m", tinypy, "-m", other, "-md", tinypy])
    assert done.returncode == 2


def test_served_with_a_draft(weft, weft_env, tinypy, draft):
    asks = [{"prompt": CODE * 3 + f"# {i}\ndef ", "n_predict": 120, "seed": i, "temperature": 0.8 * (i % 2), "ignore_eos": True, "n_probs": 1}
            for i in range(4)]
    what = lambda got: (got["content"], got["completion_probabilities"])
    with start(weft, weft_env, tinypy) as s:
        plain = [what(s.ask("/completion", a)[1]) for a in asks]
    with start(weft, weft_env, tinypy, "-md", str(draft)) as s:
        ask = lambda a: s.ask("/completion", a)[1]
        alone = [ask(a) for a in asks]
        assert [what(got) for got in alone] == plain
        assert sum(got["timings"].get("draft_n_accepted", 0) for got in alone) > 0
        with futures.ThreadPoolExecutor(4) as pool:
            assert [what(got) for got in pool.map(ask, asks)] == plain
