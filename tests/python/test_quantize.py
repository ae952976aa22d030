"""weft quantize: the same bytes as llama.cpp (records) and as the gguf package, and files that appear whole or not at all."""
import fcntl
import hashlib
import json
import os
import resource
import struct
import subprocess
import time
from pathlib import Path
from signal import SIGINT, SIGKILL

import gguf
import numpy as np
import pytest

from conftest import SANITIZED, load_tool

TESTS = Path(__file__).resolve().parents[1]
RECORD = json.loads((TESTS / "records" / "quantise" / "llama.cpp.json").read_text())


@pytest.fixture(scope="module")
def record():
    return load_tool("record_quantise")


@pytest.fixture(scope="module")
def samples(record):
    return record.samples()


@pytest.fixture(scope="module")
def rows(built_tool):
    """Rows of floats as blocks."""
    tool = built_tool("quantise_tool", "WEFT_QUANTISE_TOOL")

    def run(name, x, weights=None):
        data = (b"" if weights is None else weights.tobytes()) + x.tobytes()
        return subprocess.run([tool, name, str(x.shape[1]), *([] if weights is None else ["weights"])], input=data, capture_output=True, check=True).stdout
    return run


@pytest.fixture(scope="module")
def quantize(run_weft):
    def run(*args, status=0, **more):
        done = run_weft(["quantize", *args], timeout=300, **more)
        assert done.returncode == status, done.err
        return done
    return run


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    """A small model in F32, and a function that writes one with other tensors."""
    folder = tmp_path_factory.mktemp("floats")
    rng = np.random.default_rng(3)

    def write(name="f32", tensors=None, **kv):
        path = folder / f"{name}.gguf"
        w = gguf.GGUFWriter(str(path), "llama")
        w.add_block_count(2)
        w.add_head_count(4)
        for key, value in kv.items():
            w.add_string(key, value)
        w.add_array("some.texts", ["a", "", "ü"])
        for tensor, value in (tensors or {"token_embd.weight": (32, 256), "blk.0.attn_v.weight": (64, 256), "blk.0.attn_norm.weight": (256,), "blk.1.ffn_down.weight": (3, 16, 96)}).items():
            w.add_tensor(tensor, value if isinstance(value, np.ndarray) else rng.standard_normal(value).astype(np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        return path
    return write


@pytest.mark.parametrize("case", RECORD["rows"])
def test_rows_as_llama_cpp_makes_them(rows, record, samples, case):
    x, weights = samples
    name, _, with_weights = case.partition(" ")
    if name in record.WITHOUT:
        x = np.delete(x, record.WITHOUT[name], 0)
    assert hashlib.sha256(rows(name, x, weights if with_weights else None)).hexdigest() == RECORD["rows"][case]


@pytest.mark.parametrize("name", RECORD["errors"])
def test_rows_as_near_as_llama_cpp_makes_them(rows, record, samples, name):
    """Within 2 % row by row, but for the one with a single value that is not 0."""
    x, weights = samples
    kind = gguf.GGMLQuantizationType[name]
    blocks = np.frombuffer(rows(name, x, weights), np.uint8).reshape(len(x), -1)
    both = record.errors(blocks, kind, x, weights), np.array(RECORD["errors"][name])
    ours, theirs = (np.delete(e, 15, 1) for e in both)
    assert (ours <= 1.02 * theirs + 1e-12).all(), (ours / theirs).max()
    assert ours[0].mean() <= theirs[0].mean()


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"])
def test_rows_as_the_gguf_package_makes_them(rows, name):
    x = np.random.default_rng(8).standard_normal((16, 512)).astype(np.float32)
    assert rows(name, x) == gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).tobytes()


def test_scales_of_nvfp4(rows):
    """Scales of eight bits and values of four bits, each to the nearest, as the gguf package reads them."""
    x = np.random.default_rng(12).standard_normal((64, 64)) * 10 ** np.linspace(-5, 2.8, 64)[:, None]
    x = x.astype(np.float32)
    x[:, ::16] = np.abs(x).max(1, keepdims=True)
    e, m = np.divmod(np.arange(127), 8)
    sizes = np.where(e > 0, (8 + m) * 2.0 ** (e - 10.0), m / 512).astype(np.float32)
    blocks = np.frombuffer(rows("NVFP4", x), np.uint8).reshape(64, 36)
    found = blocks[:, 0]
    wanted = x[:, :1] / 6
    assert np.abs(sizes[found] - wanted[:, 0]) == pytest.approx(np.abs(sizes - wanted).min(1), rel=1e-3)
    values = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.concatenate([values, -values])
    back = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.NVFP4)
    best = np.abs(values * sizes[found][:, None, None] - x[:, :16, None]).min(2)
    assert np.abs(back - x)[:, :16] == pytest.approx(best, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", ["IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "Q3_K", "IQ4_XS", "IQ1_M", "NVFP4"])
def test_groups_of_zeros(rows, name):
    x = np.zeros((2, 512), np.float32)
    x[:, 200:300] = np.random.default_rng(9).standard_normal((2, 100))
    kind = gguf.GGMLQuantizationType[name]
    back = gguf.quants.dequantize(np.frombuffer(rows(name, x), np.uint8).reshape(2, -1), kind)
    assert np.square(back - x).mean() < (.4 if name == "IQ1_M" else .3) * np.square(x).mean()


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "IQ3_S", "IQ3_XXS",
                                  "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "NVFP4"])
def test_what_comes_back(rows, name):
    """Values survive as well as the number of bits allows."""
    x = np.random.default_rng(9).standard_normal((16, 512)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[name]
    back = gguf.quants.dequantize(np.frombuffer(rows(name, x), np.uint8).reshape(16, -1), kind)
    bits = 8 * gguf.GGML_QUANT_SIZES[kind][1] / gguf.GGML_QUANT_SIZES[kind][0]
    assert np.square(back - x).mean() < 4.0 ** -bits * 6


@pytest.mark.parametrize("name", RECORD["files"])
def test_whole_files(quantize, tinypy, tmp_path, name):
    out = tmp_path / "out.gguf"
    done = quantize(tinypy, out, name, "3", "--allow-requantize")
    assert hashlib.sha256(out.read_bytes()).hexdigest() == RECORD["files"][name]
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"] and "quant size" in done.out


@pytest.mark.parametrize("family", sorted({case.split()[0] for case in RECORD["types"]}))
def test_mixtures(quantize, make_model, tmp_path, family):
    make_model.write(family, tmp_path / "in.gguf")
    for case, types in RECORD["types"].items():
        if case.split()[0] == family:
            quantize(tmp_path / "in.gguf", tmp_path / "out.gguf", case.split()[1], "--allow-requantize")
            assert " ".join(t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors) == types, case


@pytest.mark.parametrize("family", sorted({case.split()[0] for case in RECORD["padded"]}))
def test_ones_at_the_end_of_a_shape(quantize, make_model, tmp_path, family):
    """The same files as llama-quantize, which drops them."""
    change = load_tool("change_gguf")
    make_model.write(family, tmp_path / "plain.gguf")
    change.with_dims(tmp_path / "plain.gguf", tmp_path / "in.gguf", change.padded)
    for case, expected in RECORD["padded"].items():
        if case.split()[0] == family:
            quantize(tmp_path / "in.gguf", tmp_path / "out.gguf", case.split()[1], "--allow-requantize")
            assert hashlib.sha256((tmp_path / "out.gguf").read_bytes()).hexdigest() == expected, case


def test_a_quantised_file_runs(quantize, run_weft, tinypy, tmp_path):
    quantize(tinypy, tmp_path / "q.gguf", "q5_k", "--allow-requantize")
    done = run_weft(["run", "-m", tmp_path / "q.gguf", "-p", "def f", "-n", "4", "--temp", "0"])
    assert done.returncode == 0 and done.out


def types_of(path):
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def test_what_llama_cpp_has_no_mixture_for(quantize, run_weft, tinypy, tmp_path):
    quantize(tinypy, tmp_path / "q.gguf", "NVFP4", "--allow-requantize")
    kinds = types_of(tmp_path / "q.gguf")
    assert kinds["blk.0.ffn_up.weight"] == "NVFP4"
    assert kinds.get("output.weight", kinds["token_embd.weight"]) in ("Q8_0", "Q6_K")
    assert run_weft(["run", "-m", tmp_path / "q.gguf", "-p", "def f", "-n", "4", "--temp", "0"]).out


def test_options(quantize, floats, tmp_path):
    model, out = floats(), tmp_path / "out.gguf"

    def types(*args):
        quantize(model, out, *args)
        return types_of(out)
    assert types("Q4_K_M") == {"token_embd.weight": "Q6_K", "blk.0.attn_v.weight": "Q6_K", "blk.0.attn_norm.weight": "F32", "blk.1.ffn_down.weight": "Q5_0"}
    assert types("Q4_K", "--pure")["blk.1.ffn_down.weight"] == "Q5_0"                     # rows of 96 are no blocks of 256
    assert types("15", "--token-embedding-type", "q8_0")["token_embd.weight"] == "Q8_0"
    assert types("Q4_0", "--tensor-type", r"attn_V\.=q5_1", "--tensor-type", "attn=f16")["blk.0.attn_v.weight"] == "Q5_1"
    names = tmp_path / "types.txt"
    names.write_text("ffn_(up|down)=q5_0\n token_embd=q4_1")
    assert types("Q8_0", "--tensor-type-file", names) == {"token_embd.weight": "Q4_1", "blk.0.attn_v.weight": "Q8_0", "blk.0.attn_norm.weight": "F32", "blk.1.ffn_down.weight": "Q5_0"}
    assert set(types("COPY").values()) == {"F32"}
    quantize(model, out, "F16", "--override-kv", "llama.block_count=int:7", "--override-kv", "my.name=str:a=b", "--override-kv", "on=bool:true", "--override-kv", "x=float:.5")
    fields = gguf.GGUFReader(out).fields
    assert [fields[k].contents() for k in ["llama.block_count", "my.name", "on", "x", "some.texts", "general.file_type", "general.quantization_version"]] == \
        [7, "a=b", True, .5, ["a", "", "ü"], 1, 2]
    done = quantize(model, "Q4_0", "--dry-run")
    assert "F32 -> Q4_0" in done.out and sorted(p.name for p in tmp_path.iterdir()) == ["out.gguf", "types.txt"]
    quantize(model, "q8_0")
    assert (model.parent / "ggml-model-Q8_0.gguf").exists()


def test_split_files(quantize, floats, tmp_path):
    """A model in two files becomes one, or two again."""
    rng = np.random.default_rng(1)
    for i, names in enumerate([["token_embd.weight", "blk.0.attn_v.weight"], ["blk.1.attn_v.weight"]]):
        w = gguf.GGUFWriter(str(tmp_path / f"m-0000{i + 1}-of-00002.gguf"), "llama")
        w.add_uint16("split.no", i)
        w.add_uint16("split.count", 2)
        w.add_int32("split.tensors.count", 3)
        for name in names:
            w.add_tensor(name, rng.standard_normal((32, 256)).astype(np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
    quantize(tmp_path / "m-00001-of-00002.gguf", tmp_path / "one.gguf", "Q8_0")
    assert len(types_of(tmp_path / "one.gguf")) == 3 and "split.count" not in gguf.GGUFReader(tmp_path / "one.gguf").fields
    quantize(tmp_path / "m-00001-of-00002.gguf", tmp_path / "two.gguf", "Q8_0", "--keep-split")
    parts = [gguf.GGUFReader(tmp_path / f"two-0000{i}-of-00002.gguf") for i in (1, 2)]
    assert [[t.name for t in p.tensors] for p in parts] == [["token_embd.weight", "blk.0.attn_v.weight"], ["blk.1.attn_v.weight"]]
    assert [p.fields["split.no"].contents() for p in parts] == [0, 1]


@pytest.mark.skipif(SANITIZED, reason="libswap.so would come before the sanitizers")
def test_parts_that_change_while_they_are_read(run_weft, built_tool, tmp_path):
    """Another program replaces the first part while the second one is opened: they may be of two versions."""
    paths, new = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)], tmp_path / "new"
    for i, path in enumerate(paths):
        w = gguf.GGUFWriter(str(path), "llama")
        w.add_uint16("split.no", i)
        w.add_uint16("split.count", 2)
        w.add_int32("split.tensors.count", 2)
        w.add_tensor(f"blk.{i}.attn_v.weight", np.ones((32, 256), np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
    new.write_bytes(paths[0].read_bytes())
    env = {"LD_PRELOAD": built_tool("libswap.so", "WEFT_SWAP"), "SWAP_AT": f"/{paths[1].name}", "SWAP_FROM": str(new), "SWAP_TO": str(paths[0])}
    done = run_weft(["--no-sandbox", "quantize", paths[0], tmp_path / "one.gguf", "Q8_0"], env=env)
    assert done.returncode == 1 and f"{paths[0].name}: was changed by another program while the model's parts were read" in done.err, done.err
    assert run_weft(["quantize", paths[0], tmp_path / "one.gguf", "Q8_0"]).returncode == 0


def write_old_imatrix(path, entries, chunks=3, dataset=b"text.txt"):
    data = struct.pack("<i", len(entries))
    for name, values in entries.items():
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<2i", 2, len(values)) + (2 * values).astype(np.float32).tobytes()
    path.write_bytes(data + struct.pack("<2i", chunks, len(dataset)) + dataset)


def write_imatrix(path, entries):
    w = gguf.GGUFWriter(str(path), "x")
    w.add_type("imatrix")
    w.add_array("imatrix.datasets", ["text.txt"])
    w.add_uint32("imatrix.chunk_count", 3)
    w.add_uint32("imatrix.chunk_size", 512)
    for name, values in entries.items():
        w.add_tensor(f"{name}.in_sum2", (values * 4).astype(np.float32).reshape(1, -1))
        w.add_tensor(f"{name}.counts", np.array([[4]], np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def test_importance_weights(quantize, floats, rows, tmp_path):
    x = np.random.default_rng(2).standard_normal((32, 256)).astype(np.float32)
    model = floats("two", {"blk.0.attn_k.weight": x, "blk.0.attn_q.weight": x})
    weights = np.random.default_rng(4).random(256).astype(np.float32)
    out = tmp_path / "out.gguf"
    for write in write_old_imatrix, write_imatrix:
        write(tmp_path / "imatrix", {"blk.0.attn_k.weight": weights})
        done = quantize(model, out, "Q4_K", "--imatrix", tmp_path / "imatrix")
        reader = gguf.GGUFReader(out)
        assert reader.tensors[0].data.tobytes() == rows("Q4_K", x, weights) and reader.tensors[1].data.tobytes() == rows("Q4_K", x)
        assert "1 tensors were quantised without" in done.err
        assert [reader.fields[f"quantize.imatrix.{k}"].contents() for k in ["dataset", "entries_count", "chunks_count"]] == ["text.txt", 1, 3]
        quantize(model, out, "Q4_K", "--imatrix", tmp_path / "imatrix", "--exclude-weights", "attn_k")
        assert gguf.GGUFReader(out).tensors[0].data.tobytes() == rows("Q4_K", x)
    good = (tmp_path / "imatrix").read_bytes()
    assert "needs importance" in quantize(model, "Q2_K_S", "--dry-run").err and "--imatrix" in quantize(model, out, "Q2_K_S", status=1).err
    write_old_imatrix(tmp_path / "bad", {"blk.0.attn_k.weight": weights[:128]})
    assert "another model" in quantize(model, out, "Q4_K", "--imatrix", tmp_path / "bad", status=1).err
    write_old_imatrix(tmp_path / "bad", {"blk.0.attn_k.weight": -weights})
    assert "a weight of" in quantize(model, out, "Q4_K", "--imatrix", tmp_path / "bad", status=1).err
    old = tmp_path / "old"
    write_old_imatrix(old, {"blk.0.attn_k.weight": weights})
    for n in [0, 3, 4, 20, 40, 200]:
        for source in old.read_bytes(), good:
            (tmp_path / "bad").write_bytes(source[:n])
            assert quantize(model, out, "Q4_K", "--imatrix", tmp_path / "bad", status=1).err.count("weft: error") == 1


def test_what_cannot_be(quantize, floats, tinypy, tmp_path):
    model, out = floats("bad"), tmp_path / "out.gguf"
    assert "quantised already (Q8_0)" in quantize(tinypy, out, "Q4_0", status=1).err
    assert "is the file that is read" in quantize(model, model, "Q4_0", status=2).err
    for value, says, kind in ((np.nan, "no number", "Q4_0"), (np.inf, "no number", "Q4_0"), (3e38, "too large for Q4_0", "Q4_0"),
                              (2790, "too large for NVFP4", "NVFP4")):
        x = np.ones((4, 64), np.float32)
        x[2, 5] = value
        err = quantize(floats("worse", {"blk.0.attn_q.weight": x}), out, kind, status=1).err
        assert "row 2" in err and says in err
    assert "No such file" in quantize(model, tmp_path / "none" / "x.gguf", "Q4_0", status=1).err
    for args, says in [(["--tensor-type", "x"], "expression=format"), (["--tensor-type", "x=q9"], "not a format"), (["--tensor-type", "(=q8_0"], "parenthes"), (["--override-kv", "a=int:x"], "no such value"),
                       (["--override-kv", "a"], "key=type:value"), (["--output-tensor-type", "q8_k"], "cannot be written"), (["--tensor-type", "x=i32"], "cannot be written"),
                       (["--tensor-type", "(?R)=q8_0"], "recursion"),
                       *((["--override-kv", asked], "follows from how the file is written") for asked in ("general.alignment=int:4096", "general.alignment=str:a", "split.count=int:3", "split.no=int:0", "split.tensors.count=int:1"))]:
        assert says in quantize(model, out, "Q4_0", *args, status=1).err, args
    for args, says in [([model], "no type"), ([model, out], "none follows"), ([model, out, "Q9"], "not a type"), ([model, out, "Q4_0", "x"], "threads"), ([], "no model"),
                       ([model, out, "Q4_0", "--include-weights", "a", "--exclude-weights", "b"], "one of them"), ([model, out, "Q4_0", "--include-weights", "a"], "--imatrix")]:
        assert says in quantize(*args, status=2).err, args
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def many(floats):
    """A model of 24 equally large tensors."""
    return floats("many", {f"blk.{i}.attn_q.weight": (128, 1024) for i in range(24)})


def kill_in_the_middle(command, pieces, wanted, signal):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while run.poll() is None and not (pieces.exists() and pieces.stat().st_size > wanted):
            time.sleep(.001)
        run.send_signal(signal)
        return *run.communicate(), run.returncode


def test_goes_on_after_a_kill(weft, quantize, many, tmp_path):
    """The second run makes what the first has not, and no more; the file is that of a run in one go."""
    quantize(many, tmp_path / "whole.gguf", "Q3_K", "1")
    out, part, pieces = (tmp_path / f"out.gguf{end}" for end in ("", ".part", ".part.pieces"))
    command = [weft, "quantize", many, out, "Q3_K", "1"]
    for signal, most in (SIGKILL, 65 + 8 * 34), (SIGINT, 65 + 16 * 34):
        _, err, code = kill_in_the_middle(command, pieces, most, signal)
        assert code in (-SIGKILL, 130) and not out.exists() and part.exists()
        n = (pieces.stat().st_size - 65) // 34 - 1             # without the head
        assert 8 <= n < 24
    assert f"{n} tensors are whole" in err
    done = quantize(many, out, "Q3_K", "1")
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert f"from tensor {n + 1} of 24" in done.err and done.out.count(" -> Q3_K") == 24 - n
    assert {p.name for p in tmp_path.iterdir()} == {"out.gguf", "whole.gguf"}


@pytest.mark.parametrize("end", [".part", ".part.pieces"])
def test_what_a_run_has_left_has_one_name(weft, many, tmp_path, end):
    """A part that is another file, too, such as the one that is read, is not cut."""
    source, left = tmp_path / "in.gguf", tmp_path / f"out.gguf{end}"
    source.write_bytes(many.read_bytes())
    os.link(source, left)
    done = subprocess.run([weft, "quantize", source, tmp_path / "out.gguf", "Q3_K", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and f"out.gguf{end}: has a second name (a hard link)" in done.stderr, done.stderr
    assert source.read_bytes() == many.read_bytes() and not (tmp_path / "out.gguf").exists()
    left.unlink()
    os.mkfifo(left)
    done = subprocess.run([weft, "quantize", source, tmp_path / "out.gguf", "Q3_K", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"out.gguf{end}: is no regular file" in done.stderr, done.stderr
    left.unlink()
    left.symlink_to(source)
    done = subprocess.run([weft, "quantize", source, tmp_path / "out.gguf", "Q3_K", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and left.is_symlink() and source.read_bytes() == many.read_bytes()


def test_checks_what_a_run_has_left(weft, quantize, many, tmp_path):
    out, part, pieces = (tmp_path / f"out.gguf{end}" for end in ("", ".part", ".part.pieces"))
    quantize(many, tmp_path / "whole.gguf", "Q3_K", "1")
    kill_in_the_middle([weft, "quantize", many, out, "Q3_K", "1"], pieces, 65 + 12 * 34, SIGKILL)
    left, lines = part.read_bytes(), pieces.read_bytes()
    size, head = 128 * 1024 // 256 * 110, int(lines[65:81], 16)

    def again(data, list_, kept, *args):
        out.unlink(missing_ok=True)
        part.write_bytes(data)
        pieces.write_bytes(list_)
        done = quantize(many, out, *(args or ("Q3_K", "1")))
        assert args or out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
        assert (f"from tensor {kept + 1} of" in done.err) == (kept > 0) and not part.exists() and not pieces.exists()
    at = head + 5 * size + 1000
    again(left[:at] + bytes([left[at] ^ 1]) + left[at + 1:], lines, 5)         # a byte is another one
    again(left[:at], lines, 5)                                                 # the file has lost its end
    again(left, lines[:65 + 34 * 4 + 20], 3)                                   # the list has
    again(left, b"x" + lines[1:], 0)
    again(b"", lines, 0)
    again(left, lines, 0, "Q3_K", "--pure", "--override-kv", "a=int:1")        # other options
    with open(part, "wb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        assert "another run" in quantize(many, out, "Q3_K", status=1).err and part.exists()
    part.unlink()
    os.utime(many)                                                             # another input
    again(left, lines, 0)


def test_full_disks(quantize, tinypy, tmp_path):
    before = tmp_path / "out.gguf"
    before.write_text("what was there")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    assert "File too large" in quantize(tinypy, before, "F32", "--allow-requantize", status=1, preexec_fn=limit).err
    assert before.read_text() == "what was there"
    quantize(tinypy, tmp_path / "whole.gguf", "F32", "--allow-requantize")
    done = quantize(tinypy, before, "F32", "--allow-requantize")
    assert "goes on from tensor" in done.err and before.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    if os.path.exists("/dev/full"):
        assert "No space left" in quantize(tinypy, "/dev/full", "F16", "--allow-requantize", status=1).err


def test_memory_does_not_grow_with_tensors(weft, floats, tmp_path):
    """A tensor of 128 MiB goes through in slabs."""
    model = floats("large", {"blk.0.ffn_up.weight": np.ones((32768, 1024), np.float32)})
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20))
    done = subprocess.run([weft, "quantize", model, tmp_path / "out.gguf", "Q8_0", "1"], preexec_fn=limit, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
