"""A program that embeds Weft needs include/, libweft.a and the libraries it links: nothing else of the tree."""
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import program as compiler

THREADS = 1

LIBRARIES = ["libpcre2-8", "libutf8proc", "jansson", "nettle", "sqlite3"]


@pytest.fixture(scope="module")
def embed(repo, weft, tmp_path_factory):
    archive = Path(weft).parent / "libweft.a"
    if not archive.exists():
        pytest.fail(f"no {archive}")
    folder = tmp_path_factory.mktemp("embed")
    shutil.copytree(repo / "include", folder, dirs_exist_ok=True)
    shutil.copy(repo / "tests" / "embed" / "embed.c", folder)
    shutil.copy(archive, folder)
    libraries = subprocess.run(["pkg-config", "--libs", *LIBRARIES], check=True, capture_output=True, text=True).stdout.split()
    command = [compiler("cc"), "-std=c17", "-Wall", "-Wextra", "-Werror", "-pedantic", "embed.c", "-L.", "-lweft", *libraries, "-lm", "-ldl",
               "-lpthread", "-o", "embed"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "embed"


def test_it_says_what_the_command_says(embed, weft_env, run_weft, tinypy):
    done = subprocess.run([embed, tinypy, "def ", "20"], env=weft_env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert done.stdout and done.stdout == run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "20", "--temp", "0"]).stdout


def test_its_errors_are_sentences(embed, weft_env):
    done = subprocess.run([embed, "missing.gguf", "x", "1"], env=weft_env, capture_output=True, timeout=60)
    assert done.returncode == 1 and b"missing.gguf" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name, flags", [("gcc", ["-xc", "-std=c99"]), ("clang", ["-xc", "-std=c99"]), ("g++", ["-xc++"]), ("clang++", ["-xc++"])])
def test_each_header_stands_alone(repo, name, flags):
    headers = sorted((repo / "include").rglob("*.h"))
    assert len(headers) > 10
    for header in headers:
        done = subprocess.run([compiler(name), *flags, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-"],
                              input=f'#include "{header}"\n', capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
