"""weft convert: what is particular of folders of further mixtures of experts (src/model/hf_classes_mixtures.c). That their files are those of llama.cpp's converter is tested in test_convert.py."""
import json
import zlib

import numpy as np
import pytest
from conftest import load_tool

gguf = pytest.importorskip("gguf")
settings = load_tool("../python/test_convert_settings")
folders, RECORDS, both_forms, keys, made, put = (getattr(settings, n) for n in ("folders", "RECORDS", "both_forms", "keys", "made", "put"))
KINDS = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"]
ROTATES = {"main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
           "compress": {"rope_type": "yarn", "rope_theta": 160000.0, "partial_rotary_factor": 0.25, "attention_factor": 1.0, "factor": 16.0, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1}}
V4_SAVED = ("compress_ratios", "num_hash_layers", "rope_scaling", "rope_theta", "compress_rope_theta", "topk_method", "qk_rope_head_dim")
V4_CHANGE = {"layer_types": KINDS, "mlp_layer_types": ["hash_moe"] + ["moe"] * 3, "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}, "rope_parameters": ROTATES, "partial_rotary_factor": 0.25}


def test_deepseek_v4_as_transformers_saves_it(run_weft, tmp_path):
    """Layers, tables and rotations by names. The published list of layers goes on with the one that predicts a further token."""
    put_ratios = {"compress_ratios": [0, 4, 128, 4]}
    record = json.loads(json.dumps(RECORDS["deepseek4"]))
    record["config"] |= put_ratios
    published = made(run_weft, folders.write(tmp_path / "four" / "deepseek4", record), tmp_path / "out.gguf")
    _, saved = both_forms(run_weft, tmp_path, "deepseek4", V4_SAVED, V4_CHANGE)
    assert saved == published and len(saved[1]) > 100000, saved[0]


def test_names_of_deepseek_v4_as_transformers_saves_them(run_weft, tmp_path):
    record, out = RECORDS["deepseek4"], tmp_path / "out.gguf"
    names = {n: n for n in record["tensors"] if not n.startswith(("mtp.", "image_", "head."))}
    for a, b in (("layers.", "model.layers."), ("embed.", "model.embed_tokens."), ("hc_head_", "model.hc_head.hc_"), ("norm.weight", "model.norm.weight")):
        names = {n: b + to.removeprefix(a) if to.startswith(a) else to for n, to in names.items()}
    names = {n: to.replace("attn.kv_norm.", "attn.norm.") for n, to in names.items()}
    renamed = {k: {names.get(n, n): v for n, v in record[k].items()} for k in ("tensors", "codes", "integers")}
    shapes = []
    for name, of in (("published", record), ("saved", {**record, **renamed})):
        keys(run_weft, folders.write(tmp_path / name / "deepseek4", of), out)
        shapes.append({t.name: t.shape.tolist() for t in gguf.GGUFReader(out).tensors})
    assert shapes[0] == shapes[1] and sum(n != to for n, to in names.items()) == len(names)


def of_8_bits(folder):
    """Matrices of attention and shared experts as F8_E4M3 with scales that are powers of two, and the same as floats."""
    record = RECORDS["deepseek4"]
    tensors = {n: ("BF16", s, folders.weights(n, s, "BF16")) for n, s in record["tensors"].items()}
    tensors |= {n: (of, record["tensors"][n], folders.codes(n, record["tensors"][n], of)) for n, of in record["codes"].items()}
    tensors |= {n: ("I64", list(np.shape(v)), np.array(v, np.int64).tobytes()) for n, v in record["integers"].items()}
    small, floats = dict(tensors), dict(tensors)
    for name in [n for n in tensors if ".attn.w" in n or ".shared_experts." in n]:
        shape, random = tensors[name][1], np.random.RandomState(zlib.crc32(name.encode()))
        codes, scale = random.randint(0, 120, shape).astype(np.uint8), random.randint(112, 120, [-(-n // 16) for n in shape]).astype(np.uint8)
        wide = np.repeat(np.repeat(np.ldexp(np.float32(1), scale.astype(np.int32) - 127), 16, 0), 16, 1)[:shape[0], :shape[1]]
        small[name], small[name.replace(".weight", ".scale")] = ("F8_E4M3", shape, codes.tobytes()), ("F8_E8M0", list(scale.shape), scale.tobytes())
        floats[name] = ("F32", shape, (folders.e4m3(codes) * wide).astype(np.float32).tobytes())
    made = []
    for name, some in (("small", small), ("floats", floats)):
        made.append(folders.write(folder / name / "deepseek4", record))
        put(made[-1], lambda c: c["quantization_config"].update(weight_block_size=[16, 16]))
        folders.safetensors(made[-1] / "model.safetensors", some)
    return made, small


def test_weights_of_8_bits_of_deepseek_v4(run_weft, tmp_path):
    """Scales of blocks are powers of two; the product is exact in BF16."""
    values = []
    (small, floats), _ = of_8_bits(tmp_path)
    for folder in (small, floats):
        assert run_weft(["convert", folder, tmp_path / "out.gguf", "--outtype", "bf16"]).returncode == 0
        tensors = gguf.GGUFReader(tmp_path / "out.gguf").tensors
        values.append({t.name: (t.data if t.tensor_type.name == "I32" else gguf.dequantize(t.data, t.tensor_type)).tobytes() for t in tensors})
        types = {t.name: t.tensor_type.name for t in tensors}
    assert values[0] == values[1] and len(values[0]) > 100
    assert types["blk.1.attn_q_a.weight"] == "F32" and types["blk.1.ffn_gate_exps.weight"] == "MXFP4" and types["token_embd.weight"] == "BF16"


@pytest.mark.parametrize("change, expected", [
    (lambda t: t.update({"layers.1.ffn.experts.0.w1.scale": ("F8_E8M0", [32, 1], bytes(32))}), "key 'layers.1.ffn.experts.0.w1.weight': has no scales, or not one for each 32 weights"),
    (lambda t: t.update({"layers.1.attn.wq_a.scale": ("F8_E8M0", [1, 1], bytes(1))}), "key 'layers.1.attn.wq_a.scale': has another shape than 2 x 4, the blocks of 24 x 64 weights"),
    (lambda t: t.pop("layers.1.attn.wq_a.scale"), "key 'layers.1.attn.wq_a.weight': has no scales"),
    (lambda t: t.update({"layers.1.attn.x.scale": ("F8_E8M0", [1, 1], bytes(1))}), "key 'layers.1.attn.x.scale': there is no matrix that has these scales"),
    (lambda t: t.update({"layers.0.ffn.gate.tid2eid": ("I32", [320, 2], bytes(2560))}), "key 'layers.0.ffn.gate.tid2eid': is no table of integers of 64 bits"),
    (lambda t: t.update({"layers.0.ffn.gate.tid2eid": ("I64", [320, 2], b"\xff" * 7 + bytes(5113))}), "key 'layers.0.ffn.gate.tid2eid': number 0, 72057594037927935, is not of 32 bits"),
    (lambda t: t.update({"layers.0.attn.wq_a.scale": ("F8_E8M0", [2, 4], b"\xff" * 8)}), "has a value that is no number"),
])
def test_scales_and_tables_that_are_none(run_weft, tmp_path, change, expected):
    (small, _), tensors = of_8_bits(tmp_path)
    change(tensors)
    folders.safetensors(small / "model.safetensors", tensors)
    error, bytes_ = made(run_weft, small, tmp_path / "out.gguf")
    assert expected in error and not bytes_, error


YARN = RECORDS["deepseek4"]["config"]["rope_scaling"]


@pytest.mark.parametrize("kind, change, expected", [
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (
        ("deepseek4", "deepseek4", "scoring_func", "sigmoid"), ("deepseek4", "deepseek4", "norm_topk_prob", False), ("deepseek4", "deepseek4", "num_key_value_heads", 2),
        ("glm", "chatglm", "hidden_act", "gelu"), ("solar", "glm4moe", "use_qk_norm", True), ("solar", "glm4moe", "first_k_dense_replace", 1), ("internlm3", "llama", "qkv_bias", True), ("internlm3", "llama", "bias", True),
        ("ling2", "bailingmoe2", "norm_head", True), ("ling2", "bailingmoe2", "use_qk_norm", False), ("ling2", "bailingmoe2", "moe_router_enable_expert_bias", False), ("ling2", "bailingmoe2", "score_function", "softmax"))),
    *(("ling2", {key: None}, f"'{key}': is missing") for key in ("routed_scaling_factor", "first_k_dense_replace", "num_shared_experts")),
    ("ling2", {"num_shared_experts": 1 << 31, "moe_shared_expert_intermediate_size": None}, "'num_shared_experts': 2147483648 is too much"),
    *(("step37", {key: value}, f"'{key}': {json.dumps(value)}, but files of step35") for key, value in (("use_qk_norm", False), ("norm_expert_weight", False), ("use_head_wise_attn_gate", False), ("moe_every_n_layer", 2), ("mlp_bias", True))),
    ("step37", {"sliding_window": None}, "'sliding_window': is missing"),
    ("step37", {"layer_types": None}, "'layer_types': is not a list of 4 layers"),
    ("step37", {"layer_types": ["full_attention", "chunked", "sliding_attention", "full_attention"]}, "'layer_types': has 'chunked'"),
    ("step37", {"rope_theta": [5e6, 1e4, 2e4, 5e6, 1e4]}, "'rope_theta': has another number than other layers of its kind at 2"),
    ("step37", {"rope_theta": [5e6, 1e4]}, "'rope_theta': is not a list of 5 layers"),
    ("step37", {"moe_layers_enum": "1,3"}, "'moe_layers_enum': are not all layers from the first of them on"),
    ("step37", {"moe_layers_enum": "1,2"}, "'moe_layers_enum': do not end with the last layer"),
    ("step37", {"moe_layers_enum": "1,2,3;"}, "'moe_layers_enum': are not all layers"),
    ("step37", {"moe_layers_enum": [1, 2, 3]}, "'moe_layers_enum': is not a text"),
    ("step37", {"swiglu_limits": [0.5]}, "'swiglu_limits': is not a list of 4 layers or more"),
    ("step37", {"swiglu_limits": [0.5, 1e39, 1, 1]}, "'swiglu_limits': has no number at 1"),
    *(("step37", {"partial_rotary_factors": v}, "'partial_rotary_factors': are 1, and 1 in layers with a window, but files of step35 are of 0.5 and 1") for v in (None, [1.0] * 5)),
    ("step37", {"partial_rotary_factors": 0.5}, "'partial_rotary_factors': is not a list of 5 layers"),
    *(("step37", {"moe_layers_enum": v}, "'moe_layers_enum': do not end with the last layer") for v in ("1,", "1,2,")),
    *(("step37", {"rope_scaling": {"rope_type": "llama3", k: v}}, "'rope_type': llama3 with factors that are no such") for k, v in (("factor", 1e30), ("factor", 1e-30), ("low_freq_factor", 1e-30), ("high_freq_factor", 1e30), ("original_max_position_embeddings", 1e30))),
    ("step37", {"rope_scaling": {"rope_type": "llama3", "factor": 1e308}}, "'factor': is not a finite number of 32 bits"),
    ("ling2", {"rotary_dim": 16}, "'rotary_dim': 16, but 0.5 of 16 elements are rotated"),
    ("ling3", {"expert_swiglu_limit_list": [1e39]}, "'expert_swiglu_limit_list': has no number at 0"),
    ("step37", {"swiglu_limits_shared": [0, 0, "x", 0]}, "'swiglu_limits_shared': has no number at 2"),
    ("step37", {"rope_scaling": {"rope_type": "llama3", "factor": -1}}, "'rope_type': llama3 with factors that are no such"),
    ("step37", {"rope_scaling": {"rope_type": "dynamic"}}, "'rope_type': 'dynamic' is not known"),
    *(("kimik3", {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of kimi-k3") for key, value in (("hidden_act", "silu"), ("mla_use_nope", False), ("num_expert_group", 2), ("moe_router_activation_func", "softmax"))),
    *(("kimik3", {key: None}, f"'{key}': is missing") for key in ("hidden_act", "mla_use_nope", "activation_situ_beta", "attn_res_block_size", "moe_renormalize", "routed_scaling_factor")),
    ("kimik3", {"linear_attn_config": {"full_attn_layers": [5], "head_dim": 32, "num_heads": 4}}, "'full_attn_layers': has what is no layer from 1 to 4"),
    *(("ling3", {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of bailingmoe3") for key, value in (("no_kda_lora", False), ("kda_safe_gate", False), ("gated_attention_proj_granularity_type", "element_wise"), ("score_function", "softmax"))),
    ("ling3", {"layer_group_size": 3}, "'layer_group_size': 3 does not divide 4 layers, and layer_types is missing"),
    ("ling3", {"layer_types": ["full_attention"]}, "'layer_types': is not a list of 4 layers"),
    ("ling3", {"expert_swiglu_limit_list": ["x"]}, "'expert_swiglu_limit_list': has no number at 0"),
    ("ling3", {"share_expert_swiglu_limit_list": 3}, "'share_expert_swiglu_limit_list': is not a list"),
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (("starcoder", "starcoder", "multi_query", False), ("starcoder", "starcoder", "activation_function", "relu"), ("exaone3", "exaone", "activation_function", "gelu"))),
    ("exaone3", {"rope_scaling": {"rope_type": "dynamic"}}, "'rope_type': 'dynamic' is not known"),
    ("internlm3", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'rope_type': 'yarn', which files of llama do not have"),
    ("glm", {"rope_parameters": {"mrope_section": [2, 3, 3]}}, "'mrope_section': positions of pictures are not known"),
    ("deepseek4", {"compress_ratios": [0, 4, 128]}, "'compress_ratios': is not a list of 4 layers"),
    ("deepseek4", {"compress_ratios": [0, 4, 64, 4]}, "'compress_ratios': has what is neither 0, 4 nor 128 at 2"),
    ("deepseek4", {"compress_ratios": [(1 << 32) + 4, 4, 128, 4]}, "'compress_ratios': has what is neither 0, 4 nor 128 at 0"),
    ("deepseek4", {"compress_ratios": 4}, "'compress_ratios': is not a list"),
    *(("deepseek4", {"rope_parameters": {**ROTATES, k: 5}}, f"'{k}': is not an object") for k in ("main", "compress")),
    *(("deepseek4", {"rope_parameters": {**ROTATES, k: {"rope_type": 5}}}, "'rope_type': is not a text") for k in ("main", "compress")),
    ("deepseek4", {"layer_types": KINDS[:3]}, "'layer_types': is not a list of 4 layers"),
    ("deepseek4", {"compress_rates": {"heavily_compressed_attention": 64}}, "'heavily_compressed_attention': 64, but files of deepseek4 are of 128"),
    ("deepseek4", {"mlp_layer_types": ["moe", "hash_moe", "moe", "moe"]}, "'mlp_layer_types': has 'hash_moe' after 'moe'"),
    ("deepseek4", {"rope_scaling": {**YARN, "attention_factor": 1.2}}, "'attention_factor': is not 1, which files of deepseek4 mean"),
    ("deepseek4", {"rope_parameters": {**ROTATES, "compress": {k: v for k, v in ROTATES["compress"].items() if k != "attention_factor"}}}, "'attention_factor': is not 1"),
    ("deepseek4", {"rope_parameters": {**ROTATES, "main": {**ROTATES["main"], "rope_type": "linear"}}}, "'rope_type': 'linear' of main, which is not scaled"),
    ("deepseek4", {"qk_rope_head_dim": None, "partial_rotary_factor": 2.0}, "'partial_rotary_factor': is not from 0 to 1"),
    ("deepseek4", {"hidden_size": 1 << 31}, "'hc_mult': gives embedding_length_out"),
])
def test_settings_without_a_key(run_weft, tmp_path, kind, change, expected):
    folder = folders.write(tmp_path / kind, RECORDS[kind])
    put(folder, lambda c: c.update(change))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert expected in error and not bytes_, error


def test_a_rotated_part_of_ling_2_that_is_its_share(run_weft, tmp_path):
    folder = folders.write(tmp_path / "ling2", RECORDS["ling2"])
    expected = made(run_weft, folder, tmp_path / "out.gguf")
    put(folder, lambda c: c.update(rotary_dim=8))
    assert made(run_weft, folder, tmp_path / "out.gguf") == expected and expected[1]


def test_defaults_of_deepseek_v4(run_weft, tmp_path):
    """Those of transformers' class, and its order of layers if the folder has none: three with tables, three with entries of 128 positions, one with entries of four."""
    record = json.loads(json.dumps(RECORDS["deepseek4"]))
    of = {k: {n: v for n, v in record[k].items() if not n.startswith(("layers.1.attn.compressor", "layers.1.attn.indexer"))} for k in ("tensors", "integers", "codes")}
    for k, some in of.items():
        entries = {n.replace("layers.2.", f"layers.{i}."): v for i in (0, 1) for n, v in some.items() if n.startswith("layers.2.attn.compressor")}
        record[k] = {**some, **entries, **{n.replace("layers.0.", f"layers.{i}."): v for i in (1, 2) for n, v in some.items() if n.endswith("0.ffn.gate.tid2eid")}}
    for key in ("compress_ratios", "num_hash_layers", "qk_rope_head_dim", "swiglu_limit", "index_topk", "sliding_window", "hc_sinkhorn_iters", "routed_scaling_factor", "norm_topk_prob", "scoring_func"):
        del record["config"][key]
    k = {n.removeprefix("deepseek4."): v for n, v in keys(run_weft, folders.write(tmp_path / "deepseek4", record), tmp_path / "out.gguf")[0].items()}
    assert [k["attention.compress_ratios"], k["hash_layer_count"], k["rope.dimension_count"], k["swiglu_clamp_exp"], k["expert_gating_func"]] == [[128, 128, 128, 4], 3, 4, [10.0] * 4, 4]
    assert [k["attention.indexer.top_k"], k["attention.sliding_window"], k["hyper_connection.sinkhorn_iterations"], k["expert_weights_scale"], k["expert_weights_norm"]] == [512, 128, 20, 1.5, True]


def test_what_files_of_glm_say(run_weft, tmp_path):
    """The context, the epsilon and the base of rotation, which the converter takes from other keys. The size of a head only if the width does not give it."""
    folder, out = folders.write(tmp_path / "glm", RECORDS["glm"]), tmp_path / "out.gguf"
    put(folder, lambda c: c.update(max_position_embeddings=300, rms_norm_eps=0.25, rope_parameters={"rope_type": "default", "rope_theta": 5e6}))
    k = {n.removeprefix("chatglm."): v for n, v in keys(run_weft, folder, out)[0].items()}
    assert [k["context_length"], k["attention.layer_norm_rms_epsilon"], k["rope.freq_base"], k["rope.dimension_count"]] == [300, 0.25, 5e6, 8] and "attention.key_length" not in k
    put(folder, lambda c: [c.pop(key) for key in ("rms_norm_eps", "rope_parameters", "head_dim")])
    error, _ = made(run_weft, folder, out)                 # heads of 128 elements, the class's default, are not those of the folder
    assert "attn_q" in error, error


def test_tokens_of_glm_and_solar(run_weft, tmp_path):
    """Those with roles have fixed names; a role that the folder gives stays."""
    for kind, lacks, token in (("glm", "<|user|>", 271), ("solar", "<|startoftext|>", 270)):
        folder, out = folders.write(tmp_path / kind, RECORDS[kind]), tmp_path / "out.gguf"
        k = keys(run_weft, folder, out)[0]
        assert k["tokenizer.ggml.eot_token_id" if kind == "glm" else "tokenizer.ggml.bos_token_id"] == token
        assert kind == "solar" or k["tokenizer.ggml.add_bos_token"] is False
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        for t in tokenizer["added_tokens"]:
            t["content"] = "<|other|>" if t["content"] == lacks else t["content"]
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        assert f"key 'added_tokens': has no {lacks}" in made(run_weft, folder, out)[0]


def test_the_rotated_share_of_solar(run_weft, tmp_path):
    """All of a head, if the folder does not say it; the converter takes half."""
    folder, out = folders.write(tmp_path / "solar", RECORDS["solar"]), tmp_path / "out.gguf"
    put(folder, lambda c: c["rope_parameters"].pop("partial_rotary_factor"))
    assert keys(run_weft, folder, out)[0]["glm4moe.rope.dimension_count"] == 32
    put(folder, lambda c: c["rope_parameters"].update(partial_rotary_factor=0.5))
    assert keys(run_weft, folder, out)[0]["glm4moe.rope.dimension_count"] == 16


def test_what_ends_an_answer_of_internlm3(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "internlm3", RECORDS["internlm3"]), tmp_path / "out.gguf"
    assert keys(run_weft, folder, out)[0]["tokenizer.ggml.eos_token_id"] == 5
    settings_ = json.loads((folder / "tokenizer_config.json").read_text())
    settings_["added_tokens_decoder"]["5"]["special"] = False
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_))
    assert keys(run_weft, folder, out)[0]["tokenizer.ggml.eos_token_id"] == 2


def as_stored(record):
    return {n: ("F32", s, folders.weights(n, s, "F32")) for n, s in record["tensors"].items()}


def test_queries_keys_and_values_of_mimo_in_one_matrix(run_weft, tmp_path):
    """Answers are those of the folder with three."""
    apart, record, answers = as_stored(RECORDS["mimo2"]), RECORDS["mimo2"], []
    fused = {n: t for n, t in apart.items() if not n.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))}
    for name, (_, shape, data) in apart.items():
        if name.endswith("q_proj.weight"):
            parts = [(shape, data), *(apart[name.replace("q_proj", p)][1:] for p in ("k_proj", "v_proj"))]
            fused[name.replace("q_proj", "qkv_proj")] = ("F32", [sum(s[0] for s, _ in parts), 64], b"".join(d for _, d in parts))
    for name, tensors in (("apart", apart), ("fused", fused)):
        folder = folders.write(tmp_path / name, record, "F32")
        put(folder, lambda c: c.update(attention_projection_layout="split" if name == "apart" else "fused_qkv"))      # noqa: B023
        folders.safetensors(folder / "model.safetensors", tensors)
        done = run_weft(["run", "-m", folder, "--ids", ",".join(str(5 * i % 300) for i in range(40)), "-n", "1", "--json", "--top-logprobs", "320", "--temp", "0", "--precision", "exact"])
        assert done.returncode == 0, done.err
        answers.append(dict(json.loads(done.stdout.splitlines()[0])["top"]))
    assert len(fused) == len(apart) - 2 * 6 and answers[0] == pytest.approx(answers[1], abs=1e-5)


@pytest.mark.parametrize("change, expected", [
    (lambda t: t.update({"model.layers.0.self_attn.qkv_proj.weight_scale_inv": ("F32", [2, 1], bytes(8))}), "weight_scale_inv': is not of the blocks of 8 or 4 parts"),
    (lambda t: t.update({"model.layers.0.self_attn.qkv_proj.weight_scale_inv": ("F32", [4, 2], bytes(32))}), "weight_scale_inv': has another shape than 4 x 1"),
    (lambda t: t.update({"model.layers.0.self_attn.qkv_proj.bias": ("F32", [t["model.layers.0.self_attn.qkv_proj.weight"][1][0]], bytes(4 * t["model.layers.0.self_attn.qkv_proj.weight"][1][0]))}), "'model.layers.0.self_attn.qkv_proj.bias': is the bias of a matrix in parts, and is not read"),
    (lambda t: t.update({"model.layers.2.self_attn.qkv_proj.weight": ("F32", [240, 64], bytes(240 * 64 * 4))}), "'model.layers.2.self_attn.qkv_proj.weight': 240 rows are not those of heads"),
    (lambda t: t.update({"model.layers.1.mlp.experts.0.up_proj.weight_scale": ("U8", [32, 1], bytes(32))}), "'model.layers.1.mlp.experts.0.up_proj.weight': has no scales, or not one for each 32 weights"),
])
def test_matrices_of_mimo_that_are_none(run_weft, tmp_path, change, expected):
    record = RECORDS["mimo2-fused"]
    tensors = as_stored(record) | {n: (folders.STORED.get(of, of), record["tensors"][n], folders.codes(n, record["tensors"][n], of)) for n, of in record["codes"].items()}
    change(tensors)
    folder = folders.write(tmp_path / "mimo2-fused", record, "F32")
    folders.safetensors(folder / "model.safetensors", tensors)
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert expected in error and not bytes_, error


STEP_SAVED = ("num_attention_groups", "moe_num_experts", "moe_top_k", "moe_layers_enum", "partial_rotary_factors", "rope_theta", "rope_scaling", "attention_other_setting", "moe_router_activation", "norm_expert_weight", "use_moe_router_bias", "use_head_wise_attn_gate")


def test_step_as_transformers_saves_it(run_weft, tmp_path):
    """Names of numbers, bases of rotation by kinds of layers. It leaves out the layer that predicts a further token; without a list's part for it, that layer attends to all."""
    record = json.loads(json.dumps(RECORDS["step37"]))
    record["tensors"] = {n: s for n, s in record["tensors"].items() if not n.startswith("model.layers.4.")}
    text = record["config"]["text_config"]
    scaling, bases = text["rope_scaling"], [{"rope_theta": t, "partial_rotary_factor": f} for t, f in ((5e6, 0.5), (1e4, 1.0))]
    for key in ("layer_types", "partial_rotary_factors", "rope_theta"):
        text[key] = text[key][:4]
    published = keys(run_weft, folders.write(tmp_path / "published" / "step37", record), tmp_path / "published.gguf")
    for key in STEP_SAVED:
        del text[key]
    text |= {"num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "mlp_layer_types": ["dense"] + ["sparse"] * 3, "num_sliding_attention_heads": 6, "num_nextn_predict_layers": 0,
             "rope_parameters": {"full_attention": {**scaling, **bases[0]}, "sliding_attention": {"rope_type": "default", **bases[1]}}}
    saved = keys(run_weft, folders.write(tmp_path / "saved" / "step37", record), tmp_path / "saved.gguf")
    own = {"GGUF.kv_count", "step35.expert_gating_func", "step35.expert_weights_norm"}          # what the architecture means anyway
    assert {k: v for k, v in published[0].items() if k not in own} == {k: v for k, v in saved[0].items() if k not in own} and saved[1] == published[1] != {}
    tensors = [{t.name: t.data.tobytes() for t in gguf.GGUFReader(tmp_path / f"{name}.gguf").tensors} for name in ("published", "saved")]
    assert tensors[0] == tensors[1]


def test_step_without_an_encoder(run_weft, tmp_path):
    """Step 3.5: the numbers are not in a group, and one base of rotation is that of all layers."""
    record, out = json.loads(json.dumps(RECORDS["step37"])), tmp_path / "out.gguf"
    keys(run_weft, folders.write(tmp_path / "seeing" / "step37", record), out)
    expected = {t.name: t.data.tobytes() for t in gguf.GGUFReader(out).tensors}
    config = record["config"]
    record["config"] = {**config.pop("text_config"), "architectures": ["Step3p5ForCausalLM"], "rope_theta": 20000.0, "moe_layers_enum": None}
    record["tensors"] = {n: s for n, s in record["tensors"].items() if not n.startswith(("vision_model.", "vit_"))}
    folder = folders.write(tmp_path / "alone" / "step37", record)
    assert "blk.1.ffn_" in made(run_weft, folder, out)[0]          # three layers are dense, the class's default
    put(folder, lambda c: c.update(moe_layers_enum="1,2,3"))
    k, _ = keys(run_weft, folder, out)
    assert [k[f"step35.rope.freq_base{end}"] for end in ("", "_swa")] == [20000.0, 20000.0]
    ours = {t.name: t.data.tobytes() for t in gguf.GGUFReader(out).tensors}
    assert len(expected) > 50 and {n: t for n, t in ours.items() if n != "rope_freqs.weight"} == {n: t for n, t in expected.items() if n != "rope_freqs.weight"}


@pytest.mark.parametrize("change, expected", [
    (lambda t: t.pop("language_model.model.layers.1.mlp_res_norm.weight"), "'language_model.model.layers.1.mlp_res_proj.weight': there is no language_model.model.layers.1.mlp_res_norm.weight"),
    (lambda t: t.update({"language_model.model.layers.1.mlp_res_norm.weight": ("F32", [32], bytes(128))}), "'language_model.model.layers.1.mlp_res_proj.weight': is not as long as language_model.model.layers.1.mlp_res_norm.weight"),
    (lambda t: t.pop("language_model.model.layers.1.mlp_res_proj.weight"), "blk.1.ffn_res_score"),
    (lambda t: t.update({"language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight_scale": ("U8", [16, 1], bytes(16))}), "has no scales, or not one for each 32 weights"),
])
def test_tensors_of_kimi_k3_that_are_none(run_weft, tmp_path, change, expected):
    record = RECORDS["kimik3"]
    tensors = as_stored(record) | {n: (folders.STORED.get(of, of), record["tensors"][n], folders.codes(n, record["tensors"][n], of)) for n, of in record["codes"].items()}
    change(tensors)
    folder = folders.write(tmp_path / "kimik3", record, "F32")
    folders.safetensors(folder / "model.safetensors", tensors)
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert expected in error and not bytes_, error


def test_what_ends_an_answer_of_kimi_k3(run_weft, tmp_path):
    """The token of config.json; without it that of the tokenizer."""
    folder, out = folders.write(tmp_path / "kimik3", RECORDS["kimik3"]), tmp_path / "out.gguf"
    assert keys(run_weft, folder, out)[0]["tokenizer.ggml.eos_token_id"] == 527
    put(folder, lambda c: c.pop("eos_token_id"))
    assert keys(run_weft, folder, out)[0]["tokenizer.ggml.eos_token_id"] == 272


def test_decays_of_kimi_k3_without_a_bound(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "kimik3", RECORDS["kimik3"]), tmp_path / "out.gguf"
    assert keys(run_weft, folder, out)[0]["kimi-k3.kda.gate_lower_bound"] == -5
    put(folder, lambda c: c["linear_attn_config"].update(gate_lower_bound=None))
    assert "kimi-k3.kda.gate_lower_bound" not in keys(run_weft, folder, out)[0]


def test_ling_3_as_transformers_saves_it(run_weft, tmp_path):
    """Other names of numbers, kinds of layers by name; what it leaves out is the class's default."""
    drop = ("head_dim", "num_experts_per_tok", "n_group", "norm_topk_prob", "score_function", "moe_shared_expert_intermediate_size", "no_kda_lora", "gated_attention_proj_granularity_type", "max_position_embeddings", "layer_group_size", "first_k_dense_replace")
    change = {"architectures": ["BailingHybridForCausalLM"], "head_dim": 8, "linear_head_dim": 32, "linear_num_heads": 4, "linear_conv_kernel_dim": 4, "num_experts_per_token": 2, "num_expert_group": 2, "moe_renormalize": True, "model_max_length": 512, "qk_head_dim": 24,
              "layer_types": ["linear_attention", "full_attention"] * 2, "mlp_layer_types": ["dense"] + ["sparse"] * 3, "rope_parameters": {"rope_theta": 6e6, "rope_type": "default"}}
    published, saved = both_forms(run_weft, tmp_path, "ling3", drop, change)
    assert saved == published and len(saved[1]) > 100000, saved[0]


def test_defaults_of_ling_3(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "ling3", RECORDS["ling3"]), tmp_path / "out.gguf"
    put(folder, lambda c: [c.pop(k, None) for k in ("num_shared_experts", "norm_topk_prob", "routed_scaling_factor", "kda_lower_bound", "kda_safe_gate", "score_function", "rope_theta")])
    k = {n.removeprefix("bailingmoe3."): v for n, v in keys(run_weft, folder, out)[0].items()}
    assert [k[n] for n in ("expert_shared_count", "expert_weights_norm", "expert_weights_scale", "kda.gate_lower_bound", "kda.safe_gate", "expert_gating_func", "rope.freq_base")] == [1, True, 2.5, -5.0, True, 2, 6e6]


def test_the_epsilon_of_exaone_3(run_weft, tmp_path):
    """Published folders call that of the RMS norms layer_norm_epsilon."""
    folder, out = folders.write(tmp_path / "exaone3", RECORDS["exaone3"]), tmp_path / "out.gguf"
    expected = keys(run_weft, folder, out)
    put(folder, lambda c: c.update(layer_norm_epsilon=c.pop("rms_norm_eps")))
    assert keys(run_weft, folder, out) == expected and expected[1]
    put(folder, lambda c: c.update(layer_norm_epsilon=0.25))
    assert keys(run_weft, folder, out)[0]["exaone.attention.layer_norm_rms_epsilon"] == 0.25
    put(folder, lambda c: c.pop("layer_norm_epsilon"))
    assert keys(run_weft, folder, out) == expected


@pytest.mark.parametrize("kind, name", [("llama", "LLaMAForCausalLM"), ("lfm2", "LFM2ForCausalLM")])
def test_first_names_of_classes(run_weft, tmp_path, kind, name):
    folder, out = folders.write(tmp_path / kind, RECORDS[kind]), tmp_path / "out.gguf"
    expected = made(run_weft, folder, out)
    put(folder, lambda c: c.update(architectures=[name]))
    assert made(run_weft, folder, out) == expected and expected[1], expected[0]
