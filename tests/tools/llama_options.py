#!/usr/bin/env python3
"""Writes the options of llama.cpp's tools as their own --help shows them, for tests/python/llama_options.txt.

    tests/tools/llama_options.py FOLDER-OF-THE-TOOLS BENCH-ROWS >llama_options.txt

A row is the names, what a value is called, and after "=" the environment variable. Sections are llama-server, llama-cli
and llama-completion. llama-bench has another form of help, so that its rows are kept from BENCH-ROWS, an earlier file.
"""
import re
import subprocess
import sys
from pathlib import Path

TOOLS = ("server", "cli", "completion")


def rows_of(text):
    """(names, value, variables) of each option of a --help."""
    entries = []
    for line in text.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            entries.append([line])
        elif line.startswith(" ") and entries:
            entries[-1].append(line.strip())
    for first, *more in entries:
        head = re.split(r"\s{2,}(?=\S)", first)
        names = head[0]
        for part in head[1:]:                     # "-t,    --threads N    number of ..."
            if not names.endswith(","):
                break
            names += " " + part
        words = names.replace(", -", ",-").split(" ")
        given = [w for w in words[0].split(",") if w]
        value = " ".join(words[1:])
        yield given, value, re.findall(r"\(env: (\w+)\)", " ".join([*head, *more]))


def main(folder, earlier):
    version = subprocess.run([folder / "llama-server", "--version"], capture_output=True, text=True).stderr
    version = re.search(r"version: (.*)", version)
    print(f"# Options of llama.cpp's tools ({version[1] if version else 'unknown'}), a row each: names, what a value is called, = the variable.")
    print("# Made by tests/tools/llama_options.py from what the built tools say to --help; the rows of llama-bench are from its README, 2026.")
    for tool in TOOLS:
        print(f"{tool}:")
        help = subprocess.run([folder / f"llama-{tool}", "--help"], capture_output=True, text=True).stdout
        for names, value, variables in rows_of(help):
            print(" ".join(filter(None, [", ".join(names), value.replace(" ", "_") if "START" not in value else value, *(f"={v}" for v in variables)])))
    print("bench:")
    print(earlier.read_text().split("bench:\n")[1], end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
