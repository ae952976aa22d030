"""Files of the same weights in other clothes: they must give the same answers.

Gate and up of all experts as one tensor, the matrices of latent attention per head or as older files have them together, and blocks that
predict further tokens, which are left out.  And latent attention as it is defined, with keys and values of every head: the same answers again.
"""
import gguf
import numpy as np
import pytest

from test_families import forced

THREADS = 1

PROMPT, TOKENS = [5, 17, 40, 41, 300, 2, 9, 77, 12, 500], [301, 302, 9, 77]
EXACT = 3e-4            # of a log-probability: sums of floats, and now and then a cached half that rounds the other way


def answers(run_weft, make_model, path, name, *options, **changes):
    make_model.write(name, path, **changes)
    return forced(run_weft, path, {"n_ctx": 64}, PROMPT, TOKENS, *options)


def furthest(a, b):
    return max(abs(x[t] - y[t]) for x, y in zip(a, b, strict=True) for t in x)


def test_gate_and_up_as_one_tensor(run_weft, make_model, tmp_path):
    two = answers(run_weft, make_model, tmp_path / "two.gguf", "mixtral")
    assert furthest(two, answers(run_weft, make_model, tmp_path / "one.gguf", "mixtral", one_matrix=True)) <= 1e-4


def test_heads_together_as_older_files_have_them(run_weft, make_model, tmp_path):
    shape = dict(heads=6, nope=96, turned=32, v=48, latent=160, q_rank=96)
    experts = {k: v for k, v in make_model.FAMILIES["deepseek2-groups"]["keys"].items() if k.startswith("expert")}
    answer = [answers(run_weft, make_model, tmp_path / f"{legacy}.gguf", "deepseek2-groups", **make_model.mla(legacy=legacy, **shape, **experts)) for legacy in (False, True)]
    assert furthest(*answer) <= 1e-3


def naive(path, shape, ids):
    """Log-probabilities behind every position, in doubles: each head's keys and values are made, nothing is absorbed. What the cache holds is rounded as it is there."""
    w = {t.name: t.data.astype(np.float64) for t in gguf.GGUFReader(path).tensors}
    heads, nope, turned, v, latent = (shape[k] for k in ("heads", "nope", "turned", "v", "latent"))
    n = len(ids)
    rms = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"]
    stored = lambda x: x.astype(np.float16).astype(np.float64)

    def turn(x):                                        # {n, heads, turned}: neighbours by position / 10000^(2i / turned)
        angle = np.arange(n)[:, None, None] * 1e4 ** (-np.arange(0, turned, 2) / turned)
        even, odd, cos, sin = x[..., ::2], x[..., 1::2], np.cos(angle), np.sin(angle)
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    x = w["token_embd.weight"][ids]
    for i in range(2):
        b = f"blk.{i}."
        h = rms(x, b + "attn_norm")
        q = (rms(h @ w[b + "attn_q_a.weight"].T, b + "attn_q_a_norm") @ w[b + "attn_q_b.weight"].T).reshape(n, heads, nope + turned)
        kv = h @ w[b + "attn_kv_a_mqa.weight"].T
        c, k_pe = stored(rms(kv[:, :latent], b + "attn_kv_a_norm")), stored(turn(kv[:, None, latent:]))
        k, values = np.split((c @ w[b + "attn_kv_b.weight"].T).reshape(n, heads, nope + v), [nope], 2)
        s = np.einsum("thd,shd->hts", np.concatenate([q[..., :nope], turn(q[..., nope:])], 2), np.concatenate([k, np.repeat(k_pe, heads, 1)], 2))
        s = np.where(np.tri(n, dtype=bool), s / np.sqrt(nope + turned), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), values)
        x = x + o.reshape(n, heads * v) @ w[b + "attn_output.weight"].T
        h = rms(x, b + "ffn_norm")
        gate = h @ w[b + "ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[b + "ffn_up.weight"].T)) @ w[b + "ffn_down.weight"].T
    logits = rms(x, "output_norm") @ w["output.weight"].T
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_absorbed_attention_is_latent_attention(run_weft, make_model, tmp_path):
    shape = dict(heads=5, nope=64, turned=32, v=48, latent=96, q_rank=64, leading_dense_block_count=2)
    got = {legacy: answers(run_weft, make_model, tmp_path / f"{legacy}.gguf", "deepseek2-groups", "--precision", "exact",
                           **{"experts": 0, **make_model.mla(legacy=legacy, **shape), "mix": "ll", "layers": 2, "dense": 2}) for legacy in (False, True)}
    rows = naive(tmp_path / "True.gguf", shape, PROMPT + TOKENS)[len(PROMPT) - 1:-1]
    expected = [dict(enumerate(row)) for row in rows]
    assert furthest(got[False], expected) <= EXACT and furthest(got[True], expected) <= EXACT


def test_further_tokens_are_left_out(run_weft, make_model, tmp_path):
    keys = make_model.FAMILIES["deepseek2-groups"]["keys"]
    plain = answers(run_weft, make_model, tmp_path / "plain.gguf", "deepseek2-groups")
    more = answers(run_weft, make_model, tmp_path / "more.gguf", "deepseek2-groups", layers=4, mix="llll", keys={**keys, "nextn_predict_layers": 1})
    assert furthest(plain, more) == 0


@pytest.mark.parametrize("change, text", [
    ({"expert_used_count": 13}, "expert_used_count"), ({"expert_count": 0}, "expert_count"), ({"expert_group_count": 5}, "expert_group_count"),
    ({"expert_gating_func": 9}, "expert_gating_func"), ({"attention.kv_lora_rank": 161}, "attn_kv_a_mqa"), ({"attention.key_length_mla": 20}, "key_length_mla"),
    ({"expert_feed_forward_length": 65}, "ffn_gate_exps"), ({"nextn_predict_layers": 3}, "nextn_predict_layers"), ({"expert_weights_scale": float("nan")}, "expert_weights_scale"),
])
def test_what_does_not_fit_is_named(run_weft, make_model, tmp_path, change, text):
    path = tmp_path / "bad.gguf"
    make_model.write("deepseek2-groups", path, keys={**make_model.FAMILIES["deepseek2-groups"]["keys"], **change})
    done = run_weft(["run", "-m", path, "--ids", "1,2", "-n", "1"])
    assert done.returncode == 1 and text in done.err and "bad.gguf" in done.err, done.err
