#!/usr/bin/env python3
"""Cycles that llvm-mca predicts for the inner loops of Weft's products on AArch64, beside llama.cpp's kernels for the same cores.

    bench/mca.py [--cpu neoverse-v2]... [--type Q4_0]... [--stage token] [--llama-source llama.cpp] [--show]

Nothing is executed.  Weft's code is what tests/tools/replay_tool.c compiles for a core of its table: a Llama of one layer and 8,192 columns, one token and a chunk
of 64.  llama.cpp's code is what clang -O3 -mcpu=CORE makes of ggml-cpu/arch/arm: vec_dot, and the gemv or gemm of the layout that
ggml_repack_get_optimal_repack_type takes for the core.  Needs llvm-mca, and for llama.cpp clang, llvm-mc and headers of C and C++ for AArch64 (Debian: llvm-22
clang-22, or 19, and libstdc++-12-dev-arm64-cross).

How a loop becomes a figure:
- A function is followed from its entry with plausible arguments: integer registers, as far as they depend on the arguments and not on data (Machine).  So loops
  inside of a block run as often as they do, in the order in which they do.
- A turn is what runs between two passes of one place.  The shortest turn that makes the products of a whole block (32 or 256 columns) of the fewest rows and tokens
  is a turn of the loop over blocks.
- llvm-mca runs the turn's instructions many times.  The figure is the cycles that a further turn adds, with its dependencies.
- A turn's work is counted in the products of its own instructions: sdot, udot and usdot of 128 bits make 16, smmla and usmmla 32; those with a constant do not count,
  nor what exceeds whole blocks (minima).  Cycles for 32 weights of one row and one token are cycles x 32 / products: rows, tokens and blocks of a turn cancel.
- Of Weft's products of a model the middle one counts, of llama.cpp's two functions the faster.

llvm-mca knows no caches, no memory, no branch prediction and no fetching of instructions, and its loads hit the first cache.  What it knows of a core is LLVM's table
of costs, which for some cores is another core's: docs/porting.md.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "replay"))
import replay  # noqa: E402

TYPES = {"Q4_0": replay.Q4_0, "Q8_0": replay.Q8_0, "Q4_K": replay.Q4_K, "Q6_K": replay.Q6_K}
CORES = {"cortex-a76": False, "neoverse-v2": True, "apple-m1": False, "apple-m2": True}       # with i8mm?
LAYOUTS = {"Q4_0": ("4x4", "4x8"), "Q8_0": ("4x4", "4x8"), "Q4_K": ("8x4", "8x8"), "Q6_K": ("8x4", "8x8")}  # without and with i8mm
BLOCK = {"Q4_0": 32, "Q8_0": 32, "Q4_K": 256, "Q6_K": 256}
STAGES = ("token", "prompt")
COLUMNS, ROWS, TOKENS = 8192, 64, 64
MOST_STEPS = 60000     # of a function that is followed
LEAST_TURNS = 6
SVE_BYTES = 16          # of neoverse-v2
ENOUGH = 8000          # instructions for llvm-mca to find the steady state
VERSIONS = ("-22", "-21", "-20", "-19", "-18", "-17", "-16", "-15", "-14", "")


def find(tool):
    """The newest of Debian's versions of a tool, by path; None if it is not installed."""
    return next((path for v in VERSIONS if (path := shutil.which(tool + v))), None)


# ---- loops of a function ---------------------------------------------------------------------------------------------

LABEL = re.compile(r"^([.\w$]+):")


def instructions(text):
    """(labels before it, instruction) of each instruction of an assembly text."""
    out, labels = [], []
    for line in text.splitlines():
        for piece in re.sub(r"//.*|(?<=\s)#(?![-\d:]).*", "", line).split(";"):
            piece = piece.strip()
            while (label := LABEL.match(piece)):
                labels.append(label[1])
                piece = piece[label.end():].strip()
            if piece and not piece.startswith((".", "#")):
                out.append((labels, " ".join(piece.split())))
                labels = []
    return out


def spelled(text):
    """Instructions that stand as numbers (.inst) become words."""
    words = sorted(set(re.findall(r"\.inst\s+(0x\w+)", text)))
    if not words:
        return text
    mc = find("llvm-mc")
    if not mc:
        sys.exit("mca: llama.cpp's kernels have instructions that stand as numbers, and there is no llvm-mc to read them")
    data = "\n".join(" ".join(f"0x{byte:02x}" for byte in int(word, 16).to_bytes(4, "little")) for word in words)
    done = subprocess.run([mc, "--disassemble", "-triple=aarch64", "-mattr=+dotprod,+i8mm,+sve2,+fullfp16"], input=data, capture_output=True, text=True, check=True)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip() and not line.strip().startswith(".")]
    of = dict(zip(words, lines, strict=True))
    return re.sub(r"\.inst\s+(0x\w+)", lambda m: of[m[1]], text)


def functions(text):
    """name -> text of each function of an assembly file"""
    parts = re.split(r"^([A-Za-z_]\w*):.*$", text, flags=re.M)
    return {name: body.split(".Lfunc_end")[0] for name, body in zip(parts[1::2], parts[2::2], strict=True)}


class Machine:
    """Follows a function through its loops: what its integer registers hold, as far as they depend on its arguments and not on data.

    A 64-bit load gives an address that nothing else has, or what was stored there, a shorter one nothing.  Branches that depend on data are not taken.
    """

    def __init__(self, arguments, memory):
        self.x = {str(i): v for i, v in enumerate(arguments)}
        self.x["sp"] = 0x7F000000
        self.memory, self.flags, self.fresh = dict(memory), None, 0x100000000

    def get(self, text):
        if text.startswith("#"):
            return int(text[1:], 0)
        if text in ("xzr", "wzr"):
            return 0
        value = self.x.get(text if text == "sp" else text[1:])
        return value if value is None or text[0] != "w" else value & 0xFFFFFFFF

    def put(self, name, value):
        if name in ("xzr", "wzr"):
            return
        self.x[name if name == "sp" else name[1:]] = value if value is None else value & (0xFFFFFFFF if name[0] == "w" else 0xFFFFFFFFFFFFFFFF)

    def operand(self, words):
        """The last operand, which may be shifted or widened."""
        v, how = self.get(words[0]), words[1].split() if len(words) > 1 else None
        if v is None or not how:
            return v
        if how[0] == "mul":                                     # by the length of SVE's vectors
            return v * SVE_BYTES
        by = int(how[1][1:]) if len(how) > 1 else 0
        if how[0] == "lsr":
            return v >> by
        if how[0] == "asr":
            return signed(v, 32 if words[0][0] == "w" else 64) >> by
        if how[0] in ("sxtw", "uxtw"):
            v = signed(v & 0xFFFFFFFF, 32) if how[0] == "sxtw" else v & 0xFFFFFFFF
        return v << by

    def address(self, rest):
        """Of a memory operand; moves the base on if the instruction does."""
        m = re.search(r"\[(\w+)(?:, ([^]]+))?\](!)?(?:, (#-?\w+|x\d+))?", rest)
        if not m:
            return None
        base = self.get(m[1])
        offset = self.operand(m[2].split(", ")) if m[2] else 0
        at = None if base is None or offset is None else base + offset
        if m[3]:
            self.put(m[1], at)
        if m[4]:
            by = self.get(m[4])
            self.put(m[1], None if base is None or by is None else base + by)
        return at

    def holds(self, condition):
        """Of the flags; None: that depends on data."""
        if self.flags is None:
            return None
        a, b, bits = self.flags
        x, y = signed(a, bits), signed(b, bits)
        a, b = a & ((1 << bits) - 1), b & ((1 << bits) - 1)
        return {"eq": a == b, "ne": a != b, "lo": a < b, "cc": a < b, "hs": a >= b, "cs": a >= b, "hi": a > b, "ls": a <= b,
                "lt": x < y, "ge": x >= y, "gt": x > y, "le": x <= y, "mi": x - y < 0, "pl": x - y >= 0}.get(condition)

    def branches(self, name, words):
        """None: no branch; False: not taken, or that depends on data."""
        if name == "b":
            return True
        if (m := re.fullmatch(r"b\.?(eq|ne|lo|cc|hs|cs|hi|ls|lt|ge|gt|le|mi|pl)", name)):
            return bool(self.holds(m[1]))
        v = self.get(words[0]) if name in ("cbz", "cbnz", "tbz", "tbnz") else None
        if name in ("cbz", "cbnz"):
            return v is not None and (v == 0) == (name == "cbz")
        if name in ("tbz", "tbnz"):
            return v is not None and (v >> int(words[1][1:], 0) & 1 == 0) == (name == "tbz")
        return None

    def compute(self, name, words):
        if name in ("cset", "csetm") or name in ("csel", "cinc", "csinc"):
            met = self.holds(words[-1])
            if met is None:
                return None
            if name == "cset":
                return int(met)
            chosen = self.get(words[1]) if name == "cinc" or met else self.get(words[2])
            more = met if name == "cinc" else not met and name == "csinc"
            return None if chosen is None or name == "csetm" else chosen + more
        if name.startswith("cnt") and len(words) == 1:
            return {"b": SVE_BYTES, "h": SVE_BYTES // 2, "w": SVE_BYTES // 4, "d": SVE_BYTES // 8}.get(name[3:])
        if name == "rdvl":
            return SVE_BYTES * int(words[1][1:])
        if name == "addvl":
            base = self.get(words[1])
            return None if base is None else base + SVE_BYTES * int(words[2][1:])
        if name == "movk":
            old, by = self.get(words[0]), int(words[2].split("#")[1]) if len(words) > 2 else 0
            return None if old is None else old & ~(0xFFFF << by) | int(words[1][1:], 0) << by
        if name in ("mov", "movz", "sxtw", "neg", "mvn"):
            v = self.operand(words[1:])
            return None if v is None else {"neg": -v, "mvn": ~v, "sxtw": signed(v & 0xFFFFFFFF, 32)}.get(name, v)
        if name in ("madd", "msub", "smaddl", "umaddl", "mul", "smull", "umull"):
            v = [self.get(w) for w in words[1:]]
            if None in v:
                return None
            v = [signed(q, 32) for q in v[:2]] + v[2:] if name.startswith("s") else v
            return v[0] * v[1] if len(v) == 2 else v[2] - v[0] * v[1] if name == "msub" else v[2] + v[0] * v[1]
        if name in ("ubfx", "ubfiz", "sbfiz", "sbfx"):
            v, low, width = self.get(words[1]), int(words[2][1:]), int(words[3][1:])
            if v is None:
                return None
            v = (v >> low if name.endswith("x") else v) & ((1 << width) - 1)
            v = signed(v, width) if name[0] == "s" else v
            return v << low if name.endswith("iz") else v
        if len(words) < 3:
            return None
        a, b = self.get(words[1]), self.operand(words[2:])
        if a is None or b is None:
            return None
        bits = 32 if words[0][0] == "w" else 64
        of = {"add": lambda: a + b, "adds": lambda: a + b, "sub": lambda: a - b, "subs": lambda: a - b, "and": lambda: a & b, "ands": lambda: a & b,
              "orr": lambda: a | b, "eor": lambda: a ^ b, "bic": lambda: a & ~b, "lsl": lambda: a << b, "lsr": lambda: a >> b, "asr": lambda: signed(a, bits) >> b}.get(name)
        return of() if of else None

    def step(self, text):
        """Runs an instruction.  None: no branch; else whether it is taken."""
        name, _, rest = text.partition(" ")
        words = [w.strip() for w in rest.split(",")]
        taken = self.branches(name, words)
        if taken is not None:
            return taken
        if name == "bl":
            self.put("x0", SVE_BYTES if words[0] == "ggml_cpu_get_sve_cnt" else None)
            return None
        if name in ("cmp", "tst", "cmn", "ccmp"):
            a, b = self.get(words[0]), self.operand(words[1:])
            bits = 32 if words[0][0] == "w" else 64
            self.flags = None if a is None or b is None or name in ("cmn", "ccmp") else (a, b, bits) if name == "cmp" else (a & b, 0, bits)
            return None
        if "[" in rest and (name.startswith(("ld", "st", "prf"))):
            at, pair = self.address(rest), name in ("ldp", "ldnp", "stp")
            for i, word in enumerate(words[:2] if pair else words[:1]):
                if not re.fullmatch(r"[xw](\d+|zr)", word):
                    continue
                place = None if at is None else at + (8 if word[0] == "x" else 4) * i
                if place is not None and name.startswith("st"):
                    self.memory[place] = self.get(word)
                elif not name.startswith("st") and place in self.memory:
                    self.put(word, self.memory[place])
                elif not name.startswith("st"):
                    self.fresh += 0x10000000
                    self.put(word, self.fresh if word[0] == "x" and name in ("ldr", "ldur", "ldp") else None)
            return None
        if not re.fullmatch(r"[xw]\d+|sp", words[0]):
            return None
        result = self.compute(name, words)
        if name in ("subs", "adds", "ands"):
            bits = 32 if words[0][0] == "w" else 64
            a, b = self.get(words[1]), self.operand(words[2:])
            self.flags = None if a is None or b is None else (a, b, bits) if name == "subs" else None if result is None else (result, 0, bits)
        self.put(words[0], result)
        return None


def signed(v, bits):
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def follow(code, machine):
    """Numbers of the instructions in the order in which they run."""
    places = {}
    for i, (labels, _) in enumerate(code):
        for label in labels:
            places.setdefault(label, []).append(i)
    out, at = [], 0
    while at < len(code) and len(out) < MOST_STEPS:
        out.append(at)
        text = code[at][1]
        if text == "ret" or text.startswith("br "):
            break
        to = None
        if machine.step(text):
            name = re.split(r"[\s,]", text)[-1]
            numbered = re.fullmatch(r"(\d+)([bf])", name)
            found = places.get(numbered[1] if numbered else name, [])
            found = [i for i in found if not numbered or (i <= at) == (numbered[2] == "b")]
            to = found[-1 if numbered and numbered[2] == "b" else 0] if found else None
        at = at + 1 if to is None else to
    return out


def registers(text):
    return re.findall(r"\b[vqdshbz](\d+)\b", text)


def products(body):
    """Of weights and activations: both operands change from turn to turn, and are no constants."""
    written = set()
    for text in body:
        if not text.startswith("st"):
            written |= set(registers(text)[:None if text.startswith("ld") else 1])
    n = 0
    for text in body:
        name, *operands = text.split(None, 1)
        if not re.fullmatch(r"(s|u|us|su)(dot|mmla)", name) or not set(registers(operands[0])[1:]) <= written:
            continue
        n += 32 if name.endswith("mmla") else 8 if ".2s" in text else 16
    return n


def block_loop(text, arguments, memory, unit):
    """(a turn of the innermost loop that makes whole blocks, its products).  unit: products of a block and the fewest rows and tokens.  None if no loop does."""
    code = instructions(text)
    steps = follow(code, Machine(arguments, memory))
    at = {}
    for i, number in enumerate(steps):
        at.setdefault(number, []).append(i)
    counts = {}
    for number, places in at.items():
        counts.setdefault(len(places), places)
    for count in sorted(counts, reverse=True):
        places = counts[count]
        if count < 2 * LEAST_TURNS:
            break
        for k in range(count // 2, count // 2 + LEAST_TURNS - 2):               # one of them is not the last block of a row
            b, e, after = places[k:k + 3]
            if e - b == after - e and (n := products(body := [code[i][1] for i in steps[b:e]]) // unit * unit):
                return body, n
    return None


# ---- llvm-mca --------------------------------------------------------------------------------------------------------

def total_cycles(mca, cpu, body, turns_):
    done = subprocess.run([mca, "-mtriple=aarch64-linux-gnu", f"-mcpu={cpu}", f"-iterations={turns_}", "-instruction-info=false", "-resource-pressure=false"],
                          input="\n".join(body) + "\n", capture_output=True, text=True, check=False)
    found = re.search(r"^Total Cycles:\s+(\d+)", done.stdout, re.M)
    if not found:
        sys.exit(f"mca: llvm-mca for {cpu}: {done.stderr.strip()[:800]}")
    return int(found[1])


def cycles(mca, cpu, body):
    """Of one more turn."""
    n = max(8, ENOUGH // len(body))
    return (total_cycles(mca, cpu, body, 2 * n) - total_cycles(mca, cpu, body, n)) / n


# ---- whose loops -----------------------------------------------------------------------------------------------------

def weft(tool, cpu, type_, folder):
    """stage -> texts of the kernels of products"""
    path = folder / f"{type_}.gguf"
    if not path.exists():
        replay.shape(path, "llama", 1, 8192, 64, 8, 128, 8192, 4096, lambda name: TYPES[type_])
    done = subprocess.run([tool, cpu, path, "assembly"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"mca: {done.stderr}")
    found = {stage: [] for stage in STAGES}
    for part in done.stdout.split("=== ")[1:]:
        line, text = part.split("\n", 1)
        found[line.split()[0]].append((line.split()[1], text))
    return found


def llama(clang, source, cpu, folder):
    """name -> text of each function of llama.cpp's kernels for AArch64"""
    ggml = source / "ggml"
    found = {}
    for name, standard in (("quants.c", "c11"), ("repack.cpp", "c++17")):
        at, out = ggml / "src/ggml-cpu/arch/arm" / name, folder / f"{cpu}-{name}.s"
        done = subprocess.run([clang, "--target=aarch64-linux-gnu", f"-mcpu={cpu}", "-O3", "-DNDEBUG", "-D_GNU_SOURCE", f"-std={standard}", "-w", "-S", "-o", out,
                               f"-I{ggml}/include", f"-I{ggml}/src", f"-I{ggml}/src/ggml-cpu", at], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"mca: {at} for {cpu}: {done.stderr[:1500]}")
        found |= {key: spelled(text) for key, text in functions(out.read_text()).items()}
    return found


def of_llama(found, type_, cpu, stage):
    """name -> (a turn, products) of the kernels that a product of this type may use"""
    kind, by, block = type_[0].lower() + type_[1:], "q8_K" if type_.endswith("K") else "q8_0", BLOCK[type_]
    layout, which = LAYOUTS[type_][CORES[cpu]], "gemv" if stage == "token" else "gemm"
    pair = CORES[cpu] and stage == "prompt"                      # vec_dot of two rows and two tokens
    tokens = 4 if stage == "prompt" else 1
    plain = [COLUMNS, 0x1000000, 4, 0x2000000, COLUMNS, 0x3000000, COLUMNS, 2 if pair else 1]
    laid = [COLUMNS, 0x1000000, 4 * ROWS, 0x2000000, 0x3000000, 1 if stage == "token" else TOKENS, ROWS]
    wanted = {"vec_dot": (f"ggml_vec_dot_{kind}_{by}", plain, block * (4 if pair else 1)),
              f"{which} {layout}": (f"ggml_{which}_{kind}_{layout}_{by}", laid, block * int(layout[0]) * tokens)}
    out = {}
    for short, (name, arguments, unit) in wanted.items():
        text = next((text for mangled, text in found.items() if mangled == name), None)
        loop = text and block_loop(text, arguments, {}, unit)
        if not loop:
            sys.exit(f"mca: {name} for {cpu}: {'no loop over blocks' if text else 'llama.cpp has no such function'}")
        out[short] = loop
    return out


def of_weft(kernels, type_):
    """name -> (a turn, products) of the products among the kernels of a token or a prompt"""
    memory = {0x100000 + 8 * i: 0x10000000 * (i + 1) for i in range(16)} | {0x200000 + 8 * i: TOKENS for i in range(8)}
    found = {name: block_loop(text, [0x100000, 0x200000, 0, ROWS], memory, 4 * BLOCK[type_]) for name, text in kernels}
    return {name: loop for name, loop in found.items() if loop}


def judged(mca, cpu, found):
    """name -> (cycles, instructions, a turn), for 32 products"""
    return {name: (cycles(mca, cpu, body) * 32 / n, len(body) * 32 / n, body) for name, (body, n) in found.items()}


def show(title, found):
    print(f"--- {title}: {found[0]:.2f} cycles, {found[1]:.1f} instructions for 32 weights, a row and a token")
    print("\n".join("    " + text for text in found[2]))


def line(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="append", choices=CORES, metavar="CORE", help=f"one of {', '.join(CORES)} (default: all)")
    parser.add_argument("--type", action="append", choices=TYPES, metavar="TYPE", help=f"one of {', '.join(TYPES)} (default: all)")
    parser.add_argument("--stage", action="append", choices=STAGES, help="default: both")
    parser.add_argument("--llama-source", type=Path, metavar="DIR", help="llama.cpp's folder; without it Weft is shown alone")
    parser.add_argument("--tool", default=ROOT / "build/tests/replay_tool", help="default: %(default)s (scripts/build.sh --tests)")
    parser.add_argument("--mca", default=find("llvm-mca"), help="default: the newest of Debian's, %(default)s")
    parser.add_argument("--clang", default=find("clang"), help="default: %(default)s")
    parser.add_argument("--show", action="store_true", help="print the loops")
    args = parser.parse_args()
    if not args.mca:
        sys.exit("mca: there is no llvm-mca (Debian: llvm-22 or llvm-19)")
    print(line(["core", "stage", "type", "Weft", "instructions", "llama.cpp", "cycles", "instructions", "ratio"]))
    print(line(["---"] * 9))
    with tempfile.TemporaryDirectory() as folder:
        for cpu in args.cpu or CORES:
            of = llama(args.clang, args.llama_source, cpu, Path(folder)) if args.llama_source else {}
            for stage in args.stage or STAGES:
                for type_ in args.type or TYPES:
                    one_row(args, cpu, stage, type_, of, Path(folder))


def one_row(args, cpu, stage, type_, of, folder):
    ours = judged(args.mca, cpu, of_weft(weft(args.tool, cpu, type_, folder)[stage], type_))
    theirs = judged(args.mca, cpu, of_llama(of, type_, cpu, stage)) if of else {}
    if not ours:
        sys.exit(f"mca: {type_} for {cpu}: no loop over blocks in the kernels of a {stage}")
    name, mine = sorted(ours.items(), key=lambda x: x[1][0])[len(ours) // 2]
    best = min(theirs.items(), key=lambda x: x[1][0], default=None)
    print(line([cpu, stage, type_, f"{mine[0]:.2f}", f"{mine[1]:.1f}", ", ".join(f"{n} {x[0]:.2f}" for n, x in theirs.items()) or "-",
                f"{best[1][0]:.2f}" if best else "", f"{best[1][1]:.1f}" if best else "", f"{mine[0] / best[1][0]:.2f} x" if best else ""]), flush=True)
    if args.show:
        show(f"{cpu} {stage} {type_}: Weft {name}", mine)
        for other, found in theirs.items():
            show(f"{cpu} {stage} {type_}: llama.cpp {other}", found)


if __name__ == "__main__":
    main()
