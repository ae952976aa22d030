#!/usr/bin/env python3
"""Weft beside llama.cpp on the same model, encoder and pictures, taking turns.

    bench/pictures.py model.gguf mmproj.gguf picture.png... --llama-cli llama.cpp/build/bin/llama-mtmd-cli

Every round runs each engine once for each picture, one process at a time, and writes one token. The table has medians over the rounds;
a ratio is the median of the ratios of single rounds. Needs Python 3.8 and nothing else. Columns:

first s    from the start of the process to its end behind the first token; everything is in it, loading too
picture s  what of that the picture takes. llama.cpp: what it logs, its encoder alone. Weft: all that is left of the time to the first token
           without loading and reading the prompt: decoding, preprocessing, laying out the encoder's weights, and encoding
cpu s      processor time of the process, on all threads: what other programs on the machine change least
peak MiB   memory at most, file pages included
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIGURES = ("first_s", "picture_s", "cpu_s", "peak_mib")


class Failed(Exception):
    """An engine that could not be measured, and why, in one sentence."""


def run(command, limit):
    """(what it printed, figures of the process)"""
    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        try:
            child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        except OSError as why:
            raise Failed(f"{command[0]}: {why.strerror}") from why
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - began > limit:
                child.kill()
                child.wait()
                raise Failed(f"{Path(command[0]).name}: not done after {limit:.0f} s (--timeout)")
            time.sleep(0.02)
        child.returncode = os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status
        seconds = time.monotonic() - began
        out.seek(0)
        text = out.read().decode(errors="replace")
    if child.returncode:
        raise Failed(f"{Path(command[0]).name}: " + (text.strip().splitlines() or ["no message"])[-1])
    return text, {"first_s": seconds, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


def common(program, opt, picture):
    return [program, "-m", opt.model, "--mmproj", opt.mmproj, "--image", picture, "-p", opt.prompt, "-n", "1", "-t", opt.threads, "--temp", "0", "-c", opt.context]


def weft(opt, picture):
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        text, figures = run([*common(opt.weft, opt, picture)[:1], "run", *common(opt.weft, opt, picture)[1:], "--stats", stats], opt.timeout)
        s = json.loads(stats.read_text())
    read = int(re.search(r"(\d+) tokens? read", text)[1])
    return {**figures, "tokens": read, "picture_s": (s["ttft_ms"] - s["load_ms"]) / 1000 - read / s["prompt_tps"]}


def llama(opt, picture):
    text, figures = run([*common(opt.llama_cli, opt, picture), "--no-warmup"], opt.timeout)
    spent = re.findall(r"encoding done in (\d+) ms", text)
    if not spent:
        raise Failed(f"{Path(opt.llama_cli).name}: its log does not say how long encoding took")
    return {**figures, "tokens": None, "picture_s": sum(map(int, spent)) / 1000}


def measure(opt, engines, picture):
    rounds = []
    for name, engine in engines:                         # kernels, and the files in memory
        engine(opt, picture)
    for r in range(opt.rounds):
        rounds.append({name: engine(opt, picture) for name, engine in engines})
        print(f"pictures: {Path(picture).name}: round {r + 1} of {opt.rounds}: " + "; ".join(f"{name} {x['first_s']:.1f} s" for name, x in rounds[-1].items()), file=sys.stderr)
    rows = []
    for name, _ in engines:
        row = {"engine": name, "tokens": rounds[0]["weft"]["tokens"]}
        for key in FIGURES:
            row[key] = statistics.median(x[name][key] for x in rounds)
            row["ratio_" + key] = statistics.median(x[name][key] / x["weft"][key] for x in rounds)
        rows.append(row)
    return {"picture": str(picture), "rounds": rounds, "engines": rows}


def show(result):
    print(f"\n{Path(result['picture']).name}: a prompt of {result['engines'][0]['tokens']} tokens with it; in brackets: times Weft's\n")
    print("| engine | " + " | ".join(k.replace("_mib", " MiB").replace("_", " ") for k in FIGURES) + " |\n|---|" + "---|" * len(FIGURES))
    for row in result["engines"]:
        print(f"| {row['engine']} | " + " | ".join(f"{row[k]:.4g} ({row['ratio_' + k]:.2f} x)" for k in FIGURES) + " |")


def main(argv):
    p = argparse.ArgumentParser(description="Measures Weft and llama.cpp on prompts with a picture, taking turns.", epilog="See the beginning of this file for what the columns are.")
    p.add_argument("model")
    p.add_argument("mmproj")
    p.add_argument("pictures", nargs="+", metavar="PICTURE")
    p.add_argument("--weft", default=str(HERE.parent / "build" / "weft"), metavar="PATH", help="the weft command (default: build/weft)")
    p.add_argument("--llama-cli", metavar="PATH", help="llama-mtmd-cli of llama.cpp; without it Weft is measured alone")
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each engine (default 3)")
    p.add_argument("-t", "--threads", type=int, default=2, metavar="N", help="threads (default 2)")
    p.add_argument("-c", "--context", type=int, default=2048, metavar="N", help="context (default 2048)")
    p.add_argument("-p", "--prompt", default="What is this?", metavar="TEXT", help="what is asked of the picture")
    p.add_argument("--timeout", type=float, default=1800, metavar="S", help="seconds that one run may take (default 1800)")
    p.add_argument("--json", metavar="FILE", help="write everything that was measured there")
    opt = p.parse_args(argv)
    if opt.rounds < 1 or opt.threads < 1:
        p.error("--rounds and --threads must be 1 or more")
    engines = [("weft", weft)] + ([("llama.cpp", llama)] if opt.llama_cli else [])
    results = []
    try:
        for picture in opt.pictures:
            results.append(measure(opt, engines, picture))
            show(results[-1])
    except Failed as why:
        print(f"pictures: {why}", file=sys.stderr)
        return 1
    if opt.json:
        Path(opt.json).write_text(json.dumps({"threads": opt.threads, "pictures": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
