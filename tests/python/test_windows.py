"""weft.exe under Wine: the same text as this machine's weft, from a pipe, a file and the server.

scripts/test.sh --zig builds it (build-windows/weft.exe, beside LLVM.dll). Without it, or without Wine, all of this is skipped. The program for
macOS (build-macos/weft) is only looked at: nothing here runs it.
"""
import json
import os
import shutil
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

WINE = shutil.which("wine64") or shutil.which("wine") or next((p for p in ("/usr/lib/wine/wine64",) if os.access(p, os.X_OK)), None)
PROMPT = ["-p", "def ", "-n", "32", "--temp", "0"]


@pytest.fixture(scope="module")
def windows(repo, tmp_path_factory):
    """Runs weft.exe: arguments to a list for subprocess, and its environment."""
    program = repo / "build-windows/weft.exe"
    if not WINE or not program.exists():
        pytest.skip("needs Wine and build-windows/weft.exe: scripts/test.sh --zig")
    environment = dict(os.environ, WINEPREFIX=str(tmp_path_factory.mktemp("wine")), WINEDEBUG="-all", WEFT_CACHE="C:\\weft")
    yield lambda *args: {"args": [WINE, str(program), *map(str, args)], "env": environment}
    server = shutil.which("wineserver") or "/usr/lib/wine/wineserver"
    subprocess.run([server, "-k"], env=environment, check=False)


def output(call, **more):
    run = subprocess.run(**call, capture_output=True, timeout=300, **more)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


@pytest.fixture(scope="module")
def model(repo):
    return repo / "models/tinypy.gguf"


def test_text(windows, model, weft):
    here = output({"args": [weft, "run", "-m", model, *PROMPT]})
    assert here.strip()
    first = output(windows("run", "-m", model, *PROMPT))
    assert first == here
    assert output(windows("run", "-m", model, *PROMPT)) == here      # with kernels of the cache


def test_inspect_and_tokens(windows, model, weft):
    for args in (["inspect", model], ["tokenize", "-m", model, "-p", "d\u00e9f \u4f60\u597d"]):
        assert output(windows(*args)) == output({"args": [weft, *map(str, args)]})


def test_paths_in_unicode(windows, model, tmp_path, weft):
    path = tmp_path / "m\u00f6dell \u4f60.gguf"
    shutil.copy(model, path)
    assert output(windows("run", "-m", path, *PROMPT)) == output({"args": [weft, "run", "-m", path, *PROMPT]})


def test_chat(windows, model, weft):
    lines = b"def f(x):\n/quit\n"
    args = ["chat", "-m", model, "--temp", "0", "-n", "16"]
    assert output(windows(*args), input=lines) == output({"args": [weft, *map(str, args)]}, input=lines)


def test_bench(windows, model):
    assert b"tg8" in output(windows("bench", "-m", model, "-p", "8", "-n", "8", "-r", "1"))


def test_environment_says_what_is_missing(windows):
    said = output(windows("env")).decode()
    assert "sandbox   off" in said and "\nLLVM      " in said


def test_serve(windows, model, weft, tmp_path):
    with open(tmp_path / "log", "wb") as log:
        run = subprocess.Popen(**windows("serve", "-m", model, "--port", "0"), stderr=log, stdout=log)
    try:
        address, until = None, time.monotonic() + 300
        while not address and run.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
            said = (tmp_path / "log").read_text()
            if "ready" in said:
                address = said.split("listening on ")[1].split()[0]
        assert address, (tmp_path / "log").read_text()
        body = json.dumps({"prompt": "def ", "max_tokens": 24, "temperature": 0}).encode()
        with urllib.request.urlopen(urllib.request.Request(address + "/v1/completions", body), timeout=300) as answer:
            text = json.load(answer)["choices"][0]["text"]
        assert text == output({"args": [weft, "run", "-m", model, "-p", "def ", "-n", "24", "--temp", "0"]}).decode()[:len(text)]
    finally:
        run.kill()
        run.wait()


def test_package(windows, repo, model, weft, tmp_path):
    """Equal when made twice; what it holds runs where it is unpacked."""
    root = Path(os.environ.get("WEFT_ZIG_ROOT", repo / "build-zig")) / "windows"
    if not (root / "LLVM.dll").exists():
        pytest.skip("needs build-zig/windows: scripts/test.sh --zig")
    made = []
    for folder in ("first", "second"):
        subprocess.run([repo / "scripts/package.sh", "windows", "--out", tmp_path / folder, "--root", root], check=True, timeout=600)
        made.append(next((tmp_path / folder).glob("*.zip")))
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as packed:
        names = packed.namelist()
        packed.extractall(tmp_path)
    assert {Path(name).name for name in names} >= {"weft.exe", "LLVM.dll", "README.txt", "LLVM.txt", "weft.txt", "mingw-w64.txt"}
    assert {name.split("/")[0] for name in names} == {made[0].stem}
    call = windows("run", "-m", model, *PROMPT)
    call["args"][1] = str(tmp_path / made[0].stem / "weft.exe")
    assert output(call) == output({"args": [weft, "run", "-m", model, *PROMPT]})


def test_macos_links(repo):
    program = repo / "build-macos/weft"
    if not program.exists():
        pytest.skip("needs build-macos/weft: scripts/test.sh --zig")
    assert program.read_bytes()[:8] == bytes.fromhex("cffaedfe0c000001")      # Mach-O, of 64 bits, for arm64
