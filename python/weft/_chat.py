"""Chat completions: a conversation becomes a prompt by the model's template, and what the model writes is taken apart.

A tool choice that names a function constrains the text to the function's parameters, and so does response_format.
"""
import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from ._engine import Answer, Medium, Template
from .grammar import JSON_OBJECT, LlamaGrammar

if TYPE_CHECKING:
    from .llama import Drawn, Llama

Response = Dict[str, Any]
# Names that llama-cpp-python gives formats, and those that Weft has for them.
# chatml with tools: they are listed in the system message, and calls are written as Hermes's models write them.
FUNCTIONS = """{{ bos_token }}{% set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}
<|im_start|>system
{{ system }}{% if tools %}

You may call these functions: {{ tools | map(attribute='function') | list | tojson }}
Write each call as
<tool_call>
{"name": "the function's name", "arguments": {}}
</tool_call>{% endif %}<|im_end|>
{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for call in m.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# What llama-cpp-python writes for chat_format="llama-2", and for files without a template.
LLAMA_2 = """{{ bos_token }}{% set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}
{% if system %}{{ '[INST] <<SYS>>\\n' ~ system ~ '\\n<</SYS>>' }}{% endif %} {#- -#}
{{ ' ' }}{% set turns = messages | rejectattr('role', 'equalto', 'system') | list -%}
{% for m in turns %}{% if system and loop.first %}{{ m.content ~ ' ' }}{% else -%}
{% if m.role == 'user' %}<s>[INST]{% else %}[/INST]{% endif %}{{ m.content ~ ' ' }}{{ ' ' if loop.index0 is even else '</s>' }}{% endif %}{% endfor -%}
[/INST]"""
MOONDREAM = """{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' ~ m.content ~ '\n\n' }}{% else -%}
{{ m.content ~ '\n\n' if m.role == 'system' else 'Question: ' ~ m.content ~ '\n\nAnswer:' }}{% endif %}{% endfor %}"""
TEXTS = {"llama-2": LLAMA_2, "chatml-function-calling": FUNCTIONS, "moondream": MOONDREAM}
OF_FILE = ("functionary", "functionary-v1", "functionary-v2")  # these models' files bring their templates
FORMATS = {"mistral-instruct": "mistral-v1", "llama-3": "llama3", "phi-3": "phi3"}


def template_of(llama: "Llama", tools: bool, named: Optional[str] = None) -> Template:
    """By chat_format; else that of the file; else `named`; else llama-2, as llama-cpp-python has it."""
    if (tools, named) not in llama._templates:
        asked = llama.chat_format if llama.chat_format not in OF_FILE else None
        found = None if asked else Template.of_file(llama._file, tools)
        if not found and llama.chat_format in OF_FILE:
            raise ValueError(f"chat_format: {llama.chat_format} is the template of such a model's file, and {llama.model_path} has none")
        llama._templates[tools, named] = found or _named(asked or named or "llama-2")
    return llama._templates[tools, named]


def _named(name: str) -> Template:
    if name in TEXTS:
        return Template.of_text(TEXTS[name], name, ["<|im_end|>"] if TEXTS[name] is FUNCTIONS else [])
    return Template.named(FORMATS.get(name, name))


def grammar_of(response_format: Optional[Response]) -> Optional[LlamaGrammar]:
    """json_object with or without a schema; json_schema as OpenAI writes it."""
    kind = (response_format or {}).get("type", "text")
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema"):
        raise ValueError(f"response_format: the type is text, json_object or json_schema, not {kind}")
    assert response_format is not None
    schema = response_format.get("schema") or response_format.get("json_schema", {}).get("schema")
    return LlamaGrammar.from_json_schema(schema) if schema else JSON_OBJECT


def chosen(tools: Optional[List[Response]], choice: Any) -> Tuple[Optional[List[Response]], List[Response]]:
    """The tools for the template, and the functions that may be called if a call is required."""
    if not tools or choice == "none":
        return None, []
    if not isinstance(choice, dict):
        if choice not in (None, "auto", "required"):
            raise ValueError(f"tool_choice: none, auto, required or the name of a function, not {choice}")
        return tools, [tool["function"] for tool in tools] if choice == "required" else []
    name = choice["function"]["name"]
    found = [tool["function"] for tool in tools if tool["function"]["name"] == name]
    if not found:
        raise ValueError(f"tool_choice: no tool is named {name}")
    return tools, found[:1]


def call_grammar(functions: List[Response]) -> LlamaGrammar:
    """Of one function the arguments; of several the name as well, for the model chooses."""
    arguments = [function.get("parameters") or {"type": "object"} for function in functions]
    if len(functions) == 1:
        return LlamaGrammar.from_json_schema(arguments[0])
    return LlamaGrammar.from_json_schema({"anyOf": [
        {"type": "object", "properties": {"name": {"const": function["name"]}, "arguments": schema}, "required": ["name", "arguments"],
         "additionalProperties": False} for function, schema in zip(functions, arguments)]})


def plain(messages: List[Response]) -> List[Response]:
    """Messages whose content is a list of texts have them as one text: templates expect that."""
    found = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            message = {**message, "content": "".join(part["text"] for part in content)}
        found.append(message)
    return found


class Reply:
    """The message that grows while the model writes."""

    def __init__(self, forced: List[Response], answer: Optional[Answer]) -> None:
        """forced: the model has to call one of these functions.  It writes the arguments; with several functions the name, too."""
        self.forced, self.answer, self.chosen = forced, answer, ""
        self.content, self.reasoning = "", ""
        self.calls: List[Response] = []
        if len(forced) == 1:
            self.calls.append(_call(forced[0]["name"], f"call_{uuid.uuid4().hex[:24]}"))

    def add(self, text: str) -> List[Response]:
        """Deltas for a stream."""
        if len(self.forced) > 1:
            self.chosen += text
            return []
        if self.forced:
            return [self._more_arguments(text)] if text else []
        assert self.answer is not None
        return self._deltas(self.answer.add(text)) if text else []

    def end(self, cut: bool) -> List[Response]:
        if len(self.forced) > 1:
            return self._choice()
        return self._deltas(self.answer.end(cut)) if self.answer and not self.forced else []

    def _choice(self) -> List[Response]:
        """The call of one of several functions; if the text ends before the call is complete, its content."""
        try:
            call = json.loads(self.chosen)
        except ValueError:
            self.content = self.chosen
            return [{"content": self.content}] if self.content else []
        self.calls.append(_call(call["name"], f"call_{uuid.uuid4().hex[:24]}"))
        return [self._more_arguments(json.dumps(call["arguments"], ensure_ascii=False))]

    def _deltas(self, parts: Any) -> List[Response]:
        found = []
        for part in parts:
            if part.kind == "call":
                if part.name is not None:
                    self.calls.append(_call(part.name, part.id or ""))
                found.append(self._more_arguments(part.text, part.name is not None))
            elif part.kind == "reasoning":
                self.reasoning += part.text
                found.append({"reasoning_content": part.text})
            elif part.text:
                self.content += part.text
                found.append({"content": part.text})
        return found

    def _more_arguments(self, text: str, first: Optional[bool] = None) -> Response:
        call = self.calls[-1]
        first = not call["function"]["arguments"] if first is None else first
        call["function"]["arguments"] += text
        delta: Response = {"index": len(self.calls) - 1, "function": {"arguments": text}}
        if first:
            delta.update(id=call["id"], type="function")
            delta["function"]["name"] = call["function"]["name"]
        return {"tool_calls": [delta]}

    def message(self) -> Response:
        message: Response = {"role": "assistant", "content": self.content if self.content or not self.calls else None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = self.calls
            message["function_call"] = {key: self.calls[0]["function"][key] for key in ("name", "arguments")}
        return message


def _call(name: str, call_id: str) -> Response:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}


def _listed(llama: "Llama", parts: List["Drawn"]) -> Response:
    def row(token: int, logprob: float) -> Response:
        data = llama._vocab.piece(token)
        return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}

    content = [{**row(part.token, part.logprobs[0]), "top_logprobs": [row(*best) for best in part.logprobs[1]]} for part in parts if part.logprobs]
    return {"content": content, "refusal": None}


def complete(llama: "Llama", messages: List[Response], functions: Optional[List[Response]] = None, function_call: Any = None,
             tools: Optional[List[Response]] = None, tool_choice: Any = None, temperature: float = 0.2, top_p: float = 0.95,
             top_k: int = 40, min_p: float = 0.05, typical_p: float = 1.0, stream: bool = False, stop: Any = None,
             seed: Optional[int] = None, response_format: Optional[Response] = None, max_tokens: Optional[int] = None,
             presence_penalty: float = 0.0, frequency_penalty: float = 0.0, repeat_penalty: float = 1.0, tfs_z: float = 1.0,
             mirostat_mode: int = 0, mirostat_tau: float = 5.0, mirostat_eta: float = 0.1, model: Optional[str] = None,
             logits_processor: Any = None, grammar: Optional[LlamaGrammar] = None, logit_bias: Any = None,
             logprobs: Optional[bool] = None, top_logprobs: Optional[int] = None, reasoning: bool = False,
             chat_template_kwargs: Optional[Response] = None, named: Optional[str] = None,
             media: Optional[Tuple[str, List[Medium]]] = None) -> Any:
    """named: the format for a file without a template.  media: as Template.encode has it."""
    if functions:  # the older form of the same
        tools = [{"type": "function", "function": function} for function in functions]
        tool_choice = {"type": "function", "function": function_call} if isinstance(function_call, dict) else function_call
    tools, forced = chosen(tools, tool_choice)
    if forced:
        grammar = call_grammar(forced)
    grammar = grammar or grammar_of(response_format)
    vocab = llama._vocab
    template = template_of(llama, bool(tools), named)
    prompt, tokens = template.encode(vocab, plain(messages), tools, chat_template_kwargs, media=media)
    llama._begin(seed)
    sampling = dict(top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, temp=temperature, mirostat_mode=mirostat_mode,
                    mirostat_tau=mirostat_tau, mirostat_eta=mirostat_eta, presence_penalty=presence_penalty,
                    frequency_penalty=frequency_penalty, repeat_penalty=repeat_penalty, logits_processor=logits_processor,
                    grammar=grammar, logit_bias=logit_bias)
    stops = [stop] if isinstance(stop, str) else list(stop or [])
    stops += template.ends
    said: Response = {}
    answer = None if grammar else Answer(template, prompt, tools, keep_reasoning=not reasoning)
    drawn = llama._drawn(tokens, max_tokens, stops, (top_logprobs or 0) if logprobs else None, said, special=bool(answer), **sampling)
    reply = Reply(forced, answer or Answer(template, b"", None, True))
    head = {"id": f"chatcmpl-{uuid.uuid4()}", "created": int(time.time()), "model": model or llama.model_path}
    if stream:
        return _stream({**head, "object": "chat.completion.chunk"}, llama, drawn, reply, said)
    with llama._lock:  # several at once go one after the other
        parts = list(drawn)
    for part in parts:
        reply.add(part.text)
    reply.end(said["finish_reason"] == "length")
    choice = {"index": 0, "message": reply.message(), "logprobs": _listed(llama, parts) if logprobs else None, "finish_reason": _reason(reply, said)}
    usage = {"prompt_tokens": len(tokens), "completion_tokens": said["n_tokens"], "total_tokens": len(tokens) + said["n_tokens"]}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}


def _reason(reply: Reply, said: Response) -> str:
    return "tool_calls" if reply.calls and said["finish_reason"] == "stop" else str(said["finish_reason"])


def _stream(head: Response, llama: "Llama", drawn: Iterator["Drawn"], reply: Reply, said: Response) -> Iterator[Response]:
    def chunk(delta: Response, reason: Optional[str] = None, logprobs: Optional[Response] = None) -> Response:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}]}

    untold: List["Drawn"] = []  # tokens whose probabilities no part has had yet

    def told() -> Optional[Response]:
        listed = _listed(llama, untold) if untold else None
        untold.clear()
        return listed

    yield chunk({"role": "assistant"})
    for part in drawn:
        untold += [part] if part.logprobs else []
        for delta in reply.add(part.text):
            yield chunk(delta, logprobs=told())
    for delta in reply.end(said["finish_reason"] == "length"):
        yield chunk(delta, logprobs=told())
    yield chunk({}, _reason(reply, said), told())
