"""Requests of every form to every endpoint, right and wrong, whole and left: on a sanitizers' build nothing of them is left in memory
when the server ends (LeakSanitizer)."""
import concurrent.futures as futures
import contextlib
import http.client
import json
import os
import random
import socket
import time

from serving import TEMPLATE, Server

TEXTS = ["", "x", "def add(a, b):", "# \u00e9\u4e2d\U0001f600", "a" * 300, "</think>", "5m", "json", "required", "auto", "none", "\0"]
SCHEMAS = [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "array", "items": {"enum": [1, "b"]}}, True, {"type": 5},
           {"$ref": "#/nowhere"}, {"type": "string", "pattern": "^a+$"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in zip("fgh", SCHEMAS)]
FLAT_TOOLS = [{"name": "f", "description": "d", "input_schema": SCHEMAS[0]}, {"type": "function", "name": "g", "parameters": SCHEMAS[0]}]
MESSAGES = [{"role": "user", "content": "def "}, {"role": "assistant", "content": "x", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "5"}, {"role": "user", "content": [{"type": "text", "text": "and"}]}]
# values that make sense for a field of this name, somewhere; any other field gets one by its type
VALUES = {
    "prompt": ["def ", ["a", "b"], [1, 2], ["a", [3]], []], "messages": [MESSAGES, MESSAGES[:1], MESSAGES[:2], [{"role": "system", "content": "s"}, MESSAGES[0]], [{"role": "developer", "content": "s"}, MESSAGES[0]], [{}], []],
    "input": ["def ", ["a", "bc"], [{"role": "user", "content": "x"}], [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}], []],
    "stop": ["x", ["\n", "b"]], "stop_sequences": [["x"]], "grammar": ["root ::= [a-z]+", "root ::= ("], "json_schema": SCHEMAS,
    "format": ["json", *SCHEMAS], "tools": [TOOLS, TOOLS[:1], FLAT_TOOLS, [{}]], "logit_bias": [{"5": 1}, [[3, -1]], {"a": False}, {"999999": 1}],
    "tool_choice": ["required", "auto", "none", {"type": "any"}, {"type": "function", "function": {"name": "f"}}, {"type": "tool", "name": "f"}],
    "response_format": [{"type": "json_object"}, {"type": "text"}, *({"type": "json_schema", "json_schema": {"name": "n", "schema": s}} for s in SCHEMAS)],
    "text": ["def ", {"format": {"type": "json_schema", "name": "n", "schema": SCHEMAS[0]}}], "documents": [["a", "b"], [{"text": "c"}], [5]],
    "samplers": [["top_k", "temperature"], "kt", ["no"]], "stream_options": [{"include_usage": True}], "options": [{"num_predict": 2}, {"temperature": "x"}],
    "thinking": [{"type": "enabled", "budget_tokens": 2000}, {"type": "disabled"}], "reasoning": [{"effort": "low"}], "keep_alive": ["5m", 60, -1],
    "n": [1, 2, 3], "max_tokens": [0, 1, 2], "n_predict": [0, 2], "max_output_tokens": [1, 2], "max_completion_tokens": [2], "content": ["def ", [1]], "tokens": [[1, 2], ["a"]],
    "model": ["tinypy"], "id_slot": [0, -1], "logprobs": [0, 1, True], "top_logprobs": [2], "n_probs": [1], "chat_template_kwargs": [{"a": [1]}], "suffix": ["b"],
}
LENGTHS = {"max_tokens": 2, "n_predict": 2, "max_output_tokens": 2, "options": {"num_predict": 2}}
BY_TYPE = {"boolean": [True, False], "integer": [0, 1, 2, -1], "number": [0, 0.5, 1, -1], "string": TEXTS, "array": [[], [1], ["a"], [{}]], "object": [{}, {"a": 1}]}
ANYTHING = [None, True, -1, 0, 0.5, 2**70, "a", "", [], {}, [[]], {"a": {"b": []}}]
LEFT_OUT = {"/models/unload", "/page/{name}"}         # what the others need; files
MODEL_OF = {**dict.fromkeys(("/v1/embeddings", "/embedding", "/api/embed", "/api/embeddings"), "?model=bert"), **dict.fromkeys(("/v1/rerank", "/rerank"), "?model=bert-rank")}


def make(r, schema, plain):
    """A body that is right (plain), nearly, or not at all."""
    fields, body = schema.get("properties", {}), {}
    if plain:
        return json.dumps({name: (VALUES.get(name) or TEXTS[2:])[0] for name in schema.get("required", [])} | {k: v for k, v in LENGTHS.items() if k in fields})
    needed = [name for name in fields if name in schema.get("required", []) or name in LENGTHS]
    for name in needed + r.sample(sorted(fields), min(len(fields), r.choice([0, 1, 2, 4]))):
        kinds = fields[name].get("type", [])
        by_type = [v for kind in ([kinds] if isinstance(kinds, str) else kinds) for v in BY_TYPE.get(kind, [])]
        body[name] = r.choice(ANYTHING if r.random() < 0.04 else VALUES.get(name) or by_type or ANYTHING)
    for name, value in LENGTHS.items():
        if name in fields and r.random() < 0.95:
            body[name] = value
    text = json.dumps(body)
    return text[: r.randrange(len(text))] if r.random() < 0.02 else text


def send(s, i, routes):
    """(status or "left", path): some messages are cut, and some clients leave."""
    r = random.Random(i)
    plain = i % 3 == 0
    method, path, schema = routes[i // 3 % len(routes)] if plain else r.choice([route for route in routes if route[2]])
    body = make(r, schema, plain).encode() if schema else b""
    message = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    leaves, cut = not plain and r.random() < 0.1, not plain and r.random() < 0.02
    with contextlib.suppress(OSError), s.connect() as c:
        c.sendall(message[: r.randrange(len(message))] if cut else message)
        if leaves and r.random() < 0.5:
            return "left", path
        c.shutdown(socket.SHUT_WR)
        if leaves:
            c.recv(100)
            return "left", path
        with contextlib.suppress(http.client.HTTPException):
            got = http.client.HTTPResponse(c, method=method)
            got.begin()
            got.read()
            return got.status, path
    return "left", path


def routes_of(s):
    """(method, path, schema of the body or None) of all endpoints."""
    return [(method.upper(), path.replace("{name}", "tinypy") + MODEL_OF.get(path, ""),
             d.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema"))
            for path, methods in s.ask("/openapi.json")[1]["paths"].items() for method, d in methods.items() if path not in LEFT_OUT]


ROLES = {"system": False, "developer": False, "user": False, "assistant": True, "tool": True, "function": True, "teacher": None}      # whether a message of it may lack a content
CONTENTS = {"missing": {}, "null": {"content": None}, "a text": {"content": "x"}, "parts": {"content": [{"type": "text", "text": "x"}]}, "a number": {"content": 5}, "no part": {"content": [5]}}


def test_each_role_with_each_content(weft, weft_env, tinypy, tmp_path):
    """An agent's first message is often the developer's: the template sees a system's."""
    (tmp_path / "plain.jinja").write_text(TEMPLATE)
    with Server(weft, weft_env, tinypy, "-c", "128", "--chat-template-file", tmp_path / "plain.jinja") as s:
        said = {}
        for role, may_lack in ROLES.items():
            for what, content in CONTENTS.items():
                good = may_lack is not None and (what in ("a text", "parts") or (may_lack and what in ("missing", "null")))
                for path in "/apply-template", "/v1/chat/completions", "/v1/chat/completions/input_tokens", "/api/chat":
                    status, got = s.ask(path, {"messages": [{"role": role, **content}], "max_tokens": 1, "stream": False, "options": {"num_predict": 1}})
                    assert status == (200 if good else 400), (role, what, path, got)
                    if path == "/apply-template" and good:
                        said[role, what] = got["prompt"]
        assert {said["developer", what] for what in ("a text", "parts")} == {said["system", "a text"]}
        assert s.end() == 0


def test_requests_of_every_form_leave_nothing(weft, weft_env, tinypy, make_encoder, tmp_path, sanitized):
    n = 2000 if sanitized else 600
    (tmp_path / "plain.jinja").write_text(TEMPLATE)
    for name in "bert", "bert-rank":
        make_encoder.write(name, tmp_path / f"{name}.gguf")
    args = "-c", "128", "-np", "4", "-v", "--log-file", tmp_path / "log", "--chat-template-file", tmp_path / "plain.jinja"
    with Server(weft, weft_env, tinypy, "-m", tmp_path / "bert.gguf", "-m", tmp_path / "bert-rank.gguf", *args) as s:
        end = time.monotonic() + 60
        while s.ask("/health")[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        routes = routes_of(s)
        before = len(os.listdir(f"/proc/{s.process.pid}/fd"))
        with futures.ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda i: send(s, i, routes), range(n)))
        while s.metric("weft:connections") > 1 or s.metric("llamacpp:requests_processing"):
            assert time.monotonic() < end + 300
            time.sleep(0.1)
        assert len(os.listdir(f"/proc/{s.process.pid}/fd")) <= before + 1
        assert s.end() == 0
    answered = [path for status, path in got if status == 200]
    missing = {path for _, path, _ in routes} - set(answered)
    assert missing <= {"/infill", "/v1/stream", "/slots/tinypy"}, missing   # no tokens for that; nobody's stream goes on; no number
    assert len(answered) > n / 4 and sum(status == 400 for status, _ in got) > n / 20
    assert not [x for x in got if isinstance(x[0], int) and x[0] >= 500 and x[0] != 501], got
