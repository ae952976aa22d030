#!/usr/bin/env python3
"""Draws docs/pictures/speed.svg, the chart of the README, from the first table of "Beside other engines" in docs/speed.md.

    bench/chart.py            writes the chart
    bench/chart.py --check    changes nothing; status 1 if the chart is not that of the table

Bars of tokens per second, for three files, decode and prompts.  bench/compare.py measures such a table.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "docs" / "pictures" / "speed.svg"
FILES = ["Q4_0", "Q4_K_M", "Q6_K"]
ENGINES = {"Weft": "#2f81f7", "llama.cpp": "#8b949e", "ik_llama.cpp": "#57606a"}
PANELS = {"decode": "Tokens per second, one after the other", "prompts": "Prompt tokens per second, 128 at once"}
BAR, GAP, LEFT, WIDTH, PANEL = 15, 16, 74, 250, 410


def table(text):
    """{panel: {engine: {file: tokens per second}}} of the first table after the heading."""
    lines = text.split("\n## Beside other engines\n")[1].split("\n|---")
    columns = [cell.strip() for cell in lines[0].split("\n")[-1].strip("|").split("|")][1:]
    out = {panel: {} for panel in PANELS}
    for line in lines[1].split("\n")[1:]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        engine = re.match(r"[\w.]+", name)[0]
        panel = next((panel for panel in PANELS if panel in name), None)
        if panel:
            out[panel][engine] = {c: float(re.match(r"[\d.]+", v)[0]) for c, v in zip(columns, cells) if re.match(r"[\d.]+", v)}
    return out


def draw(figures):
    height = 96 + len(FILES) * (len(ENGINES) * BAR + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * PANEL} {height}" width="{2 * PANEL}" height="{height}" role="img" '
           'aria-label="Tokens per second of Weft, llama.cpp and ik_llama.cpp">'
           '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
           '<g font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" font-size="12" fill="#e6edf3">']
    for p, (panel, title) in enumerate(PANELS.items()):
        x = p * PANEL
        out.append(f'<text x="{x + 16}" y="26" font-size="14" font-weight="600">{title}</text>')
        most = max(v for row in figures[panel].values() for f, v in row.items() if f in FILES)
        for i, name in enumerate(FILES):
            top = 44 + i * (len(ENGINES) * BAR + GAP)
            out.append(f'<text x="{x + LEFT - 10}" y="{top + len(ENGINES) * BAR / 2 + 4:.0f}" text-anchor="end">{name}</text>')
            for k, (engine, colour) in enumerate(ENGINES.items()):
                value = figures[panel][engine].get(name)
                if value is None:
                    continue
                long, y = value / most * WIDTH, top + k * BAR
                out.append(f'<rect x="{x + LEFT}" y="{y}" width="{long:.1f}" height="{BAR - 3}" rx="2" fill="{colour}"/>'
                           f'<text x="{x + LEFT + long + 6:.1f}" y="{y + 10}" font-size="11">{value:g}</text>')
    y, x = height - 40, 16
    for engine, colour in ENGINES.items():
        out.append(f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{colour}"/><text x="{x + 18}" y="{y + 10}">{engine}</text>')
        x += 120
    out.append(f'<text x="16" y="{height - 10}" font-size="11" fill="#8b949e">Two cores of Zen 4, shape of llama-3.2-1b, medians of five rounds '
               'taken alternately. Higher is better. docs/speed.md</text></g></svg>\n')
    return "\n".join(out)


def main(args):
    chart = draw(table((ROOT / "docs" / "speed.md").read_text()))
    if args == ["--check"]:
        return 0 if CHART.exists() and CHART.read_text() == chart else 1
    CHART.write_text(chart)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
