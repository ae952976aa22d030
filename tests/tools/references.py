"""What the authors of models compute, in doubles, where llama.cpp computes something else or nothing.

Of Phi's mixture of experts norms subtract the mean, and the router is a sparse mixer. Refact's norms subtract the mean ("LayerNorm instead of RMSNorm", its model
card says), and have no bias. GPT-J has names of tensors in llama.cpp, and no graph.
"""
import gguf
import numpy as np

EPS, BASE, JITTER = 1e-5, 10000.0, 0.01


def opened(path):
    """Tensors of a file by name, and a function for its numbers."""
    reader = gguf.GGUFReader(path)
    arch = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    return {t.name: t.data.astype(np.float64) for t in reader.tensors}, lambda key: int(reader.fields[f"{arch}.{key}"].parts[-1][0])


def norm(x, w, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w[name + ".weight"] + w.get(name + ".bias", 0)


def angles(x, half):
    return np.arange(len(x))[:, None, None] * BASE ** (-np.arange(half) / half)


def turn_halves(x):
    """{T, heads, n}: element i turns with element i + n/2."""
    half = x.shape[-1] // 2
    angle, a, b = angles(x, half), x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def turn_neighbours(x, n):
    """{T, heads, ...}: of the first n elements each even one turns with the next."""
    angle, a, b, out = angles(x, n // 2), x[..., 0:n:2], x[..., 1:n:2], x.copy()
    out[..., 0:n:2], out[..., 1:n:2] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return out


def linear(x, w, name):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)


def slopes(heads):
    """Of ALiBi: powers of one number; beyond a power of two, every other one of twice as many heads."""
    n = 2 ** int(np.log2(heads))
    return [2 ** (-8 * (i + 1) / n) for i in range(n)] + [2 ** (-4 * (2 * i + 1) / n) for i in range(heads - n)]


def attention(x, w, b, heads, kv, turn, slope=None):
    n = len(x)
    q, k, v = (linear(x, w, f"{b}attn_{name}") for name in "qkv")
    q, k, v = turn(q.reshape(n, heads, -1)), turn(k.reshape(n, kv, -1)), v.reshape(n, kv, -1)
    out = np.zeros_like(q)
    for h in range(heads):
        s = q[:, h] @ k[:, h * kv // heads].T / q.shape[-1] ** 0.5
        if slope:
            s = s - slope[h] * np.subtract.outer(np.arange(n), np.arange(n))
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, h * kv // heads]
    return linear(out.reshape(n, -1), w, b + "attn_output")


def mixture(x, w, b, used):
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
    w, number = opened(path)
    layers, heads, kv, used = (number(key) for key in ("block_count", "attention.head_count", "attention.head_count_kv", "expert_used_count"))

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(layers):
            b = f"blk.{i}."
            x = x + attention(norm(x, w, b + "attn_norm"), w, b, heads, kv, turn_halves)
            x = x + mixture(norm(x, w, b + "ffn_norm"), w, b, used)
        return linear(norm(x, w, "output_norm"), w, "output")
    return logits


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def gptj(path):
    w, number = opened(path)
    layers, heads, turned = (number(key) for key in ("block_count", "attention.head_count", "rope.dimension_count"))

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(layers):
            b = f"blk.{i}."
            y = norm(x, w, b + "attn_norm")
            x = x + attention(y, w, b, heads, heads, lambda q: turn_neighbours(q, turned)) + linear(gelu(linear(y, w, b + "ffn_up")), w, b + "ffn_down")
        return linear(norm(x, w, "output_norm"), w, "output")
    return logits


def refact(path):
    w, number = opened(path)
    layers, heads, kv = (number(key) for key in ("block_count", "attention.head_count", "attention.head_count_kv"))

    def feed_forward(x, b):
        gate = linear(x, w, b + "ffn_gate")
        return linear(gate / (1 + np.exp(-gate)) * linear(x, w, b + "ffn_up"), w, b + "ffn_down")

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(layers):
            b = f"blk.{i}."
            x = x + attention(norm(x, w, b + "attn_norm"), w, b, heads, kv, lambda q: q, slopes(heads))
            x = x + feed_forward(norm(x, w, b + "ffn_norm"), b)
        return linear(norm(x, w, "output_norm"), w, "output")
    return logits


REFERENCES = {"phimoe": phimoe, "gptj": gptj, "refact": refact}
