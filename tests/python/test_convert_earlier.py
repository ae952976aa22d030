"""weft convert: what is particular of folders of earlier decoders (src/model/hf_classes_earlier.c). That their files are those of llama.cpp's converter is tested in test_convert.py."""
import json

import numpy as np
import pytest
from conftest import load_tool

gguf = pytest.importorskip("gguf")
settings = load_tool("../python/test_convert_settings")
folders, RECORDS, keys, made, put = (getattr(settings, n) for n in ("folders", "RECORDS", "keys", "made", "put"))


def copy(kind, **config):
    record = json.loads(json.dumps(RECORDS[kind]))
    record["config"] |= config
    return record


@pytest.mark.parametrize("kind, change, expected", [
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (
        ("deepseek1", "deepseek", "norm_topk_prob", True), ("deepseek1", "deepseek", "moe_layer_freq", 2), ("deepseek1", "deepseek", "scoring_func", "sigmoid"), ("ling1", "bailingmoe", "norm_head", True), ("ling1", "bailingmoe", "use_qkv_bias", True),
        ("internlm2", "internlm2", "bias", True), ("baichuan", "baichuan", "hidden_act", "gelu"), ("orion", "orion", "attention_bias", True), ("qwen1", "qwen", "rotary_pct", 0.5), ("qwen1", "qwen", "no_bias", False))),
    *((k, {key: None}, f"'{key}': is missing") for k, key in (("deepseek1", "first_k_dense_replace"), ("deepseek1", "n_shared_experts"), ("ling1", "norm_topk_prob"), ("ling1", "num_shared_experts"))),
    ("internlm2", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "'rope_type': 'yarn', which files of internlm2 do not have"),
    ("deepseek1", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'rope_type': 'linear', which files of deepseek do not have"),
    ("internlm2", {"num_key_value_heads": 4}, "160 rows are not those of heads"),
    ("internlm2", {"num_attention_heads": 5}, "160 rows are not those of heads"),
    ("ling1", {"num_attention_heads": 1 << 21}, "2097152 is more than 1048576"),
    ("baichuan", {"num_attention_heads": 64}, "192 rows are not those of heads"),
    ("qwen1", {"kv_channels": 32}, "'kv_channels': 32 is not hidden_size divided by num_attention_heads"),
])
def test_settings_without_a_key(run_weft, tmp_path, kind, change, expected):
    folder = folders.write(tmp_path / kind, RECORDS[kind])
    put(folder, lambda c: c.update(change))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert expected in error and not bytes_, error


def test_the_head_of_baichuan_2(run_weft, tmp_path):
    """Each row is divided by its length; only the number of tokens tells it from version 1."""
    rows = []
    for n in (125695, 125696):
        record = copy("baichuan", vocab_size=n, hidden_size=16, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1)
        shape = {"model.embed_tokens.weight": [n, 16], "lm_head.weight": [n, 16], "model.norm.weight": [16]}
        layer = {"input_layernorm": [16], "post_attention_layernorm": [16], "self_attn.W_pack": [48, 16], "self_attn.o_proj": [16, 16], "mlp.gate_proj": [8, 16], "mlp.up_proj": [8, 16], "mlp.down_proj": [16, 8]}
        record["tensors"] = {**shape, **{f"model.layers.0.{k}.weight": v for k, v in layer.items()}}
        source = folders.write(tmp_path / str(n) / "baichuan", record, "F32")
        assert run_weft(["convert", source, tmp_path / "out.gguf", "--outtype", "f32"]).returncode == 0
        rows.append(next(t.data for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors if t.name == "output.weight").copy())
        stored = np.frombuffer(folders.weights("lm_head.weight", [n, 16], "F32"), np.float32).reshape(n, 16)
        assert np.array_equal(rows[-1], stored) == (n == 125695)
    length = np.sqrt((stored.astype(np.float64) ** 2).sum(1, keepdims=True))
    assert np.allclose(rows[1], stored / length, rtol=1e-6, atol=0)


def test_tokens_of_internlm2(run_weft, tmp_path):
    """The piece that is NUL becomes a sign, unused ones are said to be, and what ends an answer is known by its text."""
    folder, out = folders.write(tmp_path / "internlm2", RECORDS["internlm2"]), tmp_path / "out.gguf"
    k = keys(run_weft, folder, out)[0]
    assert k["tokenizer.ggml.eos_token_id"] == 260 and k["tokenizer.ggml.tokens"][5] == "<|im_start|> x" and [k["tokenizer.ggml.token_type"][i] for i in (5, 260, 261)] == [4, 3, 4]
    said = (folder / "tokenizer.model").read_bytes()
    a, b = (folders.message((1, folders.message((1, t), (2, float(-i)), (3, 1)))) for t, i in (("\u2581a", 259), ("\u2581b", 260)))
    assert said.count(a) == 1 and said.count(b) == 1
    (folder / "tokenizer.model").write_bytes(said.replace(a, folders.message((1, folders.message((1, "\0"), (2, -259.0), (3, 1))))).replace(b, folders.message((1, folders.message((1, "[UNUSED_TOKEN_1]"), (2, -260.0), (3, 1))))))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"}))
    k = keys(run_weft, folder, out)[0]
    assert k["tokenizer.ggml.tokens"][259:261] == ["\U0001f409", "[UNUSED_TOKEN_1]"] and k["tokenizer.ggml.token_type"][259:261] == [1, 5] and k["tokenizer.ggml.eos_token_id"] == 2


def test_what_folders_of_qwen_1_say(run_weft, tmp_path):
    """They call the epsilon of RMS norms that of layer norms. A role that config.json names stays; the others are the first special token's."""
    folder, out = folders.write(tmp_path / "qwen1", RECORDS["qwen1"]), tmp_path / "out.gguf"
    assert [keys(run_weft, folder, out)[0][f"tokenizer.ggml.{n}_token_id"] for n in ("bos", "eos", "unknown")] == [269] * 3
    put(folder, lambda c: c.update(layer_norm_epsilon=0.25, rms_norm_eps=None, eos_token_id=271))
    k = keys(run_weft, folder, out)[0]
    assert k["qwen.attention.layer_norm_rms_epsilon"] == 0.25 and "qwen.attention.layer_norm_epsilon" not in k
    assert k["tokenizer.ggml.eos_token_id"] == 271 and "tokenizer.ggml.bos_token_id" not in k and k["tokenizer.ggml.unknown_token_id"] == 269


def test_positions_of_orion(run_weft, tmp_path):
    """max_sequence_length comes before max_position_embeddings."""
    folder, out = folders.write(tmp_path / "orion", RECORDS["orion"]), tmp_path / "out.gguf"
    assert keys(run_weft, folder, out)[0]["orion.context_length"] == 256
    put(folder, lambda c: c.pop("max_sequence_length"))
    assert keys(run_weft, folder, out)[0]["orion.context_length"] == 512


def test_the_first_name_of_baichuan(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "baichuan", RECORDS["baichuan"]), tmp_path / "out.gguf"
    expected = made(run_weft, folder, out)
    put(folder, lambda c: c.update(architectures=["BaiChuanForCausalLM"]))
    assert made(run_weft, folder, out) == expected and expected[1], expected[0]
