#!/usr/bin/env bash
# Builds Weft with CMake and Ninja; the command is build/weft afterwards.  Quiet, one line per step, until something fails.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/build.sh [options] [-- CMAKE_OPTIONS]

  --tests             build the tests as well
  --sanitize          with AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan, by clang unless --compiler says otherwise
  --sanitize-threads  with ThreadSanitizer, in build-tsan, by clang as well
  --arm64 ROOT        for AArch64, in build-arm64, against the libraries in ROOT (scripts/arm64_root.sh fills it); CTest runs the tests in qemu
  --zig ROOT          for the system of scripts/zig_root.sh (Windows, macOS, other C libraries of Linux) whose libraries are in ROOT, by zig cc,
                      in build-SYSTEM
  --compiler C        gcc (the default) or clang
  --dir D             build folder, in the source tree unless it is absolute (default: build)
  -j N                at most N compilers at once (default: one per processor)

Missing Debian packages are installed first (scripts/setup.sh).  The command is D/weft, the library D/libweft.a.
END
}

say() { echo "weft: $*" >&2; }
value() { [ $# -ge 2 ] || { say "$1 needs a value"; exit 2; }; }

compiler="" dir="" root="" zig="" cross=() tests=OFF sanitize=OFF fuzz=OFF jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --tests) tests=ON;;
    --sanitize) sanitize=address;;
    --sanitize-threads) sanitize=thread;;
    --arm64) value "$@"; root=$2; shift;;
    --zig) value "$@"; zig=$2; shift;;
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
if [ -n "$root" ]; then
  [ $sanitize = OFF ] && [ -z "$compiler" ] || { say "--arm64 takes neither --sanitize nor --compiler"; exit 2; }
  root=$(cd "$root" && pwd)
  dir=${dir:-build-arm64} compiler=aarch64-linux-gnu-gcc kind="AArch64, $kind"
  cross=(-DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DWEFT_ARM64_ROOT="$root")
fi
if [ -n "$zig" ]; then
  [ $sanitize = OFF ] && [ -z "$compiler$root" ] && [ $tests = OFF ] || { say "--zig takes none of --arm64, --sanitize, --compiler and --tests"; exit 2; }
  zig=$(cd "$zig" && pwd)
  system=$(sed -n 's/^set(WEFT_SYSTEM_NAME \(.*\))/\1/p' "$zig/toolchain.cmake")
  dir=${dir:-build-$system} kind="$system, $kind"
  compiler=$(sed -n 's/^set(CMAKE_C_COMPILER \(.*\))/\1/p' "$zig/toolchain.cmake")
  cross=(-DCMAKE_TOOLCHAIN_FILE="$zig/toolchain.cmake")
fi
[ $sanitize = OFF ] || compiler=${compiler:-clang}
dir=${dir:-build} compiler=${compiler:-gcc}
case "$compiler" in
  gcc|aarch64-linux-gnu-gcc|/*) ;;
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
  cmake -S "$here" -B "$dir" -G Ninja -DCMAKE_C_COMPILER="$compiler" "${cross[@]}" -DWEFT_SANITIZE=$sanitize -DWEFT_TESTS=$tests -DWEFT_WERROR=$tests -DWEFT_FUZZ=$fuzz "$@"
step "compiling ${dir#"$here"/}" ninja -C "$dir" -j "$jobs"
# Editors look for compile_commands.json at the top of the tree.
[ "$dir" != "$here/build" ] || ln -sf build/compile_commands.json "$here/compile_commands.json"
