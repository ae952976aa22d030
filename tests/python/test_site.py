"""The pages: docs/ as a site, whose links lead somewhere; the README's chart, the project's files, and plain words."""
import html.parser
import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest


class Links(html.parser.HTMLParser):
    """The links of a page, and what can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append((tag, value))
            if name in ("id", "name") and value:
                self.names.add(value)


@pytest.fixture(scope="module")
def site(repo, tmp_path_factory):
    mkdocs = Path(sys.executable).parent / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("no mkdocs in this Python (scripts/setup.sh test installs mkdocs-material from PyPI)")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([mkdocs, "build", "--strict", "--quiet", "--site-dir", out], cwd=repo, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_links_of_the_site(site, repo):
    """Every page of docs/ is there, every link within the site leads to a page and a place in it, nothing is loaded from elsewhere."""
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    names = {path.relative_to(site).as_posix() for path in pages}
    assert {path.stem + ".html" for path in (repo / "docs").glob("*.md")} <= names
    broken, foreign = [], []
    for path, page in pages.items():
        for tag, link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if tag in ("script", "link", "img"):
                    foreign.append((path.name, link))
                continue
            target = path if not parts.path else site / parts.path.lstrip("/") if parts.path.startswith("/") else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            if path.name == "404.html":
                continue
            if not target.exists() or (parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].names | {"__tabbed"}):
                broken.append((path.name, link))
    assert broken == [] and foreign == []


def test_the_site_reads_pages_as_github_does(site):
    """A list needs an empty line before it, and a bar in a table's code no backslash: Python-Markdown shows either as text otherwise."""
    lists, bars = [], []
    for path in site.glob("*.html"):
        text = path.read_text()
        lists += [(path.name, found) for paragraph in re.findall(r"<p>(.*?)</p>", text, re.S) for found in re.findall(r"\n(?:[-*+]|1[.)]) .{,40}", paragraph)]
        bars += [(path.name, found) for found in re.findall(r"<td[^>]*>[^\n]*?\\\|.{,20}", text)]
    assert lists == [] and bars == []
    row = "<td><code>cat README.md | ollama run NAME \"Summarise\"</code></td>"
    assert row in (site / "from-ollama.html").read_text()


def test_links_in_the_tree(repo):
    """Links of Markdown files to files of the tree, those that leave docs/ too."""
    broken = []
    for path in [*repo.glob("*.md"), *(repo / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)\s#]+)", re.sub(r"```.*?```|`[^`\n]*`|^    [^\n]*$", "", path.read_text(), flags=re.S | re.M)):
            if "://" not in link and not (path.parent / link).exists():
                broken.append((path.name, link))
    assert broken == []


def test_the_chart_is_that_of_the_table(repo):
    assert subprocess.run([sys.executable, repo / "bench/chart.py", "--check"]).returncode == 0, "run bench/chart.py"


def test_figures_of_the_readme(repo):
    """Its speeds are those of the chart, and it counts architectures and tensor types as the tables of src/model have them."""
    spec = importlib.util.spec_from_file_location("chart", repo / "bench/chart.py")
    chart = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chart)
    figures = chart.table((repo / "docs/speed.md").read_text())
    text = (repo / "README.md").read_text()
    said = re.search(r"([\d.]+) to ([\d.]+) times llama.cpp's tokens per second, and ([\d.]+) to ([\d.]+) times its prompt tokens", text)
    for panel, least, most in (("decode", said[1], said[2]), ("prompts", said[3], said[4])):
        ratios = [figures[panel]["Weft"][name] / figures[panel]["llama.cpp"][name] for name in chart.FILES]
        assert (f"{min(ratios):.1f}", f"{max(ratios):.1f}") == (least, most)
    of_f16 = figures["prompts"]["Weft"]["F16"] / figures["prompts"]["llama.cpp"]["F16"]
    assert f"a model in F16 run at {of_f16:.1f} times" in text
    rows = [name for path in (repo / "src/model").glob("arch*.c") for name in re.findall(r'^  {\.name = "([^"]+)"', path.read_text(), re.M)]
    types = re.findall(r"^  F\(.*, true\)", (repo / "src/model/format.h").read_text(), re.M)
    assert f"{len(rows)} architectures, {len(types)} tensor types" in text


def test_plain_words(repo, shared_dir):
    if not (shared_dir / "tools/plain.py").exists():
        pytest.skip("no list of words (the shared tools/plain.py)")
    pages = [*repo.glob("*.md"), *(repo / "docs").glob("*.md"), repo / "docs/weft.1"]
    done = subprocess.run([sys.executable, shared_dir / "tools/plain.py", *pages], cwd=repo, capture_output=True, text=True)
    assert done.stdout == "" and " places in " in done.stderr


def test_plain_words_in_messages(repo, shared_dir):
    """What the programs and the Python package say: string literals."""
    if not (shared_dir / "tools/plain.py").exists():
        pytest.skip("no list of words (the shared tools/plain.py)")
    spec = importlib.util.spec_from_file_location("plain", shared_dir / "tools/plain.py")
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    found, literals = [], 0
    for path in [*(repo / "src").rglob("*.[ch]"), *(repo / "python/weft").glob("*.py")]:
        for line in path.read_text().splitlines():
            for text in re.findall(r'"((?:[^"\\]|\\.)*)"', re.sub(r'^((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*)//.*', r"\1", line)):
                literals += 1
                found += [(path.name, text, word) for pattern, word in plain.LIST if pattern.search(text)]
    assert found == [] and literals > 10000


@pytest.mark.parametrize("schema, files", [("github-workflows", ".github/workflows/*.yml"), ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
                                           ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml")])
def test_what_github_reads(repo, schema, files):
    check = Path(sys.executable).parent / "check-jsonschema"
    if not check.exists():
        pytest.skip("no check-jsonschema in this Python (scripts/setup.sh test installs it from PyPI)")
    found = sorted(repo.glob(files))
    assert found
    done = subprocess.run([check, "--builtin-schema", f"vendor.{schema}", *found], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_call_scripts_that_are_there(repo):
    named = [name for path in (repo / ".github/workflows").glob("*.yml") for name in re.findall(r"run: ((?:scripts|\.ci)/\S+)", path.read_text())]
    assert named and all(os.access(repo / name, os.X_OK) for name in named)


def test_one_version(repo, version, run_weft):
    """weft.h, the program, CMake, the manual page and the newest section of the changelog."""
    assert run_weft(["--version"]).out.split()[1] == version
    assert re.search(r"^## (\S+?),? ", (repo / "CHANGELOG.md").read_text(), re.M)[1].rstrip(",") == version
    assert f'.TH WEFT 1 "" "weft {version}"' in (repo / "docs/weft.1").read_text()
    if (repo / ".git").exists():
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo, capture_output=True, text=True).stdout.strip()
        shown = json.loads(run_weft(["doctor", "--json"]).stdout)["version"]
        found = re.search(r"\(([0-9a-f]+)(-dirty)?\)", shown)
        assert found is None or not commit or found[2] or commit.startswith(found[1])
