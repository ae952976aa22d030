#!/usr/bin/env bash
# Builds Weft with CMake and Ninja; the command is build/weft afterwards.  Quiet, one line per step, until something fails.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/build.sh [options] [-- CMAKE_OPTIONS]

  --tests             build the tests as well
  --sanitize          with AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan, by clang unless --compiler says otherwise
  --sanitize-threads  with ThreadSanitizer, in build-tsan, by clang as well
  --compiler C        gcc (the default) or clang
  --dir D             build folder, in the source tree unless it is absolute (default: build)
  -j N                at most N compilers at once (default: one per processor)

Missing Debian packages are installed first (scripts/setup.sh).  The command is D/weft, the library D/libweft.a.
END
}

say() { echo "weft: $*" >&2; }
value() { [ $# -ge 2 ] || { say "$1 needs a value"; exit 2; }; }

compiler="" dir="" tests=OFF sanitize=OFF fuzz=OFF jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --tests) tests=ON;;
    --sanitize) sanitize=address;;
    --sanitize-threads) sanitize=thread;;
    --compiler) value "$@"; compiler=$2; shift;;
    --dir) value "$@"; dir=$2; shift;;
    -j) value "$@"; jobs=$2; shift;;
    -h|--help) usage; exit 0;;
    --) shift; break;;
    *) say "unknown option '$1'"; usage >&2; exit 2;;
  esac
  shift
done

kind=RelWithDebInfo
case $sanitize in
  address) dir=${dir:-build-asan}; kind="ASan and UBSan";;
  thread) dir=${dir:-build-tsan}; kind=TSan;;
esac
[ $sanitize = OFF ] || compiler=${compiler:-clang}
dir=${dir:-build} compiler=${compiler:-gcc}
case "$compiler" in
  gcc) ;;
  clang) [ $sanitize != address ] || fuzz=ON;;   # the fuzz targets need both
  *) say "--compiler is gcc or clang, not '$compiler'"; exit 2;;
esac
here=$(cd "$(dirname "$0")/.." && pwd)
case "$dir" in /*) ;; *) dir=$here/$dir;; esac

"$here/scripts/setup.sh" build

# A step's output is shown only if it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
step() {
  local what=$1; shift
  say "$what"
  "$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; say "$what: failed"; exit 1; }
}

# A build folder that another compiler made, or another copy of the tree, is made anew.
if [ -f "$dir/CMakeCache.txt" ] && ! { grep -q "^CMAKE_HOME_DIRECTORY:INTERNAL=$here\$" "$dir/CMakeCache.txt" &&
                                       grep -q "^CMAKE_C_COMPILER:[A-Z]*=\(.*/\)\?$compiler\$" "$dir/CMakeCache.txt"; }; then
  rm -rf "$dir/CMakeCache.txt" "$dir/CMakeFiles"
fi
step "configuring ${dir#"$here"/} ($compiler, $kind)" \
  cmake -S "$here" -B "$dir" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DWEFT_SANITIZE=$sanitize -DWEFT_TESTS=$tests -DWEFT_FUZZ=$fuzz "$@"
step "compiling ${dir#"$here"/}" ninja -C "$dir" -j "$jobs"
