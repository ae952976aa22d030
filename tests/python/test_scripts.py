"""The scripts: they parse, explain themselves, refuse what they do not know, and the README names the two that matter."""
import os
import re
import shutil
import subprocess

import pytest

SCRIPTS = ["scripts/setup.sh", "scripts/build.sh", "scripts/demo.sh", "scripts/test.sh", "scripts/replay.sh"]


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
    ("scripts/replay.sh", ["--nonsense"]),
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
