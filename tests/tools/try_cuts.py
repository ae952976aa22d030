#!/usr/bin/env python3
"""try_cuts.py: random small models of every family: are their logits the same bits however a sequence is cut?

    try_cuts.py [--tool build/tests/cuts_tool] [--models 200] [--seconds N] [--seed 1] [--family NAME]...
                [--ids 40] [--cuts 4] [--cache TYPE] [--keep FOLDER] [--steps N]
                [--adapters]

Each round takes a family of make_model.py in a shape of try_shapes.py, a type for each matrix out of one to four, and
one for keys and values; cuts_tool.c does the rest.  With --steps sequences_tool.c follows: so many steps of several
sequences at once, with copies, cuts, files and ends in the middle; with --adapters a sequence without an adapter beside
one with it.
A line per file; the last says how many differed, and the exit status is 1 if any did.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_adapter  # noqa: E402
import make_model  # noqa: E402
from try_shapes import layers_fixed, shape  # noqa: E402

T, quants = gguf.GGMLQuantizationType, gguf.quants
FLOATS = [T.F32, T.F16, T.BF16]
# Where the scales of a block lie: high bytes of half-precision numbers. The two others have bytes that are scales: how
# many, an exponent of ordinary size, and how much one more of it doubles them.
HALVES = {"Q4_0": [1], "Q4_1": [1, 3], "Q5_0": [1], "Q5_1": [1, 3], "Q8_0": [1], "Q2_K": [81, 83], "Q3_K": [109],
          "Q4_K": [1, 3], "Q5_K": [1, 3], "Q6_K": [209], "TQ1_0": [53], "TQ2_0": [65], "IQ1_S": [1], "IQ1_M": [55],
          "IQ2_XXS": [1], "IQ2_XS": [1], "IQ2_S": [1], "IQ3_XXS": [1], "IQ3_S": [1], "IQ4_NL": [1], "IQ4_XS": [1]}
BYTES = {"MXFP4": (1, 118, 1), "NVFP4": (4, 40, 8)}
SHOWN = ["dim", "layers", "heads", "kv", "head_dim", "ffn", "n_vocab", "experts", "expert_ffn", "latent", "q_rank",
         "inner", "state", "groups", "ssm_heads", "taps"]
BLOCKS = [T[name] for name in (*HALVES, *BYTES)]
ADAPTED = ["attn_q.", "attn_k.", "attn_v.", "attn_qkv", "attn_output", "ffn_up.", "ffn_down.", "output."]
CACHES = ["f16", "f32", "bf16"]


def blocks(rng, kind, rows, columns):
    """Random blocks: a matrix whose products keep the size of what they are multiplied with."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)

    def put(more):
        if kind.name in BYTES:
            count, low, step = BYTES[kind.name]
            raw[:, :count] = np.clip(low + step * more + spread[:, :1] % 4, 1, 120 if kind.name == "NVFP4" else 250)
        for place in HALVES.get(kind.name, []):
            raw[:, place] = np.clip(0x24 + 4 * more + spread[:, 0] % 4, 1, 0x77)

    spread = rng.integers(0, 4, (len(raw), 1))
    put(0)
    few = quants.dequantize(raw[:64], kind).astype(np.float64)
    put(int(round(-np.log2(np.sqrt(np.mean(few ** 2) * columns)))))
    return raw.reshape(rows, -1)


def weights(rng, kind, x):
    """Rows of x in a type: its numbers where that is one of floats, else random blocks. None: they are too short."""
    if x.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
        return None
    return kind, quants.quantize(x, kind) if kind in FLOATS else blocks(rng, kind, *x.shape)


class ByName:
    """A type for each matrix: that of the longest part of a name."""

    def __init__(self, types):
        self.types = types

    def __call__(self, name, x):
        part = max((part for part in self.types if part in name), key=len)
        return weights(np.random.default_rng([1, len(name), sum(name.encode())]), T[self.types[part]], x)


class Types:
    """A type for each matrix: out of a few, as files have them."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        kinds = [*FLOATS * 3, *BLOCKS]
        self.seed, self.used = seed, {}
        self.few = [kinds[i] for i in rng.integers(0, len(kinds), rng.integers(1, 5))]

    def __call__(self, name, x):
        rng = np.random.default_rng([self.seed, len(name), sum(name.encode())])
        kind = self.few[rng.integers(len(self.few))]
        made = weights(rng, kind, x)
        if made:
            self.used[name] = kind.name
        return made


def recurrence(p, rng):
    """Other sizes of a recurrence."""
    groups, state = p["groups"] and int(rng.integers(1, 4)), int(rng.choice([16, 32, 48, 64, 128]))
    heads = max(groups, 1) * int(rng.choice([1, 2, 4]))
    sizes = make_model.ssm(heads * int(rng.choice([16, 32, 40, 64])), state, groups, heads, int(rng.integers(2, 5)))
    p["keys"].update(sizes.pop("keys"))
    p.update(sizes)


def write(path, name, seed):
    """A model of a family, all else drawn; what it is, as text."""
    rng = np.random.default_rng(seed)
    p, types = shape(name, rng), Types(seed)
    if "inner" in p:
        recurrence(p, rng)
    if not layers_fixed(p):
        p["layers"] = min(p["layers"], 2)
    make_model.write(name, path, **{**p, "quant": types})
    what = " ".join(f"{k}={p[k]}" for k in SHOWN if k in p)
    return f"{what} {'+'.join(sorted(set(types.used.values()))) or 'F32'}"


def cache_of(seed):
    return CACHES[int(np.random.default_rng([2, seed]).integers(len(CACHES)))]


def try_adapted(tool, path, ids, seed, cache, env, parts=ADAPTED):
    """try_model without cuts, and with an adapter of matrices whose names have these parts."""
    arch = gguf.GGUFReader(path).get_field("general.architecture").contents()
    tensors, adapter = make_adapter.of_model(path, parts, 3, seed)[0], Path(path).with_name("adapter.gguf")
    while tensors:
        make_adapter.write(adapter, arch, tensors)
        wrong, figures = try_model(tool, path, ids, 0, seed, 0, cache, env, adapter=adapter)
        other = re.search(r"tensor '(.*?)(?:\.lora_a)?' is not one that an adapter can change", wrong)
        if not other:
            return wrong, figures
        tensors = {name: data for name, data in tensors.items() if not name.startswith(other[1])}
    return "", ""


def try_model(tool, path, ids, cuts, seed, chunk, cache, env, timeout=900, adapter=None):
    """What differs, as text; empty: nothing. And the lines of the tool."""
    command = [tool, path, str(ids), str(cuts), str(seed), str(chunk), "0", cache, *([adapter] if adapter else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {timeout} s", ""
    if done.returncode not in (0, 1) or len(done.stdout.splitlines()) != 2:
        return f"exit status {done.returncode}: {done.stderr[-400:]}", ""
    wrong = []
    for line in done.stdout.splitlines():
        precision, _, ways, differ, _, *first = line.split()
        if int(differ):
            wrong.append(f"{precision}: {differ} of {ways} ways: {' '.join(first)}")
    return "; ".join(wrong), " ".join(" ".join(line.split()[:2]) for line in done.stdout.splitlines())


def try_sequences(tool, path, steps, seed, env):
    """What differs in steps of several sequences, as text; empty: nothing."""
    done = subprocess.run([tool, path, str(steps), str(seed), "60", "200"], capture_output=True, text=True, env=env,
                          timeout=900, check=False)
    return f"steps of sequences: {(done.stdout + done.stderr)[-600:].strip()}" if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="build/tests/cuts_tool")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append")
    parser.add_argument("--ids", type=int, default=40)
    parser.add_argument("--cuts", type=int, default=4, help="random cuts for each number of threads and precision")
    parser.add_argument("--cache", help="how keys and values lie; otherwise drawn")
    parser.add_argument("--steps", type=int, default=0, help="of several sequences at once")
    parser.add_argument("--adapters", action="store_true", help="a sequence without an adapter beside one with it")
    parser.add_argument("--sequences-tool", default="build/tests/sequences_tool")
    parser.add_argument("--keep", help="folder for the files that differed")
    args = parser.parse_args()
    names, end, bad, done = args.family or list(make_model.FAMILIES), time.time() + args.seconds, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while done < args.models and time.time() < end:
            seed = args.seed + done
            name, path, kernels = names[seed % len(names)], Path(folder) / "model.gguf", Path(folder) / "kernels"
            kernels.mkdir(mode=0o700)
            what, cache = write(path, name, seed), args.cache or cache_of(seed)
            env, chunk = {**os.environ, "WEFT_CACHE": str(kernels)}, 100 if seed % 5 == 0 else 0
            wrong, figures = try_model(args.tool, path, args.ids, args.cuts, seed, chunk, cache, env)
            if args.steps and not wrong:
                wrong = try_sequences(args.sequences_tool, path, args.steps, seed, env)
            if args.adapters and not wrong:
                wrong, _ = try_adapted(args.tool, path, args.ids, seed, cache, env)
            shutil.rmtree(kernels)
            done += 1
            bad += bool(wrong)
            print(f"{seed} {name} {what} {cache}: {f'DIFFERS: {wrong}' if wrong else f'same ({figures})'}", flush=True)
            if wrong and args.keep:
                os.replace(path, Path(args.keep) / f"{seed}-{name}.gguf")
    print(f"{done} files, {bad} differed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
