"""What requests take of memory and of processors: every field that can be long or many, as /openapi.json describes it, sent as it is and four times as long."""
import base64
import concurrent.futures
import io
import json
import os
import re
import time

import pytest
from serving import Server

THREADS = 1

sanitized = pytest.mark.skipif("WEFT_SANITIZED" in os.environ, reason="sanitizers keep what is freed, and take long")
MESSAGES = [{"role": "user", "content": "x"}]
TEMPLATE = """{% for t in tools or [] %}{{ t | tojson }}
{% endfor %}{% for m in messages %}<|{{ m.role }}|>
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
# A request of each endpoint that makes something of a body; others name models or streams.
BODIES = {
    "/v1/completions/render": {"prompt": "x"}, "/v1/chat/completions/render": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "x", "max_tokens": 1}, "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/chat/completions/input_tokens": {"messages": MESSAGES}, "/v1/responses": {"input": "x", "max_output_tokens": 1}, "/v1/responses/input_tokens": {"input": "x"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 1}, "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/completion": {"prompt": "x", "n_predict": 1}, "/infill": {"input_prefix": "x"}, "/embedding": {"content": "x"}, "/v1/embeddings": {"input": "x"},
    "/v1/rerank": {"query": "x", "documents": ["x"]}, "/tokenize": {"content": "x"}, "/detokenize": {"tokens": [5]}, "/apply-template": {"messages": MESSAGES},
    "/api/chat": {"messages": MESSAGES, "stream": False}, "/api/generate": {"prompt": "x", "stream": False, "options": {"num_predict": 1}},
    "/api/embed": {"input": "x"}, "/api/embeddings": {"prompt": "x"},
}
NAMES = {"/rerank", "/api/show", "/api/pull", "/models/load", "/models/unload", "/v1/streams/lookup"}      # the first is /v1/rerank; the others make nothing


# ---- long values of a schema ----------------------------------------------------------------------------------------

def types_of(schema):
    types = schema.get("type", ["string", "array", "object"])
    return types if isinstance(types, list) else [types]


def least(schema, text="x"):
    """The smallest value that it allows, with these texts."""
    if "const" in schema or "enum" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    if "anyOf" in schema:
        return least(schema["anyOf"][0], text)
    kind = "string" if "type" not in schema else types_of(schema)[0]
    if kind == "object":
        return {name: least(schema["properties"][name], text) for name in schema.get("required", [])}
    if kind == "array":
        return [least(schema.get("items", {}), text)] * schema.get("minItems", 0)
    return {"string": text, "integer": max(schema.get("minimum", 1), 1), "number": 1.0, "boolean": True, "null": None}[kind]


def places(schema, label=""):
    """What can be long or many in a value: a name, and a function from bytes to such a value."""
    if "enum" in schema or "const" in schema:
        return
    if "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from places(one, label)
        return
    for kind in types_of(schema):
        if kind == "string":
            yield f"{label}: text", lambda n: "ab, " * (n // 4)
        elif kind == "array":
            items = schema.get("items", {"type": "string"})
            for item in items.get("anyOf", [items | {"type": one} for one in types_of(items)]):
                size = len(json.dumps(least(item, "x12345"))) + 2
                yield f"{label}[]: {item.get('type')}", lambda n, item=item, size=size: [least(item, f"x{i}") for i in range(n // size)]
                yield from ((name, lambda n, make=make: [make(n)]) for name, make in places(item, label + "[0]"))
        elif kind == "object":
            base = least(schema | {"type": "object"})
            yield f"{label}: members", lambda n, base=base: base | {f"k{i}": "v" for i in range(n // 14)}
            for member, inner in schema.get("properties", {}).items():
                for name, make in places(inner, f"{label}.{member}"):
                    yield name, lambda n, make=make, member=member, base=base: base | {member: make(n)}


def fields(schema, prefix=""):
    for name, row in schema["properties"].items():
        inside = next((one for one in row.get("anyOf", []) if "x-ignored" in one), None)
        yield from fields(inside, f"{prefix}{name}.") if inside else [(prefix + name, row)]


def with_field(body, name, value):
    outer, _, inner = (name, "", "") if "speculative." in name else name.partition(".")
    return body | {outer: with_field(body.get(outer, {}), inner, value) if inner else value}


# ---- what a process holds -------------------------------------------------------------------------------------------

def kib(server, what):
    return int(re.search(what + r":\s+(\d+) kB", open(f"/proc/{server.process.pid}/status").read())[1])


def cpu_s(server):
    return sum(map(int, open(f"/proc/{server.process.pid}/stat").read().split()[13:15])) / os.sysconf("SC_CLK_TCK")


def most_kib(server, path, body):
    """Status, answer, and KiB that the process grew by meanwhile."""
    open(f"/proc/{server.process.pid}/clear_refs", "w").write("5")           # VmHWM begins anew
    before = kib(server, "VmRSS")
    status, got = server.ask(path, body)
    return status, got, kib(server, "VmHWM") - before


def settled(server, wanted):
    """What the requests' account holds, once it is what it was."""
    for _ in range(50):
        held = server.metric("weft:request_memory_bytes")
        if held == wanted:
            break
        time.sleep(0.1)
    return held


def rests_at(server, most):
    """The least KiB that the process holds within five seconds, or the first at most that: memory goes back where nobody asks, late on a busy machine."""
    held = kib(server, "VmRSS")
    for _ in range(50):
        if held <= most:
            break
        time.sleep(0.1)
        held = min(held, kib(server, "VmRSS"))
    return held


def idle(server):
    """What the account holds where nothing but this question is asked."""
    time.sleep(0.5)
    return server.metric("weft:request_memory_bytes")


def start(weft, weft_env, tinypy, folder, *args):
    (folder / "t.jinja").write_text(TEMPLATE)
    return Server(weft, weft_env, tinypy, "--chat-template-file", folder / "t.jinja", *args)


# ---- tests ----------------------------------------------------------------------------------------------------------

@sanitized
@pytest.mark.parametrize("vectors", [False, True], ids=["answers", "vectors"])
def test_fields_that_are_long(weft, weft_env, tinypy, tmp_path, vectors):
    """Memory grows no more than linearly with a field, at most 40 times its bytes (200 times those of empty objects and arrays, and of what becomes a grammar), and afterwards
    it is where it was."""
    KIB, SLACK, SMALL = 1024, 12 << 20, 96 << 10
    with start(weft, weft_env, tinypy, tmp_path, "-c", "256", *(["--pooling", "mean"] if vectors else [])) as s:
        paths = {path: row["post"]["requestBody"]["content"]["application/json"]["schema"]
                 for path, row in s.ask("/openapi.json")[1]["paths"].items() if "requestBody" in row.get("post", {})}
        assert set(paths) == set(BODIES) | NAMES
        for path, body in BODIES.items():                      # plans are made, and caches of pages taken
            s.ask(path, body)
        seen, tried, late, holds = {}, 0, [], idle(s)
        for path in BODIES:
            if ("embed" in path or "rerank" in path) != vectors:
                continue
            for name, row in fields(paths[path]):
                key = json.dumps([name.rpartition(".")[2], row])
                seen[key] = seen.get(key, 0) + 1
                if seen[key] > 1:                                  # rows of tables that many endpoints share
                    continue
                grammar = [(": rules", lambda n: 'root ::= "' + "ab, " * (n // 4) + '"')] if "grammar" in name else []
                for label, make in [*places(row), *grammar]:
                    times = 200 if re.search("grammar|regex|choice|json", name) or label.endswith(("[]: object", "[]: array")) else 40
                    for n in (SMALL, 4 * SMALL):
                        body = json.dumps(with_field(BODIES[path], name, make(n))).encode()
                        status, got, most = most_kib(s, path, body)
                        assert status < 500 or status == 501, (path, name + label, got)
                        assert most * KIB <= times * len(body) + SLACK, (path, name + label, n, most)
                    tried += 1
                    late.append(kib(s, "VmRSS"))
        assert tried > (20 if vectors else 100), tried
        assert settled(s, holds) == holds
        most = late[len(late) // 4] + (24 << 10)
        assert rests_at(s, most) <= most, late


@sanitized
@pytest.mark.parametrize("path, choice", [("/v1/chat/completions", "required"), ("/v1/messages", {"type": "any"})])
def test_20000_tools(weft, weft_env, tinypy, tmp_path, path, choice):
    """(It took 26 s and 4,121 MB, and kept them.)"""
    function = lambda i: {"name": f"tool_{i}", "description": "", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    tools = [{"type": "function", "function": function(i)} for i in range(20000)]
    if path == "/v1/messages":
        tools = [{"name": t["function"]["name"], "description": "", "input_schema": t["function"]["parameters"]} for t in tools]
    with start(weft, weft_env, tinypy, tmp_path, "-c", "512") as s:
        s.ask(path, {"messages": MESSAGES, "max_tokens": 1})
        before, began = kib(s, "VmRSS"), cpu_s(s)
        status, got, most = most_kib(s, path, {"messages": MESSAGES, "tools": tools, "tool_choice": choice, "max_tokens": 1})
        assert status == 400 and ("tokens and the context holds 512" in got["error"]["message"] or "the values of the template need" in got["error"]["message"]), got
        assert most < 160 << 10 and cpu_s(s) - began < 4, (most, cpu_s(s) - began)
        most = before + (24 << 10)
        assert rests_at(s, most) <= most, before


@sanitized
def test_small_requests_for_large_answers(weft, weft_env, tinypy, tmp_path):
    """A hundred bytes may ask for gigabytes: scores, pieces of tokens, vectors, biases of each of many prompts."""
    scored = {"prompt": "x", "n_predict": 30, "n": 4, "n_probs": 600, "ignore_eos": True}
    with start(weft, weft_env, tinypy, tmp_path, "-c", "256", "--max-request-memory", "64", "--pooling", "none") as s:
        s.ask("/completion", scored | {"n_probs": 0})
        held = idle(s)
        for path, body, words in [
                ("/completion", scored, "log-probabilities: "),
                ("/v1/completions", {"prompt": ["x = 1\n" * 40] * 16, "max_tokens": 1, "logprobs": 100, "echo": True}, "log-probabilities: "),
                ("/tokenize", {"content": "ab, cd " * 700_000, "with_pieces": True}, "the text of its tokens: "),
                ("/embedding", {"content": ["x = 1\n" * 60] * 200}, "the vectors of its texts: "),
                ("/v1/completions", {"prompt": "x", "max_tokens": 1, "logit_bias": [["ab, cd" * 50_000, 1]] * 60}, "the biases of a text's tokens: ")]:
            status, got, most = most_kib(s, path, body)
            assert status == 413 and words in got["error"]["message"] and "64 MB is the most (--max-request-memory)" in got["error"]["message"], got
            assert most < 80 << 10, (path, most)
        assert s.ask("/completion", scored | {"n": 1, "n_predict": 5})[0] == 200
        assert settled(s, held) == held
        status, text, most = most_kib(s, "/completion", scored | {"stream": True})
        assert status == 200 and text.count("data: ") >= 120 and most < 64 << 10, most       # of a stream nothing is kept


@sanitized
def test_pictures(weft, weft_env, tinypy, tmp_path):
    """Prompts of completions and of vectors that have pictures, each in its forms: what they take is charged, is bounded, and goes back."""
    image, projector = pytest.importorskip("PIL.Image"), pytest.importorskip("projector")

    def coded(i, size):
        out = io.BytesIO()
        image.new("RGB", (size, size), (i % 256, i // 256, 7)).save(out, "PNG")
        return base64.b64encode(out.getvalue()).decode()

    def marked(all):
        return {"prompt_string": "x", "multimodal_data": all}

    def parts(all):
        return [{"type": "image_url", "image_url": {"url": one}} for one in all]
    forms = [("/completion", lambda all: {"prompt": marked(all), "n_predict": 1}), ("/v1/completions", lambda all: {"prompt": [marked(all[:2]), marked(all[2:])], "max_tokens": 1}),
             ("/embedding", lambda all: {"content": marked(all)}), ("/v1/embeddings", lambda all: {"input": [{"content": parts(all)}, marked(all)]}),
             ("/v1/embeddings", lambda all: {"messages": [{"role": "user", "content": parts(all)}]})]
    with start(weft, weft_env, tinypy, tmp_path, "--mmproj", projector.write(tmp_path / "mmproj.gguf"), "-c", "1024", "--pooling", "mean", "--max-request-memory", "32") as s:
        for path, form in forms:
            assert s.ask(path, form([coded(0, 40)] * 3))[0] == 200
        held, before = idle(s), kib(s, "VmRSS")
        for i, (path, form) in enumerate(forms):
            status, got, most = most_kib(s, path, form([coded(1 + 4 * i + k, 1000) for k in range(4)]))
            assert status == 200 and most < 48 << 10, (path, got, most)
            status, got, most = most_kib(s, path, form([coded(300 + i, 2500)] * 2))
            assert status in (400, 413) and "2500 x 2500" in str(got), (path, got)
            assert most < 32 << 10 and settled(s, held) == held, (path, most)
        most = before + (24 << 10)
        assert rests_at(s, most) <= most, before


@sanitized
def test_what_an_encoder_works_in(weft, weft_env, vision, tmp_path):
    """Memory for the activations of a picture's encoder: up to --max-encoder-memory it stays for the next picture, and is charged to none. More is charged to the request, refused before it is taken, and given back."""
    image = pytest.importorskip("PIL.Image")

    def ask(s, size, color=0):
        out = io.BytesIO()
        image.new("RGB", size, (color, 0, 7)).save(out, "PNG")
        url = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
        return most_kib(s, "/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}], "max_tokens": 1})
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    large, small = (1400, 1400), (200, 200)
    args = [vision / "qwen2.5vl" / "model.gguf", "--chat-template-file", tmp_path / "t.jinja", "-c", "8192"]
    with Server(weft, weft_env, *args, "--max-encoder-memory", "1", "--max-request-memory", "96") as s:
        assert ask(s, small)[0] == 200
        held, before = idle(s), kib(s, "VmRSS")
        status, got, most = ask(s, large)
        assert status == 413 and re.search(r"the encoder's activations: 1\d\d MB of memory are needed for it, beside \d+ MB that are held; 96 MB is the most \(--max-request-memory\)", got["error"]["message"]), got
        assert most < 64 << 10 and settled(s, held) == held, most                    # its pixels, as planes
        assert ask(s, small, 1)[0] == 200 and rests_at(s, before + (8 << 10)) <= before + (8 << 10)
    with Server(weft, weft_env, *args, "--max-encoder-memory", "1", "--max-request-memory", "512") as s:
        assert ask(s, small)[0] == 200
        held, before = idle(s), kib(s, "VmRSS")
        status, got, most = ask(s, large)
        assert status == 200 and s.metric("weft:request_memory_peak_bytes") > 100 << 20 and most > 48 << 10, (got, most)
        assert settled(s, held) == held and rests_at(s, before + (24 << 10)) <= before + (24 << 10), before
    with Server(weft, weft_env, *args, "--max-encoder-memory", "512", "--max-request-memory", "96") as s:
        assert ask(s, small)[0] == 200
        held, before = idle(s), kib(s, "VmRSS")
        assert ask(s, large)[0] == 200 and settled(s, held) == held
        assert s.metric("weft:request_memory_peak_bytes") < 96 << 20 and kib(s, "VmRSS") > before + (32 << 10)


@sanitized
def test_many_at_once(weft, weft_env, tinypy, tmp_path):
    """All requests together have a budget: what does not fit is told to come again, and is answered then."""
    large = json.dumps({"messages": [{"role": "user", "content": "x", "more": [{}] * 60_000}], "max_tokens": 1}).encode()
    with start(weft, weft_env, tinypy, tmp_path, "-c", "256", "--max-memory", "96", "--max-request-memory", "64", "--threads-http", "8") as s:
        held, seen = idle(s), []
        status, got, alone = most_kib(s, "/v1/chat/completions", large)
        assert status == 200, got

        def ask(i):
            one = Server.__new__(Server)
            one.url = s.url
            for wait in range(40):                            # as clients do, with their waits spread
                got = (*one.ask("/v1/chat/completions", large), one.headers["Retry-After"])
                seen.append(got)
                if got[0] == 200:
                    break
                time.sleep(0.05 * (1 + (7 * i + 3 * wait) % 11))
            return got[0]
        open(f"/proc/{s.process.pid}/clear_refs", "w").write("5")
        before = kib(s, "VmRSS")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for _ in range(10):                                # on a busy machine they may come one after the other
                assert set(pool.map(ask, range(24))) == {200}, seen
                if 429 in {status for status, _, _ in seen}:
                    break
        assert {status for status, _, _ in seen} == {200, 429}, seen
        for status, answer, retry in seen:
            assert status == 200 or ("96 MB is the most (--max-memory)" in answer["error"]["message"] and int(retry) > 0), answer
        assert kib(s, "VmHWM") - before < (96 + 96) << 10 and s.metric("weft:request_memory_peak_bytes") < 128 << 20
        assert settled(s, held) == held and s.ask("/v1/chat/completions", large)[0] == 200


def test_what_takes_long(weft, weft_env, tinypy, tmp_path):
    """Tools whose schemas each take long to compile: together they have the time of one request."""
    slow = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": f"^(a|b)*a(a|b){{12}}c{i}$"} for i in range(20)}}
    tools = [{"type": "function", "function": {"name": f"t{i}", "description": "", "parameters": slow}} for i in range(40)]
    ask = {"messages": MESSAGES, "tools": tools, "tool_choice": "required", "max_tokens": 1}
    with start(weft, weft_env, tinypy, tmp_path, "-c", "65536", "--max-request-work", "1") as s:
        before = cpu_s(s)
        status, got = s.ask("/v1/chat/completions", ask)
        assert status == 400 and re.search(r"^'tools\[\d+\]\.function\.parameters': the work for this request has taken 1\.\d s of a processor, and 1 s is the most \(--max-request-work\)",
                                           got["error"]["message"]), got
        assert cpu_s(s) - before < 4 or "WEFT_SANITIZED" in os.environ
        assert s.ask("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1})[0] == 200
