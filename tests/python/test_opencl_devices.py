"""Which device of OpenCL is taken, and what is asked of its compiler: DEV=CL, DEV=CL:NAME, DEV=CL:NUMBER.

PoCL stands for a processor, oclgrind for a GPU. tests/fake_opencl makes PoCL's compiler end the process, as Mesa's does for wide vectors.
"""
import ctypes.util
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

OCLGRIND = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
POCL = Path("/etc/OpenCL/vendors/pocl.icd")


@pytest.fixture(scope="module", autouse=True)
def drivers():
    if not Path(OCLGRIND).exists() or not POCL.exists():
        (pytest.fail if os.environ.get("WEFT_SKIPS") else pytest.skip)("no PoCL or no oclgrind (Debian: pocl-opencl-icd, oclgrind)")


@pytest.fixture()
def both(tmp_path):
    """The processor's driver is the first one."""
    (tmp_path / "a.icd").write_text(POCL.read_text())
    (tmp_path / "b.icd").write_text(f"{OCLGRIND}\n")
    return {"OCL_ICD_VENDORS": str(tmp_path)}


@pytest.fixture()
def worse(weft, both, tmp_path):
    """Environment with a compiler that ends its process at a vector of 64 lanes, and the list of what it was given."""
    real = next(Path(line.split("=> ")[1]) for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines()
                if "libOpenCL.so.1 " in line)
    log = tmp_path / "builds"
    return {**both, "FAKE_CL": "dies", "FAKE_CL_REAL": str(real), "FAKE_CL_LOG": str(log),
            "LD_LIBRARY_PATH": str(Path(weft).parent / "tests" / "fake_opencl")}, log


def devices(run_weft, env):
    return next(line for line in run_weft(["env"], env=env).out.splitlines() if re.match(r" +CL: ", line)).split("CL: ", 1)[1]


def test_gpu_before_processor(run_weft, both):
    assert re.fullmatch(r"Oclgrind: .* \(GPU, number 0\); not used: Portable Computing Language: .* \(CPU, number 1\)", devices(run_weft, both))


@pytest.mark.parametrize("which", ["1", "portable", "PORTABLE COMP"])
def test_one_of_several(run_weft, both, which):
    found = devices(run_weft, {**both, "DEV": f"CL:{which}"})
    assert re.fullmatch(r"Portable Computing Language: .* \(CPU, number 1\); not used: Oclgrind: .* \(GPU, number 0\)", found)
    said = json.loads(run_weft(["doctor", "--json"], env={**both, "DEV": f"CL:{which}"}).out)
    assert any(f"CL:{which} is used: Portable" in row["text"] for row in said["checks"]), said


@pytest.mark.parametrize("which", ["2", "99999999999999999999", "nvidia"])
def test_unknown(run_weft, both, tinypy, which):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={**both, "DEV": f"CL:{which}"})
    assert done.returncode == 1
    assert re.fullmatch(rf"weft: error: DEV=CL:{which} is no device of OpenCL here; there are Oclgrind: .* \(GPU, number 0\); Portable .* "
                        r"\(CPU, number 1\)", done.err.strip())


def test_only_opencl_has_names(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "CUDA:1"})
    assert done.returncode == 1 and done.err.strip() == "weft: error: DEV=CUDA:1: only devices of OpenCL and Vulkan are named so: DEV=CL:NAME or DEV=VK:NUMBER"


def test_a_compiler_that_dies(run_weft, worse, tinypy, tmp_path):
    """A child asks a processor's, once, and its answer is kept. A GPU's is not asked, and none for work-groups."""
    env, log = worse
    (tmp_path / "cache").mkdir(mode=0o700)
    for dev, way, probes in (("CL", "tiles", 0), ("CL:1", "groups", 0), ("CL:portable", "", 1), ("CL:portable", "", 0)):
        log.write_text("")
        done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1", "-c", "100000000"], timeout=600,       # no room: nothing else is compiled
                        env={**env, "DEV": dev, "CL_WORK": way, "WEFT_CACHE": str(tmp_path / "cache")})
        assert done.returncode == 1 and "a smaller context (-c)" in done.err
        assert log.read_text().splitlines() == ["void probe"] * probes


def test_a_device_without_doubles(run_weft, worse, shared_dir):
    """Doubles by their bits, in both ways to share out work: the bits of a device that has them. The compiler refuses the type's name."""
    env, log = worse
    path = shared_dir / "models" / "tiny-llama.gguf"
    args = ["run", "-m", path, "--ids", "1", "--force", "2,3", "--json", "--top-logprobs", "20"]
    for way in ("tiles", "groups"):
        said = []
        for words in ("dies", "dies no-doubles"):
            done = run_weft(args, env={**env, "DEV": "CL:portable", "CL_WORK": way, "WEFT_CACHE": "off", "FAKE_CL": words}, timeout=900)
            assert done.returncode == 0, done.err
            said.append(done.stdout)
        assert said[0] == said[1] and said[0].count(b"\n") == 2


def test_saves_beside_a_run(saves_beside, worse, shared_dir):
    """A device whose memory is not the host's: the driver has one caller at a time; another one ends the process."""
    saves_beside(shared_dir / "models" / "tiny-llama.gguf", 20, 10, {**worse[0], "DEV": "CL:portable", "WEFT_CACHE": "off", "FAKE_CL": "apart"})
