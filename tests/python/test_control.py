"""Control vectors: what leaves layers is moved as llama.cpp moves it, and as a bias does; what cannot be such a vector is refused."""
import functools
import json
import math
import shutil

import gguf
import numpy as np
import pytest
from serving import Server
import test_lora
from test_lora import divergence

IDS = [5, 17, 200, 3, 99, 42, 7, 233, 250, 8, 64, 12, 171, 33, 2, 91, 118, 76]
log_probabilities = functools.partial(test_lora.log_probabilities, ids=IDS)
# layers: of one part each, of streams of several rows, of two stacks, and so on; which of their layers (None: all)
RECORDED = {"llama-yarn": None, "gemma3n": None, "kimi-k3": (1, 2), "hrm_text": None, "nemotron_h": (4, 4), "rwkv6": None, "phi2": (1, 9), "nanbeige": None}


def write(path, tensors, keys=None, arch="controlvector"):
    w = gguf.GGUFWriter(path, arch)
    for name, value in ({"model_hint": "tiny", "layer_count": len(tensors)} if keys is None else keys).items():
        (w.add_string if isinstance(value, str) else w.add_uint32)(f"controlvector.{name}", value)
    for name, data in tensors.items():
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def directions(model, seed=1):
    """For every layer but the first."""
    reader, rng = gguf.GGUFReader(model), np.random.default_rng(seed)
    arch = reader.get_field("general.architecture").contents()
    n, layers, more = (reader.get_field(f"{arch}.{key}") for key in ("embedding_length", "block_count", "nextn_predict_layers"))
    layers = layers.contents() - (more.contents() if more else 0)
    return {f"direction.{i}": rng.standard_normal(n.contents()).astype(np.float32) for i in range(1, layers)}


@pytest.fixture(scope="module")
def records(repo):
    return json.loads((repo / "tests" / "records" / "control" / "llama.json").read_text())


@pytest.mark.parametrize("family", RECORDED)
def test_as_llama_cpp(run_weft, make_model, tmp_path, records, family):
    model, vector = tmp_path / "model.gguf", tmp_path / "vector.gguf"
    make_model.write(family, model)
    write(vector, directions(model))
    layers = ["--control-vector-layer-range", *RECORDED[family]] if RECORDED[family] else []
    got = log_probabilities(run_weft, model, "--precision", "exact", "--control-vector-scaled", f"{vector}:0.75", *layers)
    want, plain = (dict(enumerate(records[family][what])) for what in ("moved", "plain"))
    assert divergence(want, plain) > 1e-3
    assert abs(divergence(want, got)) < 1e-4


def test_as_if_it_were_a_bias(run_weft, make_model, tmp_path):
    """Two files, both at once, each with its scale; behind the layers of a range; however a prompt is cut."""
    model, biased, one, two = (tmp_path / f"{name}.gguf" for name in ("model", "biased", "one", "t:wo"))
    make_model.write("starcoder2", model)
    first, second = directions(model), directions(model, 2)
    write(one, first)
    write(two, second, keys={})

    shutil.copy(model, biased)
    for t in gguf.GGUFReader(biased, "r+").tensors:
        if t.name in ("blk.1.ffn_down.bias", "blk.2.ffn_down.bias"):
            at = t.name.split(".")[1]
            t.data[:] += 0.5 * first[f"direction.{at}"] + (-2 * second["direction.2"] if at == "2" else 0)
    want, plain = log_probabilities(run_weft, biased), log_probabilities(run_weft, model)
    assert want.keys() == plain.keys() and divergence(want, plain) > 0.01
    write(two, {"direction.2": second["direction.2"]}, keys={})
    both = ["--control-vector-scaled", f"{one}:0.5,{two}:-2"]
    got = log_probabilities(run_weft, model, *both)
    assert abs(divergence(want, got)) < 1e-5
    assert log_probabilities(run_weft, model, *both, "-ub", 5) == got
    assert log_probabilities(run_weft, model, "--control-vector", f"{one},{one}") == log_probabilities(run_weft, model, "--control-vector-scaled", f"{one}:2")
    last = log_probabilities(run_weft, model, "--control-vector", one, "--control-vector-layer-range", 2, 0)
    write(two, {"direction.2": first["direction.2"]})
    assert last == log_probabilities(run_weft, model, "--control-vector", two) != log_probabilities(run_weft, model, "--control-vector", one)
    assert log_probabilities(run_weft, model, "--control-vector-scaled", f"{one}:0") == plain


def test_other_commands_and_programs(weft, weft_env, run_weft, make_model, tmp_path):
    model, vector = tmp_path / "model.gguf", tmp_path / "vector.gguf"
    make_model.write("llama-yarn", model)
    write(vector, directions(model))
    embed = ["embed", "-m", model, "--ids", "1,2,3", "--pooling", "mean", "--embd-output-format", "raw"]
    plain, moved = run_weft(embed), run_weft([*embed, "--control-vector", vector])
    assert plain.returncode == moved.returncode == 0 and plain.out != moved.out
    text = tmp_path / "text"
    text.write_text("abcdef " * 60)
    plain, moved = (run_weft(["perplexity", "-m", model, "-f", text, "-c", 64, "--chunks", 2, *more]).out for more in ([], ["--control-vector", vector]))
    assert plain != moved
    want = log_probabilities(run_weft, model, "--control-vector", vector)
    with Server(weft, weft_env, model, "-c", "256", "--control-vector", vector) as s:
        top = s.ask("/completion", {"prompt": IDS, "n_predict": 1, "temperature": 0, "n_probs": 20})[1]["completion_probabilities"][0]["top_logprobs"]
    assert all(math.isclose(t["logprob"], want[t["id"]], abs_tol=2e-4) for t in top) and len(top) == 20


def test_one_model_of_a_server(run_weft, make_model, tinypy, tmp_path):
    make_model.write("llama-yarn", tmp_path / "other.gguf")
    write(tmp_path / "vector.gguf", directions(tinypy))
    done = run_weft(["serve", "-m", tinypy, "-m", tmp_path / "other.gguf", "--port", 0, "--control-vector", tmp_path / "vector.gguf"])
    assert done.returncode == 1 and "vector.gguf" in done.err and "one model" in done.err


GOOD = {"direction.1": np.ones(256, np.float32), "direction.2": np.ones(256, np.float32)}


@pytest.mark.parametrize("tensors, more, options, words", [
    (GOOD, {"arch": "llama"}, [], ["general.architecture", "'llama'", "'controlvector'"]),
    (GOOD, {"keys": {"layer_count": 3}}, [], ["controlvector.layer_count", "is 3", "2 directions"]),
    ({}, {}, [], ["without directions"]),
    ({"direction.0": np.ones(256, np.float32)}, {}, [], ["direction.0", "N from 1 on"]),
    ({"direction.01": np.ones(256, np.float32)}, {}, [], ["direction.01"]),
    ({"direction.x": np.ones(256, np.float32)}, {}, [], ["direction.x"]),
    ({"direction.99999": np.ones(256, np.float32)}, {}, [], ["direction.99999"]),
    ({"direction.3": np.ones(256, np.float32)}, {}, [], ["direction.3", "1 to 2", "'tiny'"]),
    ({"direction.1": np.ones(255, np.float32)}, {}, [], ["direction.1", "255 x 1", "256", "'tiny'"]),
    ({"direction.1": np.ones((2, 256), np.float32)}, {}, [], ["direction.1", "256 x 2"]),
    ({"direction.1": np.ones(256, np.float16)}, {}, [], ["direction.1", "F16", "F32"]),
    ({"direction.1": np.full(256, np.inf, np.float32)}, {}, [], ["direction.1", "inf at 0", "not a number up to 1e+18"]),
    ({"direction.1": np.full(256, 1e30, np.float32)}, {}, [], ["direction.1", "1e+30 at 0"]),
    (GOOD, {}, ["--control-vector-layer-range", 2, 1], ["2 to 1", "1 to 2"]),
    (GOOD, {}, ["--control-vector-layer-range", 3, 9], ["3 to 9", "1 to 2"]),
])
def test_refused(run_weft, make_model, tmp_path, tensors, more, options, words):
    model, path = tmp_path / "model.gguf", tmp_path / "vector.gguf"
    make_model.write("llama-yarn", model)
    write(path, tensors, **more)
    done = run_weft(["run", "-m", model, "--ids", "1", "-n", 1, "--control-vector", path, *options])
    assert done.returncode == 1 and done.err.count("\n") == 1 and "vector.gguf" in done.err and all(word in done.err for word in words), done.err


@pytest.mark.parametrize("option, words", [
    (["--control-vector-scaled", "x.gguf"], ["FILE:SCALE", "x.gguf"]), (["--control-vector-scaled", "x.gguf:nan"], ["x.gguf:nan"]),
    (["--control-vector-scaled", "x.gguf:2x"], ["x.gguf:2x"]), (["--control-vector-layer-range=1"], ["two values", "START END"]),
    (["--control-vector-layer-range", "1", "x"], ["whole number", "'x'"]),
])
def test_options(run_weft, tinypy, option, words):
    done = run_weft(["run", "-m", tinypy, "-p", "a", *option])
    assert done.returncode == 2 and all(word in done.err for word in words), done.err
