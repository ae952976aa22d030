#!/usr/bin/env bash
# The whole test suite from a bare Debian machine: installs what is missing, builds with gcc, with clang, and with the
# sanitizers (of memory, and of threads), and runs everything in one CTest run, whose summary is the last thing printed.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/test.sh [--quick] [-- CTEST_OPTIONS]

Builds with gcc (build), clang (build-clang) and the sanitizers (build-asan, and build-tsan for what has threads), then
runs the unit tests, the Python tests and, under the sanitizers, the unit tests, the tests with bad input, the fuzzers and
the tests of what has threads.  The exit status is 0 only if all passed.  --quick leaves out clang and the sanitizers.
Example: scripts/test.sh --quick -- -R gguf
WEFT_FUZZ_SECONDS=60 gives each fuzzer of text a minute instead of 10 seconds.
Tests that need the shared models (shared/ beside the tree, or $WEFT_SHARED) are skipped where there are none.
END
}

say() { echo "weft: $*" >&2; }

quick=""
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=1;;
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

scripts/setup.sh test
options=(-DWEFT_SHARED="$shared" -DWEFT_PYTHON="$here/build/venv/bin/python" -DWEFT_FUZZ_SECONDS="${WEFT_FUZZ_SECONDS:-10}")
if [ -n "$quick" ]; then
  say "skipping clang and the sanitizers (--quick)"
  scripts/build.sh --tests -- "${options[@]}" -DWEFT_ASAN_DIR= -DWEFT_TSAN_DIR=
else
  scripts/build.sh --tests -- "${options[@]}" -DWEFT_ASAN_DIR="$here/build-asan" -DWEFT_TSAN_DIR="$here/build-tsan"
  scripts/build.sh --tests --dir build-clang --compiler clang
  scripts/build.sh --tests --sanitize -- -DWEFT_SHARED="$shared"
  scripts/build.sh --tests --sanitize-threads -- -DWEFT_SHARED="$shared"
fi
say "testing"
rm -rf build/skipped
# What was skipped is put in front of CTest's summary: of the Python tests, and what the others said (CTest shows that of failed tests only).
# The exit status is CTest's.
ctest --test-dir build -j "$(nproc)" --output-on-failure --no-tests=error "$@" </dev/null |
  awk '/^[0-9]+% tests passed/ { system("cat build/skipped/*.txt 2>/dev/null; grep -hs \"^skipped: \" build/Testing/Temporary/LastTest.log* | sort -u"); print "" } { print; fflush() }'
