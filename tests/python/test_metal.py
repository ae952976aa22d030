"""Apple's GPUs (DEV=METAL) without one: the Objective-C files by their types and selectors, and run on a system of the tests' own
(tests/fake_metal/system.c, in tests/weft_on_fake_metal of the build folder); the kernels of whole models as C++; and what is said here.

Small kernels run in tests/codegen/test_kernels.c and others, through tests/fake_metal/run.c.
"""
import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

FILES = ["metal.m", "metal_plan.m"]
MODELS = ["tiny-llama", "tinypy-q4_k_m", "tiny-deepseek2-mla", "tiny-qwen3moe"]
MOST_BUFFERS = 31


def compiler(*names):
    found = next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.fail(f"no {names[-1]}: scripts/setup.sh test installs it")
    return found


def check_objc(repo, weft, path):
    """clang on a file of Objective-C, with headers of the tests' own in the place of Apple's."""
    return subprocess.run(
        [compiler("clang-15", "clang"), "-fsyntax-only", "-x", "objective-c", "-fobjc-runtime=macosx-12.0", "-fobjc-arc", "-fblocks", "-std=c17",
         "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wcast-qual",
         f"-I{repo / 'src'}", f"-I{repo / 'include'}", f"-I{Path(weft).parent / 'generated'}", f"-I{repo / 'tests/fake_metal/headers'}", path],
        capture_output=True, text=True)


@pytest.mark.parametrize("name", FILES)
def test_objective_c(repo, weft, name):
    done = check_objc(repo, weft, repo / "src/device" / name)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name, what, other, expected", [
    ("metal_plan.m", "setBarrier]", "setBarriers]", "'setBarriers'"),
    ("metal_plan.m", "offset:c->vars_at atIndex:", "offset:&c->vars_at atIndex:", "incompatible pointer to integer"),
    ("metal_plan.m", "[e endEncoding]", "[b endEncoding]", "'endEncoding'"),
    ("metal.m", "supportIndirectCommandBuffers", "supportsIndirectCommandBuffers", "not found on object of type"),
])
def test_a_mistake_is_seen(repo, weft, tmp_path, name, what, other, expected):
    text = (repo / "src/device" / name).read_text()
    assert what in text
    (tmp_path / name).write_text(text.replace(what, other))
    done = check_objc(repo, weft, tmp_path / name)
    assert done.returncode and expected in done.stderr, done.stderr


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_models(run_weft, repo, shared_dir, tmp_path, name):
    """All of them are written and compile; doubles are computed in the tables of angles alone, one small kernel of a plan."""
    clang = compiler("clang++-15", "clang++")
    done = run_weft(["run", "-m", shared_dir / "models" / f"{name}.gguf", "--ids", "1", "-n", "2", "--temp", "0", "-t", "1"],
                    env={"DEV": "NULL", "RENDER": "metal", "DEBUG": "4"})
    assert done.returncode == 0, done.err
    sources = [part.partition("\n")[2].partition("\n}\n\n")[0] + "\n}\n" for part in done.err.split("--- source of ")[1:]]
    assert len(sources) > 10
    for i, source in enumerate(sources):
        assert source.count("[[buffer(") <= MOST_BUFFERS and "double" not in source
        (tmp_path / f"{i}.cpp").write_text(source)
    assert sum("f64_" in source for source in sources) <= 2          # of a prompt's plan, and of a token's
    built = subprocess.run([clang, "-std=c++14", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unknown-attributes", "-Wno-unused-variable",
                            "-Wno-parentheses-equality", f"-I{repo / 'tests/fake_metal'}", *sorted(tmp_path.glob("*.cpp"))], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]


@pytest.fixture
def on_fake(weft, weft_env, tmp_path):
    """Runs the command on the false system; gives what subprocess.run gives, and the lines of the system's log."""
    program = Path(weft).parent / "tests" / "weft_on_fake_metal"
    compiler("clang++-15", "clang++")
    if platform.machine() != "x86_64":
        pytest.skip("the false system is for x86-64")
    if not program.exists():
        pytest.fail(f"no {program.name}: it needs clang when the build is configured; scripts/setup.sh test installs it")

    def run(args, **env):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        done = subprocess.run([program, *map(str, args)], env={**weft_env, "DEV": "METAL", "WEFT_CACHE": "off", "FAKE_METAL_LOG": str(log), **env},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        lines = log.read_text().splitlines() if log.exists() else []
        assert [line for line in lines if line.startswith("fault")] == [] and (not lines or lines[-1] == "end")
        return done, lines
    return run


def generate(path, ids, n, *more):
    return ["run", "-m", path, "--ids", ids, "-n", n, "--temp", "0", "--json", "--ignore-eos", *more]


def tokens(done):
    assert done.returncode == 0, done.stderr
    return [(step["id"], step["logprob"]) for step in map(json.loads, done.stdout.splitlines())]


def assert_close(ours, theirs):
    assert [token for token, _ in ours] == [token for token, _ in theirs]
    assert all(abs(x - y) < 1e-4 for (_, x), (_, y) in zip(ours, theirs, strict=True))


def test_same_tokens(run_weft, on_fake, shared_dir):
    """The CPU's tokens; a token is one execution of one indirect command buffer, with barriers between levels."""
    args = generate(shared_dir / "models" / "tiny-llama.gguf", "1", 3)
    done, log = on_fake(args)
    assert_close(tokens(done), tokens(run_weft(args)))
    laid_out = "plan: 1 commands, 0 barriers"              # of a weight
    plans = [line for line in log[:-1] if line != laid_out]
    assert len(plans) == 3 and len(set(plans)) == 1 and laid_out in log
    commands, barriers = (int(word) for word in plans[0].split() if word.isdigit())
    assert 0 < barriers < commands


@pytest.mark.parametrize("name, ids, n", [("tiny-llama", ",".join(str(3 + i % 7) for i in range(20)), 2), ("tinypy-q4_k_m", "1", 3)])
def test_what_cuda_computes(run_weft, on_fake, weft, shared_dir, name, ids, n):
    """The same target: the same sums in the same order, bit by bit, through another language and another runtime."""
    driver = Path(weft).parent / "tests" / "fake_cuda"
    args = generate(shared_dir / "models" / f"{name}.gguf", ids, n)
    done, _ = on_fake(args)
    assert tokens(done) == tokens(run_weft(args, env={"DEV": "CUDA", "LD_LIBRARY_PATH": str(driver)}, timeout=600))


def test_layers_on_two_devices(run_weft, on_fake, shared_dir):
    args = generate(shared_dir / "models" / "tiny-llama.gguf", "1,5,9", 2, "-c", "64")
    done, _ = on_fake([*args, "-ngl", "1"])
    assert_close(tokens(done), tokens(run_weft(args)))


def test_kernels_from_the_cache(on_fake, shared_dir, tmp_path):
    args = generate(shared_dir / "models" / "tiny-llama.gguf", "1", 1, "--stats", tmp_path / "stats")
    seen = []
    for _ in range(2):
        done, _ = on_fake(args, WEFT_CACHE=str(tmp_path / "cache"))
        seen.append((tokens(done), json.loads((tmp_path / "stats").read_text())["kernels_compiled"]))
    assert seen[0][0] == seen[1][0] and seen[0][1] > 0 and seen[1][1] == 0


def test_each_kernel_is_timed(on_fake, shared_dir):
    done, _ = on_fake(["profile", "-m", shared_dir / "models" / "tiny-llama.gguf", "-n", "1", "--json"])
    assert done.returncode == 0, done.stderr
    kernels = json.loads(done.stdout)["kernels"]
    assert len(kernels) > 10 and all(kernel["us"] > 0 for kernel in kernels)


def test_a_gpu_that_goes(on_fake, shared_dir):
    done, _ = on_fake(generate(shared_dir / "models" / "tiny-llama.gguf", "1", 20), FAKE_METAL_FAIL="30")
    assert done.returncode == 1 and done.stderr.strip() == "weft: error: Metal: Fake M1: running a plan: the GPU has gone"


def test_env_names_the_gpu(on_fake):
    done, _ = on_fake(["env"])
    assert "METAL: Fake M1, 8.0 GiB of memory that it may use" in done.stdout


def test_here(run_weft, tinypy):
    sentence = "Metal is Apple's: DEV=METAL needs a Mac with a GPU of Apple's own and a Weft that was built there (untested); " \
        "on this system there are DEV=CPU, CL, CUDA, NV and VK"
    done = run_weft(["run", "-m", tinypy, "-p", "a"], env={"DEV": "METAL"})
    assert done.returncode == 1 and done.err.strip() == f"weft: error: {sentence}"
    assert f"METAL: none: {sentence}" in run_weft(["env"]).out
