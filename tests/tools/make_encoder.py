#!/usr/bin/env python3
"""make_encoder.py: small GGUF files with random weights of models that make vectors of texts, one for each family, in shapes that differ.

    make_encoder.py NAME OUT
    make_encoder.py --list

As make_model.py, whose parts these are made of.
"""
import sys

from make_model import Model, experts, keys, moe

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"), "a", "the", "cat", "dog",
         "##s", "##ing", "walk", ",", ".", "!"]
BASE = dict(dim=128, layers=3, heads=4, kv=4, head_dim=32, ffn=192, n_vocab=301, n_ctx=384, layer_norm=True, no_key_length=True, act="gelu")


def encoder(**more):
    return {**BASE, **more, "keys": {"attention.causal": False, "pooling_type": 1, **more.get("keys", {})}}


ENCODERS = {
    "bert": encoder(arch="bert", types=2, positions=True, bias=True, plain=True, wordpiece=True, keys={"pooling_type": 2}),
    "bert-q8_0": encoder(arch="bert", dim=192, layers=2, heads=3, kv=3, head_dim=64, ffn=320, types=1, positions=True, bias=True, plain=True, quant="Q8_0"),
    "nomic-bert-q4_0": encoder(arch="nomic-bert", layers=2, types=2, fused=True, quant="Q4_0"),
    "nomic-bert": encoder(arch="nomic-bert", types=2, fused=True, keys={"rope.freq_base": 1000.0}),
    "nomic-bert-moe": {**encoder(arch="nomic-bert-moe", layers=4, types=1, bias=True, fused=True, plain=True, every=2, keys={**moe(4, 2, 192)[1], "moe_every_n_layers": 2}),
                       **moe(4, 2, 192)[0]},
    "jina-bert-v2": encoder(arch="jina-bert-v2", types=2, bias=True, heads=6, kv=6, dim=192, qk_norm=True),
    "jina-bert-v2-code": encoder(arch="jina-bert-v2", types=2, bias=True, gate_in_up=True, again=True),
    "jina-bert-v3": encoder(arch="jina-bert-v3", types=1, bias=True, plain=True, fused=True, keys={"rope.freq_base": 20000.0}),
    "eurobert": encoder(arch="eurobert", kv=2, layer_norm=False, llama=True, no_key_length=False, keys={"rope.freq_base": 250000.0}),
    "llama-embed": encoder(arch="llama-embed", kv=2, layer_norm=False, llama=True, no_key_length=False, keys={"rope.dimension_count": 32}),
    "neo-bert": encoder(arch="neo-bert", heads=3, kv=3, dim=144, head_dim=48, ffn=208, types=0, layer_norm=False, llama=True, fused=True, gate_in_up=True, end="enc.output_norm",
                        keys={"rope.freq_base": 10000.0, "rope.scaling.type": "none", "pooling_type": 2}),
    # with a gate, and without one and more heads than the stream has; texts are longer than the distances that are told apart
    "t5encoder": encoder(arch="t5encoder", layer_norm=False, llama=True, no_key_length=False, types=0, t5=32, blocks="enc.", end="enc.output_norm", keys={"attention.relative_buckets_count": 32}),
    "t5encoder-plain": encoder(arch="t5encoder", layers=2, heads=6, kv=6, head_dim=16, dim=144, ffn=208, layer_norm=False, llama=True, plain=True, no_key_length=False, types=0, t5=20,
                               blocks="enc.", end="enc.output_norm", keys={"attention.relative_buckets_count": 20, "pooling_type": 3}),
    "modern-bert": encoder(arch="modern-bert", layers=5, layer_norm="bare", fused=True, gate_in_up=True, pre=True,
                           keys={"rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0, "attention.sliding_window": 32, "pooling_type": 2}),
    "bert-rank": encoder(arch="bert", types=2, positions=True, bias=True, plain=True, wordpiece=True, cls=(128, 1), keys={"pooling_type": 4}),
    "jina-bert-v2-rank": encoder(arch="jina-bert-v2", layers=2, types=2, bias=True, gate_in_up=True, cls=(1, 0), keys={"pooling_type": 4}),
    "qwen3-rank": encoder(arch="qwen3", layers=2, layer_norm=False, no_key_length=False, llama=True, head_norms=True, cls=(0, 2), rerank="[CLS]does {document} walk: {query}?[SEP]",
                          keys={"attention.causal": True, "pooling_type": 4, "classifier.output_labels": ["yes", "no"]}),
    # as published ones are configured: recorded from transformers by record_transformers.py
    "bge": encoder(arch="bert", types=2, positions=True, bias=True, plain=True, keys={"pooling_type": 2, "attention.layer_norm_epsilon": 1e-12}),
    "multilingual-e5": encoder(arch="bert", heads=8, kv=8, head_dim=16, types=1, positions=True, bias=True, plain=True, keys={"attention.layer_norm_epsilon": 1e-5}),
    "nomic-embed": encoder(arch="nomic-bert", types=2, fused=True, keys={"rope.freq_base": 1000.0, "attention.layer_norm_epsilon": 1e-12}),
    "jina-embeddings-v3": encoder(arch="jina-bert-v3", types=1, bias=True, plain=True, fused=True, keys={"rope.freq_base": 20000.0, "attention.layer_norm_epsilon": 1e-5}),
    "gte-modernbert": encoder(arch="modern-bert", layers=7, layer_norm="bare", fused=True, gate_in_up=True, pre=True,
                              keys={"rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0, "rope.scaling.type": "none", "attention.sliding_window": 32, "pooling_type": 2,
                                    "hidden_activation": "gelu", "classifier.pooling_type": 1}),
    # of which transformers 5 wrote the configuration: its epsilon has the other name
    "granite-embedding": encoder(arch="modern-bert", layers=4, layer_norm="bare", rms_key=True, fused=True, gate_in_up=True, pre=True, heads=2, kv=2, head_dim=64,
                                 keys={"rope.freq_base": 80000.0, "rope.freq_base_swa": 10000.0, "attention.sliding_window": 48, "pooling_type": 2, "hidden_activation": "silu"}),
    "gemma-embedding": encoder(arch="gemma-embedding", layers=7, heads=3, kv=1, head_dim=64, dim=160, layer_norm=False, no_key_length=False, gemma=True, dense=(224, 160),
                               keys={"attention.sliding_window": 32, "rope.freq_base": 1000000.0, "dense_2_feat_in": 160, "dense_2_feat_out": 224, "dense_3_feat_in": 224,
                                     "dense_3_feat_out": 160}),
}

PUBLISHED = ["bge", "multilingual-e5", "nomic-embed", "jina-embeddings-v3", "gte-modernbert", "granite-embedding"]


def norm(m, name, n):
    m.vector(f"{name}.weight", n)
    if m.p["layer_norm"] is True:
        m.vector(f"{name}.bias", n, 0, 0.1)


def attention(m, b):
    p = m.p
    q, k = p["heads"] * p["head_dim"], p["kv"] * p["head_dim"]
    if p.get("fused"):
        m.matrix(b + "attn_qkv", q + 2 * k, p["dim"], gain=1.5, bias=p.get("bias"))
    else:
        for name, rows in (("attn_q", q), ("attn_k", k), ("attn_v", k)):
            m.matrix(b + name, rows, p["dim"], gain=1.5, bias=p.get("bias"))
    if p.get("qk_norm"):
        norm(m, b + "attn_q_norm", q)
        norm(m, b + "attn_k_norm", k)
    if p.get("gemma") or p.get("head_norms"):
        norm(m, b + "attn_q_norm", p["head_dim"])
        norm(m, b + "attn_k_norm", p["head_dim"])
    m.matrix(b + ("attn_o" if p.get("t5") else "attn_output"), p["dim"], q, bias=p.get("bias"))


def feed_forward(m, i, b):
    p = m.p
    if p.get("every") and i % p["every"] == 1:
        return experts(m, i)
    if p.get("gate_in_up"):
        m.matrix(b + "ffn_up", 2 * p["ffn"], p["dim"])
    else:
        m.matrix(b + "ffn_up", p["ffn"], p["dim"], bias=p.get("bias") and p.get("plain"))
        if not p.get("plain"):
            m.matrix(b + "ffn_gate", p["ffn"], p["dim"])
    m.matrix(b + "ffn_down", p["dim"], p["ffn"], bias=p.get("bias"))


def layer(m, i):
    p, b = m.p, f"{m.p.get('blocks', '')}blk.{i}."
    attention(m, b)
    feed_forward(m, i, b)
    if p.get("llama"):
        names = ["attn_norm", "ffn_norm"]
    elif p.get("pre") or p.get("gemma"):
        names = ["ffn_norm"] + ["attn_norm"] * (i > 0 or not p.get("pre")) + ["post_attention_norm", "post_ffw_norm"] * bool(p.get("gemma"))
    else:
        names = ["attn_output_norm", "layer_output_norm"] + ["attn_norm_2"] * bool(p.get("again"))
    for name in names:
        norm(m, b + name, p["dim"])


def vocabulary(m):
    tokens = [f"▁{w}" if w.isalpha() or w in ",.!" else w.removeprefix("##") for w in WORDS[:m.p["n_vocab"]]]
    tokens = list(dict.fromkeys(tokens))
    tokens += [f"▁word{i}" for i in range(m.p["n_vocab"] - len(tokens))]
    m.w.add_tokenizer_model("bert")
    m.w.add_tokenizer_pre("jina-v2-en")
    m.w.add_token_list(tokens)
    m.w.add_token_types([3 if t.startswith("[") else 1 for t in tokens])
    m.w.add_token_type_count(max(m.p.get("types", 1), 1))
    for role, name in (("padding", "[PAD]"), ("unknown", "[UNK]"), ("cls", "[CLS]"), ("bos", "[CLS]"), ("seperator", "[SEP]"), ("eos", "[SEP]"), ("mask", "[MASK]")):
        m.w.add_uint32(f"tokenizer.ggml.{role}_token_id", tokens.index(name))


def write(name, path):
    p = ENCODERS[name]
    m = Model(path, p["arch"], p)
    keys(m)
    vocabulary(m)
    m.matrix("token_embd", p["n_vocab"], p["dim"], gain=p["dim"] ** 0.5)
    if p.get("types"):
        m.vector("token_types.weight", (p["types"], p["dim"]), 0, 0.5)
    if p.get("positions"):
        m.vector("position_embd.weight", (p["n_ctx"], p["dim"]), 0, 0.5)
    norm(m, p.get("end", "output_norm") if p.get("gemma") or p.get("llama") else "token_embd_norm", p["dim"])
    if p.get("pre"):
        norm(m, "output_norm", p["dim"])
    if p.get("dense"):
        between, out = p["dense"]
        m.matrix("dense_2", between, p["dim"])
        m.matrix("dense_3", out, between)
    if p.get("rerank"):
        m.w.add_string("tokenizer.chat_template.rerank", p["rerank"])
    if p.get("cls"):
        between, scores = p["cls"]
        if between:
            m.matrix("cls", between, p["dim"], bias=True)
        if scores:
            m.matrix("cls.output", scores, between or p["dim"], gain=2, bias=scores == 1)
    if p.get("t5"):
        m.vector("enc.blk.0.attn_rel_b.weight", (p["t5"], p["heads"]), 0, 1)
    for i in range(p["layers"]):
        layer(m, i)
    m.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(ENCODERS))
    elif len(sys.argv) == 3 and sys.argv[1] in ENCODERS:
        write(sys.argv[1], sys.argv[2])
    else:
        sys.exit(__doc__)
