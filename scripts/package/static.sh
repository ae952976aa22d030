#!/usr/bin/env bash
# The static program, packed: for machines that have no libraries of Weft's, and for `weft export --program`.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/package.sh static [--zig ROOT] [--out FOLDER] [--build FOLDER]

Makes FOLDER/weft-static-VERSION-linux-ARCH.tar.gz (default: dist): the program and its licences.  It is static: it needs
no library, and opens none, so it compiles no kernels; 'weft export' makes files that have theirs.  --zig builds it by zig cc with
musl as its C library, against the libraries of ROOT, which scripts/zig_root.sh makes for musl-x86_64 or musl-aarch64.
END
}

here=$(cd "$(dirname "$0")/../.." && pwd)
out=$here/dist build="" zig=""
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift;;
    --build) build=$2; shift;;
    --zig) zig=$(cd "$2" && pwd); shift;;
    -h|--help) usage; exit 0;;
    *) usage >&2; exit 2;;
  esac
  shift
done
arch=$(uname -m) licences=()
if [ -n "$zig" ]; then
  system=$(sed -n 's/^set(WEFT_SYSTEM_NAME \(.*\))/\1/p' "$zig/toolchain.cmake")
  arch=${system#musl-} build=${build:-$here/build-$system} licences=(-C "$zig" licences)
  [ "$system" != "$arch" ] || { echo "weft: $zig has libraries for $system, not for musl-x86_64 or musl-aarch64" >&2; exit 2; }
  "$here/scripts/build.sh" --zig "$zig" --dir "$build"
else
  build=${build:-$here/build}
  [ -x "$build/weft-static" ] || "$here/scripts/build.sh" --dir "$build"
fi
[ -x "$build/weft-static" ] || { echo "weft: a static library is missing: cmake/static.cmake names those that are needed" >&2; exit 1; }
version=$(sed -n 's/^#define WEFT_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$here/include/weft/base.h" | paste -sd.)
name=weft-static-$version-linux-$arch
mkdir -p "$out"
# Reproducible: names in order, no times, no owners.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --transform "s,^,$name/," -C "$build" -cf - weft-static \
  -C "$here" LICENSE packaging/copyright "${licences[@]}" | gzip -n9 >"$out/$name.tar.gz"
echo "weft: wrote $out/$name.tar.gz" >&2
