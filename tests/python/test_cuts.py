"""The same ids give the same logits, bit for bit, however a sequence is cut, on any number of threads, and beside a sequence with an adapter.

Cases that once differed come first, then small models of random types and shapes for WEFT_CUTS_SECONDS (default 30).
tests/tools/try_cuts.py goes on for as long as it is told.
"""
import os
import time

import pytest

from conftest import load_tool

THREADS = 1

pytest.importorskip("gguf")

SECONDS = float(os.environ.get("WEFT_CUTS_SECONDS") or 30)
# Types of matrices by a part of their names; "" stands for all others.
ONCE_DIFFERENT = {
    "a product of floats beside one of integers": ("mistral3", {"": "F16", "ffn_up": "Q4_K"}),
    "what is multiplied lies across the sum": ("lfm2", {"": "Q8_0"}),
    "a product of one length beside another": ("gptneox", {"": "BF16"}),
    "a delta net": ("qwen35", {"": "F32", "ffn": "Q8_0"}),
    "mamba and experts": ("granitehybrid", {"": "Q4_0", "ssm": "F16"}),
    "values that are keys, masked and copied": ("glm-dsa", {"": "F32"}, "f32"),
    "values that are keys of 8 bits, unpacked and copied": ("deepseek2-lite", {"": "F16"}, "q8_0"),
    "the same, chosen by an indexer": ("glm-dsa-heads", {"": "F32"}, "q8_0"),
    "the same beside entries of many positions": ("deepseek4", {"": "F32"}, "q8_0"),
}
# The same by the seed of try_cuts.py
ONCE_DIFFERENT_SEEDS = {
    "one page, and a window of one": ("gemma3", 7146),
    "ranks in a sum of floats": ("phimoe", 7485),
}


@pytest.fixture(scope="module")
def try_cuts():
    return load_tool("try_cuts")


@pytest.fixture(scope="module")
def differs(try_cuts, built_tool, weft_env):
    """What of a model differs, as text: with one random cut for each number of threads and precision."""
    tool = built_tool("cuts_tool", "WEFT_CUTS_TOOL")
    env = {**weft_env, "SPEC": "0"}
    return lambda path, seed, cache, ids=40: try_cuts.try_model(tool, path, ids, 1, seed, 0, cache, env)[0]


@pytest.mark.parametrize("what", ONCE_DIFFERENT)
def test_once_different(try_cuts, differs, tmp_path, what):
    name, types, *cache = ONCE_DIFFERENT[what]
    path = tmp_path / "model.gguf"
    try_cuts.make_model.write(name, path, quant=try_cuts.ByName(types))
    assert not differs(path, 1, *cache or ["f16"])


@pytest.mark.parametrize("what", ONCE_DIFFERENT_SEEDS)
def test_once_different_by_seed(try_cuts, differs, tmp_path, what):
    name, seed = ONCE_DIFFERENT_SEEDS[what]
    path = tmp_path / "model.gguf"
    try_cuts.write(path, name, seed)
    assert not differs(path, seed, try_cuts.cache_of(seed))


def test_a_row_of_one_block(try_cuts, differs, tmp_path):
    """Its product has no sum of floats, and was computed once more for the norm behind it."""
    path = tmp_path / "model.gguf"
    types = {"": "F32", "attn_q_a.": "Q4_K"}
    try_cuts.make_model.write("minicpm3", path, dim=256, quant=try_cuts.ByName(types))
    assert not differs(path, 1, "f32")


@pytest.mark.parametrize("kind", ["BF16", "Q8_0"])
def test_one_layer_whose_products_are_merged(try_cuts, differs, tmp_path, kind):
    """Most tokens of a prompt need keys and values alone.  With one layer their product reads the embedding's norm, which counted as a weight: nothing was rounded."""
    path = tmp_path / "model.gguf"
    try_cuts.make_model.write("phi3-short", path, layers=1, quant=try_cuts.ByName({"": "F32", "attn_qkv": kind}))
    assert not differs(path, 1, "f16", 24)


@pytest.mark.parametrize("name", ["gemma3", "deepseek2-lite", "qwen3next"])
def test_one_head_and_two_blocks(try_cuts, differs, tmp_path, name):
    """Blocks of 128 positions are added up.  For one token and one head they are neighbours in memory: they once had lanes."""
    path = tmp_path / "model.gguf"
    try_cuts.make_model.write(name, path, heads=1, kv=1)
    assert not differs(path, 1, "f16", 150)


# Rotated products: their kernels' forms once depended on what was added to them, limited them or scaled them by position
@pytest.mark.parametrize("name", ["llama-yarn", "olmo", "mistral3", "qwen2moe", "qwen35"])
def test_beside_an_adapter(try_cuts, built_tool, weft_env, tmp_path, name):
    path = tmp_path / "model.gguf"
    try_cuts.make_model.write(name, path)
    wrong, figures = try_cuts.try_adapted(built_tool("cuts_tool", "WEFT_CUTS_TOOL"), path, 20, 1, "f16", {**weft_env, "SPEC": "0"})
    assert figures and not wrong


def test_random_models(try_cuts, differs, built_tool, weft_env, tmp_path):
    names, end, seed = list(try_cuts.make_model.FAMILIES), time.time() + SECONDS, 0
    while not seed or time.time() < end:
        path, name = tmp_path / f"{seed}.gguf", names[seed * 7 % len(names)]
        what, cache = try_cuts.write(path, name, seed), try_cuts.cache_of(seed)
        assert not differs(path, seed, cache, 150 if seed % 4 == 3 else 40), f"seed {seed}: {name} {what} {cache}"
        if seed % 3 == 2:
            wrong, _ = try_cuts.try_adapted(built_tool("cuts_tool", "WEFT_CUTS_TOOL"), path, 20, seed, cache, {**weft_env, "SPEC": "0"})
            assert not wrong, f"seed {seed}: {name} {what} {cache}"
        path.unlink()
        seed += 1
