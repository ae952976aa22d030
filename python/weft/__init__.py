"""Weft in Python: large language models from GGUF files, by libweft.so.

`Llama` has the methods and answers of llama-cpp-python's class of this name: a program changes its import and nothing else.
`as_llama_cpp()` lets packages that import `llama_cpp` themselves use Weft.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._library import WeftError, version
    from .grammar import LlamaGrammar
    from .llama import (Llama, LlamaState, LlamaTokenizer, LogitsProcessorList, MinTokensLogitsProcessor, StoppingCriteriaList)

    __version__: str

# Where each name is defined; what begins with llama_ is in llama_cpp.py. A module is imported when one of its names is first used: the command `weft` uses none, and starts without numpy.
_MODULES = {"WeftError": "._library", "version": "._library", "LlamaGrammar": ".grammar", "Llama": ".llama", "LlamaState": ".llama",
            "LlamaTokenizer": ".llama", "LogitsProcessorList": ".llama", "MinTokensLogitsProcessor": ".llama", "StoppingCriteriaList": ".llama"}


def __getattr__(name: str) -> Any:
    from importlib import import_module
    if name == "__version__":
        value = import_module("._library", __name__).version()
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name], __name__), name)
    elif name.lower().startswith(("llama_", "ggml_")) and hasattr(import_module(".llama_cpp", __name__), name):
        value = getattr(import_module(".llama_cpp", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> Any:
    return sorted({*globals(), *__all__})


def as_llama_cpp() -> None:
    """From now on `import llama_cpp` gives Weft in this process."""
    import sys
    from . import llama_cpp
    llama_cpp.install(sys.modules)


__all__ = ["Llama", "LlamaGrammar", "LlamaState", "LlamaTokenizer", "LogitsProcessorList", "MinTokensLogitsProcessor",
           "StoppingCriteriaList", "WeftError", "as_llama_cpp", "version"]
