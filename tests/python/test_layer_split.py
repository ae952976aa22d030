"""Layers on two devices (-ngl): the first ones on the CPU, the last ones and the head on the device that DEV names, here the interpreter.

A cut changes nothing but which device computes a layer, so every family of parts is held to the records of the whole model.
"""
import json
import re
import subprocess

import pytest

from test_families import RECORDS, check, forced

THREADS = 1

REF = {"DEV": "REF"}
FAMILIES = ["gpt-oss", "granitehybrid", "mamba2", "qwen35"]


@pytest.fixture
def on_ref(run_weft):
    return lambda args, **more: run_weft(args, env=REF, timeout=600, **more)


def made(make_model, tmp_path, name):
    path = tmp_path / f"{name}.gguf"
    make_model.write(name, path)
    return path, json.loads((RECORDS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", FAMILIES)
def test_records(on_ref, make_model, tmp_path, name):
    path, record = made(make_model, tmp_path, name)
    for layers in {1, make_model.FAMILIES[name]["layers"] - 1}:
        ours = forced(on_ref, path, record, record["prompt"], record["tokens"], "-ngl", layers, "-ub", 16)
        check(f"{name}, {layers} layers on the device", record["steps"], ours)


@pytest.mark.parametrize("name, times", [("rwkv7", 1), ("gemma3n", 1), ("gemma4", 1), ("nanbeige", 2)])
def test_layers_that_need_more_of_each_other(on_ref, make_model, tmp_path, name, times):
    """times: how often the blocks of the file are gone through."""
    path, record = made(make_model, tmp_path, name)
    n_layer = make_model.FAMILIES[name]["layers"] * times
    for layers in (1, n_layer - 1):
        done = on_ref(["run", "-m", path, "-c", record["n_ctx"], "--ids", "1,2", "-n", 1, "-ngl", layers])
        assert done.returncode == 1
        assert f"the last {layers} layers use more of the earlier ones than their output" in done.err
        assert f"-ngl {n_layer}: all on REF, -ngl 0: none" in done.err and done.err.count("\n") == 1
    whole = forced(on_ref, path, record, record["prompt"], record["tokens"], "-ngl", "all")
    check(name, record["steps"], whole)


def test_what_else_a_model_does(run_weft, on_ref, shared_dir, tmp_path):
    """Rows of logits, sums of inputs, and words in place of a number."""
    path = shared_dir / "models" / "tinypy-q8_0.gguf"
    text = tmp_path / "text"
    text.write_text("def add(a, b):\n    return a + b\n" * 16)

    def estimate(run, *more):
        done = run(["perplexity", "-m", path, "-f", text, "-c", 64, *more])
        assert done.returncode == 0, done.err
        return float(re.search(r"PPL = ([\d.]+)", done.out + done.err)[1])
    whole = estimate(run_weft)
    assert estimate(on_ref, "-ngl", 2) == pytest.approx(whole, rel=1e-3)
    assert estimate(on_ref, "-ngl", 0) == whole
    matrix = {}
    for n in (0, 3):
        out = tmp_path / f"{n}.gguf"
        assert on_ref(["imatrix", "-m", path, "-f", text, "-c", 64, "-o", out, "-ngl", n]).returncode == 0
        matrix[n] = json.loads(run_weft(["inspect", "--json", out]).out)
    assert matrix[0]["tensors"] == matrix[3]["tensors"]
    for what in ("profile", "viz", "tune"):
        done = on_ref([what, "-m", path, "-ngl", 2])
        assert done.returncode == 1 and "a model on two devices is two plans" in done.err
    for bad in ("some", "-3", "1.5"):
        assert on_ref(["run", "-m", path, "-p", "x", "-ngl", bad]).returncode == 2


@pytest.mark.parametrize("name", ["qwen35"])
def test_any_cut_of_a_sequence(built_tool, weft_env, make_model, tmp_path, name):
    """Logits depend on ids and positions alone: also behind what ended early, and behind what came from a file. (Those of the interpreter differ in
    the last bits: by up to 1e-3 here with all layers there.)"""
    path, _ = made(make_model, tmp_path, name)
    done = subprocess.run([built_tool("cuts_tool", "WEFT_CUTS_TOOL"), path, "16", "1", "5", "0", "2"], env={**weft_env, **REF}, capture_output=True, text=True,
                          timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr
    ways = [line.split()[2:5] for line in done.stdout.splitlines()]
    assert len(ways) == 2 and all(int(tried) > 10 and float(most) < 1e-3 for tried, _, most in ways), done.stdout


def test_without_a_device(run_weft, shared_dir):
    args = ["run", "-m", shared_dir / "models" / "tinypy-q8_0.gguf", "-p", "def ", "-n", "8", "--temp", "0"]
    plain, done = run_weft(args), run_weft([*args, "-ngl", "99"])
    assert done.out == plain.out and "warning: -ngl is ignored: no GPU is selected; set DEV=CUDA or DEV=CL" in done.err
    for n in ("auto", "-1", "0"):
        assert "-ngl" not in run_weft([*args, "-ngl", n]).err
