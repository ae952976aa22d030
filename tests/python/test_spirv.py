"""Modules of SPIR-V for whole models, made for a device that is not here (DEV=NULL RENDER=spirv): spirv-val of Khronos's SPIRV-Tools judges each.

Their numbers are judged where kernels are: tests/codegen, tests/render and tests/model run them on Mesa's llvmpipe.
"""
import re
import shutil
import struct
import subprocess

import pytest

# a family for each kind of layer; all of them have gone through this by hand
FAMILIES = ["deepseek2-lite", "falcon-h1", "gemma3n", "gpt-oss", "lfm2", "mamba2", "qwen3next", "rwkv7"]


def modules(text):
    """name -> words, of what DEBUG=4 shows."""
    found = {}
    for part in re.split(r"^--- source of ", text, flags=re.M)[1:]:
        name, *lines = part.split("\n")
        words = []
        for line in lines:
            if not re.fullmatch(r"[0-9a-f]{8}( [0-9a-f]{8})*", line):
                break
            words += [int(word, 16) for word in line.split()]
        assert words and words[0] == 0x07230203, name
        found.setdefault(name, words)
    return found


def judge(folder, name, words):
    path = folder / f"{name}.spv"
    path.write_bytes(struct.pack(f"={len(words)}I", *words))
    done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    return "" if done.returncode == 0 else f"{name}: {done.stdout.decode().strip()}"


@pytest.fixture(scope="module")
def spirv_val():
    if not shutil.which("spirv-val"):
        pytest.skip("no spirv-val (Debian: spirv-tools)")


def made(run_weft, path):
    done = run_weft(["run", "-m", path, "--ids", "1,2,3,4,5,6,7", "-n", "2", "-t", "1"], env={"DEV": "NULL", "RENDER": "spirv", "DEBUG": "4", "WEFT_CACHE": "off"}, timeout=600)
    assert done.returncode == 0, done.err[-2000:]
    return modules(done.err)


@pytest.mark.parametrize("name", FAMILIES)
def test_modules_are_valid(spirv_val, run_weft, make_model, tmp_path, name):
    path = tmp_path / f"{name}.gguf"
    make_model.write(name, path)
    found = made(run_weft, path)
    assert len(found) > 20
    wrong = [bad for kernel, words in found.items() if (bad := judge(tmp_path, kernel, words))]
    assert not wrong, "\n".join(wrong[:5])


def test_what_is_wrong_is_seen(spirv_val, run_weft, tinypy, tmp_path):
    name, words = next(iter(made(run_weft, tinypy).items()))
    assert not judge(tmp_path, name, words)
    at = words.index(5 << 16 | 128)                      # the first addition of integers: of a type
    assert "IAdd" in judge(tmp_path, name, words[:at + 3] + [words[at + 1]] + words[at + 4:])
