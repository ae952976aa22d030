#!/usr/bin/env python3
"""record_quantise.py: what llama.cpp's quantiser writes, for tests/records/quantise.

    record_quantise.py OUT.json

Needs llama-cpp-python beside numpy and gguf.  rows: hashes of blocks that `samples` below becomes, without weights, and
with them.  errors: where ways that are equally good differ by rounding alone, how far each row is from what it was, with
the weights and without.  files: hashes of models/tinypy.gguf as another type, whole files.  types: what the tensors of small models of several families become.  padded: hashes of whole files
of small models whose shapes end with ones, which the quantiser drops.
"""
import ctypes
import glob
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROWS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "BF16", "F16",
        "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "NVFP4"]
WITH_WEIGHTS = {"IQ2_XXS", "IQ2_XS", "IQ1_S"}               # makes no others
# Rows: behind a group of zeros that writes to other places; scales from 256 on come out as 448.
WITHOUT = {"IQ3_S": slice(16), "NVFP4": 10}
ERRORS = ["IQ1_M"]
FILES = {"F16": 1, "BF16": 32, "Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_K_S": 16, "Q5_1": 9, "Q5_0": 8, "Q4_K_M": 15, "Q4_K_S": 14, "Q4_1": 3, "Q4_0": 2, "IQ4_NL": 25, "IQ4_XS": 30,
         "MXFP4_MOE": 38, "Q3_K_L": 13, "Q3_K_M": 12, "Q3_K_S": 11, "Q2_K": 10, "TQ2_0": 37, "TQ1_0": 36, "Q1_0": 40, "Q2_0": 41, "IQ3_S": 26, "IQ3_M": 27}
PADDED = ["ernie4_5-moe", "granitehybrid", "qwen2moe", "qwen35moe"]       # whole files whose shapes end with ones
FAMILIES = ["mixtral", "falcon", "deepseek2-lite", "gemma3", "gpt2", "qwen3next"]


def samples():
    """64 rows of 1024 floats: random ones, and those at which rounding or a search has something special to do."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((64, 1024)) * .05
    x[1], x[2], x[3], x[4], x[5] = rng.standard_t(2, 1024) * .02, 0, np.abs(x[3]), -np.abs(x[4]), 1.5
    x[6], x[7, ::3], x[9], x[10], x[11] = np.round(x[6] * 20) / 8, 0, x[9] * 1e-18, x[10] * 1e4, -.75
    x[8] = rng.uniform(-1, 1, 1024) * 10.0 ** rng.integers(-8, 4, 1024)
    x[12], x[13], x[14], x[15, :-1], x[16] = np.where(rng.random(1024) < .5, -.25, .25), np.linspace(-1, 1, 1024), rng.integers(-8, 8, 1024) / 16, 0, x[16] * 1e-7
    return x.astype(np.float32), rng.standard_gamma(.3, 1024).astype(np.float32)


def errors(blocks, kind, x, weights):
    """Of each row: the weighted root of the mean square, and the plain one."""
    miss = np.square(gguf.quants.dequantize(blocks, kind).astype(np.float64) - x)
    return np.sqrt([(miss * weights).mean(1), miss.mean(1)])


def chunks(name, x, weights):
    import llama_cpp
    lib = ctypes.CDLL(glob.glob(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.*"))[0])
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    made = np.zeros((x.shape[0], x.shape[1] // block * size), np.uint8)
    lib.ggml_quantize_init(int(kind))
    w = None if weights is None else weights.ctypes.data
    lib.ggml_quantize_chunk(int(kind), x.ctypes.data, made.ctypes.data, 0, *x.shape, w)
    return made


def record_rows(x, weights):
    out = {}
    for name in ROWS:
        for w in (None, weights)[name in WITH_WEIGHTS:]:
            made = chunks(name, x, w)
            if name in WITHOUT:
                made = np.delete(made, WITHOUT[name], 0)
            out[name if w is None else f"{name} weights"] = hashlib.sha256(made.tobytes()).hexdigest()
    return out


def record_errors(x, weights):
    found = {name: errors(chunks(name, x, weights), gguf.GGMLQuantizationType[name], x, weights) for name in ERRORS}
    return {name: [[float(f"{e:.4g}") for e in row] for row in both] for name, both in found.items()}


def quantise(path, out, file_type):
    import llama_cpp.llama_cpp as ll
    p = ll.llama_model_quantize_default_params()
    p.ftype, p.nthread, p.allow_requantize = file_type, 2, True
    assert ll.llama_model_quantize(str(path).encode(), str(out).encode(), p) == 0, (path, file_type)


def main():
    import llama_cpp.llama_cpp as ll
    import change_gguf
    import make_model
    quiet = ll.llama_log_callback(lambda *_: None)
    ll.llama_log_set(quiet, ctypes.c_void_p())
    ll.llama_backend_init()
    record = {"rows": record_rows(*samples()), "errors": record_errors(*samples()), "files": {}, "types": {}, "padded": {}}
    with tempfile.TemporaryDirectory() as folder:
        out, model = Path(folder) / "out.gguf", Path(folder) / "in.gguf"
        for name, number in FILES.items():
            quantise(Path(__file__).resolve().parents[2] / "models" / "tinypy.gguf", out, number)
            record["files"][name] = hashlib.sha256(out.read_bytes()).hexdigest()
        for family in FAMILIES:
            make_model.write(family, model)
            for name in ["Q4_K_M", "Q4_K_S", "Q3_K_M", "Q3_K_L", "Q2_K", "Q5_K_M", "IQ4_XS", "MXFP4_MOE"]:
                quantise(model, out, FILES[name])
                record["types"][f"{family} {name}"] = " ".join(t.tensor_type.name for t in gguf.GGUFReader(out).tensors)
        for family in PADDED:
            make_model.write(family, Path(folder) / "plain.gguf")
            change_gguf.with_dims(Path(folder) / "plain.gguf", model, change_gguf.padded)
            for name in ["Q4_0", "Q4_K_M"]:
                quantise(model, out, FILES[name])
                record["padded"][f"{family} {name}"] = hashlib.sha256(out.read_bytes()).hexdigest()
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
