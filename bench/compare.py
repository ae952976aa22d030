#!/usr/bin/env python3
"""Weft beside llama.cpp and ik_llama.cpp on the same files, taking turns.

    bench/compare.py model.gguf --llama-python venv/bin/python --ik-bench ik/build/bin/llama-bench

Figures on a shared machine move by a factor of two within minutes, so only what is measured side by side means anything. Every round runs
every engine once, one process at a time (A B C, A B C, ...), with the memory limit measured before each round; the table holds medians
over the rounds, and the ratio is the median of the ratios of single rounds. Loading never counts as speed. Needs Python 3.8 and
nothing else, a C compiler for the limit, and for llama.cpp either llama-cpp-python or a llama-bench.

What the columns mean is written in docs/speed.md, "How to measure".
"""
import argparse
import array
import json
import math
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXTS = ["def read_lines(path):\n    with open(path) as file:\n        return [line.rstrip() for line in file if line.strip()]\n\n\ndef main():\n    for line in",
         "The river rose in the night, and by morning the lower road was under water. People stood on the bridge and watched the fields",
         "Step 1: Measure 250 g of flour into a bowl. Step 2: Add a pinch of salt and 150 ml of water. Step 3: Knead for ten minutes, then"]


def say(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    """An engine that could not be measured, and why, in one sentence."""


def run(command, limit, env=None, stdout=None):
    """Runs a program to its end: (stdout, peak memory in bytes, seconds). Never leaves it behind."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=stdout or out, stderr=err, env={**os.environ, **(env or {})})
        except OSError as why:
            raise Failed(f"{command[0]}: {why.strerror}") from why
        try:
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - began > limit:
                    raise Failed(f"{Path(command[0]).name}: not done after {limit:.0f} s (--timeout)")
                time.sleep(.005)
            child.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        except BaseException:
            if child.returncode is None:
                child.kill()
                child.wait()
            raise
        seconds = time.monotonic() - began
        out.seek(0)
        err.seek(0)
        if child.returncode:
            lines = err.read().decode("utf-8", "replace").strip().splitlines()
            name, last = Path(command[0]).name, lines[-1] if lines else f"exit status {child.returncode}"
            raise Failed(last if last.startswith(name + ":") else f"{name}: {last}")
        scale = 1 if sys.platform == "darwin" else 1024
        return out.read().decode("utf-8", "replace"), usage.ru_maxrss * scale, seconds


def as_json(text, who):
    try:
        return json.loads(text)
    except ValueError as why:
        raise Failed(f"{who}: its output is no JSON: {why}") from why


# ---- a model file -------------------------------------------------------------------------------------------------------

class Model:
    """What a file says about itself: name, vocabulary, and the bytes that decoding one token reads."""

    def __init__(self, path, opt):
        self.path, self.name = str(path), Path(path).name
        text, _, _ = run([opt.weft, "inspect", "-m", path, "--json"], opt.timeout)
        about = as_json(text, "weft inspect")
        meta, tensors = about["metadata"], about["tensors"]
        self.summary, self.file_bytes = about["summary"], about["file_bytes"]
        arch = meta.get("general.architecture", "")
        n_expert, used = meta.get(f"{arch}.expert_count", 0), meta.get(f"{arch}.expert_used_count", 0)
        has_head = any(t["name"] == "output.weight" for t in tensors)
        self.token_bytes = 0
        for t in tensors:
            if t["name"] == "token_embd.weight" and has_head:
                continue                      # one row of it is looked up
            part = used / n_expert if "_exps." in t["name"] and n_expert else 1
            self.token_bytes += t["bytes"] * part
        tokens = meta.get("tokenizer.ggml.tokens")
        self.n_vocab = len(tokens) if isinstance(tokens, list) else meta.get(f"{arch}.vocab_size", 256)
        self.random = random.Random(1)

    def ids(self, n):
        return [self.random.randrange(self.n_vocab) for _ in range(n)]


# ---- engines ------------------------------------------------------------------------------------------------------------
# measure(model) -> {"decode_tps", "prefill_tps", "load_s", "first_s", "peak_bytes"}, None where an engine does not tell;
# logits(model, prompts) -> for each prompt (ids, n_first) an iterator of log-probabilities over the whole vocabulary, or None.

def warm_up_depth(opt):
    """tokens before a warm-up: it is for files, code and layouts, which need no depth"""
    return min(opt.prompt, 512)


class Weft:
    name = "weft"

    def __init__(self, opt):
        self.opt = opt

    def warm_up(self, model):
        self.start(model, warm_up_depth(self.opt))
        self.bench(model, 1, warm_up_depth(self.opt))

    def start(self, model, depth):
        with tempfile.TemporaryDirectory() as folder:
            stats = Path(folder) / "stats"
            ids = ",".join(map(str, model.ids(depth)))
            run([self.opt.weft, "run", "-m", model.path, "--ids", ids, "-n", "1", "--temp", "0", "-t", self.opt.threads, "--stats", stats], self.opt.timeout)
            return as_json(stats.read_text(), "weft run --stats")

    def bench(self, model, n, depth):
        o = self.opt
        text, peak, _ = run([o.weft, "bench", "-m", model.path, "-p", o.prefill, "-n", n, "-d", depth, "-t", o.threads, "-r", "1", "-o", "json"], o.timeout)
        return as_json(text, "weft bench"), peak

    def measure(self, model):
        stats = self.start(model, self.opt.prompt)
        tests, peak = self.bench(model, self.opt.tokens, self.opt.prompt)
        speed = {bool(t["n_gen"]): t["avg_ts"] for t in tests}
        return {"decode_tps": speed[True], "prefill_tps": speed.get(False), "load_s": (stats["load_ms"] + stats["compile_ms"]) / 1e3,
                "first_s": stats["ttft_ms"] / 1e3, "peak_bytes": peak}

    def logits(self, model, prompts, exact=False):
        """One run per prompt; a line of JSON per position holds the whole distribution."""
        o = self.opt
        env = {"DEV": "REF"} if exact and o.kl_reference == "ref" else None
        for ids, first in prompts:
            command = [o.weft, "run", "-m", model.path, "--ids", ",".join(map(str, ids[:first])), "--force", ",".join(map(str, ids[first:])), "--json",
                       "--top-logprobs", "100000000", "-t", o.threads, "-c", len(ids) + 1]
            if exact and not env:
                command += ["--precision", "exact"]
            with tempfile.TemporaryFile() as out:
                run(command, o.timeout, env, out)
                out.seek(0)
                for line in out:
                    top = json.loads(line)["top"]
                    row = array.array("f", bytes(4 * len(top)))
                    for i, p in top:
                        row[i] = p if p is not None else -math.inf
                    yield row


class LlamaPython:
    """llama.cpp through llama-cpp-python: this file, run by the Python that has it, works off one request and ends."""
    name = "llama.cpp"

    def __init__(self, opt):
        self.opt = opt
        self.ask({"probe": True})

    def ask(self, request):
        text, peak, _ = run([self.opt.llama_python, HERE / "compare.py", "--llama-worker", json.dumps(request)], self.opt.timeout, {"PYTHONDONTWRITEBYTECODE": "1"})
        answer = as_json(text, "llama-cpp-python")
        if "error" in answer:
            raise Failed(f"{self.opt.llama_python}: {answer['error']}")
        return {**answer, "peak_bytes": peak}

    def warm_up(self, model):
        self.ask(self.request(model, 1, warm_up_depth(self.opt)))

    def request(self, model, n, depth):
        return {"model": model.path, "threads": self.opt.threads, "prompt": model.ids(depth), "decode": model.ids(n), "prefill": model.ids(self.opt.prefill),
                "repack": not self.opt.llama_no_repack}

    def measure(self, model):
        return self.ask(self.request(model, self.opt.tokens, self.opt.prompt))

    def logits(self, model, prompts):
        with tempfile.TemporaryDirectory() as folder:
            answer = self.ask({"model": model.path, "threads": self.opt.threads, "prompts": prompts, "logits": str(Path(folder) / "logits")})
            with open(Path(folder) / "logits", "rb") as f:
                while True:
                    raw = f.read(4 * answer["n_vocab"])
                    if not raw:
                        return
                    yield log_softmax(array.array("f", raw))


class LlamaBench:
    """A llama-bench: of llama.cpp, or of ik_llama.cpp (which has -gp where the other has -d)."""

    def __init__(self, opt, name, path, options=""):
        self.opt, self.name, self.path, self.options = opt, (name + " " + options).strip(), path, shlex.split(options)
        if not shutil.which(path):
            raise Failed(f"{path}: no such program")
        done = subprocess.run([path, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        text = done.stdout + done.stderr
        self.depth = "--n-depth" in text
        if not self.depth and "-gp " not in text:
            raise Failed(f"{path}: its --help names neither -d nor -gp; is it a llama-bench?")

    def warm_up(self, model):
        self.bench(model, 1, warm_up_depth(self.opt))

    def bench(self, model, n, depth):
        o = self.opt
        tests = ["-p", o.prefill, "-n", n, "-d", depth] if self.depth else ["-p", o.prefill, "-n", "0", "-gp", f"{depth},{n}"]
        text, peak, _ = run([self.path, "-m", model.path, *tests, "-t", o.threads, "-r", "1", "-o", "json", *self.options], o.timeout)
        return as_json(text[max(text.find("["), 0):], self.name), peak

    def measure(self, model):
        tests, peak = self.bench(model, self.opt.tokens, self.opt.prompt)
        decode = [t["avg_ts"] for t in tests if t["n_gen"]]
        prefill = [t["avg_ts"] for t in tests if t["n_prompt"] and not t["n_gen"]]
        if not decode:
            raise Failed(f"{self.name}: no test of decoding in its output")
        deep = self.opt.prompt > 64 and not self.depth          # its prompt test starts at position 0
        return {"decode_tps": decode[-1], "prefill_tps": prefill[0] if prefill and not deep else None, "load_s": None, "first_s": None, "peak_bytes": peak}

    def logits(self, model, prompts):
        return None


def engines_of(opt):
    """The engines to measure, and what is missing: [(name, why)]."""
    made, missing = [], []

    def add(name, make):
        try:
            made.append(make())
        except Failed as why:
            missing.append((name, str(why)))

    if "weft" in opt.engines:
        made.append(Weft(opt))
    if "llama" in opt.engines:
        add("llama.cpp", lambda: LlamaBench(opt, "llama.cpp", opt.llama_bench) if opt.llama_bench else LlamaPython(opt))
    if "ik" in opt.engines:
        if not opt.ik_bench:
            missing.append(("ik_llama.cpp", "no --ik-bench PATH was given"))
        else:
            for options in opt.ik_options or ["", "-rtr 1"]:
                add("ik_llama.cpp", lambda options=options: LlamaBench(opt, "ik_llama.cpp", opt.ik_bench, options))
    return made, missing


# ---- llama-cpp-python, in its own process ---------------------------------------------------------------------------------

def llama_worker(request):
    try:
        import llama_cpp as l
    except Exception as why:        # it may be missing, or its library may not load
        return {"error": f"no llama-cpp-python: {why}"}
    if request.get("probe"):
        return {"version": l.__version__}
    import ctypes
    quiet = l.llama_log_callback(lambda level, text, data: None)
    l.llama_log_set(quiet, None)
    began = time.monotonic()
    l.llama_backend_init()
    mp = l.llama_model_default_params()
    mp.n_gpu_layers = 0
    if not request.get("repack", True):
        mp.use_extra_bufts = False
    model = l.llama_model_load_from_file(request["model"].encode(), mp)
    if not model:
        return {"error": f"{request['model']}: llama.cpp does not load it"}
    prompts = request.get("prompts") or [[request["prompt"] + max(request["decode"], request["prefill"], key=len), 0]]
    cp = l.llama_context_default_params()
    cp.n_ctx = max(len(ids) for ids, _ in prompts) + 8
    cp.n_threads = cp.n_threads_batch = request["threads"]
    ctx = l.llama_init_from_model(model, cp)
    if not ctx:
        return {"error": f"{request['model']}: llama.cpp makes no context of {cp.n_ctx} positions"}
    n_vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
    n_batch = cp.n_batch
    loaded = time.monotonic()

    def decode(ids):
        for at in range(0, len(ids), n_batch):
            part = ids[at:at + n_batch]
            tokens = (l.llama_token * len(part))(*part)           # the batch only points to it
            if l.llama_decode(ctx, l.llama_batch_get_one(tokens, len(part))):
                raise RuntimeError("llama_decode failed")
        l.llama_synchronize(ctx)

    def clear():
        l.llama_memory_clear(l.llama_get_memory(ctx), True)

    if request.get("prompts"):
        with open(request["logits"], "wb") as out:
            for ids, first in prompts:
                clear()
                for at, part in enumerate([ids[:first], *([i] for i in ids[first:-1])]):
                    decode(part)
                    out.write(ctypes.string_at(l.llama_get_logits_ith(ctx, -1), 4 * n_vocab))
        return {"n_vocab": n_vocab}

    decode(request["prompt"])
    l.llama_get_logits_ith(ctx, -1)
    first = time.monotonic()
    clear()
    rates = {}
    for name, ids, step in (("prefill_tps", request["prefill"], 0), ("decode_tps", request["decode"], 1)):
        rates[name] = None
        if not ids:
            continue
        for warm in (True, False):
            clear()
            decode(request["prompt"])
            start = time.monotonic()
            if step:
                for i in ids[:2] if warm else ids:
                    decode([i])
            else:
                decode(ids)
            rates[name] = len(ids) / (time.monotonic() - start)
    return {**rates, "load_s": loaded - began, "first_s": first - began}


# ---- limits and quality ----------------------------------------------------------------------------------------------------

class Limits:
    """The memory limit, by bench/limits.c, compiled for this machine."""

    def __init__(self, opt, folder):
        self.opt, self.program, self.why = opt, Path(folder) / "limits", None
        compiler = shlex.split(os.environ.get("CC", "")) or [next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), "cc")]
        try:
            run([*compiler, "-O3", "-march=native", "-std=gnu17", "-pthread", HERE / "limits.c", "-o", self.program], 120)
        except Failed as why:
            self.why = str(why)

    def measure(self):
        if self.why:
            return None
        try:
            return as_json(run([self.program, self.opt.limit_mib, self.opt.threads, "0.3"], 120)[0], "limits")
        except Failed as why:
            self.why = str(why)
            return None


def log_softmax(row):
    most = max(row)
    total = most + math.log(math.fsum(math.exp(x - most) for x in row))
    return array.array("f", (x - total for x in row))


def divergence(p, q):
    """KL(p || q) of two rows of log-probabilities."""
    return math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q) if a > -80)


def kl_prompts(model, opt):
    prompts = []
    for text in TEXTS:
        try:
            ids = json.loads(run([opt.weft, "tokenize", "-m", model.path, "-p", text, "--ids"], opt.timeout)[0])
        except (Failed, ValueError):
            ids = []
        ids = ids[:8 + opt.kl_tokens]
        if len(ids) < 10:
            ids = model.ids(8 + opt.kl_tokens)
        prompts.append([ids, max(1, len(ids) - opt.kl_tokens)])
    return prompts


def quality(model, engines, opt):
    """{engine: {"kl", "kl_max", "top1"}} against 32-bit activations (or doubles throughout)."""
    prompts = kl_prompts(model, opt)
    reference = list(Weft(opt).logits(model, prompts, exact=True))
    found = {}
    for e in engines:
        try:
            rows = e.logits(model, prompts)
            if rows is None:
                continue
            kls, same = [], 0
            for p, q in zip(reference, rows):
                if len(p) != len(q):
                    raise Failed(f"{e.name}: {len(q)} logits, not {len(p)}")
                kls.append(divergence(p, q))
                same += max(range(len(p)), key=p.__getitem__) == max(range(len(q)), key=q.__getitem__)
            if len(kls) != len(reference):
                raise Failed(f"{e.name}: distributions for {len(kls)} positions, not {len(reference)}")
            found[e.name] = {"kl": statistics.fmean(kls), "kl_max": max(kls), "top1": same / len(kls), "positions": len(kls)}
        except Failed as why:
            say(f"compare: no KL divergence of {e.name}: {why}")
    return found


# ---- rounds ----------------------------------------------------------------------------------------------------------------

FIGURES = ("decode_tps", "prefill_tps", "load_s", "first_s", "peak_bytes")


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def measure_file(path, engines, limits, opt):
    model = Model(path, opt)
    say(f"compare: {model.name}: {model.summary}, {model.token_bytes / 1e9:.3f} GB per token")
    failed, samples, limit_samples = {}, {e.name: [] for e in engines}, []

    def attempt(e, what, *args):
        if e.name in failed:
            return None
        try:
            return what(*args)
        except Failed as why:
            failed[e.name] = str(why)
            say(f"compare: {e.name} failed: {why}")
            return None

    for e in engines:
        say(f"compare: {model.name}: warming up {e.name}")
        attempt(e, e.warm_up, model)
    for r in range(opt.rounds):
        limit_samples.append(limits.measure())
        limit = f", limit {limit_samples[-1]['huge_gb_s']:.1f} GB/s" if limit_samples[-1] else ""
        for e in engines:
            sample = attempt(e, e.measure, model)
            samples[e.name].append(sample)
            if sample:
                say(f"compare: {model.name}: round {r + 1} of {opt.rounds}{limit}: {e.name} {sample['decode_tps']:.2f} tok/s")
    limit_samples.append(limits.measure())
    limit_samples = [s for s in limit_samples if s]
    plain, huge = (median([s[k] for s in limit_samples]) for k in ("plain_gb_s", "huge_gb_s"))
    found = quality(model, [e for e in engines if e.name not in failed], opt) if opt.kl else {}
    rows = []
    for e in engines:
        got = [s for s in samples[e.name] if s]
        row = {"engine": e.name, "error": failed.get(e.name), "rounds": len(got)}
        for key in FIGURES:
            row[key] = median([s[key] for s in got])
        tps = [s["decode_tps"] for s in got]
        row["decode_tps_samples"], row["prefill_tps_samples"] = tps, [s["prefill_tps"] for s in got]
        row["gb_s"] = row["decode_tps"] * model.token_bytes / 1e9 if tps else None
        row["limit_share"] = row["gb_s"] / huge if tps and huge else None
        # how many times as fast the first engine is, round by round
        for key in ("decode_tps", "prefill_tps"):
            pairs = [(a[key], b[key]) for a, b in zip(samples[engines[0].name], samples[e.name]) if a and b and a[key] and b[key]]
            row["ratio_" + key[:-4]] = median([a / b for a, b in pairs])
        row.update(found.get(e.name, {"kl": None, "kl_max": None, "top1": None, "positions": None}))
        rows.append(row)
    return {"file": model.path, "summary": model.summary, "file_bytes": model.file_bytes, "token_bytes": round(model.token_bytes),
            "limit": {"plain_gb_s": plain, "huge_gb_s": huge, "samples": limit_samples, "error": limits.why}, "engines": rows}


def cell(x, form, scale=1.0):
    return "-" if x is None else format(x * scale, form)


def show(result, opt):
    limit = result["limit"]
    print(f"\n{Path(result['file']).name}: {result['summary']}, {result['file_bytes'] / 1e9:.2f} GB, {result['token_bytes'] / 1e9:.3f} GB per token")
    print(f"limit {cell(limit['huge_gb_s'], '.1f')} GB/s in huge pages, {cell(limit['plain_gb_s'], '.1f')} in plain ones"
          f"; rounds: {opt.rounds}, threads: {opt.threads}, {opt.tokens} tokens after {opt.prompt}, prompts of {opt.prefill}\n")
    first = result["engines"][0]["engine"]
    head = ["engine", "tok/s", "min", "max", f"{first} is", "limit", "prefill", f"{first} is", "load s", "first s", "peak GiB"]
    head += ["KL", "top-1"] if opt.kl else []
    table = [head]
    for r in result["engines"]:
        if r["error"] and not r["rounds"]:
            table.append([r["engine"], "failed: " + r["error"]])
            continue
        tps = r["decode_tps_samples"]
        line = [r["engine"], cell(r["decode_tps"], ".2f"), cell(min(tps), ".2f"), cell(max(tps), ".2f"), cell(r["ratio_decode"], ".2f") + " x", cell(r["limit_share"], ".0%"),
                cell(r["prefill_tps"], ".1f"), cell(r["ratio_prefill"], ".2f") + " x", cell(r["load_s"], ".2f"), cell(r["first_s"], ".2f"), cell(r["peak_bytes"], ".2f", 2**-30)]
        table.append(line + ([cell(r["kl"], ".2e"), cell(r["top1"], ".1%")] if opt.kl else []))
    widths = [max(len(line[i]) for line in table if len(line) == len(head)) for i in range(len(head))]
    widths[0] = max(len(line[0]) for line in table)
    for k, line in enumerate(table):
        full = len(line) == len(head)
        print("| " + " | ".join(c.ljust(w) if not i or not full else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))) + " |")
        if not k:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def arguments(argv):
    p = argparse.ArgumentParser(description="Measures Weft, llama.cpp and ik_llama.cpp on the same GGUF files, taking turns.",
                                epilog="Example: bench/compare.py model.gguf --llama-python venv/bin/python --ik-bench ik/build/bin/llama-bench --kl")
    p.add_argument("files", nargs="+", metavar="FILE", help="GGUF files; a table for each")
    p.add_argument("--engines", default="weft,llama,ik", help="which, and in which order of turns: of weft, llama, ik (default: all)")
    p.add_argument("--weft", default=str(HERE.parent / "build" / "weft"), metavar="PATH", help="the weft command (default: build/weft)")
    p.add_argument("--llama-python", default=sys.executable, metavar="PATH", help="a Python that has llama-cpp-python (default: this one)")
    p.add_argument("--llama-no-repack", action="store_true", help="llama-cpp-python lays no weights out anew: for files of which a second copy does not fit into memory")
    p.add_argument("--llama-bench", metavar="PATH", help="a llama-bench of llama.cpp, used instead")
    p.add_argument("--ik-bench", metavar="PATH", help="a llama-bench of ik_llama.cpp")
    p.add_argument("--ik-options", action="append", metavar="'OPTIONS'", help="options of it, such as '-rtr 1'; may be repeated, each is an engine of its own "
                   "(default: none, and '-rtr 1', weights repacked at load)")
    p.add_argument("--rounds", type=int, default=5, metavar="N", help="how often every engine has its turn (default 5)")
    p.add_argument("-t", "--threads", type=int, default=2, metavar="N", help="threads (default 2)")
    p.add_argument("-n", "--tokens", type=int, default=64, metavar="N", help="tokens to decode (default 64)")
    p.add_argument("-p", "--prompt", type=int, default=8, metavar="N", help="tokens in the context before: the depth (default 8)")
    p.add_argument("--prefill", type=int, default=128, metavar="N", help="tokens of the prompt that is timed; 0: none (default 128)")
    p.add_argument("--kl", action="store_true", help="KL divergence of each engine to a reference, over the whole vocabulary")
    p.add_argument("--kl-reference", choices=("exact", "ref"), default="exact", help="weft --precision exact (default), or DEV=REF: doubles, very slow")
    p.add_argument("--kl-tokens", type=int, default=16, metavar="N", help="positions of each of three texts (default 16)")
    p.add_argument("--limit-mib", type=int, default=256, metavar="N", help="memory that is read to find the limit (default 256)")
    p.add_argument("--timeout", type=float, default=1800, metavar="S", help="seconds that one run may take (default 1800)")
    p.add_argument("--json", metavar="FILE", help="write everything that was measured there; - is stdout, instead of the tables")
    o = p.parse_args(argv)
    o.engines = [e.strip() for e in o.engines.split(",") if e.strip()]
    for e in o.engines:
        if e not in ("weft", "llama", "ik"):
            p.error(f"--engines: '{e}' is none of weft, llama, ik")
    if not o.engines:
        p.error("--engines names none")
    for name, least in (("rounds", 1), ("threads", 1), ("tokens", 1), ("prompt", 1), ("prefill", 0), ("kl_tokens", 2), ("limit_mib", 1)):
        if getattr(o, name) < least:
            p.error(f"--{name.replace('_', '-')} must be {least} or more")
    return o


def main(argv):
    if len(argv) == 2 and argv[0] == "--llama-worker":
        print(json.dumps(llama_worker(json.loads(argv[1]))))
        return 0
    opt = arguments(argv)
    if not shutil.which(opt.weft):
        say(f"compare: {opt.weft}: no such program; build it with scripts/build.sh, or name it with --weft")
        return 1
    engines, missing = engines_of(opt)
    for name, why in missing:
        say(f"compare: without {name}: {why}")
    if not engines:
        say("compare: no engine is left to measure")
        return 1
    results, status = [], 0
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(opt, folder)
        for path in opt.files:
            try:
                results.append(measure_file(path, engines, limits, opt))
            except Failed as why:
                say(f"compare: {path}: {why}")
                status = 1
                continue
            if opt.json != "-":
                show(results[-1], opt)
        if limits.why:
            say(f"compare: no memory limit: {limits.why}")
    status = status or any(r["error"] for f in results for r in f["engines"])
    if opt.json:
        settings = {k: getattr(opt, k) for k in ("threads", "tokens", "prompt", "prefill", "rounds", "kl_reference")}
        text = json.dumps({"settings": settings, "missing": dict(missing), "files": results}, indent=1) + "\n"
        if opt.json == "-":
            sys.stdout.write(text)
        else:
            Path(opt.json).write_text(text)
    return int(status)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
