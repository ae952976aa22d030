"""Adapters: a model with one computes what the model with the sum in its weights does, and what cannot be such an adapter is refused."""
import json
import math

import gguf
import numpy as np
import pytest

from conftest import load_tool

FAMILY = {"llama-yarn": ["token_embd", "attn_q.", "attn_k.", "attn_v.", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "output."], "qwen35": ["attn_q.", "attn_qkv", "ssm_out", "ffn_"],
          "deepseek2-lite": ["attn_q.", "attn_kv_a_mqa", "attn_output", "ffn_down."],
          # experts, of a layer that has shared ones, and with biases
          "qwen2moe": ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_down_shexp", "attn_q."], "gpt-oss": ["ffn_up_exps", "ffn_down_exps"]}
IDS = [5, 17, 200, 3, 99, 42, 7, 311, 250, 8, 64, 12, 400, 33, 2, 91, 118, 76]
make_adapter = load_tool("make_adapter")
F16, pair, write, of_model = make_adapter.F16, make_adapter.pair, make_adapter.write, make_adapter.of_model


def log_probabilities(run_weft, model, *args, ids=IDS):
    done = run_weft(["run", "-m", model, "-c", 128, "--ids", ",".join(map(str, ids)), "-n", 1, "--ignore-eos", "--temp", 0, "--json", "--top-logprobs", 100000, *args])
    assert done.returncode == 0, done.err
    return dict(map(tuple, json.loads(done.stdout.splitlines()[0])["top"]))


def divergence(p, q):
    return sum(math.exp(p[i]) * (p[i] - q[i]) for i in p)


@pytest.mark.parametrize("family", FAMILY)
def test_as_if_it_were_in_the_weights(run_weft, make_model, tmp_path, family):
    model, merged, one, two = (tmp_path / f"{name}.gguf" for name in ("model", "merged", "one", "two"))
    p = make_model.FAMILIES[family]
    make_model.write(family, model)
    tensors, first = of_model(model, FAMILY[family], 6)
    write(one, p["arch"], tensors)
    tensors, second = of_model(model, FAMILY[family][:2], 3, seed=2, dtype=np.float32)
    write(two, p["arch"], tensors, alpha=None)                  # then the scale is all

    def summed(name, rows):
        out = rows.astype(np.float64)
        for pairs, by in ((first, 0.5 * 16 / 6), (second, -0.75)):
            if name in pairs:
                a, b = pairs[name]
                out += by * (b.astype(np.float64) @ a.astype(np.float64)).reshape(out.shape)
        return gguf.GGMLQuantizationType.F32, out.astype(np.float32)

    make_model.write(family, merged, quant=summed)
    want, plain = log_probabilities(run_weft, merged), log_probabilities(run_weft, model)
    got = log_probabilities(run_weft, model, "--lora", f"{one}:0.5", "--lora-scaled", f"{two}:-0.75")
    assert divergence(want, plain) > 0.1
    assert divergence(want, got) < 1e-5
    assert log_probabilities(run_weft, model, "--lora", f"{one}:0.5", "--lora", f"{two}:-0.75", "-ub", 5) == got        # however a prompt is cut
    assert divergence(plain, log_probabilities(run_weft, model, "--lora", f"{one}:0")) < 1e-9


def test_forms_of_weights(run_weft, make_model, tmp_path):
    """The same numbers as floats of 16 bits and of 32; and codes of 8 bits, which are near them."""
    model, path = tmp_path / "model.gguf", tmp_path / "lora.gguf"
    make_model.write("llama-yarn", model)
    got = []
    for dtype in (F16, np.float32):
        tensors, _ = of_model(model, ["ffn_up", "attn_q."], 32, dtype=dtype)
        write(path, "llama", tensors)
        got.append(log_probabilities(run_weft, model, "--lora", path))
    assert got[0] == got[1]
    w = gguf.GGUFWriter(path, "llama")
    w.add_string("general.type", "adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", 16.0)
    for name, data in tensors.items():
        w.add_tensor(name, gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    assert divergence(got[0], log_probabilities(run_weft, model, "--lora", path)) < 5e-3


def test_other_commands_take_it(run_weft, make_model, tmp_path):
    model, path = tmp_path / "model.gguf", tmp_path / "a:b.gguf"        # a colon in a name is no scale
    make_model.write("llama-yarn", model)
    write(path, "llama", of_model(model, ["ffn_up"], 4)[0])
    embed = ["embed", "-m", model, "--ids", "1,2,3", "--pooling", "mean", "--embd-output-format", "raw"]
    plain, adapted = run_weft(embed), run_weft([*embed, "--lora", path])
    assert plain.returncode == adapted.returncode == 0 and plain.out != adapted.out
    assert run_weft(["bench", "-m", model, "-p", 8, "-n", 2, "-r", 1, "--lora", path]).returncode == 0


A, B = np.zeros((4, 256), F16), np.zeros((256, 4), F16)
Q = "blk.0.attn_q.weight"
GOOD = {Q + ".lora_a": A, Q + ".lora_b": B}
KEYS = (("general.type", "adapter"), ("adapter.type", "lora"))


@pytest.mark.parametrize("arch, tensors, keys, words", [
    ("qwen2", GOOD, KEYS, ["general.architecture", "'qwen2'", "expected 'llama'"]),
    ("llama", GOOD, (("general.type", "model"), ("adapter.type", "lora")), ["general.type", "'model'"]),
    ("llama", GOOD, (("adapter.type", "lora"),), ["general.type"]),
    ("llama", GOOD, (("general.type", "adapter"), ("adapter.type", "ia3")), ["adapter.type", "'ia3'"]),
    ("llama", {}, KEYS, ["without tensors"]),
    ("llama", {Q + ".lora_a": A}, KEYS, [Q + ".lora_b", "missing"]),
    ("llama", {Q + ".lora_b": B}, KEYS, [Q + ".lora_a", "missing"]),
    ("llama", {**GOOD, "x.weight": A}, KEYS, ["x.weight"]),
    ("llama", {"blk.9.attn_q.weight.lora_a": A, "blk.9.attn_q.weight.lora_b": B}, KEYS, ["blk.9.attn_q.weight", "has no"]),
    ("llama", {Q + ".lora_a": np.zeros((4, 255), F16), Q + ".lora_b": B}, KEYS, ["255", "256", Q]),
    ("llama", {Q + ".lora_a": A, Q + ".lora_b": np.zeros((64, 4), F16)}, KEYS, ["64", "256", Q]),
    ("llama", {Q + ".lora_a": A, Q + ".lora_b": np.zeros((256, 5), F16)}, KEYS, ["rank 5", "4"]),
    ("llama", {Q + ".lora_a": np.zeros((0, 256), F16), Q + ".lora_b": np.zeros((256, 0), F16)}, KEYS, [Q, "is 0, not positive"]),
    ("llama", {Q + ".lora_a": np.zeros((16385, 256), F16), Q + ".lora_b": np.zeros((256, 16385), F16)}, KEYS, [Q, "rank 16385", "at most 16384"]),
    ("llama", {Q + ".lora_a": A.reshape(2, 2, 256), Q + ".lora_b": B}, KEYS, [Q + ".lora_a", "2 matrices", "has 1"]),
    ("llama", {Q + ".lora_a": A.astype(np.int32), Q + ".lora_b": B}, KEYS, ["I32"]),
    ("llama", {"token_embd.weight.lora_a": A, "token_embd.weight.lora_b": np.zeros((509, 4), F16)}, KEYS, ["token_embd.weight", "4 rows", "509"]),
    # A x would be infinite, and no number for tokens whose scale is 0
    ("llama", {Q + ".lora_a": np.full((4, 256), 3e38, np.float32), Q + ".lora_b": B}, KEYS, [Q + ".lora_a", "no number up to 1e+18"]),
    ("llama", {Q + ".lora_a": A, Q + ".lora_b": np.full((256, 4), -2e18, np.float32)}, KEYS, [Q + ".lora_b", "no number up to 1e+18"]),
    ("llama", {"output_norm.weight.lora_a": A, "output_norm.weight.lora_b": np.zeros((1, 4), F16)}, KEYS, ["output_norm.weight", "adapter"]),
])
def test_refused(run_weft, make_model, tmp_path, arch, tensors, keys, words):
    model, path = tmp_path / "model.gguf", tmp_path / "lora.gguf"
    make_model.write("llama-yarn", model)
    write(path, arch, tensors, keys)
    done = run_weft(["run", "-m", model, "--ids", "1", "-n", 1, "--lora", path])
    assert done.returncode == 1 and done.err.count("\n") == 1 and all(word in done.err for word in words), done.err


def test_no_file_and_no_number(run_weft, make_model, tmp_path):
    model, path = tmp_path / "model.gguf", tmp_path / "lora.gguf"
    make_model.write("llama-yarn", model)
    write(path, "llama", GOOD)
    for lora, words in ((tmp_path / "none.gguf", "none.gguf"), (f"{path}:nan", "nan"), (f"{path}:x", ":x")):
        done = run_weft(["run", "-m", model, "--ids", "1", "-n", 1, "--lora", lora])
        assert done.returncode == 1 and words in done.err and done.err.count("\n") == 1, done.err


CALL = [7, 311]                                               # activation tokens


def test_an_adapter_from_its_activation_tokens_on(run_weft, make_model, tmp_path):
    """The oracle is a model whose embeddings of the tokens from there on, which do not occur before, have the adapter's additions."""
    model, merged, lora = (tmp_path / f"{name}.gguf" for name in ("model", "merged", "lora"))
    make_model.write("llama-yarn", model)
    tensors, pairs = of_model(model, ["token_embd"], 6)
    write(lora, "llama", tensors, invocation=CALL)
    before, after = [5, 17, 200, 3, 99, 42], [*CALL, 250, 8, 64, 12, 250]
    a, b = pairs["token_embd.weight"]

    def summed(name, rows):
        out = rows.astype(np.float64)
        if name == "token_embd.weight":
            changed = sorted({*after})
            out[changed] += (16 / 6 * (b.astype(np.float64) @ a.astype(np.float64)).reshape(out.shape))[changed]
        return gguf.GGMLQuantizationType.F32, out.astype(np.float32)

    make_model.write("llama-yarn", merged, quant=summed)
    want, plain = (log_probabilities(run_weft, m, ids=before + after) for m in (merged, model))
    got = log_probabilities(run_weft, model, "--lora", lora, ids=before + after)
    assert divergence(want, plain) > 1e-3 and divergence(want, got) < 1e-5
    assert divergence(log_probabilities(run_weft, model, "--lora-scaled", f"{lora}:0.5", ids=before + after), want) > 1e-5
    for ids in (before, before + CALL[:1], before + CALL[::-1], CALL[1:]):           # not called: the model's own bits
        assert log_probabilities(run_weft, model, "--lora", lora, ids=ids) == log_probabilities(run_weft, model, ids=ids)


@pytest.mark.parametrize("family", ["llama-yarn", "qwen35", "qwen2moe"])
def test_the_last_call_counts(run_weft, make_model, tmp_path, family):
    model, lora, called = (tmp_path / f"{name}.gguf" for name in ("model", "lora", "called"))
    make_model.write(family, model)
    arch = make_model.FAMILIES[family]["arch"]
    tensors, _ = of_model(model, FAMILY[family], 6)
    write(lora, arch, tensors)
    write(called, arch, tensors, invocation=CALL)
    rest = [5, 17, 200, 3, 99, 42, 250, 8]
    at_once, late, twice = [*CALL, *rest], [*rest, *CALL, 5, 9], [*CALL, *rest, *CALL, 5, 9]

    def of(*args, ids):
        return log_probabilities(run_weft, model, *args, ids=ids)

    assert of("--lora", called, ids=at_once) == of("--lora", lora, ids=at_once)                # from the beginning
    got = of("--lora", called, ids=late)
    assert got == of("--lora", called, "-ub", 5, ids=late)                                    # however a prompt is cut
    assert divergence(of(ids=late), got) > 1e-6 and divergence(of("--lora", lora, ids=late), got) > 1e-6
    assert divergence(of("--lora", lora, ids=twice), of("--lora", called, ids=twice)) > 1e-6  # the first call is none


@pytest.mark.parametrize("invocation", [[], [-1], [1 << 30]])
def test_activation_tokens_that_are_none(run_weft, make_model, tmp_path, invocation):
    model, lora = tmp_path / "model.gguf", tmp_path / "lora.gguf"
    make_model.write("llama-yarn", model)
    w = gguf.GGUFWriter(lora, "llama")
    for name, value in (("general.type", "adapter"), ("adapter.type", "lora")):
        w.add_string(name, value)
    w.add_key_value("adapter.alora.invocation_tokens", invocation or "text", gguf.GGUFValueType.ARRAY if invocation else gguf.GGUFValueType.STRING, sub_type=gguf.GGUFValueType.INT32 if invocation else None)
    for name, data in of_model(model, ["attn_q."], 2)[0].items():
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    done = run_weft(["run", "-m", model, "--lora", lora, "--ids", "1,2", "-n", 1])
    assert done.returncode == 1 and "adapter.alora.invocation_tokens" in done.err, done.err
