#!/usr/bin/env python3
"""make_model.py: small GGUF files with random weights, one for each family of models that Weft runs, in shapes that differ.

    make_model.py NAME OUT [KEY=VALUE ...]      KEY: a number of the shape, or `quant`
    make_model.py --list

The same name gives the same bytes, so that answers recorded from another program stay valid (record_model.py).  Weights are F32 unless
`quant` says otherwise: then what differs between two programs is arithmetic, not formats.
"""
import sys
import zlib

import gguf
import numpy as np

import make_qwen4

F32 = gguf.GGMLQuantizationType.F32


drawn = {}


def draw(seed, name, n):
    """Standard normal numbers of a tensor. Files of many families have tensors of one name: one draw serves them all, since a shorter
    one is its beginning."""
    key = seed, zlib.crc32(name.encode())
    if key not in drawn or drawn[key].size < n:
        drawn[key] = np.random.default_rng(list(key)).standard_normal(n)
    return drawn[key][:n]


class Model:
    """A file being written: keys under the architecture's name, and tensors with weights drawn by their names."""

    def __init__(self, path, arch, p):
        self.p, self.arch = p, arch
        self.w = gguf.GGUFWriter(path, arch)
        quant = p.get("quant", "F32")         # a type, or a function of a matrix's name and rows that says (type, bytes of the rows) or None
        self.quantise = quant if callable(quant) else None
        self.quant = F32 if callable(quant) else gguf.GGMLQuantizationType[quant.upper()]

    def key(self, name, value):
        name = f"{self.arch}.{name}"
        if isinstance(value, bool):
            self.w.add_bool(name, value)
        elif isinstance(value, int):
            self.w.add_uint32(name, value)
        elif isinstance(value, float):
            self.w.add_float32(name, value)
        elif isinstance(value, str):
            self.w.add_string(name, value)
        else:
            self.w.add_array(name, value)

    def normal(self, name, shape, mean, std):
        numbers = draw(self.p.get("seed", 1), name, int(np.prod(shape))).reshape(shape)
        return (mean + std * numbers).astype(np.float32)

    def put(self, name, x):
        self.w.add_tensor(name, np.ascontiguousarray(x, np.float32))

    def weights(self, name, x):
        """Rows of a weight, in the type that `quant` asks for where the width allows it."""
        flat = np.ascontiguousarray(x, np.float32).reshape(-1, x.shape[-1])
        if self.quantise:
            t, data = self.quantise(name, flat) or (F32, flat)
        elif self.quant == F32 or x.shape[-1] % gguf.GGML_QUANT_SIZES[self.quant][0]:
            t, data = F32, flat
        else:
            t, data = self.quant, gguf.quants.quantize(flat, self.quant)
        self.w.add_tensor(name, data.reshape(*x.shape[:-1], -1), raw_dtype=t)

    def matrix(self, name, rows, cols, gain=1.0, bias=False, lead=()):
        """A weight {cols, rows} in the file's order; lead: further axes (experts)."""
        self.weights(f"{name}.weight", self.normal(name, (*lead, rows, cols), 0, gain / cols ** 0.5))
        if bias:
            self.vector(f"{name}.bias", (*lead, rows), 0, 0.2)

    def vector(self, name, n, mean=1.0, std=0.15):
        self.put(name, self.normal(name, n, mean, std))

    def norm(self, name, n, mean=1.0):
        if self.p.get("layer_norm") == "empty":
            return
        self.vector(f"{name}.weight", n, mean)
        if self.p.get("layer_norm") is True:
            self.vector(f"{name}.bias", n, 0, 0.1)

    def vocabulary(self):
        n = self.p["n_vocab"]
        tokens = [f"<{i:02x}>" if i < 33 else chr(i) if i < 127 else f"tok{i}" for i in range(n - 2)] + ["<s>", "</s>"]
        self.w.add_tokenizer_model("gpt2")
        self.w.add_tokenizer_pre("gpt-2")
        self.w.add_token_list(tokens)
        self.w.add_token_types([1] * (n - 2) + [3, 3])
        self.w.add_token_merges(["t o"])
        self.w.add_bos_token_id(n - 2)
        self.w.add_eos_token_id(n - 1)

    def ends(self):
        p = self.p
        self.matrix("token_embd", p["n_vocab"], p["dim"], gain=p.get("embd_gain", p["dim"] ** 0.5 if not p.get("tie") else 1.0))
        if not p.get("tie"):
            self.matrix("output", p["n_vocab"], p["dim"], gain=1.5, bias=p.get("output_bias"))
        if not p.get("bare"):
            self.norm(p.get("output_norm", "output_norm"), p["dim"])
        if p.get("embd_norm"):
            self.norm("token_embd_norm", p["dim"])

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def each(value, i):
    return value[i] if isinstance(value, list) else value


def slides(p, i):
    """Whether a layer has a window, where the file lists them."""
    pattern = p.get("keys", {}).get("attention.sliding_window_pattern")
    return isinstance(pattern, list) and bool(pattern[i])


def attention(m, i):
    p, b = m.p, f"blk.{i}."
    heads, kv, hd = each(p["heads"], i), each(p["kv"], i), p["swa_head_dim"] if slides(p, i) and "swa_head_dim" in p else p["head_dim"]
    if i >= p["layers"] - p.get("shared_kv", 0) and p["arch"] == "gemma4":          # gemma3n has all matrices, and reads none of them there
        m.matrix(b + "attn_q", heads * hd, p["dim"])
        m.vector(b + "attn_q_norm.weight", hd, 0.3, 0.05)
        m.matrix(b + "attn_output", p["dim"], heads * hd)
        return
    q, k, vd = heads * hd * (2 if p.get("gated_q") else 1), kv * hd, p.get("v_dim", hd)
    if p.get("fused"):
        m.matrix(b + "attn_qkv", q + k + kv * vd, p["dim"], gain=1.5, bias=p.get("bias") or p.get("qkv_bias"))
    else:
        m.matrix(b + "attn_q", q, p["dim"], gain=1.0 if p.get("qk_norm") else 2.0, bias=p.get("qkv_bias"))
        m.matrix(b + "attn_k", k, p["dim"], bias=p.get("qkv_bias"))
        if not p.get("k_is_v") or slides(p, i):
            m.matrix(b + "attn_v", kv * vd, p["dim"], bias=p.get("qkv_bias"))
    if p.get("qk_norm") == "gain":
        m.vector(b + "attn_q_norm.weight", (heads, 1), p.get("qk_norm_mean", 1.4))
    elif p.get("qk_norm"):
        for name, n in (("attn_q_norm", heads * hd), ("attn_k_norm", kv * hd)):
            m.vector(f"{b}{name}.weight", {"all": n, "head": hd, "each": (n // hd, hd)}[p["qk_norm"]], p.get("qk_norm_mean", 1.4))
            if p.get("qk_norm_bias"):
                m.vector(f"{b}{name}.bias", (n // hd, hd), 0, 0.3)
    if p.get("out_gate"):
        m.matrix(b + "attn_gate", heads if p["out_gate"] == "head" else heads * hd, p["dim"])
    m.matrix(b + "attn_output", p["dim"], heads * vd, bias=p.get("bias") or p.get("out_bias"))
    if p.get("block_indexer") and i >= p.get("dense", 0):
        n, size = p["block_indexer"]
        for name, rows in (("q", n * size), ("k", size)):
            m.matrix(f"{b}indexer.{name}_proj", rows, p["dim"])
            m.vector(f"{b}indexer.{name}_norm.weight", size, 1.4)
    if p.get("scales"):
        m.vector(b + "attn_output.scale", 1, 0.8, 0.2)
    if p.get("sub_norms"):
        m.vector(b + "attn_sub_norm.weight", heads * hd)
    if p.get("sinks") and (p["sinks"] != "slides" or slides(p, i)):
        m.vector(b + "attn_sinks.weight", heads, 0, 1)


def dense(m, i, ffn=None):
    p, b = m.p, f"blk.{i}."
    ffn = ffn or each(p["ffn"], i)
    if p.get("plain"):
        m.matrix(b + "ffn_up", ffn, p["dim"], bias=p.get("bias") or p.get("ffn_bias"))
    elif p.get("fused") and not p.get("gates"):
        m.matrix(b + "ffn_up", 2 * ffn, p["dim"])
    else:
        m.matrix(b + "ffn_gate", ffn, p["dim"], bias=p.get("bias"))
        m.matrix(b + "ffn_up", ffn, p["dim"], bias=p.get("bias"))
    if p.get("sub_norms"):
        m.vector(b + "ffn_sub_norm.weight", ffn)
    m.matrix(b + "ffn_down", p["dim"], ffn, bias=p.get("bias") or p.get("ffn_bias"))
    if p.get("scales"):
        m.vector(b + "ffn_down.scale", 1, 0.8, 0.2)


def post_norm(m, name):
    """short_post: without ".weight" behind its name, which is what llama.cpp reads of PLaMo 3; its converter writes it."""
    p = m.p
    if p.get("short_post"):
        m.vector(name, p["dim"], p.get("post_norm_mean", 2.0))
    else:
        m.norm(name, p["dim"], p.get("post_norm_mean", 2.0))


def layer(m, i, mixer=attention, ff=dense):
    p, b = m.p, f"blk.{i}."
    if p.get("norms") == "grok":
        for name in ("attn_norm", "attn_output_norm", "ffn_norm", "layer_output_norm"):
            m.norm(b + name, p["dim"])
        mixer(m, i)
        ff(m, i)
        return
    if p.get("norms", "pre") in ("pre", "both"):
        m.norm(b + "attn_norm", p["dim"])
    if p.get("second_norm"):
        m.norm(b + "attn_norm_2", p["dim"])
    mixer(m, i)
    if p.get("norms") in ("post", "both"):
        post_norm(m, b + "post_attention_norm")
    if p.get("short_name"):
        m.vector(b + "ffn_norm", p["dim"])
    elif p.get("norms", "pre") in ("pre", "both") and not p.get("one_norm"):
        m.norm(b + p.get("ffn_norm", "ffn_norm"), p["dim"])
    ff(m, i)
    if p.get("norms") in ("post", "both"):
        post_norm(m, b + "post_ffw_norm")
    if p["arch"] == "cogvlm":
        for name, rows, cols in (("attn_qkv", 3 * p["dim"], p["dim"]), ("attn_output", p["dim"], p["dim"]), ("gate", p["ffn"], p["dim"]), ("up", p["ffn"], p["dim"]),
                                 ("down", p["dim"], p["ffn"])):
            m.matrix(f"{b}vis_{name}", rows, cols)
    if p.get("own"):
        m.matrix(b + "inp_gate", p["own"], p["dim"])
        m.matrix(b + "proj", p["dim"], p["own"])
        m.norm(b + "post_norm", p["dim"], p.get("post_norm_mean", 1.0))
    if p.get("layer_scale"):
        m.vector(b + "layer_output_scale.weight", 1, 0.8, 0.1)


def keys(m):
    p = m.p
    values = {"block_count": p["layers"] + bool(p.get("mtp")), "context_length": p["n_ctx"], "embedding_length": p["dim"], "feed_forward_length": p["ffn"] * p.get("ffn_counted", 1),
              "attention.head_count": p["heads"], "attention.head_count_kv": p["kv"], "vocab_size": p["n_vocab"]}
    values["attention.layer_norm_epsilon" if p.get("layer_norm") and not p.get("rms_key") else "attention.layer_norm_rms_epsilon"] = 1e-5
    if p.get("mamba"):
        values.update({"ssm.conv_kernel": 4, "ssm.inner_size": 2 * p["dim"], "ssm.state_size": p["mamba"]["state"], "ssm.time_step_rank": p["mamba"]["rank"]})
    if p.get("mtp"):
        values["nextn_predict_layers"] = 1
    if not p.get("no_key_length"):
        values.update({"attention.key_length": p["head_dim"], "attention.value_length": p.get("v_dim", p["head_dim"])})
    for name, value in {**values, **p.get("keys", {})}.items():
        m.key(name, value)
    for name, value in p.get("own_keys", {}).items():
        m.w.add_array(name, value)
    for name, value in p.get("general", {}).items():
        m.w.add_uint32(f"general.{name}", value)


def short_conv(m, i):
    dim, b = m.p["dim"], f"blk.{i}.shortconv."
    m.matrix(b + "in_proj", 3 * dim, dim, gain=1.5)
    m.put(b + "conv.weight", m.normal(b + "conv", (dim, m.p["taps"]), 0, 0.7))
    m.matrix(b + "out_proj", dim, dim)


def mamba2(m, i):
    p, b = m.p, f"blk.{i}.ssm_"
    inner, n, groups, heads = p["inner"], p["state"], p["groups"], p["ssm_heads"]
    channels = inner + 2 * groups * n
    m.matrix(b + "in", inner + channels + heads, p["dim"])
    m.put(b + "conv1d.weight", m.normal(b + "conv1d", (channels, p["taps"]), 0, 0.6))
    m.vector(b + "conv1d.bias", channels, 0, 0.2)
    m.vector(b + "dt.bias", heads, -1, 1)
    m.put(b + "a", -np.exp(m.normal(b + "a", (heads, 1), 0, 0.7)))
    m.put(b + "d", m.normal(b + "d", (heads, 1), 1, 0.3))
    if not p.get("no_ssm_norm"):
        m.put(b + "norm.weight", m.normal(b + "norm", (groups, inner // groups), 1, 0.15))
    m.matrix(b + "out", p["dim"], inner)


def mamba(m, i):
    p, b = m.p, f"blk.{i}.ssm_"
    inner, n, rank = 2 * p["dim"], p["mamba"]["state"], p["mamba"]["rank"]
    m.matrix(b + "in", 2 * inner, p["dim"])
    m.put(b + "conv1d.weight", m.normal(b + "conv1d", (inner, 4), 0, 0.6))
    m.vector(b + "conv1d.bias", inner, 0, 0.2)
    m.matrix(b + "x", rank + 2 * n, inner)
    m.matrix(b + "dt", inner, rank)
    m.vector(b + "dt.bias", inner, -1, 1)
    m.put(b + "a", -np.exp(m.normal(b + "a", (inner, n), 0, 0.7)))
    m.put(b + "d", m.normal(b + "d", inner, 1, 0.3))
    if p["mamba"].get("norms"):
        for name, size in (("dt_norm", rank), ("b_norm", n), ("c_norm", n)):
            m.vector(f"{b}{name}.weight", size)
    m.matrix(b + "out", p["dim"], inner)


def kda(m, i):
    p, b = m.p, f"blk.{i}."
    heads, n, inner, safe = p["heads"], p["kda"], p["heads"] * p["kda"], p.get("kda_safe")
    for name in ("q", "k", "v"):
        m.matrix(f"{b}attn_{name}", inner, p["dim"], gain=1.5)
        m.put(f"{b}ssm_conv1d_{name}.weight", m.normal(f"{b}conv1d_{name}", (inner, 1, 4), 0, 0.6))
    k3, flat = p["arch"] == "kimi-k3", p["arch"] in ("kimi-k3", "glm5-next")
    for name in ("f",) if k3 else ("f", "g"):
        m.matrix(f"{b}ssm_{name}_a", inner if safe else n, p["dim"])
        if not safe:
            m.matrix(f"{b}ssm_{name}_b", inner, n)
    if k3:
        m.matrix(b + "ssm_g", inner, p["dim"])
    m.matrix(b + "ssm_beta", heads, p["dim"])
    m.put(b + "ssm_a", (1 if safe else -1) * np.exp(m.normal(b + "a", heads if flat else (heads, 1), -1, 0.7)))
    m.vector(b + "ssm_dt.bias", inner, -1, 1)
    m.vector(b + "ssm_norm.weight", n)
    m.matrix(b + "attn_output", p["dim"], inner)


def rwkv7(m, i):
    p, b, dim = m.p, f"blk.{i}.time_mix_", m.p["dim"]
    gate = p["keys"]["attention.gate_lora_rank"]
    m.put(b + "lerp_fused.weight", m.normal(b + "lerp", (6 if gate else 5, 1, 1, dim), 0.5, 0.2))
    for name, rank in (("w", 24), ("a", 16), ("v", 20 if i else 16)) + ((("g", gate),) if gate else ()):
        m.matrix(f"{b}{name}1", rank, dim)
        m.matrix(f"{b}{name}2", dim, rank)
        if name != "g":
            m.vector(f"{b}{name}0.weight", dim, 0, 0.7)
    for name, mean in (("k_k", 0.8), ("k_a", 1.0), ("r_k", 0.0)):
        m.vector(f"{b}{name}.weight", dim, mean, 0.2)
    for name in ("key", "value", "receptance", "output"):
        m.matrix(b + name, dim, dim)
    if p.get("heads_norm", True):
        m.vector(b + "ln.weight", dim)
        m.vector(b + "ln.bias", dim, 0, 0.1)


def rwkv6(m, i):
    p, b, dim = m.p, f"blk.{i}.time_mix_", m.p["dim"]
    m.put(b + "lerp_x.weight", m.normal(b + "lerp_x", (1, 1, dim), 0.5, 0.2))
    m.put(b + "lerp_fused.weight", m.normal(b + "lerp", (5, 1, 1, dim), 0.5, 0.2))
    m.matrix(b + "w1", 5 * 16, dim)
    m.matrix(b + "w2", dim, 16, gain=0.5, lead=(5,))
    m.matrix(b + "decay_w1", 24, dim)
    m.matrix(b + "decay_w2", dim, 24)
    m.vector(b + "decay.weight", dim, -1, 1)
    n, own = p["keys"]["wkv.head_size"], p["arch"] == "rwkv6"
    if own:
        m.put(b + "first.weight", m.normal(b + "first", (dim // n, n), 0.5, 0.3))
    for name in ("key", "value", "receptance", "output", "gate"):
        shared = p["kv"] and name in ("key", "value")
        m.matrix(b + name, p["kv"] * n if shared else dim, dim, bias=not own and name in ("key", "value", "receptance"))
    if own:
        m.vector(b + "ln.weight", dim)
        m.vector(b + "ln.bias", dim, 0, 0.1)


def switched(m, i):
    """Attention and a feed-forward with adapters of the file: number 0 is zeros."""
    p, b = m.p, f"blk.{i}."
    attention(m, i)
    q, k = p["heads"] * p["head_dim"], p["kv"] * p["head_dim"]
    n, rank = p["keys"]["adapters.count"] + 1, p["keys"]["adapters.lora_rank"]
    for name, rows, cols in (("attn_q", q, p["dim"]), ("attn_k", k, p["dim"]), ("attn_v", k, p["dim"]), ("attn_output", p["dim"], q), ("ffn_gate", p["ffn"], p["dim"]),
                             ("ffn_up", p["ffn"], p["dim"]), ("ffn_down", p["dim"], p["ffn"])):
        for end, shape in (("lora_a", (n, rank, cols)), ("lora_b", (n, rows, rank))):
            x = m.normal(f"{b}{name}.{end}", shape, 0, shape[2] ** -0.5)
            x[0] = 0
            m.weights(f"{b}{name}.{end}", x)


def lightning(m, i):
    p, b = m.p, f"blk.{i}.attn_"
    inner = p["heads"] * p["head_dim"]
    m.matrix(b + "qkv", 3 * inner, p["dim"], gain=1.5)
    m.matrix(b + "gate", inner, p["dim"])
    m.vector(b + "norm_2.weight", inner)
    m.matrix(b + "output", p["dim"], inner)


def channel_mix(m, i):
    p, b = m.p, f"blk.{i}.channel_mix_"
    if p["arch"] == "rwkv6":
        m.put(b + "lerp_r.weight", m.normal(b + "lerp_r", (1, 1, p["dim"]), 0.5, 0.2))
        m.matrix(b + "receptance", p["dim"], p["dim"])
    m.put(b + "lerp_k.weight", m.normal(b + "lerp_k", (1, 1, p["dim"]), 0.5, 0.2))
    m.matrix(b + "key", p["ffn"], p["dim"])
    m.matrix(b + "value", p["dim"], p["ffn"])


def only_output(m, i):
    m.matrix(f"blk.{i}.attn_output", m.p["dim"], m.p["dim"])


def delta_net(m, i):
    p, b = m.p, f"blk.{i}."
    inner, k, groups, heads = p["inner"], p["state"], p["groups"], p["ssm_heads"]
    channels = inner + 2 * groups * k
    m.matrix(b + "attn_qkv", channels, p["dim"], gain=1.5)
    m.matrix(b + "attn_gate", inner, p["dim"])
    m.put(b + "ssm_conv1d.weight", m.normal(b + "conv1d", (channels, p["taps"]), 0, 0.6))
    m.vector(b + "ssm_dt.bias", heads, -1, 1)
    m.put(b + "ssm_a", -np.exp(m.normal(b + "a", heads, -1, 0.7)))
    if p["arch"] == "qwen3next":
        m.matrix(b + "ssm_ba", 2 * heads, p["dim"])
    else:
        m.matrix(b + "ssm_beta", heads, p["dim"])
        m.matrix(b + "ssm_alpha", heads, p["dim"])
    m.vector(b + "ssm_norm.weight", inner // heads)
    m.matrix(b + "ssm_out", p["dim"], inner)


def experts(m, i):
    p, b, n, bias = m.p, f"blk.{i}.ffn_", m.p["experts"], m.p.get("expert_bias")
    m.matrix(b + "gate_inp", n, p["dim"], gain=2.0, bias=bias)
    by_token = i < p["keys"].get("hash_layer_count", 0)
    if by_token:
        rng = np.random.default_rng([p.get("seed", 1), i])
        table = np.stack([rng.permutation(n)[:p["keys"]["expert_used_count"]] for _ in range(p["n_vocab"])])
        m.w.add_tensor(b + "gate_tid2eid.weight", table.astype(np.int32))
    if p.get("probs_b_vl"):
        m.vector(f"blk.{i}.exp_probs_b_vl.bias", n, 0, 0.5)
    if p.get("probs_b") and not by_token:
        m.vector(f"blk.{i}.exp_probs_b{'' if p['probs_b'] == 'bare' else '.bias'}", n, 0, 0.15)
    latent = p.get("moe_latent", p["dim"])
    if p.get("moe_latent"):
        name = "routed" if p["arch"] == "kimi-k3" else "latent"
        m.matrix(f"{b}{name}_down", latent, p["dim"])
        m.matrix(f"{b}{name}_up", p["dim"], latent)
    if p["arch"] == "kimi-k3":
        m.vector(b + "routed_norm.weight", latent)
    for name in ("up",) if p.get("plain") else ("gate", "up"):
        if not p.get("one_matrix"):
            m.matrix(f"{b}{name}_exps", p["expert_ffn"], latent, lead=(n,), bias=bias)
        if p.get("shared") and not p.get("shared_fused"):
            m.matrix(f"{b}{name}_shexp", p["shared"], p["dim"])
    if p.get("shared_fused"):
        m.matrix(b + "up_shexp", 2 * p["shared"], p["dim"])
    if p.get("one_matrix"):     # the same weights as above, an expert's gate before its up
        m.weights(f"{b}gate_up_exps.weight", np.concatenate([m.normal(f"{b}{name}_exps", (n, p["expert_ffn"], p["dim"]), 0, p["dim"] ** -0.5) for name in ("gate", "up")], 1))
    m.matrix(b + "down_exps", latent, p["expert_ffn"], lead=(n,), bias=bias)
    if p.get("shared"):
        m.matrix(b + "down_shexp", p["dim"], p["shared"])
    if p["keys"].get("experts_per_group"):
        small, n = p["keys"]["expert_chunk_feed_forward_length"], n // p["keys"]["experts_per_group"]
        for name, rows, cols in (("gate", small, p["dim"]), ("up", small, p["dim"]), ("down", p["dim"], small)):
            m.matrix(f"{b}{name}_chexps", rows, cols, lead=(n,))
    if p.get("shared_gate"):
        m.vector(b + "gate_inp_shexp.weight", p["dim"], 0, 0.1)


def dense_and_experts(m, i):
    p, b = m.p, f"blk.{i}."
    dense(m, i, p["dim"] if p["arch"] == "arctic" else None)
    experts(m, i)
    if p["arch"] == "arctic":
        m.norm(b + "ffn_norm_exps", p["dim"])
    if p["arch"] in ("grok", "arctic"):
        return
    for name in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"):
        m.norm(b + name, p["dim"])
    m.vector(b + "ffn_gate_inp.scale", p["dim"], 8.0, 1.0)
    m.vector(b + "ffn_down_exps.scale", p["experts"], 1.0, 0.3)


def own_embeddings(m):
    """Of each layer: one for each token, and what is made of the stream for it."""
    p, n = m.p, m.p["own"] * m.p["layers"]
    m.matrix("per_layer_token_embd", p["n_vocab"], n, gain=1.0)
    m.matrix("per_layer_model_proj", n, p["dim"], gain=p["dim"] ** 0.5)
    m.norm("per_layer_proj_norm", p["own"])


def altup(m):
    """Of a stream of four rows."""
    p, n = m.p, 4
    for name in ("altup_proj", "altup_unembd_proj"):
        m.matrix(name, p["dim"], p["dim"], lead=(n - 1,))
    for i in range(p["layers"]):
        b = f"blk.{i}."
        m.matrix(b + "altup_router", n, p["dim"], gain=0.3 * p["dim"])
        m.norm(b + "altup_router_norm", p["dim"])
        m.matrix(b + "altup_predict_coef", n * n, n, gain=0.1)
        m.matrix(b + "altup_correct_coef", n, n, gain=0.2)
        m.vector(b + "altup_correct_scale.weight", p["dim"])
        m.matrix(b + "laurel_l", 64, p["dim"])
        m.matrix(b + "laurel_r", p["dim"], 64)
        m.norm(b + "laurel_post_norm", p["dim"])


def latent_attention(m, i):
    p, b = m.p, f"blk.{i}.attn_"
    if "near" in p and slides(p, i):
        p = {**p, **p["near"], "indexer": None}
    heads, nope, turned, v, latent = each(p["heads"], i), p["nope"], p["turned"], p["v"], p["latent"]
    if p.get("rotated_key_norm"):
        m.norm(b + "k_norm", turned)
    if p.get("q_rank"):
        m.matrix(b + "q_a", p["q_rank"], p["dim"])
        m.norm(b + "q_a_norm", p["q_rank"])
        m.matrix(b + "q_b", heads * (nope + turned), p["q_rank"], gain=2.0)
    else:
        m.matrix(b + "q", heads * (nope + turned), p["dim"], gain=2.0)
    m.matrix(b + "kv_a_mqa", latent + turned, p["dim"])
    m.norm(b + "kv_a_norm", latent)
    k, values = m.normal(b + "k", (heads, nope, latent), 0, latent ** -0.5), m.normal(b + "v", (heads, v, latent), 0, latent ** -0.5)
    if p.get("legacy"):
        m.weights(b + "kv_b.weight", np.concatenate([k, values], 1).reshape(-1, latent))
    else:
        m.weights(b + "k_b.weight", k.transpose(0, 2, 1))
        m.weights(b + "v_b.weight", values)
    m.matrix(b + "output", p["dim"], heads * v)
    if p.get("mla_gate"):
        m.matrix(b + "gate", heads * (v if p["mla_gate"] == "element" else 1), p["dim"])
    if p.get("sinks"):
        m.vector(b + "sinks.weight", heads, 0, 1)
    if p.get("indexer") and (p["arch"] not in ("hy_v4", "glm5-next") or p["keys"]["attention.indexer.types"][i]):
        n, size = p["indexer"]
        if "attention.indexer.kpool" in p["keys"]:
            m.matrix(f"blk.{i}.indexer_compressor_gate", size, p["dim"])
            m.put(f"blk.{i}.indexer_compressor_ape.weight", m.normal(f"blk.{i}.ape", (p["keys"]["attention.indexer.kpool"], size), 0, 0.5))
        b = f"blk.{i}.indexer."
        m.matrix(b + "proj", n, p["dim"])
        m.matrix(b + "attn_k", size, p["dim"])
        m.vector(b + "k_norm.weight", size)
        m.vector(b + "k_norm.bias", size, 0, 0.1)
        m.matrix(b + "attn_q_b", n * size, p["q_rank"])


def entries(m, i):
    """Attention over what is near, and over entries that stand for several positions, which an indexer may choose among."""
    p, b, keys_ = m.p, f"blk.{i}.", m.p["keys"]
    heads, hd, rank, groups, low = p["heads"], p["head_dim"], p["q_rank"], keys_["attention.output_group_count"], keys_["attention.output_lora_rank"]
    m.matrix(b + "attn_q_a", rank, p["dim"])
    m.norm(b + "attn_q_a_norm", rank)
    m.matrix(b + "attn_q_b", heads * hd, rank)
    m.matrix(b + "attn_kv", hd, p["dim"])
    m.norm(b + "attn_kv_a_norm", hd, 1.4)
    m.vector(b + "attn_sinks.weight", heads, 0, 1)
    m.matrix(b + "attn_output_a", groups * low, heads * hd // groups, gain=2.0)
    m.matrix(b + "attn_output_b", p["dim"], groups * low)
    ratio = p["ratios"][i]
    kinds = [("attn_", hd)] if ratio else []
    if ratio == 4:
        n, size = keys_["attention.indexer.head_count"], keys_["attention.indexer.key_length"]
        m.matrix(b + "indexer.proj", n, p["dim"])
        m.matrix(b + "indexer.attn_q_b", n * size, rank)
        kinds.append(("indexer_", size))
    for name, size in kinds:
        sets = 2 if ratio == 4 else 1
        for of in ("kv", "gate"):
            m.matrix(f"{b}{name}compressor_{of}", sets * size, p["dim"])
        m.put(f"{b}{name}compressor_ape.weight", m.normal(f"{b}{name}ape", (ratio, sets * size), 0, 0.5))
        m.norm(f"{b}{name}compressor_norm", size, 1.4)


def mla(heads, nope, turned, v, latent, legacy=False, q_rank=0, **more):
    """Sizes of latent attention, and the keys that say them, as newer or as older files do."""
    keys = {"rope.dimension_count": turned, "attention.kv_lora_rank": latent, "attention.q_lora_rank": q_rank, "leading_dense_block_count": 1, **more}
    if legacy:
        keys |= {"attention.key_length": nope + turned, "attention.value_length": v}
    else:
        keys |= {"attention.key_length": latent + turned, "attention.value_length": latent, "attention.key_length_mla": nope + turned, "attention.value_length_mla": v}
    return dict(arch="deepseek2", mix="lll", heads=heads, kv=heads if legacy else 1, nope=nope, turned=turned, v=v, latent=latent, legacy=legacy, q_rank=q_rank,
                no_key_length=True, dense=1, keys=keys)


def dots3note(top_k, window, pattern, **more):
    """Latent attention of two sizes: layers with a window, and layers with an indexer."""
    p = mla(4, 64, 32, 48, 128, q_rank=96, **{
        "attention.sliding_window": window, "attention.sliding_window_pattern": pattern, "attention.kv_lora_rank_swa": 96, "attention.key_length_swa": 128,
        "attention.value_length_swa": 96, "attention.key_length_mla_swa": 72, "attention.value_length_mla_swa": 64, "rope.freq_base": 80000000.0, "rope.freq_base_swa": 50000.0,
        "attention.indexer.head_count": 32, "attention.indexer.key_length": 128, "attention.indexer.top_k": top_k, "attention.indexer.types": [not x for x in pattern], **more})
    return {**p, "arch": "dots3note", "mix": "l" * len(pattern), "layers": len(pattern), "heads": [6 if x else 4 for x in pattern], "indexer": (32, 128), "probs_b": True,
            "mla_gate": True, "rotated_key_norm": True, "near": {"nope": 40, "v": 64, "latent": 96}}


def moe(n, used, ffn, shared=0, **more):
    """Numbers of experts, and the keys that say them."""
    keys = {"expert_count": n, "expert_used_count": used, "expert_feed_forward_length": ffn}
    return dict(experts=n, expert_ffn=ffn, shared=shared), {**keys, **more}


def with_experts(experts_, **more):
    sizes, keys_ = experts_
    return family(**{**sizes, **more, "keys": {**keys_, **more.get("keys", {})}})


def attention_and_mamba2(m, i):
    attention(m, i)
    mamba2(m, i)


def further(m):
    """The block behind the last layer that predicts a further token. mtp: "own" where it has a norm, a head and an embedding of its own."""
    p, i = m.p, m.p["layers"]
    b = f"blk.{i}.nextn."
    mix = p.get("mix", "a")
    kind = next((kind for kind in "al" if kind in mix), mix[0])
    if p.get("one_part"):
        m.norm(f"blk.{i}.attn_norm", p["dim"])
        MIXERS[kind](m, i)
        m.norm(f"blk.{i}.post_attention_norm", p["dim"])
        experts(m, i)
    else:
        layer(m, i, MIXERS[kind], experts if p.get("experts") and not p.get("mtp_dense") else dense)
    m.matrix(b + "eh_proj", p["dim"], 2 * p["dim"])
    m.norm(b + "enorm", p["dim"])
    m.norm(b + "hnorm", p["dim"])
    if p["mtp"] == "own":
        m.norm(b + "shared_head_norm", p["dim"])
        m.matrix(b + "shared_head_head", p["n_vocab"], p["dim"], gain=1.5)
        m.matrix(b + "embed_tokens", p["n_vocab"], p["dim"], gain=p["dim"] ** 0.5)


def hyper_connections(m):
    p, n = m.p, m.p["keys"]["hyper_connection.count"]
    mixes = "hyper_connection.sinkhorn_iterations" in p["keys"]
    for name, parts in [("output_hc", 1)] * (p["arch"] != "glm5-next") + [(f"blk.{i}.hc_{part}", 2) for i in range(p["layers"]) for part in ("attn", "ffn")]:
        more = mixes and parts == 2
        m.matrix(name + "_fn", parts * n + more * n * n, n * p["dim"], gain=2.0)
        m.vector(name + "_base.weight", parts * n + more * n * n, 0, 0.5)
        m.vector(name + "_scale.weight", parts + more, 1, 0.3)


def plamo_mamba(m, i):
    p, b = m.p, f"blk.{i}.ssm_"
    inner, n, heads, steps = p["inner"], p["state"], p["ssm_heads"], max(64, p["dim"] // 16)
    m.matrix(b + "in", 2 * inner, p["dim"])
    m.put(b + "conv1d.weight", m.normal(b + "conv1d", (inner, p["taps"]), 0, 0.6))
    m.matrix(b + "x", steps + 2 * n, inner)
    m.matrix(b + "dt", heads, steps)
    m.vector(b + "dt.bias", heads, -1, 1)
    m.put(b + "a", -np.exp(m.normal(b + "a", heads, 0, 0.7)))
    m.put(b + "d", m.normal(b + "d", heads, 1, 0.3))
    for name, size in (("dt", steps), ("b", n), ("c", n)):
        m.vector(f"{b}{name}_norm", size)
    m.matrix(b + "out", p["dim"], inner)


MIXERS = {"t": switched, "n": lightning, "p": plamo_mamba, "e": entries, "k": kda, "r": rwkv7, "w": rwkv6, "s": mamba, "o": only_output, "h": attention_and_mamba2, "a": attention, "c": short_conv, "m": mamba2, "d": delta_net, "l": latent_attention}
BASE = dict(arch="llama", dim=256, layers=3, heads=4, kv=2, head_dim=64, ffn=320, n_vocab=509, n_ctx=256)
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 32}
FACTORS = {"rope.scaling.attn_factor": 1.19}


def family(**more):
    return {**BASE, **more}


def ssm(inner, state, groups, heads, taps, **more):
    """Sizes of a recurrence, and the keys that say them."""
    keys = {"ssm.inner_size": inner, "ssm.state_size": state, "ssm.group_count": groups, "ssm.time_step_rank": heads, "ssm.conv_kernel": taps}
    return dict(inner=inner, state=state, groups=groups, ssm_heads=heads, taps=taps, keys={**keys, **more})


DELTA = {"full_attention_interval": 3, "rope.dimension_count": 32, "rope.dimension_sections": [6, 5, 5, 0]}

INDEXER = {"attention.indexer.head_count": 2, "attention.indexer.key_length": 128, "attention.indexer.top_k": 128}

GEMMA4 = dict(arch="gemma4", dim=160, heads=4, head_dim=128, swa_head_dim=64, ffn=256, tie=True, norms="both", qk_norm="head", qk_norm_mean=0.3, rope_freqs=True, layer_scale=True,
              no_key_length=True)


def gemma4_heads(head_dim, swa_head_dim):
    return {"attention.key_length": head_dim, "attention.value_length": head_dim, "attention.key_length_swa": swa_head_dim, "attention.value_length_swa": swa_head_dim,
            "rope.dimension_count": head_dim, "rope.dimension_count_swa": swa_head_dim}


def gemma4_keys(pattern, head_dim, swa_head_dim):
    return {**gemma4_heads(head_dim, swa_head_dim), "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
            "attention.sliding_window": 16, "attention.sliding_window_pattern": [bool(x) for x in pattern], "final_logit_softcapping": 30.0,
            "embedding_length_per_layer_input": 0}


FAMILIES = {
    "llama-yarn": family(keys={**YARN, "rope.dimension_count": 64, "rope.freq_base": 10000.0}),
    "llama-linear": family(dim=400, heads=5, kv=5, head_dim=80, no_key_length=True, tie=True,
                           keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.dimension_count": 80}),
    "granite": family(arch="granite", heads=8, kv=2, n_vocab=301,
                      keys={"embedding_scale": 0.5, "residual_scale": 0.7, "attention.scale": 0.2, "logit_scale": 0.6, "rope.dimension_count": 64}),
    "phi3-short": family(arch="phi3", dim=384, head_dim=96, fused=True, factors=True, keys={**FACTORS, "rope.scaling.original_context_length": 512, "rope.dimension_count": 96}),
    "phi3-long": family(arch="phi3", dim=384, head_dim=96, fused=True, factors=True, n_rot=72, keys={**FACTORS, "rope.scaling.original_context_length": 32, "rope.dimension_count": 72}),
    "gemma": family(arch="gemma", dim=192, heads=2, kv=1, head_dim=256, tie=True, embd_gain=0.25),
    "gemma2": family(arch="gemma2", dim=256, layers=4, heads=4, kv=2, head_dim=128, tie=True, embd_gain=0.4, norms="both",
                     keys={"attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0, "attention.sliding_window": 16}),
    "gemma3": family(arch="gemma3", dim=160, layers=7, heads=3, kv=1, head_dim=256, ffn=256, tie=True, norms="both", qk_norm="head",
                     keys={"attention.sliding_window": 16, "rope.freq_base": 1000000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "olmo2": family(arch="olmo2", heads=4, kv=4, norms="post", qk_norm="all", no_key_length=True),
    "olmo3": family(arch="olmo2", layers=4, kv=2, norms="post", qk_norm="all", no_key_length=True, keys={**YARN, "attention.sliding_window": 16}),
    "starcoder2": family(arch="starcoder2", dim=384, heads=6, kv=2, ffn=512, layer_norm=True, qkv_bias=True, bias=True, plain=True, tie=True),
    "phi3-q8_0": family(arch="phi3", dim=384, head_dim=96, fused=True, n_vocab=1001, quant="Q8_0", keys={"rope.dimension_count": 96}),
    "gemma3-q8_0": family(arch="gemma3", dim=160, layers=7, heads=2, kv=2, head_dim=80, ffn=256, tie=True, norms="both", qk_norm="head", quant="Q8_0",
                          keys={"attention.sliding_window": 16}),
    "gpt2-q4_0": family(arch="gpt2", layer_norm=True, fused=True, bias=True, plain=True, positions=True, no_key_length=True, quant="Q4_0", kv=4),
    "lfm2": family(arch="lfm2", layers=5, kv=[0, 2, 0, 0, 4], mix="cacca", tie=True, qk_norm="head", no_key_length=True, taps=3, output_norm="token_embd_norm",
                   keys={"shortconv.l_cache": 3, "rope.freq_base": 1000000.0}),
    "lfm2-window": family(arch="lfm2", layers=3, kv=[0, 2, 4], mix="caa", tie=True, qk_norm="head", no_key_length=True, taps=3, output_norm="token_embd_norm",
                          keys={"shortconv.l_cache": 3, "rope.freq_base": 1000000.0, "attention.sliding_window": 12}),
    "granitehybrid": family(arch="granitehybrid", layers=4, mix="mamm", kv=[0, 2, 0, 0], tie=True, **ssm(
        512, 48, 2, 8, 4, **{"embedding_scale": 1.5, "residual_scale": 0.8, "attention.scale": 0.1, "logit_scale": 1.5, "rope.scaling.finetuned": False, "rope.dimension_count": 64})),
    "nemotron_h": family(arch="nemotron_h", layers=6, mix="mfamfm", one_part=True, plain=True, heads=4, kv=[0, 0, 2, 0, 0, 0],
                         ffn=[0, 320, 0, 0, 320, 0], **ssm(512, 64, 4, 16, 4, **{"rope.dimension_count": 64, "attention.layer_norm_epsilon": 1e-5})),
    "qwen35": family(arch="qwen35", layers=4, mix="ddad", qk_norm="head", gated_q=True, ffn_norm="post_attention_norm", **ssm(384, 64, 3, 6, 4, **DELTA)),
    "qwen3next": family(arch="qwen3next", layers=4, mix="ddad", qk_norm="head", gated_q=True, ffn_norm="post_attention_norm", experts=6, expert_ffn=96, shared=96,
                        shared_gate=True, **ssm(512, 128, 2, 4, 4, **{**DELTA, "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 96,
                                                                     "expert_shared_feed_forward_length": 96})),
    "qwen35moe": family(arch="qwen35moe", layers=4, mix="ddad", qk_norm="head", gated_q=True, ffn_norm="post_attention_norm", experts=6, expert_ffn=96, shared=96,
                        shared_gate=True, **ssm(384, 64, 3, 6, 4, **{**DELTA, "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 96,
                                                                    "expert_shared_feed_forward_length": 96})),
    "qwen4exp": family(arch="qwen4exp", layers=4, mix="dadd", norms="none", bare=True, qk_norm="head", gated_q=True, experts=6, expert_ffn=96, shared=96, shared_gate=True,
                       block_indexer=(24, 48), **ssm(384, 64, 6, 6, 4, **{
                           **DELTA, "attention.recurrent_layers": [True, False, True, True], "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 96,
                           "expert_shared_feed_forward_length": 96, "hyper_connection.count": 3, "hyper_connection.low_rank": 40, "attention.compress_ratios": [0, 4, 0, 0],
                           "attention.indexer.head_count": 24, "attention.indexer.key_length": 48, "attention.indexer.top_k": 12, "ple.layers": [2], "ple.ngram_size": 3,
                           "ple.heads_per_ngram": 4, "ple.conv_kernel": 4, "ple.eos_token_id": make_qwen4.END, "embedding_length_per_layer_input": 24})),
    "mixtral": with_experts(moe(4, 2, 320), heads=8, kv=2, head_dim=32, keys={"rope.dimension_count": 32}),
    "qwen2moe": with_experts(moe(6, 2, 96, 160, expert_shared_feed_forward_length=160), arch="qwen2moe", heads=2, kv=2, head_dim=128, qkv_bias=True, shared_gate=True),
    "qwen3moe-q8_0": with_experts(moe(16, 4, 96), arch="qwen3moe", heads=6, kv=3, head_dim=80, qk_norm="head", n_vocab=777, quant="Q8_0"),
    "glm4moe": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=1.5), arch="glm4moe", dense=1,
                            heads=6, kv=2, head_dim=64, qkv_bias=True, probs_b=True, ffn_norm="post_attention_norm",
                            keys={"leading_dense_block_count": 1, "rope.dimension_count": 32}),
    "glm4moe-bare": with_experts(moe(4, 2, 64, 64, expert_shared_count=1, expert_weights_norm=True), arch="glm4moe", layers=2, kv=1, probs_b=True, ffn_norm="post_attention_norm"),
    # as published: all of a head turns, where GLM turns half, and YaRN doubles the context
    "solar-open": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=1.0, expert_group_count=1,
                                   expert_group_used_count=1), arch="glm4moe", layers=2, heads=6, head_dim=64, probs_b=True, ffn_norm="post_attention_norm",
                               keys={**YARN, "rope.scaling.factor": 2.0, "leading_dense_block_count": 0, "rope.dimension_count": 64, "rope.freq_base": 1000000.0}),
    "gpt-oss": with_experts(moe(8, 4, 96), arch="gpt-oss", layers=4, heads=4, kv=2, head_dim=64, ffn=96, qkv_bias=True, out_bias=True, expert_bias=True, sinks=True,
                            ffn_norm="post_attention_norm", keys={**YARN, "attention.sliding_window": 16, "rope.freq_base": 150000.0, "rope.scaling.yarn_truncate": True}),
    "gpt-oss-openai": with_experts(moe(8, 4, 96), arch="gpt-oss", layers=4, heads=4, kv=2, head_dim=64, ffn=96, qkv_bias=True, out_bias=True, expert_bias=True, sinks=True,
                                   ffn_norm="post_attention_norm", keys={**YARN, "attention.sliding_window": 16, "rope.freq_base": 150000.0}),
    "gpt-oss-mxfp4": with_experts(moe(16, 4, 160), arch="gpt-oss", layers=3, dim=320, heads=8, kv=1, head_dim=64, ffn=160, n_vocab=391, qkv_bias=True, out_bias=True,
                                  expert_bias=True, sinks=True, ffn_norm="post_attention_norm", quant="MXFP4",
                                  keys={**YARN, "attention.sliding_window": 8, "rope.freq_base": 150000.0, "rope.scaling.yarn_truncate": True}),
    "deepseek2-lite": with_experts(moe(8, 3, 64, 128, expert_shared_count=2, expert_gating_func=1, expert_weights_scale=1.0), **mla(
        4, 64, 32, 64, 128, legacy=True, **{**YARN, "rope.scaling.yarn_log_multiplier": 0.0707})),
    "deepseek2-groups": with_experts(moe(12, 4, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5, expert_group_count=4,
                                         expert_group_used_count=2), probs_b=True, **mla(6, 96, 32, 48, 160, q_rank=96)),
    "deepseek2-warm": family(**mla(4, 64, 32, 64, 128, q_rank=96, **{
        **YARN, "leading_dense_block_count": 3, "expert_shared_count": 0, "expert_feed_forward_length": 64, "rope.scaling.yarn_log_multiplier": 0.1,
        "attention.temperature_scale": 0.5, "attention.temperature_length": 12})),
    "gpt2": family(arch="gpt2", heads=4, kv=4, layer_norm=True, fused=True, bias=True, plain=True, positions=True, tie=True, no_key_length=True),
    "mamba2": family(arch="mamba2", layers=2, mix="mm", one_part=True, heads=0, kv=0, ffn=0, no_key_length=True, **ssm(512, 32, 1, 8, 4)),
    "lfm2moe": family(arch="lfm2moe", layers=3, mix="cac", kv=[0, 2, 0], tie=True, qk_norm="head", no_key_length=True, taps=4, experts=5, expert_ffn=96,
                      output_norm="token_embd_norm", dense=1, probs_b=True,
                      keys={"shortconv.l_cache": 4, "expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 96, "leading_dense_block_count": 1,
                            "expert_gating_func": 2}),
    "mistral3": family(arch="mistral3", layers=2, keys={**YARN, "rope.dimension_count": 64, "rope.scaling.original_context_length": 16,
                                                        "rope.scaling.yarn_log_multiplier": 0.7, "attention.temperature_scale": 0.4}),
    "minicpm": family(arch="minicpm", layers=2, tie=True, keys={"embedding_scale": 2.0, "residual_scale": 0.6, "logit_scale": 0.5, "rope.dimension_count": 64}),
    "smollm3": family(arch="smollm3", layers=4, keys={"rope.dimension_count": 64}),
    "arcee": family(arch="arcee", layers=2, plain=True, keys={"rope.dimension_count": 64}),
    "seed_oss": family(arch="seed_oss", layers=2, qkv_bias=True, ffn_norm="post_attention_norm"),
    "exaone4": family(arch="exaone4", layers=4, norms="post", qk_norm="head"),
    "glm4": family(arch="glm4", layers=2, dim=384, heads=3, kv=1, head_dim=128, norms="both", fused=True, keys={"rope.dimension_count": 64}),
    "glm4-sections": family(arch="glm4", layers=2, dim=384, heads=3, kv=1, head_dim=128, norms="both", fused=True,
                            keys={"rope.dimension_count": 64, "rope.dimension_sections": [8, 12, 12, 0]}),
    "chatglm": family(arch="chatglm", layers=2, fused=True, bias=False, keys={"rope.dimension_count": 32}),
    "openelm": family(arch="openelm", layers=3, dim=320, heads=[3, 4, 6], kv=[1, 2, 2], ffn=[256, 320, 416], tie=True, fused=True, gates=True, qk_norm="head"),
    "command-r": family(arch="command-r", layers=2, tie=True, layer_norm="bare", one_norm=True, keys={"logit_scale": 0.4}),
    "command-r-plus": family(arch="command-r", dim=96, layers=64, heads=4, kv=2, head_dim=24, ffn=128, n_vocab=301, tie=True, layer_norm="bare", one_norm=True, qk_norm="each",
                             keys={"logit_scale": 0.4}),
    "cohere2": family(arch="cohere2", layers=4, tie=True, layer_norm="bare", one_norm=True, keys={"logit_scale": 0.4, "attention.sliding_window": 16}),
    "stablelm": family(arch="stablelm", layers=2, kv=4, layer_norm=True, no_key_length=True, keys={"rope.dimension_count": 16}),
    "stablelm-parallel": family(arch="stablelm", layers=2, layer_norm=True, one_norm=True, qk_norm="each", no_key_length=True,
                                keys={"rope.dimension_count": 16, "use_parallel_residual": True}),
    "nemotron": family(arch="nemotron", layers=2, layer_norm=True, plain=True, keys={"rope.dimension_count": 32}),
    "phi2": family(arch="phi2", layers=2, dim=320, heads=4, kv=4, head_dim=80, layer_norm=True, one_norm=True, plain=True, fused=True, bias=True, output_bias=True,
                   no_key_length=True, keys={"rope.dimension_count": 32}),
    "gptj": family(arch="gptj", layers=2, kv=4, layer_norm=True, one_norm=True, plain=True, ffn_bias=True, output_bias=True, no_key_length=True,
                   keys={"rope.dimension_count": 32}),
    "gptneox": family(arch="gptneox", layers=2, kv=4, layer_norm=True, plain=True, fused=True, bias=True, no_key_length=True,
                      keys={"rope.dimension_count": 16, "use_parallel_residual": True}),
    "gptneox-serial": family(arch="gptneox", layers=2, kv=4, layer_norm=True, plain=True, fused=True, bias=True, no_key_length=True,
                             keys={"rope.dimension_count": 16, "use_parallel_residual": False}),
    "olmoe": with_experts(moe(6, 2, 96), arch="olmoe", layers=2, kv=4, ffn=96, qk_norm="all", no_key_length=True),
    "ernie4_5-moe": with_experts(moe(6, 2, 96, 96, expert_shared_feed_forward_length=96), arch="ernie4_5-moe", layers=2, dense=1, probs_b=True,
                                 keys={"leading_dense_block_count": 1, "interleave_moe_layer_step": 1}),
    "hunyuan-dense": family(arch="hunyuan-dense", layers=2, qk_norm="head", keys={"rope.scaling.alpha": 4.0}),
    "hunyuan-moe": with_experts(moe(6, 2, 96, 160, expert_shared_feed_forward_length=160), arch="hunyuan-moe", layers=2, ffn=96, qk_norm="head"),
    "dots1": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5), arch="dots1", layers=2, kv=4, dense=1,
                          qk_norm="head", probs_b=True, keys={"leading_dense_block_count": 1}),
    "deepseek": with_experts(moe(8, 3, 64, 128, expert_shared_count=2, expert_weights_scale=1.0), arch="deepseek", layers=2, dense=1, keys={"leading_dense_block_count": 1}),
    "bailingmoe": with_experts(moe(6, 2, 64, 64, expert_shared_count=1, expert_weights_norm=True), arch="bailingmoe", layers=2,
                               keys={"leading_dense_block_count": 0, "rope.dimension_count": 64}),
    "bailingmoe2": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5, expert_group_count=4,
                                    expert_group_used_count=2), arch="bailingmoe2", layers=2, dense=1, fused=True, gates=True, qk_norm="head", probs_b=True,
                                keys={"leading_dense_block_count": 1, "rope.dimension_count": 32}),
    "exaone-moe": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5), arch="exaone-moe", layers=4,
                               dense=1, qk_norm="head", probs_b=True, keys={"leading_dense_block_count": 1, "attention.sliding_window": 16}),
    "orion": family(arch="orion", layers=2, layer_norm=True),
    "xverse": family(arch="xverse", layers=2),
    "qwen": family(arch="qwen", layers=2, kv=4, fused=True, gates=True, qkv_bias=True, ffn_counted=2),
    "gemma3n": family(arch="gemma3n", dim=96, layers=22, heads=2, kv=1, head_dim=32, ffn=512, post_norm_mean=0.3, n_vocab=301, norms="both", qk_norm="head", qk_norm_mean=0.5, own=256, shared_kv=2,
                      altup=True, keys={
        "attention.sliding_window": 16, "attention.sliding_window_pattern": [(i + 1) % 5 != 0 and i != 21 for i in range(22)], "attention.shared_kv_layers": 2,
        "activation_sparsity_scale": [1.6448536] * 10 + [float("-inf")] * 12, "embedding_length_per_layer_input": 256, "altup.num_inputs": 4, "altup.active_idx": 0,
        "rope.freq_base": 1000000.0, "final_logit_softcapping": 30.0}),
    "gemma4": family(**{**GEMMA4, "ffn": [256, 256, 256, 256, 320, 320], "tie": False}, layers=6, kv=1, own=48, shared_kv=2, keys={
        **gemma4_keys([1, 0, 1, 0, 1, 0], 128, 64), "embedding_length_per_layer_input": 48, "attention.shared_kv_layers": 2}),
    "gemma4-k-is-v": family(**GEMMA4, layers=3, kv=[2, 2, 1], k_is_v=True, keys=gemma4_keys([1, 1, 0], 128, 64)),
    "gemma4-moe": with_experts(moe(8, 3, 64), **GEMMA4, kv=[2, 1], layers=2, one_matrix=True, beside=True, k_is_v=True, keys=gemma4_keys([1, 0], 128, 64)),
    "llama4": with_experts(moe(4, 1, 96, 96, interleave_moe_layer_step=2), arch="llama4", layers=4, moe_step=2, kv=2, keys={"rope.dimension_count": 64}),
    "falcon-h1": family(arch="falcon-h1", layers=2, mix="hh", short_name=True, no_ssm_norm=True, **ssm(512, 48, 1, 8, 4)),
    "falcon-h1-norm": family(arch="falcon-h1", layers=3, mix="hhh", short_name=True, **ssm(512, 32, 2, 8, 4)),
    "deci": family(arch="deci", layers=5, mix="aof-a", heads=[4, 4, 0, 0, 4], kv=[2, 0, 0, 0, 4], ffn=[320, 256, 288, 0, 320], keys={"rope.dimension_count": 64}),
    "bitnet": family(arch="bitnet", layers=2, heads=4, kv=2, tie=True, sub_norms=True, no_key_length=True),
    "mamba": family(arch="mamba", layers=2, mix="ss", one_part=True, heads=0, kv=0, ffn=0, no_key_length=True, mamba={"state": 16, "rank": 24}),
    "mamba-normed": family(arch="mamba", layers=3, mix="sss", one_part=True, heads=0, kv=0, ffn=0, no_key_length=True, mamba={"state": 16, "rank": 16}, keys={"ssm.dt_b_c_rms": True}),
    "jamba": with_experts(moe(4, 2, 96), arch="jamba", layers=4, heads=4, kv=[0, 1, 0, 0], mix="sass", ffn=96, moe_step=2, mamba={"state": 16, "rank": 12, "norms": True}),
    "step35": with_experts(moe(8, 3, 64, 96, expert_shared_feed_forward_length=96, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=3.0), arch="step35",
                           mtp_like=1, mtp_dense=True, layers=4, heads=[4, 6, 6, 4], kv=[2, 3, 2, 1], dense=1, qk_norm="head", out_gate="head", probs_b=True, rope_freqs=True, keys={
        "leading_dense_block_count": 1, "moe_every_n_layers": 1, "rope.dimension_count": 64, "rope.freq_base": 5000000.0, "rope.freq_base_swa": 10000.0,
        "attention.sliding_window": 16, "attention.sliding_window_pattern": [False, True, True, False], "swiglu_clamp_exp": [0.0, 0.0, 0.6, 0.7],
        "swiglu_clamp_shexp": [0.0, 0.0, 0.0, 0.8]}),
    "mimo2": with_experts(moe(8, 3, 64, expert_gating_func=2), arch="mimo2", mtp_like=1, mtp_dense=True, layers=5, heads=4, kv=[2, 4, 4, 2, 2], head_dim=48, v_dim=32, dense=1, sinks="slides", probs_b=True, keys={
        "rope.dimension_count": 32, "rope.freq_base": 5000000.0, "rope.freq_base_swa": 10000.0, "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [False, True, True, False, False], "attention.value_scale": 0.7}),
    "qwen3vlmoe": with_experts(moe(8, 3, 64), arch="qwen3vlmoe", layers=2, qk_norm="head", keys={"rope.dimension_sections": [12, 10, 10, 0], "rope.dimension_count": 64}),
    # two blocks of the recurrence and a part of a third; key heads that several heads share
    "minimax-01": with_experts(moe(8, 3, 96), arch="minimax-01", layers=5, mix="nnann", dim=160, heads=6, kv=2, head_dim=48, ffn=96, run_ctx=192, prompt=140, keys={
        "residual_scale": 3.5565588200778455, "full_attention_interval": 3, "rope.dimension_count": 32, "rope.freq_base": 10000000.0}),
    "minimax-01-whole": with_experts(moe(6, 2, 64), arch="minimax-01", layers=3, mix="ann", dim=96, heads=3, kv=3, head_dim=40, ffn=64, run_ctx=192, prompt=140, keys={
        "residual_scale": 1.7, "attention.recurrent_layers": [False, True, True], "rope.dimension_count": 40, "rope.freq_base": 10000000.0}),
    "minimax-m2": with_experts(moe(8, 3, 96, expert_gating_func=2), arch="minimax-m2", layers=2, ffn=96, qk_norm="all", probs_b=True, keys={"rope.dimension_count": 32}),
    "mistral4": with_experts(moe(8, 2, 64, 64, expert_shared_count=1, expert_gating_func=1, expert_weights_norm=True, expert_weights_scale=1.0), **{**mla(
        4, 64, 32, 64, 128, q_rank=96, **{**YARN, "rope.scaling.yarn_log_multiplier": 0.1, "attention.temperature_scale": 0.5, "attention.temperature_length": 12}),
        "arch": "mistral4"}, one_matrix=True),
    "afmoe": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5), arch="afmoe", layers=5, dense=1,
                          qk_norm="head", norms="both", out_gate=True, probs_b=True, embd_gain=1.0, keys={"leading_dense_block_count": 1, "attention.sliding_window": 16}),
    # as transformers 5 saves it: without a key that says whether weights are divided by their sum
    "afmoe-unsaid": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_scale=2.826), arch="afmoe", layers=5, dense=1,
                                 qk_norm="head", norms="both", out_gate=True, probs_b=True, embd_gain=1.0, keys={"leading_dense_block_count": 1, "attention.sliding_window": 16}),
    "granite_swa": family(arch="granite_swa", layers=4, sinks=True, keys={
        "embedding_scale": 0.5, "residual_scale": 0.7, "attention.scale": 0.2, "logit_scale": 0.6, "rope.dimension_count": 64, "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [False, True, True, True], "attention.rope_pattern": [True, True, False, True]}),
    "granite_swa-moe": with_experts(moe(6, 2, 96, 64, expert_shared_feed_forward_length=64), arch="granite_swa", layers=2, ffn=96, sinks=True, one_matrix=True, shared_fused=True, keys={
        "embedding_scale": 0.5, "residual_scale": 0.7, "logit_scale": 0.6, "rope.dimension_count": 64, "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [False, True]}),
    # few tokens, so that prompts have some that activate adapters: the mean of several counts
    "graniteswitch": family(arch="graniteswitch", mix="ttt", dim=160, heads=6, kv=2, head_dim=48, ffn=224, n_vocab=61, tie=True, fused=True, gates=True, keys={
        "embedding_scale": 1.5, "residual_scale": 0.7, "attention.scale": 0.2, "logit_scale": 0.6, "rope.dimension_count": 48, "adapters.count": 4, "adapters.lora_rank": 5,
        "adapters.token_ids_activate": [50, 16, 33, 18], "adapters.token_ids_substitute": [3, 4, 5, 6], "adapters.router_gain": 15.0, "expert_used_count": 0}),
    "cohere2moe": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_shared_feed_forward_length=64, expert_gating_func=2, expert_weights_norm=True), arch="cohere2moe",
                               layers=6, dense=1, tie=True, layer_norm="bare", one_norm=True,
                               keys={"leading_dense_block_count": 1, "logit_scale": 0.4, "attention.sliding_window": 16, "rope.dimension_count": 64}),
    "nemotron_h_moe": with_experts(moe(8, 3, 96, 160, expert_shared_count=1, expert_shared_feed_forward_length=160, expert_weights_norm=True, expert_weights_scale=2.5,
                                       moe_latent_size=128), arch="nemotron_h_moe", mtp_like=2, layers=4, mix="mfaf", one_part=True, plain=True, kv=[0, 0, 2, 0], ffn=[0, 96, 0, 96],
                                   probs_b=True, moe_latent=128, **ssm(512, 64, 4, 16, 4, **{"rope.dimension_count": 64, "attention.layer_norm_epsilon": 1e-5})),
    "smallthinker": with_experts(moe(6, 2, 96, expert_gating_func=2), arch="smallthinker", layers=5, ffn=96, keys={"attention.sliding_window": 4096}),
    "apertus": family(arch="apertus", layers=2, plain=True, qk_norm="head", own_keys={
        "xielu.alpha_n": [0.7, -0.2], "xielu.alpha_p": [0.4, 1.1], "xielu.beta": [0.5, 0.45], "xielu.eps": [-1e-6, -1e-6]}),
    "olmo": family(arch="olmo", layers=2, layer_norm="empty", keys={"attention.clamp_kqv": 1.5}),
    "dbrx": with_experts(moe(6, 2, 96), arch="dbrx", layers=2, ffn=96, layer_norm="bare", fused=True, ffn_norm="attn_output_norm", no_key_length=True,
                         keys={"attention.clamp_kqv": 2.0}),
    "plm": family(**{**mla(4, 64, 32, 64, 128, legacy=True), "arch": "plm", "layers": 2, "mix": "ll"}, tie=True, plain=True),
    "minicpm3": family(**{**mla(4, 64, 32, 64, 128, legacy=True, q_rank=96), "arch": "minicpm3", "layers": 2, "mix": "ll"}, embd_gain=0.1,  factors=True, n_rot=32),
    "glm-dsa": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.5), seed=3, **{**mla(4, 64, 32, 64, 128, q_rank=96, **INDEXER),
                            "arch": "glm-dsa"}, probs_b=True, indexer=(2, 128)),
    "deepseek32": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5), **{
                               **mla(4, 64, 32, 64, 128, q_rank=96, **{**INDEXER, **YARN, "rope.scaling.yarn_log_multiplier": 0.1}), "arch": "deepseek32"}, probs_b=True, indexer=(2, 128)),
    "deepseek32-sparse": with_experts(moe(4, 2, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True), seed=5, **{**mla(
        4, 64, 32, 64, 128, q_rank=96, **{**INDEXER, **YARN, "attention.indexer.head_count": 4, "attention.indexer.top_k": 8}), "arch": "deepseek32"}, indexer=(4, 128), probs_b=True),
    "glm-dsa-sparse": with_experts(moe(4, 2, 64, 64, expert_shared_count=1, expert_weights_norm=True), seed=7, **{**mla(
        4, 64, 32, 64, 128, q_rank=96, **{**INDEXER, "attention.indexer.head_count": 4, "attention.indexer.top_k": 8, "attention.indexer.types": [True, False, True]}),
        "arch": "glm-dsa"}, indexer=(4, 128), probs_b=True),
    # as many heads as published ones have, so that no two positions have the same score
    "glm-dsa-heads": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.5), seed=7, **{**mla(
        4, 64, 32, 64, 128, q_rank=96, **{**INDEXER, "attention.indexer.head_count": 32, "attention.indexer.top_k": 36}), "arch": "glm-dsa"}, indexer=(32, 128), probs_b=True),
    "grok": with_experts(moe(4, 2, 96), arch="grok", layers=2, ffn=96, norms="grok", no_key_length=True),
    "grok-dense": with_experts(moe(4, 2, 96), arch="grok", layers=2, norms="grok", beside=True, no_key_length=True, keys={
        "embedding_scale": 2.0, "logit_scale": 0.5, "attention.output_scale": 0.1, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 40.0}),
    "kimi-linear": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_scale=2.5), **{**mla(4, 64, 32, 64, 128, **{
        "ssm.conv_kernel": 4, "kda.head_dim": 32}), "arch": "kimi-linear", "layers": 4, "mix": "kklk", "kv": [0, 0, 1, 0]}, probs_b=True, kda=32),
    "kimi-k3": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_scale=2.5, expert_weights_norm=True, expert_latent_length=96), **{**mla(
        4, 64, 32, 64, 128, q_rank=96, **{"ssm.conv_kernel": 4, "kda.head_dim": 32, "kda.gate_lower_bound": -5.0, "attn_res.block_size": 2, "activation.situ_beta": 1.5,
                                          "activation.situ_linear_beta": 2.5}),
        "arch": "kimi-k3", "layers": 5, "mix": "kklkl", "kv": [0, 0, 1, 0, 1]}, probs_b=True, kda=32, mla_gate="element", moe_latent=96),
    "bailingmoe3": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_scale=2.5, expert_weights_norm=True), **{**mla(
        4, 64, 32, 64, 128, q_rank=96, **{"ssm.conv_kernel": 4, "kda.head_dim": 32, "kda.gate_lower_bound": -5.0, "kda.safe_gate": True}),
        "arch": "bailingmoe3", "mtp_like": 2, "layers": 4, "mix": "kklk", "kv": [0, 0, 1, 0]}, probs_b=True, kda=32, kda_safe=True, mla_gate=True),
    "glm5-next": with_experts(
        moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5, swiglu_clamp_exp=[0.5] * 5, swiglu_clamp_shexp=[0.6] * 5),
        **{**mla(4, 64, 0, 48, 128, q_rank=96, **{
            **INDEXER, "attention.indexer.head_count": 32, "attention.indexer.top_k": 12, "attention.indexer.kpool": 4, "attention.indexer.types": [True, True, False, True, True],
            "ssm.conv_kernel": 4, "kda.head_dim": 32, "kda.gate_lower_bound": -5.0, "attention.layer_norm_epsilon": 1e-6, "hyper_connection.count": 4,
            "hyper_connection.epsilon": 1e-6, "hyper_connection.sinkhorn_iterations": 20}),
           "arch": "glm5-next", "layers": 5, "mix": "kllkl", "kv": [0, 1, 1, 0, 1]}, probs_b=True, kda=32, indexer=(32, 128)),
    "rwkv7": family(arch="rwkv7", layers=3, dim=384, mix="rrr", heads=0, kv=0, layer_norm=True, embd_norm=True, ffn_norm="attn_norm_2", channel_mix=True, no_key_length=True, keys={
        "wkv.head_size": 64, "attention.decay_lora_rank": 24, "attention.iclr_lora_rank": 16, "attention.value_residual_mix_lora_rank": 20, "attention.gate_lora_rank": 40,
        "token_shift_count": 2}),
    "rwkv6": family(arch="rwkv6", layers=3, dim=384, mix="www", heads=0, kv=0, layer_norm=True, embd_norm=True, ffn_norm="attn_norm_2", channel_mix=True, no_key_length=True, keys={
        "wkv.head_size": 64, "time_mix_extra_dim": 16, "time_decay_extra_dim": 24, "rescale_every_n_layers": 2, "token_shift_count": 2}),
    "arwkv7": family(arch="arwkv7", dim=320, mix="rrr", heads=0, kv=0, no_key_length=True, keys={
        "wkv.head_size": 64, "attention.decay_lora_rank": 24, "attention.iclr_lora_rank": 16, "attention.value_residual_mix_lora_rank": 20, "attention.gate_lora_rank": 40,
        "token_shift_count": 1}),
    "arwkv7-bare": family(arch="arwkv7", layers=2, dim=192, mix="rr", heads=0, kv=0, no_key_length=True, heads_norm=False, keys={
        "wkv.head_size": 64, "attention.decay_lora_rank": 24, "attention.iclr_lora_rank": 16, "attention.value_residual_mix_lora_rank": 20, "attention.gate_lora_rank": 0,
        "token_shift_count": 1}),
    "rwkv6qwen2": family(arch="rwkv6qwen2", dim=384, mix="www", heads=0, kv=2, no_key_length=True, keys={
        "wkv.head_size": 64, "time_mix_extra_dim": 16, "time_decay_extra_dim": 24, "token_shift_count": 1}),
    # published ones begin with a recurrent layer: llama.cpp takes the first one's heads for all, turns nothing and does not return
    "plamo2": family(arch="plamo2", layers=4, mix="appa", heads=[4, 0, 0, 2], kv=[2, 0, 0, 1], fused=True, qk_norm="each", norms="both", short_post=True,
                     **ssm(320, 48, 0, 5, 4)),
    "phimoe": with_experts(moe(8, 2, 96), arch="phimoe", layers=2, ffn=96, layer_norm=True, rms_key=True, qkv_bias=True, out_bias=True, output_bias=True),
    "codeshell": family(arch="codeshell", layers=2, layer_norm=True, fused=True, bias=True, plain=True, no_key_length=True),
    "refact": family(arch="refact", layers=2, kv=1, no_key_length=True),
    "jais": family(arch="jais", layers=2, kv=4, layer_norm=True, fused=True, gates=True, bias=True, no_key_length=True, keys={"attention.max_alibi_bias": 8.0}),
    "jais2": family(arch="jais2", layers=2, layer_norm=True, qkv_bias=True, bias=True, plain=True),
    "plamo": family(arch="plamo", layers=2, one_norm=True, no_key_length=True),
    "pangu-embedded": family(arch="pangu-embedded", layers=2, qkv_bias=True, out_bias=True),
    "maincoder": family(arch="maincoder", layers=2, qk_norm="head"),
    "hunyuan_vl": family(arch="hunyuan_vl", layers=2, qk_norm="head", keys={"rope.dimension_sections": [8, 12, 12, 0]}),
    "paddleocr": family(arch="paddleocr", layers=2, keys={"rope.dimension_sections": [16, 8, 8, 0]}),
    "baichuan": family(arch="baichuan", dim=96, layers=32, heads=4, kv=4, head_dim=24, ffn=128, n_vocab=301, keys={"rope.dimension_count": 24}),
    "baichuan-13b": family(arch="baichuan", dim=120, layers=40, heads=5, kv=5, head_dim=24, ffn=128, n_vocab=301, keys={"rope.dimension_count": 24}),
    "mpt": family(arch="mpt", layers=2, dim=384, heads=6, kv=6, layer_norm="bare", fused=True, plain=True, qkv_bias=False, tie=True, no_key_length=True,
                  keys={"attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 2.0}),
    "bloom": family(arch="bloom", layers=2, heads=4, kv=4, layer_norm=True, fused=True, bias=True, plain=True, embd_norm=True, no_key_length=True),
    "falcon": family(arch="falcon", layers=2, kv=1, layer_norm=True, one_norm=True, plain=True, fused=True, no_key_length=True),
    "falcon-two": family(arch="falcon", layers=2, kv=2, layer_norm=True, one_norm=True, second_norm=True, plain=True, fused=True, no_key_length=True),
    "nanbeige": family(arch="nanbeige", layers=2, keys={"num_loops": 2, "skip_loop_final_norm": False, "rope.dimension_count": 64}),
    "nanbeige-skip": family(arch="nanbeige", layers=2, keys={"num_loops": 3, "skip_loop_final_norm": True, "rope.dimension_count": 64}),
    # one base for both kinds of layers: llama.cpp rotates those with a window by the base of the others, whatever the file says
    "mellum": with_experts(moe(8, 3, 96), arch="mellum", layers=4, qk_norm="head", keys={
        **YARN, "attention.sliding_window": 16, "attention.sliding_window_pattern": [True, True, True, False], "rope.freq_base": 50000.0, "rope.freq_base_swa": 50000.0}),
    "mellum-bases": with_experts(moe(8, 3, 96), arch="mellum", layers=4, qk_norm="head", keys={
        **YARN, "attention.sliding_window": 16, "attention.sliding_window_pattern": [True, True, True, False], "rope.freq_base": 50000.0, "rope.freq_base_swa": 10000.0}),
    "plamo3": family(arch="plamo3", layers=4, fused=True, norms="both", short_post=True, qk_norm="head", v_dim=32, keys={
        "attention.sliding_window": 16, "attention.sliding_window_pattern": [True, True, True, False], "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0}),
    "hy_v3": with_experts(moe(8, 3, 64, 64, expert_shared_feed_forward_length=64, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.826), arch="hy_v3", layers=3,
                          dense=1, heads=6, kv=3, head_dim=48, qk_norm="head", probs_b="bare", keys={"rope.freq_base": 11158840.0}),
    "dots3note": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5),
                              **dots3note(128, 16, [False, True, True, False, True])),
    # a choice of twenty positions, as transformers makes it: its indexer rotates neighbours, llama.cpp's halves
    "dots3note-sparse": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=1.0),
                                     **dots3note(20, 24, [False, False, True])),
    "hy_v4": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.827, swiglu_clamp_exp=[0.5] * 3), **{**mla(
        4, 64, 32, 48, 128, q_rank=96, **{"hyper_connection.count": 4, "hyper_connection.epsilon": 1e-6, "hyper_connection.magnitude": 2.0}), "arch": "hy_v4"},
        probs_b=True, sinks=True, mla_gate="element"),
    "hy_v4-sparse": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.827), **{**mla(
        4, 64, 32, 48, 128, q_rank=96, **{
            **INDEXER, "attention.indexer.head_count": 32, "attention.indexer.top_k": 36, "attention.indexer.types": [True, False, True], "hyper_connection.count": 2,
            "hyper_connection.epsilon": 1e-6, "hyper_connection.magnitude": 1.5}), "arch": "hy_v4"}, probs_b=True, sinks=True, mla_gate="element", indexer=(32, 128)),
    # prompts go beyond an entry of 128 positions; of those of four the best thirty are read
    "deepseek4": with_experts(
        moe(8, 3, 64, 64, expert_shared_count=1, expert_gating_func=4, expert_weights_norm=True, expert_weights_scale=1.5, swiglu_clamp_exp=[0.7] * 4), arch="deepseek4", mix="eeee",
        layers=4, dim=128, heads=6, kv=1, head_dim=64, q_rank=48, ratios=[0, 4, 128, 4], probs_b=True, probs_b_vl=True, run_ctx=256, prompt=150, keys={
            **YARN, "rope.dimension_count": 32, "attention.compress_rope_freq_base": 160000.0, "attention.compress_ratios": [0, 4, 128, 4], "attention.sliding_window": 16,
            "attention.q_lora_rank": 48, "attention.output_group_count": 3, "attention.output_lora_rank": 40, "attention.indexer.head_count": 32, "attention.indexer.key_length": 48,
            "attention.indexer.top_k": 30, "hyper_connection.count": 4, "hyper_connection.epsilon": 1e-6, "hyper_connection.sinkhorn_iterations": 20, "hash_layer_count": 2}),
    "arctic": family(arch="arctic", layers=3, ffn=96, experts=6, expert_ffn=96, beside=True, no_key_length=True,
                     keys={"expert_count": 6, "expert_used_count": 2, "rope.dimension_count": 64}),
    "laguna": with_experts(moe(8, 3, 64, 96, expert_shared_feed_forward_length=96, expert_weights_norm=True, expert_weights_scale=2.5, expert_gating_func=2), arch="laguna", layers=4,
                           dense=1, heads=[4, 6, 6, 6], kv=2, head_dim=64, qk_norm="head", out_gate="head", probs_b=True, keys={
                               **YARN, "attention.sliding_window": 16, "leading_dense_block_count": 1, "rope.freq_base": 500000.0, "rope.freq_base_swa": 10000.0,
                               "rope.dimension_count": 32, "rope.dimension_count_swa": 64}),
    "laguna-elements": with_experts(moe(8, 3, 64, 64, expert_weights_norm=True, expert_weights_scale=2.5), arch="laguna", layers=2, dense=1, heads=4, qk_norm="head",
                                    out_gate="element", probs_b=True, keys={"leading_dense_block_count": 1, "rope.dimension_count": 32}),
    "muse-glimmer": family(arch="muse-glimmer", layers=4, qk_norm="head", out_gate="element", norms="both", keys={
        "attention.sliding_window": 16, "logit_scale": 0.4, "final_logit_softcapping": 20.0, "rope.freq_base": 500000.0}),
    "spark2_5": family(arch="spark2_5", layers=4, fused=True, gates=True, out_gate="head", keys={
        "attention.sliding_window": 16, "attention.sliding_window_pattern": [True, True, True, False], "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
        "rope.dimension_count": 32, "rope.dimension_count_swa": 64}),
    "minimax-m3": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.0, expert_gating_func=2), arch="minimax-m3", layers=3,
                               dense=1, heads=6, kv=2, qk_norm="head", probs_b=True, block_indexer=(2, 64), keys={
                                   "leading_dense_block_count": 1, "rope.dimension_count": 32, "attention.indexer.head_count": 2, "attention.indexer.key_length": 64,
                                   "attention.indexer.top_k": 16, "attention.indexer.block_size": 128, "attention.indexer.local_blocks": 1}),
    # three blocks of eight positions, one of them that of the token: only transformers chooses blocks without flash attention
    "minimax-m3-blocks": with_experts(moe(8, 3, 64, 64, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.0, expert_gating_func=2), arch="minimax-m3", layers=3,
                                      dense=1, heads=6, kv=2, qk_norm="head", probs_b=True, block_indexer=(2, 64), keys={
                                          "leading_dense_block_count": 1, "rope.dimension_count": 32, "attention.indexer.head_count": 2, "attention.indexer.key_length": 64,
                                          "attention.indexer.top_k": 3, "attention.indexer.block_size": 8, "attention.indexer.local_blocks": 1}),
    "maple": with_experts(moe(8, 3, 96), arch="maple", layers=4, qk_norm="head", keys={
        "attention.sliding_window": 16, "attention.sliding_window_pattern": [True, True, True, False], "rope.dimension_count": 32, "swiglu_clamp_exp": [0.5] * 4}),
    "talkie": family(arch="talkie", layers=3, norms="none", bare=True, qk_norm="gain", layer_scale=True, scales=True, keys={"logit_scale": 0.7}),
    "deepseek2-ocr": with_experts(moe(8, 3, 64, 128, expert_shared_count=2, leading_dense_block_count=1), arch="deepseek2-ocr", dense=1, kv=4),
    "hrm_text": family(arch="hrm_text", layers=4, norms="none", bare=True, out_gate="element", stacks=True, keys={
        "block_count": 12, "hrm.layers_per_stack": 2, "hrm.h_cycles": 2, "hrm.l_cycles": 2, "hrm.prefix_lm": False, "embedding_scale": 2.0, "rope.dimension_count": 64}),
    # as its authors compute it: llama.cpp gives the small experts what the others return, and weights of other experts
    "grovemoe": with_experts(moe(12, 5, 96, expert_chunk_feed_forward_length=64, experts_per_group=2, expert_group_scale=0.7, expert_weights_norm=True), arch="grovemoe", ffn=96,
                             qk_norm="head"),
    "cogvlm": family(arch="cogvlm", layers=2, dim=320, heads=5, kv=5, fused=True, gates=True, no_key_length=True),
    # llama.cpp keeps tokens of pictures out of the logits of a batch's first token alone
    "chameleon": family(arch="chameleon", layers=2, one_by_one=True, dim=192, heads=6, kv=3, head_dim=32, ffn=160, n_vocab=8301, qk_norm="each", qk_norm_bias=True, no_key_length=True),
    "chameleon-post": family(arch="chameleon", layers=2, dim=96, heads=3, kv=3, head_dim=32, ffn=160, n_vocab=8301, qk_norm="each", qk_norm_bias=True, no_key_length=True,
                             keys={"swin_norm": True}),
    "starcoder": family(arch="starcoder", layers=2, kv=1, layer_norm=True, fused=True, bias=True, plain=True, positions=True, no_key_length=True),
}


def listed(p, change):
    """p with other lists, where something is listed by layer."""
    by_layer = lambda values: {k: change(v) if isinstance(v, list) and len(v) == p["layers"] and not k.endswith("sections") else v for k, v in values.items()}
    return {**by_layer(p), **({"keys": by_layer(p["keys"])} if "keys" in p else {})}


def write(name, path, model=Model, **changes):
    p = {**FAMILIES[name], **changes}
    if p.get("mtp"):                        # of what is listed by layer, the block has what the layer `mtp_like` has
        p = listed(p, lambda v: v + [v[p.get("mtp_like", 0)]])
    m = model(path, p["arch"], p)
    keys(m)
    m.vocabulary()
    m.ends()
    if p.get("positions"):
        m.matrix("position_embd", p["n_ctx"], p["dim"], gain=p["dim"] ** 0.5 / 4)
    if p.get("factors"):
        half = p.get("n_rot", p["head_dim"]) // 2
        m.put("rope_factors_long.weight", np.linspace(1, 40, half))
        m.put("rope_factors_short.weight", np.linspace(1, 3, half))
    if p.get("rope_freqs"):
        half = p["head_dim"] // 2
        m.put("rope_freqs.weight", [1.0] * (half // 4) + [1e30] * (half - half // 4))
    if p.get("own"):
        own_embeddings(m)
    if p.get("altup"):
        altup(m)
    if "attn_res.block_size" in p.get("keys", {}):
        for name in ["output_res"] + [f"blk.{i}.{part}_res" for i in range(p["layers"]) for part in ("attn", "ffn")]:
            m.vector(name + "_score.weight", p["dim"], 0, 0.1)
    if p["arch"] == "qwen4exp":
        make_qwen4.write(m)
    elif "hyper_connection.count" in p.get("keys", {}):
        hyper_connections(m)
    if p.get("stacks"):
        m.vector("hrm.z_l_init", p["dim"], 0, 1)
    for i in range(p["layers"]):
        kind = p.get("mix", "a" * p["layers"])[i]
        if kind == "-":             # a layer without anything
            continue
        if kind == "f":             # a layer that is a feed-forward alone
            m.norm(f"blk.{i}.{'ffn_norm' if p['arch'] == 'deci' else 'attn_norm'}", p["dim"])
            (experts if p.get("experts") else dense)(m, i)
        elif p.get("one_part"):
            m.norm(f"blk.{i}.attn_norm", p["dim"])
            MIXERS[kind](m, i)
        else:
            chosen = p.get("experts") and i >= p.get("dense", 0) and (i + 1) % p.get("moe_step", 1) == 0
            layer(m, i, MIXERS[kind], channel_mix if p.get("channel_mix") else dense_and_experts if p.get("beside") else experts if chosen else dense)
    if p.get("mtp"):
        further(m)
    m.close()


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(FAMILIES))
        return
    if len(sys.argv) < 3 or sys.argv[1] not in FAMILIES:
        sys.exit(__doc__)
    changes = dict(word.split("=", 1) for word in sys.argv[3:])
    write(sys.argv[1], sys.argv[2], **{k: int(v) if v.isdigit() else v for k, v in changes.items()})


if __name__ == "__main__":
    main()
