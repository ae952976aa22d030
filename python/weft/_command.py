"""The command `weft` of the wheel: the program in the package, which takes the place of this one."""
import os
import sys
from pathlib import Path
from typing import List

from ._llvm import name_llvm


def run(arguments: List[str]) -> None:
    """WEFT_PROGRAM names another program: that of a build folder."""
    program = os.environ.get("WEFT_PROGRAM") or str(Path(__file__).resolve().parent / "bin" / "weft")
    if not os.path.exists(program):
        sys.exit(f"weft: there is no {program}: this Python package has no command; scripts/build.sh makes one, and WEFT_PROGRAM can name it")
    name_llvm()
    os.execv(program, ["weft", *arguments])


def main() -> None:
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
