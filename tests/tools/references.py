"""What the authors of models compute, in doubles, where llama.cpp computes something else or nothing.

Of Phi's mixture of experts norms subtract the mean, and the router is a sparse mixer. Refact's norms subtract the mean ("LayerNorm instead of RMSNorm", its model
card says), and have no bias. GPT-J has names of tensors in llama.cpp, and no graph.
Qwen 3.5's mixture is here too: its dense sibling, of the same code, is within 4e-4 of llama.cpp's record of it, whose cache holds halves.
And so are models that choose the positions that they read, for test_sparse.py: the positions must be the same.
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


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def delta_rule(x, w, b, number):
    """Gated delta net: each head's matrix fades, forgets what it holds for a key, and learns the value in its place."""
    inner, size, groups, heads, taps = (number(f"ssm.{key}") for key in ("inner_size", "state_size", "group_count", "time_step_rank", "conv_kernel"))
    n, keys, wide = len(x), groups * size, inner // heads
    mixed = np.concatenate([np.zeros((taps - 1, inner + 2 * keys)), linear(x, w, b + "attn_qkv")])
    mixed = silu(sum(mixed[i:i + n] * w[b + "ssm_conv1d.weight"][:, i] for i in range(taps)))
    q, k = (part.reshape(n, groups, size) for part in (mixed[:, :keys], mixed[:, keys:2 * keys]))
    q, k = (part / np.sqrt((part * part).sum(-1, keepdims=True) + 1e-6) for part in (q, k))
    v, gate = mixed[:, 2 * keys:].reshape(n, heads, wide), linear(x, w, b + "attn_gate").reshape(n, heads, wide)
    beta = 1 / (1 + np.exp(-linear(x, w, b + "ssm_beta")))
    fade = np.exp(w[b + "ssm_a"].reshape(-1) * np.log1p(np.exp(linear(x, w, b + "ssm_alpha") + w[b + "ssm_dt.bias"])))
    out = np.zeros_like(v)
    for h in range(heads):
        state = np.zeros((size, wide))
        for t in range(n):
            key = k[t, h % groups]
            state *= fade[t, h]
            state += np.outer(key, beta[t, h] * (v[t, h] - key @ state))
            out[t, h] = q[t, h % groups] / size ** 0.5 @ state
    return linear((rms(out, w[b + "ssm_norm.weight"]) * silu(gate)).reshape(n, inner), w, b + "ssm_out")


def gated_attention(x, w, b, heads, kv, turned):
    n = len(x)
    both = linear(x, w, b + "attn_q").reshape(n, heads, 2, -1)
    q, gate, k, v = both[:, :, 0], both[:, :, 1], linear(x, w, b + "attn_k").reshape(n, kv, -1), linear(x, w, b + "attn_v").reshape(n, kv, -1)
    q, k = (np.concatenate([turn_halves(part[..., :turned]), part[..., turned:]], -1)
            for part in (rms(q, w[b + "attn_q_norm.weight"]), rms(k, w[b + "attn_k_norm.weight"])))
    out = np.zeros_like(q)
    for h in range(heads):
        s = np.where(np.tri(n, dtype=bool), q[:, h] @ k[:, h * kv // heads].T / q.shape[-1] ** 0.5, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, h * kv // heads]
    return linear((out / (1 + np.exp(-gate))).reshape(n, -1), w, b + "attn_output")


def gated_linear(x, w, b, kind):
    return linear(silu(linear(x, w, f"{b}ffn_gate{kind}")) * linear(x, w, f"{b}ffn_up{kind}"), w, f"{b}ffn_down{kind}")


def shared_and_chosen(x, w, b, used):
    """The best experts by softmax, their weights adding up to one, and one for all tokens behind a gate of its own."""
    out = gated_linear(x, w, b, "_shexp") / (1 + np.exp(-x @ w[b + "ffn_gate_inp_shexp.weight"].reshape(-1, 1)))
    for t, row in enumerate(x):
        scores = w[b + "ffn_gate_inp.weight"] @ row
        best = np.argsort(-scores, kind="stable")[:used]
        share = np.exp(scores[best] - scores[best].max())
        for weight, e in zip(share / share.sum(), best):
            gate, up = (w[f"{b}ffn_{name}_exps.weight"][e] @ row for name in ("gate", "up"))
            out[t] += weight * (w[b + "ffn_down_exps.weight"][e] @ (silu(gate) * up))
    return out


def qwen35(path):
    """With experts or without."""
    w, number = opened(path)
    layers, heads, kv, turned = (number(key) for key in ("block_count", "attention.head_count", "attention.head_count_kv", "rope.dimension_count"))

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(layers):
            b = f"blk.{i}."
            y = rms(x, w[b + "attn_norm.weight"])
            x = x + (delta_rule(y, w, b, number) if b + "ssm_a" in w else gated_attention(y, w, b, heads, kv, turned))
            y = rms(x, w[b + "post_attention_norm.weight"])
            x = x + (shared_and_chosen(y, w, b, number("expert_used_count")) if b + "ffn_gate_inp.weight" in w else gated_linear(y, w, b, ""))
        return linear(rms(x, w["output_norm.weight"]), w, "output")
    return logits


def best_positions(x, low, w, b, turn, heads, top_k):
    """What each token reads, {T, T}: the positions of the largest sums of what is positive of a few heads' products with a key; of equal ones the first."""
    n = len(x)
    k = linear(x, w, b + "attn_k")
    k = k - k.mean(-1, keepdims=True)
    k = turn((k / np.sqrt((k * k).mean(-1, keepdims=True) + 1e-6) * w[b + "k_norm.weight"] + w[b + "k_norm.bias"])[:, None])[:, 0]
    q, by = turn(linear(low, w, b + "attn_q_b").reshape(n, heads, -1)), linear(x, w, b + "proj")
    scores = np.einsum("th,ths->ts", by, np.maximum(np.einsum("thd,sd->ths", q, k), 0))
    chosen = np.zeros((n, n), dtype=bool)
    for t in range(n):
        chosen[t, np.argsort(-scores[t, :t + 1], kind="stable")[:top_k]] = True
    return chosen


def latent_attention(x, low, w, b, number, turn, chosen):
    n, heads, latent, turned = len(x), number("attention.head_count"), number("attention.kv_lora_rank"), number("rope.dimension_count")
    q, kv = linear(low, w, b + "attn_q_b").reshape(n, heads, -1), linear(x, w, b + "attn_kv_a_mqa")
    c, shared, own = rms(kv[:, :latent], w[b + "attn_kv_a_norm.weight"]), turn(kv[:, None, latent:])[:, 0], turn(q[..., -turned:])
    out = []
    for h in range(heads):
        s = (q[:, h, :-turned] @ (c @ w[b + "attn_k_b.weight"][h]).T + own[:, h] @ shared.T) / q.shape[-1] ** 0.5
        s = np.where(chosen, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out.append(e / e.sum(-1, keepdims=True) @ (c @ w[b + "attn_v_b.weight"][h].T))
    return linear(np.concatenate(out, -1), w, b + "attn_output")


def by_sigmoid(x, w, b, used):
    """The best experts by sigmoid and a bias, their weights adding up to one, and one for all tokens."""
    out = gated_linear(x, w, b, "_shexp")
    for t, row in enumerate(x):
        share = 1 / (1 + np.exp(-(w[b + "ffn_gate_inp.weight"] @ row)))
        best = np.argsort(-(share + w[b + "exp_probs_b.bias"]), kind="stable")[:used]
        for e in best:
            gate, up = (w[f"{b}ffn_{name}_exps.weight"][e] @ row for name in ("gate", "up"))
            out[t] += share[e] / share[best].sum() * (w[b + "ffn_down_exps.weight"][e] @ (silu(gate) * up))
    return out


def sparse(path, own=None, halves=False):
    """own: for each layer, whether it chooses its positions itself; halves: how an indexer turns."""
    w, number = opened(path)
    turned = number("rope.dimension_count")

    def turn_first(x):
        return np.concatenate([turn_halves(x[..., :turned]), x[..., turned:]], -1) if halves else turn_neighbours(x, turned)

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(number("block_count")):
            b = f"blk.{i}."
            y = rms(x, w[b + "attn_norm.weight"])
            low = rms(linear(y, w, b + "attn_q_a"), w[b + "attn_q_a_norm.weight"])
            if own is None or own[i]:
                chosen = best_positions(y, low, w, b + "indexer.", turn_first, number("attention.indexer.head_count"), number("attention.indexer.top_k"))
            x = x + latent_attention(y, low, w, b, number, lambda v: turn_neighbours(v, turned), chosen)
            y = rms(x, w[b + "ffn_norm.weight"])
            x = x + (by_sigmoid(y, w, b, number("expert_used_count")) if b + "ffn_gate_inp.weight" in w else gated_linear(y, w, b, ""))
        return linear(rms(x, w["output_norm.weight"]), w, "output")
    return logits


REFERENCES = {"phimoe": phimoe, "gptj": gptj, "refact": refact, "qwen35moe": qwen35}
