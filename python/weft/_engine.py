"""Handles of the C library as Python objects: a model, its vocabulary, sequences, samplers, grammars, templates, answers.

Each object frees its handle when it is closed or collected, and keeps what it needs alive.  Logits are numpy arrays over
the library's own memory: they are valid until the model evaluates something else, and are not copied.
"""
import json
import os
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence as Seq, Tuple

import numpy as np

from ._handles import flush, lock_of, owned, reading, row_of, working
from ._library import WeftError, check, ffi, ids_of, lib, new_error, path_of, take_ids, take_text, text_of

SETTING_TYPES = ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"))


def setting(key: str, value: Any) -> str:
    """Metadata in place of the file's, as weft_options.settings has it."""
    for kind, name in SETTING_TYPES:
        if isinstance(value, kind):
            return f"{key}={name}:{str(value).lower() if kind is bool else value}"
    raise TypeError(f"{key}: a value of metadata is a bool, int, float or str, not {type(value).__name__}")


class File:
    """A GGUF file: its metadata."""

    def __init__(self, handle: Any, owner: Any = None) -> None:
        self._handle, self._owner = handle, owner

    @classmethod
    def open(cls, path: str) -> "File":
        out, err = ffi.new("weft_file **"), new_error()
        check(lib.weft_file_open(path_of(path), out, err), err, ValueError)
        return cls(owned(out[0], lib.weft_file_close))

    def metadata(self) -> Dict[str, str]:
        """All values but arrays, as text."""
        found, value = {}, ffi.new("weft_value *")
        for i in range(lib.weft_file_n_keys(self._handle)):
            lib.weft_file_value(self._handle, i, value)
            if value.type == lib.WEFT_ARRAY:
                continue
            if value.type == lib.WEFT_STRING:
                text = bytes(ffi.buffer(value.text, value.n)).decode("utf-8", "replace") if value.n else ""
            elif value.type == lib.WEFT_BOOL:
                text = "true" if value.u else "false"
            elif value.type in (lib.WEFT_FLOAT32, lib.WEFT_FLOAT64):
                text = f"{value.f:f}"
            else:
                text = str(value.i if value.type in (lib.WEFT_INT8, lib.WEFT_INT16, lib.WEFT_INT32, lib.WEFT_INT64) else value.u)
            found[ffi.string(lib.weft_file_key(self._handle, i)).decode("utf-8", "replace")] = text
        return found


class Vocab:
    """Text to tokens and back."""

    def __init__(self, handle: Any, owner: Any) -> None:
        self._handle, self._owner = handle, owner
        self.owned = owner._handle  # what must outlive whatever is made of this vocabulary
        self.row = row_of(owner._handle)
        self.size: int = lib.weft_vocab_size(handle)
        self.bos: int = lib.weft_bos(handle)
        self.eos: int = lib.weft_eos(handle)

    @classmethod
    def open(cls, file: File) -> "Vocab":
        out, err = ffi.new("weft_vocab **"), new_error()
        check(lib.weft_vocab_open(file._handle, out, err), err, ValueError)
        vocab = cls(owned(out[0], lib.weft_vocab_close, file._handle), file)
        vocab.owned, vocab.row = vocab._handle, row_of(vocab._handle)
        return vocab

    def tokenize(self, text: bytes, add_special: bool, parse_special: bool) -> List[int]:
        ids, n, err = ffi.new("int32_t **"), ffi.new("size_t *"), new_error()
        flags = (lib.WEFT_ADD_SPECIAL if add_special else 0) | (lib.WEFT_PARSE_SPECIAL if parse_special else 0)
        with reading(self.row):
            check(lib.weft_tokenize(self._handle, text, len(text), flags, ids, n, err), err)
        return take_ids(ids, n)

    def piece(self, token: int, special: bool = False) -> bytes:
        n = ffi.new("size_t *")
        with reading(self.row):
            return take_text(lib.weft_piece(self._handle, token, special, n), n[0])

    def is_end(self, token: int) -> bool:
        with reading(self.row):
            return bool(lib.weft_is_end(self._handle, token))


class Model:
    """A model that runs.  One thread at a time may use it and what belongs to it."""

    def __init__(self, path: str, settings: Seq[str] = (), adapters: Seq[Tuple[str, float]] = (),
                 progress: Optional[Callable[[str, float], Any]] = None,
                 control_vectors: Seq[Tuple[str, float]] = (), **options: Any) -> None:
        """adapters, control_vectors: files with their scales.  options: fields of weft_options by their names."""
        texts = [ffi.new("char[]", text_of(text)) for text in settings]
        paths = [ffi.new("char[]", path_of(adapter)) for adapter, _ in adapters]
        opt = ffi.new("weft_options *", {"size": ffi.sizeof("weft_options")})
        kept: List[Any] = [texts, paths]
        for name, value in options.items():
            if isinstance(value, str):
                kept.append(ffi.new("char[]", text_of(value)))
                value = kept[-1]
            if value is not None:
                setattr(opt, name, value)
        kept.append(ffi.new("char *[]", texts))
        kept.append(ffi.new("weft_adapter[]", [{"path": at, "scale": scale} for at, (_, scale) in zip(paths, adapters)]))
        opt.settings, opt.n_settings = kept[-2], len(texts)
        vectors = [ffi.new("char[]", path_of(vector)) for vector, _ in control_vectors]
        directions = ffi.new("weft_control_vector[]", [{"path": at, "scale": scale} for at, (_, scale) in zip(vectors, control_vectors)])
        opt.control_vectors, opt.n_control_vectors = directions, len(vectors)
        opt.adapters, opt.n_adapters = kept[-1], len(paths)
        if progress:
            self._progress = ffi.callback("void(void *, const char *, double)",
                                          lambda _, what, share: progress(ffi.string(what).decode(), share))
            opt.progress = self._progress
        out, err = ffi.new("weft_model **"), new_error()
        check(lib.weft_model_open(path_of(path), opt, out, err), err, ValueError)
        self._handle = owned(out[0], lib.weft_model_close)
        self.lock = lock_of(self._handle)
        self._sequences: "weakref.WeakSet[Sequence]" = weakref.WeakSet()
        self.vocab = Vocab(lib.weft_model_vocab(self._handle), self)
        self.file = File(lib.weft_model_file(self._handle), self)
        self.n_vocab: int = lib.weft_model_vocab_size(self._handle)
        self.n_ctx: int = lib.weft_model_context(self._handle)
        self.n_embd: int = lib.weft_model_embedding_size(self._handle)
        self.chunk: int = lib.weft_model_chunk(self._handle)
        self.n_adapters: int = lib.weft_model_n_adapters(self._handle)
        self.only_embeds = bool(lib.weft_model_only_embeds(self._handle))

    def close(self) -> None:
        """Frees the model and its sequences; grammars and samplers must not be used any more."""
        for sequence in list(self._sequences):
            sequence.close()
        if self._handle:
            flush(self._handle)
            ffi.release(self._handle)
            self._handle = ffi.NULL

    def pooling(self) -> int:
        pooling, err = ffi.new("enum weft_pooling *"), new_error()
        check(lib.weft_model_pooling(self._handle, pooling, err), err)
        return int(pooling[0])

    def embed(self, tokens: Seq[int], pooling: int) -> np.ndarray:
        """The vector of a text; of pooling NONE a row for each token."""
        said = self.pooling() if pooling == lib.WEFT_POOLING_MODEL else pooling
        rows = len(tokens) if said in (lib.WEFT_POOLING_NONE, lib.WEFT_POOLING_MODEL) else 1
        out = np.empty((rows, self.n_embd), dtype=np.float32)
        ids, n = ids_of(tokens)
        err = new_error()
        with working(self._handle):
            check(lib.weft_embed(self._handle, ids, n, pooling, ffi.from_buffer("float[]", out), err), err)
        return out if rows > 1 or said in (lib.WEFT_POOLING_NONE, lib.WEFT_POOLING_MODEL) else out[0]


class _Lent:
    """n floats at an address, for numpy, which keeps this object, and with it `kept`."""

    def __init__(self, address: int, n: int, kept: Any) -> None:
        self.__array_interface__ = {"version": 3, "shape": (n,), "typestr": "<f4", "data": (address, True)}
        self.kept = kept


class Sequence:
    """What one conversation has left in the model's caches."""

    def __init__(self, model: Model, handle: Any = None) -> None:
        self.model = model
        if handle is None:
            out, err = ffi.new("weft_sequence **"), new_error()
            check(lib.weft_sequence_new(model._handle, out, err), err)
            handle = out[0]
        self._handle = owned(handle, lib.weft_sequence_free, model._handle)
        self._speculation: Any = None
        model._sequences.add(self)

    def close(self) -> None:
        self.speculate(False)
        if self._handle:
            ffi.release(self._handle)
            self._handle = ffi.NULL

    def speculate(self, on: bool, always: bool = False) -> None:
        """Whether add_one drafts tokens that the text has had: if that pays, or always."""
        if self._speculation is not None:
            ffi.release(self._speculation)
            self._speculation = None
        if on:
            how = lib.WEFT_SPECULATE_ALWAYS if always else lib.WEFT_SPECULATE_IF_IT_PAYS
            made = lib.weft_speculation_of_sequence(self.model._handle, self._handle, how)
            self._speculation = owned(made, lib.weft_speculation_free, self._handle) if made else None

    def add_one(self, past: np.ndarray, token: int) -> np.ndarray:
        """add([token]) after past (all tokens that were asked for so far), with draft tokens.  The sequence may hold more tokens after these."""
        out, err = ffi.new("const float **"), new_error()
        with working(self._handle):
            check(lib.weft_speculation_decode(self._speculation, ffi.from_buffer("int32_t[]", past), len(past), token, out, err), err)
        return self._logits(out[0])

    @property
    def guesses(self) -> bool:
        return self._speculation is not None

    def guessed(self) -> Tuple[int, int]:
        """How many draft tokens there were, and how many of them were right."""
        if self._speculation is None:
            return 0, 0
        counts = lib.weft_speculation_count(self._speculation)
        return counts.proposed, counts.accepted

    def __len__(self) -> int:
        return int(lib.weft_sequence_length(self._handle))

    def cut(self, n: int) -> None:
        lib.weft_sequence_cut(self._handle, n)

    def whole(self, n: int) -> int:
        """The most positions, n at most, from which it can go on without evaluating anything twice."""
        return int(lib.weft_sequence_whole(self._handle, n))

    def invoke(self, prompt: Seq[int]) -> int:
        """Adapters with activation tokens (aLoRA) count from their last occurrence in this prompt on.  How many positions stay as they are."""
        ids, n = ids_of(prompt)
        return int(lib.weft_sequence_invoke(self._handle, ids, n))

    def fork(self, n: int) -> "Sequence":
        out, err = ffi.new("weft_sequence **"), new_error()
        check(lib.weft_sequence_fork(self._handle, n, out, err), err)
        return Sequence(self.model, out[0])

    def remove(self, tokens: Seq[int], at: int, n: int) -> None:
        """Removes n positions from `at` on; tokens: those of all positions.  What follows is evaluated again."""
        ids, _ = ids_of(tokens)
        err = new_error()
        with working(self._handle):
            check(lib.weft_sequence_remove(self._handle, ids, at, n, err), err, ValueError)

    def state(self, tokens: Seq[int]) -> bytes:
        """What the caches hold, as bytes; tokens: those of all positions."""
        if not self._handle:
            raise WeftError("the model of this state is closed")
        out, n, err = ffi.new("void **"), ffi.new("size_t *"), new_error()
        with working(self._handle):
            check(lib.weft_sequence_to_memory(self._handle, ids_of(tokens)[0], out, n, err), err)
        return take_text(out[0], n[0])

    @classmethod
    def of_state(cls, model: Model, state: bytes) -> Optional["Sequence"]:
        """None: the bytes are of another model, of other options or of another version."""
        out, err = ffi.new("weft_sequence **"), new_error()
        with working(model._handle):
            status = lib.weft_sequence_from_memory(model._handle, ffi.from_buffer(state), len(state), out, ffi.NULL, ffi.NULL, err)
        return None if status == -2 else cls(model, out[0]) if not check(status, err) else None

    def add(self, tokens: Seq[int]) -> np.ndarray:
        """Evaluates tokens behind what the sequence holds; the logits after the last one, over the library's memory."""
        err, part = new_error(), ffi.new("weft_tokens *")
        part.sequence = self._handle
        ids, n = ids_of(tokens)
        at = 0
        while at < n:
            part.ids = ids + at
            part.n = lib.weft_piece_of(self.model._handle, ids + at, n - at, self.model.chunk)
            at += part.n
            part.unseen = at < n
            with working(self._handle):
                check(lib.weft_step(self.model._handle, part, 1, ffi.NULL, ffi.NULL, err), err)
        return self._logits(part.logits)

    def add_rows(self, tokens: Seq[int], row: Callable[[int, np.ndarray], None]) -> None:
        """Evaluates tokens as add does, and returns the logits after each token."""
        failed: List[BaseException] = []

        def visit(_: Any, i: int, logits: Any) -> bool:
            try:
                row(i, self._logits(logits))
            except BaseException as e:  # what a callback raises cannot pass through C
                failed.append(e)
            return not failed

        ids, n = ids_of(tokens)
        err = new_error()
        callback = ffi.callback("bool(void *, size_t, const float *)", visit)
        with working(self._handle):
            check(lib.weft_sequence_rows(self._handle, ids, n, 0, callback, ffi.NULL, err), err)
        if failed:
            raise failed[0]

    def _logits(self, pointer: Any) -> np.ndarray:
        """Over the library's memory, which stays as long as the array does: a model that is closed before is freed after it."""
        kept = owned(ffi.new("char *"), lambda _: None, self.model._handle)
        view = np.asarray(_Lent(int(ffi.cast("uintptr_t", pointer)), self.model.n_vocab, kept))
        return view


def common(x: Seq[int], y: Seq[int]) -> int:
    """How many ids two prompts have in common at their beginnings, without parting the rows of a picture or a sound."""
    return int(lib.weft_common(*ids_of(x), *ids_of(y)))


def before_rows(ids: Seq[int], n: int) -> int:
    """n, or fewer if n would part the rows of a picture or a sound."""
    row, total = ids_of(ids)
    return int(lib.weft_before_rows(row, n, total))


class Media:
    """What makes rows of floats of pictures and sounds for one model: an mmproj file."""

    def __init__(self, model: "Model", path: str, min_tokens: int = 0, max_tokens: int = 0) -> None:
        """min_tokens, max_tokens: of a picture; 0: as the model's own processor."""
        out, err = ffi.new("weft_media **"), new_error()
        options = ffi.new("weft_media_options *", {"size": ffi.sizeof("weft_media_options"), "min_tokens": min_tokens, "max_tokens": max_tokens})
        with working(model._handle):
            check(lib.weft_media_open(model._handle, path_of(path), options, out, err), err, ValueError)
        self.model, self._handle = model, owned(out[0], lib.weft_media_close, model._handle)


class Medium:
    """A picture or a sound, encoded.  data: the whole file; name is used in messages."""

    def __init__(self, media: Media, data: bytes, name: str) -> None:
        out, err = ffi.new("weft_medium **"), new_error()
        with working(media._handle):
            status = lib.weft_medium_new(media._handle, ffi.from_buffer(data), len(data), text_of(name), out, err)
        check(status, err, ValueError if status == lib.WEFT_MEDIUM_BAD else WeftError)
        self._handle = owned(out[0], lib.weft_medium_free, media._handle)

    @property
    def n_rows(self) -> int:
        return int(lib.weft_medium_n_rows(self._handle))


def media_mark() -> str:
    """The mark of a picture or a sound in messages: random, so that no text can contain it."""
    mark = ffi.new("char[]", lib.WEFT_MEDIA_MARK_SIZE)
    if not lib.weft_media_mark(mark):
        raise WeftError("the system gives no random numbers")
    return ffi.string(mark).decode()


class Sampler:
    """From logits to a token.  params: fields of weft_sampling by their names."""

    def __init__(self, n_vocab: int, bias: Optional[Dict[int, float]] = None, **params: Any) -> None:
        sampling = ffi.new("weft_sampling *")
        lib.weft_sampling_init(sampling, ffi.sizeof("weft_sampling"))
        kept = []
        for name, value in params.items():
            if isinstance(value, str):
                kept.append(ffi.new("char[]", text_of(value)))
                value = kept[-1]
            setattr(sampling, name, value)
        out, err = ffi.new("weft_sampler **"), new_error()
        check(lib.weft_sampler_new(n_vocab, sampling, out, err), err, ValueError)
        self._handle, self.n_vocab = ffi.gc(out[0], lib.weft_sampler_free), n_vocab
        for token, value in (bias or {}).items():
            check(lib.weft_sampler_bias(self._handle, token, value, err), err, ValueError)

    def sample(self, logits: np.ndarray, mask: Any = ffi.NULL) -> int:
        if logits.shape != (self.n_vocab,) or logits.dtype != np.float32:
            raise ValueError(f"scores of shape {logits.shape}, {logits.dtype}: there must be one float32 for each of {self.n_vocab} tokens")
        lib.weft_sampler_mask(self._handle, mask)
        token, err = ffi.new("int32_t *"), new_error()
        check(lib.weft_sample(self._handle, ffi.from_buffer("float[]", logits), token, err), err)
        return int(token[0])

    def accept(self, token: int) -> None:
        err = new_error()
        check(lib.weft_accept(self._handle, token, err), err)


class Grammar:
    """Which tokens may come next: of GBNF, a JSON schema or a regular expression."""

    KINDS = {"gbnf": "weft_grammar_open_gbnf", "schema": "weft_grammar_open_json_schema", "regex": "weft_grammar_open_regex"}

    def __init__(self, vocab: Vocab, kind: str, text: str) -> None:
        out, err, data = ffi.new("weft_grammar **"), new_error(), text.encode()
        with reading(vocab.row):
            check(getattr(lib, self.KINDS[kind])(vocab._handle, data, len(data), out, err), err, ValueError)
            self._handle = owned(out[0], lib.weft_grammar_free, vocab.owned)

    def mask(self) -> Any:
        mask, err = ffi.new("const uint64_t **"), new_error()
        check(lib.weft_grammar_mask(self._handle, mask, err), err)
        return mask[0]

    def accept(self, token: int) -> None:
        err = new_error()
        check(lib.weft_grammar_accept(self._handle, token, err), err)

    @property
    def ended(self) -> bool:
        return bool(lib.weft_grammar_ended(self._handle))


class Part(NamedTuple):
    """Of an answer: kind is "content", "reasoning" or "call"."""
    kind: str
    text: str
    name: Optional[str]
    id: Optional[str]


PART_KINDS = {0: "content", 1: "reasoning", 2: "call"}


class Template:
    """From a conversation to a prompt."""

    def __init__(self, handle: Any, ends: Seq[str] = ()) -> None:
        self._handle, self.ends = owned(handle, lib.weft_template_close), list(ends)

    @classmethod
    def named(cls, name: str) -> "Template":
        """A format by the name that llama.cpp has for it.  ends: what the model writes behind an answer."""
        end = ffi.new("const char **")
        text = lib.weft_template_named(text_of(name), end)
        if not text:
            names = []
            while lib.weft_template_name(len(names)):
                names.append(ffi.string(lib.weft_template_name(len(names))).decode())
            raise ValueError(f"chat_format: {name} is not one of {', '.join(names)}")
        ends = ffi.string(end[0]).decode().strip()
        return cls.of_text(take_text(text).decode(), name, [ends] if ends else [])

    @classmethod
    def of_text(cls, text: str, name: str, ends: Seq[str] = ()) -> "Template":
        """Of Jinja; name begins messages about it."""
        out, err, data = ffi.new("weft_template **"), new_error(), text.encode()
        check(lib.weft_template_open(data, len(data), text_of(name), out, err), err, ValueError)
        return cls(out[0], ends)

    @classmethod
    def of_file(cls, file: File, tools: bool) -> Optional["Template"]:
        """None: the file has none."""
        keys = [b"tokenizer.chat_template", *([b"tokenizer.chat_template.tool_use"] if tools else [])]
        if all(lib.weft_file_find(file._handle, key, ffi.new("size_t *")) for key in keys):
            return None
        out, err = ffi.new("weft_template **"), new_error()
        check(lib.weft_template_of_file(file._handle, tools, out, err), err, ValueError)
        return cls(out[0])

    def encode(self, vocab: Vocab, messages: Any, tools: Any = None, variables: Optional[Dict[str, Any]] = None,
               bos: Optional[bytes] = None, eos: Optional[bytes] = None,
               media: Optional[Tuple[str, Seq[Any]]] = None) -> Tuple[bytes, List[int]]:
        """The prompt as text and as tokens; what users wrote never becomes control tokens.
        media: a mark, and the pictures and sounds whose places in messages are the mark, a number and '>'."""
        chat = ffi.new("weft_chat *", {"size": ffi.sizeof("weft_chat")})
        kept = [ffi.new("char[]", json.dumps(value).encode()) for value in (messages, tools, variables) if value is not None]
        rest = iter(kept)
        chat.messages = next(rest)
        chat.n_messages = len(ffi.string(chat.messages))
        if tools is not None:
            chat.tools = next(rest)
            chat.n_tools = len(ffi.string(chat.tools))
        if variables is not None:
            chat.variables = next(rest)
            chat.n_variables = len(ffi.string(chat.variables))
        kept += [ffi.new("char[]", text) for text in (bos or b"", eos or b"")]
        if bos is not None:
            chat.bos, chat.eos = kept[-2], kept[-1]
        chat.add_bos = True
        if media:
            kept += [ffi.new("char[]", media[0].encode()), ffi.new("weft_medium *[]", [medium._handle for medium in media[1]])]
            chat.media_mark, chat.media, chat.n_media = kept[-2], kept[-1], len(media[1])
        text, n, ids, n_ids = ffi.new("char **"), ffi.new("size_t *"), ffi.new("int32_t **"), ffi.new("size_t *")
        err = new_error()
        with reading(vocab.row):
            check(lib.weft_template_encode(self._handle, vocab._handle, chat, text, n, ids, n_ids, err), err, ValueError)
        return take_text(text[0], n[0]), take_ids(ids, n_ids)


class Answer:
    """What a model writes, taken apart: content, reasoning, tool calls."""

    def __init__(self, template: Template, prompt: bytes, tools: Any, keep_reasoning: bool) -> None:
        out, err = ffi.new("weft_answer **"), new_error()
        shown = json.dumps(tools).encode() if tools else None
        check(lib.weft_answer_new(template._handle, prompt, len(prompt), shown or ffi.NULL, len(shown or b""), out, err), err)
        self._handle = owned(out[0], lib.weft_answer_free, template._handle)
        if keep_reasoning:
            lib.weft_answer_keep_reasoning(self._handle)

    def add(self, text: str) -> List[Part]:
        parts, data = ffi.new("const weft_part **"), text.encode("utf-8", "replace")
        return self._parts(parts, lib.weft_answer_add(self._handle, data, len(data), parts))

    def end(self, cut: bool) -> List[Part]:
        parts = ffi.new("const weft_part **")
        return self._parts(parts, lib.weft_answer_end(self._handle, cut, parts))

    @staticmethod
    def _parts(parts: Any, n: int) -> List[Part]:
        def text(at: Any) -> Optional[str]:
            return ffi.string(at).decode("utf-8", "replace") if at else None

        found = [parts[0][i] for i in range(n)]
        return [Part(PART_KINDS[p.kind], bytes(ffi.buffer(p.text, p.n)).decode("utf-8", "replace") if p.n else "", text(p.name), text(p.id))
                for p in found]


__all__ = ["Answer", "File", "Grammar", "Media", "Medium", "Model", "Part", "Sampler", "Sequence", "Template", "Vocab", "WeftError", "before_rows", "common",
           "media_mark", "setting"]
