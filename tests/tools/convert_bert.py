#!/usr/bin/env python3
"""convert_bert.py: a BERT model of a folder as sentence-transformers keeps it (config.json, vocab.txt, model.safetensors, 1_Pooling) becomes a GGUF file.

    convert_bert.py FOLDER OUT [f32|f16]

Made for tests that run a published model: keys under `bert.` and `tokenizer.ggml.`, and all tensors, are those that llama.cpp's convert_hf_to_gguf.py writes (compared for
all-MiniLM-L6-v2, f32 and f16: no difference).
"""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
         "embeddings.LayerNorm": "token_embd_norm", "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up", "output.dense": "ffn_down",
         "output.LayerNorm": "layer_output_norm"}
SINGLE = {"position_embd", "token_types"}                        # matrices that stay 32-bit floats


def name_of(name):
    """blk.1.ffn_up.bias of encoder.layer.1.intermediate.dense.bias; None: not needed for vectors"""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("encoder.layer."):
        return f"{NAMES[stem]}.{kind}" if stem in NAMES else None
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{kind}"


def add_keys(w, config, pooling):
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_layer_norm_eps(config["layer_norm_eps"])
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.CLS if pooling["pooling_mode_cls_token"] else gguf.PoolingType.MEAN)


def add_vocabulary(w, folder, config):
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    special = json.loads((folder / "special_tokens_map.json").read_text())
    control = {v if isinstance(v, str) else v["content"] for v in special.values()}
    w.add_token_type_count(config["type_vocab_size"])
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("jina-v2-en")
    w.add_token_list([t if t in control else t[2:] if t.startswith("##") else f"▁{t}" for t in words])
    w.add_token_types([gguf.TokenType.CONTROL if t in control else gguf.TokenType.NORMAL for t in words])
    for role, token in (("bos", "cls"), ("eos", "sep"), ("unknown", "unk"), ("seperator", "sep"), ("padding", "pad"), ("mask", "mask")):
        w.add_uint32(f"tokenizer.ggml.{role}_token_id", words.index(special[f"{token}_token"]))
    for name, value in (("add_bos_token", True), ("add_eos_token", True), ("add_sep_token", False), ("normalizer.lowercase", True)):
        w.add_bool(f"tokenizer.ggml.{name}", value)


def convert(folder, out, floats="f32"):
    config = json.loads((folder / "config.json").read_text())
    w = gguf.GGUFWriter(out, "bert")
    add_keys(w, config, json.loads((folder / "1_Pooling" / "config.json").read_text()))
    add_vocabulary(w, folder, config)
    for name, tensor in load_file(folder / "model.safetensors").items():
        new = name_of(name)
        if new:
            half = floats == "f16" and tensor.ndim == 2 and new.removesuffix(".weight") not in SINGLE
            w.add_tensor(new, tensor.astype(np.float16 if half else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    convert(Path(sys.argv[1]), sys.argv[2], *sys.argv[3:])
