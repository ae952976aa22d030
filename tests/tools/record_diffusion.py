#!/usr/bin/env python3
"""record_diffusion.py: what llama.cpp's diffusion makes with the files of make_diffusion.py, for tests/records/diffusion.

    record_diffusion.py OUT_FOLDER LLAMA_IDS AUTHORS_IDS [NAME ...]       default: all names

LLAMA_IDS and AUTHORS_IDS are programs around llama.cpp's diffusion_generate (examples/diffusion/diffusion.cpp):

    ids FILE PROMPT LENGTH logits                                     logarithms of probabilities, a line for each token of the text
    ids FILE PROMPT LENGTH STEPS EPS BLOCK ALGORITHM TEMP TOP_K TOP_P SEED ALG_TEMP CFG_SCALE     the ids behind the prompt

That of AUTHORS_IDS has two changes, by which it does as the code of Dream's authors: calculate_confidence returns the negative entropy, and at temperature 0
the token is the likeliest candidate. llama.cpp draws it from all candidates there, at temperature 1.
"""
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

import make_diffusion

PROMPT, LENGTH, TOP = 9, 48, 10
# steps, eps, block length, algorithm, temperature, top_k, top_p, seed, scale of guidance, and whether the authors' is meant
RUNS = [(16, 0.001, 0, 4, 0, 1, 1, 1, 0, False), (12, 0, 8, 4, 0, 1, 1, 1, 0, False), (16, 0.001, 0, 4, 0, 40, 0.95, 1, 0, True), (24, 0, 16, 4, 0, 0, 1, 1, 0, True),
        (16, 0.001, 0, 1, 0, 40, 0.95, 1, 0, True), (10, 0.01, 0, 2, 0, 40, 1, 1, 0, True), (16, 0.001, 0, 0, 1, 40, 0.95, 7, 0, False), (16, 0.001, 0, 2, 0.7, 20, 0.9, 8, 0, False),
        (12, 0.001, 0, 3, 1, 0, 0.8, 9, 0, False), (12, 0, 16, 4, 0.5, 0, 1, 4294967295 // 3, 0, False), (12, 0, 24, 1, 0.8, 40, 0.95, 11, 0, True),
        (8, 0.001, 0, 4, 0, 1, 1, 1, 1.5, False), (12, 0, 12, 4, 0.9, 40, 0.95, 5, 0.7, False)]


def distribution(line):
    x = np.array(line.split(), np.float64)
    order = np.argsort(-x, kind="stable")[:TOP]
    return [[int(i), round(float(x[i]), 5)] for i in order]


def called(*args):
    return subprocess.run([str(a) for a in args], check=True, stdout=subprocess.PIPE).stdout.decode()


def record(name, path, llama, authors):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    prompt = [int(i) for i in rng.integers(0, make_diffusion.mask_of(name), PROMPT)]
    text = ",".join(map(str, prompt))
    rows = called(llama, path, text, LENGTH, "logits").splitlines()
    runs = []
    for run in RUNS:
        ids = called(authors if run[-1] else llama, path, text, LENGTH, *run[:-2], 0, run[-2])
        runs.append({"of": run, "ids": [int(i) for i in ids.split(",")]})
    return {"prompt": prompt, "length": LENGTH, "rows": [distribution(row) for row in rows], "runs": runs}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    out, llama, authors = map(Path, sys.argv[1:4])
    for name in sys.argv[4:] or make_diffusion.DENOISERS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.gguf"
            make_diffusion.write(name, path)
            r = record(name, path, llama.resolve(), authors.resolve())
        (out / f"{name}.json").write_text(json.dumps(r, separators=(",", ":")).replace('"rows"', '\n"rows"').replace('"runs"', '\n"runs"').replace('{"of"', '\n{"of"') + "\n")
        print(f"{name}: {[len(set(run['ids'])) for run in r['runs']]} distinct ids")


if __name__ == "__main__":
    main()
