"""Makes weft/_ffi.py of Weft's headers: what cffi needs to call libweft.so, without a compiler.

    python -m weft._build [--headers FOLDER] [--out FILE]

The headers are plain C; what cffi's parser does not read is taken out here: the preprocessor's lines, the macros around
each header, and functions that are inline.  Whatever a header declares can be called from Python.
"""
import argparse
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
NUMBER = re.compile(r"^#define (WEFT_\w+) (\d+)\s*$", re.M)


def headers_folder() -> Path:
    """Where the headers are: in the package, or in the source tree around it."""
    for folder in (HERE / "include", HERE.parent.parent / "include"):
        if (folder / "weft.h").exists():
            return folder
    raise ImportError("weft: no headers: neither in the package nor in a source tree around it")


def declarations(folder: Path) -> str:
    """The C declarations of weft.h and of what it includes, in order."""
    text = (folder / "weft.h").read_text()
    parts = [(folder / name).read_text() for name in re.findall(r'#include "(weft/\w+\.h)"', text)]
    code = re.sub(r"/\*.*?\*/", " ", "\n".join(parts), flags=re.S)
    code = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", code, flags=re.M)
    code = re.sub(r"^WEFT_(?:BEGIN|END)$", "", code, flags=re.M)
    code = re.sub(r"^static inline [^{;]*\{.*?^\}$|^static inline [^\n]*\}$", "", code, flags=re.M | re.S)
    constants = "".join(f"#define {name} {value}\n" for name, value in NUMBER.findall("\n".join(parts)))
    return constants + re.sub(r"\n\s*\n+", "\n", code)


def ffi_of_headers(folder: Path):
    import cffi
    ffi = cffi.FFI()
    ffi.cdef(declarations(folder))
    return ffi


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headers", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=HERE / "_ffi.py")
    args = parser.parse_args()
    ffi = ffi_of_headers(args.headers or headers_folder())
    ffi.set_source("weft._ffi", None)
    ffi.emit_python_code(str(args.out))


if __name__ == "__main__":
    main()
