#!/usr/bin/env bash
# Makes a wheel: the Python package, libweft.so, the command, and the libraries that they need and a system may lack.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/package.sh wheel [--zig ROOT] [--out FOLDER] [--build FOLDER] [--python PYTHON]

Makes FOLDER/weft-VERSION-py3-none-manylinux_2_N_ARCH.whl (default: dist).  N is the glibc that the files in it need, which is that of
the system on which it is made.  --zig builds by zig cc, against the libraries of ROOT, which scripts/zig_root.sh makes for linux-x86_64 or
linux-aarch64: then N is at most 28.  PYTHON has cffi, or a venv with it is made, by Debian's package python3-venv (default:
build/venv/bin/python, else python3).
END
}

say() { echo "weft: $*" >&2; }
here=$(cd "$(dirname "$0")/../.." && pwd)
out=$here/dist build="" zig="" python=$here/build/venv/bin/python
[ -x "$python" ] || python=python3
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift;;
    --build) build=$2; shift;;
    --zig) zig=$(cd "$2" && pwd); shift;;
    --python) python=$2; shift;;
    -h|--help) usage; exit 0;;
    *) usage >&2; exit 2;;
  esac
  shift
done

if [ -n "$zig" ]; then   # the libraries are static, and are linked in; no strip of this machine knows another one's files
  build=${build:-$here/build-wheel-$(sed -n 's/^set(WEFT_SYSTEM_NAME \(.*\))/\1/p' "$zig/toolchain.cmake")}
  "$here/scripts/build.sh" --zig "$zig" --dir "$build" -- -DCMAKE_SHARED_LINKER_FLAGS=-Wl,-s -DCMAKE_EXE_LINKER_FLAGS=-Wl,-s
else                     # DT_RPATH, not DT_RUNPATH: it counts for what the bundled libraries need, too.
  build=${build:-$here/build-wheel}
  "$here/scripts/build.sh" --dir "$build" -- -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" \
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
fi
if ! "$python" -c 'import cffi' 2>/dev/null; then
  "$python" -m venv "$build/venv"
  python=$build/venv/bin/python
  "$python" -m pip install -q --disable-pip-version-check cffi
fi
"$python" "$here/scripts/package/wheel.py" "$here" "$build" "$out" ${zig:+"$zig/licences"}
