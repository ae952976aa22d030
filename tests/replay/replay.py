"""Kernel replay: the source of every kernel of a few models, as it is now and as it was when it was accepted.

    replay.py TOOL [--update] [--lines N]       scripts/replay.sh builds TOOL (tests/tools/replay_tool.c) and calls this

kernels.txt has a line for each different kernel: name, how often it runs, lines and a hash of its text.  kernels.xz has the texts of those that make a token
(of the larger models for one processor), so that a change of them can be shown line by line; the others say the same.  The text is LLVM IR made for processors that are part of the tool, so that it depends on
the compiler's sources alone.  Models: the one of the repository, and shapes of larger ones, whose files are a header and a hole: no weight is read.
Exit status: 0 nothing changed (or accepted now), 1 something did.
"""
import argparse
import difflib
import hashlib
import lzma
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUMMARY, TEXTS = HERE / "kernels.txt", HERE / "kernels.xz"
F32, Q4_0, Q8_0, Q4_K, Q6_K = 0, 2, 8, 12, 14
BLOCK = {F32: (1, 4), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}


def shape(path, arch, layers, dim, heads, kv_heads, head, ffn, vocab, type_of, experts=0, more=None):
    """A GGUF file of that shape without data; type_of(name, layer): its type.  No part of it is a tokenizer."""
    keys = {"general.architecture": arch, f"{arch}.block_count": layers, f"{arch}.context_length": 131072, f"{arch}.embedding_length": dim, f"{arch}.feed_forward_length": ffn,
            f"{arch}.attention.head_count": heads, f"{arch}.attention.head_count_kv": kv_heads, f"{arch}.attention.key_length": head, f"{arch}.attention.value_length": head,
            f"{arch}.rope.dimension_count": head, f"{arch}.rope.freq_base": 5e5, f"{arch}.attention.layer_norm_rms_epsilon": 1e-5, f"{arch}.vocab_size": vocab} | (more or {})
    tensors = {"token_embd": (dim, vocab), "output_norm": (dim,)}
    for i in range(layers):
        b = f"blk.{i}."
        tensors |= {b + "attn_norm": (dim,), b + "attn_q": (dim, heads * head), b + "attn_k": (dim, kv_heads * head), b + "attn_v": (dim, kv_heads * head), b + "attn_output": (heads * head, dim), b + "ffn_norm": (dim,)}
        if arch.startswith("qwen3"):
            tensors |= {b + "attn_q_norm": (head,), b + "attn_k_norm": (head,)}
        if experts:
            tensors |= {b + "ffn_gate_inp": (dim, experts), b + "ffn_gate_exps": (dim, ffn, experts), b + "ffn_up_exps": (dim, ffn, experts), b + "ffn_down_exps": (ffn, dim, experts)}
        else:
            tensors |= {b + "ffn_gate": (dim, ffn), b + "ffn_up": (dim, ffn), b + "ffn_down": (ffn, dim)}
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    value = lambda v: struct.pack("<I", 8) + text(v) if isinstance(v, str) else struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)
    head_bytes, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(k) + value(v) for k, v in keys.items()), 0
    for name, dims in tensors.items():
        kind = F32 if len(dims) == 1 or "gate_inp" in name else type_of(name)
        per, size = BLOCK[kind]
        head_bytes += text(name + ".weight") + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, at)
        n = 1
        for d in dims:
            n *= d
        at += -(-(n // per * size) // 32) * 32
    with open(path, "wb") as f:
        f.write(head_bytes)
        f.truncate(-(-len(head_bytes) // 32) * 32 + at)


def models(folder):
    """name -> (path, machines)"""
    mixed = lambda name: Q6_K if "token_embd" in name or name in ("blk.0.attn_v", "blk.0.ffn_down") else Q4_K
    shape(folder / "k", "llama", 2, 2048, 32, 8, 64, 8192, 128256, mixed)
    shape(folder / "0", "llama", 2, 2048, 32, 8, 64, 8192, 128256, lambda name: Q6_K if "token_embd" in name else Q4_0)
    shape(folder / "m", "qwen3moe", 2, 1024, 16, 4, 128, 768, 32000, lambda name: Q8_0, 32, {"qwen3moe.expert_count": 32, "qwen3moe.expert_used_count": 4, "qwen3moe.expert_feed_forward_length": 768})
    every = ("vnni", "avx2", "dotprod")
    return {"tinypy": (HERE.parents[1] / "models" / "tinypy.gguf", every), "llama-1b-q4_k_m": (folder / "k", ("vnni", "dotprod")), "llama-1b-q4_0": (folder / "0", ("vnni", "avx2")), "qwen3moe-q8_0": (folder / "m", ("vnni",))}


def kernels_now(tool):
    """(model, machine, stage, name, number) -> (count, text)"""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for model, (path, machines) in models(Path(folder)).items():
            for machine in machines:
                done = subprocess.run([tool, machine, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={})
                if done.returncode:
                    sys.exit(f"replay: {model} for {machine}: {done.stderr or 'crashed'}")
                for part in done.stdout.split("=== ")[1:]:
                    line, text = part.split("\n", 1)
                    stage, name, count = line.split()
                    number = sum(k[:4] == (model, machine, stage, name) for k in found)
                    found[model, machine, stage, name, number] = (int(count), text)
    return found


def summary_line(key, count, text):
    model, machine, stage, name, number = key
    return f"{model} {machine} {stage} {name}{f'#{number}' if number else ''} x{count} {text.count(chr(10))} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def kept(text_of):
    """What goes into kernels.xz."""
    return "".join(f"=== {' '.join(map(str, key))}\n{text}" for key, text in text_of.items() if key[2] == "token" and (key[0] == "tinypy" or key[1] == "vnni"))


def kernels_before():
    texts = {}
    for part in lzma.decompress(TEXTS.read_bytes()).decode().split("=== ")[1:]:
        line, text = part.split("\n", 1)
        model, machine, stage, name, number = line.split()
        texts[model, machine, stage, name, int(number)] = text
    return SUMMARY.read_text().splitlines(), texts


def write(now):
    SUMMARY.write_text("".join(summary_line(k, *v) + "\n" for k, v in now.items()))
    TEXTS.write_bytes(lzma.compress(kept({k: v[1] for k, v in now.items()}).encode(), preset=9 | lzma.PRESET_EXTREME))


def difference(now, most):
    """Lines that say what changed; none: nothing did."""
    before, texts = kernels_before()
    after = {summary_line(k, *v): k for k, v in now.items()}
    gone, fresh = [line for line in before if line not in after], [line for line in after if line not in set(before)]
    if not gone and not fresh:
        return []
    named = lambda line: line.split(" x")[0]
    old, new = {named(line): line for line in gone}, {named(line): line for line in fresh}
    both = [n for n in old if n in new]
    lines = [f"{len(both)} kernels changed, {len(old) - len(both)} are gone, {len(new) - len(both)} are new, {len(after) - len(fresh)} are as they were"]
    lines += [f"- {line}" for n, line in old.items() if n not in new] + [f"+ {line}" for n, line in new.items() if n not in old]
    lines += [f"~ {old[n]}  ->  {' '.join(new[n].split()[-3:])}" for n in both]
    lines = lines[:most // 2] + ["..."] * (len(lines) > most // 2)
    for key in [after[line] for line in fresh if after[line] in texts]:
        text = [line for line in difflib.unified_diff(texts[key].splitlines(), now[key][1].splitlines(), "before", "now " + " ".join(map(str, key)), n=2, lineterm="")]
        lines += text
        if len(lines) > most:
            return lines[:most] + [f"... (--lines {10 * most} shows more)"]
    return lines


def main():
    parser = argparse.ArgumentParser(prog="replay.sh", description="Shows what changed in the source of the kernels of a few models since it was last accepted.")
    parser.add_argument("tool", help=argparse.SUPPRESS)
    parser.add_argument("--update", action="store_true", help="accept the kernels as they are now")
    parser.add_argument("--lines", type=int, default=400, metavar="N", help="show at most N lines (default 400)")
    args = parser.parse_args()
    now = kernels_now(args.tool)
    if args.update:
        write(now)
        print(f"replay: {len(now)} kernels accepted", file=sys.stderr)
        return 0
    lines = difference(now, args.lines)
    print("\n".join(lines) if lines else f"replay: {len(now)} kernels, none changed", file=sys.stdout if lines else sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
