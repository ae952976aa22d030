#!/usr/bin/env bash
# The static program, packed: for machines that have no libraries of Weft's, and for `weft export --program`.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/package.sh static [--out FOLDER] [--build FOLDER]

Makes FOLDER/weft-static-VERSION-linux-ARCH.tar.gz (default: dist): the program and its licences.  It is static: it needs
no library, and opens none, so it compiles no kernels; 'weft export' makes files that have theirs.
END
}

here=$(cd "$(dirname "$0")/../.." && pwd)
out=$here/dist build=$here/build
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift;;
    --build) build=$2; shift;;
    -h|--help) usage; exit 0;;
    *) usage >&2; exit 2;;
  esac
  shift
done
[ -x "$build/weft-static" ] || "$here/scripts/build.sh" --dir "$build"
[ -x "$build/weft-static" ] || { echo "weft: a static library is missing: cmake/static.cmake names those that are needed" >&2; exit 1; }
version=$("$build/weft-static" --version | cut -d' ' -f2)
name=weft-static-$version-linux-$(uname -m)
mkdir -p "$out"
# Reproducible: names in order, no times, no owners.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --transform "s,^,$name/," -C "$build" -cf - weft-static \
  -C "$here" LICENSE packaging/copyright | gzip -n9 >"$out/$name.tar.gz"
echo "weft: wrote $out/$name.tar.gz" >&2
