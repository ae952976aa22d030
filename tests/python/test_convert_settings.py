"""Settings in config.json that change what a model computes: each is in the file that weft convert writes, or is refused by name. Which settings transformers' classes read: tests/records/folders
holds a folder of each class; one setting is changed at a time."""
import json
import math
import statistics
from pathlib import Path

import pytest
from conftest import load_tool

gguf = pytest.importorskip("gguf")
RECORDS = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in sorted((Path(__file__).resolve().parents[1] / "records" / "folders").glob("*.json"))}
folders = load_tool("make_folder")
TURNING = [k for k, r in RECORDS.items() if "rope_parameters" in (r["config"].get("text_config") or r["config"])]
SCALED = {"factor": 4.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "short_factor": [1.5] * 8, "long_factor": [2.5] * 8}


def text_of(config):
    return config.get("text_config") or config


def put(folder, change):
    """Changes config.json, as Python writes it: numbers that are not finite are bare words."""
    config = json.loads((folder / "config.json").read_text())
    change(text_of(config))
    (folder / "config.json").write_text(json.dumps(config))


def made(run_weft, folder, out):
    done = run_weft(["convert", folder, out])
    return (done.err, None) if done.returncode else ("", out.read_bytes())


def keys(run_weft, folder, out):
    done = run_weft(["convert", folder, out])
    assert done.returncode == 0, done.err
    reader = gguf.GGUFReader(out)
    return {k: f.contents() for k, f in reader.fields.items()}, {t.name: t.data.tolist() for t in reader.tensors if t.name.startswith("rope_")}


@pytest.mark.parametrize("kind", TURNING)
def test_no_scaling_of_positions_is_left_out(run_weft, tmp_path, kind):
    folder, out = folders.write(tmp_path / kind, RECORDS[kind], next(iter(RECORDS[kind]["made"])).split()[0]), tmp_path / "out.gguf"
    config, (_, plain) = (folder / "config.json").read_text(), made(run_weft, folder, out)
    groups = text_of(json.loads(config))["rope_parameters"]
    for name in [k for k in ("full_attention", "sliding_attention") if k in groups] or [None]:
        own = groups[name] if name else groups
        for scaling in {"linear", "dynamic", "yarn", "llama3", "longrope", "spiral"} - {own["rope_type"]}:
            (folder / "config.json").write_text(config)
            put(folder, lambda c: (c["rope_parameters"][name] if name else c["rope_parameters"]).update(SCALED, rope_type=scaling))       # noqa: B023
            error, bytes_ = made(run_weft, folder, out)
            assert bytes_ != plain, (name, scaling)
            assert bytes_ or f"{folder}/config.json: key 'rope_type': '{scaling}'" in error or "key '" in error, error
            if scaling in ("dynamic", "spiral") or name == "sliding_attention":
                assert not bytes_, (name, scaling)


@pytest.mark.parametrize("kind, change, expected", [
    *((k, {"use_bidirectional_attention": True}, "'use_bidirectional_attention': true, but files of") for k in ("gemma", "gemma2", "gemma3", "gemma3-seeing")),
    *((k, {"use_bidirectional_attention": v}, f"'use_bidirectional_attention': '{str(v).lower()}', but files of gemma4") for k in ("gemma4", "gemma4-seeing") for v in (True, "all")),
    *((k, {"attn_logit_softcapping": 50.0}, "'attn_logit_softcapping': 50, but files of") for k in ("gemma3", "gemma3-seeing", "gemma3-text")),
    ("gemma", {"hidden_act": "relu"}, "'hidden_act': relu, but files of gemma"),
    ("gemma", {"hidden_act": "gelu"}, ""),             # transformers takes the first folders' name as the approximation
    ("gemma2", {"query_pre_attn_scalar": 0}, "'query_pre_attn_scalar': 0 is not positive"),
    *((k, {"layer_types": ["full_attention", "sliding_attention"]}, "'layer_types': has 'full_attention' at 0") for k in ("gemma2", "gpt-oss", "gemma3", "gemma3-seeing")),
    *((k, {"layer_types": ["full_attention", "sliding_attention"]}, "'layer_types': has 'sliding_attention' at 1") for k in ("qwen2", "qwen3", "qwen3-bare", "qwen2moe", "qwen2vl-seeing", "smollm3")),
    ("gemma3", {"layer_types": None, "_sliding_window_pattern": 2}, "'_sliding_window_pattern': is not 6, and layer_types is missing"),
    *((k, {"layer_types": None, "sliding_window_pattern": v}, "'sliding_window_pattern': is not 4") for k in ("exaone4", "exaonemoe") for v in (2, "LG", "LLLL", "LLGL")),
    ("exaone4", {"layer_types": None, "sliding_window_pattern": "LLLG"}, ""),
    ("smollm3", {"no_rope_layers": [0, 1]}, "'no_rope_layers': has another value than 1 at 0"),
    ("gpt-oss", {"swiglu_limit": 10.0}, "'swiglu_limit': 10, but files of gpt-oss"),
    ("gpt-oss", {"swiglu_alpha": 1.5}, "'swiglu_alpha': 1.5, but files of gpt-oss"),
    ("phimoe", {"router_jitter_noise": 0.1}, "'router_jitter_noise': 0.1, but files of phimoe"),
    ("erniemoe", {"moe_norm_min": 0.25}, "'moe_norm_min': 0.25, but files of"),
    ("minimaxtext", {"sliding_window": 64}, "'sliding_window': 64, but files of minimax-01"),
    ("minimax-m2", {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 1.0}}, "'partial_rotary_factor': 1 of 32 elements are not rotary_dim, 16"),
    ("mpt", {"layer_norm_epsilon": 0.1}, "'layer_norm_epsilon': 0.1, but files of mpt"),
    ("falconmamba", {"mixer_rms_eps": 0.1}, "'mixer_rms_eps': 0.1, but files of mamba"),
    ("nomicbert", {"rotary_emb_scale_base": 512}, "'rotary_emb_scale_base': 512, but files of nomic-bert"),
    *((k, {"is_decoder": True}, "'is_decoder': true, but files of bert") for k in ("bert", "roberta", "xlmroberta")),
    *((k, {"use_sliding_window": True}, "'use_sliding_window': true, but files of") for k in ("lladamoe", "rnd1")),
    *((k, {"time_step_limit": v}, "'time_step_limit': is not [0, Infinity], but files of") for k in ("mamba2", "granitehybrid", "nemotronh") for v in ([0.1, math.inf], [0.0, 10.0], [0.0, math.nan], [0.0], 5)),
    *((k, {"time_step_limit": v}, "") for k in ("mamba2", "granitehybrid", "nemotronh") for v in ([0.0, math.inf], None)),
    *((k, {"use_bidirectional_attention": True}, "'use_bidirectional_attention': true, but files of gemma3n") for k in ("gemma3n", "gemma3n-seeing")),
    ("gemma3n", {"altup_correct_scale": False}, "'altup_correct_scale': false, but files of gemma3n"),
    ("gemma3n", {"altup_active_idx": 1}, "'altup_active_idx': 1, but files of gemma3n"),
    ("gemma3n", {"activation_sparsity_pattern": [0.95] * 9}, "'activation_sparsity_pattern': is not a list of 10 layers"),
    ("gemma3n", {"activation_sparsity_pattern": [1.0] * 10}, "'activation_sparsity_pattern': has what is not from 0 to 1"),
    ("gemma3n", {"intermediate_size": [96] * 9}, "'intermediate_size': is not a list of 10 widths"),
    ("gemma3n", {"intermediate_size": 96}, ""),
    ("gemma3n", {"vocab_size_per_layer_input": 320}, ""),
    *(("kimilinear", {k: v}, f"'{k}': {json.dumps(v).strip(chr(34))}, but files of kimi-linear") for k, v in (("moe_renormalize", False), ("num_expert_group", 2), ("mla_use_nope", False), ("hidden_act", "gelu"), ("attention_bias", True), ("moe_layer_freq", 2), ("moe_router_activation_func", "softmax"))),
    ("kimilinear", {"layer_types": ["full_attention"] * 3}, "'layer_types': is not a list of 4 layers"),
    ("kimilinear", {"mlp_layer_types": ["sparse", "dense", "sparse", "sparse"]}, "'mlp_layer_types': has a dense layer after one of experts"),
    ("kimilinear", {"linear_attn_config": []}, "'linear_attn_config': is not an object"),
    ("kimilinear", {"linear_attn_config": {}}, "'full_attn_layers': is missing, and so is layer_types"),
    ("kimilinear", {"linear_attn_config": {"full_attn_layers": [5]}}, "'full_attn_layers': has what is no layer from 1 to 4"),
    ("kimilinear", {"linear_attn_config": {"num_heads": 2}}, "'linear_num_heads': 2 is not num_attention_heads, 4"),
    *(("hunyuanmoe", {k: v}, f"'{k}': {str(v).lower()}, but files of hunyuan-moe") for k, v in (("use_qk_norm", False), ("use_cla", True), ("use_mla", True), ("use_mixed_mlp_moe", False), ("norm_topk_prob", False), ("mlp_bias", True), ("moe_layer_num_skipped", 1))),
    *(("hunyuanmoe", {k: [2, 3]}, f"'{k}': differs between layers") for k in ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")),
    *((k, {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "'alpha': is missing") for k in ("hunyuan", "hunyuanmoe")),
    *(("glm5next", {k: v}, f"'{k}': {str(v).lower()}, but files of glm5-next") for k, v in (("attention_bias", True), ("hidden_act", "gelu"), ("qk_rope_head_dim", 8), ("mla_use_nope", False), ("mhc", False), ("scoring_func", "softmax"))),
    ("glm5next", {"layer_types": None}, "'layer_types': is not a list of 5 layers"),
    ("glm5next", {"indexer_types": None, "index_topk_freq": 2}, "'index_topk_freq': is not known without indexer_types"),
    ("glm5next", {"indexer_types": None, "index_topk_pattern": "FFSFF"}, "'index_topk_pattern': is not known without indexer_types"),
    ("glm5next", {"index_topk_pattern": "FFFFF"}, ""),
    ("glm5next", {"index_kpool_always_select_tail": False}, "attention.indexer.kpool_select_tail"),
    *(("jinabert", {k: v}, f"'{k}': {str(v).lower()}, but files of jina-bert-v2") for k, v in (("position_embedding_type", "absolute"), ("feed_forward_type", "reglu"), ("hidden_act", "relu"), ("is_decoder", True))),
    *(("dots3", {k: v}, f"'{k}': {str(v).lower()}, but files of dots3note") for k, v in (("attention_bias", True), ("n_group", 2), ("use_dsa", False), ("moe_layer_freq", 2), ("use_dynamic_rsf", True), ("scoring_func", "softmax"), ("attention_gate_type", "elementwise"))),
    ("dots3", {"layer_types": None}, "'layer_types': is not a list of 4 layers"),
    ("dots3", {"swa_q_lora_rank": 16}, "'swa_q_lora_rank': 16 is not q_lora_rank, 24"),
    ("dots3", {"swa_qk_rope_head_dim": 16}, "'swa_qk_rope_head_dim': 16 is not qk_rope_head_dim, 8"),
    ("dots3", {"num_key_value_heads": 2}, "'num_key_value_heads': 2 is not num_attention_heads, 4"),
    ("dots3", {"per_layer_config": {"1": {"kv_lora_rank": 48}}}, "'per_layer_config': has other layers than those with a window"),
    ("dots3", {"per_layer_config": {"1": {"kv_lora_rank": 48}, "2": {"kv_lora_rank": 32}}}, "'per_layer_config': has other layers than those with a window, or several sizes"),
    *(("qwen4exp", {k: v}, f"'{k}': {str(v).lower()}, but files of qwen4exp") for k, v in (("norm_topk_prob", False), ("hidden_act", "gelu"), ("indexer_kv_heads", 2), ("attention_bias", True))),
    *(("qwen4exp", {"output_gate_type": v}, "'output_gate_type': is not sigmoid") for v in ("silu", None)),
    ("qwen4exp", {"ple_layer_ids": [1, 3]}, "'ple_layer_ids': is not one layer from 1 to 4"),
    ("qwen4exp", {"ple_layer_ids": [5]}, "'ple_layer_ids': is not one layer from 1 to 4"),
    ("qwen4exp", {"ple_embed_dim": 62}, "'ple_embed_dim': 62 is not a multiple of all heads of n-grams"),
    ("qwen4exp", {"eos_token_id": None}, "'eos_token_id': is missing"),
    ("qwen4exp", {"indexer_compress_ratio": None}, "'indexer_compress_ratio': is missing"),
    *(("graniteswitch", {k: v}, f"'{k}': {str(v).lower()}, but files of graniteswitch") for k, v in (("switch_type", "multi"), ("ms_code_m", 6), ("dual_stream", True), ("num_local_experts", 4), ("position_embedding_type", "nope"))),
    *(("graniteswitch", {k: [1, 2]}, f"'{k}': is not a list of 3 tokens") for k in ("adapter_token_ids", "adapter_substitute_token_ids")),
    ("graniteswitch", {"adapter_token_ids": [1, 2, -3]}, "'adapter_token_ids': has what is no token at 2"),
    ("graniteswitch", {"layer_types": ["attention", "mamba", "attention"]}, "'layer_types': has layers that do not attend"),
    ("graniteswitch", {"shared_intermediate_size": 64}, "'shared_intermediate_size': 64 is not intermediate_size, 96"),
    *((k, {key: value}, f"'{key}': {str(value).lower()}, but files of {arch}") for k, arch, key, value in (("minicpm3", "minicpm3", "attention_bias", True), ("jais2", "jais2", "mlp_bias", False), ("deepseek32", "deepseek32", "scoring_func", "softmax"),
                                                                                                    ("deepseek32", "deepseek32", "topk_method", "greedy"), ("hyv3", "hy_v3", "qk_norm", False), ("mellum", "mellum", "norm_topk_prob", False))),
    *((k, {key: value}, f"'{key}': {str(value).lower()}, but files of {arch}") for k, arch, key, value in (
        ("mimo2", "mimo2", "topk_method", "greedy"), ("mimo2", "mimo2", "attention_projection_layout", "other"), ("mimo2", "mimo2", "routed_scaling_factor", 2), ("cohere2moe", "cohere2moe", "shared_expert_combination_strategy", "sum"),
        ("laguna", "laguna", "moe_router_logit_softcapping", 5), ("laguna", "laguna", "gating", False), ("graniteswa", "granite_swa", "attention_bias", True),
        ("minimax-m3", "minimax-m3", "swiglu_limit", 10), ("minimax-m3", "minimax-m3", "use_gemma_norm", False))),
    ("mimo2", {"swa_head_dim": 48}, "'swa_head_dim': 48 is not head_dim, 32"),
    ("mimo2", {"hybrid_layer_pattern": [0, 2, 1]}, "'hybrid_layer_pattern': has what is neither 0 nor 1 at 1"),
    ("mimo2", {"hybrid_layer_pattern": [0, 1]}, "'layer_types': is not a list of 3 layers"),
    ("cohere2moe", {"layer_types": None}, "'layer_types': is missing"),
    ("cohere2moe", {"layer_types": None, "sliding_window": None}, "'layer_types': is missing"),
    ("cohere2", {"layer_types": None, "sliding_window_pattern": 2}, "'sliding_window_pattern': is not 4, and layer_types is missing"),
    *((k, {"num_shared_experts": 1 << 30}, "'num_shared_experts'") for k in ("cohere2moe", "hyv3")),
    ("erniemoe", {"moe_num_shared_experts": 1 << 31}, "'moe_num_shared_experts': gives expert_shared_feed_forward_length"),
    ("dots3", {"n_shared_experts": 1 << 31, "moe_shared_expert_intermediate_size": 2}, "'n_shared_experts': gives expert_shared_feed_forward_length"),
    *((k, {"qk_nope_head_dim": (1 << 32) - 8}, "'qk_nope_head_dim': gives attention.key_length") for k in ("deepseek2", "deepseek32", "glm5next", "kimilinear", "minicpm3")),
    ("dots3", {"swa_qk_nope_head_dim": (1 << 32) - 8}, "'swa_qk_nope_head_dim': gives attention.key_length_mla_swa"),
    ("dots3", {"swa_num_attention_heads": 1 << 31, "swa_num_key_value_heads": 1 << 31}, "'swa_num_attention_heads': 2147483648 is too many"),
    *(("mimo2", {k: (1 << 32) - 1}, f"'{k}': 4294967295 is too many") for k in ("num_key_value_heads", "swa_num_key_value_heads")),
    ("lfm2", {"num_key_value_heads": 1 << 31}, "'num_key_value_heads': 2147483648 is too many"),
    ("minimax-m2", {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 1e30}}, "of 32 elements are not rotary_dim, 16"),
    *(("laguna", {"eos_token_id": v}, "'eos_token_id': is not a token id, or a list of them") for v in ([2, "</s>"], [2, None])),
    ("cohere2moe", {"mlp_layer_types": ["sparse", "dense", "sparse", "sparse", "sparse"]}, "'mlp_layer_types': has a dense layer after one of experts"),
    ("cohere2moe", {"expert_selection_fn": "softmax", "norm_topk_prob": False}, "'norm_topk_prob': is false, but softmax is over the chosen experts"),
    ("cohere2moe", {"expert_selection_fn": "relu"}, "'expert_selection_fn': is neither softmax, sigmoid nor sqrtsoftplus"),
    ("laguna", {"num_attention_heads_per_layer": [4, 6]}, "'num_attention_heads_per_layer': is not a list of 5 layers"),
    ("laguna", {"num_attention_heads_per_layer": [4, 6, 6, 6, 0]}, "'num_attention_heads_per_layer': has what is no number of heads at 4"),
    ("laguna", {"sliding_window": None}, "'layer_types': has 'sliding_attention' at 1"),
    ("graniteswa", {"no_rope_layers": None, "layer_rope_theta": [0, 1e4, 5e5, 1e4]}, "'layer_rope_theta': has another number than one and 0 at 2"),
    ("graniteswa", {"no_rope_layers": [1, 1, 1]}, "'no_rope_layers': is not a list of 4 layers"),
    ("minimax-m3", {"moe_layer_freq": [0, 1, 0, 1]}, "'mlp_layer_types': has a dense layer after one of experts"),
    ("minimax-m3", {"rotary_dim": 8}, "'partial_rotary_factor': 0.5 of 32 elements are not rotary_dim, 8"),
    ("dbrx", {"attn_config": None}, "'attn_config': is missing, or is not an object"),
    ("dbrx", {"ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2, "ffn_act_fn": {"name": "gelu"}}}, "'ffn_act_fn': 'gelu' is not silu"),
    *(("dbrx", {"ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2, "moe_normalize_expert_weights": v}}, "'moe_normalize_expert_weights': is not 1, but files of dbrx") for v in (2, None)),
    *((k, {key: value}, f"'{key}': {str(value).lower()}, but files of {arch}") for k, arch, key, value in (
        ("museglimmer", "muse-glimmer", "post_norm_eps", 0.001), ("museglimmer", "muse-glimmer", "attention_bias", True), ("hrm", "hrm_text", "hidden_act", "gelu"), ("hyv4", "hy_v4", "n_group", 2), ("hyv4", "hy_v4", "mlp_bias", True))),
    ("museglimmer", {"layer_rope_theta": [1e4, 1e4, 1e4, 1e4]}, "'layer_rope_theta': has another base than files of muse-glimmer at 3"),
    ("museglimmer", {"layer_rope_theta": [1e4, 5e5, 1e4, 0]}, "'layer_rope_theta': has another base than files of muse-glimmer at 1"),
    ("museglimmer", {"qk_scale_factor": None}, "'qk_scale_factor': is missing"),
    ("hrm", {"H_cycles": 5000}, "'num_layers_per_stack': 2 layers in 5000 and 3 cycles are more than 4096"),
    ("hrm", {"L_cycles": None}, "'L_cycles': is missing"),
    ("hyv4", {"indexer_types": ["full", "full"]}, "'indexer_types': is not a list of 3 layers"),
    *((k, {key: value}, f"'{key}': {str(value).lower()}, but files of {arch}") for k, arch, key, value in (
        ("glm4lite", "deepseek2", "scoring_func", "softmax"), ("glm4lite", "deepseek2", "rope_interleave", False), ("youtu", "deepseek2", "n_routed_experts", 4), ("minicpm", "minicpm", "num_experts", 8))),
    ("minicpm", {"dim_model_base": -1}, "'dim_model_base': -1 is not positive"),
    ("minicpm3", {"scale_depth": 0}, "'scale_depth': 0 is not positive"),
    ("mellum", {"mlp_layer_types": ["dense"] + ["sparse"] * 3}, "'mlp_layer_types': has 'dense'"),
    ("mellum", {"layer_types": None}, "'layer_types': is missing"),
    ("mellum", {"use_sliding_window": False}, "'layer_types': has 'sliding_attention' at 0"),
    ("qwen3", {"rms_norm_eps": math.nan}, "'rms_norm_eps': is not a number"),
    ("qwen3", {"rms_norm_eps": -math.inf}, "'rms_norm_eps': is not a number"),
])
def test_settings_that_files_cannot_say(run_weft, tmp_path, kind, change, expected):
    folder = folders.write(tmp_path / kind, RECORDS[kind], next(iter(RECORDS[kind]["made"])).split()[0])
    put(folder, lambda c: c.update(change))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert expected in error and bool(bytes_) == (not expected), error
    assert not expected or f"{folder}/config.json: key '" in error or expected.startswith("attention."), error


@pytest.mark.parametrize("kind, key", [("hyv3", "router_scaling_factor"), ("hyv4", "routed_scaling_factor"), ("hyv4", "swiglu_limit"), ("hrm", "prefix_lm"), ("hrm", "embedding_scale"), ("mimo2", "attention_value_scale"),
                                       ("minimax-m3", "routed_scaling_factor"), *((k, "attention_multiplier") for k in ("granite", "granitemoe", "granitemoeshared", "graniteswa", "granitemoeswa", "granitehybrid", "granite4-dense", "graniteswitch"))])
def test_values_for_which_files_have_another_default_than_the_class(run_weft, tmp_path, kind, key):
    folder = folders.write(tmp_path / kind, RECORDS[kind], next(iter(RECORDS[kind]["made"])).split()[0])
    put(folder, lambda c: c.pop(key))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert f"{folder}/config.json: key '{key}': is missing" in error and not bytes_
    put(folder, lambda c: c.update({key: None}))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    if kind == "mimo2":                                    # without a scale
        assert "mimo2.attention.value_scale" not in keys(run_weft, folder, tmp_path / "out.gguf")[0]
    else:
        assert f"key '{key}': is missing" in error and not bytes_


def test_epsilons_of_granite_with_windows(run_weft, tmp_path):
    """Both classes are of one architecture, and have different defaults."""
    for kind, expected in (("graniteswa", 1e-5), ("granitemoeswa", 1e-6)):
        folder = folders.write(tmp_path / kind, RECORDS[kind])
        put(folder, lambda c: c.pop("rms_norm_eps"))
        assert keys(run_weft, folder, tmp_path / "out.gguf")[0]["granite_swa.attention.layer_norm_rms_epsilon"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind, change", [
    *((k, {"prefix_dense_intermediate_size": None, "dense_intermediate_size": None}) for k in ("cohere2moe-rms", "llama", "qwen3", "minimaxtext")),
    ("mimo2", {"swa_head_dim": None, "swa_v_head_dim": None, "swa_num_attention_heads": None}), ("minimax-m3", {"rope_scaling": None, "num_experts": None}),
    *((k, {"n_layers": None, "n_ctx": None, "n_embd": None, "n_head": None, "n_kv_heads": None, "num_local_experts": None}) for k in ("qwen3moe", "cohere2moe", "laguna")),
    ("hunyuanmoe", {"num_experts_per_tok": None}), ("glm4lite", {"num_experts": None, "score_function": None, "num_local_experts": None}), ("dots3", {"sliding_window": None}), ("falconmamba", {"d_conv": None, "d_inner": None})])
def test_null_is_as_a_missing_key(run_weft, tmp_path, kind, change):
    """transformers writes it for what has no value; another name of the same number may stand beside it."""
    record = RECORDS[kind]
    folder, out = folders.write(tmp_path / kind, record, next(iter(record["made"])).split()[0]), tmp_path / "out.gguf"
    config = text_of(record["config"])
    _, plain = made(run_weft, folder, out)
    for key in change.keys() - config.keys():
        put(folder, lambda c: c.update({key: None}))       # noqa: B023
    assert plain and made(run_weft, folder, out) == ("", plain)


@pytest.mark.parametrize("kind, group, key", [("qwen3-yarn", "rope_parameters", "attention_factor"), ("qwen3-yarn", "rope_parameters", "full_attention"), ("minimax-m3", "sparse_attention_config", "sparse_index_dim"), ("dbrx", "attn_config", "kv_n_heads"), ("kimilinear", "linear_attn_config", "num_heads")])
def test_null_in_a_group(run_weft, tmp_path, kind, group, key):
    """It does not hide what stands beside the group, or under another name of it."""
    beside = {"attention_factor": ("attn_factor", 1.25), "sparse_index_dim": ("index_head_dim", 32), "kv_n_heads": ("num_key_value_heads", 2), "num_heads": ("linear_num_heads", 4)}.get(key)
    folder, out = folders.write(tmp_path / kind, RECORDS[kind]), tmp_path / "out.gguf"

    def change(c, null):
        if beside:
            c.setdefault(group, {}).pop(key, None)
            (c[group] if key == "attention_factor" else c)[beside[0]] = beside[1]
        if null:
            c[group][key] = None
    put(folder, lambda c: change(c, False))
    _, plain = made(run_weft, folder, out)
    put(folder, lambda c: change(c, True))
    assert plain and made(run_weft, folder, out) == ("", plain)


def test_null_for_the_language_model_beside_a_number_of_the_whole(run_weft, tmp_path):
    record, out = RECORDS["qwen3vl-seeing"], tmp_path / "out.gguf"
    folder = folders.write(tmp_path / "qwen3vl-seeing", record)
    config = json.loads((folder / "config.json").read_text())
    config["bos_token_id"] = 7
    files = []
    for inner in ({k: v for k, v in config["text_config"].items() if k != "bos_token_id"}, {**config["text_config"], "bos_token_id": None}):
        (folder / "config.json").write_text(json.dumps({**config, "text_config": inner}))
        files.append(made(run_weft, folder, out)[1])
    assert files[0] and files[0] == files[1]


def test_the_epsilon_of_mimo(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "mimo2", RECORDS["mimo2"]), tmp_path / "out.gguf"
    for change, expected in (({"layernorm_epsilon": None, "rms_norm_eps": 0.25}, 0.25), ({"layernorm_epsilon": 0.5}, 0.5)):
        put(folder, lambda c: c.update(change))            # noqa: B023
        assert keys(run_weft, folder, out)[0]["mimo2.attention.layer_norm_rms_epsilon"] == expected


@pytest.mark.parametrize("kind, change", [("cohere2moe", {"prefix_dense_sliding_window_pattern": 4}), ("cohere2", {"sliding_window_pattern": 2})])
def test_patterns_beside_a_list_of_layers(run_weft, tmp_path, kind, change):
    """transformers reads the list then."""
    folder, out = folders.write(tmp_path / kind, RECORDS[kind]), tmp_path / "out.gguf"
    _, plain = made(run_weft, folder, out)
    put(folder, lambda c: c.update(change))
    assert plain and made(run_weft, folder, out) == ("", plain)


@pytest.mark.parametrize("kind, text", [("museglimmer", "<|eot|>"), ("dots3", "<|endofassistant|>")])
@pytest.mark.parametrize("id_", [..., "7", -1])
def test_tokens_of_an_answer_without_an_id(run_weft, tmp_path, kind, text, id_):
    """They do not become token 0."""
    folder = folders.write(tmp_path / kind, RECORDS[kind])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = next((a for a in tokenizer["added_tokens"] if a["content"] == text), None)
    if not added:
        tokenizer["added_tokens"].append(added := {"content": text, "special": True})
    added.pop("id", None)
    if id_ is not ...:
        added["id"] = id_
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert f"key '{text}': this token has no id, or one that is not a number" in error and not bytes_


@pytest.mark.parametrize("change, expected", [
    ({}, -5), ({"linear_attn_config": {"gate_lower_bound": -3.0}}, -3), ({"linear_attn_config": {"gate_lower_bound": None}}, -5), ({"linear_attn_config": {"gate_lower_bound": None, "safe_gate": False}}, None),
    ({"linear_attn_config": None, "linear_lower_bound": -2.0}, -2), ({"linear_attn_config": None, "linear_lower_bound": None}, None)])
def test_the_least_decay_of_glm_5(run_weft, tmp_path, change, expected):
    """As transformers reads it: the group's bound, that beside it, or -5 unless the gate is said not to be safe."""
    folder = folders.write(tmp_path / "glm5next", RECORDS["glm5next"])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "linear_attn_config": None, "text_config": {**config["text_config"], **change}}))
    k = keys(run_weft, folder, tmp_path / "out.gguf")[0]
    assert k.get("glm5-next.kda.gate_lower_bound") == expected
    assert k["glm5-next.swiglu_clamp_exp"] == [10.0] * 6 and k["glm5-next.attention.head_count_kv"] == [0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("group, key, value", [("softmax_scale", "softmax_scale", 0.5), ("prefix_lm", "prefix_lm", True), ("prefix_lm", "prefix_lm", 1)])
def test_attention_of_mpt(run_weft, tmp_path, group, key, value):
    folder = folders.write(tmp_path / "mpt", RECORDS["mpt"])
    put(folder, lambda c: c["attn_config"].update({group: value}))
    assert f"key '{key}': files of mpt have no key for it" in made(run_weft, folder, tmp_path / "out.gguf")[0]


def test_infinity_as_python_writes_it(run_weft, tmp_path):
    """Published folders of Mamba 2 and Nemotron H have it. Words in texts stay."""
    folder, out = folders.write(tmp_path / "mamba2", RECORDS["mamba2"]), tmp_path / "out.gguf"
    _, plain = made(run_weft, folder, out)
    put(folder, lambda c: c.update(time_step_limit=[0.0, math.inf], note="[Infinity, \"NaN\", -Infinity]", other=[math.nan, {"a": -math.inf}]))
    assert "0.0, Infinity]" in (folder / "config.json").read_text()
    assert made(run_weft, folder, out) == ("", plain)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("-Infinity}", "-Infinite}"))
    assert "config.json: line 1, column" in made(run_weft, folder, out)[0]


def test_kimi_linear_as_transformers_saves_it(run_weft, tmp_path):
    """Kinds of layers as lists, sizes of the recurrence beside the others, dense layers with the prefix of experts: the same file as of the published form."""
    record = RECORDS["kimilinear"]
    folder, out = folders.write(tmp_path / "kimilinear", record), tmp_path / "out.gguf"
    before, plain = keys(run_weft, folder, out)[0], made(run_weft, folder, out)
    assert before["kimi-linear.attention.head_count_kv"] == [0, 0, 1, 0] and before["kimi-linear.leading_dense_block_count"] == 1

    def as_saved(c):
        for k in ("linear_attn_config", "first_k_dense_replace"):
            del c[k]
        c.update(layer_types=["linear_attention"] * 2 + ["full_attention", "linear_attention"], mlp_layer_types=["dense"] + ["sparse"] * 3, linear_head_dim=32, linear_num_heads=4, linear_conv_kernel_dim=4)
    put(folder, as_saved)
    assert made(run_weft, folder, out) == plain != ("", None)
    put(folder, lambda c: c.update(layer_types=["full_attention"] + ["linear_attention"] * 3))
    assert "'blk.0.attn_q.weight' has shape {64, 128, 1, 1}, expected {64, 96}" in made(run_weft, folder, out)[0]
    put(folder, lambda c: c.update(layer_types=None, linear_attn_config={"full_attn_layers": [3]}, mlp_layer_types=["dense"] * 2 + ["sparse"] * 2))
    assert "'blk.1.ffn_up.weight' is missing" in made(run_weft, folder, out)[0]
    renamed = {n.replace("layers.0.mlp.", "layers.0.block_sparse_moe."): s for n, s in record["tensors"].items()}
    names = {t.name for t in gguf.GGUFReader(out).tensors}
    assert renamed != record["tensors"]
    keys(run_weft, folders.write(tmp_path / "saved" / "kimilinear", {**record, "tensors": renamed}), out)
    assert {t.name for t in gguf.GGUFReader(out).tensors} == names


def test_the_scale_of_queries(run_weft, tmp_path):
    for kind, arch in (("gemma2", "gemma2"), ("gemma3", "gemma3"), ("gemma3-text", "gemma-embedding")):
        folder = folders.write(tmp_path / kind, RECORDS[kind])
        assert f"{arch}.attention.scale" not in keys(run_weft, folder, tmp_path / "out.gguf")[0], kind           # the size of a head
        for scalar, expected in ((64, 0.125), (None, 0.0625)):
            put(folder, lambda c: c.update(query_pre_attn_scalar=scalar) if scalar else c.pop("query_pre_attn_scalar"))       # noqa: B023
            assert keys(run_weft, folder, tmp_path / "out.gguf")[0][f"{arch}.attention.scale"] == expected, kind


def test_gates_of_gemma_3n_that_are_cut(run_weft, tmp_path):
    """Standard deviations above the mean where a share of a normal distribution ends; layers with a window."""
    folder, key = folders.write(tmp_path / "gemma3n", RECORDS["gemma3n"]), "gemma3n.activation_sparsity_scale"
    before = keys(run_weft, folder, tmp_path / "out.gguf")[0]
    put(folder, lambda c: c.update(activation_sparsity_pattern=[0.5, 0.25, 0.75, 0.9, 0.999] + [0.0] * 5, layer_types=(["full_attention"] + ["sliding_attention"] * 4) * 2))
    after = keys(run_weft, folder, tmp_path / "out.gguf")[0]
    assert after[key][:5] == pytest.approx([statistics.NormalDist().inv_cdf(p) for p in (0.5, 0.25, 0.75, 0.9, 0.999)], rel=1e-5, abs=1e-7) and after[key][5:] == [-math.inf] * 5
    assert before[key][:4] == pytest.approx([statistics.NormalDist().inv_cdf(0.95)] * 4, rel=1e-5)
    assert after["gemma3n.attention.sliding_window_pattern"] == [False, True, True, True, True] * 2 != before["gemma3n.attention.sliding_window_pattern"]


def test_yarn_whose_weights_of_the_logarithm_differ(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "qwen3-yarn", RECORDS["qwen3-yarn"]), tmp_path / "out.gguf"
    plain = keys(run_weft, folder, out)[0]
    assert not {"qwen3.rope.scaling.yarn_attn_factor", "qwen3.rope.scaling.yarn_truncate"} & plain.keys()
    put(folder, lambda c: c["rope_parameters"].update(mscale=0.5, mscale_all_dim=0.25, truncate=False))
    k, log = keys(run_weft, folder, out)[0], math.log(plain["qwen3.rope.scaling.factor"])
    assert k["qwen3.rope.scaling.yarn_attn_factor"] == pytest.approx((0.05 * log + 1) / (0.025 * log + 1), rel=1e-6)
    assert k["qwen3.rope.scaling.yarn_truncate"] is False
    oss = folders.write(tmp_path / "gpt-oss", RECORDS["gpt-oss"])
    assert "gpt-oss.rope.scaling.yarn_truncate" not in keys(run_weft, oss, out)[0]
    put(oss, lambda c: c["rope_parameters"].update(truncate=True))
    assert keys(run_weft, oss, out)[0]["gpt-oss.rope.scaling.yarn_truncate"] is True
    ministral = folders.write(tmp_path / "ministral3", RECORDS["ministral3"])
    put(ministral, lambda c: c["rope_parameters"].update(mscale=0.5))
    assert "key 'mscale': is not mscale_all_dim, but files of mistral3" in made(run_weft, ministral, out)[0]


def test_exaone_4_is_scaled_as_llama_3(run_weft, tmp_path):
    """Published folders of EXAONE 4 have this scaling; the factors are those that a folder of Llama's gets."""
    factors = []
    for kind in ("llama", "exaone4"):
        folder = folders.write(tmp_path / kind, RECORDS[kind])
        put(folder, lambda c: c.update(head_dim=16, rope_parameters={"rope_type": "llama3", "rope_theta": 1e6, "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}))
        factors.append(keys(run_weft, folder, tmp_path / "out.gguf")[1])
    assert factors[0] == factors[1] and len(set(factors[0]["rope_freqs.weight"])) > 2


def test_scales_of_minicpm_3(run_weft, tmp_path):
    """Files without keys mean the published model's scales; null is none."""
    folder, out = folders.write(tmp_path / "minicpm3", RECORDS["minicpm3"]), tmp_path / "out.gguf"
    names = [f"minicpm3.{n}" for n in ("embedding_scale", "residual_scale", "logit_scale", "rope.scaling.attn_factor", "rope.scaling.original_context_length")]
    assert not keys(run_weft, folder, out)[0].keys() & set(names)
    put(folder, lambda c: c.update(scale_emb=6, scale_depth=1.0, dim_model_base=128))
    k = keys(run_weft, folder, out)[0]
    assert [k.get(n) for n in names] == [6, pytest.approx(2 ** -0.5), 0.5, None, None]
    put(folder, lambda c: c.update(scale_depth=None, dim_model_base=None))
    k = keys(run_weft, folder, out)[0]
    assert [k[n] for n in names[:3]] == [6, 1, 1]
    put(folder, lambda c: c["rope_parameters"].update(original_max_position_embeddings=128))
    k = keys(run_weft, folder, out)[0]
    assert [k[n] for n in names[3:]] == [pytest.approx((1 + math.log(4) / math.log(128)) ** 0.5), 128]


@pytest.mark.parametrize("kind, layers", [("glm4moe", 2), ("glmdsa", 2), ("glm4lite", 2), ("deepseek32", 2), ("hyv3", 2), ("glm5next", 5)])
def test_blocks_that_config_json_announces_and_the_folder_lacks(run_weft, tmp_path, kind, layers):
    """As transformers saves a model that it loaded: without them."""
    record = RECORDS[kind]
    without = {**record, "tensors": {n: s for n, s in record["tensors"].items() if f"layers.{layers}." not in n}}
    k = keys(run_weft, folders.write(tmp_path / kind, without), tmp_path / "out.gguf")[0]
    arch = k["general.architecture"]
    assert k[f"{arch}.block_count"] == layers == record["keys"][f"{arch}.block_count"][1] - 1
    assert f"{arch}.nextn_predict_layers" not in k and record["keys"][f"{arch}.nextn_predict_layers"][1] == 1


def both_forms(run_weft, tmp_path, kind, drop, change):
    """Files of a published folder, and of one with other keys in their place."""
    record = json.loads(json.dumps(RECORDS[kind]))
    published = made(run_weft, folders.write(tmp_path / "published" / kind, record), tmp_path / "out.gguf")
    for key in drop:
        record["config"].pop(key, None)
    text_of(record["config"]).update(change)
    return published, made(run_weft, folders.write(tmp_path / "saved" / kind, record), tmp_path / "out.gguf")


SAVED = {   # as transformers saves it: what the published form has besides, and what this has
    "mimo2": (("hybrid_layer_pattern", "moe_layer_freq", "layernorm_epsilon", "swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads", "scoring_func", "topk_method", "rope_theta", "swa_rope_theta", "partial_rotary_factor"),
              {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "mlp_layer_types": ["dense", "sparse", "sparse"], "rms_norm_eps": 1e-5, "routed_scaling_factor": 1.0,
               "rope_parameters": {k: {"rope_type": "default", "rope_theta": t, "partial_rotary_factor": 0.334} for k, t in (("full_attention", 5e6), ("sliding_attention", 1e4))}}),
    "minimax-m3": (("moe_layer_freq", "sparse_attention_config", "n_shared_experts", "scoring_func", "use_gemma_norm", "use_qk_norm"), {}),
    "graniteswa": (("no_rope_layers",), {}), "glm4lite": (("first_k_dense_replace", "topk_method", "scoring_func"), {}), "hyv3": (("route_norm", "first_k_dense_replace"), {}), "deepseek32": (("first_k_dense_replace", "moe_layer_freq", "topk_method"), {})}


def test_hrm_as_published(run_weft, tmp_path):
    """num_hidden_layers is of a stack, without num_layers_per_stack."""
    published, saved = both_forms(run_weft, tmp_path, "hrm", ("num_layers_per_stack",), {"num_hidden_layers": 2})
    assert saved == published and len(saved[1]) > 10000, saved[0]


def test_names_of_hy4_as_transformers_saves_them(run_weft, tmp_path):
    """Its renaming is not the inverse of the one that reads published folders."""
    record, out = RECORDS["hyv4"], tmp_path / "out.gguf"
    names = [("mlp.gate_proj", "mlp.linear_gate"), ("shared_experts.gate_proj", "shared_experts.linear_gate"), ("hc_attn_layer.hc_pre.", "hc_pre.hc_attn_layer."), ("hc_mlp_layer.hc_pre.", "hc_pre.hc_mlp_layer."), ("model.hc_head.", "model.hc_pre.hc_head.")]
    tensors = record["tensors"]
    for a, b in names:
        tensors = {n.replace(a, b): s for n, s in tensors.items()}
    assert len(tensors.keys() - record["tensors"].keys()) == 1 + 2 + 3 * 6 + 3
    shapes = []
    for name, of in (("published", record["tensors"]), ("saved", tensors)):
        keys(run_weft, folders.write(tmp_path / name / "hyv4", {**record, "tensors": of}), out)
        shapes.append({t.name: t.shape.tolist() for t in gguf.GGUFReader(out).tensors})
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("kind", SAVED)
def test_a_folder_as_transformers_saves_it(run_weft, tmp_path, kind):
    published, saved = both_forms(run_weft, tmp_path, kind, *SAVED[kind])
    assert saved == published and len(saved[1]) > 10000, saved[0]


def test_the_window_of_mimo(run_weft, tmp_path):
    """sliding_window_size is of the positions before the token."""
    folder, out = folders.write(tmp_path / "mimo2", RECORDS["mimo2"]), tmp_path / "out.gguf"
    assert keys(run_weft, folder, out)[0]["mimo2.attention.sliding_window"] == 16
    put(folder, lambda c: c.update(sliding_window_size=16))
    assert keys(run_weft, folder, out)[0]["mimo2.attention.sliding_window"] == 17


def test_windows_of_laguna_in_another_order(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "laguna", RECORDS["laguna"]), tmp_path / "out.gguf"
    key = "laguna.attention.sliding_window_pattern"
    assert key not in keys(run_weft, folder, out)[0]
    put(folder, lambda c: c.update(layer_types=["sliding_attention"] * 4 + ["full_attention"]))
    assert keys(run_weft, folder, out)[0][key] == [True] * 4 + [False]


def test_dots3_as_transformers_saves_it(run_weft, tmp_path):
    """Sizes of layers with a window by the layers' numbers, bases of rotation by their kinds: the published folder's file."""
    record = json.loads(json.dumps(RECORDS["dots3"]))
    expected = made(run_weft, folders.write(tmp_path / "published" / "dots3", record), tmp_path / "out.gguf")[1]
    config = record["config"]
    own = {k: config.pop(f"swa_{k}") for k in ("num_attention_heads", "num_key_value_heads", "kv_lora_rank", "head_dim", "qk_nope_head_dim", "v_head_dim")}
    for key in ("swa_q_lora_rank", "swa_qk_rope_head_dim", "first_k_dense_replace", "moe_layer_freq", "scoring_func", "topk_method", "use_dsa", "apply_mla_qkv_lora_rescale"):
        del config[key]
    rope = {"indexed_attention": {"rope_type": "default", "rope_theta": config.pop("rope_theta"), "partial_rotary_factor": 1 / 3},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.pop("swa_rope_theta"), "partial_rotary_factor": 0.2}}
    config |= {"per_layer_config": {"1": own, "2": own}, "mlp_layer_types": ["dense"] + ["sparse"] * 3, "rope_parameters": rope, "sliding_window": config.pop("sliding_window_size"),
               "shared_experts_intermediate_size": config.pop("moe_shared_expert_intermediate_size"), "layer_types": [t.replace("full", "indexed") for t in config["layer_types"]]}
    error, bytes_ = made(run_weft, folders.write(tmp_path / "saved" / "dots3", record), tmp_path / "out.gguf")
    assert bytes_ == expected and len(expected) > 100000, error
    config["apply_mla_qkv_lora_rescale"] = False           # the norms stay as they are
    assert made(run_weft, folders.write(tmp_path / "bare" / "dots3", record), tmp_path / "out.gguf")[1] != expected
    config["rope_parameters"]["indexed_attention"]["rope_type"] = "dynamic"
    assert "'rope_type': 'dynamic' is not known" in made(run_weft, folders.write(tmp_path / "scaled" / "dots3", record), tmp_path / "out.gguf")[0]


def test_parts_of_the_table_of_n_grams(run_weft, tmp_path):
    """The file of a folder as transformers saves it is the published folder's; parts have to be there, in order of their numbers."""
    record = json.loads(json.dumps(RECORDS["qwen4exp"]))
    write = lambda name: folders.write(tmp_path / name / "qwen4exp", record)
    expected = made(run_weft, write("published"), tmp_path / "out.gguf")[1]
    record["config"]["layer_types"] = [t.replace("full", "indexed") for t in record["config"]["layer_types"]]
    assert made(run_weft, write("saved"), tmp_path / "out.gguf") == ("", expected)
    shard = "model.layers.0.ple.ple_embedding.ngram_embedding.shard_"
    record["tensors"][shard + "1.weight"][0] -= 1
    assert f"key '{shard}1.weight': has other rows than another part" in made(run_weft, write("uneven"), tmp_path / "out.gguf")[0]
    del record["tensors"][shard + "1.weight"]
    assert "part 1 of 'per_layer_token_embd.weight' is missing" in made(run_weft, write("fewer"), tmp_path / "out.gguf")[0]
    record["tensors"][shard + "3.weight"] = [8, 16]
    assert "is no matrix, or not one of 3 parts" in made(run_weft, write("more"), tmp_path / "out.gguf")[0]
    record = json.loads(json.dumps(RECORDS["qwen4exp"]))
    multipliers = "model.layers.0.ple.ple_embedding.layer_multipliers"
    record["integers"][multipliers][0] = -1
    assert f"key '{multipliers}': number 0 is negative" in made(run_weft, write("negative"), tmp_path / "out.gguf")[0]
    record["tensors"][multipliers] = record["integers"].pop(multipliers) and [3]
    assert f"key '{multipliers}': is not a list of integers of 64 bits" in made(run_weft, write("floats"), tmp_path / "out.gguf")[0]
