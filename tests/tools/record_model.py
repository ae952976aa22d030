#!/usr/bin/env python3
"""record_model.py: what llama.cpp answers to the files of make_model.py, for tests/records.

    record_model.py OUT_FOLDER [NAME ...]       default: all names

Needs llama-cpp-python beside numpy and gguf, or what a function of references.py needs.  For each file: the likeliest tokens after some
beginnings of a prompt, then after each token of a greedy continuation; a distribution is a list of [token, log-probability].
"""
import json
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

import make_model
from references import REFERENCES

PROMPT, STEPS, TOP, EVERY = 40, 12, 10, 8


def distribution(logits):
    x = logits.astype(np.float64)
    x -= x.max() + np.log(np.exp(x - x.max()).sum())
    order = np.argsort(-x, kind="stable")[:TOP]
    return [[int(i), round(float(x[i]), 5)] for i in order]


def record(name, path):
    p = make_model.FAMILIES[name]
    if name in REFERENCES:
        return record_with(REFERENCES[name](path), name, p)
    from llama_cpp import Llama
    run, n = p.get("run_ctx", 64), p.get("prompt", PROMPT)
    model = Llama(str(path), n_ctx=run, n_batch=n, logits_all=True, n_gpu_layers=0, n_threads=2, flash_attn=False, verbose=False)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    prompt = [int(i) for i in rng.integers(0, p["n_vocab"] - 2, n)]
    each = 1 if p.get("one_by_one") else n
    for i in range(0, n, each):
        model.eval(prompt[i:i + each])
    after = {i + 1: distribution(model.scores[i]) for i in range(EVERY - 1, n - 1, EVERY)}
    tokens, steps = [], []
    for _ in range(STEPS):
        steps.append(distribution(model.scores[model.n_tokens - 1]))
        tokens.append(steps[-1][0][0])
        model.eval(tokens[-1:])
    return {"n_ctx": run, "prompt": prompt, "tokens": tokens, "after": after, "steps": steps}


def record_with(logits, name, p):
    """The same of a function of all ids so far."""
    n, rng = p.get("prompt", PROMPT), np.random.default_rng(zlib.crc32(name.encode()))
    prompt, steps, tokens = [int(i) for i in rng.integers(0, p["n_vocab"] - 2, n)], [], []
    rows = logits(prompt)
    after = {i + 1: distribution(rows[i]) for i in range(EVERY - 1, n - 1, EVERY)}
    for _ in range(STEPS):
        steps.append(distribution(logits(prompt + tokens)[-1]))
        tokens.append(steps[-1][0][0])
    return {"n_ctx": p.get("run_ctx", 64), "prompt": prompt, "tokens": tokens, "after": after, "steps": steps}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    for name in sys.argv[2:] or make_model.FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.gguf"
            make_model.write(name, path)
            r = record(name, path)
        (out / f"{name}.json").write_text(json.dumps(r, separators=(",", ":")).replace('"steps"', '\n"steps"').replace('"after"', '\n"after"') + "\n")
        gap = min(step[0][1] - step[1][1] for step in r["steps"])
        print(f"{name}: {len(set(r['tokens']))} distinct tokens, smallest gap {gap:.3f}, likeliest {r['steps'][0][0][1]:.2f}")


if __name__ == "__main__":
    main()
