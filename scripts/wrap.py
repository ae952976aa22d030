#!/usr/bin/env python3
"""Wraps C lines that are longer than .clang-format allows, and leaves all others as they are.

    scripts/wrap.py              every C file of src/, include/ and tests/
    scripts/wrap.py --check      changes nothing; exit status 1 and a list where a line is too long
    scripts/wrap.py FILE...      these files

A comment behind a line that would fit without it goes to a line of its own above. The rest is clang-format's work, on
the lines in question only: tables that line up and short statements on one line stay as somebody wrote them.
"""
import re
import subprocess
import sys
import textwrap
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = int(re.search(r"ColumnLimit: (\d+)", (ROOT / ".clang-format").read_text())[1])
COMMENT = re.compile(r"^\s*//")
TEXT = re.compile(r"^(\s*//\s*)((?:[-*]|\d+\.)\s+)?(.*)$")  # (before, the mark of an item, text)
ROUNDS = 4  # what one round wraps may need another: a list that was opened, a comment that moved down


def c_files():
    return sorted(p for top in ("src", "include", "tests") for p in (ROOT / top).rglob("*") if p.suffix in (".c", ".h", ".m"))


def columns(line):
    return sum(not unicodedata.combining(c) for c in line)


def too_long(lines):
    return [i for i, line in enumerate(lines) if columns(line) > COLUMNS]


def behind(line):
    """(code, comment) of a line with a comment behind code, or None; a // within a string is no comment."""
    quoted = False
    for i, c in enumerate(line):
        if c == '"' and (not i or line[i - 1] != "\\"):
            quoted = not quoted
        if not quoted and line.startswith("//", i):
            return (line[:i].rstrip(), line[i:]) if line[:i].strip() else None
    return None


def lift_comments(lines):
    """Comments behind lines that are too long go above, where that changes nothing but their place."""
    out = []
    macro = in_macros(lines)
    for i, line in enumerate(lines):
        one = line.lstrip().startswith("#define") and not line.endswith("\\")
        parts = behind(line) if columns(line) > COLUMNS and (one or not macro[i]) else None
        code = parts[0].lstrip() if parts else ""
        after = COMMENT.match(lines[i + 1]) if i + 1 < len(lines) else None
        if parts and not code.startswith(("}", "else")) and (one or not code.startswith("#")) and not after:
            indent = line[: len(line) - len(line.lstrip())]
            out += [indent + parts[1], parts[0]]
        else:
            out.append(line)
    return out


RULE = re.compile(r"^\s*// -{2,} .* -{8,}$")     # a line that parts a file


def in_macros(lines):
    """Whether each line belongs to a #define."""
    inside, out = False, []
    for line in lines:
        inside = inside or line.lstrip().startswith("#define")
        out.append(inside)
        inside = inside and line.endswith("\\")
    return out


def break_at(line, last):
    """Where to break a line of a macro, and what stands before and behind the break: at the space outside of the most
    brackets, best behind a comma, as far right as column `last`; within a text if there is no other place."""
    best, inside, depth, quoted = None, None, 0, False
    for i, c in enumerate(line[: last + 1]):
        if c == '"' and line[i - 1] != "\\":
            quoted = not quoted
        elif quoted and i > last // 2 and c in " |}),/" and i < last - 1:
            inside = i + 1
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        rank = (depth, line[i - 1] != ",")
        if c == " " and line[:i].strip() and i > last // 2 and (best is None or rank <= best[0]):
            best = (rank, i)
    if best:
        return best[1], "", ""
    return (inside, '"', '"') if inside else None


def fill_macros(lines):
    """Lines of macros that are too long are broken, with a backslash; clang-format would not keep their lists."""
    out = []
    for line, inside in zip(lines, in_macros(lines)):
        more = line.endswith("\\")
        indent = len(line) - len(line.lstrip()) + (2 if line.lstrip().startswith("#define") else 0)
        while inside and columns(line) > COLUMNS:
            body = line.rstrip("\\").rstrip() if more else line
            place = break_at(body, COLUMNS - 3)
            if columns(body) + 2 * more <= COLUMNS or not place:
                line = body + " \\" if more else body
                break
            at, end, begin = place
            out.append(body[:at] + end + " \\")
            line = " " * indent + begin + body[at:].lstrip(" " if not begin else "") + (" \\" if more else "")
        out.append(line)
    return out


def fill_comments(lines):
    """A line of a comment that is too long, and what continues it, filled anew; "name   what it is" stays."""
    out, i = [], 0
    while i < len(lines):
        if columns(lines[i]) <= COLUMNS or not COMMENT.match(lines[i]):
            out.append(lines[i])
            i += 1
            continue
        if RULE.match(lines[i]):
            out.append(lines[i][:COLUMNS])
            i += 1
            continue
        before, mark, text = TEXT.match(lines[i]).groups()
        hang = before + " " * len(mark or "")
        parts = re.match(r"\S+\s{2,}", text)
        if parts:
            hang = before + " " * parts.end()
        i += 1
        while not parts and i < len(lines) and COMMENT.match(lines[i]):
            its_before, its_mark, its_text = TEXT.match(lines[i]).groups()
            if its_before != hang or its_mark or not its_text or re.search(r"^---|\S\s{3,}", its_text):
                break
            text += " " + its_text
            i += 1
        first = before + (mark or "")
        if parts:
            first, text = first + text[: parts.end()], text[parts.end() :]
        out += textwrap.wrap(text, COLUMNS, initial_indent=first, subsequent_indent=hang, break_long_words=False,
                             break_on_hyphens=False)
    return out


def wrap(path):
    lines = path.read_text(encoding="utf-8").split("\n")
    if not too_long(lines):
        return
    path.write_text("\n".join(fill_comments(fill_macros(lift_comments(lines)))), encoding="utf-8")
    for _ in range(ROUNDS):
        before = path.read_text(encoding="utf-8")
        now = before.split("\n")
        macro = in_macros(now)
        asked = [f"--lines={i + 1}:{i + 1}" for i in too_long(now) if not macro[i]]
        if not asked:
            return
        subprocess.run(["clang-format", "-i", f"--style=file:{ROOT}/.clang-format", *asked, path], check=True)
        if path.read_text(encoding="utf-8") == before:
            return


def main():
    names = sys.argv[1:]
    check = "--check" in names
    files = [Path(n) for n in names if n != "--check"] or c_files()
    if not check:
        for path in files:
            wrap(path)
    left = [(path, i + 1, columns(lines[i])) for path in files
            for lines in [path.read_text(encoding="utf-8").split("\n")] for i in too_long(lines)]
    for path, line, n in left:
        print(f"{path}:{line}: {n} columns, more than {COLUMNS}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
