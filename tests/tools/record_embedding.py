#!/usr/bin/env python3
"""record_embedding.py: the vectors that llama.cpp makes with the files of make_encoder.py, and of make_model.py, for tests/records/embeddings.

    record_embedding.py OUT_FOLDER [NAME ...]       default: all names

Needs llama-cpp-python beside numpy and gguf.  For each file and each of some texts of token ids: the mean of all tokens' vectors, and those of
the first and the last token, as they are before anything is normalised.  Of files that rank texts, their
scores instead. Of quantised files also "floats": the same with the weights that they
stand for as 32-bit floats, where no activation is rounded.
"""
import json
import sys
import tempfile
import zlib
from pathlib import Path

import gguf
import numpy as np
from llama_cpp import llama_cpp as lib

import make_encoder
import make_model

LENGTHS = (1, 30, 200)
PREDICTING = ["qwen3moe-q8_0", "gemma3", "lfm2", "llama-yarn"]   # models that predict make vectors, too


def decoded(model, ids, pooling, read):
    """what read(context) makes of it when a text has been evaluated with this pooling"""
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.embeddings, params.pooling_type, params.n_threads, params.n_threads_batch, params.flash_attn_type = True, pooling, 1, 1, 0
    context = lib.llama_init_from_model(model, params)
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if lib.llama_decode(context, batch):
        sys.exit("llama_decode failed")
    found = read(context)
    lib.llama_free(context)
    return found


def of_tokens(model, ids):
    n = lib.llama_model_n_embd(model)
    return decoded(model, ids, 0, lambda c: np.array([np.ctypeslib.as_array(lib.llama_get_embeddings_ith(c, i), (n,)).copy() for i in range(len(ids))]))


def ranked(model, ids, scores):
    return decoded(model, ids, 4, lambda c: [float(f"{x:.7g}") for x in np.ctypeslib.as_array(lib.llama_get_embeddings_seq(c, 0), (scores,))])


def shapes(name):
    return make_encoder.ENCODERS if name in make_encoder.ENCODERS else make_model.FAMILIES


def as_floats(kind):
    """for make_model.py: matrices as floats that this type can hold"""
    return lambda _, rows: (gguf.GGMLQuantizationType.F32, gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)) if rows.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else None


def pooled(rows):
    return {how: [float(f"{x:.6g}") for x in v] for how, v in (("mean", rows.astype(np.float64).mean(0)), ("cls", rows[0]), ("last", rows[-1]))}


def record(name, path):
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    n_vocab = shapes(name)[name]["n_vocab"]
    texts = []
    for n in LENGTHS:
        ids = [int(i) for i in np.random.default_rng([n, zlib.crc32(name.encode())]).integers(5, n_vocab - 2, n)]
        cls = shapes(name)[name].get("cls")
        texts.append({"ids": ids, "rank": ranked(model, ids, cls[1] or cls[0])} if cls else {"ids": ids, **pooled(of_tokens(model, ids))})
    lib.llama_model_free(model)
    return texts


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or [*(n for n in make_encoder.ENCODERS if n not in make_encoder.PUBLISHED), *PREDICTING]:
        with tempfile.TemporaryDirectory() as folder:
            path, shape = Path(folder) / f"{name}.gguf", shapes(name)[name]
            write = (make_encoder if name in make_encoder.ENCODERS else make_model).write
            write(name, path)
            texts = record(name, path)
            if "quant" in shape:
                shapes(name)[name] = {**shape, "quant": as_floats(gguf.GGMLQuantizationType[shape["quant"]])}
                write(name, path)
                for text, floats in zip(texts, record(name, path), strict=True):
                    text["floats"] = {how: floats[how] for how in ("mean", "cls", "last")}
        (Path(sys.argv[1]) / f"{name}.json").write_text("[" + ",\n".join(json.dumps(t, separators=(",", ":")) for t in texts) + "]\n")
        print(f"{name}:", [t["rank"] for t in texts] if "rank" in texts[0] else f"length {np.linalg.norm(texts[1]['mean']):.3g}")


if __name__ == "__main__":
    main()
