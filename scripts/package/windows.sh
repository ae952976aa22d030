#!/usr/bin/env bash
# The program for Windows, packed: unpack it anywhere, and it runs.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/package.sh windows [--out FOLDER] [--build FOLDER] [--root FOLDER]

Makes FOLDER/weft-VERSION-windows-x86_64.zip (default: dist): weft.exe, LLVM.dll, which compiles kernels, and the licences of
Weft and of what is linked to it.  The program is that of --build (default: build-windows); without one it is built, with
the libraries of --root (default: build-zig/windows), which scripts/zig_root.sh makes.
END
}

here=$(cd "$(dirname "$0")/../.." && pwd)
out=$here/dist build=$here/build-windows root=$here/build-zig/windows
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift;;
    --build) build=$2; shift;;
    --root) root=$2; shift;;
    -h|--help) usage; exit 0;;
    *) usage >&2; exit 2;;
  esac
  shift
done
[ -f "$root/LLVM.dll" ] || "$here/scripts/zig_root.sh" windows "$root"
[ -f "$build/weft.exe" ] || "$here/scripts/build.sh" --dir "$build" --zig "$root"
version=$(sed -n 's/^#define WEFT_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$here/include/weft/base.h" | paste -sd.)
name=weft-$version-windows-x86_64
mkdir -p "$out"
# Reproducible: names in order, no times.
python3 - "$out/$name.zip" "$name" "$here" "$build" "$root" <<'END'
import sys
import zipfile
from pathlib import Path

out, name, here, build, root = sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:])
readme = """Weft runs large language models from GGUF files.

In a terminal, in this folder:

    weft doctor
    weft chat C:\\path\\to\\model.gguf

LLVM.dll compiles kernels, and has to stay beside weft.exe. licences/ has the licences of all that is in here.
"""
files = {"README.txt": readme.replace("\n", "\r\n").encode(), "weft.exe": build / "weft.exe", "LLVM.dll": root / "LLVM.dll",
         "licences/weft.txt": here / "LICENSE", "licences/weft_page.txt": here / "packaging/copyright"}
llvm = sorted(Path("/usr/share/doc").glob("libllvm[0-9][0-9]/copyright"))
if not llvm:
    sys.exit("weft: LLVM's licence is not here: install LLVM (scripts/setup.sh build)")
files["licences/LLVM.txt"] = llvm[-1]
for path in (root / "licences").glob("*.txt"):
    files[f"licences/{path.name}"] = path
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as to:
    for file, what in sorted(files.items()):
        info = zipfile.ZipInfo(f"{name}/{file}")
        info.compress_type = zipfile.ZIP_DEFLATED
        to.writestr(info, what if isinstance(what, bytes) else what.read_bytes())
END
echo "weft: wrote $out/$name.zip" >&2
