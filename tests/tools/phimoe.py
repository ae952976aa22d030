"""What the authors of Phi's mixture of experts compute, in doubles: their norms subtract the mean, and their router is a sparse mixer."""
import gguf
import numpy as np

EPS, BASE, JITTER = 1e-5, 10000.0, 0.01


def norm(x, w, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w[name + ".weight"] + w[name + ".bias"]


def turn(x):
    """{T, heads, n}: halves rotate."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * BASE ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def attention(x, w, b, heads, kv):
    n = len(x)
    q, k, v = (x @ w[f"{b}attn_{name}.weight"].T + w[f"{b}attn_{name}.bias"] for name in "qkv")
    q, k, v = turn(q.reshape(n, heads, -1)), turn(k.reshape(n, kv, -1)), v.reshape(n, kv, -1)
    out = np.zeros_like(q)
    for h in range(heads):
        s = q[:, h] @ k[:, h * kv // heads].T / q.shape[-1] ** 0.5
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, h * kv // heads]
    return out.reshape(n, -1) @ w[b + "attn_output.weight"].T + w[b + "attn_output.bias"]


def mixture(x, w, b, used=2):
    out = np.zeros_like(x)
    for t, row in enumerate(x):
        scores = w[b + "ffn_gate_inp.weight"] @ row
        open_ = scores.copy()
        for _ in range(used):
            best = int(open_.argmax())
            m = open_[best]
            near = np.where((m - scores) / np.maximum(np.abs(scores), m) > 2 * JITTER, -np.inf, open_)
            weight = 1 / np.exp(near - m).sum()
            gate, up = (w[f"{b}ffn_{name}_exps.weight"][best] @ row for name in ("gate", "up"))
            out[t] += weight * (w[b + "ffn_down_exps.weight"][best] @ (gate / (1 + np.exp(-gate)) * up))
            open_[best] = -np.inf
    return out


def phimoe(path):
    reader = gguf.GGUFReader(path)
    w = {t.name: t.data.astype(np.float64) for t in reader.tensors}
    number = lambda key: int(reader.fields[f"phimoe.{key}"].parts[-1][0])
    layers, heads, kv = number("block_count"), number("attention.head_count"), number("attention.head_count_kv")

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(layers):
            b = f"blk.{i}."
            x = x + attention(norm(x, w, b + "attn_norm"), w, b, heads, kv)
            x = x + mixture(norm(x, w, b + "ffn_norm"), w, b)
        return norm(x, w, "output_norm") @ w["output.weight"].T + w["output.bias"]
    return logits
