"""Dequantisation of every format that computes, bit for bit against the gguf Python package, and that of ik_llama.cpp's against its own code.

tests/tools/dequant_tool.c runs the expression of a format on raw blocks as the engine would.  The blocks here are random ones
and those where formats have edges: all bits set or clear, and scales that are zero, subnormal, huge, infinite and NaN.  NaNs
may differ in their payload.  DEV=REF computes in double precision and rounds once, so it is only close.
"""
import json
import os
import subprocess
from pathlib import Path

import ik_formats
import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
from gguf import GGMLQuantizationType, quants  # noqa: E402

THREADS = 1

# Where the half-precision scales of a block lie. "1", "4": bytes at the start, each a whole scale. "split": a quarter in each of the last four words.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "Q2_K": [80, 82], "Q3_K": [108], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0], "Q2_0": [0],
    "IQ1_S": [0], "IQ1_M": ["split"], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": ["1"], "NVFP4": ["4"],
}
IK = json.loads((Path(__file__).resolve().parent.parent / "records" / "formats" / "ik_llama.cpp.json").read_text())
# Of 64 rows: those whose blocks are small
MORE_BLOCKS = {"IQ1_S_R4": 104, "IQ1_M_R4": 104, "MXFP4_R8": 40, "BF16_R16": 512, "Q8_K_R16": 70}
EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01]
WAYS = {
    "optimised": {},
    "noopt": {"NOOPT": "1"},
    "v2": {"WEFT_CPU": "x86-64-v2"},
    "v3": {"WEFT_CPU": "x86-64-v3"},
}


@pytest.fixture(scope="session")
def tool(built_tool):
    return built_tool("dequant_tool", "WEFT_DEQUANT_TOOL")


@pytest.fixture(scope="session")
def formats(tool):
    done = subprocess.run([tool, "--list"], stdout=subprocess.PIPE, text=True, check=True)
    return {line.split()[0]: tuple(int(x) for x in line.split()[1:]) for line in done.stdout.splitlines()}


def blocks_of(name, size, n_blocks):
    """Raw blocks: at first those with edges, then random ones."""
    rng = np.random.default_rng(len(name) * 1000 + size)
    raw = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    raw[0], raw[1] = 0xFF, 0
    places = SCALES.get(name, ik_formats.SCALES.get(name))
    if places is None:                                    # F32, F16, BF16: every block is a number
        numbers = rng.integers(0, 1 << (8 * size), n_blocks - 2, dtype=np.uint64)
        if size == 2:                                     # all of them
            numbers = np.resize(np.arange(1 << 16, dtype=np.uint64), n_blocks - 2)
        raw[2:] = numbers[:, None] >> (8 * np.arange(size, dtype=np.uint64)) & 255
        return raw
    def put(block, place, scale):
        if place == "split":
            for i in range(4):
                raw[block, -7 + 2 * i] = raw[block, -7 + 2 * i] & 15 | (scale >> 4 * i & 15) << 4
        else:
            raw[block, place], raw[block, place + 1] = scale & 255, scale >> 8

    def ordinary():
        return int(rng.integers(0x2000, 0x3000))

    at = 2
    if places and places[0] in ("1", "4", "8"):                         # all values of the bytes
        count = int(places[0])
        for i in range(0, 256 if n_blocks >= 256 + at else 64, count):
            raw[at, :count] = range(i, i + count)
            at += 1
        places = []
    for place in places:                                  # each scale in turn an edge, the others ordinary
        for edge in EDGES:
            for other in places:
                put(at, other, ordinary())
            put(at, place, edge)
            at += 1
    for i in range(at, n_blocks, 2):                      # half of the rest with scales of ordinary size
        for place in places:
            put(i, place, ordinary())
    assert at <= n_blocks
    return raw


def ik_rows(name, rows, n):
    """Rows of n blocks in a format of ik_llama.cpp: uint8 (rows / together, bytes).  Heads are scales of ordinary size, and the first ones have edges."""
    _, _, size, head, together = ik_formats.SIZES[name]
    count, least = rows // together * n, 128 if together < 16 else 256              # which edges need
    raw = blocks_of(name, size * together, max(count, least))[-count:]
    rng = np.random.default_rng(head)
    scales = (rng.standard_normal(rows) * 1e-3).astype(np.float16 if head == 2 else np.float32)
    edges = np.array([1e-7, 0, 6e4, np.inf, np.nan, -0.0] if head == 2 else [1e-40, 0, 1e30, np.inf, np.nan, -0.0], scales.dtype)
    if rows > 16:
        scales[:len(edges)] = edges
    return np.concatenate([ik_formats.heads_of(scales, head).reshape(rows // together, -1), raw.reshape(rows // together, -1)], 1)


def run(tool, env, name, rows, cols, raw):
    full = {k: v for k, v in os.environ.items() if k in ("PATH", "SPEC", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH")}
    full.update({"WEFT_CACHE": "off", "LC_ALL": "C.UTF-8"}, **env)
    done = subprocess.run([tool, name, str(rows), str(cols)], input=raw.tobytes(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=full, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return np.frombuffer(done.stdout, np.float32)


# Formats whose numbers the gguf package does not know: bits of a code, the lowest first, and what code and scale mean, as ggml's C code has it.
OWN = {"Q1_0": (1, lambda code: 2 * code - 1), "Q2_0": (2, lambda code: code - 1)}


def expected(name, raw):
    if name in OWN:
        width, meaning = OWN[name]
        codes = raw[:, 2:, None] >> np.arange(0, 8, width, dtype=np.uint8) & (1 << width) - 1
        with np.errstate(all="ignore"):
            return (raw[:, :2].copy().view(np.float16).astype(np.float32) * meaning(codes.reshape(len(raw), -1).astype(np.int32)).astype(np.float32)).reshape(-1)
    with np.errstate(all="ignore"):
        return quants.dequantize(raw.reshape(-1), GGMLQuantizationType[name]).reshape(-1).astype(np.float32)


def same_bits(name, way, got, want, block):
    assert got.shape == want.shape
    wrong = np.flatnonzero((got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want)))
    if len(wrong):
        i = wrong[0]
        pytest.fail(f"{name}, {way}: {len(wrong)} of {len(want)} differ; block {i // block}, element {i % block}: {got[i]!r}, should be {want[i]!r}")


def sizes(name, block):
    """Rows and columns, in blocks: enough for every entry of a code book to occur."""
    if name in MORE_BLOCKS:
        return 64, MORE_BLOCKS[name]
    return (96, 700) if block == 1 else (64, 13) if name.startswith("IQ") or name == "MXFP4" else (64, 3)


def test_every_format_is_here(formats):
    """A format that is added comes with its bytes, or this test says so."""
    assert set(formats) == set(SCALES) | set(IK) | {"F32", "F16", "BF16"}
    assert set(IK) == set(ik_formats.SIZES)
    for name, (block, size, head, together) in formats.items():
        if name in IK:
            assert ik_formats.SIZES[name][1:] == (block, size, head, together)
            continue
        assert (head, together) == (0, 1)
        assert name == "Q2_0" and (block, size) == (64, 18) or gguf.GGML_QUANT_SIZES[GGMLQuantizationType[name]] == (block, size)


@pytest.mark.parametrize("name", [*SCALES, "F32", "F16", "BF16"])
def test_bits(tool, formats, name):
    block, size, *_ = formats[name]
    rows, n = sizes(name, block)
    raw = blocks_of(name, size, rows * n)
    want = expected(name, raw)
    for way, env in WAYS.items():
        same_bits(name, way, run(tool, env, name, rows, n * block, raw), want, block)


@pytest.mark.parametrize("name", SCALES)
def test_odd_rows(tool, formats, name):
    """Sizes that fit nothing: one row of one block, and seven rows of five."""
    block, size, *_ = formats[name]
    for rows, n in ((1, 1), (7, 5)):
        raw = blocks_of(name, size, 128)[-rows * n:]
        same_bits(name, f"{rows} rows", run(tool, {}, name, rows, n * block, raw), expected(name, raw), block)


@pytest.mark.parametrize("name", ik_formats.SIZES)
def test_bits_of_ik(tool, formats, name):
    """The numbers that ik_llama.cpp has, by its hash of them and by this folder's; and a few rows."""
    block, *_, together = formats[name]
    rows, n = sizes(name, block)
    raw = ik_rows(name, rows, n)
    want = ik_formats.dequantize(name, raw).reshape(-1)
    assert ik_formats.digest(want) == IK[name]
    for way, env in WAYS.items():
        same_bits(name, way, run(tool, env, name, rows, n * block, raw), want, block)
    for rows, n in ((together, 1), (7 * together, 5)):
        raw = ik_rows(name, rows, n)
        want = ik_formats.dequantize(name, raw).reshape(-1)
        same_bits(name, f"{rows} rows", run(tool, {}, name, rows, n * block, raw), want, block)
    got = run(tool, {"DEV": "REF"}, name, rows, n * block, raw)
    assert (np.isfinite(got) == np.isfinite(want)).all()
    ok = np.isfinite(want)
    assert np.all(np.abs(got[ok] - want[ok]) <= 4e-7 * np.abs(want[ok]).max())


@pytest.mark.parametrize("name", [*SCALES, "F32", "F16", "BF16"])
def test_reference_is_close(tool, formats, name):
    """DEV=REF: one rounding where the formula has several."""
    block, size, *_ = formats[name]
    n = 5 if block > 1 else 300
    raw = blocks_of(name, size, 64 * n)[-16 * n:]
    got, want = run(tool, {"DEV": "REF"}, name, 16, n * block, raw), expected(name, raw)
    assert (np.isnan(got) == np.isnan(want)).all() and (np.isinf(got) == np.isinf(want)).all()
    ok = np.isfinite(want)
    got, want = got[ok].reshape(-1).astype(np.float64), want[ok].astype(np.float64)
    assert np.all(np.abs(got - want) <= 4e-7 * np.maximum(np.abs(want), np.abs(want).max() if block > 1 and name[-2:] in ("_1", "_K") else 0) + 1e-45)


def test_c_renderer(tool, formats):
    for name in ("Q4_0", "Q6_K"):
        block, size, *_ = formats[name]
        raw = blocks_of(name, size, 64)
        same_bits(name, "RENDER=c", run(tool, {"RENDER": "c"}, name, 16, 4 * block, raw), expected(name, raw), block)
