"""Models on an OpenCL device that looks at every access: oclgrind interprets the kernels as they were printed, item by item.

What it would say: reads and writes beyond a buffer, races between the items of a work-group and between work-groups, barriers that not
all items reach. Without the tool the tests are skipped, but not under scripts/test.sh: scripts/setup.sh installs it.
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

DRIVER = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
RACE = """kernel void race(global float *out) {
  local float a[64];
  a[get_local_id(0)] = 1;
  BARRIER;
  out[get_global_id(0)] = a[63 - get_local_id(0)];
}
"""
CALL = "race.cl\nrace\n64 1 1\n64 1 1\n<size=SIZE fill=0>\n"


@pytest.fixture(scope="module", autouse=True)
def tool():
    if not shutil.which("oclgrind-kernel") or not DRIVER.exists():
        (pytest.fail if os.environ.get("WEFT_SKIPS") else pytest.skip)("no oclgrind (Debian: oclgrind)")


@pytest.mark.parametrize(("barrier", "size", "says"), [("barrier(CLK_LOCAL_MEM_FENCE)", 256, None), ("", 256, "data race"),
                                                       ("barrier(CLK_LOCAL_MEM_FENCE)", 252, "Invalid write")])
def test_it_finds_what_is_wrong(tmp_path, barrier, size, says):
    (tmp_path / "race.cl").write_text(RACE.replace("BARRIER", barrier))
    (tmp_path / "race.sim").write_text(CALL.replace("SIZE", str(size)))
    done = subprocess.run(["oclgrind-kernel", "--data-races", "race.sim"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert says in said if says else not said.strip()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3moe"])
def test_a_model_is_clean(run_weft, shared_dir, tmp_path, name):
    """A prompt of three tokens and two more, by work-groups; and the answer is the processor's."""
    (tmp_path / "oclgrind.icd").write_text(f"{DRIVER}\n")
    log = tmp_path / "log"
    log.write_text("")
    args = ["run", "-m", shared_dir / "models" / f"{name}.gguf", "--ids", "1,2,3", "-n", "2", "--temp", "0", "-c", "64"]
    done = run_weft(args, timeout=600, env={"DEV": "CL", "CL_WORK": "groups", "OCL_ICD_VENDORS": str(tmp_path), "OCLGRIND_DATA_RACES": "1",
                                            "OCLGRIND_LOG": str(log), "WEFT_CACHE": "off"})
    assert done.returncode == 0, done.err
    assert log.read_text() == ""
    assert done.stdout == run_weft(args).stdout
