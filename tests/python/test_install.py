"""Installing Weft: the files, and that pkg-config says enough to build a program with them (test_embed.py says what it does)."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def build(weft):
    """The build folder; there is none where WEFT_BIN names a program that lies elsewhere."""
    folder = Path(weft).parent
    if not (folder / "cmake_install.cmake").exists():
        pytest.skip(f"{folder} is not a build folder")
    return folder


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    """Weft installed into a folder of its own."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix


def test_what_is_installed(installed):
    files = {path.relative_to(installed).parts[0] + "/" + path.name for path in installed.rglob("*") if path.is_file()}
    assert files == {"bin/weft", "lib/libweft.a", "lib/weft.pc", "lib/weft.service", "lib/weft.socket", "include/weft.h", "share/weft.1", "share/weft", "share/_weft", "share/weft.fish"}


def test_the_installed_command_runs(installed, weft_env):
    done = subprocess.run([installed / "bin" / "weft", "--version"], capture_output=True, text=True, env=weft_env)
    assert done.returncode == 0 and done.stdout.startswith("weft 0.1.0"), done.stdout + done.stderr


def test_the_program_is_portable(installed):
    """It needs only the libraries of cmake/libraries.cmake and of C; LLVM and OpenCL are found when they are needed."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    listing = subprocess.run(["readelf", "-d", installed / "bin" / "weft"], capture_output=True, text=True).stdout
    needed = {line.split("[")[1].split(".so")[0] for line in listing.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc", "libm", "libpcre2-8", "libmicrohttpd", "libutf8proc", "libjansson", "libsqlite3", "ld-linux-x86-64"}


def test_pkg_config(installed, repo, weft_env, tmp_path):
    """tests/embed/embed.c builds against the installed Weft with what pkg-config says, and runs."""
    package = next(installed.rglob("weft.pc"))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "weft"], capture_output=True, text=True,
                           env=dict(os.environ, PKG_CONFIG_PATH=str(package.parent)))
    assert flags.returncode == 0, flags.stderr
    program, absent = tmp_path / "embed", tmp_path / "absent.gguf"
    done = subprocess.run(["gcc", "-std=c17", "-o", program, repo / "tests" / "embed" / "embed.c", *flags.stdout.split()],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program, absent, "x", "1"], capture_output=True, text=True, env=weft_env)
    assert done.returncode == 1 and str(absent) in done.stderr


def test_the_program_of_the_architecture(build, weft_env, tmp_path):
    """The C program of docs/architecture.md compiles against the tree, and prints the stages that the page follows."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "architecture.md").read_text()
    (tmp_path / "example.c").write_text(page.split("```c\n")[1].split("```")[0])
    command = re.search(r"^    gcc (.*example\.c) build/libweft\.a \$\((pkg-config [^)]*)\) (.*) -o example$", page, re.MULTILINE)
    libraries = subprocess.run(command[2].split(), capture_output=True, text=True, check=True).stdout.split()
    sanitizers = subprocess.run(["grep", "-o", "-m1", "fsanitize=[a-z,]*", build / "build.ninja"], capture_output=True, text=True).stdout.split()
    flags = [f"-{flag}" for flag in sanitizers[:1]]
    done = subprocess.run(["gcc", *command[1].replace("example.c", str(tmp_path / "example.c")).split(), build / "libweft.a", *libraries, *command[3].split(), *flags,
                           "-o", tmp_path / "example"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for weights in ([], ["q4"]):
        shown = subprocess.run([tmp_path / "example", *weights], env={**weft_env, "DEBUG": "5", "WEFT_CACHE": "off"}, capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        stages = set(re.findall(r"^--- (kernel|optimised|expanded)$|^(program) r_", shown.stderr, re.MULTILINE))
        assert {"".join(stage) for stage in stages} == {"kernel", "optimised", "expanded", "program"}, shown.stderr
