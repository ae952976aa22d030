"""Installing Weft: the files, and that pkg-config says enough to build a program with them (test_embed.py says what it does)."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from serving import Server


def test_what_is_installed(installed, repo, version, build):
    """Also what is only made where its libraries are there: the static program, a module for each MPI, the reference."""
    made = {f"lib/{name}" for name in ("weft-static", "libweft-mpi-openmpi.so", "libweft-mpi-mpich.so") if (Path(build) / name).exists()}
    files = {path.relative_to(installed).parts[0] + "/" + path.name for path in installed.rglob("*") if path.is_file() and "weft-doc" not in path.parts}
    reference = installed / "share" / "doc" / "weft-doc" / "html"
    assert (reference / "index.html").exists() == (Path(build) / "reference" / "index.html").exists()
    assert files == {*made, "bin/weft", "lib/libweft.a", "lib/libweft.so", f"lib/libweft.so.{version.rpartition('.')[0]}", f"lib/libweft.so.{version}", "lib/weft.pc",
                     *(f"lib/weft-{name}.cmake" for name in ("config", "config-version", "targets", "targets-relwithdebinfo")), "lib/weft.service", "lib/weft.socket", "share/weft.1", "share/weft", "share/_weft", "share/weft.fish",
                     *(f"include/{path.name}" for path in (repo / "include").rglob("*.h"))}


def test_the_installed_command_runs(installed, weft_env, version):
    done = subprocess.run([installed / "bin" / "weft", "--version"], capture_output=True, text=True, env=weft_env)
    assert done.returncode == 0 and done.stdout.startswith(f"weft {version}"), done.stdout + done.stderr


def test_the_program_is_portable(installed):
    """It needs only the libraries of cmake/libraries.cmake and of C; LLVM, OpenCL and libmicrohttpd are found when they are needed."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    listing = subprocess.run(["readelf", "-d", installed / "bin" / "weft"], capture_output=True, text=True).stdout
    needed = {line.split("[")[1].split(".so")[0] for line in listing.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc", "libm", "libpcre2-8", "libutf8proc", "libjansson", "libnettle", "libsqlite3", "ld-linux-x86-64"}


def loaded(run_weft, *args):
    """Names of the libraries that a command maps, as the dynamic loader tells them."""
    done = run_weft(list(args), env={"LD_DEBUG": "libs"})
    assert done.returncode == 0, done.err[-1000:]
    names = {Path(path).name for path in re.findall(r"calling init: (\S+)", done.err)}
    assert any(name.startswith("libsqlite3.so") for name in names), names
    return names


def test_the_libraries_of_the_server_are_its_own(run_weft, weft, weft_env, tinypy):
    """GnuTLS and what it needs would be half of the time that a short command takes. They come when a server starts."""
    of_server = re.compile(r"lib(microhttpd|gnutls|p11-kit|idn2|unistring|tasn1|hogweed|gmp|ffi)\b")
    for command in (["--version"], ["tokenize", "-m", tinypy, "-p", "x"], ["run", tinypy, "-p", "def ", "-n", "1"]):
        names = loaded(run_weft, *command)
        assert not [name for name in names if of_server.match(name)], command
    with Server(weft, weft_env, tinypy) as s:
        maps = Path(f"/proc/{s.process.pid}/maps").read_text()
    assert "libmicrohttpd.so" in maps


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
    env = {**weft_env, "LD_LIBRARY_PATH": str(package.parent.parent)}
    done = subprocess.run([program, absent, "x", "1"], capture_output=True, text=True, env=env)
    assert done.returncode == 1 and str(absent) in done.stderr


def test_the_program_of_the_architecture(build, weft_env, tmp_path):
    """The C program of docs/architecture.md compiles against the tree, and prints the stages that the page follows."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "architecture.md").read_text()
    (tmp_path / "example.c").write_text(page.split("```c\n")[1].split("```")[0])
    command = re.search(r"^    gcc (.*example\.c) -Lbuild/lib -lweft_\{([a-z,]*)\} \$\((pkg-config [^)]*)\) (.*) -o example$", page, re.MULTILINE)
    libraries = subprocess.run(command[3].split(), capture_output=True, text=True, check=True).stdout.split()
    sanitizers = subprocess.run(["grep", "-o", "-m1", "fsanitize=[a-z,]*", build / "build.ninja"], capture_output=True, text=True).stdout.split()
    flags = [f"-{flag}" for flag in sanitizers[:1]]
    done = subprocess.run(["gcc", *command[1].replace("example.c", str(tmp_path / "example.c")).split(), "-L", build / "lib", *(f"-lweft_{name}" for name in command[2].split(",")), *libraries, *command[4].split(), *flags,
                           "-o", tmp_path / "example"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for weights in ([], ["q4"]):
        shown = subprocess.run([tmp_path / "example", *weights], env={**weft_env, "DEBUG": "5", "WEFT_CACHE": "off"}, capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        stages = set(re.findall(r"^--- (kernel|optimised|expanded)$|^(program) r_", shown.stderr, re.MULTILINE))
        assert {"".join(stage) for stage in stages} == {"kernel", "optimised", "expanded", "program"}, shown.stderr
