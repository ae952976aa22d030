"""weft convert: what is particular of folders whose class is Python code (src/model/hf_classes_coded.c). That their files are those of llama.cpp's converter is tested in test_convert.py."""
import json

import pytest
from conftest import load_tool

gguf = pytest.importorskip("gguf")
settings = load_tool("../python/test_convert_settings")
folders, RECORDS, keys, made, put = (getattr(settings, n) for n in ("folders", "RECORDS", "keys", "made", "put"))


@pytest.mark.parametrize("kind, change, expected", [
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (
        ("iquestcoder", "llama", "use_sliding_window", True), ("iquestcoder", "llama", "clip_qkv", 8), ("pangu", "pangu-embedded", "hidden_act", "gelu"), ("maincoder", "maincoder", "use_qk_norm", False), ("maincoder", "maincoder", "attention_bias", True),
        ("plm", "plm", "hidden_act", "silu"), ("plm", "plm", "q_lora_rank", 24), ("sarvam", "bailingmoe2", "use_qk_norm", False), ("grovemoe", "grovemoe", "norm_topk_prob", False), ("grovemoe", "grovemoe", "decoder_sparse_step", 2),
        ("smallthinker", "smallthinker", "moe_enable_early_router", False), ("smallthinker", "smallthinker", "norm_topk_prob", False), ("maple", "maple", "nope_on_global_attention", False), ("maple", "maple", "num_shared_experts", 1),
        ("spark", "spark2_5", "hidden_act", "silu"), ("spark", "spark2_5", "headwise_attn_output_gate", False), ("spark", "spark2_5", "gate_attn_act_mode", "softplus"))),
    *((k, {key: None}, f"'{key}': is missing") for k, key in (("plm", "kv_lora_rank"), ("plm", "qk_nope_head_dim"), ("smallthinker", "moe_ffn_hidden_size"), ("smallthinker", "sliding_window_size"), ("maple", "nope_on_global_attention"), ("maple", "sliding_window"),
                                                              ("spark", "layer_types"), ("spark", "gate_attn_act_mode"))),
    ("plm", {"qk_nope_head_dim": 1 << 31}, "'qk_nope_head_dim': gives attention.key_length 2147483656, which is too much"),
    ("smallthinker", {"sliding_window_layout": [1, 1, 1, 1]}, "'sliding_window_layout': has another value than 0 at 0"),
    ("smallthinker", {"sliding_window_layout": [0, 1, 1, "x"]}, "'sliding_window_layout': has another value than 1 at 3"),
    ("smallthinker", {"rope_layout": [1, 1, 1, 1]}, "'rope_layout': has another value than 0 at 0"),
    ("smallthinker", {"sliding_window_layout": [0] * 4}, "'rope_layout': has another value than 1 at 0"),
    ("smallthinker", {"moe_layer_layout": [0, 1, 1, 1]}, "'moe_layer_layout': has another value than 1 at 0"),
    ("smallthinker", {"rope_scaling": {"rope_type": "dynamic"}}, "'rope_type': 'dynamic' is not known"),
    ("maple", {"layer_types": ["sliding_attention"]}, "'layer_types': is not a list of 2 layers"),
    ("maple", {"partial_rotary_factor": 1.5}, "'partial_rotary_factor': is not from 0 to 1"),
    ("spark", {"layer_types": ["sliding_attention", "linear_attention"]}, "'layer_types': has 'linear_attention'"),
    ("spark", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "'partial_rotary_factor': of full_attention is missing, or not from 0 to 1"),
    ("nanbeige", {"skip_loop_final_norm": 1}, "'skip_loop_final_norm': is not true or false"),
])
def test_settings_without_a_key(run_weft, tmp_path, kind, change, expected):
    folder = folders.write(tmp_path / kind, RECORDS[kind])
    put(folder, lambda c: c.update(change))
    error, bytes_ = made(run_weft, folder, tmp_path / "out.gguf")
    assert expected in error and not bytes_, error


def test_small_thinker_without_windows(run_weft, tmp_path):
    """The smaller one: all layers rotate, and files have no window. Scores of experts may be a softmax."""
    folder, out = folders.write(tmp_path / "smallthinker", RECORDS["smallthinker"]), tmp_path / "out.gguf"
    put(folder, lambda c: c.update(sliding_window_layout=[0] * 4, rope_layout=[1] * 4, moe_primary_router_apply_softmax=True))
    k = keys(run_weft, folder, out)[0]
    assert k["smallthinker.expert_gating_func"] == 1 and "smallthinker.attention.sliding_window" not in k


def test_one_loop_of_nanbeige(run_weft, tmp_path):
    folder, out = folders.write(tmp_path / "nanbeige", RECORDS["nanbeige"]), tmp_path / "out.gguf"
    put(folder, lambda c: (c.pop("num_loops"), c.pop("skip_loop_final_norm")))
    k = keys(run_weft, folder, out)[0]
    assert k["nanbeige.num_loops"] == 1 and k["nanbeige.skip_loop_final_norm"] is False


def test_sarvam_as_transformers_saves_it(run_weft, tmp_path):
    """Numbers of experts under the names of transformers, and the unused settings of the class; the same file."""
    record = json.loads(json.dumps(RECORDS["sarvam"]))
    expected = made(run_weft, folders.write(tmp_path / "a" / "sarvam", record), tmp_path / "out.gguf")
    config = record["config"]
    config |= {"n_routed_experts": config.pop("num_experts"), "n_shared_experts": config.pop("num_shared_experts"), "attention_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": config.pop("rope_theta"), "partial_rotary_factor": 1.0}}
    for key in ("score_function", "moe_router_enable_expert_bias", "norm_head", "use_bias", "use_qkv_bias"):
        del config[key]
    assert made(run_weft, folders.write(tmp_path / "b" / "sarvam", record), tmp_path / "out.gguf") == expected and len(expected[1]) > 10000


@pytest.mark.parametrize("kind, name", [("sarvam", "modeling_sarvam_moe.SarvamMoEForCausalLM"), ("grovemoe", "modeling_grove_moe.GroveMoeForCausalLM")])
def test_other_names_of_classes(run_weft, tmp_path, kind, name):
    folder, out = folders.write(tmp_path / kind, RECORDS[kind]), tmp_path / "out.gguf"
    expected = made(run_weft, folder, out)
    put(folder, lambda c: c.update(architectures=[name]))
    assert made(run_weft, folder, out) == expected and len(expected[1]) > 10000
