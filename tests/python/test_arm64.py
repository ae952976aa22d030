"""AArch64 in qemu's user mode (scripts/test.sh --arm64): what a processor is called, what kernels may use of it, and the bits of x86-64.

QEMU_CPU names the processor.  Which instructions each core has is the table of Arm's manuals.
"""
import json
import os
import subprocess
from pathlib import Path

import pytest

CORES = {  # name in `weft env`, what kernels may use beyond ARMv8.0
    "cortex-a53": ("Arm Cortex-A53", set()),
    "cortex-a72": ("Arm Cortex-A72", set()),
    "cortex-a76": ("Arm Cortex-A76", {"fullfp16", "dotprod"}),
    "neoverse-n1": ("Arm Neoverse N1", {"fullfp16", "dotprod"}),
    "max": (None, {"fullfp16", "dotprod", "i8mm", "bf16"}),
}


@pytest.fixture(scope="module")
def core(weft):
    if Path(weft).name != "weft-in-qemu":
        pytest.skip("not a build for AArch64: scripts/test.sh --arm64 makes and tests one")
    return os.environ["QEMU_CPU"]


def test_env_names_the_core(core, run_weft):
    rows = dict(line.split(None, 1) for line in run_weft(["env"]).out.splitlines() if len(line.split(None, 1)) == 2)
    name, features = CORES[core]
    assert name is None or rows["cpu"] == name
    assert set(rows["features"].split()[1:]) == features


def test_integer_products_have_the_bits_of_x86(core, run_weft, weft_env, repo, tinypy):
    """All log-probabilities of a prompt and some tokens: what the build for this machine prints, letter by letter."""
    own = repo / "build/weft"
    assert own.exists(), "scripts/test.sh --arm64 builds for this machine, too: there is nothing else to compare with"
    arguments = ["run", "-m", tinypy, "-p", "def add(a, b):", "-n", "6", "--temp", "0", "--json", "--top-logprobs", "512"]
    ours = run_weft(arguments, timeout=1000)
    assert ours.returncode == 0, ours.err
    assert len(ours.out.splitlines()) == 6 and all(len(json.loads(line)["top"]) == 512 for line in ours.out.splitlines())
    theirs = subprocess.run([own, *map(str, arguments)], env=weft_env, capture_output=True, check=True)
    assert ours.stdout == theirs.stdout
