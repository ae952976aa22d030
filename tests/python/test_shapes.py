"""Shapes of tensors: ones at the end of a shape mean nothing, in every reader, and no shape that a model accepts breaks its graph."""
import re
import subprocess

import pytest
from conftest import load_tool

THREADS = 1

change_gguf = load_tool("change_gguf")
padded, with_dims = change_gguf.padded, change_gguf.with_dims


def stripped(_, dims):
    while len(dims) > 1 and dims[-1] == 1:
        dims = dims[:-1]
    return dims


# Files of these kinds have vectors that their graphs read in some other way than through a norm, or matrices of one row.
KINDS = ["phi3-short", "gemma4-moe", "minicpm3", "qwen2moe", "granitehybrid", "rwkv7"]


def as_with_other_dims(run_weft, ask, path, other):
    expected = run_weft([*ask, "-m", path])
    assert expected.returncode == 0, expected.err
    for change in (padded, stripped):
        with_dims(path, other, change)
        done = run_weft([*ask, "-m", other])
        assert done.returncode == 0 and done.out == expected.out, done.err


@pytest.mark.parametrize("family", KINDS)
def test_ones_at_the_end(run_weft, make_model, tmp_path, family):
    path, other = tmp_path / "m.gguf", tmp_path / "other.gguf"
    make_model.write(family, path)
    ask = ["run", "-c", "64", "--ids", "5,6,7,8,9", "-n", "2", "--temp", "0", "--ignore-eos", "--json", "--top-logprobs", "3"]
    as_with_other_dims(run_weft, ask, path, other)


@pytest.mark.parametrize("name", ["bert-rank", "jina-bert-v2-rank", "bert"])
def test_matrices_of_one_row(run_weft, make_encoder, tmp_path, name):
    """As llama-quantize writes the head of a model that ranks: {128}."""
    path, other = tmp_path / "m.gguf", tmp_path / "other.gguf"
    make_encoder.write(name, path)
    ask = ["embed", "--ids", "2,7,8,3,9,3", "--embd-output-format", "array"]
    as_with_other_dims(run_weft, ask, path, other)


# Tensors that may have other shapes than the file's: those that say their own number of rows, or may have more of them than are read, and
# those whose third axis may be the fourth.
OWN_SIZE = re.compile(r"(eagle3|dflash)-own: token_embd\.weight|dspark-bonus: markov_w1\.weight|.*: cls(\.output)?\.weight|.*: token_types\.weight|.*: blk\.\d+\.time_mix_lerp_fused\.weight|qwen4exp: per_layer_token_embd\.weight|(kimi|bailingmoe3|glm5-next).*: blk\.\d+\.ssm_a")


def other_shapes(tool, maker, name, path):
    """What is wrong, the number of changes, and the tensors of which another shape was accepted."""
    maker.write(name, path)
    done = subprocess.run([tool, path, "shapes"], capture_output=True, text=True, check=False)
    path.unlink()
    *lines, last = done.stdout.splitlines()
    changes, models, _, _, ended = map(int, re.findall(r"\d+", last))
    accepted = [line.split()[1] for line in lines if line.startswith("accepted: ")]
    wrong = [f"{name}: {tensor}" for tensor in accepted if not OWN_SIZE.fullmatch(f"{name}: {tensor}")]
    return wrong + ([f"{name}: {done.stdout} {done.stderr}"] if done.returncode or ended or len(accepted) != models else []), changes, accepted


def test_other_shapes(built_tool, make_model, make_encoder, make_source, make_draft, tmp_path):
    """Each tensor of each family in other shapes (axes swapped, split, joined, put in, longer, shorter): refused, with the names of the file and the
    tensor and both shapes; or, of the few that say their own size, a graph. So a graph meets no shape that it does not ask for."""
    tool, changes, accepted = built_tool("mutate_tool", "WEFT_MUTATE_TOOL"), 0, set()
    for maker, names in (make_model, make_model.FAMILIES), (make_encoder, make_encoder.ENCODERS), (make_source, make_source.SOURCES), (make_draft, make_draft.DRAFTS):
        for name in names:
            wrong, n, own = other_shapes(tool, maker, name, tmp_path / f"{name}.gguf")
            assert not wrong, wrong
            changes, accepted = changes + n, accepted | set(own)
    assert changes > 30000 and {"cls.output.weight", "token_types.weight", "blk.0.time_mix_lerp_fused.weight"} <= accepted


def test_a_size_that_is_not_ours(run_weft, make_model, tmp_path):
    make_model.write("phi3-short", tmp_path / "m.gguf")
    with_dims(tmp_path / "m.gguf", tmp_path / "other.gguf", lambda name, dims: [*dims, 2] if name == "rope_factors_short.weight" else dims)
    done = run_weft(["run", "-m", tmp_path / "other.gguf", "--ids", "1", "-n", "1"])
    assert done.returncode == 1 and "rope_factors_short.weight" in done.err
