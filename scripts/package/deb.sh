#!/usr/bin/env bash
# Debian packages by CPack: weft, libweft0.1 and libweft-dev (cmake/packages.cmake).  rpm.sh calls this script with --rpm.
# A build that is packed twice gives equal packages: the time is the commit's, paths of the build are left out.
set -euo pipefail
kind=deb
[ "${1:-}" != --rpm ] || { kind=rpm; shift; }
here=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  cat <<END
usage: scripts/package.sh $kind [--dir D] [--out FOLDER]

Builds Weft in D (default: build-package) and makes .$kind packages of it in FOLDER (default: D/packages): the command, the shared
library, and what building with it needs.  With --dir, a folder that is already built with WEFT_INSTALL is packaged as it is.
END
}

say() { echo "weft: $*" >&2; }
value() { [ $# -ge 2 ] || { say "$1 needs a value"; exit 2; }; }

dir="" out=""
while [ $# -gt 0 ]; do
  case "$1" in
    --dir) value "$@"; dir=$2; shift;;
    --out) value "$@"; out=$2; shift;;
    -h|--help) usage; exit 0;;
    *) say "unknown option '$1'"; usage >&2; exit 2;;
  esac
  shift
done

tool=dpkg-shlibdeps package=dpkg-dev
[ "$kind" = deb ] || { tool=rpmbuild package=rpm; }
command -v $tool >/dev/null || { say "$tool is missing (Debian's package $package)"; exit 1; }
command -v file >/dev/null || { say "file is missing (Debian's package file)"; exit 1; }   # CPack asks it which files are programs

if [ -z "$dir" ]; then
  dir=$here/build-package
  "$here/scripts/build.sh" --dir "$dir" -- -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_C_FLAGS="-ffile-prefix-map=$here=. -ffile-prefix-map=../=./" -DWEFT_TESTS=OFF
fi
[ -f "$dir/CPackConfig.cmake" ] || { say "$dir is no build folder with packages"; exit 1; }
out=${out:-$dir/packages}
mkdir -p "$out"
out=$(cd "$out" && pwd)

umask 022
export LC_ALL=C
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || stat -c %Y "$here/CHANGELOG.md")}
export SOURCE_DATE_EPOCH
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "making .$kind packages in $out"
generator=$(tr a-z A-Z <<<"$kind")
cpack --config "$dir/CPackConfig.cmake" -G "$generator" -B "$out" >"$log" 2>&1 </dev/null || { cat "$log" >&2; say "cpack failed"; exit 1; }
rm -rf "$out/_CPack_Packages"
ls -l "$out" | awk 'NR > 1 { print $5, $9 }'
