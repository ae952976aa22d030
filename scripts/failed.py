#!/usr/bin/env python3
"""failed.py LOG: why tests of CTest failed, in a few lines each. LOG is build/Testing/Temporary/LastTest.log (or .tmp, while CTest runs)."""
import re
import sys
from pathlib import Path

MOST_LINES, MOST_COLUMNS = 12, 300
# What pytest, the unit tests, the sanitizers and the fuzzers write in front of a reason.
REASON = re.compile(r"^(E   |FAILED |ERROR |\[  FAILED  \]|.*: (Assertion|error:|runtime error:)|==\d+==ERROR|SUMMARY: |WARNING: ThreadSanitizer)")


def failed_tests(text):
    """(name, output) of each test that failed."""
    for part in re.split(r"^\d+/\d+ Testing: ", text, flags=re.M)[1:]:
        output, end, rest = part.partition("<end of output>")
        if end and re.search(r"^Test (Failed|Timeout)", rest, re.M):
            yield part.split("\n", 1)[0], output.split("Output:\n", 1)[-1].split("\n", 1)[-1]


def reasons(output):
    """The lines that say why; the last ones where none does."""
    lines = [line for line in output.rstrip().split("\n") if line.strip()]
    found = [line for line in lines if REASON.match(line)] or lines[-MOST_LINES:]
    return [line[:MOST_COLUMNS] for line in found[:MOST_LINES]]


def main(log):
    for name, output in failed_tests(Path(log).read_text(errors="replace")):
        print(f"failed: {name}")
        for line in reasons(output):
            print(f"    {line}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
