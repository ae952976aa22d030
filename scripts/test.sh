#!/usr/bin/env bash
# The whole test suite from a bare Debian machine: installs what is missing, builds with gcc, and with clang and the
# sanitizers (of memory, and of threads), and runs everything in one CTest run, whose summary is the last thing printed.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/test.sh [--quick] [--minutes N] [--arm64] [--zig] [--near FILE]... [-- CTEST_OPTIONS]

Builds with gcc (build) and with clang and the sanitizers (build-asan, and build-tsan for what has threads), then
runs the unit tests, the Python tests and, under the sanitizers, the unit tests, the tests with bad input, the fuzzers and
the tests of what has threads.  The exit status is 0 only if all passed.  --quick leaves out the sanitizers, and with them clang.
--minutes N: when N minutes have passed since the start, no more repeats of tests under the sanitizers and no fuzzers begin, which come
last; they are listed as skipped.  Without it everything runs.
--near builds (build alone) and runs the short tests that a change to these files breaks first: scripts/near.py, tests/near.txt.
--arm64 builds for AArch64 (build-arm64) and runs the tests of tests/arm64.txt in qemu's user mode, and nothing else.  Debian's arm64
libraries are unpacked into build-arm64/root (0.3 GB), or the folder $WEFT_ARM64_ROOT: scripts/arm64_root.sh.
--zig builds for the systems of scripts/zig_root.sh (build-SYSTEM; libraries in build-zig) by the Python package ziglang, and runs what
was built: weft.exe under Wine (tests/python/test_windows.py), the wheels, the static programs and exports with them here and in qemu's
user mode (tests/python/test_portable.py, test_export.py), and nothing else.
Example: scripts/test.sh --quick -- -R gguf
WEFT_FUZZ_SECONDS=40 gives each fuzzer of text 40 seconds instead of 10.
Tests that need the shared models (shared/ beside the tree, or $WEFT_SHARED) are skipped where there are none.
END
}

say() { echo "weft: $*" >&2; }

quick="" arm64="" zig="" near=()
unset WEFT_TEST_UNTIL
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=1;;
    --minutes) [[ ${2:-} =~ ^[0-9]{1,4}$ ]] || { say "--minutes needs a number"; exit 2; }
               export WEFT_TEST_UNTIL=$(($(date +%s) + 60 * $2)); shift;;
    --arm64) arm64=1;;
    --zig) zig=1;;
    --near) [ $# -ge 2 ] || { say "--near needs a file"; exit 2; }; near+=("$2"); shift;;
    -h|--help) usage; exit 0;;
    --) shift; break;;
    *) say "unknown option '$1'"; usage >&2; exit 2;;
  esac
  shift
done

cd "$(dirname "$0")/.."
here=$PWD
shared=${WEFT_SHARED:-$(dirname "$here")/shared}
[ -d "$shared" ] || say "no $shared: tests that need the shared models are skipped"

if [ ${#near[@]} -gt 0 ]; then
  [ -f build/CTestTestfile.cmake ] || { say "build is not there yet: scripts/test.sh --quick makes it"; exit 1; }
  chosen=$(python3 scripts/near.py "${near[@]}")
  read -r -a targets <<<"${chosen%%$'\n'*}"
  ninja -C build --quiet "${targets[@]}"
  exec ctest --test-dir build -j "$(nproc)" --output-on-failure --no-tests=error -R "${chosen##*$'\n'}" "$@" </dev/null
fi
if [ -n "$arm64" ]; then
  root=${WEFT_ARM64_ROOT:-$here/build-arm64/root}
  scripts/setup.sh arm64
  scripts/arm64_root.sh "$root"
  scripts/build.sh             # for this machine: its numbers are what those in qemu are compared with
  scripts/build.sh --arm64 "$root" --tests -- -DWEFT_SHARED="$shared" -DWEFT_PYTHON="$here/build/venv/bin/python"
  say "testing in qemu"
  exec ctest --test-dir build-arm64 -j "$(nproc)" --output-on-failure --no-tests=error "$@" </dev/null
fi
if [ -n "$zig" ]; then
  scripts/setup.sh zig
  export PATH="$here/build/zig/bin:$PATH"
  scripts/arm64_root.sh "$here/build-arm64/root"       # libraries of Debian's arm64, for what runs in qemu
  scripts/build.sh --tests -- -DWEFT_SHARED="$shared" -DWEFT_PYTHON="$here/build/venv/bin/python"
  for system in windows macos linux-x86_64 linux-aarch64 musl-x86_64 musl-aarch64; do
    scripts/zig_root.sh $system "$here/build-zig/$system"
    case $system in   # wheels are linked without debug information (scripts/package/wheel.sh)
      linux-*) scripts/package.sh wheel --zig "$here/build-zig/$system" --build "build-$system" --out build-zig/dist;;
      *) scripts/build.sh --zig "$here/build-zig/$system";;
    esac
  done
  cp "$here/build-zig/windows/LLVM.dll" build-windows/
  say "testing"
  exec ctest --test-dir build --output-on-failure --no-tests=error -R "py_windows|py_portable|py_export$" "$@" </dev/null
fi
scripts/setup.sh test --packages
scripts/setup.sh test --python &      # it waits for the network mostly: beside the builds
python=$!
trap 'kill "$python" 2>/dev/null || true' EXIT
options=(-DWEFT_SHARED="$shared" -DWEFT_PYTHON="$here/build/venv/bin/python" -DWEFT_FUZZ_SECONDS="${WEFT_FUZZ_SECONDS:-10}")
if [ -n "$quick" ]; then
  say "skipping the sanitizers, and clang (--quick)"
  scripts/build.sh --tests -- "${options[@]}" -DWEFT_ASAN_DIR= -DWEFT_TSAN_DIR=
else
  scripts/build.sh --tests -- "${options[@]}" -DWEFT_ASAN_DIR="$here/build-asan" -DWEFT_TSAN_DIR="$here/build-tsan"
  scripts/build.sh --tests --sanitize -- -DWEFT_SHARED="$shared"
  scripts/build.sh --tests --sanitize-threads -- -DWEFT_SHARED="$shared"
fi
wait "$python" || { say "scripts/setup.sh test --python failed"; exit 1; }
say "testing"
rm -rf build/skipped build/unit-caches/* build/test-kernels/pocl/kcache/tempfile*
kept=build/test-kernels/objects      # tests/kept_llvm/kept.c: how much is used comes first
if [ ! -f $kept ] || [ "$(od -An -tu8 -N8 $kept)" -gt $((128 << 20)) ]; then rm -f $kept; fallocate -l 256M $kept || rm -f $kept; fi
# Two lists are put in front of CTest's summary. Why tests failed: their whole outputs are far above, and a service for integration may cut them.
# What was skipped: of the Python tests, and what the others said (CTest shows that of failed tests only).
# The exit status is CTest's.
ctest --test-dir build -j "$(nproc)" --output-on-failure --no-tests=error "$@" </dev/null |
  awk '/^[0-9]+% tests passed/ { system("python3 scripts/failed.py build/Testing/Temporary/LastTest.log*; cat build/skipped/*.txt 2>/dev/null; grep -hs \"^skipped: \" build/Testing/Temporary/LastTest.log* | sort -u"); print "" } { print; fflush() }'
