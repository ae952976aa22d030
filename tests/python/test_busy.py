"""A machine that others keep busy: decoding keeps a good part of its speed.

A thread that waits for one that is not running must let others have the processor, and sleep. Engines that only spin
fall to a twentieth of their speed here; half of it is the fair share. Both speeds are measured in turns, so that what
else the machine does slows both.
"""
import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

KEEPS = 0.15
ROUNDS = 6


@contextmanager
def busy(cpus):
    """As many programs as processors, each on its own and never idle."""
    programs = []
    try:
        for cpu in cpus:
            loop = f"import os; os.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"
            programs.append(subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE))
        for p in programs:
            p.stdout.readline()
        yield
    finally:
        for p in programs:
            p.kill()
            p.wait()
            p.stdout.close()


def test_decoding_keeps_its_speed(run_weft, tinypy):
    allowed = os.sched_getaffinity(0)
    cpus = sorted(allowed)[:4]
    if len(cpus) < 2:
        pytest.skip("one processor: nothing is shared among threads")

    def speed():
        done = run_weft(["bench", "-m", tinypy, "-p", "0", "-n", "128", "-r", "2", "-t", str(len(cpus)), "-o", "json"])
        assert done.returncode == 0, done.err
        return json.loads(done.out)[0]["avg_ts"]

    seen = []
    os.sched_setaffinity(0, cpus)  # the program's, too
    try:
        while len(seen) < ROUNDS and not (seen and seen[-1] >= KEEPS):
            alone = speed()
            with busy(cpus):
                seen.append(speed() / alone)
    finally:
        os.sched_setaffinity(0, allowed)
    if seen[-1] >= KEEPS:
        return
    pytest.fail(f"beside as many busy programs as processors it keeps {', '.join(f'{s:.3f}' for s in seen)} of its speed")
