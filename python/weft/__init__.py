"""Weft in Python: large language models from GGUF files, by libweft.so.

`Llama` has the methods and answers of llama-cpp-python's class of this name: a program changes its import and nothing else.
`as_llama_cpp()` lets packages that import `llama_cpp` themselves use Weft.
"""
from ._library import WeftError, version
from .grammar import LlamaGrammar
from .llama import (Llama, LlamaState, LlamaTokenizer, LogitsProcessorList, MinTokensLogitsProcessor, StoppingCriteriaList)

__version__ = version()


def as_llama_cpp() -> None:
    """From now on `import llama_cpp` gives Weft in this process."""
    import sys
    from . import llama_cpp
    llama_cpp.install(sys.modules)


__all__ = ["Llama", "LlamaGrammar", "LlamaState", "LlamaTokenizer", "LogitsProcessorList", "MinTokensLogitsProcessor",
           "StoppingCriteriaList", "WeftError", "as_llama_cpp", "version"]
