#!/usr/bin/env python3
"""Instructions that a program for AArch64 executes for each further token, or whatever its numbers count, in qemu's user mode.

    bench/instructions.py --numbers 4,12 -- build-arm64/weft run -m MODEL.gguf -t 1 --ids 5 -n {} --ignore-eos
    bench/instructions.py --numbers 1,3 -- other-engine --tokens {}

Runs the command with {} as each of the two numbers, once before to fill caches, and prints the difference of the instructions of
their own processes over the difference of the numbers.  One thread each: the counter has no lock.  It counts instructions, not
time: of two kernels for one processor the one with fewer is usually the faster one, and nothing more is said by it.  Needs gcc
and a qemu that takes plugins (Debian's qemu-user; qemu-user-static takes none).
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def count(command, arguments, plugin):
    """The largest count: children, which compile, end with counts of their own."""
    emulator = [arguments.qemu, "-cpu", arguments.cpu, *(["-L", arguments.root] if arguments.root else []), "-plugin", plugin]
    done = subprocess.run([*emulator, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    counts = [int(n) for n in re.findall(r"^instructions: (\d+)$", done.stderr, re.M)]
    if done.returncode or not counts:
        sys.exit(f"instructions: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return max(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qemu", default="qemu-aarch64")
    parser.add_argument("--cpu", default="max", help="qemu's name of the processor (default: %(default)s)")
    parser.add_argument("--root", default=os.environ.get("WEFT_ARM64_ROOT", "build-arm64/root"), help="folder with the libraries (default: %(default)s)")
    parser.add_argument("--numbers", default="4,12", metavar="FEW,MANY")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    few, many = map(int, arguments.numbers.split(","))
    with tempfile.TemporaryDirectory() as folder:
        plugin = f"{folder}/count.so"
        subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", plugin, HERE / "qemu_count.c"], check=True)

        def run(n):
            return count([word.replace("{}", str(n)) for word in arguments.command], arguments, plugin)
        run(many)
        print(round((run(many) - run(few)) / (many - few)))


if __name__ == "__main__":
    main()
