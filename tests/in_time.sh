#!/bin/sh
# in_time.sh NAME STATUS COMMAND...: runs the command, unless the time is over that scripts/test.sh --minutes gave: the test is then skipped,
# with that status. For repeats of other tests under the sanitizers, and fuzzers: CTest begins them last.
name=$1 status=$2
shift 2
if [ -n "${WEFT_TEST_UNTIL:-}" ] && [ "$(date +%s)" -ge "$WEFT_TEST_UNTIL" ]; then
  echo "skipped: $name: no time was left for it (scripts/test.sh --minutes)"
  exit "$status"
fi
exec "$@"
