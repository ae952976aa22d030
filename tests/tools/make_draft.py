"""make_draft.py: small draft files with random weights for models of make_model.py, and what they say, computed here in 64-bit floats.

What a chain computes is as published with EAGLE-3 (cnets.py of its authors), a block as published with DFlash. Targets are of the kinds
llama and qwen3, whose layers are computed here as well.
"""
import gguf
import numpy as np

import make_model

DRAFTS = {
    # rows of the stream, heads, and a head of fewer tokens than the target has
    "eagle3": {"arch": "eagle3", "ffn": 96, "heads": 4, "kv": 2, "head_dim": 16, "n_draft": 70},
    "eagle3-own": {"arch": "eagle3", "dim": 96, "ffn": 64, "heads": 2, "kv": 2, "head_dim": 32, "n_draft": 90, "own_embedding": True,
                   "keys": {"norm_before_residual": True, "norm_before_fc": True}},
    "eagle3-shared": {"arch": "eagle3", "ffn": 64, "heads": 4, "kv": 4, "head_dim": 16},
    "dflash": {"arch": "dflash", "ffn": 96, "heads": 4, "kv": 2, "head_dim": 32, "layers": 2, "keys": {"block_size": 8}},
    "dflash-causal": {"arch": "dflash", "ffn": 64, "heads": 4, "kv": 4, "head_dim": 16, "layers": 3, "n_draft": 120, "keys": {
        "block_size": 16, "attention.causal": True, "attention.sliding_window": 6, "attention.sliding_window_pattern": [True, False, True]}},
    "dflash-own": {"arch": "dflash", "ffn": 64, "heads": 6, "kv": 2, "head_dim": 32, "own_embedding": True, "reads": [2], "keys": {
        "block_size": 5, "embedding_scale": 0.5}},
    "dspark": {"arch": "dflash", "ffn": 96, "heads": 4, "kv": 2, "head_dim": 32, "markov": 24, "confident": True, "keys": {"block_size": 6}},
    "dspark-bonus": {"arch": "dflash", "ffn": 64, "heads": 4, "kv": 4, "head_dim": 16, "n_draft": 100, "markov": 16, "keys": {
        "block_size": 7, "sample_from_anchor": False, "has_confidence_head": False}},
}
MASK = 33
TARGETS = {
    "llama": make_model.family(keys={"rope.dimension_count": 64}),
    "qwen3": make_model.family(arch="qwen3", layers=4, dim=192, heads=6, head_dim=32, qk_norm="head", tie=True),
}


def family_of(target):
    return TARGETS.get(target) or make_model.FAMILIES[target]


def write_target(name, path, **changes):
    make_model.FAMILIES["target"] = family_of(name)
    make_model.write("target", path, **changes)
    del make_model.FAMILIES["target"]


def steady(name, x):
    """Weights by which model and draft expect much the same tokens after any other ones: for `quant` of both."""
    n, width = x.shape
    if "attn_output" in name or "ffn_down" in name:
        x = x * 0.02
    if name == "token_embd.weight":
        x = 1 + 0.05 * x / x.std()
    if name == "output.weight":
        likely = np.maximum(0, 7 - np.abs(np.arange(n) - 40) / 2)        # logits of a few tokens
        x = 0.05 * x + likely[:, None] / width
    if name == "fc.weight":
        x = np.eye(n, width, width - n)
    return make_model.F32, np.ascontiguousarray(x, np.float32)


def shape(name, target, **changes):
    t, p = family_of(target), {**DRAFTS[name], **changes}
    return {"n_vocab": t["n_vocab"], "target_dim": t["dim"], "n_ctx": t["n_ctx"], "layers": 1, "reads": reads(t["layers"]), "dim": t["dim"], **p}


def reads(layers):
    return [min(1, layers), layers // 2, layers]


def write(name, path, target="llama", ids=None, **changes):
    """ids: the target's ids of the draft's tokens."""
    p = shape(name, target, **changes)
    m = make_model.Model(path, p["arch"], p)
    base = {"block_count": p["layers"], "context_length": p["n_ctx"], "embedding_length": p["dim"], "feed_forward_length": p["ffn"],
            "attention.head_count": p["heads"], "attention.head_count_kv": p["kv"], "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.key_length": p["head_dim"], "attention.value_length": p["head_dim"], "rope.dimension_count": p["head_dim"],
            "vocab_size": p["n_vocab"], "target_layers": p["reads"]}
    if p["arch"] == "eagle3":
        base["target_hidden_size"] = p["target_dim"]
    for key, value in {**base, **p.get("keys", {})}.items():
        if value is not None:
            m.key(key, value)
    m.vocabulary()
    if p["arch"] == "dflash":
        m.w.add_mask_token_id(p.get("mask", MASK))
    m.matrix("fc", p["dim"], p["target_dim"] * len(p["reads"]))
    m.norm("output_norm", p["dim"])
    if p.get("own_embedding"):
        m.matrix("token_embd", p["n_vocab"], p["dim"], gain=p["dim"] ** 0.5)
    if p.get("n_draft"):
        m.matrix("output", p["n_draft"], p["dim"], gain=1.5)
        m.w.add_tensor("d2t", np.array(ids if ids is not None else ids_of(p), np.int64), raw_dtype=gguf.GGMLQuantizationType.I64)
    if p["arch"] == "dflash" or (p.get("keys") or {}).get("norm_before_fc"):
        m.norm("enc.output_norm", p["dim"] if p["arch"] == "dflash" else p["target_dim"] * len(p["reads"]))
    if p.get("markov"):
        m.matrix("markov_w1", p["n_vocab"], p["markov"], gain=p["markov"] ** 0.5)
        m.matrix("markov_w2", p.get("n_draft", p["n_vocab"]), p["markov"])
    if p.get("confident"):
        m.matrix("conf_proj", 1, p["dim"] + p["markov"])
        m.put("conf_proj.bias", [0.5])
    for i in range(p["layers"]):
        layer(m, p, f"blk.{i}.")
    m.close()


def ids_of(p):
    return np.random.default_rng(p["n_draft"]).permutation(p["n_vocab"])[:p["n_draft"]]


def layer(m, p, b):
    chain = p["arch"] == "eagle3"
    wide = p["dim"] * (2 if chain else 1)
    m.norm(b + "attn_norm", p["dim"])
    if chain:
        m.norm(b + "attn_norm_2", p["dim"])
    for part, heads in ("q", p["heads"]), ("k", p["kv"]), ("v", p["kv"]):
        m.matrix(f"{b}attn_{part}", heads * p["head_dim"], wide, gain=1.5)
    m.matrix(b + "attn_output", p["dim"], p["heads"] * p["head_dim"])
    if not chain:
        m.vector(b + "attn_q_norm.weight", p["head_dim"], 1.5)
        m.vector(b + "attn_k_norm.weight", p["head_dim"], 1.5)
    m.norm(b + "ffn_norm", p["dim"])
    for part in "gate", "up":
        m.matrix(f"{b}ffn_{part}", p["ffn"], p["dim"], gain=1.5)
    m.matrix(b + "ffn_down", p["dim"], p["ffn"])


# --- what they say ----------------------------------------------------------------------------------------------------------------------

class File:
    """Tensors and keys of a file, in 64-bit floats."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.arch = reader.fields["general.architecture"].contents()
        self.keys = {name.removeprefix(self.arch + "."): field.contents() for name, field in reader.fields.items() if name != "tokenizer.ggml.tokens"}
        self.tensors = {t.name: np.asarray(t.data, np.int64 if t.name == "d2t" else np.float64) for t in reader.tensors}
        self.eps, self.heads, self.kv = (self.keys[k] for k in ("attention.layer_norm_rms_epsilon", "attention.head_count", "attention.head_count_kv"))
        self.neox = self.arch in ("qwen3", "dflash")

    def get(self, name):
        return self.tensors.get(name + ".weight")

    def norm(self, name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.get(name)

    def turned(self, x, at):
        """x {rows, heads, d} at these positions."""
        d = self.keys.get("rope.dimension_count", x.shape[-1])
        angle = np.asarray(at)[:, None, None] * self.keys.get("rope.freq_base", 10000.0) ** (-np.arange(0, d, 2) / d)
        a, b = (x[..., :d // 2], x[..., d // 2:d]) if self.neox else (x[..., :d:2], x[..., 1:d:2])
        re, im = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
        turned = np.concatenate([re, im], -1) if self.neox else np.stack([re, im], -1).reshape(*x.shape[:-1], d)
        return np.concatenate([turned, x[..., d:]], -1)

    def heads_of(self, b, part, x, n, at):
        x = (x @ self.get(f"{b}attn_{part}").T).reshape(len(x), n, -1)
        if self.get(f"{b}attn_{part}_norm") is not None:
            x = self.norm(f"{b}attn_{part}_norm", x)
        return x if part == "v" else self.turned(x, at)

    def keys_values(self, b, x, at):
        return self.heads_of(b, "k", x, self.kv, at), self.heads_of(b, "v", x, self.kv, at)

    def attention(self, b, x, at, k, v, sees):
        """sees {rows, positions}: which of the keys k each row reads."""
        q = self.heads_of(b, "q", x, self.heads, at)
        k, v = (np.repeat(y, self.heads // self.kv, 1) for y in (k, v))
        scores = np.where(sees[None], np.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hts,shd->thd", e / e.sum(-1, keepdims=True), v)
        return out.reshape(len(x), -1) @ self.get(b + "attn_output").T

    def feed_forward(self, b, x):
        gate = x @ self.get(b + "ffn_gate").T
        return (gate / (1 + np.exp(-gate)) * (x @ self.get(b + "ffn_up").T)) @ self.get(b + "ffn_down").T


def stream(f, ids):
    """What enters each layer of a model of the kind llama or qwen3, and what leaves the last one."""
    x, at = f.get("token_embd")[ids], np.arange(len(ids))
    each = [x]
    for i in range(f.keys["block_count"]):
        b, sees = f"blk.{i}.", at[:, None] >= at
        y = f.norm(b + "attn_norm", x)
        x = x + f.attention(b, y, at, *f.keys_values(b, y, at), sees)
        x = x + f.feed_forward(b, f.norm(b + "ffn_norm", x))
        each.append(x)
    return each


def logits(d, target, x):
    """Of the target's tokens; those that the draft does not have are -infinity."""
    head = next(h for h in (d.get("output"), None if d.arch == "eagle3" else d.get("token_embd"), target.get("output"), target.get("token_embd")) if h is not None)
    some = d.norm("output_norm", x) @ head.T
    if "d2t" not in d.tensors:
        return some
    out = np.full((len(x), len(target.get("token_embd"))), -np.inf)
    out[:, d.tensors["d2t"]] = some
    return out


def fused(d, target, ids):
    each = stream(target, ids)
    x = np.concatenate([each[i] for i in d.keys["target_layers"]], 1)
    if d.keys.get("norm_before_fc"):
        x = d.norm("enc.output_norm", x)
    return x @ d.get("fc").T


def chain(draft, target, ids):
    """Logits for each token from the second on, of what comes after it; then, of ids[0] after the last one, by the draft alone."""
    d, t, b = File(draft), File(target), "blk.0."
    g, ids = fused(d, t, ids[:-1]), np.asarray(ids)                  # g[i] goes with ids[i + 1]
    table = next(e for e in (d.get("token_embd"), t.get("token_embd")) if e is not None)

    def layer_of(g, ids):
        at, normed = np.arange(1, len(g) + 1), d.norm(b + "attn_norm_2", g)
        x = np.concatenate([d.norm(b + "attn_norm", table[ids]), normed], 1)
        h = (normed if d.keys.get("norm_before_residual") else g) + d.attention(b, x, at, *d.keys_values(b, x, at), at[:, None] >= at)
        return h + d.feed_forward(b, d.norm(b + "ffn_norm", h))
    out = layer_of(g, ids[1:])
    alone = layer_of(np.concatenate([g, out[-1:]]), np.append(ids[1:], ids[0]))
    return logits(d, t, np.concatenate([out, alone[-1:]]))


def followed(d, rows, last):
    """The rows that draft; in a DSpark file each likeliest token changes the logits after it."""
    w = d.get("markov_w1")
    if w is None:
        return rows[1:]
    out = rows[0 if d.keys.get("sample_from_anchor", True) else 1:].copy()
    there = d.tensors.get("d2t", np.arange(rows.shape[1]))
    for row in out:
        row[there] += d.get("markov_w2") @ w[last]
        last = row.argmax()
    return out


def block(draft, target, ids):
    """For each token from the second on: logits of the tokens after it, of as many as a block has masks."""
    d, t, n, rows = File(draft), File(target), File(draft).keys["block_size"], []
    x = d.norm("enc.output_norm", fused(d, t, ids[:-1]))
    table = next(e for e in (d.get("token_embd"), t.get("token_embd")) if e is not None)
    for i in range(1, len(ids)):
        at = np.arange(i + n)
        own, y = at[i:], table[[ids[i]] + [MASK] * (n - 1)] * d.keys.get("embedding_scale", 1.0)
        for b in [f"blk.{k}." for k in range(d.keys["block_count"])]:
            z = d.norm(b + "attn_norm", y)
            k, v = (np.concatenate(both) for both in zip(d.keys_values(b, x[:i], at[:i]), d.keys_values(b, z, own)))
            sees = at <= (own[:, None] if d.keys.get("attention.causal") else at[-1])
            if d.keys.get("attention.sliding_window_pattern", [False] * 9)[int(b[4])]:
                sees = sees & (at > own[:, None] - d.keys["attention.sliding_window"])
            y = y + d.attention(b, z, own, k, v, sees)
            y = y + d.feed_forward(b, d.norm(b + "ffn_norm", y))
        rows.append(followed(d, logits(d, t, y), ids[i]))
    return np.array(rows)
