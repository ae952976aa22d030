#!/usr/bin/env python3
"""mutants.py: model files with wrong shapes, keys and tensors, of each family of make_model.py and make_encoder.py.

    mutants.py each [--tool build/tests/mutants_tool] [--family NAME]... [--part I/N] [--every N] [--first N] [--dims] [--keys]
    mutants.py random [--tool build/tests/mutate_tool] [--count 1000000] [--first 0] [--run-one-in 200] [--family NAME]... [--file FILE]...
    mutants.py heads FOLDER [--family NAME]... [--file FILE]...

each: loads and runs files one after another, by libweft. The dimensions of each tensor (one fewer, one more, two swapped, one more or less, 0, huge,
halved and doubled in turn), and each key (0, 1, the largest, negative, other types, arrays of other lengths). Each file runs, or is refused with a
sentence that names the file and a tensor or a key; what ends the program is printed.
random: everything that opening does, on the reference device. Each file gets its share of the numbers from FIRST on; a number stands for a change
(mutate_tool.c: structure). A line per file that ended the tool, the number behind it; the last line, also after Ctrl-C, is for docs/trust.md.
heads: writes what stands before the data of each file to FOLDER: seeds for fuzz_model.
Exit status 1 if any file was wrong.
"""
import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOM, HUGE = 8192, 2**62
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SIZES = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, U64: 8, I64: 8, F64: 8}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value_end(data, kind, at):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != ARRAY:
        return at + SIZES[kind]
    of, n = struct.unpack_from("<IQ", data, at)
    at += 12
    if of != STRING:
        return at + n * SIZES[of]
    for _ in range(n):
        at = value_end(data, of, at)
    return at


class Head:
    """What stands before the data: keys as (name, type and value as bytes), tensors as (name, dims, type and offset as bytes)."""

    def __init__(self, data):
        n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
        at, self.keys, self.tensors = 24, [], []
        for _ in range(n_keys):
            end = value_end(data, STRING, at)
            name, kind = data[at + 8:end].decode(), struct.unpack_from("<I", data, end)[0]
            at = value_end(data, kind, end + 4)
            self.keys.append((name, data[end:at]))
        for _ in range(n_tensors):
            end = value_end(data, STRING, at)
            n = struct.unpack_from("<I", data, end)[0]
            self.tensors.append((data[at + 8:end].decode(), list(struct.unpack_from(f"<{n}Q", data, end + 4)), data[end + 4 + 8 * n:end + 16 + 8 * n]))
            at = end + 16 + 8 * n
        self.offset = -(-at // 32) * 32
        self.size = self.offset + ROOM

    def bytes(self, tensors=(), key=None):
        """With other dims of tensors {number: dims}, or another key (number, bytes), filled up to one size."""
        tensors = dict(tensors)
        parts = [text(name) + (key[1] if key and key[0] == i else raw) for i, (name, raw) in enumerate(self.keys)]
        infos = []
        for i, (name, dims, rest) in enumerate(self.tensors):
            new = tensors.get(i, dims)
            infos.append(text(name) + struct.pack("<I", len(new)) + struct.pack(f"<{len(new)}Q", *new) + rest)
        body = b"".join(parts)
        pad = text("test.pad") + struct.pack("<I", STRING)
        left = self.size - 24 - len(body) - len(pad) - 8 - sum(map(len, infos))
        return b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys) + 1) + body + pad + text(" " * left) + b"".join(infos)


def shapes(dims):
    """Other dims than these, with a name for each change."""
    n = len(dims)
    yield "one fewer", dims[:-1] or [1]
    yield "one more", [*dims, 1]
    yield "one more of two", [*dims, 2]
    for i in range(n - 1):
        yield f"swapped {i}", [*dims[:i], dims[i + 1], dims[i], *dims[i + 2:]]
    for i in range(n):
        for what, size in ("+1", dims[i] + 1), ("-1", dims[i] - 1), ("0", 0), ("1", 1), ("huge", HUGE), ("largest", 2**64 - 1):
            yield f"{what} of {i}", [*dims[:i], size, *dims[i + 1:]]
        if dims[i] % 2 == 0:
            j = (i + 1) % n
            yield f"halved {i}", [d // 2 if k == i else d * 2 if k == j else d for k, d in enumerate(dims)] if n > 1 else [dims[0] // 2, 2]


def values(raw):
    """Other values and types than this."""
    kind, = struct.unpack_from("<I", raw)
    one = lambda t, code, v: struct.pack("<I" + code, t, v)
    for v in (0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32 - 1):
        yield f"u32 {v}", one(U32, "I", v)
    if kind == U32:
        size, = struct.unpack_from("<I", raw, 4)
        for what, v in ("halved", size // 2), ("doubled", 2 * size):
            yield what, one(U32, "I", v % 2**32)
    yield "i32 -1", one(I32, "i", -1)
    yield "u64 max", one(U64, "Q", 2**64 - 1)
    for v in (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan")):
        yield f"f32 {v}", one(F32, "f", v)
    yield "bool", one(BOOL, "B", 1)
    yield "bool of 7", one(BOOL, "B", 7)
    yield "text", struct.pack("<I", STRING) + text("x")
    yield "no text", struct.pack("<I", STRING) + text("")
    yield "three", struct.pack("<IIQ3I", ARRAY, U32, 3, 1, 2, 3)
    yield "no numbers", struct.pack("<IIQ", ARRAY, U32, 0)
    if kind != ARRAY:
        return
    of, n = struct.unpack_from("<IQ", raw, 4)
    if of in SIZES and n:
        size = SIZES[of]
        for fill, what in (b"\0", "zeros"), (b"\xff", "ones"), (b"\x7f", "large"):
            yield f"array of {what}", raw[:16] + fill * (size * n)
        yield "array, one shorter", struct.pack("<IIQ", ARRAY, of, n - 1) + raw[16:16 + size * (n - 1)]
        yield "array, one longer", struct.pack("<IIQ", ARRAY, of, n + 1) + raw[16:] + bytes(size)


def mutants(head, dims=True, keys=True):
    for i, (name, of, _) in enumerate(head.tensors if dims else []):
        for what, new in shapes(of):
            yield name, what, head.bytes({i: new})
    for i, (name, raw) in enumerate(head.keys if keys else []):
        if name.startswith("tokenizer.") and struct.unpack_from("<I", raw)[0] in (ARRAY, STRING):
            continue                      # of vocabularies: test_safety.py
        for what, new in values(raw):
            if new != raw and len(new) < len(raw) + ROOM // 2:
                yield name, what, head.bytes(key=(i, new))


class Runner:
    """A process of mutants_tool, begun anew where a file ended it."""

    def __init__(self, tool, path, env=None):
        self.head, self.args, self.env, self.process = Head(path.read_bytes()), [str(tool), str(path)], env, None

    def start(self):
        args = [*self.args, str(self.head.offset), str(self.head.size)]
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)

    def run(self, head):
        """"ok", why the file was refused, or None and how it ended the program."""
        if not self.process:
            self.start()
        try:
            self.process.stdin.write(head)
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if line:
            return line.decode(errors="replace").rstrip("\n"), None
        _, err = self.process.communicate()
        status, self.process = self.process.returncode, None
        return None, f"status {status}: {err.decode(errors='replace')[-2000:]}"

    def close(self):
        if self.process:
            self.process.communicate()
            self.process = None


def is_wrong(result):
    """What is wrong with what became of a file; None: nothing."""
    if result == "ok":
        return None
    if "internal error" in result:
        return "a broken invariant"
    return None if "tensor '" in result or "tensors '" in result or "key '" in result or "tokenizer." in result or "GiB" in result or "positions" in result else "names neither tensor nor key"


def sweep(runner, every=1, first=0, **kinds):
    """Counts, and a line for each file that was wrong."""
    counts, wrong = {"ok": 0, "refused": 0}, []
    result, end = runner.run(runner.head.bytes())
    if result != "ok":
        return counts, [f"unchanged: {result or end}"]
    for i, (name, what, head) in enumerate(mutants(runner.head, **kinds)):
        if i % every != first % every:
            continue
        result, end = runner.run(head)
        why = end or is_wrong(result)
        counts["ok" if result == "ok" else "refused"] += 1
        if why:
            wrong.append(f"{name}: {what}: {why}: {result or ''}")
    runner.close()
    return counts, wrong


# ---- files and commands ------------------------------------------------------------------------------------------------------

def sources(families, files):
    """(name, what writes it to a path)."""
    import make_encoder
    import make_model
    for maker, names in (make_model, make_model.FAMILIES), (make_encoder, make_encoder.ENCODERS):
        for name in names:
            if not families or name in families:
                yield name, lambda path, maker=maker, name=name: maker.write(name, path)
    for path in files:
        yield path.name, lambda out, path=path: out.symlink_to(path.resolve())


def with_files(o, fn):
    """fn(number, name, path) for each file; as many as were done before Ctrl-C."""
    done, (part, parts) = 0, map(int, o.part.split("/"))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        try:
            for i, (name, write) in enumerate(list(sources(o.family, o.file))[part::parts]):
                path = Path(folder) / f"{name}.gguf"
                write(path)
                fn(i, name, path)
                path.unlink()
                done += 1
        except KeyboardInterrupt:
            print("interrupted")
    return done


def each(o):
    kinds, bad = {"dims": o.dims or not o.keys, "keys": o.keys or not o.dims}, []

    def one(_, name, path):
        counts, wrong = sweep(Runner(o.tool or "build/tests/mutants_tool", path, os.environ), o.every, o.first, **kinds)
        print(f"{name}: {counts['ok']} run, {counts['refused']} refused, {len(wrong)} wrong", flush=True)
        for line in wrong:
            print("    " + line, flush=True)
        bad.extend(wrong)

    with_files(o, one)
    return bool(bad)


def random(o):
    n, began, total = len(list(sources(o.family, o.file))), time.time(), [0] * 5
    share = -(-o.count // n)

    def one(i, name, path):
        words = [o.tool or "build/tests/mutate_tool", path, "structure", str(o.first), str(min(share, o.count - i * share)), str(o.run_one_in)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not done.stdout:
            sys.exit(f"{name}: {done.stderr.strip()}")
        lines = done.stdout.splitlines()
        for line in lines[:-1]:
            print(line, done.stderr.strip().splitlines()[-1:], flush=True)
        total[:] = [a + b for a, b in zip(total, map(int, re.findall(r"\d+", lines[-1])), strict=True)]

    tried = with_files(o, one)
    seconds = time.time() - began
    print(f"{tried} files: {total[0]} mutants, {total[1]} accepted, {total[2]} tokenizers, {total[3]} runs, {total[4]} ended, "
          f"{seconds:.0f} s, {total[0] / seconds:.0f} a second")
    return total[4] != 0


def heads(o):
    o.folder.mkdir(parents=True, exist_ok=True)

    def one(_, name, path):
        data = path.read_bytes()
        (o.folder / name).write_bytes(data[:Head(data).offset])

    with_files(o, one)
    return False


def main():
    sys.path.insert(0, str(Path(__file__).parent))
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--tool", type=Path)
    common.add_argument("--family", action="append", default=[])
    common.add_argument("--file", action="append", default=[], type=Path)
    common.add_argument("--part", default="0/1")
    common.add_argument("--first", type=int, default=0)
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    c = commands.add_parser("each", parents=[common])
    c.set_defaults(fn=each)
    c.add_argument("--every", type=int, default=1)
    c.add_argument("--dims", action="store_true")
    c.add_argument("--keys", action="store_true")
    c = commands.add_parser("random", parents=[common])
    c.set_defaults(fn=random)
    c.add_argument("--count", type=int, default=1_000_000)
    c.add_argument("--run-one-in", type=int, default=200)
    c = commands.add_parser("heads", parents=[common])
    c.set_defaults(fn=heads)
    c.add_argument("folder", type=Path)
    o = p.parse_args()
    return o.fn(o)


if __name__ == "__main__":
    sys.exit(main())
