"""`Llama`: a model with the methods and answers that llama-cpp-python's class of this name has.

    from weft import Llama
    llm = Llama("model.gguf", n_ctx=2048)
    print(llm("The capital of France is", max_tokens=8)["choices"][0]["text"])

Parameters that mean nothing to Weft (how weights are mapped, sizes of batches) are accepted and change nothing.  What
differs: one prompt is never read twice (any beginning that the last one shares is kept), logprobs need no logits_all,
embeddings need no embedding=True, and tool calls are parsed for every model whose template has tools.
"""
import asyncio
import codecs
import fnmatch
import operator
import os
import random
import time
import uuid
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Sequence as Seq, Tuple, Union

import numpy as np

from . import _chat
from ._engine import File, Grammar, Model, Sampler, Sequence, Vocab, before_rows, common, setting
from ._handles import Lock
from ._library import WeftError, ffi
from .grammar import LlamaGrammar
from .llama_speculative import LlamaPromptLookupDecoding
from .llama_tokenizer import BaseLlamaTokenizer, LlamaTokenizer

Response = Dict[str, Any]
DEFAULT_SEED = 0xFFFFFFFF
KV_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0", 30: "bf16"}  # numbers of ggml
ROPE_SCALING = {0: "none", 1: "linear", 2: "yarn"}  # numbers of llama.cpp

LogitsProcessor = Callable[[np.ndarray, np.ndarray], np.ndarray]
StoppingCriteria = Callable[[np.ndarray, np.ndarray], bool]


class LogitsProcessorList(List[LogitsProcessor]):
    def __call__(self, input_ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(List[StoppingCriteria]):
    def __call__(self, input_ids: np.ndarray, logits: np.ndarray) -> bool:
        return any(criterion(input_ids, logits) for criterion in self)


class MinTokensLogitsProcessor:
    """Bans the end of the text until min_tokens tokens have come."""

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        self.min_tokens, self.token_eos = min_tokens, token_eos
        self.prompt_tokens: Optional[int] = None

    def __call__(self, input_ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


class LlamaState:
    """What Llama.save_state gives: tokens, and the caches' contents, which share memory with the model's until one of
    them changes.  Pickled, it holds them as bytes: a model that was loaded from the same file with the same options, in any
    process, takes them as they are, and another one evaluates the tokens."""

    def __init__(self, input_ids: np.ndarray, n_tokens: int, seed: int, sequence: Optional[Sequence]) -> None:
        self.input_ids, self.n_tokens, self.seed, self._sequence = input_ids, n_tokens, seed, sequence
        self._bytes: Optional[bytes] = None

    @property
    def llama_state(self) -> bytes:
        """The caches' contents as bytes, which are made when they are first asked for.  The first state of a model waits
        until its file is read once: its digest is part of them."""
        if self._bytes is None and self._sequence is not None:
            self._bytes = self._sequence.state(self.input_ids.tolist())
        return self._bytes or b""

    @property
    def llama_state_size(self) -> int:
        return len(self.llama_state)

    def __getstate__(self) -> Dict[str, Any]:
        try:
            state = self.llama_state
        except WeftError:  # the model is closed, or its file was changed: the tokens remain
            state = b""
        return {"input_ids": self.input_ids, "n_tokens": self.n_tokens, "seed": self.seed, "_sequence": None, "_bytes": state}


class Drawn(NamedTuple):
    """A token of a completion, with the text that it completes."""
    token: int
    text: str
    logprobs: Optional[Tuple[float, List[Tuple[int, float]]]]


class ContextParams(NamedTuple):
    """What programs read of llama-cpp-python's context_params."""
    n_ctx: int
    n_batch: int
    n_threads: int
    n_threads_batch: int
    embeddings: bool
    pooling_type: int


class Llama:
    def __init__(
        self, model_path: str, *, n_gpu_layers: int = 0, vocab_only: bool = False, use_mmap: bool = True,
        kv_overrides: Optional[Dict[str, Union[bool, int, float, str]]] = None, seed: int = DEFAULT_SEED, n_ctx: int = 512,
        n_batch: int = 512, n_threads: Optional[int] = None, n_threads_batch: Optional[int] = None,
        rope_scaling_type: int = -1, pooling_type: int = -1, rope_freq_base: float = 0.0, rope_freq_scale: float = 0.0,
        yarn_orig_ctx: int = 0, logits_all: bool = False, embedding: bool = False, last_n_tokens_size: int = 64,
        lora_scale: float = 1.0, lora_path: Optional[str] = None, chat_format: Optional[str] = None,
        chat_handler: Optional[Callable[..., Any]] = None, type_k: Optional[int] = None, type_v: Optional[int] = None,
        verbose: bool = True, device: Optional[str] = None, draft_model: Optional[LlamaPromptLookupDecoding] = None,
        tokenizer: Optional[BaseLlamaTokenizer] = None, **kwargs: Any,
    ) -> None:
        """device: "CPU", "CL", "CUDA", ...; None: what the variable DEV says.  n_gpu_layers counts on another device than CPU.
        draft_model: a LlamaPromptLookupDecoding.  tokenizer: one that `tokenize`, `detokenize` and completions use; a chat's
        prompt is made by the vocabulary of the file."""
        if draft_model is not None and not isinstance(draft_model, LlamaPromptLookupDecoding):
            raise ValueError("draft_model: it is a LlamaPromptLookupDecoding, or left out")
        if tokenizer is not None and not isinstance(tokenizer, BaseLlamaTokenizer):
            raise ValueError("tokenizer: it is a LlamaHFTokenizer, another BaseLlamaTokenizer, or left out")
        self._guesses, self.tokenizer_ = draft_model is not None, tokenizer
        self.model_path, self.verbose, self.n_batch = model_path, verbose, n_batch
        self._lock = Lock()
        self._model: Optional[Model] = None
        self._sequence: Optional[Sequence] = None
        self._words = None
        if not os.path.exists(model_path):
            raise ValueError(f"Model path does not exist: {model_path}")
        self.set_seed(seed)
        self._logits_all, self._pooling, self.last_n_tokens_size = logits_all, pooling_type, last_n_tokens_size
        self.chat_format, self.chat_handler, self.cache = chat_format, chat_handler, None
        self.n_tokens = 0
        self._changes = 0  # of the sequence: by it a generation sees that another one was here since its last step
        self._logits: Optional[np.ndarray] = None  # over the library's memory, until something else is evaluated
        self._shown: Optional[Tuple[np.ndarray, np.ndarray]] = None  # that one, and the copy for programs
        self._rows: Dict[int, np.ndarray] = {}
        if vocab_only:
            self._file = File.open(model_path)
            self._words: Optional[Vocab] = Vocab.open(self._file)
        else:
            settings = [setting(key, value) for key, value in (kv_overrides or {}).items()]
            settings += _rope_settings(rope_freq_base, rope_freq_scale, rope_scaling_type, yarn_orig_ctx)
            self._model = Model(
                model_path, settings, [(lora_path, lora_scale)] if lora_path else [],
                context=n_ctx, threads=n_threads or 0, prompt_threads=n_threads_batch or 0,
                device=device, gpu_layers=_gpu_layers(device, n_gpu_layers), key_cache=_kv_type(type_k), value_cache=_kv_type(type_v))
            self._file, self._words, self._lock = self._model.file, self._model.vocab, self._model.lock
            if not self._model.only_embeds:
                self._hold(Sequence(self._model))
        self._n_ctx = self._model.n_ctx if self._model else n_ctx
        self.context_params = ContextParams(self._n_ctx, n_batch, n_threads or 0, n_threads_batch or 0, embedding, pooling_type)
        self._input_ids = np.empty(self._n_ctx, dtype=np.intc)
        self.metadata: Dict[str, str] = self._file.metadata()
        self._templates: Dict[Tuple[bool, Optional[str]], Any] = {}

    # ---- tokens

    @property
    def _vocab(self) -> Vocab:
        if self._words is None:
            raise RuntimeError("this Llama has been closed")
        return self._words

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        if self.tokenizer_ is not None:
            return self.tokenizer_.tokenize(text, add_bos, special)
        return self._vocab.tokenize(text, add_bos, special)

    def detokenize(self, tokens: List[int], prev_tokens: Optional[List[int]] = None, special: bool = False) -> bytes:
        if self.tokenizer_ is not None:
            return self.tokenizer_.detokenize(tokens, prev_tokens, special)
        text = b"".join(self._vocab.piece(token, special) for token in tokens)
        return text[1:] if tokens and tokens[0] == self.token_bos() and text[:1] == b" " else text

    def tokenizer(self) -> BaseLlamaTokenizer:
        return self.tokenizer_ or LlamaTokenizer(self)

    def token_eos(self) -> int:
        return self._vocab.eos

    def token_bos(self) -> int:
        return self._vocab.bos

    def token_nl(self) -> int:
        ids = self._vocab.tokenize(b"\n", False, False)
        return ids[-1] if ids else -1

    def n_ctx(self) -> int:
        return self._n_ctx

    def n_vocab(self) -> int:
        return self._model.n_vocab if self._model else self._vocab.size

    def n_embd(self) -> int:
        return self._running().n_embd

    def pooling_type(self) -> int:
        return self._running().pooling() if self._pooling < 0 else self._pooling

    # ---- evaluation

    def _running(self) -> Model:
        if self._model is None:
            raise RuntimeError("this Llama has a vocabulary only, or has been closed")
        return self._model

    def _writes(self) -> Sequence:
        if self._sequence is None:
            self._running()
            raise RuntimeError(f"{self.model_path}: this model makes embeddings and no text")
        return self._sequence

    def _hold(self, sequence: Sequence) -> None:
        """From now on this is what has been evaluated."""
        sequence.speculate(self._guesses and not self._logits_all)
        self._sequence = sequence

    @property
    def input_ids(self) -> np.ndarray:
        return self._seen(self._n_ctx)

    def _seen(self, n: int) -> np.ndarray:
        """The first n tokens, for reading: the caches hold what belongs to them."""
        ids = self._input_ids[:n]
        ids.flags.writeable = False
        return ids

    @property
    def eval_tokens(self) -> List[int]:
        return list(self._input_ids[:self.n_tokens])

    @property
    def eval_logits(self) -> List[List[float]]:
        return [row.tolist() for row in (self._scores if self._logits_all else self._scores[-1:])]

    @property
    def scores(self) -> np.ndarray:
        """Logits of each position, n_ctx x n_vocab: all that were evaluated with logits_all, else the last ones."""
        all_scores = np.zeros((self._n_ctx, self.n_vocab()), dtype=np.float32)
        for position, row in self._rows.items():
            if position < self.n_tokens:
                all_scores[position] = row
        if self._logits is not None and self.n_tokens:
            all_scores[self.n_tokens - 1] = self._logits
        return all_scores

    @property
    def _scores(self) -> np.ndarray:
        return self.scores[:self.n_tokens]

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token: a copy, made when it is asked for, which nothing changes and which outlives the model."""
        with self._lock:
            last = self._last()
            if self._shown is None or self._shown[0] is not last:
                copy = last.copy()
                copy.flags.writeable = False
                self._shown = last, copy
            return self._shown[1]

    @property
    def logits_view(self) -> np.ndarray:
        """The same without a copy: valid until the model evaluates something else.  While a program keeps it, a
        model that is closed keeps its memory."""
        with self._lock:
            return self._last()

    def _last(self) -> np.ndarray:
        if self._logits is None:
            raise RuntimeError("nothing has been evaluated")
        return self._logits

    def reset(self) -> None:
        with self._lock:
            self._cut(0)

    def _cut(self, n: int) -> None:
        if n != self.n_tokens:
            self._logits = None
        self.n_tokens = n
        self._changes += 1
        self._writes().cut(n)
        self._rows = {position: row for position, row in self._rows.items() if position < n}

    def eval(self, tokens: Seq[int]) -> None:
        """Evaluates tokens after the first n_tokens of those that were evaluated: a program may have set n_tokens back.
        The first tokens of all are a prompt, in which adapters may have activation tokens."""
        with self._lock:
            if not self.n_tokens and self._running().n_adapters:
                self._cut(0)
                self._writes().invoke(tokens)
            self._evaluate(tokens)

    def _evaluate(self, tokens: Seq[int]) -> None:
        with self._lock:
            sequence, n = self._writes(), len(tokens)
            if not n:
                return
            if self.n_tokens < 0:
                raise ValueError(f"n_tokens is {self.n_tokens}: it is at least 0")
            if self.n_tokens + n > self._n_ctx:
                raise ValueError(f"Requested tokens ({self.n_tokens + n}) exceed context window of {self._n_ctx}")
            guesses = n == 1 and sequence.guesses and self.n_tokens <= len(sequence)
            if self.n_tokens < len(sequence) and not guesses:
                self._cut(self.n_tokens)
            self._changes += 1
            if guesses:
                self._logits = sequence.add_one(self._input_ids[:self.n_tokens], tokens[0])
            elif self._logits_all:
                start = self.n_tokens
                sequence.add_rows(tokens, lambda i, row: self._rows.__setitem__(start + i, row.copy()))
                self._logits = self._rows[start + n - 1]
            else:
                self._logits = sequence.add(tokens)
            self._input_ids[self.n_tokens:self.n_tokens + n] = tokens
            self.n_tokens += n

    def set_seed(self, seed: int) -> None:
        """The seed of the next draws.  -1 and DEFAULT_SEED: a random one."""
        number = operator.index(seed)
        self._seed = random.SystemRandom().getrandbits(32) if number in (-1, DEFAULT_SEED) else number

    def _begin(self, seed: Optional[int]) -> None:
        """Before a completion: the seed that it was given, or the one that follows the last, as llama-cpp-python has it."""
        self.set_seed(random.Random(self._seed).getrandbits(32) if seed is None else seed)

    def set_cache(self, cache: Any) -> None:
        """A cache is accepted and not needed: the beginning that a prompt shares with the last one is always kept."""
        self.cache = cache

    def _sampler(self, temp: float, top_k: int, top_p: float, min_p: float, typical_p: float, repeat_penalty: float,
                 frequency_penalty: float, presence_penalty: float, mirostat_mode: int, mirostat_tau: float,
                 mirostat_eta: float, logit_bias: Optional[Dict[int, float]] = None) -> Sampler:
        """temp 0: the likeliest token.  Below 0, as in llama-cpp-python: a draw from the model's own probabilities."""
        common = dict(seed=self._seed & 0xFFFFFFFF, repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty,
                      presence_penalty=presence_penalty, repeat_last_n=self.last_n_tokens_size)
        bias = {int(token) if isinstance(token, str) else operator.index(token): float(value)
                for token, value in (logit_bias or {}).items()}
        if temp < 0:
            return Sampler(self.n_vocab(), bias, temp=1.0, samplers="penalties;temperature", **common)
        if mirostat_mode and temp > 0:
            common.update(mirostat=mirostat_mode, mirostat_tau=mirostat_tau, mirostat_eta=mirostat_eta)
        return Sampler(self.n_vocab(), bias, temp=temp, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p,
                       samplers="penalties;top_k;typ_p;top_p;min_p;temperature", **common)

    def sample(self, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0, temp: float = 0.80,
               repeat_penalty: float = 1.0, frequency_penalty: float = 0.0, presence_penalty: float = 0.0,
               tfs_z: float = 1.0, mirostat_mode: int = 0, mirostat_eta: float = 0.1, mirostat_tau: float = 5.0,
               penalize_nl: bool = True, logits_processor: Optional[LogitsProcessor] = None,
               grammar: Optional[LlamaGrammar] = None, idx: Optional[int] = None) -> int:
        """A token from the logits after the last one that was evaluated (or after position idx, with logits_all)."""
        with self._lock:
            logits = self._last() if idx is None or idx == self.n_tokens - 1 else self._rows[idx]
            sampler = self._sampler(temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty, presence_penalty,
                                    mirostat_mode, mirostat_tau, mirostat_eta)
            return self._draw(sampler, logits, logits_processor, grammar._open(self._vocab) if grammar else None)

    def _draw(self, sampler: Sampler, logits: np.ndarray, processor: Optional[LogitsProcessor],
              grammar: Optional[Grammar]) -> int:
        if processor:
            logits = np.ascontiguousarray(processor(self._seen(self.n_tokens), logits.copy()), dtype=np.float32).reshape(-1)
        return sampler.sample(logits, grammar.mask() if grammar else ffi.NULL)

    def generate(self, tokens: Seq[int], top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0,
                 temp: float = 0.80, repeat_penalty: float = 1.0, reset: bool = True, frequency_penalty: float = 0.0,
                 presence_penalty: float = 0.0, tfs_z: float = 1.0, mirostat_mode: int = 0, mirostat_tau: float = 5.0,
                 mirostat_eta: float = 0.1, penalize_nl: bool = True, logits_processor: Optional[LogitsProcessor] = None,
                 stopping_criteria: Optional[StoppingCriteria] = None, grammar: Optional[LlamaGrammar] = None,
                 logit_bias: Optional[Dict[int, float]] = None) -> Iterator[int]:
        """Tokens that follow `tokens`, without end: the caller stops.  It ends where the context is full, or a grammar is.

        A caller may send tokens, which are evaluated behind the one that was drawn.  Several may go on by turns: each has its
        own text, and evaluates again what another one has replaced."""
        sampler = self._sampler(temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty, presence_penalty,
                                mirostat_mode, mirostat_tau, mirostat_eta, logit_bias)
        constraint = grammar._open(self._vocab) if grammar else None
        return self._steps(list(tokens), reset, sampler, logits_processor, constraint, stopping_criteria)

    def _steps(self, tokens: List[int], reset: bool, sampler: Sampler, processor: Optional[LogitsProcessor],
               constraint: Optional[Grammar], criteria: Optional[StoppingCriteria],
               look: Callable[[np.ndarray, int], None] = lambda logits, token: None) -> Generator[int, Any, str]:
        """What generate gives; returns the finish_reason.  look sees each token with its logits, while these are valid."""
        ids = tokens if reset else [*self.eval_tokens, *tokens]
        prompt = len(ids)
        seen = None if reset or self._running().n_adapters else self._changes
        while True:
            with self._lock:
                if len(ids) > self._n_ctx:
                    return "length"
                self._evaluate(ids[self.n_tokens:] if seen == self._changes else self._reuse(ids, prompt))
                seen = self._changes
                token = self._draw(sampler, self._last(), processor, constraint)
                sampler.accept(token)
                if constraint and not self._vocab.is_end(token):
                    constraint.accept(token)
                if criteria and criteria(self._seen(self.n_tokens), self.logits):
                    return "stop"
                look(self._last(), token)
            more = yield token
            if constraint and constraint.ended:
                return "stop"
            ids += [token, *(more or ())]

    def _reuse(self, tokens: List[int], prompt: int) -> List[int]:
        """Cuts the sequence to the beginning that it shares with these tokens; what is left of them to evaluate.
        prompt: how many of them are the prompt, in which adapters may have activation tokens."""
        with self._lock:
            stays = self._writes().invoke(tokens[:prompt]) if self._running().n_adapters else self.n_tokens
            if stays < self.n_tokens:
                self._cut(stays)
            kept = common(self._input_ids[:self.n_tokens], tokens)
            if kept == len(tokens) == self.n_tokens and self._logits is not None:
                return []
            kept = kept if kept < len(tokens) else before_rows(tokens, len(tokens) - 1)
            self._cut(self._writes().whole(kept) if kept > 0 else 0)
            return tokens[self.n_tokens:]

    # ---- completions

    def _prompt_tokens(self, prompt: Union[str, List[int]], suffix: Optional[str]) -> List[int]:
        if isinstance(prompt, list):
            return list(prompt)
        tokens = self.tokenize(prompt.encode("utf-8"), True, True)
        if suffix:
            raise ValueError("suffix: use a prompt with the model's own fill-in-the-middle tokens")
        return tokens or [self.token_bos()]

    def _logprobs(self, logits: np.ndarray, token: int, top: int) -> Tuple[float, List[Tuple[int, float]]]:
        logprobs = self.logits_to_logprobs(logits)
        best = np.argsort(-logprobs, kind="stable")[:top]
        return float(logprobs[token]), [(int(i), float(logprobs[i])) for i in best]

    def _drawn(self, prompt_tokens: List[int], max_tokens: Optional[int], stop: Seq[str], logprobs: Optional[int],
               said: Response, logits_processor: Optional[LogitsProcessor] = None,
               stopping_criteria: Optional[StoppingCriteria] = None, grammar: Optional[LlamaGrammar] = None,
               special: bool = False, **sampling: Any) -> Iterator[Drawn]:
        """Tokens of a completion with their text, where stop strings end it.  said: gets finish_reason and n_tokens.
        special: the text shows control tokens."""
        room = self._n_ctx - len(prompt_tokens)
        if room <= 0:
            raise ValueError(f"Requested tokens ({len(prompt_tokens)}) exceed context window of {self._n_ctx}")
        most = room if max_tokens is None or max_tokens <= 0 else min(max_tokens, room)
        found_logprobs: List[Any] = [None]

        def look(logits: np.ndarray, token: int) -> None:
            if logprobs is not None:
                found_logprobs[0] = self._logprobs(logits, token, logprobs)

        constraint = grammar._open(self._vocab) if grammar else None
        steps = self._steps(list(prompt_tokens), True, self._sampler(**sampling), logits_processor, constraint, stopping_criteria, look)
        said.update(finish_reason="length", n_tokens=0)

        def reasoned() -> Iterator[int]:
            said["finish_reason"] = yield from steps

        return self._texts(reasoned(), most, stop, said, found_logprobs, special)

    def _texts(self, tokens: Iterator[int], most: int, stop: Seq[str], said: Response, logprobs: List[Any],
               special: bool) -> Iterator[Drawn]:
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        held, n = "", 0
        for token in tokens:
            if self._vocab.is_end(token):
                said["finish_reason"] = "stop"
                break
            n += 1
            said["n_tokens"] = n
            held += decoder.decode(self._vocab.piece(token, special))
            found = min((held.find(text) for text in stop if text in held), default=-1)
            if found >= 0:
                said["finish_reason"] = "stop"
            shown = held[:found] if found >= 0 else held[:len(held) - _may_begin(held, stop)]
            held = held[len(shown):]
            if n == most and found < 0:
                shown, held = shown + held, ""
            yield Drawn(token, shown, logprobs[0])
            if found >= 0 or n == most:
                return
        if held:
            yield Drawn(-1, held, None)

    def create_completion(
        self, prompt: Union[str, List[int]], suffix: Optional[str] = None, max_tokens: Optional[int] = 16,
        temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0,
        logprobs: Optional[int] = None, echo: bool = False, stop: Optional[Union[str, List[str]]] = None,
        frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_penalty: float = 1.0, top_k: int = 40,
        stream: bool = False, seed: Optional[int] = None, tfs_z: float = 1.0, mirostat_mode: int = 0,
        mirostat_tau: float = 5.0, mirostat_eta: float = 0.1, model: Optional[str] = None,
        stopping_criteria: Optional[StoppingCriteria] = None, logits_processor: Optional[LogitsProcessor] = None,
        grammar: Optional[LlamaGrammar] = None, logit_bias: Optional[Dict[int, float]] = None,
    ) -> Any:
        """A completion as a dict, or an iterator of parts with stream=True."""
        self._begin(seed)
        sampling = dict(top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, temp=temperature,
                        mirostat_mode=mirostat_mode, mirostat_tau=mirostat_tau, mirostat_eta=mirostat_eta,
                        frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
                        repeat_penalty=repeat_penalty, stopping_criteria=stopping_criteria,
                        logits_processor=logits_processor, grammar=grammar, logit_bias=logit_bias)
        tokens = self._prompt_tokens(prompt, suffix)
        stops = [stop] if isinstance(stop, str) else list(stop or [])
        head = {"id": f"cmpl-{uuid.uuid4()}", "object": "text_completion", "created": int(time.time()), "model": model or self.model_path}
        said: Response = {}
        drawn = self._drawn(tokens, max_tokens, stops, logprobs, said, **sampling)
        if stream:
            return self._stream_completion(head, drawn, said, len(prompt), logprobs is not None)
        with self._lock:  # several at once go one after the other
            parts = list(drawn)
        text = (prompt if isinstance(prompt, str) else self._text(tokens)) if echo else ""
        listed = self._listed_logprobs(tokens if echo else [], parts, 0 if echo else len(prompt), logprobs) if logprobs is not None else None
        choice = {"text": text + "".join(part.text for part in parts), "index": 0, "logprobs": listed, "finish_reason": said["finish_reason"]}
        usage = {"prompt_tokens": len(tokens), "completion_tokens": said["n_tokens"], "total_tokens": len(tokens) + said["n_tokens"]}
        return {**head, "choices": [choice], "usage": usage}

    def _stream_completion(self, head: Response, drawn: Iterator[Drawn], said: Response, offset: int,
                           wants_logprobs: bool) -> Iterator[Response]:
        for part in drawn:
            listed = None
            if wants_logprobs and part.logprobs:
                listed = self._listed_logprobs([], [part], offset, len(part.logprobs[1]))
            offset += len(part.text)
            if part.text or listed:
                yield {**head, "choices": [{"text": part.text, "index": 0, "logprobs": listed, "finish_reason": None}]}
        yield {**head, "choices": [{"text": "", "index": 0, "logprobs": None, "finish_reason": said["finish_reason"]}]}

    def _text(self, tokens: List[int]) -> str:
        return self.detokenize(tokens).decode("utf-8", "ignore")

    def _listed_logprobs(self, echoed: List[int], parts: List[Drawn], offset: int, top: Optional[int]) -> Response:
        """Log probabilities in the form of OpenAI's completions; of the prompt's tokens first, with echo."""
        rows: List[Tuple[int, Optional[Tuple[float, List[Tuple[int, float]]]]]] = []
        if echoed:
            rows += [(token, None if i == 0 else self._logprobs(self._prompt_row(echoed, i), token, top or 0)) for i, token in enumerate(echoed)]
            rows = rows[1:] if echoed[0] == self.token_bos() else rows
            rows[:1] = [(token, None) for token, _ in rows[:1]]
        rows += [(part.token, part.logprobs) for part in parts if part.logprobs]
        listed: Response = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        for token, found in rows:
            text = self._text([token])
            listed["tokens"].append(text)
            listed["text_offset"].append(offset)
            listed["token_logprobs"].append(found[0] if found else None)
            listed["top_logprobs"].append({**{self._text([i]): value for i, value in found[1]}, text: found[0]} if found else None)
            offset += len(text)
        return listed

    def _prompt_row(self, prompt: List[int], i: int) -> np.ndarray:
        """The logits after i tokens of a prompt: kept by logits_all, else evaluated for this."""
        with self._lock:
            if i - 1 not in self._rows:
                rows: Dict[int, np.ndarray] = {}
                other = Sequence(self._running())
                other.invoke(prompt)
                other.add_rows(prompt, lambda k, row: rows.__setitem__(k, row.copy()))
                other.close()
                self._rows.update(rows)
                self._logits = None
            return self._rows[i - 1]

    def __call__(self, prompt: str, *args: Any, **kwargs: Any) -> Any:
        return self.create_completion(prompt, *args, **kwargs)

    # ---- chats

    def create_chat_completion(self, messages: List[Dict[str, Any]], **kwargs: Any) -> Any:
        """An answer to a conversation as a dict, or an iterator of parts with stream=True.

        functions, function_call, tools, tool_choice, temperature=0.2, top_p, top_k, min_p, typical_p, stream, stop, seed,
        response_format, max_tokens, presence_penalty, frequency_penalty, repeat_penalty, mirostat_*, model,
        logits_processor, grammar, logit_bias, logprobs, top_logprobs: as in llama-cpp-python.  chat_template_kwargs: what
        else the template may ask for.  reasoning: True gives what the model thinks apart, as reasoning_content."""
        if self.chat_handler:
            return self.chat_handler(llama=self, messages=messages, **kwargs)
        return _chat.complete(self, messages, **kwargs)

    def create_chat_completion_openai_v1(self, *args: Any, **kwargs: Any) -> Any:
        """create_chat_completion, with objects of the package openai as results."""
        from openai.types.chat import ChatCompletion, ChatCompletionChunk
        answer = self.create_chat_completion(*args, **kwargs)
        if kwargs.get("stream"):
            return (ChatCompletionChunk(**part) for part in answer)
        return ChatCompletion(**answer)

    # ---- embeddings

    def create_embedding(self, input: Union[str, List[str]], model: Optional[str] = None) -> Response:
        texts = input if isinstance(input, list) else [input]
        vectors, n = self.embed(texts, return_count=True)
        data = [{"object": "embedding", "embedding": vector, "index": i} for i, vector in enumerate(vectors)]
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": {"prompt_tokens": n, "total_tokens": n}}

    def embed(self, input: Union[str, List[str]], normalize: bool = False, truncate: bool = True,
              return_count: bool = False) -> Any:
        """The vector of a text (a row for each token where neither the file nor pooling_type says how to pool), or a list."""
        model = self._running()
        texts = [input] if isinstance(input, str) else input
        vectors, n_tokens = [], 0
        with self._lock:
            for text in texts:
                tokens = self.tokenize(text.encode("utf-8"), True, False)
                if len(tokens) > self._n_ctx and not truncate:
                    raise ValueError(f"Requested tokens ({len(tokens)}) exceed context window of {self._n_ctx}")
                tokens = tokens[:self._n_ctx]
                n_tokens += len(tokens)
                rows = model.embed(tokens, self._pooling)
                if normalize:
                    length = np.linalg.norm(rows, axis=-1, keepdims=True)
                    rows = rows / np.where(length == 0, 1, length)
                vectors.append(rows.tolist())
            self._logits = None
        found: Any = vectors[0] if isinstance(input, str) else vectors
        return (found, n_tokens) if return_count else found

    # ---- state

    def save_state(self) -> LlamaState:
        """What has been evaluated; takes no time, and no memory until something else is evaluated."""
        with self._lock:
            fork = self._writes().fork(self.n_tokens)
            return LlamaState(self._input_ids[:self.n_tokens].copy(), self.n_tokens, self._seed, fork)

    def load_state(self, state: LlamaState) -> None:
        with self._lock:
            self._writes()
            tokens = state.input_ids[:state.n_tokens]
            held = self._held_by(state)
            if held is not None:
                self._hold(held)
                n = min(len(held), state.n_tokens)
                self.n_tokens, self._logits, self._rows = n, None, {}
                self._changes += 1
                self._input_ids[:n] = tokens[:n]
            else:
                self._cut(0)
            self.eval(tokens[self.n_tokens:].tolist())
            self._seed = state.seed

    def _held_by(self, state: LlamaState) -> Optional[Sequence]:
        """A sequence of what a state holds; None: it is of another model."""
        if state._sequence is not None and state._sequence.model is self._model:
            return state._sequence.fork(state.n_tokens)
        return Sequence.of_state(self._running(), state._bytes) if state._bytes else None

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError("a Llama holds a loaded model, which cannot be pickled: pickle its arguments")

    # ---- the rest

    def close(self) -> None:
        """Frees the model."""
        with self._lock:
            for part in (self._sequence, self._model):
                if part:
                    part.close()
            self._sequence = self._model = self._logits = self._shown = self._words = None

    def __enter__(self) -> "Llama":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def acreate_completion(self, *args: Any, **kwargs: Any) -> Any:
        """create_completion in a thread of its own; with stream=True an asynchronous iterator."""
        return await _in_thread(self.create_completion, *args, **kwargs)

    async def acreate_chat_completion(self, *args: Any, **kwargs: Any) -> Any:
        return await _in_thread(self.create_chat_completion, *args, **kwargs)

    @staticmethod
    def logits_to_logprobs(logits: Any, axis: int = -1) -> np.ndarray:
        logits = np.asarray(logits, dtype=np.float32)
        shifted = logits - np.max(logits, axis=axis, keepdims=True)
        return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))

    @staticmethod
    def longest_token_prefix(a: Seq[int], b: Seq[int]) -> int:
        n = 0
        for x, y in zip(a, b):
            if x != y:
                break
            n += 1
        return n

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: Optional[str], additional_files: Optional[List[str]] = None,
                        local_dir: Optional[Any] = None, cache_dir: Optional[Any] = None, **kwargs: Any) -> "Llama":
        """A model of Hugging Face: the one file of repo_id whose name matches filename (with *), downloaded by the package
        huggingface_hub."""
        path = fetched(repo_id, filename or "*.gguf", local_dir, cache_dir, additional_files or [])
        kwargs.pop("local_dir_use_symlinks", None)
        return cls(model_path=path, **kwargs)


def fetched(repo_id: str, pattern: str, local_dir: Optional[Any] = None, cache_dir: Optional[Any] = None, more: Seq[str] = ()) -> str:
    """Where the one file of a repository of Hugging Face is whose name matches a pattern (with *): downloaded if it was not there.
    more: patterns of others that are to be beside it."""
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as e:
        raise ImportError("from_pretrained needs the package huggingface-hub: pip install huggingface-hub") from e
    names = HfApi().list_repo_files(repo_id)

    def fetch(wanted: str) -> str:
        found = [name for name in names if fnmatch.fnmatch(name, wanted)]
        if len(found) != 1:
            raise ValueError(f"{repo_id}: {len(found)} files match {wanted}; the repository has: {', '.join(names)}")
        return str(hf_hub_download(repo_id=repo_id, filename=found[0], local_dir=local_dir, cache_dir=cache_dir))

    path = fetch(pattern)
    for wanted in more:
        fetch(wanted)
    return str(Path(path))


def _rope_settings(base: float, scale: float, scaling: int, original: int) -> List[str]:
    found = []
    if base:
        found.append(setting("{arch}.rope.freq_base", float(base)))
    if scale:
        found += [setting("{arch}.rope.scaling.type", ROPE_SCALING.get(scaling, "linear")), setting("{arch}.rope.scaling.factor", 1.0 / scale)]
    elif scaling in ROPE_SCALING:
        found.append(setting("{arch}.rope.scaling.type", ROPE_SCALING[scaling]))
    if original:
        found.append(setting("{arch}.rope.scaling.original_context_length", int(original)))
    return found


def _gpu_layers(device: Optional[str], n: int) -> int:
    """weft_options.gpu_layers: programs set n_gpu_layers also if there is only the CPU; below 1: all."""
    return max(n, 0) if (device or os.environ.get("DEV") or "CPU") != "CPU" else 0


def _kv_type(number: Optional[int]) -> Optional[str]:
    if number is None:
        return None
    if number not in KV_TYPES:
        raise ValueError(f"type_k, type_v: {number} is no type of a KV cache; they are {', '.join(f'{n} ({name})' for n, name in KV_TYPES.items())}")
    return KV_TYPES[number]


def _may_begin(text: str, stops: Seq[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop string."""
    return max((n for stop in stops for n in range(1, min(len(stop), len(text) + 1)) if text.endswith(stop[:n])), default=0)


async def _in_thread(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    answer = await asyncio.to_thread(call, *args, **kwargs)
    if not kwargs.get("stream"):
        return answer

    async def parts() -> AsyncIterator[Any]:
        end = object()
        while (part := await asyncio.to_thread(next, answer, end)) is not end:
            yield part

    return parts()


__all__ = ["DEFAULT_SEED", "Llama", "LlamaState", "LlamaTokenizer", "LogitsProcessorList", "MinTokensLogitsProcessor", "StoppingCriteriaList", "WeftError"]
