"""`LlamaGrammar`: what a text has to match, as text; each generation follows it from the beginning."""
import json
from pathlib import Path
from typing import Any, Union

from ._engine import Grammar, Vocab


class LlamaGrammar:
    def __init__(self, _grammar: str, kind: str = "gbnf") -> None:
        """_grammar: GBNF; or kind "schema" for a JSON schema, "regex" for a regular expression."""
        if kind not in Grammar.KINDS:
            raise ValueError(f"kind is one of {', '.join(Grammar.KINDS)}, not {kind}")
        self._grammar, self.kind = _grammar, kind

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> "LlamaGrammar":
        return cls(grammar)

    @classmethod
    def from_file(cls, file: Union[str, Path], verbose: bool = True) -> "LlamaGrammar":
        return cls(Path(file).read_text())

    @classmethod
    def from_json_schema(cls, json_schema: Any, verbose: bool = True) -> "LlamaGrammar":
        """Of a schema as JSON text, or as a dict."""
        return cls(json_schema if isinstance(json_schema, str) else json.dumps(json_schema), "schema")

    @classmethod
    def from_regex(cls, regex: str) -> "LlamaGrammar":
        return cls(regex, "regex")

    def _open(self, vocab: Vocab) -> Grammar:
        return Grammar(vocab, self.kind, self._grammar)


JSON_OBJECT = LlamaGrammar.from_json_schema({"type": "object"})
