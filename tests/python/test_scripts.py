"""The scripts: they parse, explain themselves, refuse what they do not know, and the README names the two that matter."""
import os
import re
import shutil
import subprocess
import sys

import pytest

SCRIPTS = ["scripts/setup.sh", "scripts/build.sh", "scripts/demo.sh", "scripts/test.sh", "scripts/replay.sh", "scripts/package.sh", "scripts/arm64_root.sh"]


def run(repo, *command):
    return subprocess.run(command, cwd=repo, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("script", SCRIPTS + [".ci/run"])
def test_parses_and_runs(repo, script):
    assert os.access(repo / script, os.X_OK), f"{script} has no run bit"
    first = (repo / script).read_text().splitlines()[0]
    shell = {"#!/usr/bin/env bash": "bash", "#!/bin/sh": "sh"}[first]
    done = run(repo, shell, "-n", script)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(repo, script, option):
    done = run(repo, script, option)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {script}")
    assert done.stderr == ""


@pytest.mark.parametrize("script, arguments", [
    ("scripts/setup.sh", ["everything"]),
    ("scripts/build.sh", ["--nonsense"]),
    ("scripts/build.sh", ["--compiler", "tcc"]),
    ("scripts/build.sh", ["--dir"]),
    ("scripts/test.sh", ["--nonsense"]),
    ("scripts/arm64_root.sh", []),
    ("scripts/replay.sh", ["--nonsense"]),
    ("scripts/package.sh", ["snap"]),
    ("scripts/package.sh", ["deb", "--nonsense"]),
    ("scripts/package.sh", ["image", "--nonsense"]),
])
def test_usage_errors(repo, script, arguments):
    done = run(repo, script, *arguments)
    assert done.returncode == 2
    assert done.stderr and not done.stdout


def test_help_names_every_option(repo):
    """An option that a script takes stands in its help."""
    for script in SCRIPTS:
        taken = set(re.findall(r"^\s*(--[a-z-]+)\)", (repo / script).read_text(), re.M))
        told = run(repo, script, "--help").stdout
        assert taken <= set(re.findall(r"--[a-z-]+", told)), script


def test_ci_runs_the_tests(repo):
    assert "scripts/test.sh" in (repo / ".ci" / "run").read_text()


def test_readme_names_both_commands(repo):
    text = (repo / "README.md").read_text()
    assert "scripts/demo.sh" in text and "scripts/test.sh" in text


def test_readme_links_lead_somewhere(repo):
    for link in re.findall(r"\]\(([^)#]+)", (repo / "README.md").read_text()):
        if "://" not in link:
            assert (repo / link).exists(), f"README.md links to {link}, which is not there"


def test_no_paths_of_one_machine(repo):
    """What is tracked holds on any machine."""
    if not shutil.which("git") or run(repo, "git", "rev-parse", "--git-dir").returncode:
        pytest.skip("not a git checkout")
    found = run(repo, "git", "grep", "-nIE", r"(^|[^A-Za-z0-9_.])/(work|root|home/[a-z]+)/")
    assert found.stdout == ""


def test_the_demo_model_is_there(repo):
    with open(repo / "models" / "tinypy.gguf", "rb") as file:
        assert file.read(4) == b"GGUF"


def test_why_tests_failed(repo, tmp_path):
    """scripts/failed.py finds the reasons in the log of a real CTest run."""
    (tmp_path / "test_x.py").write_text("def test_one():\n    print('of no interest')\n    assert 3 == 4\n")
    words = {"good": "echo 'E   no'", "python": f"'{sys.executable}' -m pytest -q -p no:cacheprovider test_x.py", "silent": "for i in $(seq 40); do echo line $i; done; exit 7",
             "slow": "echo begun; sleep 60"}
    (tmp_path / "CTestTestfile.cmake").write_text("".join(f"add_test({name} sh -c [==[{text}]==])\nset_tests_properties({name} PROPERTIES TIMEOUT {2 if name == 'slow' else 300})\n" for name, text in words.items()))
    ran = subprocess.run(["ctest", "--test-dir", tmp_path, "-j2"], capture_output=True, text=True)
    assert ran.returncode == 8, ran
    said = subprocess.run([sys.executable, repo / "scripts/failed.py", tmp_path / "Testing/Temporary/LastTest.log"], capture_output=True, text=True, check=True).stdout
    parts = dict(part.split("\n", 1) for part in said.split("failed: ")[1:])
    assert set(parts) == {"python", "silent", "slow"}, said
    assert "assert 3 == 4" in parts["python"] and "interest" not in parts["python"]
    assert "line 40" in parts["silent"] and "line 20" not in parts["silent"] and "begun" in parts["slow"]


def test_near(repo):
    """Tests of the file's own folder and name; what is long is named, and its tables name tests that are there."""
    def near(*files):
        return subprocess.run([sys.executable, repo / "scripts/near.py", *files], capture_output=True, text=True)

    targets, chosen = near("src/text/bpe.c").stdout.splitlines()
    assert {"weft", "text_test_merge"} <= set(targets.split()) and "codegen_test_order" not in targets
    assert re.match(chosen, "unit_text_merge") and re.match(chosen, "py_tokenize") and not re.match(chosen, "unit_text_mergers")
    assert "py_serve_slots" in near("src/serve/slots.c").stdout
    assert "unit_codegen_order" in near("src/codegen/expand.c").stderr
    rows = {line.split()[0] for line in (repo / "tests" / "near.txt").read_text().splitlines() if line and not line.startswith("#")}
    assert rows >= {f"src/{folder.name}" for folder in (repo / "src").iterdir() if folder.is_dir()}
    assert near("src/none.c").returncode == 1 and "no file of this tree" in near("src/none.c").stderr
    python = {path.stem.removeprefix("test_") for path in (repo / "tests/python").glob("test_*.py")}
    for line in (repo / "tests/near.txt").read_text().splitlines():
        if not line.startswith("#"):
            folder, *names = line.split()
            assert (repo / folder).is_dir() and set(names) <= python


def test_pytest_loads_no_plugins(pytestconfig):
    """Each file is a run of pytest of its own: plugins that came with packages took 5 of the 6 seconds of its start."""
    if not os.environ.get("WEFT_SKIPS"):
        pytest.skip("this may be another Python than that of scripts/setup.sh, with plugins that are wanted")
    loaded = {dist.project_name for _, dist in pytestconfig.pluginmanager.list_plugin_distinfo()}
    assert not loaded, f"tests/python/pytest.ini has no -p no:NAME for plugins of {loaded}"
