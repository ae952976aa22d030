"""A model larger than the memory for its weights: they are read from the file when a kernel needs them, with the same bits.

WEFT_WEIGHT_MEMORY stands for the memory. The least that a model takes is what the refusal says; with that much, weights leave and come again.
"""
import os
import re
import shutil

import pytest

from serving import Server
from test_families import forced

# of all kinds: plain, experts in matrices of their own and as one, latent attention, recurrent, several kinds of layers
NAMES = ["olmoe", "mixtral", "gpt-oss", "deepseek2-groups", "qwen35moe", "mamba2", "gemma3n", "rwkv7"]
PROMPT, TOKENS = [5, 17, 40, 41, 290, 2, 9, 77, 12, 260, 3, 8], [271, 272, 9, 77]


def variable(mib):
    return {"WEFT_WEIGHT_MEMORY": mib}


def least_memory(run_weft, path):
    """MiB that the refusal names, and those of all weights."""
    done = run_weft(["run", "-m", path, "--ids", "1", "-n", 1], env=variable(0.001))
    assert done.returncode == 1
    said = re.search(r"([\d.]+) MiB of weights, and memory for only 0.0 MiB of them; it takes at least ([\d.]+) MiB", done.err)
    assert said, done.err
    return float(said[2]) + 0.1, float(said[1])


def came_again(err):
    said = re.search(r"demand: ([\d.]+) MiB read, of them ([\d.]+) MiB again, ([\d.]+) MiB of ([\d.]+) MiB in memory", err)
    assert said, err
    return tuple(map(float, said.groups()))


@pytest.mark.parametrize("name", NAMES)
def test_same_bits(run_weft, make_model, tmp_path, name):
    path = tmp_path / "model.gguf"
    make_model.write(name, path)
    least, _ = least_memory(run_weft, path)

    def run(*args, **env):
        return forced(lambda a: run_weft(a, env=env), path, {"n_ctx": 64}, PROMPT, TOKENS, *args)

    usual = run()
    assert run(**{k: str(v) for k, v in variable(least).items()}) == usual
    assert run("-ub", 4, "-t", 1, **{k: str(v) for k, v in variable(least).items()}) == usual


def test_weights_leave_and_come_again(run_weft, tinypy):
    least, all_of_them = least_memory(run_weft, tinypy)
    assert least < all_of_them
    args = ["run", "-m", tinypy, "-p", "def ", "-n", 24, "--temp", 0]
    usual, short = run_weft(args), run_weft(args, env={**variable(least), "DEBUG": 1})
    assert short.returncode == 0 and short.out == usual.out
    read, again, held, budget = came_again(short.err)
    assert again > 10 and held <= budget + 0.1                      # MiB: of each of 24 tokens a part
    assert f"memory for {least:.1f} MiB of them" in short.err and "are read from the file" in short.err
    enough = run_weft(args, env={**variable(1000), "DEBUG": 1})
    assert enough.out == usual.out and "demand:" not in enough.err and "warning" not in enough.err


def test_experts_that_are_not_chosen_stay_in_the_file(run_weft, make_gguf):
    path = make_gguf("tiny-qwen3moe")
    least, all_of_them = least_memory(run_weft, path)
    done = run_weft(["run", "-m", path, "--ids", "5,6", "-n", 1, "--temp", 0, "-ub", 1], env={**variable(all_of_them - 0.1), "DEBUG": 1})
    assert done.returncode == 0
    read, again, held, _ = came_again(done.err)
    assert again == 0 and read < all_of_them * 0.9                  # two tokens do not choose all


def test_serve_and_tune(run_weft, weft, weft_env, tinypy):
    least, _ = least_memory(run_weft, tinypy)
    body = {"prompt": "def ", "max_tokens": 12, "temperature": 0}
    with Server(weft, dict(weft_env), tinypy, "-np", 3) as usual:
        expected = usual.ask("/v1/completions", body)[1]["choices"][0]["text"]
    with Server(weft, {**weft_env, "WEFT_WEIGHT_MEMORY": str(least)}, tinypy, "-np", 3) as short:
        assert [short.ask("/v1/completions", body)[1]["choices"][0]["text"] for _ in range(3)] == [expected] * 3
    done = run_weft(["tune", "-m", tinypy], env=variable(least))
    assert done.returncode == 1 and "do not fit into memory together" in done.err


def test_a_file_that_is_cut_meanwhile(run_weft, weft, weft_env, tinypy, tmp_path):
    path = tmp_path / "cut.gguf"
    shutil.copy(tinypy, path)
    least, _ = least_memory(run_weft, path)
    with Server(weft, {**weft_env, "WEFT_WEIGHT_MEMORY": str(least)}, path, "--no-cache-prompt") as server:
        body = {"prompt": "def ", "max_tokens": 4, "temperature": 0}
        assert server.ask("/v1/completions", body)[0] == 200
        os.truncate(path, path.stat().st_size // 2)
        status, answer = server.ask("/v1/completions", body)[:2]
        assert status >= 400 and "it was cut" in str(answer)
