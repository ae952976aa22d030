"""What other people, other programs and the system can do to a run: it ends in a message or goes on, and is never ended by a signal."""
import os
import random
import shutil
import subprocess
import threading
import time

import pytest


@pytest.fixture
def warm(weft_env, run_weft, tinypy):
    """The session's cache holds the kernels of short runs."""
    assert run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "2"]).returncode == 0


def test_a_file_that_is_cut_while_it_runs(weft, weft_env, tinypy, tmp_path, warm, sanitized):
    """At any moment, while loading too: status 1 and a message that names the file, or the answer of a run that was done before."""
    seed = random.Random(3)
    cut = 0
    for i in range(4 if sanitized else 12):
        path = tmp_path / f"model-{i}.gguf"
        shutil.copy(tinypy, path)
        args = [weft, "run", "-m", str(path), "-p", "def ", "-n", "400", "--temp", "0", "-c", "512"] + (["--no-repack"] if i % 2 else [])
        process = subprocess.Popen(args, env=weft_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if i % 3:
            process.stdout.read(20)  # it generates
        else:
            time.sleep(seed.random() * 0.03)  # it loads
        os.truncate(path, seed.choice([0, 100, 1 << 16, 3 << 20]))
        out, err = process.communicate(timeout=300)
        assert process.returncode in (0, 1), (process.returncode, err)
        if process.returncode:
            assert str(path) in err.decode(), err
            cut += 1
    assert cut >= 3


def test_a_file_that_is_cut_while_it_is_inspected(run_weft, tinypy, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(tinypy, path)
    stop = threading.Event()

    def grow_and_cut():
        data = open(tinypy, "rb").read()
        while not stop.is_set():
            with open(path, "r+b") as f:
                f.truncate(5000)
                f.write(data)

    thread = threading.Thread(target=grow_and_cut)
    thread.start()
    try:
        for _ in range(15):
            for args in [["inspect", "-m", path, "--json"], ["tokenize", "-m", path, "-p", "def f(x): return x"]]:
                done = run_weft(args)
                assert done.returncode in (0, 1), (args, done.returncode, done.err)
                assert not done.returncode or done.err.startswith("weft: error: ")
    finally:
        stop.set()
        thread.join()
