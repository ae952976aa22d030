"""Puts a wheel together: wheel.py TREE BUILD OUT [LICENCES].  See wheel.sh.  Made twice of the same build, it is the same file."""
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OF_THE_SYSTEM = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|pthread|rt|gcc_s|resolv|util)\.so)")  # what every Linux has, in any version that is new enough
METADATA = """Metadata-Version: 2.1
Name: weft
Version: {version}
Summary: {summary}
License: MIT
Requires-Python: >=3.9
Requires-Dist: cffi>=1.15
Requires-Dist: numpy
Provides-Extra: llvm
Requires-Dist: llvm-nanobind>=19; extra == "llvm"
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
ENTRY_POINTS = "[console_scripts]\nweft = weft._command:main\n"


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def needed(path):
    """Libraries beside those of the system: SONAME to path."""
    names = re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", output("readelf", "-d", path))
    if all(OF_THE_SYSTEM.match(name) for name in names):   # also those that this machine's ldd cannot look into
        return {}
    found = re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", path), re.M)
    return {name: Path(where) for name, where in found if not OF_THE_SYSTEM.match(name)}


def opened(build):
    """Libraries that the command opens by name: that of the server, where the build found it; none if that is static, and linked."""
    cache = (build / "CMakeCache.txt").read_text()
    path = Path(re.search(r"^pkgcfg_lib_microhttpd_microhttpd:FILEPATH=(.+)$", cache, re.M)[1])
    return {} if path.suffix == ".a" else {re.search(r"SONAME\).*\[(.+)\]", output("readelf", "-d", path))[1]: path}


def glibc(paths):
    """The newest version of glibc that one of these names."""
    versions = [tuple(map(int, found.split("."))) for path in paths for found in re.findall(r"GLIBC_(\d+\.\d+)", output("readelf", "-V", path))]
    return max(versions)


def machine(path):
    """The processor family of an ELF file, as uname names it."""
    return {"AArch64": "aarch64", "Advanced Micro Devices X86-64": "x86_64"}[re.search(r"^\s*Machine:\s*(.*)$", output("readelf", "-h", path), re.M)[1]]


def copyright_of(library):
    """The copyright file of the Debian package that has this library; None elsewhere."""
    try:
        owner = output("dpkg", "-S", library.resolve()).split(":")[0]
    except (OSError, subprocess.CalledProcessError):
        return None
    path = Path("/usr/share/doc") / owner / "copyright"
    return (owner, path.read_bytes()) if path.exists() else None


def collect(tree, build, root):
    """Lays out the package in a folder; returns (the binaries, licences by name)."""
    package = root / "weft"
    shutil.copytree(tree / "python" / "weft", package, ignore=shutil.ignore_patterns("__pycache__", "_ffi.py"))
    subprocess.run([sys.executable, package / "_build.py", "--headers", tree / "include"], check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    (package / "lib").mkdir()
    (package / "bin").mkdir()
    binaries = {package / "lib" / "libweft.so.0.1": build / "libweft.so.0.1", package / "bin" / "weft": build / "weft"}
    licences = {}
    by_name = opened(build)
    for source in [*binaries.values(), *by_name.values()]:
        for name, path in [*by_name.items(), *needed(source).items()]:
            binaries[package / "lib" / name] = path
            found = copyright_of(path)
            if found:
                licences[found[0]] = found[1]
    for to, source in binaries.items():
        shutil.copyfile(source.resolve(), to)
        to.chmod(0o755)
        if machine(to) == platform.machine():   # others are linked without what strip removes (wheel.sh)
            subprocess.run(["strip", "--strip-unneeded", to], check=True)
    return list(binaries), licences


def main(tree, build, out, linked=None):
    """LICENCES: a folder with those of the libraries that are linked statically."""
    numbers = re.findall(r"^#define WEFT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", (tree / "include/weft/base.h").read_text(), re.M)
    version, summary = ".".join(numbers), re.search(r'DESCRIPTION "([^"]*)"', (tree / "CMakeLists.txt").read_text())[1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        binaries, licences = collect(tree, build, root)
        tag = "manylinux_%d_%d_%s" % (*glibc(binaries), machine(binaries[0]))
        info = root / f"weft-{version}.dist-info"
        (info / "licenses").mkdir(parents=True)
        shutil.copy(tree / "LICENSE", info / "licenses")
        shutil.copy(tree / "packaging" / "copyright", info / "licenses" / "page-libraries.txt")     # what the pages in the command have in them
        for path in linked.glob("*.txt") if linked else []:
            licences[path.stem] = path.read_bytes()
        for name, text in licences.items():
            (info / "licenses" / f"{name}.txt").write_bytes(text)
        (info / "METADATA").write_text(METADATA.format(version=version, summary=summary) + (tree / "docs" / "python.md").read_text())
        (info / "WHEEL").write_text(WHEEL.format(platform=tag))
        (info / "entry_points.txt").write_text(ENTRY_POINTS)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        record = []
        out.mkdir(parents=True, exist_ok=True)
        wheel = out / f"weft-{version}-py3-none-{tag}.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for path in files:
                name, data = path.relative_to(root).as_posix(), path.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(data)}\n")
                add(z, name, data, 0o755 if os.access(path, os.X_OK) else 0o644)
            name = f"{info.name}/RECORD"
            add(z, name, "".join([*record, f"{name},,\n"]).encode(), 0o644)
    print(wheel)


def add(z, name, data, mode):
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
    z.writestr(entry, data)


if __name__ == "__main__":
    main(*map(lambda path: Path(path).resolve(), sys.argv[1:]))
