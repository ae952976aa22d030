"""Which families' kernels a change of the compiler or of model/ touched: two builds of tests/tools/replay_tool.c on the small model of every family, and on
the small encoders of pictures and sound.

    replay.sh --against TOOL [--machine NAME] [--wide]

TOOL is the replay_tool of the build before the change.  Each family is made twice, with weights in F32 and in Q8_0 (tests/tools/make_model.py); encoders are those
of tests/records/projectors.  --wide: each is as wide as a real model, and has no numbers (wide.py).  A row says how many kernels a token and a prompt of 64, or a
picture and a sound, run, before and now, and how many of them have another text; then the largest ratio of operations and of bytes in any stage, now to before, and how
many more dispatches there are (if the other build can say that).  Exit status: 0 nothing changed, 1 something did.
"""
import argparse
import hashlib
import lzma
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import make_model  # noqa: E402
import wide  # noqa: E402

ENCODERS = Path(__file__).resolve().parents[1] / "records" / "projectors"


def kernels(tool, machine, path):
    """{(stage, hash of the text): how often it runs}, or what went wrong as a text"""
    done = subprocess.run([tool, machine, path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={})
    if done.returncode:
        return done.stderr.strip() or "crashed"
    found = {}
    for part in done.stdout.split("=== ")[1:]:
        line, text = part.split("\n", 1)
        stage, _, count = line.split()
        key = stage, hashlib.sha256(text.encode()).hexdigest()
        found[key] = found.get(key, 0) + int(count)
    return found


def stages(found):
    return dict.fromkeys(stage for stage, _ in found)


def costs(tool, machine, path):
    """{stage: (kernels, dispatches, operations, bytes)}; nothing of a build that cannot say it"""
    done = subprocess.run([tool, machine, path, "costs"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={})
    return {line.split()[0]: tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines()} if done.returncode == 0 else {}


def cost_columns(before, now):
    both = [(before[stage], now[stage]) for stage in now if stage in before]
    if not both:
        return "| | | |"
    ratio = lambda i: max(b[i] / a[i] if a[i] else 1 for a, b in both)
    return f"| {ratio(2):.3f} | {ratio(3):.3f} | {max((b[1] - a[1] for a, b in both), key=abs):+d} |"


def row(name, before, now):
    if isinstance(before, str) or isinstance(now, str):
        return f"{name}: {now if isinstance(now, str) else before}"
    steps = [f"{stage} " + " -> ".join(str(sum(n for (s, _), n in of.items() if s == stage)) for of in (before, now)) for stage in stages({**before, **now})]
    changed = sum(max(0, n - before.get(key, 0)) for key, n in now.items())
    return f"| {name} | {', '.join(steps)} | {changed} |"


def write(name, quant, path, is_wide=False):
    """A family in this type, or an encoder (quant: None)."""
    if is_wide and quant is not None:
        wide.write_family(name, quant, path)
    elif is_wide:
        small = path.with_suffix(".small")
        write(name, quant, small)
        wide.write_encoder(small, path)
        small.unlink()
    elif quant is None:
        path.write_bytes(lzma.decompress((ENCODERS / f"{name}.gguf.xz").read_bytes()))
    else:
        make_model.write(name, path, **({"quant": quant} if quant else {}))


def main():
    parser = argparse.ArgumentParser(prog="replay.sh --against", description="Shows which families' kernels differ between two builds.")
    parser.add_argument("tool", help=argparse.SUPPRESS)
    parser.add_argument("--against", required=True, metavar="TOOL", help="the replay_tool of the build before")
    parser.add_argument("--machine", default="avx2", help="a machine of replay_tool (default: avx2)")
    parser.add_argument("--wide", action="store_true", help="models as wide as real ones, without numbers")
    args = parser.parse_args()

    def compare(task):
        name, quant, path = task
        write(name, quant, path, args.wide)
        before, now = (kernels(tool, args.machine, path) for tool in (args.against, args.tool))
        text = None
        if before != now:
            text = row(f"{name} {'encoder' if quant is None else quant}".strip(), before, now)
            if text.startswith("|"):
                text += cost_columns(*(costs(tool, args.machine, path) for tool in (args.against, args.tool)))[1:]
        path.unlink()
        return text

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [(name, quant, Path(folder) / f"{name}{quant}.gguf") for name in make_model.FAMILIES for quant in ("", "Q8_0")]
        tasks += [(path.name.removesuffix(".gguf.xz"), None, Path(folder) / f"{path.stem}") for path in sorted(ENCODERS.glob("*.gguf.xz"))]
        rows = [r for r in pool.map(compare, tasks) if r]
    if rows:
        print("\n".join(["| family | kernels | with another text | operations | bytes | dispatches |", "|---|---|---|---|---|---|", *rows]))
    print(f"replay: {len(rows)} of {len(tasks)} models changed", file=sys.stderr)
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main())
