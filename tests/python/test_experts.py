"""Files of the same weights in other clothes: they must give the same answers.

Gate and up of all experts as one tensor, the matrices of latent attention per head or as older files have them together, and blocks that
predict further tokens, which are left out.
"""
import pytest

from test_families import forced

PROMPT, TOKENS = [5, 17, 40, 41, 300, 2, 9, 77, 12, 500], [301, 302, 9, 77]


def answers(run_weft, make_model, path, name, **changes):
    make_model.write(name, path, **changes)
    return forced(run_weft, path, {"n_ctx": 64}, PROMPT, TOKENS)


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
