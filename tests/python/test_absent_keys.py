"""Keys that a file may lack: what is taken in their place is what llama.cpp takes (which loads each of these files), and where that is what the file said, the answer stays the same.

tests/python/test_model_errors.py has tensors that a file may lack, and keys with wrong values.
"""
import json

import pytest
from conftest import load_tool

THREADS = 1

without_key = load_tool("change_gguf").without_key


# family and key: of those that some file lacks, or that llama.cpp does not ask for
ALIKE = [("nemotron_h_moe", "attention.layer_norm_rms_epsilon"), ("nemotron_h", "attention.layer_norm_rms_epsilon"),
         ("mamba", "attention.head_count"), ("mamba2", "attention.head_count"), ("rwkv6", "attention.head_count"), ("rwkv7", "attention.head_count"),
         ("deepseek2-lite", "attention.value_length"), ("plm", "attention.value_length"), ("minicpm3", "attention.value_length"),
         ("step35", "attention.key_length"), ("step35", "leading_dense_block_count"), ("lfm2moe", "leading_dense_block_count"), ("llama-yarn", "attention.head_count_kv"),
         # here llama.cpp takes false, and transformers knows no such choice
         ("afmoe", "expert_weights_norm"), ("step35", "expert_weights_norm")]


@pytest.mark.parametrize("family,key", ALIKE)
def test_the_answer_is_the_same(run_weft, make_model, tmp_path, family, key):
    whole, less, p = tmp_path / "whole.gguf", tmp_path / "less.gguf", make_model.FAMILIES[family]
    if key == "attention.head_count_kv":
        make_model.write(family, whole, kv=p["heads"])
    else:
        make_model.write(family, whole)
    without_key(whole, less, f"{p['arch']}.{key}")
    answers = [run_weft(["run", "-m", path, "-c", "64", "--ids", "5,6,7,8,9,10", "-n", "3", "--temp", "0", "--ignore-eos", "--json", "--top-logprobs", "3"]) for path in (whole, less)]
    assert answers[1].returncode == 0, answers[1].err
    assert answers[0].out == answers[1].out and answers[0].out


@pytest.mark.parametrize("family,key", [("gpt2", "layer_norm_epsilon"), ("granite", "layer_norm_rms_epsilon")])
def test_an_epsilon_by_the_other_name(run_weft, make_model, tmp_path, family, key):
    """Both kinds of norm have one epsilon: a file may call it by either name, and its own comes first."""
    path, names = tmp_path / "m.gguf", ["layer_norm_epsilon", "layer_norm_rms_epsilon"]
    arch, other = make_model.FAMILIES[family]["arch"], names[names[0] == key]
    make_model.write(family, path, keys={**make_model.FAMILIES[family].get("keys", {}), f"attention.{other}": 0.5})
    uses = json.loads(run_weft(["inspect", "-m", path, "--json"]).out)["key_uses"]
    assert uses[f"{arch}.attention.{key}"] == "read" != uses[f"{arch}.attention.{other}"]
    without_key(path, tmp_path / "less.gguf", f"{arch}.attention.{key}")
    about = json.loads(run_weft(["inspect", "-m", tmp_path / "less.gguf", "--json"]).out)
    assert about["can_run"] and about["key_uses"][f"{arch}.attention.{other}"] == "read"


@pytest.mark.parametrize("family,key,words", [
    ("granite", "attention.layer_norm_rms_epsilon", ["is missing"]), ("gpt2", "attention.layer_norm_epsilon", ["is missing"]), ("rwkv7", "attention.layer_norm_epsilon", ["is missing"]),
    ("granite", "attention.head_count", ["is missing"]), ("granite", "block_count", ["is missing"]), ("granite", "feed_forward_length", ["is missing"]),
    ("llama-yarn", "rope.scaling.factor", ["is missing", "rope.scaling.type says that positions are scaled"])])
def test_what_nothing_can_stand_for(run_weft, make_model, tmp_path, family, key, words):
    make_model.write(family, tmp_path / "m.gguf")
    name = f"{make_model.FAMILIES[family]['arch']}.{key}"
    without_key(tmp_path / "m.gguf", tmp_path / "less.gguf", name)
    why = json.loads(run_weft(["inspect", "-m", tmp_path / "less.gguf", "--json"]).out)["why_not"]
    assert why and all(word in why for word in [f"key '{name}'", *words]), why
