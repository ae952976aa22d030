"""bench/mca.py: which instructions are a turn of the loop over blocks, how many products they make, and what llvm-mca says of Weft's."""
import importlib.util
import re
import shutil
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def mca(repo):
    spec = importlib.util.spec_from_file_location("mca", repo / "bench/mca.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Rows, blocks, and two turns of a half of a block: the outer loop's turns are entered in the middle.
NESTED = """
    movi v9.16b, #64
    mov x4, x3
    b .middle
.rows:
    fadd v0.4s, v0.4s, v1.4s
.middle:
    mov x5, xzr
.blocks:
    mov w6, #2
    ldr s20, [x0], #4
.halves:
    ldp q1, q2, [x1], #32
    ldr q3, [x2], #16
    sdot v4.4s, v1.16b, v3.4b[0]
    sdot v4.4s, v2.16b, v3.4b[1]
    sdot v4.4s, v9.16b, v3.16b
    subs w6, w6, #1
    b.ne .halves
    fmla v0.4s, v4.4s, v20.s[0]
    cmp x5, #31
    add x5, x5, #1
    b.lo .blocks
    subs x4, x4, #1
    b.ne .rows
    ret
"""


def test_a_turn_is_a_whole_block(mca):
    body, n = mca.block_loop(NESTED, [0x1000, 0x2000, 0x3000, 4], {}, 64)
    assert n == 64, "four of the six multiply weights; two multiply by a constant"
    assert len(body) == 2 + 2 * 7 + 4 and body.count("fmla v0.4s, v4.4s, v20.s[0]") == 1 and body.count("ldp q1, q2, [x1], #32") == 2
    assert mca.block_loop(NESTED, [0x1000, 0x2000, 0x3000, 4], {}, 4096) is None, "no loop makes so large a block in a turn, nor twice"


def test_numbers_become_instructions(mca):
    if not mca.find("llvm-mc"):
        pytest.skip("there is no llvm-mc (Debian: llvm)")
    assert "smmla\tv16.4s" not in mca.spelled("  .inst 0x4f9fe18a\n") and "sdot" in mca.spelled("  .inst 0x4f9fe18a\n")


def test_a_token_of_q4_0(repo, mca, built_tool):
    if not mca.find("llvm-mca"):
        pytest.skip("there is no llvm-mca (Debian: llvm-22, or any other version)")
    command = [sys.executable, repo / "bench/mca.py", "--cpu", "cortex-a76", "--type", "Q4_0", "--stage", "token", "--show", "--tool", built_tool("replay_tool", "WEFT_REPLAY_TOOL")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    row = [cell.strip() for cell in shown.splitlines()[2].split("|")[1:-1]]
    assert row[:3] == ["cortex-a76", "token", "Q4_0"] and 1 < float(row[3]) < 8 and 6 < float(row[4]) < 9.5
    assert len(re.findall(r"^ +sdot .*\.4b\[", shown, re.M)) == 8


def test_without_it_a_sentence(repo, mca, tmp_path):
    (tmp_path / "python3").symlink_to(shutil.which("python3"))
    done = subprocess.run([sys.executable, repo / "bench/mca.py"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr == "mca: there is no llvm-mca (Debian: llvm-22 or llvm-19)\n"
