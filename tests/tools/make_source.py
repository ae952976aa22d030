#!/usr/bin/env python3
"""make_source.py: small GGUF files with random weights of models with an encoder and a decoder, in shapes that differ.

    make_source.py NAME OUT
    make_source.py --list

As make_model.py, whose parts these are made of.
"""
import sys

from make_model import Model, keys

BASE = dict(arch="t5", dim=144, layers=3, decoder=4, heads=6, kv=6, head_dim=20, ffn=208, ranges=32, n_vocab=301, n_ctx=384, starts=0)


def source(**more):
    p = {**BASE, **more}
    own = {"decoder_block_count": p["decoder"], "decoder_start_token_id": p["starts"], "attention.relative_buckets_count": p["ranges"], "attention.layer_norm_epsilon": 1e-6}
    return {**p, "keys": {**own, **p.get("keys", {})}}


# Heads together are smaller than the stream, or larger. `each`: every layer has a table of distances of its own (umT5).
SOURCES = {
    "t5": source(),
    "t5-plain": source(dim=128, layers=4, decoder=2, heads=4, kv=4, head_dim=48, ffn=192, ranges=20, plain=True, tie=True, gain=6, unread=True, starts=3),
    "t5-each": source(dim=96, layers=2, decoder=3, heads=2, kv=2, head_dim=32, ffn=160, each=True),
}


def attention(m, b, kind="attn"):
    p = m.p
    q = p["heads"] * p["head_dim"]
    m.norm(f"{b}{kind}_norm", p["dim"])
    for name in "qkv":
        m.matrix(f"{b}{kind}_{name}", q, p["dim"], gain=(2 if name == "q" else 1) * p["head_dim"] ** -0.25 if name in "qk" else 1.3)
    m.matrix(f"{b}{kind}_o", p["dim"], q, gain=p.get("gain", 1.3))


def layer(m, b):
    p = m.p
    attention(m, b)
    if b.startswith("dec."):
        attention(m, b, "cross_attn")
    m.norm(b + "ffn_norm", p["dim"])
    for name in ["ffn_up"] if p.get("plain") else ["ffn_up", "ffn_gate"]:
        m.matrix(b + name, p["ffn"], p["dim"], gain=1.3)
    m.matrix(b + "ffn_down", p["dim"], p["ffn"], gain=p.get("gain", 1.3))


def vocabulary(m):
    n = m.p["n_vocab"]
    tokens = ["<pad>", "</s>", "<unk>", "▁", *(chr(97 + i) for i in range(26)), *(f"▁{chr(97 + i)}" for i in range(26))]
    tokens += [f"▁word{i}" for i in range(n - len(tokens))]
    m.w.add_tokenizer_model("t5")
    m.w.add_tokenizer_pre("default")
    m.w.add_token_list(tokens)
    m.w.add_token_scores([-float(i % 17) for i in range(n)])
    m.w.add_token_types([3, 3, 2] + [1] * (n - 3))
    m.w.add_add_space_prefix(True)
    for role, i in (("padding", 0), ("eos", 1), ("unknown", 2)):
        m.w.add_uint32(f"tokenizer.ggml.{role}_token_id", i)
    m.w.add_add_bos_token(False)
    m.w.add_add_eos_token(True)


def write(name, path, **more):
    p = {**SOURCES[name], **more}
    m = Model(path, p["arch"], p)
    keys(m)
    vocabulary(m)
    m.matrix("token_embd", p["n_vocab"], p["dim"], gain=(2 if p.get("tie") else 1) * p["dim"] ** 0.5)
    if not p.get("tie"):
        m.matrix("output", p["n_vocab"], p["dim"], gain=1.5)
    for side, layers in (("enc", p["layers"]), ("dec", p["decoder"])):
        m.norm(f"{side}.output_norm", p["dim"])
        for i in range(layers):
            layer(m, f"{side}.blk.{i}.")
            if p.get("each") or not i:
                m.vector(f"{side}.blk.{i}.attn_rel_b.weight", (p["ranges"], p["heads"]), 0, 1)
    if p.get("unread"):
        m.vector("dec.blk.0.cross_attn_rel_b.weight", (p["ranges"], p["heads"]), 0, 1)
    m.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(SOURCES))
    elif len(sys.argv) == 3 and sys.argv[1] in SOURCES:
        write(sys.argv[1], sys.argv[2])
    else:
        sys.exit(__doc__)
