#!/usr/bin/env bash
# Makes a wheel: the Python package, libweft.so, the command, and the libraries that they need and a system may lack.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/package.sh wheel [--out FOLDER] [--build FOLDER] [--python PYTHON]

Makes FOLDER/weft-VERSION-py3-none-manylinux_2_N_ARCH.whl (default: dist).  N is the glibc that the files in it need, which is that of
the system on which it is made.  PYTHON has cffi, or a venv with it is made, by Debian's
package python3-venv (default: build/venv/bin/python, else python3).
END
}

say() { echo "weft: $*" >&2; }
here=$(cd "$(dirname "$0")/../.." && pwd)
out=$here/dist build=$here/build-wheel python=$here/build/venv/bin/python
[ -x "$python" ] || python=python3
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift;;
    --build) build=$2; shift;;
    --python) python=$2; shift;;
    -h|--help) usage; exit 0;;
    *) usage >&2; exit 2;;
  esac
  shift
done

# DT_RPATH, not DT_RUNPATH: it counts for what the bundled libraries need, too.
"$here/scripts/build.sh" --dir "$build" -- -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" \
  -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
if ! "$python" -c 'import cffi' 2>/dev/null; then
  "$python" -m venv "$build/venv"
  python=$build/venv/bin/python
  "$python" -m pip install -q --disable-pip-version-check cffi
fi
"$python" "$here/scripts/package/wheel.py" "$here" "$build" "$out"
