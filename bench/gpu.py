#!/usr/bin/env python3
"""What a token's kernels ask of a GPU, counted and predicted without one: a table for each model file.

    bench/gpu.py MODEL.gguf [...]      what DEV=CUDA makes of one token, on tests/fake_cuda (scripts/build.sh --tests)
    bench/gpu.py --search SECONDS ...  and how much faster a search would make it, by the same prediction

A row is a kernel that reads weights: bytes of a load, how much of the memory sectors that 32 items in step touch is what
they asked for (each load for itself; caches give back what is left), registers by ptxas, and for three GPUs the microseconds
and the share of the memory's bandwidth that `weft tune --predict` gives it (src/device/predict.c: how); no share where the
bytes depend on the depth.

Under the table: tokens per second that this predicts for each GPU, and what its memory's bandwidth alone would allow. No
launch runs beside another one, though some would. Attention is as slow as at depths 0 and 4,000 on average.
"""
import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Gpu:
    name: str                    # as --predict has it
    arch: str
    gb_s: float                  # of memory


GPUS = [Gpu("orin", "sm_87", 102), Gpu("rtx4090", "sm_89", 1008), Gpu("h200", "sm_90", 4800)]
SECTOR = 32
ACCESS = re.compile(r"^access (\S+): (\d+) groups of (\d+) items, (\d+) bytes, (\d+) nodes, (\d+) loads of ([\d.]+) bytes, (\d+) sectors, (\d+) useful")


@dataclass(frozen=True)
class Kernel:
    name: str
    groups: int
    items: int
    bytes: int
    nodes: int
    loads: int
    width: float
    sectors: int
    useful: int

    @property
    def coalesced(self):
        return self.useful / (self.sectors * SECTOR)


def parse(text):
    """Of what DEBUG=3 prints: the kernels, by name."""
    found = [ACCESS.match(line) for line in text.splitlines()]
    return {m[1]: Kernel(m[1], *map(int, m.group(2, 3, 4, 5, 6)), float(m[7]), *map(int, m.group(8, 9))) for m in found if m}


def find_ptxas():
    spec = importlib.util.find_spec("nvidia.cuda_nvcc") if importlib.util.find_spec("nvidia") else None
    for folder in spec.submodule_search_locations if spec else []:
        if (Path(folder) / "bin" / "ptxas").exists():
            return str(Path(folder) / "bin" / "ptxas")
    return shutil.which("ptxas")


def assemble(ptxas, path, arch):
    """Registers of an item."""
    done = subprocess.run([ptxas, f"-arch={arch}", "-v", path, "-o", "/dev/null"], capture_output=True, text=True, check=True)
    return int(re.search(r"Used (\d+) registers", done.stderr)[1])


def on_fake(weft, *args, **settings):
    env = {**os.environ, "DEV": "CUDA", "WEFT_CACHE": "off", "FAKE_CUDA_RUN": "0", "FAKE_CUDA_SM": "80", "FAKE_CUDA_MEMORY": str(64 << 30),
           "LD_LIBRARY_PATH": str(weft.parent / "tests" / "fake_cuda"), **settings}
    done = subprocess.run([weft, *args], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[-1])
    return done


def plan(weft, model):
    """The kernels of one token of a model, and the folder with their PTX, which is the caller's."""
    folder = Path(tempfile.mkdtemp())
    done = on_fake(weft, "run", "-m", model, "--ids", "1", "-n", "1", "--temp", "0", "--ignore-eos", "-c", "4096", DEBUG="3", FAKE_CUDA_PTX=str(folder))
    return parse(done.stderr), folder


def predict(weft, model, gpu, seconds=0.1):
    """Of a token on this GPU: {kernel: (launches, microseconds of one)}, and microseconds before and after a search."""
    done = on_fake(weft, "tune", "-m", model, "--predict", gpu.name, "--no-prompt", "--json", "--budget", str(seconds), "-c", "4096")
    tuned = json.loads(done.stdout)
    return {k["name"]: (k["count"], k["before_us"]) for k in tuned["kernels"]}, tuned["token_us"], tuned["token_bytes"]


LEAST = 1 << 20                  # bytes of a kernel that is shown


def rows(weft, model, ptxas, least=LEAST):
    """Of the kernels that read so many bytes: (kernel, registers on each GPU)."""
    kernels, folder = plan(weft, model)
    try:
        for path in sorted(folder.iterdir()):
            kernel = kernels.get(path.stem[5:])
            if not kernel or kernel.bytes < least or kernel.name.startswith("fill_"):     # once, when a model is loaded
                continue
            yield kernel, [assemble(ptxas, path, gpu.arch) for gpu in GPUS]
    finally:
        shutil.rmtree(folder)


def launches(weft, model):
    """What a token launches: (kernel, how often)."""
    done = on_fake(weft, "profile", "-m", model, "-n", "1", "--json")
    return [(k["name"], k["count"]) for k in json.loads(done.stdout)["kernels"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--weft", type=Path, default=ROOT / "build" / "weft")
    parser.add_argument("--search", type=float, metavar="SECONDS", default=0)
    args = parser.parse_args()
    ptxas = find_ptxas() or sys.exit("no ptxas: pip install nvidia-cuda-nvcc-cu12")
    for model in args.models:
        predicted = {gpu.name: predict(args.weft, model, gpu, args.search or 0.1) for gpu in GPUS}
        print(f"{Path(model).name}\n{'kernel':36} {'groups':>6} {'items':>5} {'MB':>7} {'B/load':>6} {'coalesced':>9}   " + "   ".join(f"{gpu.name:>7} regs      us share" for gpu in GPUS))
        for kernel, registers in rows(args.weft, model, ptxas):
            cells = []
            for gpu, used in zip(GPUS, registers, strict=True):
                us = predicted[gpu.name][0].get(kernel.name, (0, 0))[1]
                share = "" if re.search(r"_n\d", kernel.name) or not us else f"{kernel.bytes / (us * gpu.gb_s * 1e3):.0%}"
                cells.append(f"{'':>7} {used:4} {us:7.1f} {share:>5}")
            print(f"{kernel.name:36} {kernel.groups:6} {kernel.items:5} {kernel.bytes / 1e6:7.2f} {kernel.width:6.1f} {kernel.coalesced:8.0%}    " + "   ".join(cells))
        for gpu in GPUS:
            kernels, us, size = predicted[gpu.name]
            found = f", {1e6 / us[1]:.0f} after a search" if args.search else ""
            print(f"{gpu.name}: {1e6 / us[0]:.0f} tokens per second predicted{found}, {gpu.gb_s * 1e9 / size:.0f} by bandwidth alone, {sum(n for n, _ in kernels.values())} launches each")


if __name__ == "__main__":
    main()
