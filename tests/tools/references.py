"""What the authors of models compute, in doubles, where llama.cpp computes something else or nothing.

Of Phi's mixture of experts norms subtract the mean, and the router is a sparse mixer. Refact's norms subtract the mean ("LayerNorm instead of RMSNorm", its model
card says), and have no bias. GPT-J has names of tensors in llama.cpp, and no graph.
Qwen 3.5's mixture is here too: its dense sibling, of the same code, is within 4e-4 of llama.cpp's record of it, whose cache holds halves.
transformers itself computes gpt-oss with the YaRN of OpenAI's configuration, afmoe in a file without expert_weights_norm, Solar Open as published, Chameleon with norms
behind its parts, and glm-dsa with its indexer at work.
Models that choose the positions that they read are here for test_sparse.py: the positions must be the same.
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


def attended(q, k, v, slope=None):
    """{T, heads, n} of each."""
    n, heads, kv = *q.shape[:2], k.shape[1]
    out = np.zeros_like(q)
    for h in range(heads):
        s = q[:, h] @ k[:, h * kv // heads].T / q.shape[-1] ** 0.5
        if slope:
            s = s - slope[h] * np.subtract.outer(np.arange(n), np.arange(n))
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, h * kv // heads]
    return out


def attention(x, w, b, heads, kv, turn, slope=None):
    n = len(x)
    q, k, v = (linear(x, w, f"{b}attn_{name}") for name in "qkv")
    return linear(attended(turn(q.reshape(n, heads, -1)), turn(k.reshape(n, kv, -1)), v.reshape(n, kv, -1), slope).reshape(n, -1), w, b + "attn_output")


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


def by_transformers(config, model, w, parts, experts, ends=()):
    """Logits of a model of transformers in doubles, with the weights w of a file. parts: their names of a layer's tensors, by ours; experts: what they stack; ends: more tensors
    of the model, by their names."""
    import torch
    config._experts_implementation, config._attn_implementation = "eager", "eager"
    model = model(config).double().eval()
    state = {"model.embed_tokens.weight": w["token_embd.weight"], "lm_head.weight": w["output.weight"]} | dict(ends)
    if "output_norm.weight" in w:
        state["model.norm.weight"] = w["output_norm.weight"]
    for i in range(config.num_hidden_layers):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        state |= {theirs + name + end: w[ours + part + end] for part, name in parts.items() for end in ("", ".weight", ".bias") if ours + part + end in w}
        state |= {theirs + name: value for name, value in experts(w, ours).items()}
    of_config = {name: value for name, value in model.named_buffers() if name in model.state_dict()}
    model.load_state_dict(of_config | {name: torch.tensor(np.ascontiguousarray(value)) for name, value in state.items()})

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].numpy()
    return logits


def shape(w, key):
    return dict(vocab_size=len(w["token_embd.weight"]), hidden_size=key("embedding_length"), num_hidden_layers=key("block_count"), num_attention_heads=key("attention.head_count"),
                num_key_value_heads=key("attention.head_count_kv"), rms_norm_eps=EPS, max_position_embeddings=256)


ATTENTION = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"}
FEED_FORWARD = {f"ffn_{name}{ours}": f"mlp.{theirs}{name}_proj" for name in ("gate", "up", "down") for ours, theirs in (("", ""), ("_shexp", "shared_experts."))}
BY_SIGMOID = {"ffn_gate_inp": "mlp.gate", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}


def gate_above_up(w, b):
    if b + "ffn_down_exps.weight" not in w:
        return {}
    both = np.concatenate([w[b + "ffn_gate_exps.weight"], w[b + "ffn_up_exps.weight"]], 1)
    return {"mlp.experts.gate_up_proj": both, "mlp.experts.down_proj": w[b + "ffn_down_exps.weight"]}


def gate_beside_up(w, b):
    parts = {}
    for end, axes in (("weight", "_proj"), ("bias", "_proj_bias")):
        both = np.stack([w[f"{b}ffn_gate_exps.{end}"], w[f"{b}ffn_up_exps.{end}"]], 2)
        parts["mlp.experts.gate_up" + axes] = both.reshape(len(both), -1, *both.shape[3:]).swapaxes(1, -1)
        parts["mlp.experts.down" + axes] = w[f"{b}ffn_down_exps.{end}"].swapaxes(1, -1)
    return parts


def gpt_oss(path):
    """transformers' YaRN does not round the ends of its ramp as llama.cpp does; gpt-oss was trained so."""
    import transformers
    w, key = opened(path)
    config = transformers.GptOssConfig(
        **shape(w, key), head_dim=key("attention.key_length"), intermediate_size=w["blk.0.ffn_gate_exps.weight"].shape[1], num_local_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), sliding_window=key("attention.sliding_window"),
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False})
    parts = ATTENTION | {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router", "attn_sinks.weight": "self_attn.sinks"}
    return by_transformers(config, transformers.GptOssForCausalLM, w, parts, gate_beside_up)


def afmoe(path):
    """transformers divides the chosen experts' weights by their sum; llama.cpp does so where a file says it. Embeddings are scaled, as in all released configurations."""
    import transformers
    w, key = opened(path)
    config = transformers.AfmoeConfig(
        **shape(w, key), head_dim=key("attention.key_length"), intermediate_size=key("feed_forward_length"), moe_intermediate_size=key("expert_feed_forward_length"),
        num_dense_layers=key("leading_dense_block_count"), num_experts=key("expert_count"), num_experts_per_tok=key("expert_used_count"), num_shared_experts=1,
        route_scale=2.826, sliding_window=key("attention.sliding_window"), mup_enabled=True)
    parts = ATTENTION | FEED_FORWARD | {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_gate": "self_attn.gate_proj", "ffn_norm": "pre_mlp_layernorm",
                                        "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_mlp_layernorm", "ffn_gate_inp": "mlp.router.gate",
                                        "exp_probs_b.bias": "mlp.expert_bias"}
    return by_transformers(config, transformers.AfmoeForCausalLM, w, parts, gate_above_up)


def solar_open(path):
    """Upstage's configuration says partial_rotary_factor: 1.0. (Where one lacks it, llama.cpp's converter takes GLM's half, and transformers the whole head.)"""
    import transformers
    w, key = opened(path)
    config = transformers.SolarOpenConfig(
        **shape(w, key), head_dim=key("attention.key_length"), moe_intermediate_size=key("expert_feed_forward_length"), n_routed_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), partial_rotary_factor=1.0,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0, "original_max_position_embeddings": 32, "partial_rotary_factor": 1.0})
    parts = ATTENTION | FEED_FORWARD | BY_SIGMOID | {"post_attention_norm": "post_attention_layernorm"}
    return by_transformers(config, transformers.SolarOpenForCausalLM, w, parts, gate_above_up)


def keys_and_values(w, b):
    """Of latent attention, as one matrix."""
    both = np.concatenate([w[b + "attn_k_b.weight"].swapaxes(1, 2), w[b + "attn_v_b.weight"]], 1)
    return {"self_attn.kv_b_proj.weight": both.reshape(-1, both.shape[-1])} | gate_above_up(w, b)


def glm_dsa(path):
    """transformers' own choice of positions. Of equal scores torch takes any, and 0 is such a score: of many heads one is always above it."""
    import transformers
    w, key = opened(path)
    turned = key("rope.dimension_count")
    config = transformers.GlmMoeDsaConfig(
        **shape(w, key) | {"num_key_value_heads": key("attention.head_count")}, intermediate_size=key("feed_forward_length"),
        moe_intermediate_size=key("expert_feed_forward_length"), n_routed_experts=key("expert_count"), num_experts_per_tok=key("expert_used_count"),
        first_k_dense_replace=key("leading_dense_block_count"), q_lora_rank=key("attention.q_lora_rank"), kv_lora_rank=key("attention.kv_lora_rank"),
        qk_rope_head_dim=turned, qk_nope_head_dim=key("attention.key_length_mla") - turned, v_head_dim=key("attention.value_length_mla"),
        index_topk=key("attention.indexer.top_k"), index_head_dim=key("attention.indexer.key_length"), index_n_heads=key("attention.indexer.head_count"))
    own = {"attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_layernorm", "attn_q_b": "q_b_proj", "attn_kv_a_mqa": "kv_a_proj_with_mqa", "attn_kv_a_norm": "kv_a_layernorm",
           "indexer.attn_q_b": "indexer.wq_b", "indexer.attn_k": "indexer.wk", "indexer.k_norm": "indexer.k_norm", "indexer.proj": "indexer.weights_proj"}
    parts = ATTENTION | FEED_FORWARD | BY_SIGMOID | {"ffn_norm": "post_attention_layernorm"} | {ours: "self_attn." + theirs for ours, theirs in own.items()}
    return by_transformers(config, transformers.GlmMoeDsaForCausalLM, w, parts, keys_and_values)


def dots3note(path):
    """Its indexer rotates neighbours, llama.cpp's halves. Files have the factors of normed vectors in the norms' weights."""
    import transformers
    w, key = opened(path)
    turned, dim, rank, layers = key("rope.dimension_count"), key("embedding_length"), key("attention.q_lora_rank"), key("block_count")
    near = [f"blk.{i}.indexer.proj.weight" not in w for i in range(layers)]
    heads = {kind: len(w[f"blk.{near.index(kind)}.attn_k_b.weight"]) for kind in (False, True)}
    for i in range(layers):
        for name in ("q_a_norm", "kv_a_norm"):
            w[f"blk.{i}.attn_{name}.weight"] *= (len(w[f"blk.{i}.attn_{name}.weight"]) / dim) ** 0.5
    length = {kind: (key("attention.key_length_mla" + end), key("attention.value_length_mla" + end)) for kind, end in ((False, ""), (True, "_swa"))}
    config = transformers.models.dots3_note.Dots3NoteTextConfig(
        **shape(w, key) | {"num_attention_heads": heads[False], "num_key_value_heads": heads[False]}, intermediate_size=key("feed_forward_length"), pad_token_id=0,
        moe_intermediate_size=key("expert_feed_forward_length"), moe_shared_expert_intermediate_size=key("expert_feed_forward_length"), n_routed_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), first_k_dense_replace=key("leading_dense_block_count"), q_lora_rank=rank, kv_lora_rank=key("attention.kv_lora_rank"),
        qk_rope_head_dim=turned, qk_nope_head_dim=length[False][0] - turned, head_dim=length[False][0], v_head_dim=length[False][1],
        sliding_window_size=key("attention.sliding_window"), layer_types=["sliding_attention" if x else "full_attention" for x in near], use_dsa=True,
        swa_num_attention_heads=heads[True], swa_num_key_value_heads=heads[True], swa_q_lora_rank=rank, swa_kv_lora_rank=key("attention.kv_lora_rank_swa"),
        swa_head_dim=length[True][0], swa_qk_nope_head_dim=length[True][0] - turned, swa_v_head_dim=length[True][1], swa_rope_theta=50000.0, rope_theta=80000000.0,
        routed_scaling_factor=float(gguf.GGUFReader(path).fields["dots3note.expert_weights_scale"].parts[-1][0]),
        index_topk=key("attention.indexer.top_k"), index_head_dim=key("attention.indexer.key_length"), index_n_heads=key("attention.indexer.head_count"))
    own = {"attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_layernorm", "attn_q_b": "q_b_proj", "attn_kv_a_mqa": "kv_a_proj_with_mqa", "attn_kv_a_norm": "kv_a_layernorm",
           "attn_k_norm": "k_rope_only_layernorm", "attn_gate": "g_proj", "indexer.attn_q_b": "indexer.wq_b", "indexer.attn_k": "indexer.wk", "indexer.k_norm": "indexer.k_norm",
           "indexer.proj": "indexer.weights_proj"}
    parts = ATTENTION | FEED_FORWARD | BY_SIGMOID | {"ffn_norm": "post_attention_layernorm"} | {ours: "self_attn." + theirs for ours, theirs in own.items()}
    return by_transformers(config, transformers.models.dots3_note.Dots3NoteForCausalLM, w, parts, keys_and_values)


def mellum(path):
    """Layers with a window rotate by a base of their own, as transformers has it; llama.cpp rotates them by that of the others."""
    import transformers
    w, key = opened(path)
    kinds = {"full_attention": {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 8.0, "original_max_position_embeddings": 32},
             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    config = transformers.MellumConfig(
        **shape(w, key), head_dim=key("attention.key_length"), moe_intermediate_size=key("expert_feed_forward_length"), num_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), sliding_window=key("attention.sliding_window"), layer_types=["sliding_attention"] * 3 + ["full_attention"], rope_parameters=kinds)
    parts = ATTENTION | {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate"}
    return by_transformers(config, transformers.MellumForCausalLM, w, parts, gate_above_up)


def minimax_m3(path):
    """Its own choice of blocks. Norms are stored without the one that is added to their weights."""
    import transformers
    w, key = opened(path)
    w = {name: value - 1 if name.endswith("norm.weight") else value for name, value in w.items()}
    layers, dense, turned = key("block_count"), key("leading_dense_block_count"), key("rope.dimension_count")
    module = transformers.models.minimax_m3_vl
    config = module.configuration_minimax_m3_vl.MiniMaxM3VLTextConfig(
        **shape(w, key), head_dim=key("attention.key_length"), intermediate_size=key("expert_feed_forward_length"), dense_intermediate_size=key("feed_forward_length"),
        shared_intermediate_size=key("expert_feed_forward_length"), num_local_experts=key("expert_count"), num_experts_per_tok=key("expert_used_count"), rotary_dim=turned,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": turned / key("attention.key_length")},
        index_n_heads=key("attention.indexer.head_count"), index_head_dim=key("attention.indexer.key_length"), index_block_size=key("attention.indexer.block_size"),
        index_topk_blocks=key("attention.indexer.top_k"), index_local_blocks=key("attention.indexer.local_blocks"),
        layer_types=["full_attention"] * dense + ["minimax_m3_sparse"] * (layers - dense), mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense))
    parts = ATTENTION | BY_SIGMOID | {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
                                      "ffn_down": "mlp.down_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj"}
    parts |= {f"indexer.{name}": f"self_attn.indexer.{name}" for name in ("q_proj", "k_proj", "q_norm", "k_norm")}

    def stacked(w, b):
        both = {theirs: [w.get(f"{b}ffn_{name}{ours}.weight") for name in ("gate", "up")] for ours, theirs in (("", ""), ("_shexp", "shared_experts."))}
        return gate_above_up(w, b) | {f"mlp.{theirs}gate_up_proj.weight": np.concatenate(x) for theirs, x in both.items() if x[0] is not None}
    return by_transformers(config, module.modeling_minimax_m3_vl.MiniMaxM3VLForCausalLM, w, parts, stacked)


def minimax_01(path):
    """All of a head rotates there, whatever the share; the norm of lightning attention has an epsilon of its own, for which llama.cpp takes that of the others."""
    import transformers
    w, key = opened(path)
    layers = key("block_count")
    kinds = ["linear_attention" if f"blk.{i}.attn_norm_2.weight" in w else "full_attention" for i in range(layers)]
    alpha = float(gguf.GGUFReader(path).fields["minimax-01.residual_scale"].parts[-1][0])
    config = transformers.MiniMaxConfig(
        **shape(w, key), head_dim=key("attention.key_length"), intermediate_size=key("expert_feed_forward_length"), num_local_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), layer_types=kinds, rope_parameters={"rope_type": "default", "rope_theta": 10000000.0}, block_size=16,
        full_attn_alpha_factor=alpha, linear_attn_alpha_factor=alpha, mlp_alpha_factor=alpha)
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate"}
    names = {True: {"qkv": "qkv_proj", "gate": "output_gate", "norm_2": "norm", "output": "out_proj"}, False: {"q": "q_proj", "k": "k_proj", "v": "v_proj", "output": "o_proj"}}

    def more(w, b):
        kind = names[b + "attn_norm_2.weight" in w]
        return gate_above_up(w, b) | {f"self_attn.{theirs}.weight": w[f"{b}attn_{ours}.weight"] for ours, theirs in kind.items()}
    return by_transformers(config, transformers.MiniMaxForCausalLM, w, parts, more)


def deepseek4(path):
    """All of it. llama.cpp says the same (KL 3e-6) of shapes that it can run: heads of an indexer as long as a power of two. What clamps and YaRN's factor are is that of the family."""
    import transformers
    w, key = opened(path)
    turned, layers, by_token = key("rope.dimension_count"), key("block_count"), key("hash_layer_count")
    rotates = {"partial_rotary_factor": turned / key("attention.key_length")}
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    ratios = [int(gguf.GGUFReader(path).fields["deepseek4.attention.compress_ratios"].parts[i][0]) for i in gguf.GGUFReader(path).fields["deepseek4.attention.compress_ratios"].data]
    config = transformers.DeepseekV4Config(
        **shape(w, key), head_dim=key("attention.key_length"), moe_intermediate_size=key("expert_feed_forward_length"), n_routed_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), q_lora_rank=key("attention.q_lora_rank"), o_groups=key("attention.output_group_count"),
        o_lora_rank=key("attention.output_lora_rank"), index_topk=key("attention.indexer.top_k"), index_head_dim=key("attention.indexer.key_length"),
        index_n_heads=key("attention.indexer.head_count"), sliding_window=key("attention.sliding_window"), hc_mult=key("hyper_connection.count"),
        hc_sinkhorn_iters=key("hyper_connection.sinkhorn_iterations"), swiglu_limit=0.7, layer_types=[kinds[r] for r in ratios],
        mlp_layer_types=["hash_moe"] * by_token + ["moe"] * (layers - by_token), **rotates, rope_parameters={
            "main": {"rope_type": "default", "rope_theta": 10000.0, **rotates},
            "compress": {"rope_type": "yarn", "rope_theta": 160000.0, "factor": 8.0, "original_max_position_embeddings": 32, "attention_factor": 1.0, **rotates}})
    own = {"attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_norm", "attn_q_b": "q_b_proj", "attn_kv": "kv_proj", "attn_kv_a_norm": "kv_norm", "attn_sinks.weight": "sinks",
           "attn_output_a": "o_a_proj", "attn_output_b": "o_b_proj", "indexer.proj": "compressor.indexer.scorer.weights_proj", "indexer.attn_q_b": "compressor.indexer.q_b_proj"}
    for ours, theirs in (("attn", "compressor"), ("indexer", "compressor.indexer")):
        own |= {f"{ours}_compressor_{name}": f"{theirs}.{to}" for name, to in (("kv", "kv_proj"), ("gate", "gate_proj"), ("ape.weight", "position_bias"), ("norm", "kv_norm"))}
    parts = ATTENTION | FEED_FORWARD | BY_SIGMOID | {ours: "self_attn." + theirs for ours, theirs in own.items()} | {"ffn_norm": "post_attention_layernorm"}
    parts |= {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias", "ffn_gate_tid2eid.weight": "mlp.gate.tid2eid"}
    parts |= {f"hc_{ours}_{name}.weight": f"{ours}_hc.{name}" for ours in ("attn", "ffn") for name in ("fn", "base", "scale")}
    ends = {f"model.hc_head.hc_{name}": w[f"output_hc_{name}.weight"] for name in ("fn", "base", "scale")}
    return by_transformers(config, transformers.DeepseekV4ForCausalLM, w, parts, gate_above_up, ends)


def grovemoe(path):
    """Its authors' definition; llama.cpp gives the small experts what the others return, and weights of other experts."""
    w, number = opened(path)
    layers, heads, kv, used, group = (number(key) for key in ("block_count", "attention.head_count", "attention.head_count_kv", "expert_used_count", "experts_per_group"))
    scale = float(gguf.GGUFReader(path).fields["grovemoe.expert_group_scale"].parts[-1][0])

    def normed_heads(x, b):
        q = {name: (x @ w[f"{b}attn_{name}.weight"].T).reshape(len(x), n, -1) for name, n in (("q", heads), ("k", kv), ("v", kv))}
        q["q"], q["k"] = (turn_halves(rms(q[name], w[f"{b}attn_{name}_norm.weight"])) for name in "qk")
        return q["q"], q["k"], q["v"]

    def through(row, b, end, i):
        return w[f"{b}ffn_down_{end}.weight"][i] @ (silu(w[f"{b}ffn_gate_{end}.weight"][i] @ row) * (w[f"{b}ffn_up_{end}.weight"][i] @ row))

    def mixture(x, b):
        out = np.zeros_like(x)
        for t, row in enumerate(x):
            e = np.exp(w[b + "ffn_gate_inp.weight"] @ row)
            best = np.argsort(-e, kind="stable")[:used]
            for i in best:
                out[t] += e[i] / e[best].sum() * (through(row, b, "exps", i) + scale * through(row, b, "chexps", i // group))
        return out

    def logits(ids):
        x = w["token_embd.weight"][ids]
        for i in range(layers):
            b = f"blk.{i}."
            q, k, v = normed_heads(rms(x, w[b + "attn_norm.weight"]), b)
            x = x + attended(q, k, v).reshape(len(x), -1) @ w[b + "attn_output.weight"].T
            x = x + mixture(rms(x, w[b + "ffn_norm.weight"]), b)
        return rms(x, w["output_norm.weight"]) @ w["output.weight"].T
    return logits


def in_halves(x, heads):
    """Rows of heads whose neighbours turn together, in the order in which halves do."""
    return x.reshape(heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def chameleon(path):
    """llama.cpp says something else where norms come behind attention and feed-forward."""
    import transformers
    w, key = opened(path)
    vocabulary = {"<image>": 3, **{f"IMGIMG{i:04}Z": i for i in range(4, 8196)}}
    config = transformers.ChameleonConfig(**shape(w, key), intermediate_size=key("feed_forward_length"), swin_norm=True, vocabulary_map=vocabulary)
    for name in list(w):
        for part, heads in (("attn_q", config.num_attention_heads), ("attn_k", config.num_key_value_heads)):
            if name.endswith(part + ".weight"):
                w[name] = in_halves(w[name], heads)
            if f".{part}_norm." in name:
                w[name] = in_halves(w[name].reshape(-1), heads).reshape(heads, -1)

    def model(config):
        made = transformers.ChameleonForConditionalGeneration(config)
        made.model.vqmodel = None
        return made
    parts = ATTENTION | FEED_FORWARD | {"ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    return by_transformers(config, model, w, parts, lambda *_: {})


def qwen4exp(path):
    """Its own choice of positions: llama.cpp reads more of another block if the last one lacks positions. Heads of values and of keys are as many, so that none are in another order."""
    import transformers
    w, key = opened(path)
    listed = lambda name: [x.item() for x in np.array(gguf.GGUFReader(path).fields[f"qwen4exp.{name}"].contents()).reshape(-1)]
    recurrent, at, turned, n = listed("attention.recurrent_layers"), listed("ple.layers")[0], key("rope.dimension_count"), key("ple.ngram_size")
    module = transformers.models.qwen4_exp
    config = module.configuration_qwen4_exp.Qwen4ExpTextConfig(
        **shape(w, key), head_dim=key("attention.key_length"), linear_conv_kernel_dim=key("ssm.conv_kernel"), linear_key_head_dim=key("ssm.state_size"),
        linear_value_head_dim=key("ssm.state_size"), linear_num_key_heads=key("ssm.group_count"), linear_num_value_heads=key("ssm.time_step_rank"), output_gate_type="sigmoid",
        moe_intermediate_size=key("expert_feed_forward_length"), shared_expert_intermediate_size=key("expert_shared_feed_forward_length"), num_experts=key("expert_count"),
        num_experts_per_tok=key("expert_used_count"), hc_count=key("hyper_connection.count"), hc_lowrank=key("hyper_connection.low_rank"), ple_layer_ids=[at + 1], ngram_size=n,
        ple_embed_dim=key("embedding_length_per_layer_input") * len(listed("ple.head_offsets")), ple_conv_kernel_size=key("ple.conv_kernel"), heads_per_ngram=key("ple.heads_per_ngram"),
        ngram_vocab_size_base=40, make_ngram_vocab_size_divisible_by=16, eos_token_id=key("ple.eos_token_id"), indexer_n_heads=key("attention.indexer.head_count"), indexer_kv_heads=1,
        indexer_head_dim=key("attention.indexer.key_length"), indexer_budget=key("attention.indexer.top_k"), indexer_compress_ratio=max(listed("attention.compress_ratios")),
        layer_types=["linear_attention" if x else "indexed_attention" for x in recurrent],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": turned / key("attention.key_length"), "mrope_section": [6, 5, 5], "mrope_interleaved": True})
    w = {name: value - 1 if "norm" in name and "ssm_norm" not in name else value for name, value in w.items()}
    parts = {f"attn_{name}": f"self_attn.{name}_proj" for name in "qkv"} | {"attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
        "indexer.q_norm": "self_attn.indexer.q_layernorm", "indexer.k_norm": "self_attn.indexer.k_layernorm", "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
        "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a", "ssm_dt.bias": "linear_attn.dt_bias", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
        "ffn_gate_inp": "mlp.gate"} | {f"ffn_{name}_shexp": f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")}
    hyper = {"norm": "hc_norm", "down": "input_mix_weight_down", "up": "input_mix_weight_up", "inject": "block_inject_weight"}
    parts |= {f"hc_{ours}_{name}": f"{theirs}_hyper_connection.{to}" for ours, theirs in (("attn", "attn"), ("ffn", "mlp")) for name, to in hyper.items()}
    parts |= {f"ple_{name}": f"ple.{name}_proj" for name in ("key", "value")} | {f"ple_norm_{name}": f"ple.norm_{name}" for name in ("key", "query", "conv")}

    def more(w, b):
        made = gate_above_up(w, b) | {"mlp.shared_expert_gate.weight": w[b + "ffn_gate_inp_shexp.weight"].reshape(1, -1)}
        if b + "ssm_a" in w:
            made |= {"linear_attn.A_log": np.log(-w[b + "ssm_a"]), "linear_attn.conv1d.weight": w[b + "ssm_conv1d.weight"][:, None]}
        else:
            made["self_attn.indexer.index_qk_proj.weight"] = np.concatenate([w[f"{b}indexer.{name}_proj.weight"] for name in "qk"])
        return made

    table, b = f"model.layers.{at}.ple.", f"blk.{at}."
    ends = {f"model.hyper_connection_mixer.{to}.weight": w[f"output_hc_{name}.weight"] for name, to in hyper.items() if name != "inject"}
    ends |= {table + "conv1d.weight": w[b + "ple_conv1d.weight"][:, None], table + "ple_embedding.ngram_embedding.weight": w["per_layer_token_embd.weight"]}
    numbers = {"layer_multipliers": "layer_multipliers", "ngram_heads_offsets": "head_offsets", "ngram_heads_vocab_sizes": "head_vocab_sizes"}
    ends |= {f"{table}ple_embedding.{to}": np.array(listed(f"ple.{name}"), np.int64) for to, name in numbers.items()}
    return by_transformers(config, module.modeling_qwen4_exp.Qwen4ExpForCausalLM, w, parts, more, ends)


REFERENCES = {"dots3note-sparse": dots3note, "minimax-01-whole": minimax_01, "grovemoe": grovemoe, "chameleon-post": chameleon, "deepseek4": deepseek4, "minimax-m3-blocks": minimax_m3, "mellum-bases": mellum, "gpt-oss-openai": gpt_oss, "afmoe-unsaid": afmoe, "solar-open": solar_open, "glm-dsa-heads": glm_dsa, "phimoe": phimoe, "gptj": gptj, "refact": refact,
              "qwen35moe": qwen35, "qwen4exp": qwen4exp}
