"""What stands for the package llama_cpp: its names that programs use beside Llama, and its submodules."""
import sys
from types import ModuleType
from typing import Any, Dict

import ctypes  # noqa: F401

from . import grammar, llama, llama_chat_format, llama_speculative, llama_tokenizer
from .grammar import LlamaGrammar  # noqa: F401
from .llama import *  # noqa: F401,F403
from .low_level import *  # noqa: F401,F403

__version__ = "0.3.36"  # whose interface this is
LLAMA_DEFAULT_SEED = llama.DEFAULT_SEED
LLAMA_POOLING_TYPE_UNSPECIFIED, LLAMA_POOLING_TYPE_NONE, LLAMA_POOLING_TYPE_MEAN = -1, 0, 1
LLAMA_POOLING_TYPE_CLS, LLAMA_POOLING_TYPE_LAST, LLAMA_POOLING_TYPE_RANK = 2, 3, 4
LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED, LLAMA_ROPE_SCALING_TYPE_NONE = -1, 0
LLAMA_ROPE_SCALING_TYPE_LINEAR, LLAMA_ROPE_SCALING_TYPE_YARN = 1, 2
LLAMA_SPLIT_MODE_NONE, LLAMA_SPLIT_MODE_LAYER, LLAMA_SPLIT_MODE_ROW = 0, 1, 2
GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0 = 0, 1, 2, 8


class LlamaCache:
    """Accepted by Llama.set_cache; Weft keeps the beginnings of prompts without one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


LlamaRAMCache = LlamaDiskCache = LlamaCache


def llama_supports_gpu_offload() -> bool:
    return False


def install(modules: Dict[str, ModuleType]) -> None:
    modules["llama_cpp"] = sys.modules[__name__]
    for name, module in (("llama", llama), ("llama_grammar", grammar), ("llama_chat_format", llama_chat_format),
                         ("llama_speculative", llama_speculative), ("llama_tokenizer", llama_tokenizer)):
        modules[f"llama_cpp.{name}"] = module
        setattr(sys.modules[__name__], name, module)
