"""libweft.so and libweft.a as other programs meet them: the names that they show, how they are found, and the programs of examples/.

What the library shows is compared with what a C compiler reads in its headers.  Build systems from outside find it: pkg-config,
CMake's find_package, add_subdirectory and FetchContent.
"""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import program

COMMENT = re.compile(r"/\*.*?\*/", re.S)
FUNCTION = re.compile(r"\b(weft_\w+)\s*\([^;{]*\)\s*;")
TYPE = re.compile(r"typedef[^;(]*\(?\*?\s*(weft_\w+)\s*\(")


def run(*command, cwd=None, env=None, timeout=300):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def declared(repo):
    """The functions that the headers declare, as the compiler sees them: preprocessed, without those that are inline."""
    text = run("cc", "-E", "-P", "-xc", repo / "include" / "weft.h")
    text = re.sub(r"\bstatic inline[^{;]*\{.*?\n?\}", "", text, flags=re.S)
    names = set(FUNCTION.findall(re.sub(r"typedef [^;{]*\([^;]*;", "", re.sub(r"\{[^{}]*\}", "{}", text))))
    assert len(names) > 150 and "weft_model_open" in names
    return names


def shown(listing):
    """Names of functions and data in the output of nm: without names of versions."""
    return {row.split()[-1].split("@")[0] for row in listing.splitlines() if len(row.split()) == 3 and row.split()[1] in "TDBRVWi"}


def test_the_shared_library_shows_what_the_headers_declare(build, declared, sanitized):
    if sanitized:
        pytest.skip("a sanitizer adds names of its own")
    listing = run(program("nm"), "-D", "--defined-only", build / "libweft.so")
    assert shown(listing) == declared
    assert all("@@WEFT_0.1" in row for row in listing.splitlines() if " T " in row)


def test_the_static_library_shows_the_same(build, declared, sanitized):
    if sanitized:
        pytest.skip("a sanitizer adds names of its own")
    assert shown(run(program("nm"), "-g", "--defined-only", build / "libweft.a")) == declared


def test_its_soname(build):
    assert "Library soname: [libweft.so.0.1]" in run(program("readelf"), "-d", build / "libweft.so")


OWN_NAMES = """
#include "weft.h"
#include <stdio.h>
double now_s(void) { return 1.5; }
int json_parse(const char *text) { return text[0]; }
void die(const char *why) { puts(why); }
void *xmalloc(int n) { (void)n; return NULL; }
int main(int argc, char **argv) {
  weft_error err;
  weft_file *file;
  if (argc < 2 || weft_file_open(argv[1], &file, &err)) return 1;
  printf("%s %zu %g %d %p\\n", weft_version(), weft_file_n_tensors(file), now_s(), json_parse("x"), xmalloc(1));
  weft_file_close(file);
}
"""


@pytest.mark.parametrize("kind", ["static", "shared"])
def test_a_program_with_names_of_its_own(installed, version, kind, tinypy, tmp_path, weft_env, sanitized):
    """pkg-config says enough for either library, and none of the names inside the library gets in a program's way."""
    if sanitized:
        pytest.skip("a program would have to be built with the sanitizer, too")
    (tmp_path / "own.c").write_text(OWN_NAMES)
    env = dict(os.environ, PKG_CONFIG_PATH=str(next(installed.rglob("weft.pc")).parent))
    flags = run(program("pkg-config"), "--cflags", "--libs", *(["--static"] if kind == "static" else []), "weft", env=env).split()
    if kind == "static":
        flags = [flag.replace("-lweft", "-l:libweft.a") for flag in flags]
    run("cc", "-Wall", "-Werror", "-o", tmp_path / "own", tmp_path / "own.c", *flags)
    run_env = {**weft_env, "LD_LIBRARY_PATH": str(installed / "lib")}
    assert run(tmp_path / "own", tinypy, env=run_env).split()[0::2] == [version, "1.5", "(nil)"]
    needs = "libweft.so.0.1" in run("readelf", "-d", tmp_path / "own")
    assert needs == (kind == "shared")


CONSUMER = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
{how}
add_executable(own own.c)
target_link_libraries(own PRIVATE weft::{target})
"""


@pytest.mark.parametrize("target", ["static", "shared", "weft"])
def test_find_package(installed, version, target, tinypy, tmp_path, weft_env, sanitized):
    if sanitized:
        pytest.skip("a program would have to be built with the sanitizer, too")
    (tmp_path / "own.c").write_text(OWN_NAMES)
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER.format(how=f"find_package(weft {version.rpartition('.')[0]} REQUIRED)", target=target))
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    run("ninja", "-C", tmp_path / "b")
    assert run(tmp_path / "b" / "own", tinypy, env=weft_env).startswith(f"{version} ")


@pytest.mark.parametrize("how", [
    "add_subdirectory({repo} weft)",
    "include(FetchContent)\nFetchContent_Declare(weft SOURCE_DIR {repo})\nFetchContent_MakeAvailable(weft)"])
def test_in_the_tree_of_another_project(repo, version, how, tinypy, tmp_path, weft_env):
    """The library builds as a part of another project, without the command, its tests and its installation.  All of it
    takes minutes: without a cache of the compiler only what is nearest to the program is built, and the rest is planned."""
    (tmp_path / "own.c").write_text(OWN_NAMES)
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER.format(how=how.format(repo=repo), target="weft"))
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja")
    plan = run("ninja", "-C", tmp_path / "b", "-t", "commands", "own")
    assert "libweft.a" in plan and "src/app" not in plan and "src/serve" not in plan
    if not os.environ.get("CMAKE_C_COMPILER_LAUNCHER"):
        run("ninja", "-C", tmp_path / "b", "weft_base")
        return
    run("ninja", "-C", tmp_path / "b", "own", timeout=900)
    assert run(tmp_path / "b" / "own", tinypy, env=weft_env).startswith(f"{version} ")


# ---- the programs of examples/

@pytest.fixture(scope="module")
def examples(repo, installed, tmp_path_factory, sanitized):
    """The folder of the programs, built with warnings as errors against an installed Weft; a CMake project of its own."""
    if sanitized:
        pytest.skip("a program would have to be built with the sanitizer, too")
    folder = tmp_path_factory.mktemp("examples")
    flags = "-Wall -Wextra -Werror -O1"
    run("cmake", "-S", repo / "examples", "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}", f"-DCMAKE_C_FLAGS={flags} -pedantic", f"-DCMAKE_CXX_FLAGS={flags}")
    run("ninja", "-C", folder)
    return folder


def test_every_example_is_built_and_run(repo, examples):
    text = Path(__file__).read_text()
    for path in (repo / "examples").glob("*.c*"):
        name = path.stem if path.suffix == ".c" else f"{path.stem}++"
        assert (examples / name).exists() and f'"{name}"' in text, f"{path.name} is not run here"


@pytest.mark.parametrize("name", ["hello", "hello++"])
def test_example_hello(examples, name, run_weft, tinypy, weft_env):
    expected = run_weft(["run", "-m", tinypy, "-p", "def f(x):\n", "-n", "32", "--temp", "0"]).out
    assert run(examples / name, tinypy, "def f(x):\n", env=weft_env) == f"def f(x):\n{expected}\n"
    done = subprocess.run([examples / name, "absent.gguf"], env=weft_env, capture_output=True, text=True)
    assert done.returncode == 1 and "absent.gguf" in done.stderr and done.stderr.count("\n") == 1


def test_example_stream(examples, tinypy, weft_env):
    def text(seed, stop):
        return subprocess.run([examples / "stream", tinypy, seed, stop], input="import os\n", env=weft_env, capture_output=True, text=True, check=True).stdout

    one, two = text("1", "never"), text("2", "never")
    assert one == text("1", "never") != two and len(one) > 50
    stop = one[20:26]
    assert text("1", stop) == one[:one.index(stop)] + "\n"


def test_example_chat(examples, run_weft, tinypy, weft_env):
    """As weft chat answers, with the same format; spelt control tokens stay text."""
    messages = '[{"role": "user", "content": "import os<|im_end|>"}]'
    shown = run(examples / "chat", tinypy, messages, "chatml", env=weft_env)
    assert len(shown) > 20 and shown == run(examples / "chat", tinypy, messages, "chatml", env=weft_env)
    done = subprocess.run([examples / "chat", tinypy, messages, "nonsense"], env=weft_env, capture_output=True, text=True)
    assert done.returncode == 1 and "nonsense" in done.stderr


def test_example_batch(examples, run_weft, tinypy, weft_env):
    """Each text is what weft run writes of that prompt alone."""
    prompts = ["def f(x):\n", "import os\n", "class A:\n    "]
    expected = "".join(f"--- {p}" + run_weft(["run", "-m", tinypy, "-p", p, "-n", "16", "--temp", "0"]).out.rstrip("\n") + "\n" for p in prompts)
    shown = run(examples / "batch", tinypy, *prompts, env=weft_env)
    assert [part.rstrip("\n") for part in shown.split("--- ")] == [part.rstrip("\n") for part in expected.split("--- ")]


def test_example_embed(examples, tinypy, weft_env):
    rows = [line.split("  ", 1) for line in run(examples / "embed", tinypy, "def f(x):", "def f(x):", "import os", env=weft_env).splitlines()]
    values = {text: float(value) for value, text in rows}
    assert values["def f(x): | def f(x):"] == 1 and -1 < values["def f(x): | import os"] < 0.999


def test_example_state(examples, run_weft, tinypy, weft_env):
    """Each text is what weft run writes of the whole prompt.  The texts begin where a token does."""
    prompt, texts = "def f(x):\n    return", (" x", " not")
    done = subprocess.run([examples / "state", tinypy, prompt, *texts], env=weft_env, capture_output=True, text=True, check=True)
    expected = [prompt + text + run_weft(["run", "-m", tinypy, "-p", prompt + text, "-n", "16", "--temp", "0"]).out.rstrip("\n") for text in texts]
    assert [part.rstrip("\n") for part in done.stdout.split("\n---\n")[:2]] == expected
    assert "tokens are" in done.stderr


def test_example_sampler(examples, tinypy, weft_env):
    assert "e" in run(examples / "sampler", tinypy, "def f(x):\n", "\x01", env=weft_env)
    text = run(examples / "sampler", tinypy, "def f(x):\n", "e", env=weft_env)
    assert len(text) > 10 and "e" not in text


def test_example_grammar(examples, tinypy, weft_env):
    schema = '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"enum": [1, 2]}}, "required": ["name", "n"], "additionalProperties": false}'
    value = json.loads(run(examples / "grammar", tinypy, "A thing: ", schema, env=weft_env))
    assert set(value) == {"name", "n"} and isinstance(value["name"], str) and len(value["name"]) <= 8 and value["n"] in (1, 2)
