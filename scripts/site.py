"""Hooks of mkdocs (mkdocs.yml): what GitHub reads otherwise than Python-Markdown does.

Links that leave docs/ (to sources, to the README) lead nowhere on the site, so their text alone stays. In rows of tables a code
span may hold `\\|`, as GitHub wants a bar in a cell; Python-Markdown wants a plain bar there and would show the backslash.
"""
import re

LINK = re.compile(r"\[([^\]\n]*)\]\(\.\./[^)\s]*\)")
FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.M | re.S)
ROW = re.compile(r"^\|.*\|[ \t]*$", re.M)
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def plain_bars(row):
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def on_page_markdown(markdown, **_):
    parts = FENCE.split(LINK.sub(r"\1", markdown))
    return "".join(part if i % 2 else ROW.sub(plain_bars, part) for i, part in enumerate(parts))
