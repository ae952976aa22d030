#!/usr/bin/env bash
# Kernel replay: what a change of the compiler did to the kernels of a few models.  Nothing, for a change that only tidies up;
# --update accepts what there is now, and is part of the change.
set -euo pipefail

usage() {
  cat <<'END'
usage: scripts/replay.sh [--update] [--lines N]
       scripts/replay.sh --against TOOL [--machine NAME] [--wide]

Makes the source of every kernel of a few models and compares it with what was accepted last (tests/replay): which kernels
are new, gone or different, and for those that make a token the difference line by line.  Exit status 0: nothing changed.
  --update     accept the kernels as they are now; commit tests/replay with the change that caused them
  --lines N    show at most N lines (default 400)
  --against T  instead: which families' kernels differ from those of T, the replay_tool of another build (build/tests)
  --machine N  with --against: for which processor (avx2, vnni, dotprod; default avx2)
  --wide       with --against: models as wide as real ones, without numbers
END
}

say() { echo "weft: $*" >&2; }

options=() script=replay.py
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0;;
    --update) options+=(--update);;
    --lines) [ $# -ge 2 ] || { say "--lines needs a value"; exit 2; }; options+=(--lines "$2"); shift;;
    --against) [ $# -ge 2 ] || { say "--against needs a value"; exit 2; }
               options+=(--against "$(realpath "$2")"); script=families.py; shift;;
    --wide) options+=(--wide);;
    --machine) [ $# -ge 2 ] || { say "--machine needs a value"; exit 2; }; options+=(--machine "$2"); shift;;
    *) say "unknown option '$1'"; usage >&2; exit 2;;
  esac
  shift
done

cd "$(dirname "$0")/.."
scripts/setup.sh build
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake -S . -B build -G Ninja -DWEFT_TESTS=ON && ninja -C build replay_tool; } >"$log" 2>&1 </dev/null || { cat "$log" >&2; exit 1; }
python=build/venv/bin/python
[ -x $python ] || python=python3
exec $python "tests/replay/$script" build/tests/replay_tool "${options[@]}"
