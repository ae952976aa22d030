"""weft imatrix: sums of squares as a model written down in numpy has them, and files that weft quantize reads."""
import gguf
import numpy as np
import pytest


def numpy_sums(path, chunks):
    """Of a small llama with heads that turn neighbouring pairs: {name: sums of squares}."""
    reader = gguf.GGUFReader(path)
    w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64).reshape([int(n) for n in t.shape][::-1]) for t in reader.tensors}
    field = lambda key: reader.fields[f"llama.{key}"].contents()
    heads, kv, eps, base = field("attention.head_count"), field("attention.head_count_kv"), field("attention.layer_norm_rms_epsilon"), field("rope.freq_base")
    sums = {}

    def product(x, name):
        sums[name] = sums.get(name, 0) + np.square(x).sum(0)
        return x @ w[name].T

    def norm(x, name):
        return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps) * w[name]

    def turn(x):
        d = x.shape[-1]
        angle = np.arange(len(x))[:, None, None] * base ** (-np.arange(0, d, 2) / d)
        a, b = x[..., ::2], x[..., 1::2]
        return np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1).reshape(x.shape)

    for ids in chunks:
        x, n = w["token_embd.weight"][ids], len(ids)
        for i in range(field("block_count")):
            b = f"blk.{i}."
            h = norm(x, b + "attn_norm.weight")
            q, k, v = (product(h, b + f"attn_{c}.weight") for c in "qkv")
            q, k, v = turn(q.reshape(n, heads, -1)), turn(k.reshape(n, kv, -1)), v.reshape(n, kv, -1)
            k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
            s = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1]) + np.triu(np.full((n, n), -np.inf), 1)
            p = np.exp(s - s.max(-1, keepdims=True))
            x = x + product(np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v).reshape(n, -1), b + "attn_output.weight")
            h = norm(x, b + "ffn_norm.weight")
            gate, up = product(h, b + "ffn_gate.weight"), product(h, b + "ffn_up.weight")
            x = x + product(gate / (1 + np.exp(-gate)) * up, b + "ffn_down.weight")
    return sums


@pytest.fixture(scope="module")
def text(tmp_path_factory, repo):
    path = tmp_path_factory.mktemp("text") / "text.py"
    path.write_text((repo / "tests" / "python" / "conftest.py").read_text()[:6000])
    return path


def read(path):
    return {t.name: np.array(t.data).reshape([int(n) for n in t.shape][::-1]) for t in gguf.GGUFReader(path).tensors}


def test_sums_of_all_matrices(run_weft, tinypy, text, tmp_path):
    out = tmp_path / "out.gguf"
    done = run_weft(["imatrix", "-m", tinypy, "-f", text, "-o", out, "-c", "128", "--chunks", "3", "--precision", "exact", "-ub", "48"])
    assert done.returncode == 0, done.err
    tokens = run_weft(["tokenize", "-m", tinypy, "--stdin", "--ids"], input=text.read_text().removesuffix("\n")).out
    ids = np.array(eval(tokens))[:3 * 128].reshape(3, 128)
    ids[:, 0] = ids[0, 0]                                   # BOS
    want, got = numpy_sums(tinypy, ids), read(out)
    assert {name.removesuffix(".in_sum2") for name in got if name.endswith(".in_sum2")} == set(want)
    for name, sums in want.items():
        assert got[f"{name}.counts"].tolist() == [[384]]
        assert got[f"{name}.in_sum2"][0] == pytest.approx(sums, rel=2e-2, abs=sums.mean() * 1e-3), name
    fields = gguf.GGUFReader(out).fields
    assert [fields[f"imatrix.{k}"].contents() for k in ["chunk_count", "chunk_size", "datasets"]] == [3, 128, [str(text)]]


def test_weights_are_used(run_weft, tinypy, text, tmp_path):
    weights, out = tmp_path / "imatrix.gguf", tmp_path / "out.gguf"
    done = run_weft(["imatrix", "-m", tinypy, "-f", text, "-c", "256", "--output-frequency", "2"], cwd=tmp_path)
    assert done.returncode == 0, done.err
    done = run_weft(["quantize", tinypy, out, "IQ2_XS", "--imatrix", weights, "--allow-requantize"])
    assert done.returncode == 0 and "without" not in done.err, done.err


def test_experts(run_weft, make_model, text, tmp_path):
    """Every token goes to so many experts: their sums add up to that many times the router's."""
    make_model.write("mixtral", tmp_path / "moe.gguf")
    model = gguf.GGUFReader(tmp_path / "moe.gguf")
    used = model.fields["llama.expert_used_count"].contents()
    done = run_weft(["imatrix", "-m", tmp_path / "moe.gguf", "-f", text, "-o", tmp_path / "out.gguf", "-c", "32", "--chunks", "2"])
    assert done.returncode == 0, done.err
    got = read(tmp_path / "out.gguf")
    for i in range(model.fields["llama.block_count"].contents()):
        router = got[f"blk.{i}.ffn_gate_inp.weight.in_sum2"][0]
        for name in ["ffn_gate_exps", "ffn_up_exps"]:
            assert got[f"blk.{i}.{name}.weight.in_sum2"].sum(0) == pytest.approx(used * router, rel=1e-4)
        counts = got[f"blk.{i}.ffn_down_exps.weight.counts"]
        assert counts.shape[0] == 4 and counts.sum() == used * 64 and (counts > 0).sum() > 1
        assert (got[f"blk.{i}.ffn_down_exps.weight.in_sum2"].sum(1) > 0).tolist() == (counts[:, 0] > 0).tolist()


def test_what_cannot_be(run_weft, tinypy, text, tmp_path):
    def error(*args, status=1):
        done = run_weft(["imatrix", "-m", tinypy, *args])
        assert done.returncode == status and done.err.count("weft: error") == 1, done.err
        return done.err
    assert "no chunk of 100000" in error("-f", text, "-c", "100000")
    assert "no text" in error(status=2) and "nothing to read" in error("-f", text, "--chunks", "0", status=2)
    assert "No such file" in error("-f", text, "-c", "64", "--chunks", "1", "-o", tmp_path / "none" / "x")
