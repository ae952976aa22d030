"""What Python's jinja2 makes of a template, set up as transformers does, and conversations to try templates with.

Three things differ from transformers on purpose, as they do in Weft: lists and dicts may be changed (SandboxedEnvironment, not
its immutable variant), there is a filter from_json, and a template that fails because tools are none is tried without them.
"""
import copy
import json
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import SandboxedEnvironment

NOW = "2026-01-01 09:05:07"


class Generation(Extension):
    """{% generation %}: marks what a model wrote.  Its body is a call block, with a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(jinja2.TemplateError):
    """raise_exception was called."""


def environment():
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda text: datetime.fromisoformat(NOW).strftime(text)
    return env


ENV = environment()


def reference(template, messages, tools=None, generation=True, bos="<s>", eos="</s>", variables=None):
    """The text, or the exception that rendering ended with.  Without tools, a template that fails because something is None gets
    a second try without that variable, as in Weft."""
    given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": generation, "bos_token": bos, "eos_token": eos}
    given.update(copy.deepcopy(variables or {}))
    try:
        compiled = template if isinstance(template, jinja2.Template) else ENV.from_string(template)
        try:
            return compiled.render(given)
        except Exception as e:
            if tools is None and "None" in str(e):
                return compiled.render({name: value for name, value in given.items() if name != "tools"})
            raise
    except Exception as e:
        return e


def call(name, arguments, id="call00001"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are  brief.\n"}
USER = {"role": "user", "content": "What is the weather in Paris & Köln?"}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather at a place.\nToday's.",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "A <place> or \"city\""},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "integer", "description": "how many"},
            "options": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "number"}}}, "required": ["deep"]}},
            "required": ["place"]}}},
    {"type": "function", "function": {
        "name": "search", "description": "Searches.", "parameters": {"type": "object", "properties": {
            "q": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}, "description": "wörter"}, "exact": {"type": "boolean"},
            "kind": {"type": ["string", "integer"]}}, "required": ["q", "tags"]},
        "return": {"type": "string", "description": "what was found"}}},
    {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"temp\": 21.5, \"sky\": \"clear\"}"}
ARGUMENTS = {"place": "Paris", "days": 2, "unit": None, "options": {"deep": [1, 2.5, 1e-7]}, "exact": True, "note": "a \"b\" <c> é\n"}


def conversations():
    """name -> (messages, tools, generation prompt, variables)"""
    said = {"role": "assistant", "content": "It is sunny."}
    asked = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", ARGUMENTS)]}
    thought = {"role": "assistant", "content": "Sunny.", "reasoning_content": "Let me\nthink.", "thinking": "Let me\nthink."}
    again = {"role": "user", "content": "And tomorrow?"}
    return {
        "one": ([USER], None, True, {}),
        "system": ([SYSTEM, USER], None, True, {}),
        "no-generation": ([SYSTEM, USER, said], None, False, {}),
        "turns": ([SYSTEM, USER, said, again, {"role": "assistant", "content": "  Rain. \n"}, {"role": "user", "content": "Oh"}], None, True, {}),
        "tools": ([SYSTEM, USER], TOOLS, True, {}),
        "tools-no-system": ([USER], TOOLS, True, {}),
        "called": ([SYSTEM, USER, asked, RESULT], TOOLS, True, {}),
        "called-text": ([USER, {**asked, "content": "Looking.", "tool_calls": [call("search", json.dumps({"q": "x", "tags": ["ä"]}))]},
                         {**RESULT, "name": "search"}, said, again], TOOLS, True, {}),
        "called-null": ([USER, {**asked, "content": None}, RESULT, said], TOOLS, False, {}),
        "called-twice": ([USER, {"role": "assistant", "content": "Two.", "tool_calls": [call("get_weather", {"place": "A"}, "call0000a"),
                                                                                      call("ping", {}, "call0000b")]},
                          {**RESULT, "tool_call_id": "call0000a"}, {**RESULT, "tool_call_id": "call0000b", "name": "ping", "content": "pong"}, said, again],
                         TOOLS, True, {}),
        "called-reasoned": ([SYSTEM, USER, {**asked, "reasoning_content": "I need the weather.", "thinking": "I need the weather."}, RESULT], TOOLS, True, {}),
        "reasoning": ([USER, thought, again], None, True, {}),
        "reasoning-in-text": ([USER, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nSunny."}, again], None, True, {}),
        "reasoning-last": ([USER, thought], None, False, {}),
        "thinking-on": ([USER, thought, again], TOOLS, True, {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
        "thinking-off": ([SYSTEM, USER], None, True, {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}),
        "unicode": ([{"role": "system", "content": "日本語 🦊"}, {"role": "user", "content": "naïve \u2028 \U0001F600 \t\x7f ß"}], None, True, {}),
        "empty": ([{"role": "system", "content": ""}, {"role": "user", "content": ""}], None, True, {}),
        "empty-answer": ([USER, {"role": "assistant", "content": ""}, again], None, True, {}),
        "parts": ([{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "two parts"}]}], None, True, {}),
        "parts-system": ([{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                          {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}, again], None, True, {}),
        "image": ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}], None, True, {}),
        "developer": ([{"role": "developer", "content": "Dev."}, USER], TOOLS, True, {}),
        "last-assistant": ([USER, said], None, True, {}),
        "two-users": ([USER, again], None, True, {}),
        "odd-role": ([USER, {"role": "critic", "content": "Bad."}], None, True, {}),
        "long": ([SYSTEM] + [m for i in range(6) for m in ({"role": "user", "content": f"Question {i}"}, {"role": "assistant", "content": f"Answer {i}"})]
                 + [{"role": "user", "content": "Last"}], None, True, {}),
        "documents": ([USER], None, True, {"documents": [{"title": "T", "text": "Some text"}, {"title": "U", "text": "More"}]}),
        "no-messages": ([], None, True, {}),
    }
