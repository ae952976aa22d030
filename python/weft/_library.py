"""libweft.so, opened: `lib` and `ffi` of cffi, and what every call needs (errors, texts, ids).

The library is looked for in WEFT_LIBRARY, then in the package (wheels hold one), then where the system's loader looks.
cffi releases the GIL during each call.
"""
import operator
import os
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple, Union

from ._llvm import name_llvm

HERE = Path(__file__).resolve().parent
SONAME = "libweft.so.0.1"

try:
    from ._ffi import ffi  # made by _build.py when the package is built
except ImportError:
    from ._build import ffi_of_headers, headers_folder
    ffi = ffi_of_headers(headers_folder())


def _open() -> Any:
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return ffi.dlopen(named)
    inside = HERE / "lib" / SONAME
    try:
        return ffi.dlopen(str(inside) if inside.exists() else SONAME)
    except OSError as e:
        raise ImportError(f"weft: {SONAME} was not found: install the package libweft0.1, or name the file in WEFT_LIBRARY ({e})") from e


def _checked(library: Any, path: str) -> Any:
    """The library, if its structs are those of the headers: until 1.0 they may grow with a minor version."""
    found = ffi.string(library.weft_version()).decode()
    expected = f"{library.WEFT_VERSION_MAJOR}.{library.WEFT_VERSION_MINOR}."
    if not found.startswith(expected):
        raise ImportError(f"weft: {path} is of version {found}, and this package needs {expected}x: install the two of one version")
    return library


name_llvm()
lib = _checked(_open(), os.environ.get("WEFT_LIBRARY") or SONAME)


class WeftError(RuntimeError):
    """What the library says of a file, a request or this machine, in one sentence."""


def check(status: int, err: Any, kind: type = WeftError) -> int:
    """The status of a call; an exception with the error's text if it failed."""
    if status < 0:
        raise kind(ffi.string(err.text).decode("utf-8", "replace"))
    return status


def new_error() -> Any:
    return ffi.new("weft_error *")


def take_text(pointer: Any, n: Optional[int] = None) -> bytes:
    """The bytes of a text that the library made; frees it."""
    if not pointer:
        return b""
    try:
        return ffi.string(pointer) if n is None else bytes(ffi.buffer(pointer, n))
    finally:
        lib.weft_free(pointer)


def take_ids(ids: Any, n: Any) -> List[int]:
    try:
        return ffi.unpack(ids[0], n[0]) if n[0] else []
    finally:
        lib.weft_free(ids[0])


def ids_of(tokens: Sequence[int]) -> Tuple[Any, int]:
    return ffi.new("int32_t[]", [operator.index(token) for token in tokens]), len(tokens)


def text_of(text: str) -> bytes:
    """For C, where a text ends at a NUL."""
    return _whole(text.encode())


def path_of(path: Union[str, bytes, "os.PathLike[Any]"]) -> bytes:
    return _whole(os.fsencode(path))


def _whole(text: bytes) -> bytes:
    if b"\0" in text:
        raise ValueError(f"{text!r}: there is a NUL in it")
    return text


def version() -> str:
    return ffi.string(lib.weft_version()).decode()
