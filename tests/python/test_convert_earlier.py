"""weft convert: what is particular of folders of earlier decoders (src/model/hf_classes_earlier.c). That their files are those of llama.cpp's converter is tested in test_convert.py."""
import json

import numpy as np
import pytest
from conftest import load_tool

gguf = pytest.importorskip("gguf")
settings = load_tool("../python/test_convert_settings")
folders, RECORDS, keys, made, put = (getattr(settings, n) for n in ("folders", "RECORDS", "keys", "made", "put"))


BLOCKS = RECORDS["deci"]["config"]["block_configs"]


def copy(kind, **config):
    record = json.loads(json.dumps(RECORDS[kind]))
    record["config"] |= config
    return record


@pytest.mark.parametrize("kind, change, expected", [
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (
        ("deepseek1", "deepseek", "norm_topk_prob", True), ("deepseek1", "deepseek", "moe_layer_freq", 2), ("deepseek1", "deepseek", "scoring_func", "sigmoid"), ("ling1", "bailingmoe", "use_qkv_bias", True),
        ("internlm2", "internlm2", "bias", True), ("baichuan", "baichuan", "hidden_act", "gelu"), ("orion", "orion", "attention_bias", True), ("qwen1", "qwen", "rotary_pct", 0.5), ("qwen1", "qwen", "no_bias", False))),
    *((k, {key: None}, f"'{key}': is missing") for k, key in (("deepseek1", "first_k_dense_replace"), ("deepseek1", "n_shared_experts"), ("ling1", "norm_topk_prob"), ("ling1", "num_shared_experts"))),
    ("internlm2", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "'rope_type': 'yarn', which files of internlm2 do not have"),
    ("deepseek1", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'rope_type': 'linear', which files of deepseek do not have"),
    ("internlm2", {"num_key_value_heads": 4}, "160 rows are not those of heads"),
    ("internlm2", {"num_attention_heads": 5}, "160 rows are not those of heads"),
    ("ling1", {"num_attention_heads": 1 << 21}, "2097152 is more than 1048576"),
    ("baichuan", {"num_attention_heads": 64}, "192 rows are not those of heads"),
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (
        ("deci", "deci", "mlp_bias", True), ("bamba", "granitehybrid", "mamba_n_groups", 2), ("openelm", "openelm", "normalize_qk_projections", False), ("openelm", "openelm", "share_input_output_layers", False), ("refact", "refact", "multi_query", False),
        ("codeshell", "codeshell", "position_embedding_type", "absolute"), ("plamo", "plamo", "hidden_act", "gelu"), ("arctic", "arctic", "use_residual", False), ("arctic", "arctic", "moe_layer_frequency", 2), ("chameleon", "chameleon", "attention_bias", True))),
    *(("ling1", {"norm_head": value}, "'norm_head': is not true or false") for value in (1, "true")),
    ("bamba", {"attn_layer_indices": None}, "'attn_layer_indices': is missing"),
    ("bamba", {"attn_layer_indices": [4]}, "'attn_layer_indices': has what is no layer at 0"),
    ("bamba", {"attn_layer_indices": 2}, "'attn_layer_indices': is no list"),
    ("bamba", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}}, "'partial_rotary_factor': 0.25 is not 0.5"),
    ("bamba", {"attn_rotary_emb": 16}, "'attn_rotary_emb': 16 is not half of a head, 16"),
    ("bamba", {"num_attention_heads": 32, "attn_rotary_emb": 1}, "self_attn.q_proj.weight': 64 rows are not those of heads"),
    ("deci", {"block_configs": BLOCKS[:3]}, "'block_configs': is not a list of 4 layers"),
    ("deci", {"block_configs": 4}, "'block_configs': is not a list of 4 layers"),
    ("deci", {"block_configs": [{}, *BLOCKS[1:]]}, "'block_configs': layer 0 has no attention or ffn"),
    *(("deci", {"block_configs": [{**BLOCKS[0], "attention": {"n_heads_in_group": n}}, *BLOCKS[1:]]}, "'block_configs': layer 0 has no attention or ffn, or no groups of its heads") for n in (3, 0, 8, "2")),
    *(("deci", {"block_configs": [BLOCKS[0], {**BLOCKS[1], "ffn": {"ffn_mult": 1.0, **ff}}, *BLOCKS[2:]]}, "'block_configs': layer 1 has a feed-forward of another kind, or no width") for ff in ({"replace_with_linear": True}, {"ffn_mult": -1}, {"ffn_mult": 1e30}, {"ffn_mult": "x"})),
    *(("deci", {"block_configs": [{**BLOCKS[0], part: {**BLOCKS[0][part], "replace_with_linear": 1}}, *BLOCKS[1:]]}, "'block_configs': layer 0: replace_with_linear is not true or false") for part in ("attention", "ffn")),
    ("deci", {"num_attention_heads": 5}, "'block_configs': layer 0 has no attention"),
    ("openelm", {"num_query_heads": [4]}, "'num_query_heads': is not a list of 2 layers"),
    ("openelm", {"num_kv_heads": [2, -3]}, "'num_kv_heads': has what is no count at 1"),
    ("openelm", {"ffn_multipliers": [1.5]}, "'ffn_multipliers': is not a list of 2 layers"),
    ("openelm", {"ffn_multipliers": [1.5, 1e30]}, "'ffn_multipliers': has what gives no width at 1"),
    ("openelm", {"ffn_dim_divisor": 0}, "'ffn_dim_divisor': is 0"),
    ("openelm", {"ffn_dim_divisor": (1 << 32) - 1}, "'ffn_multipliers': has what gives no width at 0"),
    ("openelm", {"head_dim": None}, "'head_dim': is missing"),
    ("refact", {"n_embd": (1 << 32) - 1}, "'n_embd': 4294967295 is too much"),
    ("plamo", {"n_shared_head": 4}, "'n_shared_head': 4 does not divide 6"),
    ("plamo", {"n_shared_head": None}, "'n_shared_head': is missing"),
    ("codeshell", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'rope_type': 'linear', which files of codeshell do not have"),
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


def test_the_head_of_ling_1(run_weft, tmp_path):
    """With norm_head each column is divided by its length."""
    rows, stored = [], np.frombuffer(folders.weights("lm_head.weight", [320, 64], "F32"), np.float32).reshape(320, 64)
    for normed in (True, False):
        source = folders.write(tmp_path / "ling1", copy("ling1", norm_head=normed), "F32")
        assert run_weft(["convert", source, tmp_path / "out.gguf", "--outtype", "f32"]).returncode == 0
        rows.append(next(t.data for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors if t.name == "output.weight").copy())
    assert np.array_equal(rows[1], stored) and np.allclose(rows[0], stored / np.linalg.norm(stored, axis=0), rtol=1e-6, atol=0)


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


def test_heads_of_layers_of_deci_7b(run_weft, tmp_path):
    """Version 1 has a list of key heads, and no other sizes of layers."""
    record = copy("deci", num_key_value_heads_per_layer=[2, 4], num_hidden_layers=2, intermediate_size=256, rope_scaling=None, block_configs=None, num_key_value_heads=4)
    record["tensors"] = {n: s for n, s in record["tensors"].items() if not n.startswith(("model.layers.2", "model.layers.3"))}
    record["tensors"] |= {f"model.layers.1.self_attn.{n}_proj.weight": [64, 64] for n in "kv"} | {f"model.layers.1.mlp.{n}_proj.weight": [64, 256] if n == "down" else [256, 64] for n in ("gate", "up", "down")}
    folder, out = folders.write(tmp_path / "deci", record), tmp_path / "out.gguf"
    k = keys(run_weft, folder, out)[0]
    assert k["deci.attention.head_count_kv"] == [2, 4] and k["deci.attention.head_count"] == 4 and k["deci.feed_forward_length"] == 256 and "deci.attention.key_length" not in k
    assert run_weft(["run", "-m", folder, "--ids", "5,6,7", "-n", "2", "--temp", "0", "--json"]).returncode == 0
    put(folder, lambda c: c.update(num_key_value_heads_per_layer=[2]))
    assert "'num_key_value_heads_per_layer': is not a list of 2 layers" in made(run_weft, folder, out)[0]


def test_norms_of_each_head_of_chameleon(run_weft, tmp_path):
    """Each head has its own, woven as its rows; the converter takes those of the first head."""
    run_weft(["convert", folders.write(tmp_path / "chameleon", RECORDS["chameleon"], "F32"), tmp_path / "out.gguf", "--outtype", "f32"])
    norm = next(t.data for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors if t.name == "blk.1.attn_q_norm.weight")
    stored = np.frombuffer(folders.weights("model.layers.1.self_attn.q_norm.weight", [4, 16], "F32"), np.float32).reshape(4, 2, 8)
    assert np.array_equal(norm, stored.transpose(0, 2, 1).reshape(4, 16))


def test_tokens_of_arctic(run_weft, tmp_path):
    """tokenizer_config.json redefines tokens: special ones are those of SentencePiece's with a score of 0."""
    k = keys(run_weft, folders.write(tmp_path / "arctic", RECORDS["arctic"]), tmp_path / "out.gguf")[0]
    names, types, scores = (k[f"tokenizer.ggml.{n}"] for n in ("tokens", "token_type", "scores"))
    assert [(names[i], types[i], scores[i]) for i in (0, 301, 302)] == [("<unk>", 2, 0), ("[X]", 3, 0), ("<|im_start|>", 4, -10000)]
