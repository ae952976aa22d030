#!/usr/bin/env python3
"""Which kernels of which families are slow: each family of the tests in a realistic width, and what weft profile says.

    bench/families.py [--type Q4_0] [--family NAME]... [--share 55] [--gflops 250] [--least 100] [--weft build/weft]

Each family of tests/tools/make_model.py is written 1,024 to 2,048 wide, with random blocks of one type (F32 where rows
are no multiple of 256), and profiled twice: single tokens, and a chunk of 64. A row is a kernel that stays below that
share of the memory's limit with one token, or below so many GFLOP/s with a chunk, and takes more than a few percent and
some time. On an idle machine; one that is busy shows kernels that wait. Without rows all is well. Floats do 90 GFLOP/s.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_model  # noqa: E402
from try_cuts import weights  # noqa: E402
from try_shapes import SQUARE, layers_fixed, put_latent, shared_experts  # noqa: E402


def experts(p, old, keys):
    p["experts"], p["expert_ffn"] = 16, 1024
    if old["ffn"] == old["expert_ffn"]:
        p["ffn"] = 1024
    keys.update(expert_count=16, expert_used_count=4, expert_feed_forward_length=1024)
    if keys.get("expert_group_count", 1) > 1:
        keys.update(expert_group_count=4, expert_group_used_count=2)
    shared_experts(p, keys)


def latent(p, old, keys):
    legacy, q_rank = p["arch"] in ("plm", "minicpm3"), old.get("q_rank", 0) and 1024
    put_latent(p, keys, make_model.mla(16, 128, 64, 128, 512, legacy=legacy, q_rank=q_rank))
    p["dim"] = 2048
    if "n_rot" in p:
        p["n_rot"] = 64
    if "kda" in p:
        p.update(layers=2, mix="kl", kv=[0, 1])


def wide(name):
    """Numbers of a family, as large as they are in models that people run; few layers."""
    old = make_model.FAMILIES[name]
    p, keys = dict(old), dict(old.get("keys", {}))
    square = p.get("no_key_length") or p.get("fused") or name in SQUARE
    p["n_vocab"] = 2048
    p["ffn"] = [f and 4096 for f in old["ffn"]] if isinstance(old["ffn"], list) else old["ffn"] and 4096
    if not layers_fixed(old):
        p["layers"] = min(2, old["layers"])
    if "latent" in old:
        latent(p, old, keys)
    elif old["heads"] and "inner" not in old and not isinstance(old["heads"], list) and not isinstance(old["kv"], list):
        p["heads"], p["kv"] = 16, 16 if old["kv"] == old["heads"] else 4
        p["dim"] = p["heads"] * p["head_dim"] if square else 2048
    elif not square:
        p["dim"] = 1024
    if p.get("experts"):
        experts(p, old, keys)
    return {**p, "keys": keys}


def quant(kind):
    def draw(name, x):
        rng = np.random.default_rng([3, len(name)])
        return weights(rng, kind, x) if x.ndim > 1 and x.shape[-1] % 256 == 0 else None
    return draw


def slow_rows(args, path, chunk, cache):
    """Lines for the kernels that are slow; one with what went wrong if it did."""
    command = [args.weft, "profile", "--json", "-m", path, *(["-p", "64", "-n", "2"] if chunk else ["-n", "4"])]
    done = subprocess.run(command, env={**os.environ, "WEFT_CACHE": cache}, capture_output=True, text=True, check=False)
    if done.returncode:
        return [done.stderr.strip()[-300:]]
    rows = []
    for k in json.loads(done.stdout)["kernels"]:
        share = 100 * k["limit_share"]
        slow = k["gflop_s"] < args.gflops and k["pct"] > 6 if chunk else share < args.share and k["pct"] > 4
        if slow and k["us"] > args.least:
            speed = f"{k['gb_s']:7.2f} GB/s {k['gflop_s']:7.1f} GFLOP/s {share:4.0f}%"
            rows.append(f"{'chunk' if chunk else 'token'}  {k['role']:22} {k['name'][:32]:32} x{k['count']:<3} "
                        f"{k['us']:9.0f} us {k['pct']:5.1f}% {speed}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--type", default="Q4_0")
    parser.add_argument("--family", action="append")
    parser.add_argument("--share", type=float, default=55, help="percent of the memory's limit, of single tokens")
    parser.add_argument("--gflops", type=float, default=250, help="of a chunk")
    parser.add_argument("--least", type=float, default=100, help="microseconds")
    parser.add_argument("--weft", default=ROOT / "build" / "weft")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "model.gguf", Path(folder) / "cache"
        cache.mkdir(mode=0o700)
        for name in args.family or make_model.FAMILIES:
            try:
                make_model.write(name, path, **{**wide(name), "quant": quant(gguf.GGMLQuantizationType[args.type])})
            except (ValueError, IndexError, KeyError) as e:
                print(f"{name}: not written in this width: {e!r}", flush=True)
                continue
            for row in [*slow_rows(args, path, False, cache), *slow_rows(args, path, True, cache)]:
                print(f"{name:20} {row}", flush=True)


if __name__ == "__main__":
    main()
