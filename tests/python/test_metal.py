"""Apple's GPUs (DEV=METAL) without one: the Objective-C files by their types and selectors, the kernels of whole models as C++, and what is said here.

Small kernels run in tests/codegen/test_kernels.c and others, through tests/fake_metal/run.c.
"""
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
        pytest.skip(f"no {names[-1]}")
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


def test_here(run_weft, tinypy):
    sentence = "Metal is Apple's: DEV=METAL needs a Mac with a GPU of Apple's own and a Weft that was built there, which nobody has done yet; " \
        "on this system there are DEV=CPU, CL and CUDA"
    done = run_weft(["run", "-m", tinypy, "-p", "a"], env={"DEV": "METAL"})
    assert done.returncode == 1 and done.err.strip() == f"weft: error: {sentence}"
    assert f"METAL: none: {sentence}" in run_weft(["env"]).out
