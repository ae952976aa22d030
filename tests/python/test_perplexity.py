"""weft perplexity: llama.cpp's numbers for its method, its file of log-probabilities, and what happens to bad ones."""
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

THREADS = 1

RECORD = json.loads((Path(__file__).resolve().parents[1] / "records" / "perplexity" / "tinypy.json").read_text())


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.py"
    path.write_text(RECORD["text"])
    return path


@pytest.fixture(scope="module")
def measure(run_weft, tinypy, text):
    def run(*args, file=text, status=0, model=tinypy):
        done = run_weft(["perplexity", "-m", model, *(["-f", file] if file else []), "-c", RECORD["chunk"], *args])
        assert done.returncode == status, done.err
        return done
    return run


def values(out):
    """running values and the final estimate"""
    return [float(x) for x in re.findall(r"\[\d+\]([\d.]+),", out)], [float(x) for x in re.search(r"PPL = ([\d.]+) \+/- ([\d.]+)", out).groups()]


def test_as_llama_cpp_has_it(measure):
    running, (ppl, error) = values(measure().out)
    assert running == pytest.approx(RECORD["running"], rel=5e-3) and len(running) == len(RECORD["running"])
    assert ppl == pytest.approx(RECORD["ppl"], rel=1e-3) and error == pytest.approx(RECORD["error"], rel=5e-3)


def test_shared_record(run_weft, shared_dir):
    """What llama.cpp's own program printed for a longer text."""
    for line in (shared_dir / "models" / "tinypy-perplexity.txt").read_text().splitlines():
        found = re.match(r"tinypy-(q4_k_m|f16) .*PPL = ([\d.]+)", line)
        if found:
            done = run_weft(["perplexity", "-m", shared_dir / "models" / f"tinypy-{found[1]}.gguf", "-f", shared_dir / "models" / "tinypy-heldout.txt"], timeout=300)
            assert values(done.out)[1][0] == pytest.approx(float(found[2]), rel=1e-3), found[1]


def test_chunks_and_strides(measure):
    all_of_them = values(measure().out)[0]
    two = measure("--chunks", "2")
    assert values(two.out)[0] == all_of_them[:2]
    assert values(measure("-ub", "7", "--chunks", "2", "-b", "512").out)[0] == all_of_them[:2]        # however it is evaluated
    lines = measure("--chunks", "2", "--ppl-output-type", "1").out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["0", f"{all_of_them[0]:.4f}"], ["256", f"{all_of_them[1]:.4f}"]]
    strided = values(measure("--ppl-stride", "64").out)[0]
    assert len(strided) > len(all_of_them) and 20 < strided[-1] < 80


def test_file_of_log_probabilities(measure, tmp_path):
    base = tmp_path / "base.kld"
    ppl = values(measure("--chunks", "3", "--kl-divergence-base", base).out)[1][0]
    raw = base.read_bytes()
    assert raw[:8] == b"_logits_"
    size, n_vocab, chunks = struct.unpack_from("<3i", raw, 8)
    assert (size, chunks) == (RECORD["chunk"], 3)
    ids = np.frombuffer(raw, "<i4", size * chunks, 20).reshape(chunks, size)
    rows, first = size - 1 - size // 2, size // 2
    row = np.dtype([("step", "<f4"), ("least", "<f4"), ("codes", "<u2", (n_vocab + 1) // 2 * 2)])
    table = np.frombuffer(raw, row, offset=20 + ids.nbytes).reshape(chunks, rows)
    logp = table["step"][..., None].astype(float) * table["codes"][..., :n_vocab] + table["least"][..., None].astype(float)
    likely = np.where(logp > logp.max(-1, keepdims=True) - 15.9, np.exp(logp), 0)
    assert likely.sum(-1) == pytest.approx(1, abs=1e-3)
    picked = np.take_along_axis(logp, ids[:, first + 1:, None], -1)
    assert np.exp(-picked.mean()) == pytest.approx(ppl, rel=1e-3)
    same = measure("--kl-divergence", "--kl-divergence-base", base, file=None).out
    assert abs(float(re.search(r"Mean    KLD: +([-\d.]+)", same)[1])) < 1e-5 and re.search(r"Same top p: 100\.000", same)
    other = measure("--kl-divergence", "--kl-divergence-base", base, "--precision", "exact", file=None).out
    assert 1e-6 < float(re.search(r"Mean    KLD: +([-\d.]+)", other)[1]) < 5e-3
    assert len(re.findall(r"^ +\d+ +[\d.]+ ± ", other, re.M)) == 3
    for kind, most in ("f32", 1e-3), ("bf16", 1e-3), ("q8_0", 1e-3), ("q4_0", 5e-2):                     # of the cache, beside f16
        cached = measure("--kl-divergence", "--kl-divergence-base", base, "-ctk", kind, "-ctv", kind, file=None).out
        assert 1e-8 < float(re.search(r"Mean    KLD: +([-\d.]+)", cached)[1]) < most, kind
    assert float(re.search(r"Mean PPL\(base\) +: +([\d.]+)", other)[1]) == pytest.approx(ppl, rel=1e-3)
    for what, bad in {"cut": raw[:-1], "more": raw + b"\0", "not a file of log": b"_lagits_" + raw[8:], "vocabulary of": raw[:12] + b"\xff\xff\xff\x7f" + raw[16:], "no chunks": raw[:8] + struct.pack("<3i", 512, 0, 1) + raw[20:],
                      "token": raw[:20] + b"\xff\xff\xff\xff" + raw[24:]}.items():
        broken = tmp_path / "broken.kld"
        broken.write_bytes(bad)
        done = measure("--kl-divergence", "--kl-divergence-base", broken, file=None, status=1)
        assert done.err.count("weft: error") == 1 and "broken.kld" in done.err, what


def test_a_file_appears_whole_or_not_at_all(measure, tmp_path):
    short = tmp_path / "short"
    short.write_text("def f(): pass\n")
    done = measure("--kl-divergence-base", tmp_path / "base", file=short, status=1)
    assert "tokens; with a context of" in done.err and sorted(p.name for p in tmp_path.iterdir()) == ["short"]
    if Path("/dev/full").exists():
        assert "No space left" in measure("--chunks", "2", "--kl-divergence-base", "/dev/full", status=1).err
    assert "No such file" in measure("--chunks", "1", "--kl-divergence-base", tmp_path / "none" / "base", status=1).err


@pytest.mark.parametrize("args, says", [
    (["--kl-divergence"], "--kl-divergence-base"), (["--chunks", "0"], "nothing to measure"), (["-p", "x"], "give one of them"),
    (["--ppl-stride", "64", "--kl-divergence-base", "x"], "no place for strides"), (["--ppl-stride", "999"], "more than a context"),
])
def test_usage(measure, args, says):
    assert says in measure(*args, status=2).err
