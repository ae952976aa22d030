"""Tokenizers that a program can hand on: that of a Llama's file, and one of the package transformers."""
import abc
from typing import TYPE_CHECKING, Any, List, Optional

if TYPE_CHECKING:
    from .llama import Llama


class BaseLlamaTokenizer(abc.ABC):
    """Text to tokens and back. special: names of control tokens in the text become these, or are shown."""

    @abc.abstractmethod
    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> List[int]:
        ...

    @abc.abstractmethod
    def detokenize(self, tokens: List[int], prev_tokens: Optional[List[int]] = None, special: bool = False) -> bytes:
        """The bytes of tokens; prev_tokens: those in front of them, whose text is not part of it."""


class LlamaTokenizer(BaseLlamaTokenizer):
    """That of a model's file."""

    def __init__(self, llama: "Llama") -> None:
        self._llama = llama

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> List[int]:
        return self._llama.tokenize(text, add_bos, special)

    def detokenize(self, tokens: List[int], prev_tokens: Optional[List[int]] = None, special: bool = False) -> bytes:
        return self._llama.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> List[int]:
        return self.tokenize(text.encode("utf-8", "ignore"), add_bos, special)

    def decode(self, tokens: List[int]) -> str:
        return self.detokenize(tokens).decode("utf-8", "ignore")


class LlamaHFTokenizer(BaseLlamaTokenizer):
    """A tokenizer of the package transformers."""

    def __init__(self, hf_tokenizer: Any) -> None:
        self.hf_tokenizer = hf_tokenizer

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str) -> "LlamaHFTokenizer":
        try:
            from transformers import AutoTokenizer
        except ImportError as e:
            raise ImportError("LlamaHFTokenizer needs the package transformers: pip install transformers") from e
        return cls(AutoTokenizer.from_pretrained(pretrained_model_name_or_path))

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> List[int]:
        """add_bos: as the tokenizer itself begins a text; special is always so."""
        return list(self.hf_tokenizer.encode(text.decode("utf-8", "ignore"), add_special_tokens=add_bos))

    def detokenize(self, tokens: List[int], prev_tokens: Optional[List[int]] = None, special: bool = False) -> bytes:
        """The text of all tokens without that of prev_tokens: a token's own text may depend on what stands in front of it."""
        def text(ids: List[int]) -> bytes:
            shown: str = self.hf_tokenizer.decode(ids, skip_special_tokens=not special)
            return shown.encode("utf-8", "ignore")

        if prev_tokens is None:
            return text(tokens)
        return text([*prev_tokens, *tokens])[len(text(prev_tokens)):]
