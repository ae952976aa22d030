#!/usr/bin/env python3
"""record_formats.py: hashes of what ik_llama.cpp makes of the rows of test_formats.py, for tests/records/formats.

    record_formats.py IK_LLAMA_CPP OUT.json

IK_LLAMA_CPP is a copy of its source.  Two of its files are compiled, without contraction of a product and a sum.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import ik_formats  # noqa: E402
import numpy as np  # noqa: E402
import test_formats  # noqa: E402


def build(ggml, folder):
    flags = ["-O1", "-w", "-mavx2", "-mfma", "-mf16c", "-ffp-contract=off", "-ffunction-sections", *(f"-I{ggml / part}" for part in ("include", "src", "src/iqk"))]
    objects = []
    for source in (ggml / "src/ggml-quants.c", ggml / "src/iqk/iqk_quantize.cpp", HERE / "ik_rows.cpp"):
        objects.append(folder / (source.name + ".o"))
        language = ["gcc", "-std=gnu11"] if source.suffix == ".c" else ["g++", "-std=c++17"]
        subprocess.run([*language, *flags, "-c", source, "-o", objects[-1]], check=True)
    # The functions that are called need nothing of the rest.
    subprocess.run(["g++", "-static", "-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all", *objects, "-o", folder / "ik_rows"], check=True)
    return folder / "ik_rows"


def main():
    record = {}
    with tempfile.TemporaryDirectory() as folder:
        tool = build(Path(sys.argv[1]) / "ggml", Path(folder))
        for name, (_, block, _, _, together) in ik_formats.SIZES.items():
            rows, n = test_formats.sizes(name, block)
            raw = test_formats.ik_rows(name, rows, n)
            done = subprocess.run([tool, name, str(together), str(raw.size // rows), str(n * block)], input=raw.tobytes(), stdout=subprocess.PIPE, check=True)
            floats = np.frombuffer(done.stdout, np.float32)
            assert len(floats) == rows * n * block, name
            record[name] = ik_formats.digest(floats)
    Path(sys.argv[2]).write_text(json.dumps(record, indent=0) + "\n")


if __name__ == "__main__":
    main()
