#!/usr/bin/env python3
"""record_transformers.py: the vectors that transformers makes of models in files of make_encoder.py, for tests/records/embeddings.

    record_transformers.py OUT_FOLDER [NAME ...]       default: all names

Needs torch and transformers (the records were made with 2.15.0 and 5.24.0) beside numpy and gguf. A model is made from a published configuration in small, its weights are
those of the file. Records are as those of record_embedding.py: texts of token ids, and of each the mean of all tokens' vectors, the first and the last, before anything is
normalised.
"""
import json
import sys
import tempfile
import zlib
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

import make_encoder
from convert_bert import NAMES as BERT

LENGTHS = (1, 30, 200)

# The last parts of names, by ours
NOMIC = {"token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm", "attn_output": "self_attn.o_proj",
         "attn_output_norm": "post_attention_layernorm", "layer_output_norm": "post_mlp_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
JINA = {**NOMIC, "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
MODERN = {"token_embd": "embeddings.tok_embeddings", "token_embd_norm": "embeddings.norm", "output_norm": "final_norm", "attn_norm": "attn_norm", "ffn_norm": "mlp_norm",
          "attn_qkv": "attn.Wqkv", "attn_output": "attn.Wo", "ffn_up": "mlp.Wi", "ffn_down": "mlp.Wo"}


def shape(p):
    return {"hidden_size": p["dim"], "num_hidden_layers": p["layers"], "num_attention_heads": p["heads"], "intermediate_size": p["ffn"], "vocab_size": p["n_vocab"]}


def bert(p):
    more = {"type_vocab_size": p["types"], "max_position_embeddings": p["n_ctx"], "hidden_act": "gelu", "layer_norm_eps": p["keys"]["attention.layer_norm_epsilon"]}
    return transformers.BertModel(transformers.BertConfig(**shape(p), **more), add_pooling_layer=False), {ours: theirs for theirs, ours in BERT.items()}, "encoder.layer"


def nomic(p):
    config = transformers.NomicBertConfig(**shape(p), type_vocab_size=p["types"], layer_norm_eps=1e-12, rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
    return transformers.NomicBertModel(config, add_pooling_layer=False), NOMIC, "layers"


def jina(p):
    config = transformers.JinaEmbeddingsV3Config(**shape(p), type_vocab_size=1, layer_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 20000.0})
    return transformers.JinaEmbeddingsV3Model(config, add_pooling_layer=False), JINA, "layers"


def modern(p):
    keys = p["keys"]
    rope = {kind: {"rope_type": "default", "rope_theta": keys[f"rope.freq_base{end}"]} for kind, end in (("full_attention", ""), ("sliding_attention", "_swa"))}
    config = transformers.ModernBertConfig(**shape(p), norm_eps=1e-5, local_attention=keys["attention.sliding_window"], hidden_activation=keys["hidden_activation"], rope_parameters=rope,
                                           pad_token_id=0)
    return transformers.ModernBertModel(config), MODERN, "layers"


MODELS = {"bge": bert, "multilingual-e5": bert, "nomic-embed": nomic, "jina-embeddings-v3": jina, "gte-modernbert": modern, "granite-embedding": modern}


def parts(name, data):
    """Queries, keys and values apart, where the model has them so."""
    if ".attn_qkv." in name:
        return [(name.replace("attn_qkv", f"attn_{of}"), x) for of, x in zip("qkv", np.split(data, 3), strict=True)]
    return [(name, data)]


def load(name, path):
    model, names, layers = MODELS[name](make_encoder.ENCODERS[name])
    state = {}
    for t in gguf.GGUFReader(path).tensors:
        for ours, data in [(t.name, t.data)] if MODELS[name] is modern else parts(t.name, t.data):
            stem, _, kind = ours.rpartition(".")
            at, stem = (f"{layers}.{stem.split('.')[1]}.", stem.split(".", 2)[2]) if stem.startswith("blk.") else ("", stem)
            state[f"{at}{names[stem]}.{kind}"] = torch.tensor(np.array(data, dtype=np.float32))
    model.load_state_dict(state, strict=True)
    return model.eval()


def record(name, path):
    model, texts = load(name, path), []
    for n in LENGTHS:
        ids = [int(i) for i in np.random.default_rng([n, zlib.crc32(name.encode())]).integers(5, make_encoder.ENCODERS[name]["n_vocab"] - 2, n)]
        with torch.no_grad():
            rows = model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()
        texts.append({"ids": ids, **{how: [float(f"{x:.6g}") for x in v] for how, v in (("mean", rows.mean(0)), ("cls", rows[0]), ("last", rows[-1]))}})
    return texts


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.gguf"
            make_encoder.write(name, path)
            texts = record(name, path)
        (Path(sys.argv[1]) / f"{name}.json").write_text("[" + ",\n".join(json.dumps(t, separators=(",", ":")) for t in texts) + "]\n")
        print(f"{name}: length {np.linalg.norm(texts[1]['mean']):.3g}")


if __name__ == "__main__":
    main()
