"""NVIDIA's GPUs by their kernel driver alone (DEV=NV), without one: tests/fake_nv, which is preloaded, takes the driver's ioctls, follows the
channel's ring to the words, descriptors and constants there, and runs the PTX that the real ptxas made the code of.

What a GPU would see is thus checked as far as published headers say what it has to look like, and as far as ptxas' cubins say what they need.
"""
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from ptxas import assemble, find_ptxas
from serving import Server

ONE = "1"
PROMPT = ",".join(str(3 + i % 7) for i in range(40))
SHORT = ",".join(str(3 + i % 7) for i in range(17))
NOTHING_LEFT = "left: 0 pieces of memory, 0 mappings"


@pytest.fixture(scope="session")
def fake_env(weft):
    library = Path(weft).parent / "tests" / "fake_nv" / "libfake_nv.so"
    if not library.exists():
        pytest.fail(f"no {library}: run scripts/build.sh --tests")
    wrapper = Path(__file__).resolve().parents[1] / "fake_nv" / "ptxas"
    return {"DEV": "NV", "LD_PRELOAD": str(library), "FAKE_NV_PTXAS": str(find_ptxas()), "WEFT_PTXAS": str(wrapper)}


@pytest.fixture
def on_fake(run_weft, fake_env, tmp_path):
    """Runs the command with the false driver; gives what run_weft gives, and the lines of the driver's log."""
    def run(args, cache="off", **env):
        log, kernels = tmp_path / "log", tmp_path / "kernels"
        log.unlink(missing_ok=True)
        kernels.mkdir(exist_ok=True)
        done = run_weft(args, env={**fake_env, "FAKE_NV_LOG": str(log), "FAKE_NV_KERNELS": str(kernels), "WEFT_CACHE": cache, **env}, timeout=600)
        return done, log.read_text().splitlines() if log.exists() else []
    return run


def tokens(done):
    assert done.returncode == 0, done.err
    return [(step["id"], step["logprob"]) for step in map(json.loads, done.out.splitlines())]


def generate(path, ids, n):
    return ["run", "-m", str(path), "--ids", ids, "-n", str(n), "--temp", "0", "--json", "--ignore-eos"]


def faults(log):
    return [line for line in log if line.startswith("fault")]


def launched(log):
    return [line.split()[1] for line in log if line.startswith("launch")]


def close(ours, theirs, within):
    for (a, p), (b, q) in zip(ours, theirs, strict=True):
        assert a == b and abs(p - q) <= within


@pytest.mark.parametrize("sm", ["80", "86", "89", "90"])
def test_same_tokens(run_weft, on_fake, shared_dir, sm):
    """On an A100, a GA10x, an Ada and a Hopper: other classes, descriptors and places of arguments, the CPU's answers."""
    path = shared_dir / "models" / "tiny-llama.gguf"
    expected = tokens(run_weft(generate(path, ONE, 2)))
    done, log = on_fake(generate(path, ONE, 2), FAKE_NV_SM=sm)
    assert faults(log) == []
    close(tokens(done), expected, 1e-4)
    assert log[-1] == NOTHING_LEFT


@pytest.mark.parametrize("model", ["tinypy-q4_0", "tinypy-q6_k", "tinypy-q4_k_m", "tiny-deepseek2-mla", "tiny-qwen3moe", "tiny-qwen2"])
def test_models_as_the_library_runs_them(run_weft, on_fake, weft, shared_dir, model):
    """Prompts and tokens, bit by bit what DEV=CUDA computes of the same kernels."""
    args = generate(shared_dir / "models" / f"{model}.gguf", SHORT, 2)
    done, log = on_fake(args)
    assert faults(log) == []
    cuda = {"DEV": "CUDA", "LD_LIBRARY_PATH": str(Path(weft).parent / "tests" / "fake_cuda"), "WEFT_CACHE": "off"}
    assert tokens(done) == tokens(run_weft(args, env=cuda, timeout=600))
    assert log[-1] == NOTHING_LEFT


def test_the_model_of_the_repository(run_weft, on_fake, tinypy):
    args = ["run", "-m", str(tinypy), "-p", "def ", "-n", "3", "--temp", "0"]
    done, log = on_fake(args)
    assert done.returncode == 0 and done.out == run_weft(args).out and done.out
    assert faults(log) == []


def test_a_token_is_one_doorbell(on_fake, shared_dir):
    """A replay rings once, copies nothing by the engine and forgets caches once; the launches are those of the plan."""
    path = shared_dir / "models" / "tiny-llama.gguf"
    logs = {n: on_fake(generate(path, ONE, n), FAKE_NV_RUN="0")[1] for n in (1, 4)}
    assert faults(logs[1]) == faults(logs[4]) == []

    def count(n, what):
        return sum(line.startswith(what) for line in logs[n])
    assert count(4, "doorbell") - count(1, "doorbell") == 3
    assert count(4, "forget caches 1011") - count(1, "forget caches") == 3
    assert count(4, "copy") == count(1, "copy") and count(4, "fill") == count(1, "fill")
    last = len(logs[4]) - logs[4][::-1].index("doorbell")
    token = launched(logs[4][last:])
    assert 20 <= len(token) <= 30                      # 8 of a block, and 3 (test_cuda.py)
    assert count(4, "launch") - count(1, "launch") == 3 * len(token)


@pytest.mark.parametrize("version", ["550.90.12", "565.77", "570.86.16", "575.64.05", "580.95.05", "590.48.01", "595.45.04"])
def test_versions_of_the_driver(on_fake, shared_dir, version):
    """Structures of which versions differ have the size of each; memory is given back by each one's way."""
    done, log = on_fake(generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1), FAKE_NV_RUN="0", FAKE_NV_VERSION=version)
    assert done.returncode == 0, done.err
    assert faults(log) == [] and log[-1] == NOTHING_LEFT


def test_what_descriptors_say_is_what_ptxas_says(on_fake, shared_dir, tmp_path):
    for sm in ("80", "90"):
        folder = tmp_path / "kernels"
        shutil.rmtree(folder, ignore_errors=True)
        _, log = on_fake(generate(shared_dir / "models" / "tinypy-q4_0.gguf", PROMPT, 2), FAKE_NV_RUN="0", FAKE_NV_SM=sm)
        assert faults(log) == []
        said = {}
        for line in log:
            if m := re.match(r"launch (\S+) registers (\d+) shared (\d+) local (\d+) barriers (\d+)", line):
                said.setdefault(m[1], set()).add(tuple(int(x) for x in m.groups()[1:]))
        texts = {}                                      # kernels that differ may have one name
        for path in folder.glob("*.ptx"):
            texts.setdefault(re.search(r"\.entry (\w+)", path.read_text())[1], []).append(path)
        assert len(said) > 20 and set(said) <= set(texts)
        for name in sorted(said)[:: max(1, len(said) // 12)]:
            expected = set()
            for path in texts[name]:
                registers, _, stack, shared, barriers = assemble(find_ptxas(), path, f"sm_{sm}")
                kept = 1024                             # what the hardware keeps of a work-group's memory
                bytes_of_group = -(-(shared + kept) // 256) * 256
                expected.add((registers, bytes_of_group, -(-(stack + 0x240) // 32) * 32 if stack else 0, max(barriers, 1)))
            assert said[name] <= expected, name


def test_memory_of_items(run_weft, on_fake, shared_dir):
    """Kernels that have too few registers keep values in memory of their items, which the GPU is given for as many as it can hold."""
    path = shared_dir / "models" / "tiny-llama.gguf"
    done, log = on_fake(generate(path, ONE, 2), FAKE_NV_REGISTERS="24")
    assert faults(log) == []
    assert any(re.search(r"local [1-9]", line) for line in log)
    close(tokens(done), tokens(run_weft(generate(path, ONE, 2))), 1e-4)


def test_layers_on_two_devices(run_weft, on_fake, shared_dir):
    path = shared_dir / "models" / "tiny-llama.gguf"
    args = [*generate(path, PROMPT, 3), "-c", "64"]
    done, log = on_fake([*args, "-ngl", "1"])
    assert faults(log) == [] and log[-1] == NOTHING_LEFT
    close(tokens(done), tokens(run_weft(args)), 1e-4)
    none, log = on_fake([*args, "-ngl", "0"])
    assert none.returncode == 0 and log == []           # the driver is not even opened


def test_kernels_from_the_cache(on_fake, shared_dir, tmp_path):
    args = [*generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1), "--stats", str(tmp_path / "stats")]
    made = []
    for _ in range(2):
        done, log = on_fake(args, cache=str(tmp_path / "cache"), FAKE_NV_RUN="0")
        assert done.returncode == 0, done.err
        assert faults(log) == []
        made.append(json.loads((tmp_path / "stats").read_text())["kernels_compiled"])
    assert made[0] > 10 and made[1] == 0


def test_times(on_fake, shared_dir):
    done, log = on_fake(["profile", "-m", str(shared_dir / "models" / "tiny-llama.gguf"), "-n", "1", "--json"], FAKE_NV_RUN="0")
    assert done.returncode == 0, done.err
    assert launched(log) and faults(log) == [] and log[-1] == NOTHING_LEFT


SENTENCES = [
    ({"FAKE_NV_CARDS": "0"}, "NV: NVIDIA's driver finds no GPU: does nvidia-smi list one?"),
    ({"FAKE_NV_MISSING": "/dev/nvidiactl"}, "NV needs NVIDIA's kernel driver, and its file /dev/nvidiactl is not here: install the driver and load its modules nvidia and nvidia-uvm"),
    ({"FAKE_NV_MISSING": "/dev/nvidia-uvm"}, "its file /dev/nvidia-uvm is not here: install the driver and load its modules"),
    ({"FAKE_NV_DENIED": "/dev/nvidia0"}, "NV: /dev/nvidia0: Permission denied; this process may not use the GPU"),
    ({"FAKE_NV_VERSION": "535.98"}, "NV: NVIDIA's driver is version 535.98, and its interface is known from 550 to 595 only: DEV=CUDA runs with any"),
    ({"FAKE_NV_VERSION": "610.10"}, "version 610.10, and its interface is known from 550 to 595 only"),
    ({"FAKE_NV_VERSION": "strange"}, "version strange, and its interface is known"),
    ({"FAKE_NV_SM": "120"}, "NV: Fake GPU is of none of the kinds that are known (Ampere, Ada, Hopper): DEV=CUDA runs on any"),
    ({"FAKE_NV_FAIL": "alloc:a06c:4f"}, "NV: a group of channels: no free channel (status 0x4f of the driver)"),
    ({"FAKE_NV_FAIL": "control:20801201:3a"}, "NV: asking what it is like: a structure of another version (status 0x3a of the driver)"),
    ({"FAKE_NV_FAIL": "uvm:21:1f"}, "NV: mapping memory for the GPU: invalid argument (status 0x1f of the driver)"),
    ({"FAKE_NV_FAIL": "map:0:1b"}, "NV: mapping memory: not permitted (status 0x1b of the driver)"),
    ({"FAKE_NV_MEMORY": "200000"}, "out of memory (status 0x51 of the driver); a smaller model, context (-c) or chunk (-ub) needs less memory"),
    ({"FAKE_NV_DIE": "3"}, "NV: Fake GPU has stopped (Xid 79: the GPU is no longer there)"),
    ({"WEFT_PTXAS": "/bin/true"}, "NV: WEFT_PTXAS=/bin/true is no ptxas that runs"),
    ({"WEFT_PTXAS": "", "FAKE_NV_MISSING": "ptxas"}, "NV needs ptxas to make code for the GPU, and it is not in the PATH: install it (Debian's nvidia-cuda-toolkit, or PyPI's "
     "nvidia-cuda-nvcc-cu12) or name it in WEFT_PTXAS; DEV=CUDA needs none"),
    ({"FAKE_NV_REGISTERS": "nonsense"}, "could not make code of "),
]


@pytest.mark.parametrize(("env", "sentence"), SENTENCES, ids=[sentence[:40] for _, sentence in SENTENCES])
def test_what_fails_is_one_sentence(on_fake, shared_dir, env, sentence):
    done, log = on_fake(generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1), **{"FAKE_NV_RUN": "0", **env})
    assert done.returncode == 1
    assert sentence in done.err and done.err.strip().count("\n") == 0
    assert faults(log) == [] and (not log or log[-1].startswith("left: 0 pieces of memory, 0 mappings"))


def test_a_lost_gpu_is_the_error_of_a_request(weft, fake_env, shared_dir, tmp_path):
    """A server whose GPU is lost says so to each request, and goes on."""
    (tmp_path / "kernels").mkdir()
    env = {**os.environ, **fake_env, "FAKE_NV_KERNELS": str(tmp_path / "kernels"), "FAKE_NV_DIE": str(tmp_path / "dead"), "FAKE_NV_RUN": "0",
           "WEFT_CACHE": "off"}
    with Server(weft, env, shared_dir / "models" / "tiny-llama.gguf", "-c", "64") as server:   # few pages for many sequences
        body = {"prompt": [1, 5, 9], "n_predict": 30, "temperature": 0}
        assert server.ask("/completion", body)[0] == 200
        (tmp_path / "dead").touch()
        answers = [server.ask("/completion", body) for _ in range(2)]
        assert all(status >= 500 and "NV: Fake GPU has stopped (Xid 79" in str(answer) for status, answer in answers), answers
        assert server.ask("/health")[0] in (200, 503)
        assert server.process.poll() is None


def test_no_driver(run_weft, shared_dir):
    done = run_weft(generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1), env={"DEV": "NV"})
    if done.returncode == 0:
        pytest.skip("there is a driver here")
    assert done.err.startswith("weft: error: NV") and done.err.strip().count("\n") == 0


def test_env(on_fake):
    done, log = on_fake(["env"], FAKE_NV_SM="89")
    assert re.search(r"NV: Fake GPU, compute capability 8\.9, 4\.0 GiB, driver 570\.86\.16, kernels for sm_89 by ptxas \d+\.\d+", done.out)
    assert "off: DEV=NV, as it opens devices and runs ptxas" in done.out and faults(log) == []
    assert "NV: none: NV: NVIDIA's driver is version 300.1, and its interface is known from 550 to 595 only" in on_fake(["env"], FAKE_NV_VERSION="300.1")[0].out


def test_saves_beside_a_run(saves_beside, fake_env, shared_dir, tmp_path):
    """The memory through which transfers go, the words of a copy and the counts of what is done belong to one thread at a time."""
    (kernels := tmp_path / "kernels").mkdir()
    saves_beside(shared_dir / "models" / "tiny-llama.gguf", 20, 20, {**fake_env, "FAKE_NV_KERNELS": str(kernels), "WEFT_CACHE": "off"})


def test_programs_whose_status_is_lost(run_weft, fake_env, shared_dir, tmp_path):
    """The command inherits from a parent that SIGCHLD is ignored: ptxas and cc are then judged by what they made."""
    (kernels := tmp_path / "kernels").mkdir()
    args = generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1)
    for env in ({**fake_env, "FAKE_NV_KERNELS": str(kernels)}, {"DEV": "CPU", "RENDER": "c"}):
        done = run_weft(args, env={**env, "WEFT_CACHE": "off"}, timeout=600, before=["env", "--ignore-signal=CHLD"])
        assert len(tokens(done)) == 1
