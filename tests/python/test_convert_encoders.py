"""Folders of encoders whose classes are Python code beside the weights (NeoBERT, Nomic's with experts, Jina's version 3): vectors as the published code computes them, here in numpy and 64 bits."""
import json
import math

import numpy as np
import pytest
from conftest import load_tool
from test_convert import RECORDS, convert, keys_of

folders = load_tool("make_folder")
IDS = [2, 7, 11, 4, 19, 7, 5, 23, 3]
exact_gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)


def gelu(x):
    """The usual approximation, which Weft and llama.cpp compute."""
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))) / 2


def silu(x):
    return x / (1 + np.exp(-x))


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def normed(x, w, b, eps=1e-5):
    x = x - x.mean(-1, keepdims=True)
    return rms(x, w, eps) + b


def rotated(x, base, halves):
    """x: positions, heads, elements; pairs are neighbours, or elements of the two halves."""
    n = x.shape[-1] // 2
    turn = np.exp(1j * np.arange(len(x))[:, None, None] * base ** (-np.arange(n) / n))
    z = (x[..., :n] + 1j * x[..., n:] if halves else x[..., ::2] + 1j * x[..., 1::2]) * turn
    return np.concatenate([z.real, z.imag], -1) if halves else np.stack([z.real, z.imag], -1).reshape(x.shape)


def attended(q, k, v):
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(len(q), -1)


def neobert(t, _):
    x = t("model.encoder.weight")[IDS]
    for i in range(2):
        w = lambda n: t(f"model.transformer_encoder.{i}.{n}.weight")
        q, k, v = np.split((rms(x, w("attention_norm"), 1e-5) @ w("qkv").T).reshape(len(IDS), 4, 48), 3, -1)
        x = x + attended(rotated(q, 10000, False), rotated(k, 10000, False), v) @ w("wo").T
        gate, up = np.split(rms(x, w("ffn_norm"), 1e-5) @ w("ffn.w12").T, 2, -1)
        x = x + (silu(gate) * up) @ w("ffn.w3").T
    return rms(x, t("model.layer_norm.weight"), 1e-5)


def blocks(t, gelu, layers, part, base, dense, start="", of=lambda n: n + ".weight"):
    """BERT's order of norms, with rotation. dense(i, x): the part without positions."""
    x = t(start + of("embeddings.word_embeddings"))[IDS] + t(start + of("embeddings.token_type_embeddings"))[0]
    x = normed(x, t(start + "emb_ln.weight"), t(start + "emb_ln.bias"))
    for i in range(layers):
        at = f"{start}encoder.layers.{i}."
        matrix = lambda n, x: x @ t(of(at + n)).T + t(at + n + ".bias")
        q, k, v = matrix(f"{part}.Wqkv", x).reshape(len(IDS), 3, 4, 16).transpose(1, 0, 2, 3)
        y = matrix(f"{part}.out_proj", attended(rotated(q, base, True), rotated(k, base, True), v))
        x = normed(x + y, t(at + "norm1.weight"), t(at + "norm1.bias"))
        x = normed(x + (dense(i, x) if dense and i % 2 else matrix("mlp.fc2", gelu(matrix("mlp.fc1", x)))), t(at + "norm2.weight"), t(at + "norm2.bias"))
    return x


def nomicmoe(t, gelu):
    def experts(i, x):
        w = lambda n: t(f"encoder.layers.{i}.mlp.{n}")
        p = np.exp(x @ w("router.layer.weight").T)
        p /= p.sum(-1, keepdims=True)
        up, down = (w(f"experts.mlp.w{n}").reshape(4, 96, 64) for n in (1, 2))
        best = np.argsort(-p, -1)[:, :2]
        return np.stack([sum(p[r, e] * (gelu(x[r] @ up[e].T) @ down[e]) for e in best[r]) for r in range(len(x))]) + w("experts.bias")
    return blocks(t, gelu, 4, "attn", 10000, experts)


def jina3(t, gelu):
    return blocks(t, gelu, 2, "mixer", 20000, None, "roberta.", lambda n: n + ".parametrizations.weight.original")


def embed(run_weft, model):
    done = run_weft(["embed", "-m", model, "--ids", ",".join(map(str, IDS)), "--embd-normalize", "-1", "--precision", "exact", "--embd-output-format", "json"])
    assert done.returncode == 0, done.err
    return done.stdout


@pytest.mark.parametrize("kind, expected, pooling", [("neobert", neobert, lambda x: x[0]), ("nomicmoe", nomicmoe, lambda x: x.mean(0)), ("jina3", jina3, lambda x: x.mean(0))])
def test_vectors_of_published_code(run_weft, tmp_path, kind, expected, pooling):
    shapes = RECORDS[kind]["tensors"]
    near, exact = (pooling(expected(lambda n: np.frombuffer(folders.weights(n, shapes[n], "F32"), np.float32).reshape(shapes[n]).astype(np.float64), act)) for act in (gelu, exact_gelu))
    folder = folders.write(tmp_path / kind, RECORDS[kind], "F32")
    convert(run_weft, folder, tmp_path / "out.gguf", "--outtype", "f32")
    ours = embed(run_weft, folder)
    assert ours == embed(run_weft, tmp_path / "out.gguf")
    ours = np.array(json.loads(ours)["data"][0]["embedding"])
    assert np.abs(ours - near).max() <= 1e-5 * np.abs(near).max()
    assert np.abs(ours - exact).max() <= 1e-3 * np.abs(exact).max()


def test_jina_3_as_transformers_saves_it(run_weft, tmp_path):
    """Without adapters, under another class: the tensors and keys of the published folder, but for its adapters."""
    record = json.loads(json.dumps(RECORDS["jina3"]))
    published = folders.write(tmp_path / "published" / "jina3", record)
    tensors = {n: s for n, s in record["tensors"].items() if "lora" not in n}
    plain = {n.replace("roberta.", "").replace(".parametrizations.weight.original", ".weight"): n for n in tensors}
    config = {k: v for k, v in record["config"].items() if k not in ("lora_adaptations", "lora_alpha", "lora_rank", "position_embedding_type", "rotary_emb_base")}
    record["config"] = {**config, "architectures": ["JinaEmbeddingsV3Model"], "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}}
    saved = folders.write(tmp_path / "saved" / "jina3", record)
    folders.safetensors(saved / "model.safetensors", {to: ("BF16", tensors[n], folders.weights(n, tensors[n], "BF16")) for to, n in plain.items()})
    made = [convert(run_weft, f, tmp_path / "out.gguf") for f in (published, saved)]
    assert keys_of(made[0]) == keys_of(made[1])
    assert {t.name: t.data.tobytes() for t in made[0].tensors} == {t.name: t.data.tobytes() for t in made[1].tensors}


@pytest.mark.parametrize("kind, change, expected", [
    *(("neobert", {k: v}, f"'{k}': {str(v).lower()}, but files of neo-bert") for k, v in (("rope", False), ("rms_norm", False), ("hidden_act", "gelu"), ("ngpt", True))),
    *(("nomicmoe", {k: v}, f"'{k}': {str(v).lower()}, but files of nomic-bert-moe") for k, v in (("moe_normalize_expert_weights", True), ("expert_choice_router", True), ("activation_function", "swiglu"), ("prenorm", True), ("qkv_proj_bias", False))),
    ("nomicmoe", {"moe_every_n_layers": 1}, "'moe_every_n_layers': is 1"),
    ("nomicmoe", {"num_experts": 5}, "is not 5 matrices (num_experts)"),
    ("jina3", {"position_embedding_type": "absolute"}, "'position_embedding_type': absolute, but files of jina-bert-v3"),
])
def test_settings_that_files_of_encoders_cannot_say(run_weft, tmp_path, kind, change, expected):
    record = json.loads(json.dumps(RECORDS[kind]))
    record["config"].update(change)
    done = run_weft(["convert", folders.write(tmp_path / kind, record), tmp_path / "out.gguf"])
    assert done.returncode == 1 and expected in done.err and not (tmp_path / "out.gguf").exists(), done.err


@pytest.mark.parametrize("kind, arch", [("qwen2", "qwen2"), ("qwen3", "qwen3"), ("qwen3-bare", "qwen3")])
def test_pooling_of_embedding_models_that_predict(run_weft, tmp_path, kind, arch):
    record = json.loads(json.dumps(RECORDS[kind]))
    assert f"{arch}.pooling_type" not in keys_of(convert(run_weft, folders.write(tmp_path / "plain", record), tmp_path / "out.gguf"))
    record["files"] = {"modules.json": json.dumps([{"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]), "1_Pooling/config.json": json.dumps({"pooling_mode_lasttoken": True})}
    assert keys_of(convert(run_weft, folders.write(tmp_path / "pooling", record), tmp_path / "out.gguf"))[f"{arch}.pooling_type"] == ["UINT32", 3]
