"""The command `weft` of the wheel: the program in the package, which takes the place of this one."""
import os
import sys
from pathlib import Path

from ._llvm import name_llvm


def main() -> None:
    program = Path(__file__).resolve().parent / "bin" / "weft"
    if not program.exists():
        sys.exit("weft: this installation of the Python package has no command: build it with scripts/build.sh")
    name_llvm()
    os.execv(program, ["weft", *sys.argv[1:]])


if __name__ == "__main__":
    main()
