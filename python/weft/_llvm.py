"""LLVM's library of the package llvm-nanobind, which `pip install weft[llvm]` brings along."""
import os
from pathlib import Path


def name_llvm() -> None:
    """Sets WEFT_LLVM to that library if it is installed beside this package and WEFT_LLVM is not set."""
    if not os.environ.get("WEFT_LLVM"):
        found = sorted((Path(__file__).resolve().parent.parent / "llvm_nanobind.libs").glob("libLLVM*.so*"))
        if found:
            os.environ["WEFT_LLVM"] = str(found[-1])
