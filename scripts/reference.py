#!/usr/bin/env python3
"""Makes the reference of the C API from include/: scripts/reference.py FOLDER writes HTML there, by doxygen, whose warnings are errors.

The headers are written for those who read them as they are. So doxygen gets each one through this script (--filter FILE), which turns
comments into doxygen's: the one before a declaration, or behind one on its line. Their text is plain, except that indented lines are
examples and tables, whose columns stay. The pages have no scripts.
"""
import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """
PROJECT_NAME = Weft
PROJECT_NUMBER = {version}
PROJECT_BRIEF = "the C API"
INPUT = {root}/include/weft.h {root}/include/weft
FILE_PATTERNS = *.h
INPUT_FILTER = "{python} {script} --filter"
FILTER_SOURCE_FILES = NO
STRIP_FROM_PATH = {root}/include
STRIP_FROM_INC_PATH = {root}/include
OUTPUT_DIRECTORY = {out}
GENERATE_LATEX = NO
OPTIMIZE_OUTPUT_FOR_C = YES
EXTRACT_ALL = YES
EXTRACT_STATIC = YES
TYPEDEF_HIDES_STRUCT = YES
JAVADOC_AUTOBRIEF = YES
MARKDOWN_SUPPORT = NO
SORT_MEMBER_DOCS = NO
SORT_BRIEF_DOCS = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = WEFT_BEGIN= WEFT_END= WEFT_BEGIN_C= WEFT_END_C=
SEARCHENGINE = NO
HTML_DYNAMIC_MENUS = NO
HTML_DYNAMIC_SECTIONS = NO
HTML_TIMESTAMP = NO
SHOW_INCLUDE_FILES = NO
HAVE_DOT = NO
QUIET = YES
WARN_AS_ERROR = FAIL_ON_WARNINGS
"""


def plain(line):
    """Text in which doxygen finds no commands, tags or links."""
    line = html.escape(line, quote=False)
    line = line.replace("\\", "\\\\").replace("@", "\\@").replace("%", "\\%").replace(".. ", "..&nbsp;")     # no end of a sentence
    return re.sub(r"#(?=\w)|(?<!:)::", lambda m: "\\" + m[0], line)


def paragraphs(text):
    """Lines that begin further right are shown as they are."""
    lines, out, example = [re.sub(r"^\s*\* ?", "", line) if i else line.lstrip() for i, line in enumerate(text.split("\n"))], [], False
    for line in lines:
        indented = line.startswith("  ")
        if indented != example and (indented or line.strip()):
            out += ["@verbatim"] if indented else ["@endverbatim", ""]
            example = indented
        out.append(line if example else plain(line.rstrip()))
    return "\n".join(out + (["@endverbatim"] if example else []))


def filtered(source):
    def comment(m):
        start, end = m.span()
        before, after = source[source.rfind("\n", 0, start) + 1:start], source[end:source.find("\n", end)]
        text = m[1].strip(" ").rstrip()
        if text.startswith("----") or after.strip():
            return m[0]
        if start == 0:
            name, _, rest = text.partition(": ")
            page = f"/** @mainpage The C API\n{paragraphs(rest)}\n*/\n" if name == "weft.h" else ""
            return f"{page}/** @file {name}\n{paragraphs(rest)}\n*/"
        if before.strip():
            return f"/**< {plain(' '.join(re.sub('^[ *]+', '', line) for line in text.splitlines()))} */" if not before.rstrip().endswith(("{", "(")) else m[0]
        return f"/** {paragraphs(text)}\n*/" if source[end:end + 2] != "\n\n" else m[0]
    return re.sub(r"/\*(.*?)\*/", comment, source, flags=re.S)


def without_scripts(folder):
    for script in folder.glob("*.js"):
        script.unlink()
    for page in folder.glob("*.html"):
        text = page.read_text()
        page.write_text(re.sub(r"<script\b.*?</script>\n?", "", text, flags=re.S))


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--filter":
        print(filtered(Path(sys.argv[2]).read_text()), end="")
        return 0
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.split("\n", 1)[0], "\nusage: scripts/reference.py FOLDER", file=sys.stdout if sys.argv[1:] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    if not shutil.which("doxygen"):
        print("weft: doxygen is missing (Debian's package doxygen)", file=sys.stderr)
        return 1
    out = Path(sys.argv[1]).resolve()
    numbers = dict(re.findall(r"#define WEFT_VERSION_(\w+) (\d+)", (ROOT / "include/weft/base.h").read_text()))
    settings = SETTINGS.format(root=ROOT, python=sys.executable, script=Path(__file__).resolve(), out=out.parent / f".{out.name}",
                               version="{MAJOR}.{MINOR}.{PATCH}".format(**numbers))
    made = out.parent / f".{out.name}" / "html"
    shutil.rmtree(made.parent, ignore_errors=True)
    made.parent.mkdir(parents=True)
    try:
        done = subprocess.run(["doxygen", "-"], input=settings, text=True)
        if done.returncode:
            print("weft: doxygen has warnings about include/", file=sys.stderr)
            return 1
        without_scripts(made)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    finally:
        shutil.rmtree(made.parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
