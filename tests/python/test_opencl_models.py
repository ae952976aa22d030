"""Whole models on OpenCL (DEV=CL), through whatever driver is installed: PoCL in the tests.

The same graphs and the same rules make other kernels for another compiler, so answers are held to the same records as the CPU's.
Both ways to share out work are run: tiles, one work-item for a core's worth, and groups, whose items share memory and wait at
barriers (of them the text alone).  Where no driver can be had the tests are skipped, but not under scripts/test.sh: scripts/setup.sh installs one.
"""
import json
import os

import pytest

from test_golden import GAP, MEAN_KL, compare, distributions

WAYS = ["tiles", "groups"]
# A compiler such as PoCL's takes about a second for a kernel: one record of each kind of layer and of format.
RECORDS = ["tiny-llama", "tiny-qwen3moe", "tiny-deepseek2-mla", "tinypy-q4_k_m", "tinypy-f16"]
PROMPT = "def add(a, b):\n"


@pytest.fixture(scope="session", autouse=True)
def driver(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "CL"}, timeout=600)
    if done.returncode and "no driver is installed" in done.err or "needs its loader" in done.err:
        (pytest.fail if os.environ.get("WEFT_SKIPS") else pytest.skip)(f"no OpenCL driver: {done.err.strip()}")
    assert done.returncode == 0, done.err


def text_of(run_weft, tinypy, env, *more):
    done = run_weft(["run", "-m", tinypy, "-p", PROMPT, "-n", "48", "--temp", "0", *more], env=env, timeout=600)
    assert done.returncode == 0, done.err
    return done.stdout


@pytest.mark.parametrize("way", WAYS)
def test_same_text(run_weft, tinypy, way):
    assert text_of(run_weft, tinypy, {"DEV": "CL", "CL_WORK": way}) == text_of(run_weft, tinypy, {})


def test_chunks_do_not_matter(run_weft, tinypy):
    """A prompt in chunks of another size, and kernels that come from the cache."""
    env = {"DEV": "CL"}
    assert text_of(run_weft, tinypy, env, "-ub", "8") == text_of(run_weft, tinypy, env)


@pytest.mark.parametrize("name", RECORDS)
def test_record(run_weft, shared_dir, name):
    path = shared_dir / "models" / f"{name}.gguf"
    record = json.loads(path.with_suffix(".json").read_text())
    kl, wrong = [], []
    for case in record["cases"][:1]:
        ours = distributions(run_weft, path, case["prompt_ids"], case["tokens"], record["vocab_size"], env={"DEV": "CL"})
        case_kl, case_wrong = compare([step["top"] for step in case["steps"]], ours)
        kl += case_kl
        wrong += case_wrong
    mean = sum(kl) / len(kl)
    print(f"{name}: mean KL {mean:.6f}, largest {max(kl):.6f}, {len(kl)} steps")
    assert mean <= MEAN_KL
    assert not wrong, f"another likeliest token (by more than {GAP}) at {len(wrong)} of {len(kl)} steps: {'; '.join(wrong[:5])}"


def test_no_driver_is_one_sentence(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "CL", "OCL_ICD_VENDORS": "/nonexistent"})
    assert done.returncode == 1 and done.stdout == b""
    assert done.err.strip() == "weft: error: OpenCL: no driver is installed (-1001): install one, such as pocl-opencl-icd"


def test_unknown_way(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "CL", "CL_WORK": "warps"})
    assert done.returncode == 1
    assert "CL_WORK=warps is no way to share out work (known: groups, tiles)" in done.err


def test_env_lists_devices(run_weft):
    assert "CL: none: OpenCL: no driver is installed" in run_weft(["env"], env={"OCL_ICD_VENDORS": "/nonexistent"}).out
    assert "CL: none" not in run_weft(["env"]).out


def test_too_large_a_cache(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1", "-c", "100000000"], env={"DEV": "CL"}, timeout=600)
    assert done.returncode == 1 and "a smaller context (-c) needs less" in done.err
