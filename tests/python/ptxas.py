"""NVIDIA's own assembler of PTX, from PyPI's nvidia-cuda-nvcc-cu12."""
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest


def find_ptxas():
    spec = importlib.util.find_spec("nvidia.cuda_nvcc") if importlib.util.find_spec("nvidia") else None
    for folder in spec.submodule_search_locations if spec else []:
        if (path := Path(folder) / "bin" / "ptxas").exists():
            return path
    pytest.fail("no ptxas: pip install nvidia-cuda-nvcc-cu12 (scripts/test.sh does it)")


def assemble(ptxas, path, arch):
    """What it says of a kernel: registers, spilled bytes, stack, memory of a work-group, barriers."""
    done = subprocess.run([ptxas, f"-arch={arch}", "-v", path, "-o", "/dev/null"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{path.name} for {arch}: {done.stderr}"

    def number(pattern):
        found = re.search(pattern, done.stderr)
        return int(found[1]) if found else 0
    patterns = r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes stack frame", r"(\d+) bytes smem", r"used (\d+) barriers"
    return tuple(number(pattern) for pattern in patterns)
