"""Many sequences over one model at random (tests/engine/stress.h): each has the logits that it would have alone, to the bit.

A few dozen steps of each family; WEFT_STRESS_STEPS says how many, and then with three seeds: 10000 take hours on two
cores.
"""
import os
import subprocess

import pytest

pytest.importorskip("gguf")

STEPS = int(os.environ.get("WEFT_STRESS_STEPS") or 0)
# Positions, and slack of windows; dense, experts, recurrent, windows beside global layers, beside recurrences, alone; entries of
# several positions
FAMILIES = {"granite": (600, 0), "qwen3moe-q8_0": (600, 0), "qwen35": (300, 0), "gemma3": (900, 0), "gpt-oss": (900, 100),
            "lfm2-window": (300, 0), "deepseek4": (600, 0), "minimax-01": (300, 0),
            "graniteswitch": (300, 0)}


@pytest.fixture(scope="module")
def stress(make_model, built_tool, weft_env, tmp_path_factory):
    tool, folder = built_tool("sequences_tool", "WEFT_SEQUENCES_TOOL"), tmp_path_factory.mktemp("models")

    def run(name, steps, seed, seconds, positions, slack):
        path = folder / f"{name}.gguf"
        if not path.exists():
            make_model.write(name, path)
        command = [tool, path, *map(str, (steps, seed, seconds, positions, slack))]
        return subprocess.run(command, capture_output=True, text=True, env={**weft_env, "SPEC": "0"}, check=False)
    return run


@pytest.mark.parametrize("name", FAMILIES)
def test_many_sequences(stress, name):
    for seed in range(1, 4 if STEPS else 2):
        done = stress(name, STEPS or 60, seed, 1e9 if STEPS else 8, *FAMILIES[name])
        print(name, done.stdout)
        assert not done.returncode, done.stdout + done.stderr


def test_windows_take_no_more_than_they_see(make_model, weft, run_weft, tmp_path):
    """Two of seven layers of gemma3 are global for 4,096 positions; the others have a window of 16, and what stays."""
    import json
    path, stats = tmp_path / "model.gguf", tmp_path / "stats.json"
    make_model.write("gemma3", path, n_ctx=4096)
    run_weft(["run", str(path), "-p", "a", "-n", "1", "-c", "4096", "--stats", str(stats)])
    row, layers, sliding = 2 * 2 * 256, 7, 6
    kept = ((16 - 1 + 512 + 64) // 128 + 2) * 128
    assert json.loads(stats.read_text())["kv_bytes"] == row * ((layers - sliding) * 4096 + sliding * kept)
