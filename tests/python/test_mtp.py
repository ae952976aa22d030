"""The block that predicts a further token (MTP): what it computes, and that guesses of it change nothing but how soon tokens come.

What it computes is checked against a model of one layer: the block as the only layer of a file whose embedding has, for each position, what the
block reads there, computed here.
"""
import concurrent.futures as futures
import json
import sqlite3
import subprocess

import gguf
import numpy as np
import pytest
from conftest import same_text_with_drafts
from test_serve import start

THREADS = 1

IDS = [6, 17, 40, 41, 300, 2, 9, 77, 12, 500, 33, 8]
FAMILIES = ["glm4moe", "glm4moe-bare", "deepseek2-groups", "glm4", "deepseek32", "glm-dsa", "qwen35", "qwen35moe", "qwen3next", "hy_v3",
            "cohere2moe", "bailingmoe3", "step35", "mimo2"]
# Of a file of the block alone: the layer is what the block is
ALONE = {"full_attention_interval": 1}
BARE = {"step35", "mimo2"}                         # whose blocks read what the last norm has not seen yet
CENTRED = {"cohere2moe"}                           # whose norms subtract the mean
WINDOWS = {"cohere2moe": 4}                        # of layers: fewer than the tokens here

@pytest.fixture(scope="module")
def mtp_tool(built_tool, weft_env):
    tool = built_tool("mtp_tool", "WEFT_MTP_TOOL")

    def run(path, what, ids, *more):
        done = subprocess.run([tool, path, what, ",".join(map(str, ids)), *map(str, more)], env=weft_env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [list(map(float, line.split())) for line in done.stdout.splitlines()]
    return run


def tensors(path):
    return {t.name: t.data for t in gguf.GGUFReader(path).tensors}


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def centred(x, weight):
    return rms(x - x.mean(-1, keepdims=True), weight)


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).view(np.float32)


def read_there(w, layer, before, ids, normed=rms):
    """What the block's layer reads at each position, where `before` is what left the model one position before."""
    b = f"blk.{layer}.nextn."
    before = bf16(before)
    e = w.get(b + "embed_tokens.weight", w["token_embd.weight"])[ids]
    both = np.concatenate([normed(e, w[b + "enorm.weight"]), normed(before, w[b + "hnorm.weight"])], 1)
    return both @ w[b + "eh_proj.weight"].T


def head_of(w, layer):
    return w.get(f"blk.{layer}.nextn.shared_head_head.weight", w.get("output.weight", w["token_embd.weight"]))


def as_a_model(make_model, name, path, w, layer, x):
    """A file of the block alone."""
    p = make_model.FAMILIES[name]
    p = {**make_model.listed(p, lambda v: [v[p.get("mtp_like", 0)]]), "layers": 1}
    alone = {**ALONE, "leading_dense_block_count": int(p.get("mtp_dense", False))}
    p["keys"] = {key: alone.get(key, value) for key, value in p.get("keys", {}).items()
                 if not key.startswith(("ssm.", "kda.head")) and not (p.get("mtp_dense") and key.startswith("expert_"))}
    if name in WINDOWS:                            # as the block, which a first layer with none is not: it turns, and sees everything
        p["keys"] |= {"attention.sliding_window_pattern": [True], "attention.sliding_window": 64}
    m = make_model.Model(path, p["arch"], p)
    make_model.keys(m)
    m.vocabulary()
    table = np.zeros_like(w["token_embd.weight"])
    table[:len(x)] = x
    b = f"blk.{layer}."
    m.put("token_embd.weight", table)
    m.put("output_norm.weight", w.get(b + "nextn.shared_head_norm.weight", w["output_norm.weight"]))
    m.put("output.weight", head_of(w, layer))
    for name, data in w.items():
        if name.startswith(b) and not name.startswith(b + "nextn."):
            m.put("blk.0." + name.removeprefix(b), data)
    m.close()


@pytest.mark.parametrize("own", ["own", True], ids=["its own", "shared"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_it_computes(mtp_tool, built_tool, weft_env, make_model, tmp_path, name, own):
    path, alone, layer = tmp_path / "whole.gguf", tmp_path / "alone.gguf", make_model.FAMILIES[name]["layers"]
    narrow = {"keys": {**make_model.FAMILIES[name]["keys"], "attention.sliding_window": WINDOWS[name]}} if name in WINDOWS else {}
    make_model.write(name, path, mtp=own, **narrow)
    w, hidden, normed = tensors(path), np.array(mtp_tool(path, "hidden", IDS), np.float32), centred if name in CENTRED else rms
    if name in BARE:                               # but for its length, which the block's own norm takes away
        hidden = hidden / w["output_norm.weight"]
    x = read_there(w, layer, np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]]), IDS, normed)
    as_a_model(make_model, name, alone, w, layer, x)
    made = np.array(mtp_tool(alone, "hidden", range(len(IDS))), np.float32)         # what it goes on from where it is asked again
    if name in BARE:
        made = made / w.get(f"blk.{layer}.nextn.shared_head_norm.weight", w["output_norm.weight"])
    as_a_model(make_model, name, alone, w, layer, np.concatenate([x, read_there(w, layer, made[-1:], IDS[:1], normed)]))
    lines = "".join(f"{i} {i}\n" for i in range(len(IDS) + 1))
    done = subprocess.run([built_tool("decode_tool", "WEFT_DECODE_TOOL"), alone, "64", "0"], input=lines, env=weft_env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = np.array([list(map(float, line.split())) for line in done.stdout.splitlines()])[1:]
    got = np.array(mtp_tool(path, "logits", IDS))
    assert np.abs(expected).max() > 1 and np.abs(got - expected).max() < 2e-2, np.abs(got - expected).max(1)


def test_attention_then_experts(mtp_tool, make_model, tmp_path):
    """nemotron_h_moe: the block has both parts, of which a layer has one, and the norm before its head subtracts the mean."""
    name, path, alone = "nemotron_h_moe", tmp_path / "whole.gguf", tmp_path / "alone.gguf"
    layer = make_model.FAMILIES[name]["layers"]
    make_model.write(name, path, mtp="own")
    w, hidden = tensors(path), np.array(mtp_tool(path, "hidden", IDS), np.float32)
    x = read_there(w, layer, np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]]), IDS)
    b = f"blk.{layer}."
    two = {n.replace(b, "blk.1." if "ffn" in n or "exp_probs" in n else "blk.0."): data for n, data in w.items() if n.startswith(b) and ".nextn." not in n}
    two["blk.1.attn_norm.weight"] = two.pop("blk.0.post_attention_norm.weight")

    def centred_hidden(x):
        p = {**make_model.FAMILIES[name], "layers": 2, "kv": [2, 0], "ffn": [0, 96]}
        p["keys"] = {key: value for key, value in p["keys"].items() if not key.startswith("ssm.")}
        m = make_model.Model(alone, p["arch"], p)
        make_model.keys(m)
        m.vocabulary()
        table = np.zeros_like(w["token_embd.weight"])
        table[:len(x)] = x
        for n, data in {"token_embd.weight": table, "output_norm.weight": np.ones_like(w["output_norm.weight"]), "output.weight": w["output.weight"], **two}.items():
            m.put(n, data)
        m.close()
        return centred(np.array(mtp_tool(alone, "hidden", range(len(x))), np.float32), w[b + "nextn.shared_head_norm.weight"])
    made = centred_hidden(x)
    made = centred_hidden(np.concatenate([x, read_there(w, layer, made[-1:], IDS[:1])]))
    expected, got = (made @ head_of(w, layer).T)[1:], np.array(mtp_tool(path, "logits", IDS))
    assert np.abs(expected).max() > 2 and np.abs(got - expected).max() < 2e-2, np.abs(got - expected).max(1)


def right(small):
    """Types for make_model: weights by which the token alone says what comes next, nearly, and the block says the same."""
    def weights(name, x):
        if any(part in name for part in ("attn_output", "ffn_down", "ssm_out")):
            x = x * small
        if "eh_proj" in name:
            x = np.eye(*x.shape)
        if name == "output.weight":
            x = x * 4
        return gguf.GGMLQuantizationType.F32, np.ascontiguousarray(x, np.float32)
    return weights


@pytest.fixture(scope="module")
def foresees(make_model, tmp_path_factory):
    """path of a model whose block is mostly right."""
    folder = tmp_path_factory.mktemp("right")

    def find(name):
        path = folder / f"{name}.gguf"
        if not path.exists():
            make_model.write(name, path, mtp=True, quant=right(0.02), n_ctx=4096)
            make_model.write(name, folder / f"{name}-without.gguf", quant=right(0.02), n_ctx=4096)
        return path
    return find


@pytest.mark.parametrize("name", ["glm4moe", "deepseek2-groups", "qwen35", "qwen35moe"])
def test_logits_are_the_same(mtp_tool, foresees, make_model, tmp_path, name):
    (guessed, taken), *two = mtp_tool(foresees(name), "ahead", IDS, 80)
    assert 0 < guessed / 4 < taken <= guessed and all(0 < right < guesses for guesses, right in two)
    wrong = tmp_path / "wrong.gguf"
    make_model.write(name, wrong, mtp="own")
    (guessed, taken), *_ = mtp_tool(wrong, "ahead", IDS, 80)
    assert guessed > 100 and taken < guessed / 20


@pytest.mark.parametrize("how", [["--temp", "0"], ["--temp", "1.2", "-s", "7"]], ids=["greedy", "drawn"])
def test_tokens_are_the_same(run_weft, foresees, tmp_path, how):
    args = ["run", foresees("glm4moe"), "--ids", "5,17,40,41", "-n", "3000", "--ignore-eos", "-q", "--json", "--top-logprobs", "2", *how]
    plain = run_weft([*args, "--no-speculation"])
    assert plain.returncode == 0 and len(plain.stdout) > 1000
    same_text_with_drafts(run_weft, [*args, "--stats", tmp_path / "s"], plain.stdout)


def test_served(weft, weft_env, foresees):
    """The same answers as of the same weights without the block, one by one and several at once."""
    path = foresees("glm4moe")
    asks = [{"prompt": [i + 5, 17, 40], "n_predict": 110, "seed": i, "temperature": 1.2 * (i % 2), "ignore_eos": True, "n_probs": 1} for i in range(4)]
    what = lambda got: (got["content"], got["completion_probabilities"])
    with start(weft, weft_env, path.with_name("glm4moe-without.gguf")) as s:
        plain = [what(s.ask("/completion", a)[1]) for a in asks]
        assert s.metric("weft:draft_seconds_total") == 0
    with start(weft, weft_env, path, "--draft-always") as s:
        ask = lambda a: s.ask("/completion", a)[1]
        alone = [ask(a) for a in asks]
        assert [what(got) for got in alone] == plain
        assert sum(got["timings"].get("draft_n_accepted", 0) for got in alone) > 0
        assert s.metric("weft:draft_seconds_total") > 0
        with futures.ThreadPoolExecutor(4) as pool:
            assert [what(got) for got in pool.map(ask, asks)] == plain
    with start(weft, weft_env, path, "--no-speculation", "--draft-always") as s:
        got = s.ask("/completion", asks[0])[1]
        assert what(got) == plain[0] and not got["timings"].get("draft_n") and s.metric("weft:draft_seconds_total") == 0


@pytest.mark.parametrize("args", [["-np", "1"], ["-ub", "4"]], ids=["one answer", "few rows"])
@pytest.mark.parametrize("name", ["glm4moe", "qwen35"])
def test_plans_of_guesses_are_there_first(weft, weft_env, foresees, tmp_path, name, args):
    """Without the block: the text repeats itself. A step has no more rows than a chunk has positions."""
    path, ask = foresees(name).with_name(f"{name}-without.gguf"), {"prompt": [5, 17, 40], "temperature": 0, "ignore_eos": True}
    kernels = lambda: sqlite3.connect(next(tmp_path.rglob("*.db"))).execute("SELECT count(*) FROM kernel").fetchone()
    for more in ["--no-speculation"], ["--draft-always"]:
        with start(weft, {**weft_env, "WEFT_CACHE": str(tmp_path)}, path, *args, *more) as s:
            s.ask("/completion", {**ask, "n_predict": 1})
            before = kernels()

            def answer():
                status, got = s.ask("/completion", {**ask, "n_predict": 400})
                assert status == 200 and got["tokens_predicted"] == 400
                return got["content"], got["timings"].get("draft_n_accepted")

            text, n = answer()
            if more == ["--no-speculation"]:
                plain = text
                assert not n
            else:
                assert text == plain and n
            assert before > (0,) and kernels() == before


def test_a_chat(run_weft, foresees):
    args = ["chat", "-m", foresees("glm4moe"), "--simple-io", "--chat-template", "chatml", "-n", "400", "-s", "1", "--temp", "0.3", "-c", "2000"]
    lines = "a b c\nd e\n/regen\n"
    want = run_weft([*args, "--no-speculation"], input=lines)
    assert want.returncode == 0 and want.stdout

    for always in [], ["--draft-always"]:
        done = run_weft([*args, "-v", *always], input=lines)
        assert done.returncode == 0 and done.stdout == want.stdout
    assert "the model's own block for that has proposed" in done.err


def test_inspect_shows_it(run_weft, foresees):
    path = foresees("glm4moe")
    assert "\ncan run\ndrafts further tokens (MTP) by block 3, if that pays\n" in run_weft(["inspect", path]).out
    assert json.loads(run_weft(["inspect", path, "--json"]).out)["mtp_block"] == 3
    without = path.with_name("glm4moe-without.gguf")
    assert "MTP" not in run_weft(["inspect", without]).out and json.loads(run_weft(["inspect", without, "--json"]).out)["mtp_block"] is None


@pytest.mark.parametrize("name, change, text", [
    ("eh_proj", None, "tensor 'blk.3.nextn.eh_proj.weight' is missing"),
    ("enorm", None, "tensor 'blk.3.nextn.enorm.weight' is missing"),
    ("hnorm", None, "tensor 'blk.3.nextn.hnorm.weight' is missing"),
    ("eh_proj", lambda x: x[:, :256], "tensor 'blk.3.nextn.eh_proj.weight' has shape {256, 256, 1, 1}, expected {512, 256}"),
    ("shared_head_norm", lambda x: x[:128], "tensor 'blk.3.nextn.shared_head_norm.weight' has shape {128, 1, 1, 1}, expected {256, 1}"),
    ("shared_head_head", lambda x: x[:500], "tensor 'blk.3.nextn.shared_head_head.weight' has shape {256, 500, 1, 1}, expected {256, 509}"),
    ("embed_tokens", lambda x: x[:, :64], "tensor 'blk.3.nextn.embed_tokens.weight' has shape {64, 509, 1, 1}, expected {256, 509}"),
    ("attn_q", None, "tensor 'blk.3.attn_q.weight' is missing"),
    ("ffn_up_exps", None, "tensor 'blk.3.ffn_up_exps.weight' is missing"),
])
def test_what_is_wrong_is_named(run_weft, make_model, tmp_path, monkeypatch, name, change, text):
    path, put = tmp_path / "bad.gguf", gguf.GGUFWriter.add_tensor

    def add_tensor(self, full, data, **more):
        if full not in (f"blk.3.nextn.{name}.weight", f"blk.3.{name}.weight"):
            put(self, full, data, **more)
        elif change:
            put(self, full, np.ascontiguousarray(change(data)))
    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", add_tensor)
    make_model.write("glm4moe", path, mtp="own")
    for command in ["inspect", path], ["run", path, "--ids", "1", "-n", "1"], ["run", path, "--ids", "1", "-n", "1", "--no-speculation"]:
        done = run_weft(command)
        assert text in (done.out if command[0] == "inspect" else done.err) and "bad.gguf" in done.out + done.err, done.err


def test_blocks_without_it_are_left_out(run_weft, make_model, tmp_path, monkeypatch):
    """A block behind the last layer that is nothing but a layer."""
    put, args = gguf.GGUFWriter.add_tensor, ["--ids", "5,17,40", "-n", "4", "--temp", "0", "--ignore-eos"]
    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", lambda self, name, *data, **more: None if ".nextn." in name else put(self, name, *data, **more))
    make_model.write("glm4moe", tmp_path / "layer.gguf", mtp=True)
    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", put)
    make_model.write("glm4moe", tmp_path / "plain.gguf")
    plain, layer = (run_weft(["run", tmp_path / f"{name}.gguf", *args]) for name in ("plain", "layer"))
    assert plain.returncode == layer.returncode == 0 and plain.stdout == layer.stdout
    assert "MTP" not in run_weft(["inspect", tmp_path / "layer.gguf"]).out
