#!/usr/bin/env python3
"""Names the tests that a change to some files can break first, for scripts/test.sh --near.

Unit tests come from the folders: those of the file's own, and the programs that compile the file or include it themselves (what Ninja
knows of them). Python tests come from tests/near.txt, and a test file is its own test. Tests that tests/seconds.txt calls long are left
out, and named. Prints the targets to build on one line, and the expression for ctest -R on the next."""
import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
BUILD, LONG = REPO / "build", 30          # seconds


def rows(path):
    lines = (REPO / path).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def including(files):
    """Unit programs whose own source includes one of the files."""
    programs, target = set(), ""
    for line in subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True).stdout.splitlines():
        if line and not line[0].isspace():
            found = re.match(r"tests/CMakeFiles/(\w+_test_\w+)\.dir/", line)
            target = found[1] if found else ""
        elif target and any((BUILD / line.strip()).resolve() == file for file in files):
            programs.add(target)
    return programs


def main():
    files = [(REPO / name).resolve() if not Path(name).is_absolute() else Path(name).resolve() for name in sys.argv[1:]]
    table, programs, python = {row[0]: row[1:] for row in rows("tests/near.txt")}, set(), {"folders"}
    for file in files:
        if not file.is_file() or not file.is_relative_to(REPO):
            sys.exit(f"weft: {file}: no file of this tree")
        part = file.relative_to(REPO).parts
        folder = "/".join(part[:2]) if part[0] == "src" else part[0]
        python.update(table.get(folder, []))
        if (REPO / "tests/python" / f"test_{part[1]}_{file.stem}.py").exists():
            python.add(f"{part[1]}_{file.stem}")
        if part[:2] == ("tests", "python") and file.stem.startswith("test_"):
            python.add(file.stem.removeprefix("test_"))
        own = part[1] if part[0] in ("src", "tests") and len(part) > 2 else ""
        programs.update(f"{own}_{test.stem}" for test in (REPO / "tests" / own).glob("test_*.c") if own)
    programs |= including([file.with_suffix(".h") for file in files] + files)
    long = {row[0] for row in rows("tests/seconds.txt") if float(row[1]) >= LONG}
    tests = {f"unit_{name.replace('_test_', '_', 1)}": name for name in programs} | {f"py_{name}": "" for name in python}
    left = sorted(set(tests) & long)
    if left:
        print(f"weft: too long to be near: {' '.join(left)}", file=sys.stderr)
    chosen = {test: target for test, target in tests.items() if test not in long}
    print(" ".join(["weft", *sorted(filter(None, chosen.values()))]))
    print(f"^({'|'.join(sorted(chosen))})$")


main()
