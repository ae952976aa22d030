"""Whole models on OpenCL (DEV=CL), through whatever driver is installed: PoCL in the tests.

The same graphs and the same rules make other kernels for another compiler: records of other models are in test_opencl_records.py.
Both ways to share out work are run: tiles, one work-item for a core's worth, and groups, whose items share memory and wait at
barriers (of them the text alone).  Where no driver can be had the tests are skipped, but not under scripts/test.sh: scripts/setup.sh installs one.
"""
import json
import os
import re
import shutil
from pathlib import Path

import pytest

WAYS = ["tiles", "groups"]
# Nothing is kept: for what is kept PoCL compiles each kernel a second time, for groups of any size. That is done once, by the first test of
# tiles, and the tests behind it find most of their kernels in the session's cache.
ONCE = {"DEV": "CL", "WEFT_CACHE": "off"}
KEPT = {"DEV": "CL"}
PROMPT = "def add(a, b):\n"


@pytest.fixture(scope="session", autouse=True)
def driver(run_weft):
    said = next(line for line in run_weft(["env"]).out.splitlines() if line.lstrip().startswith("CL: "))
    if "no driver is installed" in said or "needs its loader" in said:
        (pytest.fail if os.environ.get("WEFT_SKIPS") else pytest.skip)(f"no OpenCL driver: {said.strip()}")
    assert "CL: none" not in said


def text_of(run_weft, tinypy, env, *more):
    done = run_weft(["run", "-m", tinypy, "-p", PROMPT, "-n", "48", "--temp", "0", *more], env=env, timeout=600)
    assert done.returncode == 0, done.err
    return done.stdout


@pytest.mark.parametrize(("env", "way"), [(KEPT, "tiles"), (ONCE, "groups")], ids=WAYS)
def test_same_text(run_weft, tinypy, env, way):
    assert text_of(run_weft, tinypy, {**env, "CL_WORK": way}) == text_of(run_weft, tinypy, {})


def test_rows_lie_in_lanes(run_weft, tinypy):
    """Tiles: weights lie as vectors of rows read them, and not as items of a work-group do, which made tokens three times as slow."""
    done = run_weft(["run", "-m", tinypy, "--ids", "1", "-n", "1"], env={"DEV": "CL", "CL_WORK": "tiles", "WEFT_CACHE": "off", "DEBUG": "4"}, timeout=600)
    assert done.returncode == 0 and "__kernel" in done.err
    assert not re.search(r"\(u?int(8|16)\)\(x\d+, x\d+", done.err), "a vector of words that are read one by one"


def test_chunks_do_not_matter(run_weft, tinypy):
    """A prompt in chunks of another size, and kernels that come from the cache."""
    assert text_of(run_weft, tinypy, KEPT, "-ub", "8") == text_of(run_weft, tinypy, KEPT)


@pytest.mark.parametrize("layers", ["2", "5"])
def test_layers_on_two_devices(run_weft, tinypy, layers):
    assert text_of(run_weft, tinypy, KEPT, "-ngl", layers) == text_of(run_weft, tinypy, {})


def test_a_search_changes_no_text(run_weft, weft_env, tinypy, tmp_path):
    """Candidates run on the device; where one wins, the next run uses it. It begins with a copy of the session's cache."""
    cache, kept = tmp_path / "cache", Path(weft_env["XDG_CACHE_HOME"]) / "weft"
    cache.mkdir(mode=0o700)
    if kept.exists():
        shutil.copytree(kept, cache, dirs_exist_ok=True)
    env = {"DEV": "CL", "WEFT_CACHE": str(cache)}
    plain = text_of(run_weft, tinypy, env)
    for budget in ("20", "200"):                                   # a busy machine tries nothing in 20 seconds
        done = run_weft(["tune", "-m", tinypy, "--beam", "1", "--budget", budget, "--no-prompt", "--json"], env=env, timeout=600)
        assert done.returncode == 0, done.err
        states = [row["state"] for row in json.loads(done.out)["kernels"]]
        if searched := any(state in ("no_gain", "dropped", "better") for state in states):
            break
    assert searched, done.out
    assert text_of(run_weft, tinypy, env) == plain


def test_no_driver_is_one_sentence(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "CL", "OCL_ICD_VENDORS": "/nonexistent"})
    assert done.returncode == 1 and done.stdout == b""
    assert done.err.strip() == "weft: error: OpenCL: no driver is installed (-1001): install one, such as pocl-opencl-icd"


def test_unknown_way(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "CL", "CL_WORK": "warps"})
    assert done.returncode == 2 and "CL_WORK must be one of groups|tiles, not 'warps'" in done.err


def test_env_lists_devices(run_weft):
    assert "CL: none: OpenCL: no driver is installed" in run_weft(["env"], env={"OCL_ICD_VENDORS": "/nonexistent"}).out
    assert "CL: none" not in run_weft(["env"]).out


def test_too_large_a_cache(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1", "-c", "100000000"], env={"DEV": "CL"}, timeout=600)
    assert done.returncode == 1 and "a smaller context (-c) needs less" in done.err
