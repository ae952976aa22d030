#!/usr/bin/env python3
"""What a token's kernels ask of a GPU, counted without one: a table for each model file.

    bench/gpu.py MODEL.gguf [...]      what DEV=CUDA makes of one token, on tests/fake_cuda (scripts/build.sh --tests)

A row is a kernel that reads weights: bytes of a load, how much of the memory sectors that 32 items in step touch is what
they asked for (each load for itself; caches give back what is left), registers by ptxas, how many items a multiprocessor
holds at once, and which share of the memory's bandwidth three GPUs could get at most, by the slowest of: the sectors and
the loads that a multiprocessor does in a clock, its instructions, the bytes that are on their way at once against the
memory's latency, and the last wave of work-groups, which is not full.

Under the table: tokens per second that this predicts for each GPU, and what its memory's bandwidth alone would allow. Of every launch of a token
the time that its bytes take at that share, and what lies between two launches; none runs beside another one, though some would.
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
    name: str
    arch: str
    gb_s: float                  # of memory
    units: int                   # multiprocessors
    ghz: float
    items: int                   # that a multiprocessor holds
    latency_ns: float            # of memory
    gap_us: float                # between two launches of a graph, assumed


GPUS = [Gpu("Orin", "sm_87", 102, 16, 1.3, 1536, 800, 3), Gpu("4090", "sm_89", 1008, 128, 2.5, 1536, 600, 1.3),
        Gpu("H200", "sm_90", 4800, 132, 1.8, 2048, 700, 1.3)]
REGISTERS, SHARED, STEP, SECTOR = 65536, 100 << 10, 32, 32
SECTORS_A_CLOCK, STEPS_A_CLOCK = 4, 4            # of a multiprocessor: from its cache; instructions of 32 items
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


def occupancy(kernel, gpu, registers, shared):
    """Items that a multiprocessor holds: as many work-groups as fit."""
    groups = min(gpu.items // kernel.items, REGISTERS // max(registers * kernel.items, 1), SHARED // max(shared, 1))
    return max(groups, 1) * kernel.items


def share(kernel, gpu, registers, shared):
    """The share of the memory's bandwidth that the kernel can get at most."""
    steps = kernel.groups * -(-kernel.items // STEP)
    clocks = gpu.units * gpu.ghz * 1e9
    memory = kernel.bytes / (gpu.gb_s * 1e9)
    busy = max(steps * kernel.sectors / SECTORS_A_CLOCK, steps * kernel.loads, steps * kernel.nodes / STEPS_A_CLOCK) / clocks
    resident = occupancy(kernel, gpu, registers, shared)
    at_once = min(resident / kernel.items * gpu.units, kernel.groups)
    waves = kernel.groups / at_once
    on_the_way = at_once * kernel.bytes / kernel.groups          # all that the resident groups will read
    needed = gpu.gb_s * gpu.latency_ns                           # bytes, by Little's law
    return min(1, memory / busy, on_the_way / needed) * waves / -(-waves // 1)


def seconds(launches, gpu):
    """Of a token: launches are (how often, bytes of each, share of the bandwidth)."""
    return sum(n * (gpu.gap_us * 1e-6 + size / (gpu.gb_s * 1e9 * part)) for n, size, part in launches)


def find_ptxas():
    spec = importlib.util.find_spec("nvidia.cuda_nvcc") if importlib.util.find_spec("nvidia") else None
    for folder in spec.submodule_search_locations if spec else []:
        if (Path(folder) / "bin" / "ptxas").exists():
            return str(Path(folder) / "bin" / "ptxas")
    return shutil.which("ptxas")


def assemble(ptxas, path, arch):
    """Registers of an item and shared bytes of a work-group."""
    done = subprocess.run([ptxas, f"-arch={arch}", "-v", path, "-o", "/dev/null"], capture_output=True, text=True, check=True)
    registers, shared = re.search(r"Used (\d+) registers", done.stderr), re.search(r"(\d+) bytes smem", done.stderr)
    return int(registers[1]), int(shared[1]) if shared else 0


def plan(weft, model):
    """The kernels of one token of a model, and the folder with their PTX, which is the caller's."""
    folder = Path(tempfile.mkdtemp())
    env = {**os.environ, "DEV": "CUDA", "DEBUG": "3", "WEFT_CACHE": "off", "FAKE_CUDA_RUN": "0", "FAKE_CUDA_SM": "80",
           "FAKE_CUDA_PTX": str(folder), "LD_LIBRARY_PATH": str(weft.parent / "tests" / "fake_cuda")}
    done = subprocess.run([weft, "run", "-m", model, "--ids", "1", "-n", "1", "--temp", "0", "--ignore-eos"], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder)
        sys.exit(done.stderr.strip().splitlines()[-1])
    return parse(done.stderr), folder


LEAST = 1 << 20                  # bytes of a kernel that is shown


def rows(weft, model, ptxas, least=LEAST):
    """Of the kernels that read so many bytes: (kernel, [(gpu, registers, items held, share)])."""
    kernels, folder = plan(weft, model)
    try:
        for path in sorted(folder.iterdir()):
            kernel = kernels.get(path.stem[5:])
            if not kernel or kernel.bytes < least or kernel.name.startswith("fill_"):     # once, when a model is loaded
                continue
            figures = []
            for gpu in GPUS:
                registers, shared = assemble(ptxas, path, gpu.arch)
                figures.append((gpu, registers, occupancy(kernel, gpu, registers, shared), share(kernel, gpu, registers, shared)))
            yield kernel, figures
    finally:
        shutil.rmtree(folder)


def launches(weft, model):
    """What a token launches: (kernel, how often, bytes of each)."""
    env = {**os.environ, "DEV": "CUDA", "WEFT_CACHE": "off", "FAKE_CUDA_RUN": "0", "FAKE_CUDA_SM": "80",
           "LD_LIBRARY_PATH": str(weft.parent / "tests" / "fake_cuda")}
    done = subprocess.run([weft, "profile", "-m", model, "-n", "1", "--json"], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[-1])
    return [(k["name"], k["count"], k["bytes"] / k["count"]) for k in json.loads(done.stdout)["kernels"]]


def predict(launched, shares, gpu):
    """Tokens per second, and as many as the bandwidth alone would allow. shares: of kernels, by name; others have all of it."""
    own = [(n, size, shares.get(name, 1)) for name, n, size in launched]
    return 1 / seconds(own, gpu), gpu.gb_s * 1e9 / sum(n * size for n, size, _ in own)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--weft", type=Path, default=ROOT / "build" / "weft")
    args = parser.parse_args()
    ptxas = find_ptxas() or sys.exit("no ptxas: pip install nvidia-cuda-nvcc-cu12")
    for model in args.models:
        print(f"{Path(model).name}\n{'kernel':36} {'groups':>6} {'items':>5} {'MB':>7} {'B/load':>6} {'coalesced':>9}   " + "   ".join(f"{gpu.name:>4} regs items share" for gpu in GPUS))
        shares = {gpu.name: {} for gpu in GPUS}
        for kernel, figures in rows(args.weft, model, ptxas, least=1):
            for gpu, _, _, part in figures:
                shares[gpu.name][kernel.name] = part
            if kernel.bytes < LEAST:
                continue
            print(f"{kernel.name:36} {kernel.groups:6} {kernel.items:5} {kernel.bytes / 1e6:7.2f} {kernel.width:6.1f} {kernel.coalesced:8.0%}    "
                  + "   ".join(f"{'':>4} {registers:4} {held:5} {part:5.0%}" for _, registers, held, part in figures))
        launched = launches(args.weft, model)
        for gpu in GPUS:
            speed, limit = predict(launched, shares[gpu.name], gpu)
            print(f"{gpu.name}: {speed:.0f} tokens per second predicted, {limit:.0f} by bandwidth alone, {sum(n for _, n, _ in launched)} launches each")


if __name__ == "__main__":
    main()
