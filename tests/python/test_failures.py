"""Every file that cannot be opened, read, written, every mapping and thread that the system refuses: one at a time, in each command.

A run ends well, with the answer that it always gives, or with a message and status 1. Nothing hangs, nothing is ended by a signal; no file is
left half written, no temporary one at all, and what stands in the cache is still good. By default some calls of each kind are
tried, spread over all; WEFT_FAIL_ALL=1 tries every one. (Allocations that fail are in test_safety.py.)
"""
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

KINDS = ["open", "read", "write", "map", "thread", "file", "pipe", "short"]
TRIES = 4
MODEL, OUT = "{model}", "{out}"  # places in the commands below
RUN = ["run", "-m", MODEL, "-p", "def ", "-n", "3", "--temp", "0", "-c", "256"]
# Arguments; whether it begins with what an earlier run left in the cache; the file that it writes.
COMMANDS = {
    "inspect": (["inspect", "-m", MODEL, "--json"], True, None),
    "tokenize": (["tokenize", "-m", MODEL, "-p", "def f(x): return x", "--ids"], True, None),
    "run": (RUN + ["--stats", OUT], True, None),
    "compile": (RUN, False, None),
    "tune": (["tune", "-m", MODEL, "--beam", "2", "--budget", "0.2", "--no-prompt", "-c", "256"], True, None),
    "cache": (["cache", "list"], True, None),
    "quantize": (["quantize", "--allow-requantize", MODEL, OUT, "Q4_0", "2"], True, "model"),
}
SAME = {"inspect", "tokenize", "run", "compile", "cache"}  # these print the same in each run


@pytest.fixture(scope="module")
def tool(built_tool, sanitized, weft):
    if sanitized:
        pytest.skip("the sanitizers make calls of their own, and look at the process while it ends")
    path = built_tool("fail_tool", "WEFT_FAIL_TOOL")
    done = subprocess.run([path, "read", "-1", weft, "--version"], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    return path


@pytest.fixture(scope="module")
def cache(run_weft, tinypy, tmp_path_factory):
    """A cache in which what these commands need is found."""
    folder = tmp_path_factory.mktemp("warm")
    folder.chmod(0o700)
    args = [part.format(model=tinypy) for part in RUN]
    assert run_weft(args, env={"WEFT_CACHE": folder}).returncode == 0
    assert run_weft([part.format(model=tinypy) for part in COMMANDS["tune"][0]], env={"WEFT_CACHE": folder}).returncode == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_call_that_fails(tool, cache, weft, weft_env, run_weft, tinypy, tmp_path, name):
    args, warm, writes = COMMANDS[name]

    def attempt(kind, at):
        """What happened: the run, the number of calls, and what is wrong (None: nothing)."""
        folder = tmp_path / f"{kind}{at}"
        folder.mkdir()
        (folder / "tmp").mkdir()
        if warm:
            shutil.copytree(cache, folder / "cache")
        else:
            (folder / "cache").mkdir()
        (folder / "cache").chmod(0o700)
        env = {**weft_env, "WEFT_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
        full = [part.format(model=tinypy, out=folder / "out") for part in args]
        try:
            done = subprocess.run([tool, kind, str(at), weft, *full], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=200, cwd=folder)
        except subprocess.TimeoutExpired:
            return None, 0, "it hangs"
        err, _, last = done.stderr.decode(errors="replace").rstrip().rpartition("\n")
        left = {path.name for path in folder.iterdir()} - {"cache", "tmp", "out"} | {path.name for path in (folder / "tmp").iterdir()}
        wrong = None
        if done.returncode not in (0, 1):
            wrong = f"status {done.returncode}: {err}"
        elif done.returncode and not any(line.startswith("weft: ") for line in err.splitlines()):
            wrong = f"no message: {err!r}"
        elif left and not (writes and done.returncode and left == {"out.part", "out.part.pieces"}):
            wrong = f"left behind: {left}"
        elif writes and done.returncode and (folder / "out").exists() and (folder / "out").read_bytes() != good[1]:
            wrong = "failed, and left the file"
        elif writes and not done.returncode and good and (folder / "out").read_bytes() != good[1]:
            wrong = "the file is not what it should be"
        elif not done.returncode and name in SAME and good and done.stdout != good[0] and b'"can_run": false' not in done.stdout:
            wrong = f"printed {done.stdout[-300:]!r}"
        elif writes and done.returncode and (run_weft(full).returncode or (folder / "out").read_bytes() != good[1]):
            wrong = "what was left of the file is of no use to the next run"
        if not wrong and at >= 0 and (folder / "cache").exists() and name in ("run", "compile", "tune"):
            after = run_weft([part.format(model=tinypy) for part in RUN], env={"WEFT_CACHE": folder / "cache"})
            if after.returncode or after.stdout != answer or "warning" in after.err:
                wrong = f"the next run: {after.returncode} {after.out!r} {after.err}"
        result = (done.stdout, (folder / "out").read_bytes() if writes and (folder / "out").exists() else b"")
        shutil.rmtree(folder)
        return result, int(last.split(": ")[1].split()[0]), wrong

    answer = run_weft([part.format(model=tinypy) for part in RUN], env={"WEFT_CACHE": cache}).stdout
    good, failures, tried = None, [], 0
    for kind in KINDS:
        result, calls, wrong = attempt(kind, -1)
        assert not wrong, (kind, wrong)
        good = good or result
        tries = 1 if name in ("tune", "compile") else TRIES
        step = 1 if os.environ.get("WEFT_FAIL_ALL") else max(1, -(-calls // tries))
        with ThreadPoolExecutor(2) as pool:
            for at, (_, _, wrong) in zip(range(0, calls, step), pool.map(lambda at: attempt(kind, at), range(0, calls, step))):
                tried += 1
                failures += [f"{kind} {at} of {calls}: {wrong}"] if wrong else []
    assert not failures, f"{len(failures)} of {tried}\n" + "\n".join(failures[:40])
    assert tried >= 8
