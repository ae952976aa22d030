#!/usr/bin/env python3
"""record_source.py: what transformers answers with models in files of make_source.py, for tests/records/source.

    record_source.py OUT_FOLDER [NAME ...]       default: all names

Needs torch and transformers (the records were made with 2.15.0 and 5.24.0) beside numpy and gguf. A record is a list of texts: the ids of a source, those of an answer that is
forced, the logarithms of probabilities of all tokens at some of its places, and the ids of an answer that takes the likeliest token each time.
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

import make_source

LENGTHS = ((1, 12), (30, 40), (200, 150))                # of sources, and of their answers
PLACES = 0, 1, 9, 39, 149
NAMES = {"attn_norm": "0.layer_norm", "attn_rel_b": "0.SelfAttention.relative_attention_bias", "cross_attn_norm": "1.layer_norm",
         **{f"attn_{x}": f"0.SelfAttention.{x}" for x in "qkvo"}, **{f"cross_attn_{x}": f"1.EncDecAttention.{x}" for x in "qkvo"}}


def theirs(name, p):
    stem = name.removesuffix(".weight")
    if "." not in stem:
        return {"token_embd": "shared", "output": "lm_head"}[stem] + ".weight"
    side, *rest = stem.split(".")
    side, last = {"enc": "encoder", "dec": "decoder"}[side], rest[-1]
    if last == "output_norm":
        return f"{side}.final_layer_norm.weight"
    n = 1 if side == "encoder" else 2
    ff = {"ffn_norm": f"{n}.layer_norm", "ffn_down": f"{n}.DenseReluDense.wo", "ffn_gate": f"{n}.DenseReluDense.wi_0",
          "ffn_up": f"{n}.DenseReluDense.{'wi' if p.get('plain') else 'wi_1'}"}
    return f"{side}.block.{rest[1]}.layer.{ {**NAMES, **ff}[last] }.weight"


def load(name, path):
    p = make_source.SOURCES[name]
    shape = {"vocab_size": p["n_vocab"], "d_model": p["dim"], "d_kv": p["head_dim"], "num_heads": p["heads"], "d_ff": p["ffn"], "num_layers": p["layers"],
             "num_decoder_layers": p["decoder"], "relative_attention_num_buckets": p["ranges"], "layer_norm_epsilon": 1e-5, "decoder_start_token_id": p["starts"],
             "feed_forward_proj": "relu" if p.get("plain") else "gated-gelu", "tie_word_embeddings": bool(p.get("tie"))}
    kind = "UMT5" if p.get("each") else "T5"
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(getattr(transformers, f"{kind}Config")(**shape)).eval()
    if not p.get("tie"):
        model.lm_head.weight = torch.nn.Parameter(torch.empty(p["n_vocab"], p["dim"]))
    state = {theirs(t.name, p): torch.tensor(np.array(t.data, dtype=np.float32)) for t in gguf.GGUFReader(path).tensors if "cross_attn_rel_b" not in t.name}
    embedding = state["shared.weight"]
    state |= {"encoder.embed_tokens.weight": embedding, "decoder.embed_tokens.weight": embedding}
    model.load_state_dict(state if "lm_head.weight" in state else state | {"lm_head.weight": embedding}, strict=True)
    return model.double()


@torch.no_grad()
def record(name):
    p, rng = make_source.SOURCES[name], np.random.default_rng(zlib.crc32(name.encode()))
    with tempfile.TemporaryDirectory() as folder:
        make_source.write(name, Path(folder) / "m.gguf")
        model = load(name, Path(folder) / "m.gguf")
    texts = []
    for n_source, n_answer in LENGTHS:
        ids, answer = [rng.integers(4, p["n_vocab"], n).tolist() for n in (n_source, n_answer)]
        encoded, drawn = model.encoder(input_ids=torch.tensor([ids])), []

        def logits(so_far, encoded=encoded):
            # without a cache: that of transformers 5.24.0 has room for as many layers as the encoder has
            return model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[p["starts"], *so_far]]), use_cache=False).logits[0]
        at = torch.log_softmax(logits(answer[:-1]), -1)
        for _ in range(n_answer):
            drawn.append(int(logits(drawn)[-1].argmax()))
        places = [i for i in PLACES if i < n_answer]
        texts.append({"source": ids, "answer": answer, "logprobs": {i: [round(x, 5) for x in at[i].tolist()] for i in places}, "drawn": drawn})
    return texts


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or make_source.SOURCES:
        path = Path(sys.argv[1]) / f"{name}.json"
        path.write_text("[" + ",\n".join(json.dumps(text, separators=(",", ":")) for text in record(name)) + "]\n")
        print(path)
