"""Models whose tokens read the best so many positions (deepseek32, glm-dsa), with few of them and more context, against doubles.

tests/tools/references.py chooses by sorting; llama.cpp's answers are among tests/records, and try_cuts.py cuts their prompts.
Weights and caches are floats here, so that the same positions are chosen but where two scores are the same number.
"""
import json

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
TOKENS, VOCABULARY, CLOSE = 40, 509, 2e-3


@pytest.fixture
def write(make_model, tmp_path):
    """write(name, seed, top_k, heads, ...): a small model without YaRN; its path."""
    def write(name, seed, top_k, heads, size=64, quant=None, layers=3, without=(), **keys):
        path, old = tmp_path / "m.gguf", make_model.FAMILIES[f"{name}-sparse"]["keys"]
        keys = {key: v for key, v in old.items() if "scaling" not in key and key not in without} | keys
        keys |= {"attention.indexer.top_k": top_k, "attention.indexer.head_count": heads, "attention.indexer.key_length": size}
        make_model.write(f"{name}-sparse", path, seed=seed, keys=keys, indexer=(heads, size), layers=layers, mix="l" * layers, **({"quant": quant} if quant else {}))
        return path
    return write


def ids_of(seed):
    return [int(i) for i in np.random.default_rng(seed).integers(0, VOCABULARY - 2, TOKENS)]


def answers(run_weft, path, ids, *more):
    """Log-probabilities {T, vocabulary} after each of the ids."""
    done = run_weft(["run", "-m", path, "-c", 64, "--ids", ids[0], "--force", ",".join(map(str, ids[1:] + [0])), "--json", "--top-logprobs", 100000, "--precision", "exact",
                     "-ctk", "f32", *more])
    assert done.returncode == 0, done.err
    rows = [dict(map(tuple, json.loads(line)["top"])) for line in done.stdout.splitlines()]
    return np.array([[row[i] for i in range(VOCABULARY)] for row in rows])


def expected(logits, ids):
    x = logits(ids)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


# One head: what is not positive is 0 for half of the positions, so that the last ones are chosen among equals.
@pytest.mark.parametrize("name,seed,top_k,heads,size", [
    ("deepseek32", 1, 8, 4, 64), ("deepseek32", 2, 1, 2, 128), ("deepseek32", 3, 17, 1, 96), ("deepseek32", 4, 39, 8, 32),
    ("glm-dsa", 5, 8, 3, 64), ("glm-dsa", 6, 20, 1, 32), ("glm-dsa", 7, 2, 1, 128), ("glm-dsa", 8, 40, 5, 64)])
def test_against_doubles(run_weft, write, references, name, seed, top_k, heads, size):
    path, ids, halves = write(name, seed, top_k, heads, size), ids_of(seed), name == "deepseek32"
    own = None if halves else [True, False, True]
    want = expected(references.sparse(path, own, halves), ids)
    assert np.abs(answers(run_weft, path, ids) - want).max() < CLOSE
    if top_k < 20:                                        # that it is no matter what is chosen would say nothing
        other = expected(references.sparse(write(name, seed, 128, heads, size), own, halves), ids)
        assert np.abs(other - want).max() > 0.1


@pytest.mark.parametrize("name", ["deepseek32", "glm-dsa"])
def test_equal_scores(run_weft, write, references, name):
    """All are 0, so that the first positions are read. Who reads others is seen by it."""
    def quant(name, x):
        return gguf.GGMLQuantizationType.F32, np.zeros_like(x) if "indexer.proj" in name else x

    path, ids, halves = write(name, 9, 8, 4, quant=quant), ids_of(9), name == "deepseek32"
    want = expected(references.sparse(path, None, halves), ids)
    assert np.abs(answers(run_weft, path, ids) - want).max() < CLOSE


def test_a_short_context_has_no_indexer(run_weft, write):
    """As long as all are chosen nothing is computed for it; a context of one more has it, and the same answers as far as both go."""
    path, ids = write("deepseek32", 1, 39, 4), ids_of(1)[:39]
    short, long = (run_weft(["run", "-m", path, "-c", c, "--ids", ",".join(map(str, ids)), "-n", 0], env={"DEBUG": "1", "WEFT_CACHE": "off"}) for c in (39, 40))
    assert short.returncode == long.returncode == 0
    assert "u32" not in short.err and "CAST<u32>" in long.err
    assert np.abs(answers(run_weft, path, ids)[:39] - answers(run_weft, path, ids, "-c", 39)[:39]).max() < 1e-4


def test_which_layers_have_an_indexer(run_weft, write, references):
    """A file says it. Of those that do not, long ones have one in the first two layers and in every fourth, whatever tensors there are."""
    ids = ids_of(10)
    got = [answers(run_weft, write("glm-dsa", 10, 8, 4, **{"attention.indexer.types": own}), ids) for own in ([True, False, False], [True, True, True])]
    assert np.abs(got[0] - got[1]).max() > 0.1
    path = write("glm-dsa", 10, 8, 4, without=["attention.indexer.types"])
    assert (answers(run_weft, path, ids) == got[1]).all()
    path = write("glm-dsa", 10, 8, 4, layers=6, without=["attention.indexer.types"], context_length=1 << 20)
    want = expected(references.sparse(path, [True, True, True, False, False, False]), ids)
    assert np.abs(answers(run_weft, path, ids) - want).max() < CLOSE


# ---- pools of positions (glm5-next, qwen4exp): records have their answers ------------------------------------------------

@pytest.mark.parametrize("name,key,value,says", [
    ("glm5-next", "attention.indexer.kpool_select_tail", False, "false is not supported"),
    ("glm5-next", "attention.indexer.kpool", 12, "12 does not divide a page of 128 positions"),
    ("glm5-next", "attention.indexer.top_k", 13, "13 is no multiple of attention.indexer.kpool = 4"),
    ("qwen4exp", "attention.compress_ratios", [0, 3, 0, 0], "3 does not divide a page of 128 positions"),
    ("qwen4exp", "ple.layers", [1], "layer 1 has attention"),
    ("qwen4exp", "ple.layers", [0, 2], "2 layers (only one is supported)")])
def test_pools_that_are_errors(run_weft, make_model, tmp_path, name, key, value, says):
    path = tmp_path / "m.gguf"
    make_model.write(name, path, keys=make_model.FAMILIES[name]["keys"] | {key: value})
    done = run_weft(["run", "-m", path, "--ids", "1,2", "-n", 1])
    assert done.returncode == 1 and f"key '{name}.{key}': {says}" in done.err


def test_pools_of_no_size(run_weft, make_model, tmp_path):
    """llama.cpp's converter writes them. Up to the budget all positions are read, so the answers are those of any size; a longer context is an error."""
    keys = make_model.FAMILIES["qwen4exp"]["keys"]
    ids, got = ids_of(11)[:12], []
    for size in (4, 0):
        path = tmp_path / f"{size}.gguf"
        make_model.write("qwen4exp", path, keys=keys | {"attention.compress_ratios": [0, size, 0, 0]})
        got.append(answers(run_weft, path, ids, "-c", 12))
    assert got[0].shape == (12, VOCABULARY) and (got[0] == got[1]).all()
    assert "there are 12 at most" in run_weft(["run", "-m", path, "-c", 64, "--ids", "1", "-n", 1]).err
