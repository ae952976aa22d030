"""weft convert: what is particular of folders whose class is Python code (src/model/hf_classes_coded.c). That their files are those of llama.cpp's converter is tested in test_convert.py."""
import json

import pytest
from conftest import load_tool

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
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
    *(("smallthinker", {key: [1] * 3}, f"'{key}': is not a list of 4 layers") for key in ("sliding_window_layout", "rope_layout", "moe_layer_layout")),
    ("smallthinker", {"rope_scaling": {"rope_type": "dynamic"}}, "'rope_type': 'dynamic' is not known"),
    ("maple", {"layer_types": ["sliding_attention"]}, "'layer_types': is not a list of 2 layers"),
    ("maple", {"num_hidden_layers": 2 ** 31 - 1, "sliding_window": 0}, "'num_hidden_layers': 2147483647 is more than 4096"),
    ("maple", {"partial_rotary_factor": 1.5}, "'partial_rotary_factor': is not from 0 to 1"),
    ("spark", {"layer_types": ["sliding_attention", "linear_attention"]}, "'layer_types': has 'linear_attention'"),
    ("spark", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "'partial_rotary_factor': of full_attention is missing, or not from 0 to 1"),
    *((k, {key: value}, f"'{key}': {value if isinstance(value, str) else json.dumps(value)}, but files of {arch}") for k, arch, key, value in (
        ("grok", "grok", "hidden_act", "silu"), ("jais", "jais", "activation_function", "gelu"), ("jais", "jais", "position_embedding_type", "learned"), ("jais", "jais", "mup_scale_qk_dot_by_d", False),
        *(("chatglm", "chatglm", key, value) for key, value in (("rmsnorm", False), ("add_bias_linear", True), ("multi_query_attention", False), ("post_layer_norm", False), ("apply_residual_connection_post_layernorm", True))))),
    *((k, {key: None}, f"'{key}': is missing") for k, key in (("grok", "output_multiplier_scale"), ("grok", "beta_fast"), ("jais", "mup_width_scale"), ("jais", "activation_function"), ("talkie", "head_dim"), ("chatglm", "num_attention_heads"))),
    ("grok", {"rope_type": "dynamic"}, "'rope_type': 'dynamic' is not known"),
    ("jais", {"mup_embeddings_scale": None}, "'embeddings_scale': is missing"),
    ("jais", {"mup_output_alpha": None}, "'width_scale': is missing"),
    ("jais", {"alibi_scaling": {"type": "linear", "factor": 8.0}}, "'alibi_scaling': is another, but files of jais have no key for it"),
    ("talkie", {"head_dim": 1}, "'head_dim': 4 heads of 1 elements are no such"),
    ("talkie", {"head_dim": 8}, "has other rows than the parts with factors"),
    ("chatglm", {"kv_channels": 32}, "'kv_channels': 32 is not the width divided by the heads, 16"),
    *(("rwkv7", {key: value}, f"'{key}': {json.dumps(value)}, but files of rwkv7") for key, value in (("norm_first", False), ("norm_bias", False))),
    ("rwkv7", {"attn": {"layers": [1]}}, "'attn': is another, but files of rwkv7 have no key for it"),
    ("rwkv6", {"rescale_every": 0.5}, "'rescale_every': is not a whole number"),
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


def with_tensors(folder, record, change):
    """Writes a folder in F32 whose tensors are changed: {name: (dtype, shape, bytes)}."""
    source = folders.write(folder, record, "F32")
    tensors = {n: ("F32", s, folders.weights(n, s, "F32")) for n, s in record["tensors"].items()}
    change(tensors)
    folders.safetensors(source / "model.safetensors", tensors)
    return source


def floats_of(run_weft, folder, out):
    assert run_weft(["convert", folder, out, "--outtype", "f32"]).returncode == 0
    return {t.name: np.array(t.data) for t in gguf.GGUFReader(out).tensors}


def test_a_head_of_jais_that_is_its_embeddings(run_weft, tmp_path):
    """Both are scaled, each by its factor: the file has two matrices. The converter writes one, and llama.cpp does not open its file."""
    out, record = tmp_path / "out.gguf", RECORDS["jais"]
    two = floats_of(run_weft, folders.write(tmp_path / "two" / "jais", record, "F32"), out)
    one = floats_of(run_weft, with_tensors(tmp_path / "one" / "jais", record, lambda t: t.pop("lm_head.weight")), out)
    assert one.keys() == two.keys() and (one["token_embd.weight"] == two["token_embd.weight"]).all()
    config, plain = record["config"], np.frombuffer(folders.weights("transformer.wte.weight", [320, 64], "F32"), np.float32).reshape(320, 64)
    assert (one["output.weight"] == plain * np.float32(config["mup_output_alpha"] * config["mup_width_scale"])).all()


@pytest.mark.parametrize("first, expected", [(2 ** -2.0, 8), (2 ** -1.0, 4), (-1.0, None), (0.0, None)])
def test_slopes_of_jais(run_weft, tmp_path, first, expected):
    """Four heads: the first slope is 2 to the power of a fourth of the greatest exponent."""
    slopes = np.array([first, 1, 1, 1], np.float32).tobytes()
    folder = with_tensors(tmp_path / "jais", RECORDS["jais"], lambda t: t.update({"transformer.relative_pe.slopes": ("F32", [4], slopes)}))
    if expected is None:
        assert "'n_head': the folder's slopes are not ALiBi's" in made(run_weft, folder, tmp_path / "out.gguf")[0]
    else:
        assert keys(run_weft, folder, tmp_path / "out.gguf")[0]["jais.attention.max_alibi_bias"] == expected


def test_talkie_without_the_gain_of_its_head(run_weft, tmp_path):
    for change in (lambda t: t.pop("lm_head_gain.w_g"), lambda t: t.update({"lm_head_gain.w_g": ("F32", [2], bytes(8))})):
        folder = with_tensors(tmp_path / "talkie", RECORDS["talkie"], change)
        assert "the folder has no lm_head_gain.w_g with one number" in made(run_weft, folder, tmp_path / "out.gguf")[0]


GLM4_WORDS = folders.QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
GLM4_SETTINGS = folders.settings(tokenizer_class="ChatGLM4Tokenizer", eos_token="<|endoftext|>", added_tokens_decoder={str(i): {"content": t, "special": True} for i, t in ((270, "<|endoftext|>"), (271, "[gMASK]"), (272, "<|user|>"))})


def test_a_vocabulary_of_ranks_of_chatglm(run_weft, tmp_path):
    """GLM 4 of 2024 as published: tiktoken's format under the name tokenizer.model."""
    tiktoken = pytest.importorskip("tiktoken")
    record = {**RECORDS["chatglm"], "ranks": "tokenizer.model", "tokenizer_config": GLM4_SETTINGS}
    source, tokens = folders.write(tmp_path / "chatglm", {**record, "config": {**record["config"], "eos_token_id": [270, 272]}}), folders.rank_tokens()
    special = {"<|endoftext|>": 270, "[gMASK]": 271, "<|user|>": 272}
    theirs = tiktoken.Encoding("own", pat_str=GLM4_WORDS, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens=special)
    for text in ("def f(a): return a if DEF else 12345\n\n   \u4e16\u754creturn \u00e9 x\u00e9y returns'LL", "".join(special)):
        ours = run_weft(["tokenize", "-m", source, "-p", text, "--ids", "--no-bos", "--parse-special"])
        assert ours.returncode == 0, ours.err
        assert json.loads(ours.out) == theirs.encode(text, allowed_special="all"), text
    k = keys(run_weft, source, tmp_path / "out.gguf")[0]
    assert [k[f"tokenizer.ggml.{role}_token_id"] for role in ("eos", "eot", "unknown")] == [270, 272, 270] and k["tokenizer.ggml.add_bos_token"] is False
    assert k["tokenizer.ggml.tokens"][272:274] == ["<|user|>", "[PAD273]"] and k["tokenizer.ggml.token_type"][272:274] == [3, 5]
    put_settings = json.loads(json.dumps(GLM4_SETTINGS))
    del put_settings["added_tokens_decoder"]["272"]
    (source / "tokenizer_config.json").write_text(json.dumps(put_settings))
    assert "tokenizer_config.json: key 'added_tokens_decoder': has no <|user|>" in made(run_weft, source, tmp_path / "none.gguf")[0]


def test_pieces_of_chatglm_3(run_weft, tmp_path):
    """SentencePiece, and after its pieces the special tokens of the class."""
    record = {**RECORDS["chatglm"], "pieces": True, "tokenizer_config": {"tokenizer_class": "ChatGLMTokenizer"}}
    source = folders.write(tmp_path / "chatglm", {**record, "config": {**record["config"], "eos_token_id": 2, "pad_token_id": 0}})
    k = keys(run_weft, source, tmp_path / "out.gguf")[0]
    tokens, kinds, scores = (k[f"tokenizer.ggml.{n}"] for n in ("tokens", "token_type", "scores"))
    end = tokens.index("[MASK]")
    assert k["tokenizer.ggml.model"] == "llama" and k["tokenizer.ggml.pre"] == "chatglm-spm" and k["tokenizer.ggml.eos_token_id"] == 2 and "tokenizer.ggml.eot_token_id" not in k
    assert tokens[:4] == ["<unk>", "<bos>", "<eos>", "<0x00>"] and kinds[:4] == [2, 3, 3, 6] and tokens[end - 1] == ","
    assert tokens[end:end + 10] == ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", f"[PAD{end + 9}]"] and kinds[end:end + 10] == [3] * 9 + [5]
    assert scores[end:] == [0] * (len(tokens) - end) and scores[end - 1] == -(end - 1)
    ours = run_weft(["tokenize", "-m", source, "-p", "[gMASK]sop<|user|>", "--ids", "--no-bos", "--parse-special"])
    assert json.loads(ours.out)[:1] == [end + 1] and json.loads(ours.out)[-1] == end + 6


def test_mixes_of_rwkv_7_in_one_tensor(run_weft, tmp_path):
    """Older folders have the vectors of a layer side by side: the same file."""
    def joined(tensors):
        for i in (0, 1):
            at = f"model.layers.{i}.attn.x_"
            tensors[at + "x"] = ("F32", [6, 1, 1, 64], b"".join(tensors.pop(at + c)[2] for c in "rwkvag"))

    out = tmp_path / "out.gguf"
    apart, one = (with_tensors(tmp_path / name / "rwkv7", RECORDS["rwkv7"], change) for name, change in (("a", lambda t: None), ("b", joined)))
    expected = made(run_weft, apart, out)
    assert made(run_weft, one, out) == expected and len(expected[1]) > 10000


def test_sizes_that_folders_of_rwkv_leave_to_the_class(run_weft, tmp_path):
    """The published code's rules, here for a width of 64."""
    for kind, width, unset, names in (("rwkv7", 256, [f"{n}_low_rank_dim" for n in ("decay", "a", "v", "gate")], ["attention.decay_lora_rank", "attention.iclr_lora_rank", "attention.value_residual_mix_lora_rank", "attention.gate_lora_rank"]),
                                      ("rwkv6", 224, [], ["time_mix_extra_dim"])):
        record = json.loads(json.dumps(RECORDS[kind]))
        tensors = {n: [32 if "_lora.lora." in n and k < 64 else width if k == 96 else k for k in s] for n, s in record["tensors"].items()}
        folder = folders.write(tmp_path / kind, {**record, "tensors": tensors})
        put(folder, lambda c, unset=unset: c.update(intermediate_size=None, **dict.fromkeys(unset)))
        k = keys(run_weft, folder, tmp_path / "out.gguf")[0]
        assert [k[f"{kind}.{n}"] for n in ("feed_forward_length", *names)] == [width] + [32] * len(names)


def test_a_rescaling_of_rwkv_6_that_is_null(run_weft, tmp_path):
    """It is none: matrices are as with 0."""
    made_of = []
    for every in (0, None, 1):
        folder = folders.write(tmp_path / str(every), RECORDS["rwkv6"], "F32")
        put(folder, lambda c, every=every: c.update(rescale_every=every))
        made_of.append(floats_of(run_weft, folder, tmp_path / "out.gguf"))
    none, null, each = made_of
    assert all((none[n] == null[n]).all() for n in none) and any((none[n] != each[n]).any() for n in none)


def test_a_folder_of_rwkv_without_a_template(run_weft, tmp_path):
    folder = folders.write(tmp_path / "rwkv7", RECORDS["rwkv7"])
    (folder / "chat_template.jinja").unlink()
    assert keys(run_weft, folder, tmp_path / "out.gguf")[0]["tokenizer.chat_template"] == "rwkv-world"


WORLD = "rwkv_vocab_v20230424.txt"


@pytest.mark.parametrize("line", ["", "1", "1 'a'", "1 'a' x", "1 'a' 2", "1 a 1", "1 'a 1", "1 'a\" 1", "1 '' 0", r"1 '\x' 1", r"1 '\xg0' 1", r"1 '\q' 1", "1 '\\' 1", r"1 b'\u0041' 1", r"1 '\U00110000' 4", r"1 '\ud800' 3", "1 'a'b' 3", "'a' 1"])
def test_lines_of_a_vocabulary_of_rwkv_that_are_none(run_weft, tmp_path, line):
    folder = folders.write(tmp_path / "rwkv7", RECORDS["rwkv7"])
    (folder / WORLD).write_text("1 'a' 1\n" + line + "\n3 'c' 1\n", encoding="utf-8")
    assert f"{WORLD}: line 2 is no number, text and length of a token" in made(run_weft, folder, tmp_path / "out.gguf")[0]


def test_vocabularies_that_rwkv_does_not_have(run_weft, tmp_path):
    folder = folders.write(tmp_path / "rwkv7", RECORDS["rwkv7"])
    (folder / WORLD).write_text("".join(f"{i} '{i}' {len(str(i))}\n" for i in range(1, 321)))
    assert f"{WORLD}: has more tokens than config.json says, 320" in made(run_weft, folder, tmp_path / "out.gguf")[0]
    (folder / WORLD).unlink()
    assert f"{WORLD}: is missing" in made(run_weft, folder, tmp_path / "out.gguf")[0]
