"""Functions of llama.h that programs call through llama_cpp to tokenize a text and to evaluate tokens, with ctypes' arrays.

Models, contexts and vocabularies are objects here, which are freed by these functions as there, or when nothing names them.
What is not here is not in Weft: sampling, adapters and states have objects of their own in this package.
"""
import ctypes
from typing import Any, List, Optional

import numpy as np

from ._engine import Model, Sequence, Vocab

llama_token = ctypes.c_int32
llama_pos = ctypes.c_int32
llama_seq_id = ctypes.c_int32
c_bool, c_char, c_float, c_int, c_size_t = ctypes.c_bool, ctypes.c_char, ctypes.c_float, ctypes.c_int, ctypes.c_size_t


class llama_model_params:
    """Of a model: what differs between machines is accepted, and Weft chooses it itself."""

    def __init__(self) -> None:
        self.n_gpu_layers, self.main_gpu, self.split_mode = 0, 0, 1
        self.vocab_only, self.use_mmap, self.use_mlock, self.check_tensors = False, True, False, False


class llama_context_params:
    def __init__(self) -> None:
        self.n_ctx, self.n_batch, self.n_ubatch, self.n_seq_max = 512, 2048, 512, 1
        self.n_threads = self.n_threads_batch = 4
        self.embeddings = False


class llama_model:
    """A file, and with the first context the model that runs."""

    def __init__(self, path: str) -> None:
        from ._engine import File
        self.path, self.file = path, File.open(path)
        self.vocab = Vocab.open(self.file)


class llama_context:
    def __init__(self, model: llama_model, params: llama_context_params) -> None:
        self.owner = model
        self.model = Model(model.path, context=params.n_ctx, threads=params.n_threads, prompt_threads=params.n_threads_batch)
        self.sequence: Optional[Sequence] = Sequence(self.model)
        self.logits: Optional[np.ndarray] = None


class llama_batch:
    """Tokens behind those that a context has."""

    def __init__(self, tokens: List[int]) -> None:
        self.n_tokens, self.tokens = len(tokens), tokens


def llama_backend_init() -> None:
    """Nothing has to be prepared."""


def llama_backend_free() -> None:
    """Nothing is left behind."""


def llama_model_default_params() -> llama_model_params:
    return llama_model_params()


def llama_context_default_params() -> llama_context_params:
    return llama_context_params()


def llama_model_load_from_file(path_model: bytes, params: llama_model_params) -> Optional[llama_model]:
    """None, and a line on stderr: the file cannot be used."""
    import sys
    try:
        return llama_model(path_model.decode())
    except ValueError as e:
        print(f"weft: {e}", file=sys.stderr)
        return None


def llama_init_from_model(model: llama_model, params: llama_context_params) -> Optional[llama_context]:
    import sys
    try:
        return llama_context(model, params)
    except ValueError as e:
        print(f"weft: {e}", file=sys.stderr)
        return None


def llama_free(ctx: llama_context) -> None:
    ctx.logits = ctx.sequence = None
    ctx.model.close()


def llama_model_free(model: llama_model) -> None:
    """The file goes with what names it last."""


def llama_model_get_vocab(model: llama_model) -> Vocab:
    return model.vocab


def llama_get_model(ctx: llama_context) -> llama_model:
    return ctx.owner


def llama_n_ctx(ctx: llama_context) -> int:
    return ctx.model.n_ctx


def llama_model_n_embd(model: llama_model) -> int:
    architecture = model.file.metadata().get("general.architecture", "")
    return int(model.file.metadata().get(f"{architecture}.embedding_length", 0))


def llama_vocab_n_tokens(vocab: Vocab) -> int:
    return vocab.size


def llama_vocab_bos(vocab: Vocab) -> int:
    return vocab.bos


def llama_vocab_eos(vocab: Vocab) -> int:
    return vocab.eos


def llama_vocab_is_eog(vocab: Vocab, token: int) -> bool:
    return vocab.is_end(int(getattr(token, "value", token)))


def llama_tokenize(vocab: Vocab, text: bytes, text_len: int, tokens: Any, n_tokens_max: int, add_special: bool, parse_special: bool) -> int:
    """How many there are, in `tokens`; -n: there are n, and they did not fit."""
    found = vocab.tokenize(bytes(text)[:text_len], bool(getattr(add_special, "value", add_special)), bool(getattr(parse_special, "value", parse_special)))
    if len(found) > n_tokens_max:
        return -len(found)
    tokens[:len(found)] = found
    return len(found)


def llama_token_to_piece(vocab: Vocab, token: Any, buf: Any, length: int, lstrip: int, special: bool) -> int:
    """The bytes of a token in buf, without lstrip spaces before them; -n: there are n, and they did not fit."""
    piece = vocab.piece(int(getattr(token, "value", token)), bool(special))
    while lstrip > 0 and piece[:1] == b" ":
        piece, lstrip = piece[1:], lstrip - 1
    if len(piece) > length:
        return -len(piece)
    buf[:len(piece)] = piece
    return len(piece)


def llama_batch_get_one(tokens: Any, n_tokens: int) -> llama_batch:
    return llama_batch([int(token) for token in tokens[:n_tokens]])


def llama_decode(ctx: llama_context, batch: llama_batch) -> int:
    """0; 1: the context has no room for them; -1: a token is not in the vocabulary."""
    if ctx.sequence is None or any(not 0 <= token < ctx.model.n_vocab for token in batch.tokens):
        return -1
    if len(ctx.sequence) + batch.n_tokens > ctx.model.n_ctx:
        return 1
    ctx.logits = ctx.sequence.add(batch.tokens)
    return 0


def llama_get_logits(ctx: llama_context) -> Any:
    """Of the last token: an array of floats, valid until the next llama_decode."""
    return ctx.logits


def llama_get_logits_ith(ctx: llama_context, i: int) -> Any:
    """i: -1, the last one, whose logits alone are kept."""
    if i != -1:
        raise ValueError(f"llama_get_logits_ith: {i}: logits are kept of the last token (-1) alone")
    return ctx.logits


def llama_get_memory(ctx: llama_context) -> llama_context:
    return ctx


def llama_memory_clear(mem: llama_context, data: bool) -> None:
    if mem.sequence is not None:
        mem.sequence.cut(0)
    mem.logits = None
