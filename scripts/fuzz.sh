#!/usr/bin/env bash
# Runs fuzzers for hours, one after the other on one core, over corpora that stay, and prints rows for the table in docs/trust.md.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/fuzz.sh [options] [TARGET...]

  --seconds N   for each target (default: 3600)
  --corpus D    folder of what was found worth keeping, one folder for each target (default: build/fuzz)
  --build D     sanitizer build (default: build-asan; scripts/build.sh --tests --sanitize makes it)
  --list        names the targets

Targets are tests/fuzz/fuzz_TARGET.c; without any all are run.  What breaks stays in D/TARGET/crash-*, and ends that target's
round; the exit status is 1 then.  Processes have the least priority (nice 19), so an input may take 120 seconds.
END
}

say() { echo "weft: $*" >&2; }
value() { [ $# -ge 2 ] || { say "$1 needs a value"; exit 2; }; }

cd "$(dirname "$0")/.."
here=$PWD seconds=3600 corpus=$here/build/fuzz build=$here/build-asan targets=()
all() { for f in tests/fuzz/fuzz_*.c; do f=${f##*/fuzz_}; echo "${f%.c}"; done; }
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) value "$@"; seconds=$2; shift;;
    --corpus) value "$@"; corpus=$(realpath -m "$2"); shift;;
    --build) value "$@"; build=$(realpath -m "$2"); shift;;
    --list) all; exit 0;;
    -h|--help) usage; exit 0;;
    -*) say "unknown option '$1'"; usage >&2; exit 2;;
    *) targets+=("$1");;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(all)

export SPEC=1 WEFT_CACHE=off WEFT_SANITIZED=1 UBSAN_OPTIONS=print_stacktrace=1:exitcode=99
export ASAN_OPTIONS=exitcode=99:allocator_may_return_null=1:intercept_tls_get_addr=0
export LSAN_OPTIONS=suppressions=$here/tests/lsan.supp:print_suppressions=0:exitcode=99
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
commit=$(git rev-parse --short HEAD)
status=0
for name in "${targets[@]}"; do
  program=$build/tests/fuzz_$name
  [ -x "$program" ] || { say "there is no $program"; exit 2; }
  mkdir -p "$corpus/$name"
  seeds=()
  [ ! -d "tests/fuzz/$name" ] || seeds+=("$here/tests/fuzz/$name")
  case $name in model|hf|adapter)
    [ -d "$corpus/${name}_seeds" ] || build/venv/bin/python tests/tools/fuzz_seeds.py "$name" "$corpus/${name}_seeds"
    seeds+=("$corpus/${name}_seeds");;
  esac
  options=()
  [ ! -f "tests/fuzz/$name.options" ] || read -ra options <"tests/fuzz/$name.options"
  [ ! -f "tests/fuzz/$name.dict" ] || options+=("-dict=$here/tests/fuzz/$name.dict")
  log=$corpus/$name.log began=$(date +%s) found=nothing
  nice -n 19 "$program" -max_total_time="$seconds" -timeout=120 -rss_limit_mb=2048 -verbosity=1 -print_final_stats=1 "${options[@]}" \
    -artifact_prefix="$corpus/$name/" "$corpus/$name" "${seeds[@]}" >"$log" 2>&1 </dev/null || { status=1; found="see $log"; }
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  hours=$(awk -v s=$(($(date +%s) - began)) 'BEGIN { printf "%.2f", s / 3600 }')
  echo "| $name | 1 | ${executions:-0} | $hours | $commit | $processor | $found |"
done
exit $status
