"""Draft files (EAGLE-3, DFlash, DSpark): what they compute, by a computation in 64-bit floats (make_draft.py), and that their drafts change nothing but how soon
tokens come.
"""
import concurrent.futures as futures
import re
import shutil
import subprocess

import gguf
import numpy as np
import pytest
from conftest import load_tool, same_text_with_drafts
from test_model_errors import without as file_without
from test_serve import start

THREADS = 1

make_draft = load_tool("make_draft")

IDS = [6, 17, 40, 41, 300, 2, 9, 77, 12, 500, 33, 8]


@pytest.fixture(scope="module")
def tool(built_tool, weft_env):
    path = built_tool("mtp_tool", "WEFT_MTP_TOOL")

    def run(target, draft, what, *more):
        done = subprocess.run([path, "-md", draft, target, what, ",".join(map(str, IDS)), *map(str, more)], env=weft_env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [list(map(float, line.split())) for line in done.stdout.splitlines()]
    return run


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("target", make_draft.TARGETS)
@pytest.mark.parametrize("name", make_draft.DRAFTS)
def test_what_it_computes(tool, tmp_path, name, target):
    model, draft = tmp_path / "model.gguf", tmp_path / "draft.gguf"
    make_draft.write_target(target, model)
    make_draft.write(name, draft, target)
    of = make_draft.block if make_draft.DRAFTS[name]["arch"] == "dflash" else make_draft.chain
    want = of(draft, model, IDS)
    want = want.reshape(-1, want.shape[-1])
    got = np.array(tool(model, draft, "logits")).reshape(want.shape)
    there = np.isfinite(want)
    assert (np.isfinite(got) == there).all() and want[there].std() > 0.9
    p, q = (np.where(there, log_softmax(x), 0) for x in (want, got))
    assert (np.where(there, np.exp(p) * (p - q), 0).sum(-1) < 1e-4).all()


# Targets whose layers are of other kinds: recurrent ones, windows, experts, latent attention, learned positions, scaled embeddings, no attention
TARGETS = ["qwen35", "gemma3", "gpt-oss", "deepseek2-lite", "gpt2", "granitehybrid", "mamba2"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["eagle3", "dflash-causal", "dspark-bonus"])
def test_logits_are_the_same(tool, tmp_path, name, target):
    """Those of the model without a draft, to the bit, while tokens that are wrong are drafted."""
    make_draft.write_target(target, tmp_path / "model.gguf")
    make_draft.write(name, tmp_path / "draft.gguf", target)
    (drafted, taken), *_ = tool(tmp_path / "model.gguf", tmp_path / "draft.gguf", "ahead", 60)
    assert drafted > 100 and taken < drafted / 10


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """Paths of a model and of a draft file that is mostly right."""
    folder = tmp_path_factory.mktemp("steady")

    def find(name):
        model, draft = folder / "model.gguf", folder / f"{name}.gguf"
        if not model.exists():
            make_draft.write_target("llama", model, quant=make_draft.steady, n_ctx=4096)
        if not draft.exists():
            make_draft.write(name, draft, quant=make_draft.steady, n_ctx=4096)
        return model, draft
    return find


KINDS = ["eagle3-shared", "dflash", "dspark"]


@pytest.mark.parametrize("name", KINDS)
def test_right_drafts_are_taken(tool, steady, name):
    (drafted, taken), *_ = tool(*steady(name), "ahead", 80)
    assert 0 < drafted / 2 < taken <= drafted


# Without a penalty the greedy text is soon one token, which the text itself drafts.
@pytest.mark.parametrize("how", [["--temp", "0", "--repeat-penalty", "1.3"], ["--temp", "1", "-s", "7"]], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_the_same(run_weft, steady, tmp_path, name, how):
    model, draft = steady(name)
    args = ["run", model, "--ids", "5,17,40,41", "-n", "1500", "--ignore-eos", "-q", "--json", "--top-logprobs", "2", *how]
    plain = run_weft([*args, "--no-speculation", "-md", draft])
    assert plain.returncode == 0 and len(plain.stdout) > 1000
    same_text_with_drafts(run_weft, [*args, "-md", draft, "--stats", tmp_path / "s"], plain.stdout)


@pytest.mark.parametrize("name", KINDS)
def test_served(weft, weft_env, steady, name):
    """The same answers as without, one by one and several at once."""
    model, draft = steady(name)
    asks = [{"prompt": [i + 5, 17, 40], "n_predict": 110, "seed": i, "temperature": 1.0 * (i % 2), "ignore_eos": True, "n_probs": 1} for i in range(4)]
    what = lambda got: (got["content"], got["completion_probabilities"])
    with start(weft, weft_env, model) as s:
        plain = [what(s.ask("/completion", a)[1]) for a in asks]
        assert s.metric("weft:draft_seconds_total") == 0
    with start(weft, weft_env, model, "-md", str(draft), "--draft-always") as s:
        alone = [s.ask("/completion", a)[1] for a in asks]
        assert [what(got) for got in alone] == plain
        assert s.metric("weft:draft_seconds_total") > 0 and sum(got["timings"].get("draft_n_accepted", 0) for got in alone) > 0
        with futures.ThreadPoolExecutor(4) as pool:
            assert [what(got) for got in pool.map(lambda a: s.ask("/completion", a)[1], asks)] == plain


def test_a_chat(run_weft, steady):
    model, draft = steady("eagle3-shared")
    args = ["chat", "-m", model, "--simple-io", "--chat-template", "chatml", "-n", "300", "-s", "1", "--temp", "0.3", "-c", "2000", "-md", draft]
    lines = "a b c\nd e\n/regen\n"
    want, *drafted = (run_weft([*args, *more], input=lines) for more in (["--no-speculation"], [], ["--draft-always"]))
    assert want.returncode == 0 and want.stdout and all(done.returncode == 0 and done.stdout == want.stdout for done in drafted)


def test_several_models(weft, weft_env, steady, tmp_path):
    """The draft file is for one of them."""
    model, draft = steady("eagle3-shared")
    shutil.copy(model, tmp_path / "its.gguf")
    make_draft.write_target("qwen3", tmp_path / "other.gguf")
    with start(weft, weft_env, None, "--models-dir", str(tmp_path), "-md", str(draft)) as s:
        for name in "its", "other":
            status, got = s.ask("/completion", {"model": name, "prompt": [5, 17], "n_predict": 3})
            assert status == 200 and got["tokens_predicted"] == 3
        said = [line for line in s.said if "no draft file for" in line]
        assert len(said) == 1 and "no draft file for other" in said[0] and "target_hidden_size" in said[0]


def test_alone(run_weft, steady):
    model, draft = steady("dflash")
    for command in ["run", draft, "-p", "x"], ["inspect", draft]:
        done = run_weft(command)
        assert "key 'general.architecture': 'dflash' is a draft file" in done.out + done.err and "-md" in done.out + done.err
    done = run_weft(["serve", "-m", draft, "--port", "0"])
    assert done.returncode == 1 and "is a draft file" in done.err
    both = run_weft(["run", model, "-p", "x", "-md", model.with_name("none.gguf")])
    assert both.returncode == 1 and "none.gguf" in both.err


def tokens(*changed):
    """Other texts of the first tokens."""
    def write(monkeypatch):
        put = gguf.GGUFWriter.add_token_list
        monkeypatch.setattr(gguf.GGUFWriter, "add_token_list", lambda self, texts: put(self, [*changed, *texts[len(changed):]]))
    return write


def without(name, change=None):
    def write(monkeypatch):
        put = gguf.GGUFWriter.add_tensor

        def add(self, full, data, **more):
            if full != name:
                put(self, full, data, **more)
            elif change:
                put(self, full, np.ascontiguousarray(change(data)), **more)
        monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", add)
    return write



@pytest.mark.parametrize("name, change, text", [
    ("eagle3", {"target_dim": 128}, r"draft.gguf: key 'eagle3.target_hidden_size': 128, but the rows of \S*model.gguf have 256 elements"),
    ("eagle3", {"dim": 128}, r"draft.gguf: key 'eagle3.embedding_length': 128, but the embedding and head of \S*model.gguf, which it needs, have rows of 256"),
    ("eagle3", {"reads": [0, 1, 4]}, r"draft.gguf: key 'eagle3.target_layers': layer 4, but \S*model.gguf has 3 layers"),
    ("eagle3", {"reads": [0, 1]}, "draft.gguf: key 'eagle3.target_layers': lists 2 layers, expected 3"),
    ("eagle3", {"keys": {"target_layers": None}}, "draft.gguf: key 'eagle3.target_layers'"),
    ("eagle3", {"layers": 2}, "draft.gguf: key 'eagle3.block_count': 2 layers, expected 1"),
    ("eagle3", {"ids": [5] * 69 + [509]}, r"draft.gguf: tensor 'd2t' has token 509, but \S*model.gguf has 509 tokens"),
    ("eagle3", {"ids": [-1] * 70}, "draft.gguf: tensor 'd2t' has -1 at place 0"),
    ("eagle3", without("output.weight"), "draft.gguf: tensor 'output.weight' is missing, whose rows 'd2t' numbers"),
    ("eagle3", without("output.weight", lambda x: x[:60]), "draft.gguf: tensor 'output.weight' has shape {256, 60, 1, 1}, expected {256, 70}"),
    ("eagle3", without("fc.weight"), "draft.gguf: tensor 'fc.weight' is missing"),
    ("eagle3", without("blk.0.attn_norm_2.weight"), "draft.gguf: tensor 'blk.0.attn_norm_2.weight' is missing"),
    ("eagle3", without("blk.0.attn_q.weight", lambda x: x[:, :256]), "draft.gguf: tensor 'blk.0.attn_q.weight' has shape {256, 64, 1, 1}, expected {512, 64}"),
    ("eagle3-own", without("token_embd.weight", lambda x: x[:500]), r"draft.gguf: tensor 'token_embd.weight' has 500 rows, but \S*model.gguf has 509 tokens"),
    ("eagle3", tokens("<00>", "other"), r"draft.gguf: key 'tokenizer.ggml.tokens': token 1 is 'other', but '<01>' in \S*model.gguf"),
    ("eagle3", {"keys": {"rope.dimension_count": 15}}, "draft.gguf: key 'eagle3.rope.dimension_count': 15 is odd"),
    ("eagle3", {"keys": {"some_switch": True}}, "draft.gguf: key 'eagle3.some_switch': true changes what this model computes"),
    ("dflash", {"dim": 128, "target_dim": 128}, r"draft.gguf: key 'dflash.embedding_length': 128, but the rows of \S*model.gguf have 256 elements"),
    ("dflash", {"keys": {"block_size": 1}}, "draft.gguf: key 'dflash.block_size': 1 is not in 2..64"),
    ("dflash", {"keys": {"target_layers": [0] * 17}}, "draft.gguf: key 'dflash.target_layers': lists 17 layers"),
    ("dflash", {"mask": 509}, r"draft.gguf: key 'tokenizer.ggml.mask_token_id': 509, but \S*model.gguf has 509 tokens"),
    ("dflash", without("enc.output_norm.weight"), "draft.gguf: tensor 'enc.output_norm.weight' is missing"),
    ("dflash", {"keys": {"rope.dimension_sections": [2, 3, 3, 0]}}, r"draft.gguf: key 'dflash.rope.dimension_sections': it has sections, and \S*model.gguf has none"),
    ("dspark", without("markov_w2.weight"), "draft.gguf: tensor 'markov_w2.weight' is missing"),
    ("dspark", without("markov_w1.weight", lambda x: x[:400]), "draft.gguf: tensor 'markov_w2.weight' has shape {24, 509, 1, 1}, expected {24, 400}"),
    ("dspark-bonus", without("markov_w1.weight", lambda x: x[:400]), r"draft.gguf: tensor 'markov_w1.weight' has 400 rows, but \S*model.gguf has 509 tokens"),
    ("dflash", without("blk.1.attn_v.weight"), "draft.gguf: tensor 'blk.1.attn_v.weight' is missing"),
])
def test_what_does_not_fit(run_weft, tmp_path, monkeypatch, name, change, text):
    make_draft.write_target("llama", tmp_path / "model.gguf")
    if callable(change):
        change(monkeypatch)
        change = {}
    make_draft.write(name, tmp_path / "draft.gguf", **change)
    done = run_weft(["run", tmp_path / "model.gguf", "--ids", "1", "-n", "1", "-md", tmp_path / "draft.gguf"])
    assert done.returncode == 1 and re.search(text, done.err), done.err


# Tensors without which a draft file is one all the same: it has the target's
ABSENT = {"token_embd.weight", "output.weight", "d2t", "conf_proj.weight", "conf_proj.bias"}


@pytest.mark.parametrize("name", make_draft.DRAFTS)
def test_every_tensor_taken_out(run_weft, tmp_path, name):
    path, accepted = tmp_path / "draft.gguf", set()
    make_draft.write(name, path)
    data, reader = path.read_bytes(), gguf.GGUFReader(path)
    for taken in [t.name for t in reader.tensors]:
        header, size = file_without(data, reader, {taken})
        with open(path, "wb") as f:
            f.write(header)
            f.truncate(len(header) + size)
        said = run_weft(["inspect", path]).out
        if "is a draft file" in said:
            accepted.add(taken)
        else:
            assert re.search("tensor '.* (is missing|has shape|is not one that)", said), said
    assert accepted <= ABSENT and ("token_embd.weight" in accepted) == name.endswith("own")


@pytest.mark.parametrize("target", ["deepseek4", "hrm_text", "kimi-k3", "gemma3n"])
def test_targets_that_take_none(run_weft, make_model, tmp_path, target):
    make_model.write(target, tmp_path / "model.gguf")
    make_draft.write("eagle3", tmp_path / "draft.gguf", target)
    done = run_weft(["run", tmp_path / "model.gguf", "--ids", "1", "-n", "1", "-md", tmp_path / "draft.gguf"])
    assert done.returncode == 1 and "which takes no draft file" in done.err, done.err
