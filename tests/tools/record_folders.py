#!/usr/bin/env python3
"""record_folders.py: small folders of every class that weft convert knows, and what llama.cpp's converter writes for them, for tests/records/folders.

    record_folders.py LLAMA_CPP OUT_FOLDER [NAME ...]       default: all names

LLAMA_CPP is its source (the records were made with 0c1e570's convert_hf_to_gguf.py and transformers 5.24.0). config.json and the names and shapes of tensors are what transformers
saves for a small model; weights are those of make_folder.py. Of keys the values are recorded, of tensors type, shape and a hash; "answer" is what transformers says of the token after some others. The converter finds the name of a way to cut words
by a hash of tokens, which made-up vocabularies have not: the name is given to it.
"""
import hashlib
import json
import runpy
import sys
import tempfile
import types
from pathlib import Path

import make_folder
import numpy as np

SMALL = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1000000.0}
LONG = {"rope_type": "longrope", "long_factor": [1.0, 1.5, 2.0, 3.5, 4.0, 4.0, 5.0, 6.0], "short_factor": [1.0] * 8, "rope_theta": 10000.0, "original_max_position_embeddings": 128}
ADDED = {"5": {"content": "<|im_end|>", "special": False}, "300": {"content": "\u2581\u2581 tab", "special": False}, "301": {"content": "[X]", "special": True}}
WITH_PIECES = {"pieces": True, "tokenizer_config": make_folder.settings(tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=False, bos_token="<s>", added_tokens_decoder=ADDED)}
GLM = {"own": {"added": ["<|endoftext|>", "[gMASK]", "<|user|>"]}, "tokenizer_config": make_folder.settings(eos_token="<|endoftext|>")}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *("##" + c for c in "abcdefghij"), "the", "##ing"]
PIECE = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": i, "content": WORDS[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(5)],
         "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
         "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                            "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("[CLS]", 2), ("[SEP]", 3))}},
         "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
         "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(WORDS)}}}
BERT = {"tokenizer": PIECE, "tokenizer_config": {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]", "tokenizer_class": "BertTokenizer"},
        "files": {"modules.json": json.dumps([{"idx": 0, "path": "", "type": "Transformer"}, {"idx": 1, "path": "1_Pooling", "type": "models.Pooling"}]), "1_Pooling/config.json": json.dumps({"pooling_mode_cls_token": True})}}
JINA = {**BERT, "as_is": True, "said": {"architectures": ["JinaBertForMaskedLM"], "position_embedding_type": "alibi", "feed_forward_type": "geglu", "emb_pooler": "mean"},
        "without": ("intermediate.dense.weight", "intermediate.dense.bias", "position_embeddings.weight", *(f"layer.{i}.output.{n}" for i in range(2) for n in ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias"))),
        "besides": {**{f"encoder.layer.{i}.mlp.{n}": s for i in range(2) for n, s in (("gated_layers.weight", [192, 64]), ("wo.weight", [64, 96]), ("wo.bias", [64]), ("layernorm.weight", [64]), ("layernorm.bias", [64]))},
                    "cls.predictions.bias": [32], "cls.predictions.decoder.weight": [32, 64], "cls.predictions.transform.LayerNorm.weight": [64]}}
ALIGNED = make_folder.unigram_json(("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",), ())
N_ALIGNED = len(ALIGNED["model"]["vocab"])
MEAN = {**BERT["files"], "1_Pooling/config.json": json.dumps({"pooling_mode_mean_tokens": True})}
BARE = dict.fromkeys(("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings", "head_dim", "rope_parameters", "hidden_act", "layer_norm_eps"))
NEOBERT = {"architectures": ["NeoBERTLMHead"], "model_type": "neobert", "norm_eps": 1e-5, "max_length": 512, "dim_head": 16,
           **dict.fromkeys(("hidden_act", "layer_norm_eps", "max_position_embeddings", "type_vocab_size", "attention_probs_dropout_prob", "hidden_dropout_prob", "is_decoder", "add_cross_attention", "position_embedding_type", "use_cache"))}
NOMIC_MOE = {**BARE, "n_embd": 64, "n_head": 4, "n_layer": 4, "n_inner": 96, "n_positions": 2048, "max_trained_positions": 2048, "activation_function": "gelu", "causal": False, "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True,
             "prenorm": False, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_base": 10000, "layer_norm_epsilon": 1e-5, "rotary_emb_scale_base": ..., "type_vocab_size": 1, "moe_every_n_layers": 2, "moe_top_k": 2,
             "num_experts": 4, "num_shared_experts": 0, "moe_normalize_expert_weights": False, "expert_choice_router": False, "ffn_div": 1, "parallel_block": False, "use_rms_norm": ...}
JINA3 = {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "lora_adaptations": ["retrieval.query", "separation"], "lora_alpha": 1, "lora_rank": 4, "position_embedding_type": "rotary", "rotary_emb_base": 20000.0,
         "rope_parameters": None}


def biased(name, rows, columns):
    return {name + ".weight": [rows, columns], name + ".bias": [rows]}


def norms(*names):
    return {f"{n}.{end}": [64] for n in names for end in ("weight", "bias")}


def neobert_tensors():
    layers = {f"model.transformer_encoder.{i}.{n}.weight": s for i in range(2) for n, s in (("attention_norm", [64]), ("qkv", [192, 64]), ("wo", [64, 64]), ("ffn_norm", [64]), ("ffn.w12", [128, 64]), ("ffn.w3", [64, 64]))}
    return {"model.encoder.weight": [32, 64], **layers, "model.layer_norm.weight": [64], **biased("decoder", 32, 64)}


def nomic_moe_tensors():
    out = {"embeddings.word_embeddings.weight": [N_ALIGNED, 64], "embeddings.token_type_embeddings.weight": [1, 64], **norms("emb_ln")}
    for i in range(4):
        at = f"encoder.layers.{i}."
        moe = {at + "mlp.router.layer.weight": [4, 64], at + "mlp.experts.mlp.w1": [4 * 96, 64], at + "mlp.experts.mlp.w2": [4 * 96, 64], at + "mlp.experts.bias": [64]}
        out |= {**biased(at + "attn.Wqkv", 192, 64), **biased(at + "attn.out_proj", 64, 64), **norms(at + "norm1", at + "norm2"), **(moe if i % 2 else {**biased(at + "mlp.fc1", 96, 64), **biased(at + "mlp.fc2", 64, 96)})}
    return out


SWITCH = {"architectures": ["GraniteSwitchForCausalLM"], "model_type": "granite_switch", "num_hidden_layers": 3, "num_adapters": 3, "max_lora_rank": 4, "adapter_token_ids": [300, 301, 302], "adapter_substitute_token_ids": [5, 6, 7],
          "adapter_ranks": [4, 2, 4], "control_token_gain": 15.0, "position_embedding_type": "rope", "tie_word_embeddings": True, "layer_types": ["attention"] * 3, "num_local_experts": 0, "num_experts_per_tok": 10}


def switch_tensors():
    out = {"model.embed_tokens.weight": [320, 64], "model.norm.weight": [64], "model.switch.counter": [4], "model.adapter_token_ids": [3]}
    for i in range(2):
        at = f"model.layers.{i}."
        out |= {at + "input_layernorm.weight": [64], at + "post_attention_layernorm.weight": [64]}
        for part, rows, columns, slices in (("self_attn.qkv_proj", 128, 64, (64, 32, 32)), ("self_attn.o_proj", 64, 64, None), ("shared_mlp.input_linear", 192, 64, (96, 96)), ("shared_mlp.output_linear", 64, 96, None)):
            out[f"{at}{part}.base_layer.weight"] = [rows, columns]
            for end, n in ((f"_slices.{k}", n) for k, n in enumerate(slices)) if slices else (("", rows),):
                out |= {f"{at}{part}.lora_A{end}": [3, 1, 4, columns], f"{at}{part}.lora_B{end}": [3, 1, n, 4]}
    return out


def jina3_tensors():
    """As published: matrices beside their adapters."""
    def adapted(stem, rows, columns):
        stem = f"roberta.{stem}.parametrizations.weight."
        return {stem + "original": [rows, columns], stem + "0.lora_A": [2, 4, columns], stem + "0.lora_B": [2, rows, 4]}
    out = {**adapted("embeddings.word_embeddings", 32, 64), **adapted("embeddings.token_type_embeddings", 1, 64), **norms("roberta.emb_ln"), **adapted("pooler.dense", 64, 64), "roberta.pooler.dense.bias": [64]}
    for i in range(2):
        at = f"encoder.layers.{i}."
        for part, rows, columns in (("mixer.Wqkv", 192, 64), ("mixer.out_proj", 64, 64), ("mlp.fc1", 96, 64), ("mlp.fc2", 64, 96)):
            out |= {**adapted(at + part, rows, columns), f"roberta.{at}{part}.bias": [rows]}
        out |= norms(*(f"roberta.{at}{n}" for n in ("norm1", "norm2")))
    return out


DOTS3_WINDOW = {"swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_q_lora_rank": 24, "swa_kv_lora_rank": 48, "swa_head_dim": 40, "swa_qk_nope_head_dim": 32, "swa_qk_rope_head_dim": 8, "swa_v_head_dim": 16}
DOTS3 = {"num_hidden_layers": 4, "num_key_value_heads": 4, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8, "v_head_dim": 24, "qk_nope_head_dim": 16,
         "head_dim": 24, "index_topk": 8, "index_head_dim": 16, "index_n_heads": 16, "sliding_window_size": 16, **DOTS3_WINDOW, "moe_shared_expert_intermediate_size": 32, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DOTS3_SAID = {**DOTS3_WINDOW, "per_layer_config": None, "rope_parameters": None, "rope_theta": 8e7, "swa_rope_theta": 5e4, "layer_types": DOTS3["layer_types"], "sliding_window_size": 16, "sliding_window": None, "mlp_layer_types": None,
              "first_k_dense_replace": 1, "moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "use_dsa": True, "apply_mla_qkv_lora_rescale": True, "shared_experts_intermediate_size": None, "moe_shared_expert_intermediate_size": 32}
DOTS3_MTP = {"eh_proj": [64, 128], "enorm": [64], "hnorm": [64], "shared_head.norm": [64]}


EYES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
LINEAR = {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 32, "head_dim": 32}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2], "mrope_interleaved": True}}
QWEN4 = {**LINEAR, **EXPERTS, **SECTIONS, "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2, "hc_count": 3, "hc_lowrank": 16, "ple_layer_ids": [1], "ple_embed_dim": 64, "ngram_size": 3, "heads_per_ngram": 2,
         "ngram_vocab_size_base": 50, "split_ngram_parts": 3, "make_ngram_vocab_size_divisible_by": 8, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16, "indexer_compress_ratio": 4, "eos_token_id": 2,
         "output_gate_type": "sigmoid"}
QWEN_EYES = {"hidden_size": 32, "intermediate_size": 48, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16, "deepstack_visual_indexes": []}
QWEN25_EYES = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64}
MINISTRAL = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1000000.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
GEMMA4 = {"layer_types": ["sliding_attention", "full_attention"] * 2, "head_dim": 32, "global_head_dim": 64, "sliding_window": 64, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 16, "use_double_wide_mlp": True,
          "final_logit_softcapping": 30.0}
GEMMA4_EXPERTS = {"layer_types": ["sliding_attention", "full_attention"], "head_dim": 32, "global_head_dim": 64, "sliding_window": 64, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                  "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32, "use_bidirectional_attention": "vision"}
KIMI = {"model_max_length": 512, "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 32, "num_hidden_layers": 4, "num_key_value_heads": 4, "vocab_size": 540, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 24, "linear_head_dim": 32, "linear_num_heads": 4, "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"], "pad_token_id": 500, "bos_token_id": 270,
        "eos_token_id": 271, "max_position_embeddings": None}
KIMI_RANKS = {"ranks": "tiktoken.model", "tokenizer_config": make_folder.settings(tokenizer_class="TikTokenTokenizer", bos_token="[BOS]", eos_token="<|im_end|>",
                                                                                   added_tokens_decoder={str(i): {"content": t, "special": True} for i, t in ((270, "[BOS]"), (271, "[EOS]"), (272, "<|im_end|>"), (526, "<|late|>"))})}
HUNYUAN = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128, "num_experts": 4, "moe_topk": [2, 2], "max_position_embeddings": 32768, "pad_token_id": 0,
           "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 10000.0}}
HUNYUAN_RANKS = {"ranks": "hy.tiktoken", "tokenizer_config": make_folder.settings(tokenizer_class="HYTokenizer", bos_token="<|startoftext|>", eos_token="<|eos|>", pad_token="<|pad|>"), "as_is": True,
                 "said": {"moe_intermediate_size": [96, 96], "num_shared_expert": [1, 1]}}
GLM5_NEXT = {"text_config": {**SMALL, "num_hidden_layers": 5, "moe_intermediate_size": 32, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "kv_lora_rank": 32, "q_lora_rank": 24, "v_head_dim": 24, "qk_nope_head_dim": 16,
                             "index_topk": 8, "index_head_dim": 16, "index_n_heads": 16, "index_kpool": 4, "linear_head_dim": 32, "linear_num_heads": 4, "pad_token_id": 0, "mlp_layer_types": ["dense"] + ["sparse"] * 4,
                             "layer_types": ["linear_attention", "indexed_attention", "indexed_attention", "linear_attention", "indexed_attention"], "indexer_types": ["full", "full", "shared", "full", "full"]},
             "vision_config": {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64, "projection_intermediate_size": 64}}
GEMMA3N = {"num_hidden_layers": 10, "head_dim": 32, "intermediate_size": [96] * 10, "sliding_window": 64, "num_kv_shared_layers": 5, "hidden_size_per_layer_input": 32, "laurel_rank": 64, "vocab_size_per_layer_input": 320,
           "activation_sparsity_pattern": [0.95] * 4 + [0.0] * 6}
N_LINES = len(make_folder.gemma_tokenizer()["model"]["vocab"]) + 2
LINES = {"lines": True, "tokenizer_config": {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>", "image_token": "<|image>",
                                             "extra_special_tokens": ["<|turn>", "<|late|>"]}}
GEMMA_EYES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
ALONE = {"arguments": ["--no-mtp"]}
GLM_MOE = {"own": {"added": ["<|endoftext|>", "[gMASK]", "<|user|>", "<|observation|>"]}, "tokenizer_config": make_folder.settings(eos_token="<|endoftext|>")}
SCALES = {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0156}
LATENT = {"num_key_value_heads": 4, "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
          "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24}
MTP = {"eh_proj": [64, 128], "enorm": [64], "hnorm": [64], "embed_tokens": [320, 64], "shared_head.norm": [64], "shared_head.head": [320, 64]}    # what a layer that predicts a further token has besides
LOG_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 10000.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}
LLADA = {"architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "mlp_hidden_size": 96, "max_sequence_length": 512, "activation_type": "silu", "block_type": "llama",
         "layer_norm_type": "rms", "rope": True, "alibi": False, "include_bias": False, "weight_tying": False, "rope_theta": 500000.0, "mask_token_id": 270,
         **dict.fromkeys(("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings", "head_dim", "rope_parameters", "hidden_act", "tie_word_embeddings"))}
LLADA_NAMES = [("model.layers.", "model.transformer.blocks."), ("model.embed_tokens.", "model.transformer.wte."), ("model.norm.", "model.transformer.ln_f."), ("lm_head.", "model.transformer.ff_out."), ("self_attn.o_proj", "attn_out"),
               ("self_attn.", ""), ("mlp.gate_proj", "ff_proj"), ("mlp.up_proj", "up_proj"), ("mlp.down_proj", "ff_out"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ff_norm")]
GPT = dict.fromkeys(("intermediate_size", "num_key_value_heads"))
NOMIC = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_inner": 96, "n_positions": 8192, "activation_function": "swiglu", "causal": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False,
         "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_base": 1000, "layer_norm_epsilon": 1e-12, "rotary_emb_scale_base": ...,
         **dict.fromkeys(("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings", "head_dim", "rope_parameters", "hidden_act", "layer_norm_eps"))}
T5 = {"num_decoder_layers": 2, "d_kv": 24, "d_ff": 96, "num_key_value_heads": None, "decoder_start_token_id": 0}
MIMO = {"num_hidden_layers": 3, "head_dim": 32, "v_head_dim": 24, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "sliding_window": 16, "bos_token_id": 1, "eos_token_id": 2}
MIMO_SAID = {"hybrid_layer_pattern": [0, 1, 1], "moe_layer_freq": [0, 1, 1], "layernorm_epsilon": 1e-5, "rms_norm_eps": None, "swa_head_dim": 32, "swa_v_head_dim": 24, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
             "rope_parameters": None, "rope_theta": 5000000.0, "swa_rope_theta": 10000.0, "partial_rotary_factor": 0.334, "layer_types": None, "mlp_layer_types": None, "routed_scaling_factor": None, "attention_projection_layout": "split"}
M3_TEXT = {**SMALL, "num_hidden_layers": 4, "head_dim": 32, "rotary_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.5}, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32, "dense_intermediate_size": 96, "shared_intermediate_size": 32, "bos_token_id": 1, "eos_token_id": 2,
           "moe_layer_freq": [0, 1, 1, 1], "sparse_attention_config": {"sparse_num_index_heads": 2, "sparse_index_dim": 32, "sparse_block_size": 8, "sparse_topk_blocks": 2, "sparse_local_block": 1, "sparse_attention_freq": [0, 1, 1, 1]}}
LAGUNA_ROPE = {"full_attention": {**YARN, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}


HYV4_NAMES = [("mlp.linear_gate", "mlp.gate_proj"), ("shared_experts.linear_gate", "shared_experts.gate_proj"), ("hc_pre.hc_attn_layer.", "hc_attn_layer.hc_pre."), ("hc_pre.hc_mlp_layer.", "hc_mlp_layer.hc_pre."), ("model.hc_pre.hc_head.", "model.hc_head.")]


V4 = {"num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 32, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "q_lora_rank": 24, "o_groups": 2, "o_lora_rank": 32, "index_n_heads": 16, "index_head_dim": 16,
      "index_topk": 4, "sliding_window": 16, "hc_mult": 3, "qk_rope_head_dim": 8, "compress_ratios": [0, 4, 128, 4], "num_hash_layers": 1, "intermediate_size": None, "bos_token_id": 1, "eos_token_id": 2}
V4_SAID = {"compress_ratios": [0, 4, 128, 4, 0], "num_hash_layers": 1, "num_nextn_predict_layers": 1, "layer_types": None, "mlp_layer_types": None, "compress_rates": None, "partial_rotary_factor": None, "rope_parameters": None, "topk_method": "noaux_tc", "expert_dtype": "fp4",
           "rope_scaling": {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1}, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}}
V4_NAMES = [("model.", ""), ("embed_tokens", "embed"), ("hc_head.hc_", "hc_head_"), ("attn.norm.", "attn.kv_norm.")]
V4_BESIDES = {"layers.0.ffn.gate.bias": [4], **{f"layers.{i}.ffn.gate.bias_vl": [4] for i in range(4)}, "mtp.0.enorm.weight": [64], "image_newline": [64]}


def mimo_fused(tensors):
    """As MiMo V2.5: queries, keys and values in one matrix of FP8 whose blocks are those of four or eight parts (one of floats, too), experts in MXFP4."""
    codes, out = {}, {n: s for n, s in tensors.items() if not n.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))}
    for layer, rows, ranks in ((0, 240, 4), (1, 352, 8), (2, 352, 0)):
        at = f"model.layers.{layer}.self_attn.qkv_proj.weight"
        out |= {at: [rows, 64], **({at + "_scale_inv": [ranks, 1]} if ranks else {})}
        codes |= {at: "F8_E4M3"} if ranks else {}
    for i in range(3):
        out |= {f"model.mtp.layers.{i}.self_attn.qkv_proj.weight": [352, 64], f"model.mtp.layers.{i}.self_attn.qkv_proj.weight_scale_inv": [4, 1]}
        codes[f"model.mtp.layers.{i}.self_attn.qkv_proj.weight"] = "F8_E4M3"
    for name in [n for n in out if ".mlp.experts." in n]:
        rows, columns = out[name]
        out |= {name: [rows, columns // 2], name + "_scale": [rows, columns // 32]}
        codes |= {name: "U8", name + "_scale": "E8M0"}
    return out, codes


STEP = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_attention_groups": 2, "max_position_embeddings": 512, "head_dim": 32, "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 32,
        "share_expert_dim": 48, "sliding_window": 16, "moe_layers_enum": "1,2,3", "moe_router_scaling_factor": 3.0, "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"], "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
        "rope_theta": [5000000.0, 10000.0, 10000.0, 5000000.0], "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 128, "low_freq_factor": 1.0, "high_freq_factor": 32.0}, "pad_token_id": 0,
        "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 32}, "swiglu_limits": [0.0, 0.0, 0.6, 0.7], "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.8]}
STEP_SAID = {**STEP, "model_type": "step3p5", "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 1, "moe_router_activation": "sigmoid", "norm_expert_weight": True, "use_moe_router_bias": True, "use_head_wise_attn_gate": True, "bos_token_id": 1, "eos_token_id": 2,
             **{k: STEP[k] + [STEP[k][1]] for k in ("layer_types", "partial_rotary_factors", "rope_theta")}}
STEP_MTP = {f"model.layers.4.{n}.weight": s for n, s in {**dict.fromkeys(("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "transformer.shared_head.norm"), [64]), "eh_proj": [64, 128], "transformer.shared_head.output": [320, 64], "self_attn.q_proj": [192, 64],
            "self_attn.k_proj": [64, 64], "self_attn.v_proj": [64, 64], "self_attn.o_proj": [64, 192], "self_attn.g_proj": [6, 64], "self_attn.q_norm": [32], "self_attn.k_norm": [32], "mlp.gate_proj": [96, 64], "mlp.up_proj": [96, 64], "mlp.down_proj": [64, 96]}.items()}
K3_SAID = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "num_hidden_layers": 4, "hidden_act": "situ", "head_dim": 32, "q_lora_rank": 24, "mla_use_nope": True, "first_k_dense_replace": 1, "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "num_shared_experts": 1,
           "routed_scaling_factor": 2.5, "routed_expert_hidden_size": 32, "activation_situ_beta": 1.5, "activation_situ_linear_beta": 2.5, "attn_res_block_size": 2, "layer_types": None, "mlp_layer_types": None, "linear_head_dim": None, "linear_num_heads": None, "eos_token_id": 527,
           "linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1, 2, 4], "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
           "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}}}}


def k3_tensors():
    """As published: text under language_model, an encoder of pictures beside it."""
    both = {"input_layernorm": [64], "post_attention_layernorm": [64], **{f"{p}_res_{n}": s for p in ("self_attention", "mlp") for n, s in (("norm", [64]), ("proj", [1, 64]))}}
    kda = {**{f"self_attn.{n}_proj": [128, 64] for n in "qkvg"}, **{f"self_attn.{n}_conv1d": [128, 1, 4] for n in "qkv"}, "self_attn.f_a_proj": [32, 64], "self_attn.f_b_proj": [128, 32], "self_attn.b_proj": [4, 64], "self_attn.o_norm": [32], "self_attn.o_proj": [64, 128]}
    mla = {"self_attn.q_a_proj": [24, 64], "self_attn.q_a_layernorm": [24], "self_attn.q_b_proj": [96, 24], "self_attn.kv_a_proj_with_mqa": [40, 64], "self_attn.kv_a_layernorm": [32], "self_attn.kv_b_proj": [160, 32], "self_attn.g_proj": [96, 64], "self_attn.o_proj": [64, 96]}
    dense = {f"mlp.{n}_proj": s for n, s in (("gate", [96, 64]), ("up", [96, 64]), ("down", [64, 96]))}
    moe = {"block_sparse_moe.gate": [4, 64], "block_sparse_moe.routed_expert_down_proj": [32, 64], "block_sparse_moe.routed_expert_up_proj": [64, 32], "block_sparse_moe.routed_expert_norm": [32],
           **{f"block_sparse_moe.shared_experts.{n}_proj": s for n, s in (("gate", [32, 64]), ("up", [32, 64]), ("down", [64, 32]))}, **{f"block_sparse_moe.experts.{e}.w{k}": [32, 32] for e in range(4) for k in (1, 2, 3)}}
    out = {"language_model.model.embed_tokens.weight": [540, 64], "language_model.model.norm.weight": [64], "language_model.lm_head.weight": [540, 64], "language_model.model.output_attn_res_norm.weight": [64], "language_model.model.output_attn_res_proj.weight": [1, 64],
           "vision_tower.patch_embed.pos_emb.weight": [4, 4, 16], "mm_projector.pre_norm.weight": [32]}
    for i in range(4):
        at = f"language_model.model.layers.{i}."
        out |= {f"{at}{n}.weight": s for n, s in {**both, **(mla if i == 2 else kda), **(moe if i else dense)}.items()}
        out |= {} if i == 2 else {at + "self_attn.A_log": [4], at + "self_attn.dt_bias": [128]}
        out |= {at + "block_sparse_moe.gate.e_score_correction_bias": [4]} if i else {}
    return out


def in_mxfp4_pairs(tensors):
    """Experts as compressed-tensors packs them."""
    codes, out = {}, {n: s for n, s in tensors.items() if ".experts." not in n}
    for name in [n for n in tensors if ".experts." in n]:
        rows, columns = tensors[name]
        out |= {name + "_packed": [rows, columns // 2], name + "_scale": [rows, columns // 32]}
        codes |= {name + "_packed": "U8", name + "_scale": "E8M0"}
    return out, codes


EXAONE_NAMES = [("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"), ("model.layers.", "transformer.h."), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"), ("self_attn.o_proj", "attn.attention.out_proj"), ("self_attn.", "attn.attention."),
                ("mlp.gate_proj", "mlp.c_fc_0"), ("mlp.up_proj", "mlp.c_fc_1"), ("mlp.down_proj", "mlp.c_proj")]
LING = {"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "num_experts": 4, "n_routed_experts": None, "num_shared_experts": 1, "n_shared_experts": None, "score_function": "sigmoid", "use_qk_norm": True, "use_qkv_bias": False, "use_bias": False, "norm_head": False,
        "moe_router_enable_expert_bias": True, "rope_theta": 600000.0, "rope_parameters": None, "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1, "moe_shared_expert_intermediate_size": 32}
LING_NAMES = [("embed_tokens", "word_embeddings"), ("self_attn.o_proj", "attention.dense"), ("self_attn.q_norm", "attention.query_layernorm"), ("self_attn.k_norm", "attention.key_layernorm"), ("e_score_correction_bias", "expert_bias")]
LING_BESIDES = {f"model.layers.{i}.attention.query_key_value.weight": [128, 64] for i in range(3)}


LING3 = {"num_hidden_layers": 4, "num_key_value_heads": 4, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 2, "topk_group": 1, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 24,
         "first_k_dense_replace": 1, "layer_group_size": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LING3_SAID = {"architectures": ["BailingMoeV3ForCausalLM"], "head_dim": 32, "num_experts_per_tok": 2, "n_group": 2, "norm_topk_prob": True, "score_function": "sigmoid", "moe_shared_expert_intermediate_size": 32, "no_kda_lora": True, "gated_attention_proj_granularity_type": "head_wise",
              "expert_swiglu_limit_list": [None, 0.0, 0.0, 0.0], "rope_theta": 6000000.0, "max_position_embeddings": 512, **dict.fromkeys(("linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "layer_types", "mlp_layer_types", "rope_parameters", "num_expert_group", "num_experts_per_token", "moe_renormalize", "qk_head_dim", "model_max_length"))}


def in_pairs(tensors):
    """Experts of DeepSeek V4 as published folders have them."""
    codes = {}
    for name in [n for n in tensors if ".ffn.experts." in n]:
        rows, columns = tensors[name]
        scale = name.removesuffix("weight") + "scale"
        tensors[name], tensors[scale] = [rows, columns // 2], [rows, columns // 32]
        codes[name], codes[scale] = "I8", "F8_E8M0"
    return tensors, codes


def mimo_further():
    """Three layers that predict further tokens, which the converter takes to be there."""
    out = {}
    for i in range(3):
        at = f"model.mtp.layers.{i}."
        shapes = {**dict.fromkeys(("enorm", "hnorm", "final_layernorm", "input_layernorm", "pre_mlp_layernorm"), [64]), "eh_proj": [64, 128], "self_attn.q_proj": [128, 64], "self_attn.k_proj": [128, 64], "self_attn.v_proj": [96, 64], "self_attn.o_proj": [64, 96],
                  "mlp.gate_proj": [96, 64], "mlp.up_proj": [96, 64], "mlp.down_proj": [64, 96]}
        out |= {**{f"{at}{n}.weight": s for n, s in shapes.items()}, at + "self_attn.attention_sink_bias": [4]}
    return out


def layers_of(n, shapes):
    """Weights of n layers of Llama's names."""
    return {f"model.layers.{i}.{name}.weight": s for i in range(n) for name, s in shapes.items()}


PLM = layers_of(2, {"self_attn.q_proj": [96, 64], "self_attn.kv_a_proj_with_mqa": [40, 64], "self_attn.kv_a_layernorm": [32], "self_attn.kv_b_proj": [160, 32], "self_attn.o_proj": [64, 96]})
CHUNKS = layers_of(2, {f"mlp.chunk_experts.{e}.{n}": s for e in range(2) for n, s in (("gate_proj", [32, 64]), ("up_proj", [32, 64]), ("down_proj", [64, 32]))})
SMALL_EXPERTS = layers_of(4, {"block_sparse_moe.primary_router": [4, 64], **{f"block_sparse_moe.experts.{e}.{n}": s for e in range(4) for n, s in (("gate", [32, 64]), ("up", [32, 64]), ("down", [64, 32]))}})
SMALLTHINKER = {"architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker", "moe_num_primary_experts": 4, "moe_num_active_primary_experts": 2, "moe_ffn_hidden_size": 32, "moe_primary_router_apply_softmax": False, "moe_enable_early_router": True,
                "moe_enable_secondary_experts": False, "norm_topk_prob": True, "moe_layer_layout": [1] * 4, "sliding_window_layout": [0, 1, 1, 1], "rope_layout": [0, 1, 1, 1], "sliding_window_size": 4096, "rope_parameters": None, "rope_theta": 1500000.0, "head_dim": 16,
                **dict.fromkeys(("intermediate_size", "hidden_act", "attention_bias", "mlp_bias"))}
SPARK_ROPE = {"full_attention": {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
SPARK = {"architectures": ["Spark2_5ForCausalLM"], "model_type": "spark2_5", "hidden_act": "gelu", "gate_attn_act_mode": "sigmoid", "headwise_attn_output_gate": True, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": SPARK_ROPE}
SARVAM = {"architectures": ["SarvamMoEForCausalLM"], "num_experts": 4, "num_shared_experts": 1, "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "norm_head": False, "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True, "rope_theta": 8000000.0, "rope_parameters": None,
          **dict.fromkeys(("n_routed_experts", "n_shared_experts", "num_mtp_layers", "num_nextn_predict_layers", "attention_bias", "partial_rotary_factor"))}

GROK = {"architectures": ["Grok1ForCausalLM"], "model_type": "git", "hidden_act": "gelu", "embedding_multiplier_scale": 90.5, "output_multiplier_scale": 0.5, "attn_logit_softcapping": 30.0, "router_logit_softcapping": 30.0, "final_logit_softcapping": 50.0, "attn_temperature_len": 1024,
        "moe_intermediate_size": 96, "head_dim": 16, "rope_parameters": None, "rope_theta": 208533496.0, "rope_type": "original", "scaling_factor": 16.0, "original_max_position_embeddings": 128, "extrapolation_factor": 1.0, "attn_factor": 1.0, "beta_fast": 8, "beta_slow": 1}
GROK_NAMES = [("input_layernorm", "pre_attn_norm"), ("post_attention_layernorm", "pre_moe_norm")]
GROK_BESIDES = layers_of(2, {"post_attn_norm": [64], "post_moe_norm": [64], "mlp.gate_proj": [96, 64], "mlp.up_proj": [96, 64], "mlp.down_proj": [64, 96]})
GROK_1 = {"architectures": ["GrokForCausalLM"], "model_type": "grok-1", "embedding_multiplier_scale": 78.38367176906169, "output_multiplier_scale": 0.5773502691896257, "attn_output_multiplier": 0.25, "rope_parameters": None, "rope_theta": 10000.0,
          **dict.fromkeys(("head_dim", "hidden_act", "sliding_window"))}
GROK_1_NAMES = [("model.embed_tokens", "transformer.in_out_embed"), ("model.norm", "transformer.rms_norm"), ("model.layers.", "transformer.decoder_layer."), ("input_layernorm", "rms_norm"), ("post_attention_layernorm", "rms_norm_2"), ("self_attn.q_proj", "multi_head_attention.query"),
                ("self_attn.k_proj", "multi_head_attention.key"), ("self_attn.v_proj", "multi_head_attention.value"), ("self_attn.o_proj", "multi_head_attention.linear"), ("block_sparse_moe.gate", "router"), ("block_sparse_moe.experts", "moe"), (".w1.", ".linear."), (".w2.", ".linear_1."), (".w3.", ".linear_v.")]
JAIS = {"architectures": ["JAISLMHeadModel"], "model_type": "jais", "activation_function": "swiglu", "position_embedding_type": "alibi", "scale_attn_weights": True, "mup_scale_qk_dot_by_d": True, "mup_embeddings_scale": 9.1705785388303, "mup_output_alpha": 1.09518349815769, "mup_width_scale": 0.125, "alibi_scaling": None}
JAIS_BESIDES = {"lm_head.weight": [320, 64], **{f"transformer.h.{i}.mlp.c_fc2.{n}": s for i in range(2) for n, s in (("weight", [64, 96]), ("bias", [96]))}}
TALKIE = {"architectures": ["TalkieForCausalLM"], "model_type": "talkie", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "max_position_embeddings": 512, "rope_theta": 1000000.0,
          **dict.fromkeys(("num_key_value_heads", "rms_norm_eps", "rope_parameters", "hidden_act", "attention_bias", "mlp_bias"))}
TALKIE_TENSORS = {"model.embed.weight": [320, 64], "lm_head": [320, 64], "lm_head_gain.w_g": [1], **{f"model.blocks.{i}.{n}": s for i in range(2) for n, s in {**{f"attn.attn_{n}.weight": [64, 64] for n in ("query", "key", "value", "resid")}, "attn.head_gain.head_g": [4], "mlp.mlp_gate.weight": [96, 64],
                  "mlp.mlp_linear.weight": [96, 64], "mlp.mlp_resid.weight": [64, 96], **dict.fromkeys(("attn_gain.a_g", "mlp_gain.a_g", "embed_skip.a_g"), [1])}.items()}}
CHATGLM = {"architectures": ["ChatGLMModel"], "model_type": "chatglm", "num_layers": 2, "multi_query_attention": True, "multi_query_group_num": 2, "seq_length": 512, "ffn_hidden_size": 96, "layernorm_epsilon": 1.5625e-07, "padded_vocab_size": 320, "kv_channels": 16, "rope_ratio": 500, "rmsnorm": True,
           "post_layer_norm": True, "add_qkv_bias": True, "add_bias_linear": False, "original_rope": True, "apply_residual_connection_post_layernorm": False, "num_attention_heads": 4,
           **dict.fromkeys(("num_hidden_layers", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters", "hidden_act", "head_dim", "attention_bias", "mlp_bias"))}
CHATGLM_TENSORS = {"transformer.embedding.word_embeddings.weight": [320, 64], "transformer.output_layer.weight": [320, 64], "transformer.encoder.final_layernorm.weight": [64], "transformer.rotary_pos_emb.inv_freq": [4],
                   **{f"transformer.encoder.layers.{i}.{n}": s for i in range(2) for n, s in {"input_layernorm.weight": [64], "post_attention_layernorm.weight": [64], "self_attention.query_key_value.weight": [128, 64], "self_attention.query_key_value.bias": [128], "self_attention.dense.weight": [64, 64],
                                                                                              "mlp.dense_h_to_4h.weight": [192, 64], "mlp.dense_4h_to_h.weight": [64, 96]}.items()}}


def in_parts(tensors, whole, groups, heads, size):
    """Queries, keys and values of a matrix whose rows are groups of heads: of queries, then of keys, then of values."""
    out = {n: x for n, x in tensors.items() if whole not in n}
    for name in [n for n in tensors if whole in n]:
        x = tensors[name].reshape(groups, sum(heads) // groups, size, -1)
        at, end = 0, name.rsplit(".", 1)[1]
        for part, n in zip("qkv", heads):
            out[name.split(whole)[0] + f"self_attn.{part}_proj.{end}"] = x[:, at:at + n // groups].reshape(n * size, *tensors[name].shape[1:])
            at += n // groups
    return out


def renamed(tensors, names):
    for a, b in names:
        tensors = {n.replace(a, b): x for n, x in tensors.items()}
    return tensors


def as_qwen2moe(tensors):
    """Shared experts of Qwen 2's mixture have a gate: one half, if its vector is zero. There are biases."""
    out = renamed(tensors, [("shared_experts", "shared_expert"), ("word_embeddings", "embed_tokens"), ("attention.dense", "self_attn.o_proj")])
    for name in list(out):
        if "shared_expert.down_proj" in name:
            out[name] = 2 * out[name]
            out[name.replace("shared_expert.down_proj", "shared_expert_gate")] = np.zeros((1, 64), np.float32)
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            out[name.replace("weight", "bias")] = np.zeros(len(out[name]), np.float32)
    return out


DEEPSEEK = {"num_hidden_layers": 3, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "mlp_only_layers": [0]}
DEEPSEEK_SAID = {"first_k_dense_replace": 1, "num_experts": None, "n_routed_experts": 4, "n_shared_experts": 2, "shared_expert_intermediate_size": None, "mlp_only_layers": None, "norm_topk_prob": False, "moe_layer_freq": 1, "scoring_func": "softmax",
                 **dict.fromkeys(("decoder_sparse_step", "layer_types", "qkv_bias", "rope_parameters", "use_sliding_window", "sliding_window", "max_window_layers"))}
DEEPSEEK_NAMES = [("shared_expert.", "shared_experts.")]
LING1_NAMES = [("embed_tokens", "word_embeddings"), ("self_attn.o_proj", "attention.dense")]
NO_QKV = tuple(f"{n}_proj.{end}" for n in "qkv" for end in ("weight", "bias"))
INTERNLM2_NAMES = [("model.embed_tokens", "model.tok_embeddings"), ("lm_head", "output"), ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.o_proj", "attention.wo"),
                   ("mlp.gate_proj", "feed_forward.w1"), ("mlp.down_proj", "feed_forward.w2"), ("mlp.up_proj", "feed_forward.w3")]
INTERNLM2 = {"5": {"content": "<|im_start|> x", "special": False}, "260": {"content": "<|im_end|>", "special": True}, "261": {"content": "<|pad|>", "special": False}}
QWEN1_NAMES = [("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"), ("model.layers.", "transformer.h."), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"), ("self_attn.o_proj", "attn.c_proj"),
               ("mlp.gate_proj", "mlp.w2"), ("mlp.up_proj", "mlp.w1"), ("mlp.down_proj", "mlp.c_proj")]


DECI_BLOCKS = [{"attention": {"n_heads_in_group": g, "no_op": not g and not linear, "replace_with_linear": linear}, "ffn": {"ffn_mult": f, "no_op": not f, "replace_with_linear": False}} for g, linear, f in ((2, False, 2.0), (4, False, 8.0), (None, False, 2.0), (2, False, None), (None, True, 4.0))]
DECI_WIDTHS = [256, 512, 256, 0, 256]
DECI_SAID = {"architectures": ["DeciLMForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "block_configs": DECI_BLOCKS[:4], "rope_theta": 500000.0, "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"},
             **dict.fromkeys(("intermediate_size", "num_key_value_heads", "rope_parameters", "head_dim"))}


def deci_tensors(n):
    out = {"model.embed_tokens.weight": [320, 64], "model.norm.weight": [64], "lm_head.weight": [320, 64]}
    for i, (block, width) in enumerate(zip(DECI_BLOCKS[:n], DECI_WIDTHS)):
        at, kv = f"model.layers.{i}.", 64 // (block["attention"]["n_heads_in_group"] or 64)
        if kv > 1:
            out |= {at + "input_layernorm.weight": [64], **{f"{at}self_attn.{n}_proj.weight": [rows, 64] for n, rows in zip("qkvo", (64, kv, kv, 64))}}
        elif block["attention"]["replace_with_linear"]:
            out |= {at + "input_layernorm.weight": [64], at + "self_attn.linear_attn.weight": [64, 64]}
        if width:
            out |= {at + "post_attention_layernorm.weight": [64], **{f"{at}mlp.{n}_proj.weight": s for n, s in (("gate", [width, 64]), ("up", [width, 64]), ("down", [64, width]))}}
    return out


def widened(tensors, known):
    """Heads and widths of Llama's with those of each layer: rows of zeros, heads of keys several times, and parts of zeros for those that are not there."""
    out = {n: x for n, x in tensors.items() if ".layers." not in n}
    for name, shape in known.items():
        x = tensors.get(name, (np.ones if "norm" in name else np.zeros)(shape, np.float32))
        if len(shape) == 2 and x.shape[0] < shape[0] and ("k_proj" in name or "v_proj" in name) and shape[0] % x.shape[0] == 0:
            x = np.repeat(x.reshape(-1, 16, x.shape[1]), shape[0] // x.shape[0], 0).reshape(shape)
        out[name] = np.pad(x, [(0, n - k) for n, k in zip(shape, x.shape)])
    return out


OPENELM_NAMES = [("model.embed_tokens", "transformer.token_embeddings"), ("model.norm", "transformer.norm"), ("model.layers.", "transformer.layers."), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.o_proj", "attn.out_proj"),
                 ("self_attn.q_norm", "attn.q_norm"), ("self_attn.k_norm", "attn.k_norm"), ("mlp.down_proj", "ffn.proj_2")]
OPENELM_HEADS = ((4, 2, 96), (6, 3, 128))


def openelm_tensors():
    out = {"transformer.token_embeddings.weight": [320, 64], "transformer.norm.weight": [64]}
    for i, (heads, kv, width) in enumerate(OPENELM_HEADS):
        shapes = {"attn_norm": [64], "ffn_norm": [64], "attn.q_norm": [16], "attn.k_norm": [16], "attn.qkv_proj": [16 * (heads + 2 * kv), 64], "attn.out_proj": [64, 16 * heads], "ffn.proj_1": [2 * width, 64], "ffn.proj_2": [64, width]}
        out |= {f"transformer.layers.{i}.{n}.weight": s for n, s in shapes.items()}
    return out


def openelm_twin(tensors):
    """Layers with fewer heads get heads of zeros."""
    out = {n: x for n, x in tensors.items() if "qkv_proj" not in n and "proj_1" not in n}
    for i, (heads, kv, width) in enumerate(OPENELM_HEADS):
        at = f"transformer.layers.{i}."
        for part, x in zip("qkv", np.split(tensors[at + "attn.qkv_proj.weight"], [16 * heads, 16 * (heads + kv)])):
            rows = 96 if part == "q" else 48
            out[f"model.layers.{i}.self_attn.{part}_proj.weight"] = np.pad(x, [(0, rows - len(x)), (0, 0)])
        for part, x in zip(("gate", "up"), np.split(tensors[at + "ffn.proj_1.weight"], 2)):
            out[f"model.layers.{i}.mlp.{part}_proj.weight"] = np.pad(x, [(0, 128 - width), (0, 0)])
        out[at + "ffn.proj_2.weight"] = np.pad(out[at + "ffn.proj_2.weight"], [(0, 0), (0, 128 - width)])
        out[at + "attn.out_proj.weight"] = np.pad(out[at + "attn.out_proj.weight"], [(0, 0), (0, 96 - 16 * heads)])
    return renamed(out, back(OPENELM_NAMES))


OPENELM_SAID = {"architectures": ["OpenELMForCausalLM"], "model_type": "openelm", "model_dim": 64, "num_transformer_layers": 2, "max_context_length": 512, "rope_freq_constant": 10000, "num_query_heads": [4, 6], "num_kv_heads": [2, 3], "ffn_multipliers": [1.5, 2.0],
                "ffn_dim_divisor": 16, "head_dim": 16, "activation_fn_name": "swish", "ffn_with_glu": True, "normalize_qk_projections": True, "normalization_layer_name": "rms_norm", "share_input_output_layers": True, "qkv_multipliers": [0.5, 1.0],
                **dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "rope_parameters", "rms_norm_eps", "hidden_act", "layer_types", "tie_word_embeddings"))}
CODESHELL_NAMES = [("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"), ("model.layers.", "transformer.h."), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"), ("self_attn.o_proj", "attn.c_proj")]
EARLY = dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "rope_parameters", "rms_norm_eps", "norm_epsilon", "hidden_act", "layer_types", "head_dim", "attention_bias", "mlp_bias", "use_bias"))
CODESHELL_SAID = {**EARLY, "architectures": ["CodeShellForCausalLM"], "model_type": "codeshell", "n_embd": 64, "n_layer": 2, "n_head": 4, "num_query_groups": 2, "n_positions": 512, "n_inner": 256, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_pytorch_tanh",
                  "position_embedding_type": "rope", "group_query_attention": True, "scale_attn_weights": True, "rope_scaling": None}
REFACT_SAID = {**EARLY, "architectures": ["GPTRefactForCausalLM"], "model_type": "gpt_refact", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512, "multi_query": True, "layer_norm_epsilon": 1e-5}
REFACT = {"transformer.wte.weight": [320, 64], "ln_f.weight": [64], "lm_head.weight": [320, 64], **{n.replace("model.layers.", "transformer.h."): s for n, s in layers_of(2, {"ln_1": [64], "ln_2": [64], "attn.q": [64, 64], "attn.kv": [32, 64], "attn.c_proj": [64, 64],
                                                                                                                                                      "mlp.gate_up_proj": [512, 64], "mlp.c_proj": [64, 256]}).items()}}
ARCTIC = layers_of(2, {"block_sparse_moe.gate": [4, 64], **{f"block_sparse_moe.experts.{e}.{n}": s for e in range(4) for n, s in (("w1", [96, 64]), ("w2", [64, 96]), ("w3", [96, 64]))}, "residual_layernorm": [64],
                       **{f"residual_mlp.{n}": [64, 64] for n in ("w1", "w2", "w3")}})
CHAMELEON = {f"model.layers.{i}.self_attn.{n}_norm.{end}": [h, 16] for i in range(2) for n, h in (("q", 4), ("k", 2)) for end in ("weight", "bias")}


def back(names):
    return [(b, a) for a, b in reversed(names)]

NO_LLAMA = dict.fromkeys(("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_parameters", "hidden_act", "head_dim", "attention_bias", "mlp_bias", "max_position_embeddings"))
RWKV7 = {**NO_LLAMA, "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_act": "sqrelu", "head_dim": 32, "norm_eps": 1e-5, "norm_first": True, "norm_bias": True, "attn": None, "decay_low_rank_dim": 16, "a_low_rank_dim": 16, "v_low_rank_dim": 8, "gate_low_rank_dim": 24}
RWKV6 = {**NO_LLAMA, "architectures": ["Rwkv6ForCausalLM"], "model_type": "rwkv6", "head_size": 32, "layer_norm_epsilon": 1e-5, "rescale_every": 1}


def rwkv7_tensors():
    out = {"model.embeddings.weight": [320, 64], "lm_head.weight": [320, 64], **norms("model.norm", "model.layers.0.pre_norm")}
    for i in range(2):
        at = f"model.layers.{i}."
        out |= {**norms(*(at + n for n in ("attn_norm", "ffn_norm", "attn.g_norm"))), **{f"{at}attn.x_{c}": [1, 1, 64] for c in "rwkvag"}, f"{at}attn.k_k": [64], f"{at}attn.k_a": [64], f"{at}attn.r_k": [2, 32], f"{at}ffn.x_k": [64], f"{at}ffn.key.weight": [96, 64], f"{at}ffn.value.weight": [64, 96]}
        out |= {f"{at}attn.{c}_proj.weight": [64, 64] for c in "rkvo"}
        for c, rank in (("w", 16), ("a", 16), ("v", 8), ("g", 24)):
            if i or c != "v":
                out |= {f"{at}attn.{c}_lora.lora.0.weight": [rank, 64], f"{at}attn.{c}_lora.lora.2.weight": [64, rank], **({} if c == "g" else {f"{at}attn.{c}_lora.lora.2.bias": [64]})}
    return out


def rwkv6_tensors():
    out = {"rwkv.embeddings.weight": [320, 64], "head.weight": [320, 64], **norms("rwkv.ln_out", "rwkv.blocks.0.pre_ln")}
    for i in range(2):
        at = f"rwkv.blocks.{i}."
        out |= {**norms(*(at + n for n in ("ln1", "ln2", "attention.ln_x"))), **{f"{at}attention.time_maa_{c}": [1, 1, 64] for c in "xwkvrg"}, f"{at}attention.time_maa_w1": [64, 160], f"{at}attention.time_maa_w2": [5, 32, 64], f"{at}attention.time_decay": [1, 1, 64]}
        out |= {f"{at}attention.time_decay_w1": [64, 64], f"{at}attention.time_decay_w2": [64, 64], f"{at}attention.time_faaaa": [2, 32], f"{at}feed_forward.time_maa_k": [1, 1, 64], f"{at}feed_forward.time_maa_r": [1, 1, 64]}
        out |= {f"{at}attention.{n}.weight": [64, 64] for n in ("receptance", "key", "value", "gate", "output")} | {f"{at}feed_forward.{n}.weight": s for n, s in (("key", [96, 64]), ("receptance", [64, 64]), ("value", [64, 96]))}
    return out


KINDS = {   # name: class of the model, of its configuration, what this has; what the folder has besides, and how it is converted
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-yarn": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32, "rope_parameters": YARN}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": None, "head_dim": 32}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", SCALES),
    "llama-pieces": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}, WITH_PIECES),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32, "norm_topk_prob": True}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {"head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32}, WITH_PIECES),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {"pad_token_id": 0, "original_max_position_embeddings": 128, "rope_parameters": LONG, "sliding_window": 96}, WITH_PIECES),
    "phi4": ("Phi3ForCausalLM", "Phi3Config", {"pad_token_id": 0}, {"tokenizer_config": make_folder.settings(tokenizer_class="GPT2Tokenizer")}),
    "glm4": ("Glm4ForCausalLM", "Glm4Config", {"head_dim": 16, "pad_token_id": 0, "eos_token_id": None}, GLM),
    "gpt-oss": ("GptOssForCausalLM", "GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 64}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {"head_dim": 32}, WITH_PIECES),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {"head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32}, WITH_PIECES),
    "gemma3-seeing": ("Gemma3ForConditionalGeneration", "Gemma3Config", {"text_config": {**SMALL, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "sliding_window": 64}, "vision_config": EYES, "mm_tokens_per_image": 4}, WITH_PIECES),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {}),
    "olmo3": ("Olmo3ForCausalLM", "Olmo3Config", {"sliding_window": 64, "num_hidden_layers": 4}),
    "exaone4": ("Exaone4ForCausalLM", "Exaone4Config", {"sliding_window": 64, "sliding_window_pattern": 2}),
    "seed_oss": ("SeedOssForCausalLM", "SeedOssConfig", {"head_dim": 32}),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    "arcee": ("ArceeForCausalLM", "ArceeConfig", {"bos_token_id": 1, "eos_token_id": 2}),
    "cohere": ("CohereForCausalLM", "CohereConfig", {}),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2}),
    "qwen2moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}),
    "qwen35": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", LINEAR, ALONE),
    "qwen35-seeing": ("Qwen3_5ForConditionalGeneration", "Qwen3_5Config", {"text_config": {**SMALL, **LINEAR, **SECTIONS, "mtp_num_hidden_layers": 1}, "vision_config": QWEN_EYES}, {"further": True}),
    "qwen35moe": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", {**LINEAR, **EXPERTS}, ALONE),
    "qwen35moe-seeing": ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeConfig", {"text_config": {**SMALL, **LINEAR, **SECTIONS, **EXPERTS, "mtp_num_hidden_layers": 1}, "vision_config": QWEN_EYES},
                         {"further": True, "stacked": True}),
    "qwen3next": ("Qwen3NextForCausalLM", "Qwen3NextConfig", {**LINEAR, **EXPERTS}, {"further": True}),
    "deepseek2": ("DeepseekV2ForCausalLM", "DeepseekV2Config", {**LATENT, "q_lora_rank": None, "n_shared_experts": 2, "rope_parameters": LOG_YARN}),
    "deepseek3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", {**LATENT, "q_lora_rank": 24, "n_group": 2, "topk_group": 1, "scoring_func": "sigmoid"}, {"after": MTP}),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig", {**SCALES, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", "GraniteMoeSharedConfig", {**SCALES, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48}),
    "glm4moe": ("Glm4MoeForCausalLM", "Glm4MoeConfig", {"head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "routed_scaling_factor": 1.5, "use_qk_norm": True,
                                                        "num_nextn_predict_layers": 1, "pad_token_id": 0}, {**GLM_MOE, "after": MTP}),
    "ernie": ("Ernie4_5ForCausalLM", "Ernie4_5Config", {"head_dim": 32}, WITH_PIECES),
    "erniemoe": ("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeConfig", {"intermediate_size": 128, "num_hidden_layers": 2, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32},
                 {**WITH_PIECES, "besides": {"model.mtp_block.0.input_layernorm.weight": [64], "model.mtp_emb_norm.0.weight": [64], "model.mtp_linear_proj.0.weight": [64, 128]}}),
    "gemma4": ("Gemma4ForCausalLM", "Gemma4TextConfig", {**GEMMA4, "num_hidden_layers": 4, "vocab_size": N_LINES, "vocab_size_per_layer_input": N_LINES}, LINES),
    "gemma4-seeing": ("Gemma4ForConditionalGeneration", "Gemma4Config", {"text_config": {**SMALL, **GEMMA4_EXPERTS, "vocab_size": N_LINES}, "vision_config": GEMMA_EYES}, LINES),
    "qwen2vl-seeing": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", {"text_config": {**SMALL, "bos_token_id": 1, "eos_token_id": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 3, 3]}}, "vision_config": QWEN25_EYES}),
    "qwen3vl-seeing": ("Qwen3VLForConditionalGeneration", "Qwen3VLConfig", {"text_config": {**SMALL, "head_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True}}, "vision_config": {**QWEN_EYES, "deepstack_visual_indexes": [0]}}),
    "ministral3": ("Ministral3ForCausalLM", "Ministral3Config", {"head_dim": 32, "rope_parameters": MINISTRAL}),
    "ministral3-seeing": ("Mistral3ForConditionalGeneration", "Mistral3Config", {"text_config": {**SMALL, "head_dim": 32, "model_type": "ministral3", "rope_parameters": MINISTRAL}, "vision_config": {"model_type": "pixtral", **EYES}}),
    "lfm2": ("Lfm2ForCausalLM", "Lfm2Config", {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.3}),
    "minimaxtext": ("MiniMaxForCausalLM", "MiniMaxConfig", {"num_hidden_layers": 8, "layer_types": ["linear_attention"] * 7 + ["full_attention"], "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32,
                                                             "bos_token_id": 1, "eos_token_id": 2, "full_attn_alpha_factor": 3.5, "linear_attn_alpha_factor": 3.5, "mlp_alpha_factor": 3.5},
                    {"said": {"architectures": ["MiniMaxText01ForCausalLM"], "rotary_dim": 32, **{f"layernorm_{part}_{end}": value for part in ("full_attention", "linear_attention", "mlp") for end, value in (("alpha", 3.5), ("beta", 1.0))}},
                     "without": ("_decay", "slope_rate")}),
    "minimax-m2": ("MiniMaxM2ForCausalLM", "MiniMaxM2Config", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "rotary_dim": 16, "bos_token_id": 1, "eos_token_id": 2}, {"said": {"scoring_func": "sigmoid", "rotary_dim": 16}}),
    "dots1": ("Dots1ForCausalLM", "Dots1Config", {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_shared_experts": 2, "routed_scaling_factor": 1.5, "norm_topk_prob": True}, {"said": {"scoring_func": "sigmoid"}}),
    "cohere2": ("Cohere2ForCausalLM", "Cohere2Config", {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 16}, {"said": {"rotary_pct": 1.0}}),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", {"bos_token_id": 1, "eos_token_id": 2}),
    "dream": ("Qwen2ForCausalLM", "Qwen2Config", {}, {"said": {"architectures": ["DreamModel"], "model_type": "Dream", "mask_token_id": 270}}),
    "llada": ("LlamaForCausalLM", "LlamaConfig", {}, {"said": LLADA, "names": LLADA_NAMES}),
    "lladamoe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
                 {"said": {"architectures": ["LLaDAMoEModelLM"], "model_type": "llada_moe", "expert_intermediate_size": 32, "moe_intermediate_size": None, "qk_layernorm": True, "norm_topk_prob": None, "head_dim": None}}),
    "rnd1": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32, "norm_topk_prob": True},
             {"said": {"architectures": ["RND1"], "model_type": "rnd1", "mask_token_id": 271}}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, {"unigram": True}),
    "t5-gated": ("T5ForConditionalGeneration", "T5Config", {**T5, "feed_forward_proj": "gated-gelu"}, {"unigram": True, "said": {"tie_word_embeddings": False, "scale_decoder_outputs": None}, "besides": {"lm_head.weight": [320, 64]}}),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", {**T5, "feed_forward_proj": "gated-gelu"}, {"unigram": True, "said": {"tie_word_embeddings": False, "scale_decoder_outputs": None}, "besides": {"lm_head.weight": [320, 64]}}),
    "t5encoder": ("T5EncoderModel", "T5Config", T5, {"unigram": True}),
    "gpt-oss-mxfp4": ("GptOssForCausalLM", "GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 64},
                      {"coded": lambda t: in_mxfp4(t), "said": {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}}),
    "qwen3-nvfp4": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32, "intermediate_size": 128},
                    {"coded": lambda t: in_nvfp4(t, False), "said": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 4, "group_size": 16}}}}}}),
    "qwen3moe-nvfp4": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 32, "norm_topk_prob": True},
                       {"coded": lambda t: in_nvfp4(t, False), "files": {"hf_quant_config.json": json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}})}}),
    "qwen35-nvfp4": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {**LINEAR, "intermediate_size": 128}, {**ALONE, "coded": lambda t: in_nvfp4(t, False), "said": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}}),
    "llama-nvfp4": ("LlamaForCausalLM", "LlamaConfig", {"intermediate_size": 128},
                    {"coded": lambda t: in_nvfp4(t, True), "said": {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 4, "group_size": 16, "strategy": "tensor_group"}}}}}}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**GPT, "n_inner": None, "bos_token_id": 1, "eos_token_id": 2}, {"said": {"n_ctx": 512}, "names": [("transformer.", "")]}),
    "gptneox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {"num_key_value_heads": None, "hidden_act": "gelu_new"}, {"as_is": True, "said": {"rotary_pct": 0.25}}),
    "phi2": ("PhiForCausalLM", "PhiConfig", {"intermediate_size": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", {"use_qkv_bias": True, "partial_rotary_factor": 0.25}, {"said": {"use_parallel_residual": False}}),
    "stablelm-parallel": ("StableLmForCausalLM", "StableLmConfig", {"use_parallel_residual": True, "qk_layernorm": True, "partial_rotary_factor": 0.25}),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", {"clip_qkv": 8.0, "pad_token_id": 1}),
    "nemotron": ("NemotronForCausalLM", "NemotronConfig", {"head_dim": None, "partial_rotary_factor": 0.5}, WITH_PIECES),
    "falcon": ("FalconForCausalLM", "FalconConfig", {**GPT, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 2048, "num_kv_heads": 1, "activation": "gelu_pytorch_tanh"}, {"as_is": True, "said": {"num_kv_heads": None}}),
    "falcon-groups": ("FalconForCausalLM", "FalconConfig", {**GPT, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 2048, "new_decoder_architecture": True, "num_kv_heads": 2, "activation": "gelu_pytorch_tanh"}),
    "bloom": ("BloomForCausalLM", "BloomConfig", GPT, {"said": {"seq_length": 512}, "names": [("transformer.", "")]}),
    "mpt": ("MptForCausalLM", "MptConfig", {**GPT, "max_seq_len": 512, "hidden_size": 64, "tie_word_embeddings": True, "attn_config": {"clip_qkv": 6.0, "alibi": True, "alibi_bias_max": 8}}, {"said": {"architectures": ["MPTForCausalLM"], "attn_config": {"attn_type": "multihead_attention", "clip_qkv": 6.0, "alibi": True, "alibi_bias_max": 8, "qk_ln": False, "prefix_lm": False, "softmax_scale": None}}}),
    "apertus": ("ApertusForCausalLM", "ApertusConfig", {"rope_parameters": LLAMA3, "pad_token_id": 0}),
    "lfm2moe": ("Lfm2MoeForCausalLM", "Lfm2MoeConfig", {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_dense_layers": 1}),
    "hunyuan": ("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", {"head_dim": 32, "pad_token_id": 0, "max_position_embeddings": 32768, "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 10000.0}}),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True, "rope_parameters": {**LONG, "short_mscale": 1.0, "long_mscale": 1.0}}, {**WITH_PIECES, "said": {"architectures": ["PhiMoEForCausalLM"]}}),
    "exaonemoe": ("ExaoneMoeForCausalLM", "ExaoneMoeConfig", {"head_dim": 32, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": 64}, {"further": True, "said": {"num_nextn_predict_layers": 1}}),
    "afmoe": ("AfmoeForCausalLM", "AfmoeConfig", {"head_dim": 32, "num_hidden_layers": 4, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_dense_layers": 1, "sliding_window": 64, "mup_enabled": True}),
    "mamba": ("MambaForCausalLM", "MambaConfig", {**GPT, "state_size": 16}),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", {**GPT, "state_size": 16, "n_groups": 2, "head_dim": 16, "num_heads": 8, "expand": 2, "rms_norm": True}),
    "jamba": ("JambaForCausalLM", "JambaConfig", {"num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 16, "pad_token_id": 0, "use_mamba_kernels": False}, WITH_PIECES),
    "granitehybrid": ("GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", {**SCALES, "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2}, {"as_is": True, "said": {"layer_types": ["mamba", "attention", "mamba"]}}),
    "falconmamba": ("FalconMambaForCausalLM", "FalconMambaConfig", {**GPT, "state_size": 16}),
    "granite4-dense": ("GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", {**SCALES, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 96, "layer_types": ["attention", "attention"], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2}, {"as_is": True, "said": {"layer_types": ["attention", "attention"], "position_embedding_type": "rope"}}),
    "distilbert": ("DistilBertModel", "DistilBertConfig", {**GPT, "vocab_size": 32, "hidden_dim": 96}, BERT),
    "roberta": ("RobertaModel", "RobertaConfig", {"num_key_value_heads": None, "pad_token_id": 1}, {"tokenizer_config": make_folder.settings(tokenizer_class="PreTrainedTokenizerFast", cls_token="<|im_end|>")}),
    "xlmroberta": ("XLMRobertaModel", "XLMRobertaConfig", {"num_key_value_heads": None, "pad_token_id": 1}, {"aligned": True}),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {"num_key_value_heads": None, "num_hidden_layers": 4, "local_attention": 16, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}, {"files": BERT["files"], "said": {"layer_norm_eps": 1e-5, "global_attn_every_n_layers": 3}}),
    "eurobert": ("EuroBertModel", "EuroBertConfig", {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}, {"files": BERT["files"], "as_is": True, "said": {"classifier_pooling": None}}),
    "nomicbert": ("NomicBertModel", "NomicBertConfig", {"vocab_size": 32, "num_key_value_heads": 4}, {**BERT, "as_is": True, "said": NOMIC}),
    "gemma3-text": ("Gemma3TextModel", "Gemma3TextConfig", {"head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32, "use_bidirectional_attention": True}, {**WITH_PIECES, "files": BERT["files"]}),
    "qwen3vlmoe-seeing": ("Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeConfig", {"text_config": {**SMALL, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True}}, "vision_config": {**QWEN_EYES, "deepstack_visual_indexes": [0]}},
                           {"besides": {f"model.language_model.layers.{i}.mlp.experts.{n}": s for i in range(2) for n, s in (("gate_up_proj", [4, 64, 96]), ("down_proj", [4, 48, 64]))}}),
    "glmdsa": ("GlmMoeDsaForCausalLM", "GlmMoeDsaConfig", {**LATENT, "q_lora_rank": 24, "n_shared_experts": 1, "index_n_heads": 16, "index_head_dim": 16, "index_topk": 8, "routed_scaling_factor": 1.5, "pad_token_id": 0, "eos_token_id": 2}, {**GLM_MOE, "after": MTP, "said": {"num_nextn_predict_layers": 1}}),
    "nemotronh": ("NemotronHForCausalLM", "NemotronHConfig", {"num_hidden_layers": None, "layers_block_type": ["mamba", "moe", "attention", "moe"], "head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "n_shared_experts": 1, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "expand": 2}, {"said": {"rms_norm_eps": 1e-5}}),
    "nemotronh-dense": ("NemotronHForCausalLM", "NemotronHConfig", {"num_hidden_layers": None, "layers_block_type": ["mamba", "mlp", "attention", "mlp"], "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "expand": 2},
                        {"as_is": True, "said": {"rms_norm_eps": 1e-5, "hybrid_override_pattern": "M-*-", "num_hidden_layers": 4, **dict.fromkeys(("num_experts_per_tok", "layers_block_type", "n_routed_experts", "moe_intermediate_size", "n_group", "topk_group"))}}),
    "qwen3-bare": ("Qwen3Model", "Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen2-bare": ("Qwen2Model", "Qwen2Config", {"tie_word_embeddings": True}),
    "llama-bare": ("LlamaModel", "LlamaConfig", {}),
    "llama4": ("Llama4ForCausalLM", "Llama4TextConfig", {"num_hidden_layers": 4, "head_dim": 32, "intermediate_size": 32, "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "rope_parameters": LLAMA3,
                                                        "pad_token_id": 0}),
    "llama4-seeing": ("Llama4ForConditionalGeneration", "Llama4Config", {"text_config": {**SMALL, "head_dim": 32, "intermediate_size": 32, "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1},
                                                                         "vision_config": {**EYES, "intermediate_size": 128, "vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64}, "image_token_index": 300, "boi_token_index": 301, "eoi_token_index": 302}),
    "falconh1": ("FalconH1ForCausalLM", "FalconH1Config", {"head_dim": 16, "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_rms_norm": True, "mamba_norm_before_gate": False, "embedding_multiplier": 5.5, "lm_head_multiplier": 0.037,
                                                           "attention_in_multiplier": 0.9, "attention_out_multiplier": 0.83, "key_multiplier": 0.31, "ssm_in_multiplier": 1.3, "ssm_out_multiplier": 0.59, "mlp_multipliers": [0.87, 0.3], "ssm_multipliers": [0.35, 0.25, 0.47, 0.5, 0.71],
                                                           "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}, {"as_is": True}),
    "gemma3n": ("Gemma3nForCausalLM", "Gemma3nTextConfig", GEMMA3N, WITH_PIECES),
    "gemma3n-seeing": ("Gemma3nForCausalLM", "Gemma3nTextConfig", GEMMA3N, {**WITH_PIECES, "said": {"architectures": ["Gemma3nForConditionalGeneration"]}, "besides": {"model.embed_tokens_per_layer.weight": [300, 320]}, "names": [("model.", "model.language_model.")]}),
    "kimilinear": ("KimiLinearForCausalLM", "KimiLinearConfig", KIMI, {**KIMI_RANKS, "as_is": True, "said": {"head_dim": 16, "linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1, 2, 4], "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4}, "first_k_dense_replace": 1,
                                                                                         "moe_router_activation_func": "sigmoid", "layer_types": None, "mlp_layer_types": None, "linear_head_dim": None}, "names": [("layers.0.block_sparse_moe.", "layers.0.mlp.")]}),
    "kimik25": ("DeepseekV3ForCausalLM", "DeepseekV3Config", {**LATENT, "vocab_size": 540, "q_lora_rank": 24, "n_group": 1, "topk_group": 1, "scoring_func": "sigmoid"},
                {**KIMI_RANKS, "said": {"architectures": ["KimiK25ForConditionalGeneration"]}, "names": [(f"{n}.", f"language_model.{n}.") for n in ("model", "lm_head")],
                 "besides": {"vision_tower.patch_embed.pos_emb.weight": [4, 4, 16], "mm_projector.pre_norm.weight": [32]}}),
    "glm5next": ("Glm5NextForConditionalGeneration", "Glm5NextConfig", GLM5_NEXT, {**GLM_MOE, "after": MTP, "as_is": True,
                 "said": {"linear_attn_config": {"head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0, "safe_gate": True}, "mla_use_nope": True, "mhc": True, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}}),
    "hunyuanmoe": ("HunYuanMoEV1ForCausalLM", "HunYuanMoEV1Config", HUNYUAN, HUNYUAN_RANKS),
    "jinabert": ("BertModel", "BertConfig", {"vocab_size": 32, "num_key_value_heads": None}, JINA),
    "bert": ("BertModel", "BertConfig", {"vocab_size": 32, "num_key_value_heads": None}, BERT),
    "dots3": ("Dots3NoteForCausalLM", "Dots3NoteTextConfig", DOTS3, {"own": {"added": ["<|endoftext|>", "<|im_end|>", "<|endofassistant|>"]}, **ALONE, "as_is": True, "after": DOTS3_MTP, "said": DOTS3_SAID,
              "besides": {"model.mtp.embed_tokens.weight": [320, 64]}}),
    "qwen4exp": ("Qwen4ExpForCausalLM", "Qwen4ExpTextConfig", QWEN4, {"as_is": True, "said": {"layer_types": QWEN4["layer_types"], "number_of_conv_states": None},
                 "besides": {"mtp.fc.weight": [64, 128], "mtp.layers.0.input_layernorm.weight": [64]}}),
    "minicpm3": ("MiniCPM3ForCausalLM", "MiniCPM3Config", {"num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "rope_parameters": {**LONG, "original_max_position_embeddings": 512, **{k: LONG[k][:4] for k in ("long_factor", "short_factor")}}}, WITH_PIECES),
    "jais2": ("Jais2ForCausalLM", "Jais2Config", {"bos_token_id": 1, "eos_token_id": 2}),
    "deepseek32": ("DeepseekV32ForCausalLM", "DeepseekV32Config", {**LATENT, "q_lora_rank": 24, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "index_n_heads": 16, "index_head_dim": 16, "index_topk": 8, "routed_scaling_factor": 1.5, "rope_parameters": {**LOG_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
                   {"tokenizer_config": make_folder.settings(add_bos_token=True, bos_token="<|im_end|>"), "after": MTP, "said": {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "num_nextn_predict_layers": 1}}),
    "hyv3": ("HYV3ForCausalLM", "HYV3Config", {"head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 2, "bos_token_id": 1, "eos_token_id": 2}, {"after": {**dict.fromkeys(("enorm", "hnorm", "final_layernorm"), [64]), "eh_proj": [64, 128]}, "said": {"num_nextn_predict_layers": 1, "route_norm": True, "first_k_dense_replace": 1}}),
    "mellum": ("MellumForCausalLM", "MellumConfig", {"head_dim": 32, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "sliding_window": 16, "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
               "rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "mimo2": ("MiMoV2FlashForCausalLM", "MiMoV2FlashConfig", {**MIMO, "rope_parameters": {k: {"rope_type": "default", "rope_theta": t, "partial_rotary_factor": 0.334} for k, t in (("full_attention", 5000000.0), ("sliding_attention", 10000.0))}},
              {"as_is": True, "said": MIMO_SAID, "besides": mimo_further()}),
    "mimo2-fused": ("MiMoV2FlashForCausalLM", "MiMoV2FlashConfig", {**MIMO, "rope_parameters": {k: {"rope_type": "default", "rope_theta": t, "partial_rotary_factor": 0.334} for k, t in (("full_attention", 5000000.0), ("sliding_attention", 10000.0))}},
                    {"as_is": True, "answers": False, "coded": mimo_fused, "besides": {**mimo_further(), "visual.merger.mlp.0.weight": [64, 64], "speech_embeddings.0.weight": [8, 64]}, "said": {**MIMO_SAID, "architectures": ["MiMoV2ForCausalLM"], "attention_projection_layout": "fused_qkv",
                     "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "store_dtype": "mxfp4", "mxfp4_block_size": 32}}}),
    "cohere2moe": ("Cohere2MoeForCausalLM", "Cohere2MoeConfig", {"num_hidden_layers": 5, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "prefix_dense_intermediate_size": 48, "first_k_dense_replace": 1, "sliding_window": 16, "expert_selection_fn": "sigmoid",
                                                               "bos_token_id": 1, "eos_token_id": 2}, {"after": {**dict.fromkeys(("enorm", "hnorm", "shared_head.norm"), [64]), "eh_proj": [64, 128]}, "said": {"num_nextn_predict_layers": 1}}),
    "cohere2moe-rms": ("Cohere2MoeForCausalLM", "Cohere2MoeConfig", {"num_hidden_layers": 4, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-6, "sliding_window": 16, "bos_token_id": 1, "eos_token_id": 2}, {"as_is": True}),
    "laguna": ("LagunaForCausalLM", "LagunaConfig", {"num_hidden_layers": 5, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "sliding_window": 16, "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
                                                    "num_attention_heads_per_layer": [4, 6, 6, 6, 4], "moe_routed_scaling_factor": 2.5, "rope_parameters": LAGUNA_ROPE, "bos_token_id": 2, "eos_token_id": [2, 272]}, {"own": {"plain": ["<think>", "</assistant>"]}}),
    "graniteswa": ("GraniteSWAForCausalLM", "GraniteSWAConfig", {**SCALES, "num_hidden_layers": 4, "sliding_window": 16, "bos_token_id": 1, "eos_token_id": 2, "layer_rope_theta": [0, 10000.0, 10000.0, 10000.0]}, {"said": {"no_rope_layers": [0, 1, 1, 1]}}),
    "granitemoeswa": ("GraniteMoeSWAForCausalLM", "GraniteMoeSWAConfig", {**SCALES, "num_hidden_layers": 4, "sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48}),
    "minimax-m3": ("MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3VLConfig", {"text_config": M3_TEXT, "vision_config": EYES, "projector_hidden_size": 64},
                   {"as_is": True, "said": {"scoring_func": "sigmoid", "n_shared_experts": 1, "use_gemma_norm": True, "use_qk_norm": True, "moe_layer_freq": M3_TEXT["moe_layer_freq"], "sparse_attention_config": M3_TEXT["sparse_attention_config"]}}),
    "dbrx": ("DbrxForCausalLM", "DbrxConfig", {**BARE, "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 512, "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 500000.0}, "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
                                               "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "bos_token_id": 1, "eos_token_id": 2}),
    "museglimmer": ("MuseGlimmerForConditionalGeneration", "MuseGlimmerConfig", {"text_config": {**SMALL, "num_hidden_layers": 4, "head_dim": 16, "sliding_window": 16, "bos_token_id": 1, "eos_token_id": 2},
                                                                                "vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}, "out_hidden_size": 64, "projector_hidden_size": 64},
                    {"own": {"added": ["<|im_end|>", "<|endoftext|>", "<|eot|>"]}}),
    "hrm": ("HrmTextForCausalLM", "HrmTextConfig", {"num_key_value_heads": 4, "num_hidden_layers": 16, "num_layers_per_stack": 2, "H_cycles": 2, "L_cycles": 3, "head_dim": 32, "prefix_lm": False, "bos_token_id": 1, "eos_token_id": 2}),
    "hyv4": ("HYV4ForCausalLM", "HYV4Config", {**LATENT, "num_hidden_layers": 3, "q_lora_rank": 24, "n_shared_experts": 1, "index_n_heads": 16, "index_head_dim": 16, "index_topk": 8, "indexer_types": ["full", "shared", "full"], "routed_scaling_factor": 1.5, "pad_token_id": 0, "bos_token_id": 1,
                                              "eos_token_id": 2}, {"names": HYV4_NAMES, "said": {"enable_lm_head_fp32": True, "num_nextn_predict_layers": 1}, "besides": {"model.mtp_layers.0.enorm.weight": [64]}}),
    "glm4lite": ("Glm4MoeLiteForCausalLM", "Glm4MoeLiteConfig", {**LATENT, "q_lora_rank": 24, "n_shared_experts": 1, "pad_token_id": 0, "eos_token_id": 2}, {**GLM_MOE, "after": MTP, "said": {"num_nextn_predict_layers": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "first_k_dense_replace": 1}}),
    "youtu": ("YoutuForCausalLM", "YoutuConfig", {"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "bos_token_id": 1, "eos_token_id": 2}),
    "deepseek4": ("DeepseekV4ForCausalLM", "DeepseekV4Config", V4, {"as_is": True, "said": V4_SAID, "names": V4_NAMES, "coded": in_pairs, "besides": V4_BESIDES, "integers": {"layers.0.ffn.gate.tid2eid": [[i * i % 4, (i * i + 1 + i % 3) % 4] for i in range(320)]}}),
    "glm": ("GlmForCausalLM", "GlmConfig", {"head_dim": 16, "pad_token_id": 0, "eos_token_id": [269, 271], "max_position_embeddings": 64, "rms_norm_eps": 1e-5}, GLM),
    "solar": ("SolarOpenForCausalLM", "SolarOpenConfig", {"head_dim": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": None, "rope_parameters": {**YARN, "partial_rotary_factor": 1.0}},
              {"own": {"added": ["<|endoftext|>", "<|startoftext|>", "<unk>"]}, "tokenizer_config": make_folder.settings(eos_token="<|endoftext|>")}),
    "internlm3": ("LlamaForCausalLM", "LlamaConfig", {"head_dim": 32}, {**WITH_PIECES, "tokenizer_config": {**WITH_PIECES["tokenizer_config"], "eos_token": "</s>", "add_prefix_space": False, "added_tokens_decoder": {**ADDED, "5": {"content": "<|im_end|>", "special": True}}},
                  "as_is": True, "answers": True, "said": {"architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3", "rope_parameters": None, "rope_theta": 50000000, "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}, "qkv_bias": False, "bias": False, "attention_bias": None, "mlp_bias": None}}),
    "step37": ("Step3p7ForConditionalGeneration", "Step3p7Config", {"text_config": STEP, "vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}, **dict.fromkeys(SMALL)},
               {"as_is": True, "said": {"text_config": STEP_SAID}, "besides": STEP_MTP}),
    "ling3": ("BailingHybridForCausalLM", "BailingHybridConfig", LING3, {"as_is": True, "answers": True, "said": LING3_SAID, "after": {"eh_proj": [64, 128], "enorm": [64], "hnorm": [64], "final_layernorm": [64]}}),
    "starcoder": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", {**BARE, "hidden_size": None, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512, "activation_function": "gelu_pytorch_tanh", "multi_query": True, "bos_token_id": 1, "eos_token_id": 2}),
    # classes that are Python code in published folders
    "exaone3": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}, {"as_is": True, "answers": False, "names": EXAONE_NAMES, "said": {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "num_layers": 2, "activation_function": "silu",
                "rope_theta": 500000.0, "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"}, "rms_norm_eps": 1e-5, **dict.fromkeys(("num_hidden_layers", "hidden_act", "rope_parameters", "attention_bias", "mlp_bias", "head_dim"))}}),
    "kimik3": ("KimiLinearForCausalLM", "KimiLinearConfig", KIMI, {**KIMI_RANKS, "as_is": True, "answers": False, "without": ("",), "besides": k3_tensors(), "coded": in_mxfp4_pairs, "said": K3_SAID}),
    "ling2": ("Glm4MoeForCausalLM", "Glm4MoeConfig", {"head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "routed_scaling_factor": 2.5, "use_qk_norm": True, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "pad_token_id": 0},
              {"as_is": True, "said": LING, "after": {"eh_proj": [64, 128], "enorm": [64], "hnorm": [64], "final_layernorm": [64]}, "names": LING_NAMES, "without": ("q_proj.weight", "k_proj.weight", "v_proj.weight"), "besides": LING_BESIDES}),
    "deepseek1": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", DEEPSEEK, {"as_is": True, "names": DEEPSEEK_NAMES, "without": ("shared_expert_gate.weight", *(f"{n}_proj.bias" for n in "qkv")), "twin": as_qwen2moe,
                  "said": {"architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "rope_theta": 10000.0, **DEEPSEEK_SAID}}),
    "ling1": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {**DEEPSEEK, "mlp_only_layers": [], "head_dim": 32, "norm_topk_prob": True}, {"as_is": True, "names": DEEPSEEK_NAMES + LING1_NAMES, "without": ("shared_expert_gate.weight", *NO_QKV),
              "besides": {f"model.layers.{i}.attention.query_key_value.weight": [256, 64] for i in range(3)}, "twin": lambda t: as_qwen2moe(in_parts({**t, "lm_head.weight": t["lm_head.weight"] / np.linalg.norm(t["lm_head.weight"], axis=0)}, "attention.query_key_value", 1, (4, 2, 2), 32)),
              "said": {**DEEPSEEK_SAID, "architectures": ["BailingMoeForCausalLM"], "first_k_dense_replace": 0, "model_type": "bailing_moe", "num_experts": 4, "n_routed_experts": None, "num_shared_experts": 2, "n_shared_experts": None, "norm_topk_prob": True, "norm_head": True, "use_bias": False,
                       "use_qkv_bias": False, "rope_theta": 10000.0, "scoring_func": None, "moe_layer_freq": None}}),
    "internlm2": ("LlamaForCausalLM", "LlamaConfig", {"num_attention_heads": 6, "hidden_size": 96, "vocab_size": 280}, {**WITH_PIECES, "as_is": True, "names": INTERNLM2_NAMES, "without": NO_QKV, "besides": {f"model.layers.{i}.attention.wqkv.weight": [160, 96] for i in range(2)},
                  "tokenizer_config": {**WITH_PIECES["tokenizer_config"], "eos_token": "</s>", "added_tokens_decoder": INTERNLM2}, "twin": lambda t: renamed(in_parts(t, "attention.wqkv", 2, (6, 2, 2), 16), back(INTERNLM2_NAMES)),
                  "said": {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "rope_parameters": None, "rope_theta": 10000, "rope_scaling": {"type": "dynamic", "factor": 2.0}, "bias": False, "head_dim": None, "attention_bias": None, "mlp_bias": None}}),
    "baichuan": ("LlamaForCausalLM", "LlamaConfig", {"num_key_value_heads": 4}, {**WITH_PIECES, "as_is": True, "without": NO_QKV, "besides": {f"model.layers.{i}.self_attn.W_pack.weight": [192, 64] for i in range(2)},
                 "twin": lambda t: in_parts(t, "self_attn.W_pack", 1, (4, 4, 4), 16), "said": {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "model_max_length": 512, "num_key_value_heads": None, "rope_parameters": None, "head_dim": None, "attention_bias": None, "mlp_bias": None}}),
    "orion": ("StableLmForCausalLM", "StableLmConfig", {"partial_rotary_factor": 1.0}, {**WITH_PIECES, "as_is": True, "twin": lambda t: t, "said": {"architectures": ["OrionForCausalLM"], "model_type": "orion", "max_sequence_length": 256, "rms_norm_eps": 1e-5, "attention_bias": False,
              **dict.fromkeys(("layer_norm_eps", "rope_parameters", "use_parallel_residual", "qk_layernorm", "partial_rotary_factor", "use_qkv_bias"))}}),
    "qwen1": ("Qwen2ForCausalLM", "Qwen2Config", {"vocab_size": 540, "num_key_value_heads": 4, "rms_norm_eps": 1e-6}, {"ranks": "qwen.tiktoken", "tokenizer_config": make_folder.settings(tokenizer_class="QWenTokenizer", eos_token=None, pad_token=None), "as_is": True, "names": QWEN1_NAMES, "without": NO_QKV,
              "besides": {name: s for i in range(2) for name, s in biased(f"transformer.h.{i}.attn.c_attn", 192, 64).items()}, "twin": lambda t: renamed(in_parts(renamed(t, [("attn.c_attn", "self_attn.c_attn")]), "self_attn.c_attn", 1, (4, 4, 4), 16), back(QWEN1_NAMES)),
              "said": {"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "kv_channels": 16, "intermediate_size": 192, "no_bias": True, "rotary_emb_base": 10000, "rotary_pct": 1.0, "scale_attn_weights": True, "seq_length": 512, "use_dynamic_ntk": True, "use_logn_attn": True,
                       **dict.fromkeys(("num_key_value_heads", "rope_parameters", "layer_types", "hidden_act", "use_sliding_window", "sliding_window", "max_window_layers", "bos_token_id", "eos_token_id", "pad_token_id"))}}),
    "deci": ("LlamaForCausalLM", "LlamaConfig", {"num_hidden_layers": 4, "intermediate_size": 512, "rope_parameters": LLAMA3}, {"as_is": True, "said": DECI_SAID, "without": ("",), "besides": deci_tensors(4), "twin": widened}),
    "deci-linear": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}, {"as_is": True, "answers": False, "said": {**DECI_SAID, "num_hidden_layers": 5, "block_configs": DECI_BLOCKS}, "without": ("",), "besides": deci_tensors(5)}),
    "bamba": ("BambaForCausalLM", "BambaConfig", {"num_hidden_layers": 4, "attn_layer_indices": [2], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_expand": 2}, {"as_is": True, "said": {"attn_rotary_emb": 8}}),
    "openelm": ("Qwen3ForCausalLM", "Qwen3Config", {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16, "intermediate_size": 128, "tie_word_embeddings": True}, {**WITH_PIECES, "as_is": True, "said": OPENELM_SAID, "without": ("",), "besides": openelm_tensors(), "twin": openelm_twin}),
    "codeshell": ("Starcoder2ForCausalLM", "Starcoder2Config", {"bos_token_id": 1, "eos_token_id": 2, "intermediate_size": 256, "sliding_window": None, "tie_word_embeddings": False}, {"as_is": True, "names": CODESHELL_NAMES, "without": NO_QKV, "said": CODESHELL_SAID,
                  "besides": {name: s for i in range(2) for name, s in biased(f"transformer.h.{i}.attn.c_attn", 128, 64).items()}, "twin": lambda t: renamed(in_parts(renamed(t, [("attn.c_attn", "self_attn.c_attn")]), "self_attn.c_attn", 1, (4, 2, 2), 16), back(CODESHELL_NAMES))}),
    "refact": ("LlamaForCausalLM", "LlamaConfig", {}, {"as_is": True, "answers": False, "said": REFACT_SAID, "without": ("",), "besides": REFACT}),
    "plamo": ("LlamaForCausalLM", "LlamaConfig", {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3}, {**WITH_PIECES, "as_is": True, "answers": False, "without": ("post_attention_layernorm.weight",), "names": [("model.layers.", "model.layers.layers."), ("input_layernorm", "norm")],
              "said": {"architectures": ["PlamoForCausalLM"], "model_type": "plamo", "n_shared_head": 2, "num_key_value_heads": 6, **dict.fromkeys(("max_position_embeddings", "rope_parameters", "head_dim", "attention_bias", "mlp_bias"))}}),
    "arctic": ("LlamaForCausalLM", "LlamaConfig", {}, {**WITH_PIECES, "as_is": True, "answers": False, "without": tuple(f"mlp.{n}_proj.weight" for n in ("gate", "up", "down")), "besides": ARCTIC,
               "tokenizer_config": {**WITH_PIECES["tokenizer_config"], "unk_token": "<unk>", "added_tokens_decoder": {**ADDED, "0": {"content": "<unk>", "special": True}, "302": {"content": "<|im_start|>", "special": False}}},
               "said": {"architectures": ["ArcticForCausalLM"], "model_type": "arctic", "num_local_experts": 4, "num_experts_per_tok": 2, "use_residual": True, "moe_layer_frequency": 1, "parallel_attn_mlp_res": True, "rope_theta": 10000.0,
                        **dict.fromkeys(("rope_parameters", "head_dim", "attention_bias", "mlp_bias"))}}),
    "chameleon": ("LlamaForCausalLM", "LlamaConfig", {}, {"as_is": True, "answers": False, "besides": {**CHAMELEON, "model.vqmodel.quantize.embedding.weight": [4, 4]}, "said": {"architectures": ["ChameleonForConditionalGeneration"], "model_type": "chameleon", "swin_norm": True,
                  "rope_theta": 10000.0, **dict.fromkeys(("rope_parameters", "head_dim"))}}),
    "minicpm": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": {**LONG, "original_max_position_embeddings": 512}}, {**WITH_PIECES, "as_is": True, "said": {"architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "scale_emb": 6, "scale_depth": 1.0, "dim_model_base": 32}}),
    "graniteswitch": ("GraniteMoeSharedForCausalLM", "GraniteMoeSharedConfig", {**SCALES, "shared_intermediate_size": 96, "num_local_experts": 0, "num_experts_per_tok": 0},
                      {"as_is": True, "said": SWITCH, "without": ("",), "besides": switch_tensors()}),
    "nanbeige": ("LlamaForCausalLM", "LlamaConfig", {}, {**WITH_PIECES, "as_is": True, "answers": False, "said": {"architectures": ["NanbeigeForCausalLM"], "model_type": "nanbeige", "num_loops": 2, "skip_loop_final_norm": True, "rope_parameters": None, "rope_theta": 70000000.0}}),
    "iquestcoder": ("LlamaForCausalLM", "IQuestCoderConfig", {"head_dim": 32}, {"answers": True, "said": {"architectures": ["IQuestCoderForCausalLM"]}}),
    "pangu": ("LlamaForCausalLM", "LlamaConfig", {"attention_bias": True}, {**WITH_PIECES, "as_is": True, "answers": True, "said": {"architectures": ["PanguEmbeddedForCausalLM"], "model_type": "PanguEmbedded", "bias": True, "rope_parameters": None, "rope_theta": 16000000.0, "head_dim": None}}),
    "maincoder": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32}, {"as_is": True, "answers": False, "said": {"architectures": ["MaincoderForCausalLM"], "model_type": "maincoder", "use_qk_norm": True, "rope_parameters": None, "rope_theta": 1000000.0, **dict.fromkeys(("layer_types", "sliding_window", "use_sliding_window", "max_window_layers"))}}),
    "plm": ("LlamaForCausalLM", "LlamaConfig", {"num_key_value_heads": 4, "tie_word_embeddings": True}, {"as_is": True, "answers": False, "without": ("k_proj.weight", "v_proj.weight", "gate_proj.weight"), "besides": PLM,
            "said": {"architectures": ["PLMForCausalLM"], "model_type": "plm", "hidden_act": "relu2", "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "rope_parameters": None, "rope_theta": 100000.0, "head_dim": None}}),
    "sarvam": ("Glm4MoeForCausalLM", "SarvamMoEConfig", {"head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "eos_token_id": 2}, {"as_is": True, "answers": True, "said": SARVAM}),
    "grovemoe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32, "norm_topk_prob": True}, {"as_is": True, "answers": False, "besides": CHUNKS,
                 "said": {"architectures": ["GroveMoeForCausalLM"], "model_type": "grove_moe", "rope_parameters": None, "rope_theta": 10000000.0}}),
    "smallthinker": ("LlamaForCausalLM", "LlamaConfig", {"num_hidden_layers": 4, "tie_word_embeddings": True}, {"as_is": True, "answers": False, "without": ("gate_proj.weight", "up_proj.weight", "down_proj.weight"), "besides": SMALL_EXPERTS, "said": SMALLTHINKER}),
    "maple": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32, "norm_topk_prob": True}, {"as_is": True, "answers": False,
              "said": {"architectures": ["MapleForCausalLM"], "model_type": "maple", "num_experts": 4, "num_shared_experts": 0, "nope_on_global_attention": True, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": None, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    "spark": ("LlamaForCausalLM", "LlamaConfig", {"head_dim": 32}, {"as_is": True, "answers": False, "without": ("q_proj.weight", "k_proj.weight", "v_proj.weight"), "besides": layers_of(2, {"self_attn.q_k_v_proj": [256, 64], "self_attn.g_proj": [4, 64], "self_attn.o_proj": [64, 128]}), "said": SPARK}),
    "grok": ("MixtralForCausalLM", "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}, {"as_is": True, "answers": False, "names": GROK_NAMES, "besides": GROK_BESIDES, "said": GROK}),
    "grok1": ("MixtralForCausalLM", "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}, {**WITH_PIECES, "as_is": True, "answers": False, "names": GROK_1_NAMES, "besides": layers_of(2, {"rms_norm_1": [64], "rms_norm_3": [64]}), "said": GROK_1}),
    "jais": ("GPT2LMHeadModel", "GPT2Config", {**GPT, "n_inner": 96, "bos_token_id": 1, "eos_token_id": 2}, {"as_is": True, "answers": False, "without": ("wpe.weight",), "besides": JAIS_BESIDES, "said": JAIS}),
    "talkie": ("LlamaForCausalLM", "LlamaConfig", {}, {"as_is": True, "answers": False, "without": ("",), "besides": TALKIE_TENSORS, "said": TALKIE}),
    "chatglm": ("LlamaForCausalLM", "LlamaConfig", {}, {**GLM, "as_is": True, "answers": False, "without": ("",), "besides": CHATGLM_TENSORS, "said": CHATGLM}),
    "rwkv7": ("LlamaForCausalLM", "LlamaConfig", {}, {"world": True, "as_is": True, "answers": False, "without": ("",), "besides": rwkv7_tensors(), "said": RWKV7}),
    "rwkv6": ("LlamaForCausalLM", "LlamaConfig", {}, {"world": True, "as_is": True, "answers": False, "without": ("",), "besides": rwkv6_tensors(), "said": RWKV6}),
    "neobert": ("BertModel", "BertConfig", {"vocab_size": 32, "num_key_value_heads": None}, {**BERT, "as_is": True, "said": NEOBERT, "without": ("",), "besides": neobert_tensors()}),
    "nomicmoe": ("NomicBertModel", "NomicBertConfig", {"vocab_size": N_ALIGNED, "num_key_value_heads": 4},
                 {"tokenizer": ALIGNED, "tokenizer_config": {"tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>", "clean_up_tokenization_spaces": True},
                  "files": MEAN, "as_is": True, "said": NOMIC_MOE, "without": ("",), "besides": nomic_moe_tensors()}),
    "jina3": ("JinaEmbeddingsV3Model", "JinaEmbeddingsV3Config", {"vocab_size": 32, "num_key_value_heads": None, "pad_token_id": 1}, {"aligned": True, "files": MEAN, "as_is": True, "said": JINA3, "without": ("",), "besides": jina3_tensors()}),
}
def in_mxfp4(tensors):
    """Experts of gpt-oss as published folders have them."""
    codes = {}
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, columns, rows = tensors.pop(name)
        tensors[name + "_blocks"], tensors[name + "_scales"] = [experts, rows, columns // 32, 16], [experts, rows, columns // 32]
        codes[name + "_blocks"], codes[name + "_scales"] = "U8", "E8M0"
    return tensors, codes


def in_nvfp4(tensors, compressed):
    """Matrices of layers as ModelOpt and compressed-tensors write them. One has factors of 1, which no file names."""
    codes, ends = {}, ("weight_packed", "weight_global_scale", "input_global_scale") if compressed else ("weight", "weight_scale_2", "input_scale")
    for name in [n for n in tensors if (n.endswith("_proj.weight") or ".in_proj_" in n) and not n.startswith("model.layers.0.self_attn.q_proj")]:
        rows, columns = tensors.pop(name)
        stem = name.removesuffix("weight")
        for end, shape, of in ((ends[0], [rows, columns // 2], "U8"), ("weight_scale", [rows, columns // 16], "F8_E4M3"), *((e, [1] if compressed else [], "FACTOR") for e in ends[1:])):
            if ".1.self_attn.k_proj" not in stem or of != "FACTOR":
                tensors[stem + end], codes[stem + end] = shape, of
    return tensors, codes


TYPES = {"BF16": ["auto", "f32", "q8_0"], "F16": ["auto", "bf16"], "F32": ["auto", "f32", "bf16", "q8_0"]}


def mend(base):
    """The token that begins a text of HunYuan's: the converter has its number in the published vocabulary. Norms of each head of StableLM: its function returns the stack from a generator, which loses it. torch.exp and torch.norm: rounded once, from a double.
    DeepSeek V3.2: the converter asks the tokenizer for add_bos_token, which those of transformers 5 lack."""
    import gguf
    import torch
    from conversion import bailingmoe, deepseek, stablelm
    bailingmoe.SarvamMoEModel.filter_tensors = bailingmoe.BailingMoeV2Model.filter_tensors           # a number is subtracted from all biases of a layer's experts, which changes no choice
    deepseek.DeepseekV32Model.set_vocab = lambda self: self._set_vocab_gpt2()
    bos = gguf.GGUFWriter.add_bos_token_id
    if bos.__name__ != "<lambda>":
        gguf.GGUFWriter.add_bos_token_id = lambda self, i: bos(self, len(make_folder.rank_tokens()) + 2 if i == 127959 else i)
    norm = torch.norm
    if norm.__name__ == "norm":                            # the length of columns (Ling 1): summed in doubles
        torch.norm = lambda x, **more: norm(x.double(), **more).to(x.dtype)
    exp = torch.exp
    if exp.__name__ == "exp":
        torch.exp = lambda x: exp(x.double()).to(x.dtype)
    before = stablelm.StableLMModel.modify_tensors

    def modify_tensors(self, *arguments):
        yield from (yield from before(self, *arguments)) or ()
    if before.__name__ != "mended":
        modify_tensors.__name__ = "mended"
        stablelm.StableLMModel.modify_tensors = modify_tensors
        mend_baichuan()
        mend_earlier()
        mend_encoders()


def mend_baichuan():
    """The converter's function calls itself without an end for all tensors but one."""
    from conversion import baichuan, base
    of_pack = baichuan.BaichuanModel.modify_tensors

    def modify_tensors(self, x, name, bid):
        yield from of_pack(self, x, name, bid) if "W_pack" in name else base.TextModel.modify_tensors(self, x, name, bid)
    baichuan.BaichuanModel.modify_tensors = modify_tensors


def mend_earlier():
    """Deci: any vocabulary of BPE is read as that of 128256 tokens. PLaMo: numbers are those of the published model. Chameleon: norms of heads are those of the first one. Bamba: whole heads are woven, but half of one rotates."""
    from conversion import chameleon, deci, granite, plamo
    deci.DeciModel.set_vocab = deci.TextModel._set_vocab_gpt2
    chameleon.ChameleonModel._reverse_hf_permute = staticmethod(lambda x, heads, width: x.view(len(x), 2, -1).transpose(1, 2).reshape(x.shape))

    def shuffled(self, x, axis):
        shape, groups = list(x.shape), self.hparams["n_shared_head"]
        x = x.reshape(shape[:axis] + [groups, self.hparams["num_attention_heads"] // groups, -1] + shape[axis + 1:])
        return x.transpose(axis, axis + 1).reshape(shape)
    plamo.PlamoModel.shuffle_attn_q_weight, plamo.PlamoModel.shuffle_attn_output_weight = (lambda self, x: shuffled(self, x, 0)), (lambda self, x: shuffled(self, x, 1))
    parameters, of_granite = plamo.PlamoModel.set_gguf_parameters, granite.GraniteHybridModel.modify_tensors

    def set_gguf_parameters(self):
        count = self.gguf_writer.add_head_count_kv
        self.gguf_writer.add_head_count_kv = lambda n: count(self.hparams["num_attention_heads"] // self.hparams["n_shared_head"])
        parameters(self)

    def modify_tensors(self, x, name, bid):
        if self.hparams["architectures"] == ["BambaForCausalLM"] and name.endswith(("q_proj.weight", "k_proj.weight")):
            size = self.hparams["hidden_size"] // self.hparams["num_attention_heads"]
            first, rest = x.view(-1, 2, size // 2, x.shape[1]).unbind(1)
            x = __import__("torch").stack([first.reshape(len(first), 2, -1, x.shape[1]).transpose(1, 2).reshape(first.shape), rest], 1).reshape(x.shape)
            yield self.map_tensor_name(name), x
        else:
            yield from of_granite(self, x, name, bid)
    plamo.PlamoModel.set_gguf_parameters, granite.GraniteHybridModel.modify_tensors = set_gguf_parameters, modify_tensors


def mend_encoders():
    """Published code of NeoBERT takes queries, keys and values of each head from rows side by side; the converter leaves them there. That of Nomic's experts adds a bias, which the converter drops."""
    from conversion import bert

    def of_heads(self, x, name, bid):
        if name.endswith(".qkv.weight"):
            x = x.view(self.hparams["num_attention_heads"], 3, -1, x.shape[1]).transpose(0, 1).reshape(x.shape)
        yield from bert.BertModel.modify_tensors(self, x, name, bid)

    def with_bias(self, x, name, bid):
        if name.endswith("mlp.experts.bias"):
            yield f"blk.{bid}.ffn_exps.bias", x
        else:
            yield from of_nomic(self, x, name, bid)
    bert.NeoBert.modify_tensors, of_nomic, bert.NomicBertModel.modify_tensors = of_heads, bert.NomicBertModel.modify_tensors, with_bias
    bert.NomicBertModel.filter_tensors = classmethod(lambda cls, item: super(bert.NomicBertModel, cls).filter_tensors(item))


class Ranks:
    """What the converter asks of tokenizers that are Python code in the folder."""
    def __init__(self, folder):
        self.mergeable_ranks = {t: i for i, t in enumerate(make_folder.rank_tokens(not (folder / "qwen.tiktoken").exists()))}
        self.model, n = types.SimpleNamespace(_mergeable_ranks=self.mergeable_ranks), len(self.mergeable_ranks)
        settings, self.vocab_size = json.loads((folder / "tokenizer_config.json").read_text()), json.loads((folder / "config.json").read_text())["vocab_size"]
        if settings["tokenizer_class"] == "QWenTokenizer":
            self.pre, names = "qwen2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
        elif settings["tokenizer_class"] == "HYTokenizer":
            self.pre, names = "hunyuan", ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", *(f"<|extra_{i}|>" for i in range(self.vocab_size - n - 5))]
        else:
            known = {int(i): t["content"] for i, t in settings["added_tokens_decoder"].items()}
            self.pre, names = "kimi-k2", [known.get(i, f"<|reserved_token_{i}|>") for i in range(n, n + 256)]
        self.special_tokens = {t: n + i for i, t in enumerate(names)}
        self.eos_id = self.special_tokens.get(settings["eos_token"])

    def get_vocab(self):
        return {**self.mergeable_ranks, **self.special_tokens}


def converter(llama_cpp, *arguments, as_is=False):
    """Runs it in this process, which has loaded what it needs. as_is: config.json is read without transformers, which drops keys of old classes."""
    sys.path[:0] = [p for p in (llama_cpp, llama_cpp + "/gguf-py") if p not in sys.path]
    from conversion import base
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: tokenizer.pre if isinstance(tokenizer, Ranks) else "jina-v2-en" if type(tokenizer).__name__ == "BertTokenizer" else "qwen2"
    mend(base)
    base.AutoConfig = None if as_is else __import__("transformers").AutoConfig
    from conversion import minimax, rwkv
    rwkv.Rwkv6Model.lerp_weights, rwkv.Rwkv7Model.lerp_weights = {}, {}          # they keep those of other folders
    minimax.MiniMaxText01Model._get_suppress_tokens = lambda self: None          # reads folders of several files
    import transformers
    of_folder = transformers.AutoTokenizer.from_pretrained
    if list(arguments[0].glob("*tiktoken*")):
        transformers.AutoTokenizer.from_pretrained = lambda folder, **_: Ranks(Path(folder))
    before, sys.argv = sys.argv, [llama_cpp + "/convert_hf_to_gguf.py", *map(str, arguments)]
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.argv, transformers.AutoTokenizer.from_pretrained = before, of_folder


def describe(path):
    import gguf
    reader = gguf.GGUFReader(path)
    keys = {k: [f.types[0].name, f.contents()] for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    return keys, {t.name: [t.tensor_type.name, [int(n) for n in t.shape], hashlib.sha256(t.data.tobytes()).hexdigest()[:16]] for t in reader.tensors}


def with_further_block(tensors, width):
    """A block that predicts a further token, which transformers leaves out, as published folders have it: a layer of attention and what is around it."""
    start = next(n for n in tensors if n.endswith("self_attn.q_proj.weight")).split("self_attn.")[0]
    around = {"mtp.fc.weight": [width, 2 * width], **{f"mtp.{n}.weight": [width] for n in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}}
    return {**tensors, **{n.replace(start, "mtp.layers.0."): s for n, s in tensors.items() if n.startswith(start)}, **around}


def with_layer_after(tensors, layers, besides):
    """A layer after the last one that predicts a further token, as published folders of DeepSeek and GLM have it."""
    start = next(n for n in tensors if f"layers.{layers - 1}." in n).split("layers.")[0] + "layers."
    return {**tensors, **{n.replace(f"{start}{layers - 1}.", f"{start}{layers}."): s for n, s in tensors.items() if n.startswith(f"{start}{layers - 1}.")}, **{f"{start}{layers}.{n}.weight": s for n, s in besides.items()}}


def with_stacked_experts(tensors, experts):
    """Matrices of experts as one tensor, gate and up in one, as published folders of Qwen3.5 have them."""
    out = {n: s for n, s in tensors.items() if ".experts." not in n}
    for name, (rows, columns) in ((n, s) for n, s in tensors.items() if ".experts.0." in n):
        start, part = name.removesuffix(".weight").rsplit("0.", 1)
        if part == "down_proj":
            out[start + part] = [experts, rows, columns]
        elif part == "gate_proj":
            out[start + "gate_up_proj"] = [experts, 2 * rows, columns]
    return out


def answer(folder, model, config):
    """What transformers says of the token after some others."""
    import torch
    import transformers
    if model == "HYV4ForCausalLM":           # neighbours rotate in published folders (docs/architecture.md), halves in transformers
        models = transformers.models
        models.hy_v4.modeling_hy_v4.apply_rotary_pos_emb = models.deepseek_v32.modeling_deepseek_v32.apply_rotary_pos_emb_interleave
    ids = [(7 * i * i + 3 * i) % config.get("text_config", config)["vocab_size"] for i in range(40)]
    model = "AutoModelForCausalLM" if config["model_type"] == "sarvam_moe" else model          # whose class is GLM's
    with torch.no_grad():
        more = {"decoder_input_ids": torch.tensor([[config["decoder_start_token_id"]]])} if "T5" in model else {}
        logits = getattr(transformers, model).from_pretrained(folder, dtype=torch.float32).eval()(torch.tensor([ids]), **more).logits[0, -1]
    return {"ids": ids, "logprobs": [round(p, 6) for p in torch.log_softmax(logits.double(), -1).tolist()]}


def answer_of_twin(folder, model, config, tensors, twin):
    """What transformers says in another class, which computes the same with tensors that `twin` makes of the folder's."""
    arrays = {n: np.frombuffer(make_folder.weights(n, s, "F32"), np.float32).reshape(s) for n, s in tensors.items()}
    (folder / "config.json").write_text(json.dumps(config))
    import safetensors.torch
    import transformers
    known = {n: list(x.shape) for n, x in getattr(transformers, model)(transformers.AutoConfig.from_pretrained(folder)).state_dict().items() if not config.get("tie_word_embeddings") or n != "lm_head.weight"}
    made = {n: np.ascontiguousarray(x, np.float32) for n, x in (twin(arrays, known) if twin == widened else twin(arrays)).items()}
    make_folder.safetensors(folder / "model.safetensors", {n: ("F32", list(x.shape), x.tobytes()) for n, x in made.items()})
    missing = {n for n in known if ".mlp.experts." not in n} ^ {n for n in safetensors.torch.load_file(folder / "model.safetensors") if ".mlp.experts." not in n}
    assert not missing, missing
    return answer(folder, model, config)


def integers(path):
    """Tensors that are no weights."""
    from safetensors import safe_open
    with safe_open(path, "pt") as f:
        return {n: f.get_tensor(n).tolist() for n in f.keys() if "I64" == str(f.get_slice(n).get_dtype())}


def record(llama_cpp, name):
    import transformers
    model, config, own, *more = KINDS[name]
    config = getattr(transformers, config)(**{k: v for k, v in {**SMALL, **own}.items() if v is not None or k not in SMALL})
    with tempfile.TemporaryDirectory() as folder:
        getattr(transformers, model)(config).save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        head, values = (Path(folder) / "model.safetensors").read_bytes(), integers(Path(folder) / "model.safetensors")
    saved.pop("transformers_version")
    head = json.loads(head[8:8 + int.from_bytes(head[:8], "little")])
    more = dict(*more)
    if values and "integers" not in more:
        more["integers"] = values
    arguments, as_is = more.pop("arguments", []), more.pop("as_is", False)
    inner, tensors = saved.get("text_config", saved), {k: v["shape"] for k, v in head.items() if k != "__metadata__" and not k.endswith(more.get("without", ("#",)))}
    more.pop("without", None)
    twin, of_twin = more.pop("twin", None), dict(saved)
    if more.pop("further", False):
        tensors = with_further_block(tensors, inner["hidden_size"])
    if more.pop("stacked", False):
        tensors = with_stacked_experts(tensors, inner["num_experts"])
    if "after" in more:
        tensors = with_layer_after(tensors, inner["num_hidden_layers"], more.pop("after"))
    tensors |= more.pop("besides", {})
    coded = more.pop("coded", None)
    saved = {k: None if v is ... else v for k, v in {**saved, **more.pop("said", {})}.items() if v is not None}
    for a, b in more.pop("names", []):
        tensors = {n.replace(a, b): s for n, s in tensors.items()}
    if coded:
        tensors, more["codes"] = coded(tensors)
    own_name = more.pop("answers", saved["architectures"] == [model])
    made = {**more, "config": saved, "tensors": tensors, "keys": {}, "made": {}}
    with tempfile.TemporaryDirectory() as folder:
        for dtype, outs in TYPES.items():
            source = make_folder.write(Path(folder) / dtype / name, made, dtype)
            if dtype == "F32" and (own_name or model in ("MptForCausalLM", "PhimoeForCausalLM", "MiniMaxForCausalLM")) and (model.endswith(("ForCausalLM", "LMHeadModel")) or "T5For" in model or "Glm5Next" in model or "MiniMaxM3" in model or "Muse" in model or "Step3" in model):
                made["answer"] = answer(make_folder.write(Path(folder) / "floats" / name, made, dtype, floats=True), model, saved)
            if dtype == "F32" and twin:
                made["answer"] = answer_of_twin(make_folder.write(Path(folder) / "twin" / name, made, dtype), model, of_twin, tensors, twin)
            for out in outs:
                path = Path(folder) / "out.gguf"
                converter(llama_cpp, source, "--outfile", path, "--outtype", out, *arguments, as_is=as_is)
                keys, made["made"][f"{dtype} {out}"] = describe(path)
                made["keys"] |= {k: v for k, v in keys.items() if k != "general.file_type"}
                if "general.file_type" in keys:            # some old classes have none
                    made["made"][f"{dtype} {out}"]["general.file_type"] = keys["general.file_type"][1]
    return made


if __name__ == "__main__":
    for kind in sys.argv[3:] or KINDS:
        (Path(sys.argv[2]) / f"{kind}.json").write_text(json.dumps(record(sys.argv[1], kind), separators=(",", ":"), ensure_ascii=False) + "\n")
