"""Whole models in formats of few bits, and in those of ik_llama.cpp, beside the same weights as F32.

The model of the repository with three of its layers, whose matrices hold random blocks of all these formats in turn; the gguf package says what
numbers they are, or ik_formats.py.  Each matrix has a .scale, as files with NVFP4 do, which makes the numbers of one size; in the F32 file it is multiplied in.
"""
import json
import math
import os

import ik_formats
import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFValueType, GGUFWriter, quants  # noqa: E402

THREADS = 1

LAYERS = 3
# Where the scales lie in a block: high bytes of half-precision numbers; or bytes that are scales, with the range to draw from.
HALVES = {"Q2_K": [81, 83], "Q3_K": [109], "TQ1_0": [53], "TQ2_0": [65], "IQ1_S": [1], "IQ1_M": [55], "IQ2_XXS": [1], "IQ2_XS": [1], "IQ2_S": [1],
          "IQ3_XXS": [1], "IQ3_S": [1], "IQ4_NL": [1], "IQ4_XS": [1]}
BYTES = {"MXFP4": (1, 120, 124), "NVFP4": (4, 48, 72)}
TOGETHER = list(ik_formats.FIELDS)
FORMATS = {"llama.cpp": [*HALVES, *BYTES], "ik_llama.cpp": [name for name in ik_formats.SIZES if name not in ik_formats.FIELDS], "its rows together": TOGETHER[::2],
           "its other rows together": TOGETHER[1::2]}


def matrix(rng, name, rows, columns):
    """Random blocks, and the F32 matrix that they stand for."""
    if name in ik_formats.SIZES:
        return ik_formats.matrix(rng, name, rows, columns)
    block, size = gguf.GGML_QUANT_SIZES[Type[name]]
    raw = rng.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    for place in HALVES.get(name, []):
        raw[:, place] = rng.integers(0x24, 0x2c, len(raw))
    if name in BYTES:
        count, low, high = BYTES[name]
        raw[:, :count] = rng.integers(low, high, (len(raw), count))
    raw = raw.reshape(rows, -1)
    return raw, quants.dequantize(raw, Type[name])


def write(path, tinypy, tensors, low):
    """tensors: name -> (format or None, raw, numbers, scale)"""
    reader = GGUFReader(tinypy)
    w = GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = LAYERS if field.name == "llama.block_count" else field.contents()
        if field.types[0] == GGUFValueType.ARRAY:
            w.add_array(field.name, value)
        else:
            w.add_key_value(field.name, value, field.types[0])
    for name, (kind, raw, numbers, scale) in tensors.items():
        if kind and low:
            if kind in ik_formats.SIZES:                  # which the package does not know
                w.add_tensor_info(name, numbers.shape, numbers.dtype, raw.nbytes, raw_dtype=ik_formats.SIZES[kind][0])
                w.tensors[-1][name].tensor = raw
            else:
                w.add_tensor(name, raw, raw_dtype=Type[kind])
            w.add_tensor(name.replace(".weight", ".scale"), np.array([scale], np.float32))
        else:
            w.add_tensor(name, (numbers * np.float32(scale)).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


@pytest.fixture(scope="module", params=FORMATS)
def tensors(request, tinypy):
    rng, made, formats = np.random.default_rng(7), {}, FORMATS[request.param]
    for t in GGUFReader(tinypy).tensors:
        part = t.name.split(".")
        if part[0] == "blk" and int(part[1]) >= LAYERS:
            continue
        if part[0] == "blk" and len(t.shape) == 2:
            kind = formats[len([name for name in made if made[name][0]]) % len(formats)]
            columns, rows = map(int, t.shape)
            raw, numbers = matrix(rng, kind, rows, columns)
            made[t.name] = kind, raw, numbers, 1 / math.sqrt(columns * np.mean(numbers.astype(np.float64) ** 2))
        else:
            made[t.name] = None, None, quants.dequantize(np.asarray(t.data), t.tensor_type).reshape(list(t.shape)[::-1]), 1
    return made


def run(run_weft, path, *more, env=None):
    done = run_weft(["run", "-m", path, "--ids", "5,17,40,41,300,6,7,8", "--force", "301,302,9", "--json", "--top-logprobs", "2048", *more], env=env)
    assert done.returncode == 0, done.err
    return np.array([[logprob for _, logprob in sorted(json.loads(line)["top"])] for line in done.stdout.splitlines()])


def test_models_of_few_bits(run_weft, tinypy, tensors, tmp_path):
    assert {kind for kind, *_ in tensors.values() if kind} in [set(formats) for formats in FORMATS.values()]
    low, full = (write(tmp_path / name, tinypy, tensors, name == "low.gguf") for name in ("low.gguf", "full.gguf"))
    expected = run(run_weft, full, "--precision", "exact")
    assert expected.shape == (3, 2048) and expected.std() > 0.5          # it says something
    for env in ({}, {"NOOPT": "1"}):
        apart = np.abs(run(run_weft, low, "--precision", "exact", env=env) - expected).max()
        print(f"largest difference of a log-probability {apart:.2g}")
        assert apart < 0.005, env


def test_made_into_floats(run_weft, tinypy, tensors, tmp_path):
    """weft quantize reads all of them: the file in F32 has the same numbers."""
    done = run_weft(["quantize", "--allow-requantize", write(tmp_path / "low.gguf", tinypy, tensors, True), tmp_path / "out.gguf", "F32"])
    assert done.returncode == 0, done.err
    made = {t.name: t.data for t in GGUFReader(tmp_path / "out.gguf").tensors}
    for name, (kind, _, numbers, _) in tensors.items():
        if kind:
            assert np.array_equal(made[name].view(np.uint32), numbers.view(np.uint32)), (name, kind)


def test_work_groups_refuse_interleaved_rows(run_weft, tinypy, tensors, tmp_path):
    if "no driver is installed" in run_weft(["env"]).out:      # scripts/setup.sh installs one
        (pytest.fail if os.environ.get("WEFT_SKIPS") else pytest.skip)("no OpenCL driver is installed")
    interleaved = [name for name, (kind, *_) in tensors.items() if kind in ik_formats.FIELDS]
    path = write(tmp_path / "low.gguf", tinypy, tensors, True)
    if interleaved:
        done = run_weft(["run", "-m", path, "--ids", "5", "-n", "1"], env={"DEV": "CL", "CL_WORK": "groups"})
        assert done.returncode == 1 and f"tensor '{interleaved[0]}' has type {tensors[interleaved[0]][0]}, whose rows are interleaved: DEV=CL" in done.err


@pytest.mark.parametrize("suffix, shape", [("scale", (2,)), ("bias", (2,)), ("scale", (1, 2)), ("bias", (3, 768))])
def test_what_goes_with_a_matrix_is_checked(run_weft, tinypy, tensors, tmp_path, suffix, shape):
    bad = {**tensors, f"blk.1.ffn_gate.{suffix}": (None, None, np.ones(shape, np.float32), 1)}
    done = run_weft(["run", "-m", write(tmp_path / "bad.gguf", tinypy, bad, False), "-p", "x", "-n", "1"])
    assert done.returncode == 1 and f"tensor 'blk.1.ffn_gate.{suffix}' has shape" in done.err
