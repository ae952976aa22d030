#!/usr/bin/env python3
"""make_diffusion.py: small GGUF files with random weights of models that denoise texts, one for each architecture, in shapes that differ.

    make_diffusion.py NAME OUT
    make_diffusion.py --list

As make_model.py, whose parts these are made of.
"""
import sys

from make_model import Model, dense, experts, family, keys, layer, moe, with_experts

BIDIRECTIONAL = {"attention.causal": False}
DENOISERS = {
    "dream": family(arch="dream", dim=192, heads=3, kv=1, head_dim=64, qkv_bias=True, no_key_length=True, keys={**BIDIRECTIONAL, "rope.freq_base": 1000000.0}),
    "dream-q8_0": family(arch="dream", dim=256, layers=2, heads=8, kv=4, head_dim=32, qkv_bias=True, tie=True, no_key_length=True, quant="Q8_0", keys=BIDIRECTIONAL),
    "llada": family(arch="llada", dim=160, heads=5, kv=5, head_dim=32, ffn=224, n_vocab=301, shift=False,
                    keys={**BIDIRECTIONAL, "rope.freq_base": 500000.0, "rope.dimension_count": 32}),
    "llada-moe": with_experts(moe(6, 2, 96), arch="llada-moe", dim=192, heads=4, kv=2, head_dim=48, qk_norm="head", shift=False, keys=BIDIRECTIONAL),
    "rnd1": with_experts(moe(8, 3, 64), arch="rnd1", dim=224, heads=6, kv=2, head_dim=48, qk_norm="head", keys=BIDIRECTIONAL),
}


def mask_of(name):
    return DENOISERS[name]["n_vocab"] - 3


def write(name, path, mask=True):
    p = DENOISERS[name]
    m = Model(path, p["arch"], p)
    keys(m)
    m.vocabulary()
    if mask:
        m.w.add_mask_token_id(mask_of(name))
    if "shift" in p:
        m.w.add_bool("diffusion.shift_logits", p["shift"])
    m.ends()
    for i in range(p["layers"]):
        layer(m, i, ff=experts if p.get("experts") else dense)
    m.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(DENOISERS))
    elif len(sys.argv) == 3 and sys.argv[1] in DENOISERS:
        write(sys.argv[1], sys.argv[2])
    else:
        sys.exit(__doc__)
