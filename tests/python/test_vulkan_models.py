"""Whole models on Vulkan (DEV=VK), through whatever driver is installed: Mesa's llvmpipe in the tests, with the validation layer if it is there.

scripts/setup.sh installs both if it can. Without a driver these tests are skipped.
"""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from test_golden import GAP, MEAN_KL, compare, distributions

ONCE = {"DEV": "VK:llvmpipe", "WEFT_CACHE": "off"}         # the same on all machines, whatever GPU they have
PROMPT = "def add(a, b):\n"
RECORDS = ["tiny-qwen3moe", "tiny-deepseek2-mla", "tinypy-q4_k_m"]


@pytest.fixture(scope="session", autouse=True)
def vulkan(run_weft, tinypy):
    """Settings of a device that watches what is asked of it; without the layer, of one that does not."""
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env=ONCE, timeout=900)
    if any(why in done.err for why in ("built without Vulkan's headers", "needs its loader", "no driver is installed", "no device", "lacks")):
        pytest.skip(f"no Vulkan: {done.err.strip()}")
    assert done.returncode == 0, done.err
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={**ONCE, "VK_VALIDATE": "1"}, timeout=900)
    return ONCE if "needs Vulkan's validation layer" in done.err else {**ONCE, "VK_VALIDATE": "1"}


def text_of(run_weft, tinypy, env, *more):
    done = run_weft(["run", "-m", tinypy, "-p", PROMPT, "-n", "12", "--temp", "0", *more], env=env, timeout=900)
    assert done.returncode == 0, done.err
    assert "Vulkan:" not in done.err, "the validation layer complains"
    return done.stdout


def test_same_text(run_weft, tinypy, vulkan):
    assert text_of(run_weft, tinypy, vulkan) == text_of(run_weft, tinypy, {})


@pytest.fixture()
def worse(weft, vulkan):
    """A device that tests/fake_vulkan makes worse, by the words of FAKE_VK."""
    found = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    real = re.search(r"libvulkan\.so\.1 .*=> (.*)", found)[1]
    return {**vulkan, "FAKE_VK_REAL": real, "LD_LIBRARY_PATH": str(Path(weft).parent / "tests" / "fake_vulkan")}


def test_a_worse_device(run_weft, shared_dir, worse):
    """Doubles by their bits, and work-groups in two dimensions where the first is too short: the bits of the device as it is.

    The validation layer sees to it that no module has doubles."""
    args = ["run", "-m", shared_dir / "models" / "tiny-llama.gguf", "--ids", "1,2,3", "--force", "2,3", "--json", "--top-logprobs", "20"]
    said = []
    for env in ({}, {"FAKE_VK": "no-doubles groups=7"}):
        done = run_weft(args, env={**worse, **env}, timeout=900)
        assert done.returncode == 0 and "Vulkan:" not in done.err, done.err
        said.append(done.stdout)
    assert said[0] == said[1] and said[0].count(b"\n") == 2
    done = run_weft(args, env={**worse, "FAKE_VK": "groups=0"}, timeout=900)
    assert done.returncode == 1 and "work-groups in dimension 0, and" in done.err and "takes 0" in done.err


def test_saves_beside_a_run(saves_beside, tinypy, worse):
    """Where transfers go through memory that all threads share: a page that is saved is its own, and so is one that is loaded."""
    saves_beside(tinypy, 520, 30, {**worse, "FAKE_VK": "discrete"})


def test_chunks_and_the_cache(run_weft, tinypy, vulkan, tmp_path):
    """A prompt in chunks of another size, on kernels that come from the cache: none is compiled again."""
    (cache := tmp_path / "cache").mkdir(mode=0o700)
    env = {**vulkan, "WEFT_CACHE": str(cache)}
    plain = text_of(run_weft, tinypy, env)
    assert text_of(run_weft, tinypy, env, "-ub", "8") == plain
    again = run_weft(["run", "-m", tinypy, "-p", PROMPT, "-n", "1", "--stats", str(tmp_path / "stats")], env=env, timeout=900)
    assert again.returncode == 0, again.err
    assert json.loads((tmp_path / "stats").read_text())["kernels_compiled"] == 0


def test_layers_on_two_devices(run_weft, tinypy, vulkan):
    """Work-groups round activations in other places than a processor's vectors do, so that probabilities differ in the second digit behind the point."""
    def of(env, *more):
        done = run_weft(["run", "-m", tinypy, "-p", PROMPT, "-n", "16", "--temp", "0", "--json", *more], env=env, timeout=900)
        assert done.returncode == 0 and "Vulkan:" not in done.err, done.err
        return [json.loads(line) for line in done.out.splitlines()]
    plain = of({})
    ids = ",".join(str(token["id"]) for token in plain)
    assert len(plain) == 16
    assert all(abs(a["logprob"] - b["logprob"]) < 0.1 for a, b in zip(of(vulkan, "-ngl", "2", "--force", ids), plain, strict=True))


def test_times_by_the_devices_clock(run_weft, tinypy, vulkan):
    done = run_weft(["profile", "-m", tinypy, "-n", "2", "--json"], env=vulkan, timeout=900)
    assert done.returncode == 0, done.err
    assert any(row["us"] > 0 for row in json.loads(done.out)["kernels"]), done.out[:400]


@pytest.mark.parametrize("name", RECORDS)
def test_record(run_weft, shared_dir, vulkan, name):
    path = shared_dir / "models" / f"{name}.gguf"
    record = json.loads(path.with_suffix(".json").read_text())
    kl, wrong = [], []
    for case in record["cases"][:1]:
        ours = distributions(run_weft, path, case["prompt_ids"], case["tokens"], record["vocab_size"], env=vulkan, timeout=900)
        case_kl, case_wrong = compare([step["top"] for step in case["steps"]], ours)
        kl += case_kl
        wrong += case_wrong
    mean = sum(kl) / len(kl)
    print(f"{name}: mean KL {mean:.6f}, largest {max(kl):.6f}, {len(kl)} steps")
    assert mean <= MEAN_KL
    assert not wrong, f"another likeliest token (by more than {GAP}) at {len(wrong)} of {len(kl)} steps: {'; '.join(wrong[:5])}"


def test_no_driver_is_one_sentence(run_weft, tinypy, vulkan):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1"], env={"DEV": "VK", "VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"})
    assert done.returncode == 1 and done.stdout == b"" and done.err.count("\n") == 1
    assert "Vulkan: no driver is installed: install one, such as mesa-vulkan-drivers" in done.err


def test_env_lists_devices(run_weft, tinypy, vulkan):
    said = run_weft(["env"], env={"DEV": "VK:llvmpipe"}).out
    assert "VK: llvmpipe: " in said and "VK: none" not in said
    known = said.split("VK: llvmpipe: ")[1].split(";")[0].split("\n")[0].strip()
    for which in ("99", "geforce"):
        for done in (run_weft(["env"], env={"DEV": f"VK:{which}"}).out, run_weft(["run", "-m", tinypy, "-p", "a"], env={"DEV": f"VK:{which}"}).err):
            assert f"DEV=VK:{which} is no device of Vulkan here; there " in done and known in done, done


def test_a_driver_that_crashes_ends_nothing_else(run_weft, vulkan, tmp_path):
    """Drivers are asked in a child: the others are listed all the same."""
    cc = shutil.which("gcc") or shutil.which("clang")
    if not cc:
        pytest.skip("no C compiler")
    (tmp_path / "icd.c").write_text("#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }\n")
    subprocess.run([cc, "-shared", "-fPIC", "-o", tmp_path / "icd.so", tmp_path / "icd.c"], check=True)
    (tmp_path / "icd.json").write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": str(tmp_path / "icd.so"), "api_version": "1.2.0"}}))
    env = {"VK_ICD_FILENAMES": str(tmp_path / "icd.json"), "VK_DRIVER_FILES": str(tmp_path / "icd.json")}
    for command in ("env", "doctor"):
        done = run_weft([command], env=env)
        assert done.returncode == 0 and "CPU" in done.out.upper(), done.err
    assert "VK: none: its driver ended the process that asked it (signal " in run_weft(["env"], env=env).out


def test_too_large_a_cache(run_weft, tinypy, vulkan):
    done = run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1", "-c", "100000000"], env=vulkan, timeout=900)
    assert done.returncode == 1 and "a smaller context (-c)" in done.err
