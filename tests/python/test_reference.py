"""The reference of the C API (scripts/reference.py): what doxygen makes of include/, without a warning and without scripts."""
import re
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("doxygen"), reason="no doxygen")


@pytest.fixture(scope="module")
def pages(repo, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference") / "html"
    done = subprocess.run([repo / "scripts/reference.py", out], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr
    assert [path.name for path in out.parent.iterdir()] == ["html"]
    return {path.name: path.read_text() for path in out.glob("*.html")}


def test_every_function_has_an_entry(pages, repo):
    text = "".join(pages.values())
    functions = set(re.findall(r"\b(weft_\w+)\(", "".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in (repo / "include").rglob("*.h"))))
    described = {re.sub("<.*?>", "", cell).split("(")[0].split()[-1] for cell in re.findall(r'<td class="memname">(.*?)</td>', text)}
    missing = functions - described
    assert len(functions) > 150 and not missing


def test_comments_come_along(pages):
    assert "The handles, each opaque" in pages["index.html"] and 'class="fragment"' in pages["index.html"]
    assert "Evaluates n tokens at positions pos" in pages["model_8h.html"]
    assert "the types of the KV cache" in pages["structweft__options.html"], "a comment behind a member"


def test_no_scripts_and_nothing_from_elsewhere(pages):
    for name, text in pages.items():
        assert "<script" not in text, name
        assert not [x for x in re.findall(r'(?:src|href)="(\w+:[^"]*)"', text) if "doxygen.org" not in x], name


def test_warnings_are_errors(repo, tmp_path):
    (tmp_path / "doxygen").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "doxygen").chmod(0o755)
    done = subprocess.run([repo / "scripts/reference.py", tmp_path / "html"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 1 and "warnings" in done.stderr and not (tmp_path / "html").exists()
