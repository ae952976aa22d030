#!/usr/bin/env python3
"""try_shapes.py: random shapes of every family against llama.cpp (or references.py), until the time is over.

    try_shapes.py [--weft build/weft] [--seconds 600] [--seed 1] [--family NAME]... [--keep FOLDER]

Each round takes a family of make_model.py and changes its numbers: heads and how many share a key, sizes of heads, width, vocabulary, layers,
experts, ranks, states.  Half of the files have F32 weights.  The others draw a type for each matrix, and what llama.cpp computes is the same
weights as F32, so that no rounding of its own is in the comparison: there, `--precision exact` must say the same, and integers nearly so.
The prompt goes through at once, in chunks and token by token.  llama.cpp runs in a process of its own, as some shapes end it.

Some files differ because a router of random weights finds two experts nearly equal: then the distributions of single tokens are others. In
qwen3vlmoe llama.cpp gives a pair behind the sections the angle 0 (transformers: the position), which is small, and enough for that.
That it is the choice and not the products: eight files of 16 experts in MXFP4, 59 positions each, integers beside `--precision exact`. With all experts
chosen the mean KL is 2.3e-4 to 2.6e-4 and no position above 7.2e-4; with 4 chosen the medians stay, and single positions reach 2.7e-2.

Needs llama-cpp-python beside numpy and gguf.  A line per file; the last says how many differed, and the exit status is 1 if any did.
"""
import argparse
import ctypes
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np

import make_model
from references import REFERENCES

MEAN_KL, ROUNDED_KL = 1e-6, 2e-2
CACHES = ["-ctk", "f32", "-ctv", "f32"]         # in both programs: rounded to f16, one near choice of an expert is another one, and what follows differs
PROMPT, STEPS, CTX = 40, 6, 64
T = gguf.GGMLQuantizationType
TYPES = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.MXFP4, T.F16, T.BF16, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS, T.IQ3_S, T.IQ2_S, T.TQ2_0]


SQUARE = {"jamba", "command-r", "cohere2", "exaone4", "nemotron", "starcoder2", "qwen2moe"}      # there llama.cpp's heads are as wide as the stream

# ---- shapes ------------------------------------------------------------------------------------------------------------

def layers_fixed(p):
    """Whether something says what each layer is, or the number itself does."""
    listed = [v for v in [p["heads"], p["kv"], p["ffn"], *p.get("keys", {}).values(), *p.get("own_keys", {}).values()] if isinstance(v, list)]
    return "mix" in p or p.get("stacks") or p["layers"] > 30 or any(len(v) == p["layers"] for v in listed)


def shape(name, rng):
    """Numbers of a family, changed."""
    old = make_model.FAMILIES[name]
    p, keys = dict(old), dict(old.get("keys", {}))
    draw = lambda *values: values[rng.integers(len(values))]
    p["seed"], p["n_vocab"] = int(rng.integers(1 << 30)), int(rng.integers(200, 1100))
    p["ffn"] = [int(rng.integers(1, 12)) * 32 if f else 0 for f in old["ffn"]] if isinstance(old["ffn"], list) else old["ffn"] and int(rng.integers(1, 24)) * draw(8, 32, 32)
    if not layers_fixed(old):
        p["layers"] = int(rng.integers(1, old["layers"] + 3))
    if "near" in old:                       # two sizes of latent attention
        keys["attention.indexer.top_k"] = draw(5, 17, 40) if old["keys"]["attention.indexer.top_k"] < 128 else 128
    elif "latent" in old:
        mla(p, keys, draw, rng)
    elif "ratios" in old:
        entries(p, keys, draw)
    elif isinstance(old["kv"], list) or isinstance(old["heads"], list):
        if isinstance(old["kv"], list) and not isinstance(old["heads"], list):
            p["kv"] = [k and draw(1, 2, 4) for k in old["kv"]]
    elif old["heads"]:
        p["kv"] = draw(1, 2, 3, 5)
        p["heads"] = p["kv"] * (1 if old["kv"] == old["heads"] else draw(1, 2, 3, 4, 7))
    fixed = isinstance(old["heads"], list) or "latent" in old or "inner" in old or "ratios" in old
    if old["heads"] and not fixed:
        hd = old["head_dim"]
        p["head_dim"] = draw(32, 64, 80, 96, 128, 256)
        p["dim"] = draw(96, 160, 256, 320, 416)
        if isinstance(p["kv"], list):
            p["heads"] = old["heads"]
        if p.get("no_key_length") or p.get("fused") or name in SQUARE:
            p["dim"] = p["heads"] * p["head_dim"]
        turned = keys.get("rope.dimension_count")
        if turned:
            keys["rope.dimension_count"] = p["head_dim"] if turned == hd else max(16, p["head_dim"] // 2 // 16 * 16)
        if "rope.dimension_count_swa" in keys:
            keys["rope.dimension_count_swa"] = p["head_dim"]
        if "block_indexer" in p:
            p["block_indexer"] = p["kv"], p["head_dim"]
            keys |= {"attention.indexer.head_count": p["kv"], "attention.indexer.key_length": p["head_dim"]}
        if "swa_head_dim" in p:
            p["swa_head_dim"] = draw(32, 64, 96)
            keys.update(make_model.gemma4_heads(p["head_dim"], p["swa_head_dim"]))
        if "n_rot" in p:
            p["n_rot"] = keys["rope.dimension_count"]
    elif "latent" in old:
        p["dim"] = draw(128, 192, 256, 384)
    elif p.get("channel_mix"):
        p["dim"], keys["wkv.head_size"] = draw(128, 192, 256, 384), draw(32, 64)
        p["layers"] = int(rng.integers(1, 4))
        p["mix"] = old["mix"][0] * p["layers"]
    if p.get("experts"):
        n = draw(2, 3, 5, 8, 16, 60, 128) * keys.get("experts_per_group", 1)
        used = int(rng.integers(1, min(n, 8) + 1))
        p["experts"], p["expert_ffn"] = n, draw(32, 64, 96, 160)
        if old["ffn"] == old["expert_ffn"]:         # llama.cpp reads one of the two
            p["ffn"] = p["expert_ffn"]
        keys.update(expert_count=n, expert_used_count=used, expert_feed_forward_length=p["expert_ffn"])
        if keys.get("expert_group_count", 1) > 1:
            n = p["experts"] = keys["expert_count"] = draw(8, 16, 64)
            keys["expert_group_count"], keys["expert_group_used_count"] = draw((2, 1), (4, 2), (4, 3))
            keys["expert_used_count"] = min(used, n // keys["expert_group_count"] * keys["expert_group_used_count"])
        shared_experts(p, keys)
        if "leading_dense_block_count" in keys and "dense" in p:
            p["dense"] = keys["leading_dense_block_count"] = int(rng.integers(0, 3))
    if keys.get("attention.sliding_window", 4096) < 4096:          # which is what llama.cpp takes it for, of one family
        keys["attention.sliding_window"] = int(rng.integers(1, 50))
    p["keys"] = keys
    return p


def entries(p, keys, draw):
    """Of attention over entries: heads come in groups."""
    groups, turned, p["q_rank"] = draw(1, 2, 3), draw(16, 32, 48), draw(32, 48, 96)
    p["heads"], p["head_dim"], p["dim"] = groups * draw(1, 2, 3), draw(64, 96, 128), draw(96, 128, 160, 256)
    keys |= {"attention.output_group_count": groups, "attention.output_lora_rank": draw(16, 40, 64), "attention.q_lora_rank": p["q_rank"], "rope.dimension_count": turned,
             "attention.indexer.key_length": draw(48, 64, 128), "attention.indexer.top_k": draw(3, 6, 30)}


def shared_experts(p, keys):
    """As wide as the others together, where a family has them."""
    if p.get("shared"):
        p["shared"] = p["expert_ffn"] * keys.get("expert_shared_count", 1)
        if "expert_shared_feed_forward_length" in keys:
            keys["expert_shared_feed_forward_length"] = p["shared"]


def put_latent(p, keys, new):
    """Other sizes of latent attention, as make_model.mla gives them."""
    for k in ("attention.key_length", "attention.value_length", "attention.key_length_mla", "attention.value_length_mla"):
        keys.pop(k, None)
    del new["arch"]
    keys.update(new.pop("keys"))
    p.update(new)


def mla(p, keys, draw, rng):
    heads, nope, turned, v, latent = int(rng.integers(1, 8)), draw(32, 64, 96, 128), draw(16, 32, 64) * (p["turned"] > 0), draw(32, 64, 96), draw(64, 128, 160, 256)
    legacy, q_rank = bool(rng.integers(2)), draw(0, 64, 96, 256)
    if p["arch"] in ("plm", "minicpm3"):
        legacy, q_rank = True, 0 if p["arch"] == "plm" else q_rank or 96
    if "indexer" in p or "kda" in p:
        legacy, q_rank = False, q_rank or 96
    new = make_model.mla(heads, nope, turned, v, latent, legacy=legacy, q_rank=q_rank)
    put_latent(p, keys, new)
    if "n_rot" in p:
        p["n_rot"] = turned
    if "kda" in p:
        p["layers"] = int(rng.integers(2, 5))
        p["mix"] = "kl"[:p["layers"]] + "".join(draw("k", "l") for _ in range(p["layers"] - 2))
        p["kv"] = [int(kind == "l") for kind in p["mix"]]
        p["kda"] = keys["kda.head_dim"] = draw(16, 32, 48, 64)
        if "attention.indexer.kpool" in keys:
            pools(p, keys, draw)
        return
    p["layers"] = int(rng.integers(1, 4))
    p["mix"] = "l" * p["layers"]
    if keys.get("attention.indexer.top_k", 128) < 128:
        p["indexer"] = draw(1, 2, 3, 8), draw(64, 96, 128)
        keys["attention.indexer.head_count"], keys["attention.indexer.key_length"] = p["indexer"]
        keys["attention.indexer.top_k"] = draw(1, 5, 8, 17)
    if "attention.indexer.types" in keys:
        keys["attention.indexer.types"] = [i == 0 or draw(True, False) for i in range(p["layers"])]
    if not p.get("experts") and "leading_dense_block_count" in keys:
        keys["leading_dense_block_count"] = p["layers"]


def pools(p, keys, draw):
    """An indexer that chooses pools of positions: layers without one follow a layer that has one."""
    p["indexer"] = draw(8, 17, 32), draw(48, 64, 96)
    keys["attention.indexer.head_count"], keys["attention.indexer.key_length"] = p["indexer"]
    keys["attention.indexer.kpool"] = draw(2, 4, 8, 16)
    keys["attention.indexer.top_k"] = keys["attention.indexer.kpool"] * draw(1, 2, 3)
    keys["attention.indexer.types"] = [i <= p["mix"].index("l") or draw(True, False) for i in range(p["layers"])]
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        keys[key] = keys[key][:1] * p["layers"]


# ---- types -------------------------------------------------------------------------------------------------------------

class Types:
    """A type for each matrix, by llama.cpp's own quantisers; `plain` writes the same values as F32."""

    def __init__(self, seed, plain):
        import llama_cpp
        self.lib = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
        self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
        self.seed, self.plain, self.used = seed, plain, set()
        rng = np.random.default_rng(seed)
        self.few = [TYPES[i] for i in rng.integers(0, len(TYPES), rng.integers(1, 5))]      # as files have them: a few types each

    def __call__(self, name, x):
        rng = np.random.default_rng([self.seed, len(name), sum(name.encode())])
        kind = self.few[rng.integers(len(self.few))]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if x.shape[1] % block or "ffn_gate_inp" in name or "ssm_conv" in name:
            return None
        out = np.zeros((x.shape[0], x.shape[1] // block * size), np.uint8)
        even = np.ones(x.shape[1], np.float32)
        done = self.lib.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], even.ctypes.data)
        assert done == out.size, (kind, done, out.shape)
        self.used.add(kind.name)
        return (make_model.F32, gguf.quants.dequantize(out, kind).astype(np.float32)) if self.plain else (kind, out)


# ---- both programs -----------------------------------------------------------------------------------------------------

def normal(logits):
    x = np.asarray(logits, np.float64)
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def llama(pipe):
    """Serves (path, prompt): greedy tokens, and log-probabilities after the prompt and after each of them."""
    from llama_cpp import Llama
    while True:
        path, prompt = pipe.recv()
        try:
            m = Llama(path, n_ctx=CTX, n_batch=CTX, logits_all=True, n_gpu_layers=0, n_threads=1, flash_attn=False, verbose=False,
                      type_k=int(T.F32), type_v=int(T.F32))
        except ValueError:
            pipe.send(None)
            continue
        m.eval(prompt)
        rows, tokens = [normal(m.scores[i]) for i in range(len(prompt))], []
        for _ in range(STEPS):
            tokens.append(int(np.argmax(rows[-1])))
            m.eval(tokens[-1:])
            rows.append(normal(m.scores[m.n_tokens - 1]))
        m.close()
        pipe.send((tokens, rows))


class Peer:
    def __init__(self):
        self.child = None

    def ask(self, *what):
        """None: it did not live through that."""
        if not self.child or not self.child.is_alive():
            self.pipe, far = multiprocessing.Pipe()
            self.child = multiprocessing.Process(target=llama, args=(far,), daemon=True)
            self.child.start()
            far.close()
        try:
            self.pipe.send(what)
            return self.pipe.recv()
        except (EOFError, OSError):
            self.child.join()
            return None


def by_definition(logits, prompt):
    """The same, of a function of all ids so far."""
    ids = list(prompt)
    for _ in range(STEPS):
        ids.append(int(np.argmax(logits(ids)[-1])))
    return ids[len(prompt):], [normal(row) for row in logits(ids)]


def weft(program, path, prompt, tokens, n_vocab, *more):
    done = subprocess.run([program, "run", "-m", path, "-c", str(CTX), "-t", "2", "--ids", ",".join(map(str, prompt)), "--force", ",".join(map(str, tokens)), "--json",
                           "--top-logprobs", str(n_vocab), *more], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-400:]}")
    rows = []
    for line in done.stdout.splitlines():
        row = np.full(n_vocab, -np.inf)
        for token, p in json.loads(line)["top"]:
            row[token] = p
        rows.append(row)
    return rows


def mean_kl(theirs, ours):
    return sum(float((np.exp(a) * (a - b)).sum()) for a, b in zip(theirs, ours, strict=True)) / len(ours)


def differences(program, name, path, peer, plain, p, rng):
    """What is wrong, as text; empty: nothing.  None: llama.cpp does not run it."""
    prompt = [int(i) for i in rng.integers(0, p["n_vocab"] - 2, PROMPT)]
    answer = by_definition(REFERENCES[name](plain), prompt) if name in REFERENCES else peer.ask(str(plain), prompt)
    if answer is None:
        return None, ""
    tokens, rows = answer
    n, after = p["n_vocab"], rows[PROMPT - 1:-1]
    exact = ["--precision", "exact"] if plain != path else []
    more = exact + CACHES
    one = weft(program, path, prompt, tokens, n, *more)
    chunks = weft(program, path, prompt, tokens[:1], n, "-ub", "7", *more)
    single = weft(program, path, prompt[:1], prompt[1:] + tokens, n, *more)
    kl = {"at once": mean_kl(after, one), "token by token": mean_kl(rows[:-1], single)}
    wrong = [f"{what} {x:.2g}" for what, x in kl.items() if not x <= MEAN_KL]
    spread = max(float(np.abs(other - one[0]).max()) for other in (chunks[0], single[PROMPT - 1]))
    if spread:
        wrong.append(f"cuts differ by {spread:.2g}")
    if exact:
        kl["integers"] = mean_kl(after, weft(program, path, prompt, tokens, n, *CACHES))
        if not kl["integers"] <= ROUNDED_KL:
            wrong.append(f"integers {kl['integers']:.2g}")
    return "; ".join(wrong), f"{', '.join(f'{what} {x:.1e}' for what, x in kl.items())}, cuts {spread:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append")
    parser.add_argument("--keep", help="folder for the files that differed")
    args = parser.parse_args()
    names, end, bad, done, peer = args.family or list(make_model.FAMILIES), time.time() + args.seconds, 0, 0, Peer()
    with tempfile.TemporaryDirectory() as folder:
        while time.time() < end:
            seed = args.seed + done
            rng = np.random.default_rng(seed)
            name = names[seed % len(names)]
            p, quantised = shape(name, rng), bool(rng.integers(2))
            path = Path(folder) / "model.gguf"
            plain = Path(folder) / "plain.gguf" if quantised else path
            types = [Types(seed, False), Types(seed, True)] if quantised else []
            make_model.write(name, path, **{**p, "quant": types[0] if types else "F32"})
            if quantised:
                make_model.write(name, plain, **{**p, "quant": types[1]})
            try:
                wrong, figures = differences(args.weft, name, path, peer, plain, p, rng)
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                wrong, figures = str(e), ""
            done += 1
            bad += bool(wrong)
            what = " ".join(f"{k}={p[k]}" for k in ("dim", "layers", "heads", "kv", "head_dim", "ffn", "n_vocab", "experts", "nope", "turned", "v", "latent", "q_rank", "legacy") if k in p)
            used = p["keys"].get("expert_used_count")
            print(f"{seed} {name} {what}{f' used={used}' if used else ''} {'+'.join(sorted(types[0].used)) if types else 'F32'}: "
                  f"{'llama.cpp does not run it' if wrong is None else 'DIFFERS: ' + wrong if wrong else 'same'} ({figures})", flush=True)
            if wrong and args.keep:
                for file in {path, plain}:
                    os.replace(file, Path(args.keep) / f"{seed}-{file.name}")
    print(f"{done} files, {bad} differed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
