"""Wheels for any Linux: what scripts/package.sh wheel --zig makes of the builds for linux-x86_64 and linux-aarch64 (scripts/test.sh --zig)."""
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROMPT = ["-p", "def add(a, b):", "-n", "6", "--temp", "0"]


@pytest.fixture(params=["x86_64", "aarch64"])
def site(request, repo, tmp_path):
    """The folder of a wheel's files, by pip, and the processor family."""
    wheels = sorted(Path(os.environ.get("WEFT_WHEELS", repo / "build-zig/dist")).glob(f"weft-*_{request.param}.whl"))
    if not wheels:
        pytest.skip("no wheels in build-zig/dist: scripts/test.sh --zig")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--platform", f"manylinux_2_28_{request.param}",
                           "--only-binary", ":all:", "--target", tmp_path / "site", wheels[-1]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(wheels[-1]) as z:
        licences = {name.split("/")[-1].split("-")[0] for name in z.namelist() if "/licenses/" in name}
    assert {"jansson", "libmicrohttpd", "nettle", "pcre2", "sqlite3", "utf8proc", "zig.txt", "LGPL"} <= licences
    return tmp_path / "site", request.param


def test_what_it_needs(site):
    """The C library alone, as old as the wheel's name says."""
    root, family = site
    for path in root / "weft/bin/weft", root / "weft/lib/libweft.so.0.1":
        shown = subprocess.run(["readelf", "-hdV", path], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", shown))
        assert {re.split(r"[.-]", name)[0] for name in needed} <= {"libc", "libm", "libdl", "libpthread", "ld"}
        assert max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", shown)) <= (2, 28)
        assert ("AArch64" in shown) == (family == "aarch64")


def test_it_runs(site, repo, weft_env, run_weft, tinypy):
    """The command, and on this machine's processors the package: with the text of this build."""
    root, family = site
    command = [root / "weft/bin/weft"]
    if family != os.uname().machine:
        libraries, qemu = repo / "build-arm64/root", shutil.which("qemu-aarch64-static")
        if not qemu or not libraries.exists():
            pytest.skip("needs qemu-aarch64-static and build-arm64/root: scripts/arm64_root.sh")
        command = [qemu, "-L", libraries, *command]
    env = {**weft_env, "PYTHONPATH": str(root)}
    done = subprocess.run([*command, "run", "-m", tinypy, *PROMPT], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout == run_weft(["run", "-m", tinypy, *PROMPT]).out, done.stderr
    if family == os.uname().machine:
        program = "import sys, weft\nprint(weft.Llama(sys.argv[1], verbose=False)('def add(a, b):', max_tokens=6, temperature=0)['choices'][0]['text'])"
        python = subprocess.run([sys.executable, "-c", program, tinypy], env=env, capture_output=True, text=True, timeout=300)
        assert python.returncode == 0 and python.stdout.strip() == done.stdout.strip(), python.stderr
