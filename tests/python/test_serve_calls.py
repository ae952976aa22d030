"""Calls of tools as official clients assemble them, of models that write them in every notation: each model says what its own template renders of a
conversation with calls, in pieces of two characters or so."""
import contextlib
import json
import os
import re

import pytest
import scripted
from serving import Server
from test_answer import ARGUMENTS, ONE_CALL, TOOLS, USER, answers, conversation, split  # noqa: F401  (answers: a fixture)

THREADS = 1

anthropic = pytest.importorskip("anthropic")
ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")
pytest.importorskip("gguf")

# One of each notation; tests/python/test_answer.py has all templates, without clients.
TEMPLATES = ["Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "GLM-4.6", "MiniMax-M3", "deepseek-ai-DeepSeek-V4", "google-gemma-4-31B-it-interleaved", "LFM2.5-8B-A1B",
             "openai-gpt-oss-120b", "meetkai-functionary-medium-v3.2", "meta-llama-Llama-3.2-3B-Instruct", "Kimi-K2-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
             "Mistral-Small-3.2-24B-Instruct-2506", "upstage-Solar-Open-100B"]
NAMED_TOOLS = [{"name": t["function"]["name"], "description": "Weather", "input_schema": t["function"]["parameters"]} for t in TOOLS]
FLAT_TOOLS = [{"type": "function", **t["function"]} for t in TOOLS]


def pieces_of(text):
    """As short as they can be: a model that is told what to say says nothing twice."""
    pieces, piece = [], ""
    for c in text:
        piece += c
        if len(piece.encode()) > 1 and piece not in pieces:
            pieces.append(piece)
            piece = ""
    return pieces[:-1] + [pieces[-1] + piece] if piece else pieces


class Told:
    def __init__(self, url, name, text, pieces):
        self.url, self.name, self.text, self.pieces = url, name, text, pieces
        self.n = 1 + (name not in ONE_CALL)
        self.ai = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        self.claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        self.llama = ollama.Client(host=url)

    def chat(self, **more):
        return self.ai.chat.completions.create(model="told", messages=[USER], tools=TOOLS, **more)


@pytest.fixture(scope="module", params=TEMPLATES)
def told(request, weft, weft_env, run_weft, shared_dir, tmp_path_factory):
    path = shared_dir / "templates" / f"{request.param}.jinja"
    if not path.exists():
        pytest.skip(f"no {path}")
    prompt, whole = conversation(run_weft, path, request.param)
    begin, text = split(prompt, whole)
    if begin != prompt:                  # Gemma's ends behind thoughts that are empty
        assert prompt.startswith(begin)
        text = text.partition(prompt[len(begin):])[2]
    pieces = pieces_of(text)
    model = scripted.write(tmp_path_factory.mktemp("told") / "told.gguf", {prompt[-1]: pieces}, path.read_text(), context=4096, bos=True)
    with Server(weft, weft_env, model) as s:
        yield Told(s.url, request.param, text, pieces)


def test_openai_chat(told):
    seen = set()
    first = told.chat().choices[0]
    for answer in (told.chat().choices[0], *told.chat(n=2).choices):
        assert answer.finish_reason == "tool_calls" and [(c.function.name, json.loads(c.function.arguments)) for c in answer.message.tool_calls] == [("get_weather", ARGUMENTS)] * told.n
        seen |= {c.id for c in answer.message.tool_calls if re.fullmatch("[A-Za-z0-9]{9}", c.id)}
        assert [c.function.arguments for c in answer.message.tool_calls] == [c.function.arguments for c in first.message.tool_calls]
    assert len(seen) in (3 * told.n, 0) or told.name == "Mistral-Small-3.2-24B-Instruct-2506" or told.name.startswith("upstage")
    calls = {}
    for chunk in told.chat(stream=True):
        for delta in chunk.choices[0].delta.tool_calls or []:
            calls.setdefault(delta.index, []).append(delta)
    assert list(calls) == list(range(told.n))
    for index, deltas in calls.items():
        assert deltas[0].id and deltas[0].type == "function" and deltas[0].function.name == "get_weather"
        assert not any(d.id or d.function.name for d in deltas[1:])
        assert "".join(d.function.arguments for d in deltas) == first.message.tool_calls[index].function.arguments and len(deltas) > 12
    with told.ai.chat.completions.stream(model="told", messages=[USER], tools=TOOLS) as stream:
        final = stream.get_final_completion().choices[0]
    assert [json.loads(c.function.arguments) for c in final.message.tool_calls] == [ARGUMENTS] * told.n and final.finish_reason == "tool_calls"


def test_openai_responses(told):
    whole = told.ai.responses.create(model="told", input="Weather in Paris?", tools=FLAT_TOOLS)
    items = [item for item in whole.output if item.type == "function_call"]
    assert [(i.name, json.loads(i.arguments), i.status) for i in items] == [("get_weather", ARGUMENTS, "completed")] * told.n and len({i.call_id for i in items}) == told.n
    deltas, done = {}, {}
    with told.ai.responses.stream(model="told", input="Weather in Paris?", tools=FLAT_TOOLS) as stream:
        for e in stream:
            if e.type == "response.function_call_arguments.delta":
                deltas.setdefault(e.output_index, []).append(e.delta)
            if e.type == "response.function_call_arguments.done":
                done[e.output_index] = e.arguments
        final = stream.get_final_response()
    assert [json.loads(i.arguments) for i in final.output if i.type == "function_call"] == [ARGUMENTS] * told.n
    assert {k: "".join(v) for k, v in deltas.items()} == done and list(done.values()) == [i.arguments for i in items] and all(len(v) > 12 for v in deltas.values())


def test_arguments_beyond_what_a_double_holds(weft, weft_env, shared_dir, tmp_path):
    """Integers of thirty digits, 1e400 and half a surrogate reach the clients of all four forms; Anthropic's refuses the last, and gets U+FFFD."""
    path = shared_dir / "templates" / "Qwen-Qwen2.5-7B-Instruct.jinja"
    if not path.exists():
        pytest.skip(f"no {path}")
    arguments = r'{"id": 123456789012345678901234567890, "x": 1e400, "t": "half \ud83d end"}'
    text = '<tool_call>\n{"name": "get_weather", "arguments": ' + arguments + "}\n</tool_call>"
    with Server(weft, weft_env, scripted.write(tmp_path / "big.gguf", {"\n": pieces_of(text)}, path.read_text(), context=4096)) as s:
        ai, claude = openai.OpenAI(base_url=s.url + "/v1", api_key="none"), anthropic.Anthropic(base_url=s.url, api_key="none")
        assert ai.chat.completions.create(model="told", messages=[USER], tools=TOOLS).choices[0].message.tool_calls[0].function.arguments == arguments
        assert ai.responses.create(model="told", input="x", tools=FLAT_TOOLS).output[0].arguments == arguments
        wanted = {"id": 123456789012345678901234567890, "x": float("inf"), "t": "half \ufffd end"}
        assert claude.messages.create(model="told", max_tokens=400, messages=[USER], tools=NAMED_TOOLS).content[0].input == wanted
        with claude.messages.stream(model="told", max_tokens=400, messages=[USER], tools=NAMED_TOOLS) as stream:
            assert stream.get_final_message().content[0].input == wanted
        _, got = s.ask("/api/chat", {"model": "told", "stream": False, "messages": [USER], "tools": TOOLS})
        assert got["message"]["tool_calls"][0]["function"]["arguments"] == json.loads(arguments)


@pytest.mark.parametrize("name", ["Kimi-K2-Instruct", "Kimi-K2-Thinking"])
def test_forced_calls_of_kimi(weft, weft_env, shared_dir, tmp_path, name):
    """Ids are those that the template shows the model: functions.NAME:N, counted over the conversation."""
    path = shared_dir / "templates" / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"no {path}")
    tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"], "additionalProperties": False}}}
             for n in ("get_weather", "f")]
    with Server(weft, weft_env, scripted.write(tmp_path / "kimi.gguf", {"1": ["Hello", " there"]}, path.read_text(), context=4096)) as s:
        messages, seen = [USER], []
        for turn in range(3):
            answer = s.ask("/v1/chat/completions", {"messages": messages, "tools": tools, "tool_choice": "required", "seed": turn, "max_tokens": 200})[1]["choices"][0]
            (call,) = answer["message"]["tool_calls"]
            assert answer["finish_reason"] == "tool_calls" and json.loads(call["function"]["arguments"]) == {"city": "Paris"}
            assert call["id"] == f"functions.{call['function']['name']}:{turn}"
            seen.append(call["id"])
            messages += [answer["message"], {"role": "tool", "tool_call_id": call["id"], "content": "fine"}]
        prompt = s.ask("/apply-template", {"messages": messages, "tools": tools})[1]["prompt"]
        assert re.findall(r"<\|tool_call_begin\|>(\S+?)<\|tool_call_argument_begin\|>", prompt) == seen == re.findall(r"## Return of (\S+)", prompt)


DIRECTLY = ("{% for m in messages %}# {{ m.role }}\n{% for t in m.tool_calls or [] %}[TOOL_CALLS]{{ t.function.name }}{{ t.function.arguments | tojson }}{% endfor %}"
            "{{ m.content or '' }}\n{% endfor %}{% if add_generation_prompt %}# assistant\n{% endif %}{{ tools or '' }}")


@pytest.mark.parametrize("names", [["a"], ["a", "ab", "abc", "b"], ["abc", "b", "ab", "a"]])
def test_forced_calls_with_nothing_between_name_and_arguments(weft, weft_env, tinypy, tmp_path, names):
    """A name may begin another: each tool can be called, also the longer one, with the arguments of its own schema."""
    (tmp_path / "t.jinja").write_text(DIRECTLY)
    tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {"k": {"enum": [n]}}, "required": ["k"], "additionalProperties": False}}} for n in names]
    seen = set()
    with Server(weft, weft_env, tinypy, "-c", "2048", "--chat-template-file", tmp_path / "t.jinja") as s:
        for choice in ["required"] * 12 + [{"type": "function", "function": {"name": n}} for n in names]:
            status, got = s.ask("/v1/chat/completions", {"messages": [USER], "tools": tools, "tool_choice": choice, "seed": len(seen), "temperature": 3, "n": 4, "max_tokens": 60})
            assert status == 200, got
            calls = [c["message"]["tool_calls"][0]["function"] for c in got["choices"]]
            assert all(json.loads(c["arguments"]) == {"k": c["name"]} for c in calls), calls
            assert choice == "required" or {c["name"] for c in calls} == {choice["function"]["name"]}
            seen |= {c["name"] for c in calls}
    assert seen == set(names)


def test_strict_of_tools(weft, weft_env, shared_dir, tmp_path):
    """In all three forms: what a schema demands and cannot be enforced is an error, and a note without it."""
    path = scripted.write(tmp_path / "strict.gguf", {"1": ["Hello"]}, (shared_dir / "templates" / "Qwen-Qwen2.5-7B-Instruct.jinja").read_text(), context=4096)
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}, "maxItems": 2, "uniqueItems": True}}, "required": ["n"], "additionalProperties": False}
    with Server(weft, weft_env, path) as s:
        for strict in (True, False):
            more = {"strict": strict}
            for where, body in (("/v1/chat/completions", {"messages": [USER], "max_tokens": 60, "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": schema, **more}}]}),
                                ("/v1/responses", {"input": "x", "max_output_tokens": 60, "tool_choice": "required", "tools": [{"type": "function", "name": "f", "parameters": schema, **more}]}),
                                ("/v1/messages", {"messages": [USER], "max_tokens": 60, "tool_choice": {"type": "any"}, "tools": [{"name": "f", "input_schema": schema, **more}]})):
                status, got = s.ask(where, body)
                assert status == (400 if strict else 200) and ("uniqueItems" in json.dumps(got) if strict else "uniqueItems" in s.headers["Weft-Schema-Note"]), (where, strict, got)


def test_anthropic(told):
    more = {"model": "told", "max_tokens": 2000, "messages": [USER], "tools": NAMED_TOOLS}
    uses = [b for b in told.claude.messages.create(**more).content if b.type == "tool_use"]
    assert [b.input for b in uses] == [ARGUMENTS] * told.n and all(re.fullmatch("toolu_[A-Za-z0-9_.:-]{9,}", b.id) for b in uses)
    n_deltas = 0
    with told.claude.messages.stream(**more) as stream:
        for e in stream:
            n_deltas += e.type == "input_json"
        final = stream.get_final_message()
    assert [b.input for b in final.content if b.type == "tool_use"] == [ARGUMENTS] * told.n and final.stop_reason == "tool_use" and n_deltas > 12 * told.n


def test_ollama(told):
    whole = told.llama.chat(model="told", messages=[USER], tools=TOOLS).message.tool_calls
    parts = [c for p in told.llama.chat(model="told", messages=[USER], tools=TOOLS, stream=True) for c in p.message.tool_calls or []]
    for calls in (whole, parts):
        assert [(c.function.name, c.function.arguments) for c in calls] == [("get_weather", ARGUMENTS)] * told.n


def test_limits(told):
    """A call that max_tokens ends has the beginning of its arguments; nothing of it is content."""
    full = [c.function.arguments for c in told.chat().choices[0].message.tool_calls]
    for n in range(1, len(told.pieces), 9):
        answer = told.chat(max_tokens=n).choices[0]
        calls = [c.function.arguments for c in answer.message.tool_calls or []]
        assert answer.finish_reason == "length" and len((answer.message.content or "").strip()) <= 1, (n, answer)
        assert all(whole.startswith(cut) for cut, whole in zip(calls, full)) and calls[:-1] == full[:len(calls[:-1])], (n, calls)
    n = len(told.pieces) // 2
    cut = told.chat(max_tokens=n).choices[0].message.tool_calls or []
    message = told.claude.messages.create(model="told", max_tokens=n, messages=[USER], tools=NAMED_TOOLS)
    assert message.stop_reason == "max_tokens" and len([b for b in message.content if b.type == "tool_use"]) == len(cut)
    with told.claude.messages.stream(model="told", max_tokens=n, messages=[USER], tools=NAMED_TOOLS) as stream:
        assert len([b for b in stream.get_final_message().content if b.type == "tool_use"]) == len(cut)
    for streams in (False, True):
        got = told.llama.chat(model="told", messages=[USER], tools=TOOLS, options={"num_predict": n}, stream=streams)
        calls = [c for p in (got if streams else [got]) for c in p.message.tool_calls or []]
        assert len(calls) == len(cut) and all(c.function.arguments.get("city", ARGUMENTS["city"]) in ARGUMENTS["city"] for c in calls)


def test_ids_come_back(told):
    """What a client got, and what others make up, goes back with results; Mistral's templates take nine letters and digits alone."""
    message = told.chat().choices[0].message
    for strange in (None, "call_0123456789abcdefghijklmn", "x"):
        calls = [{**c.model_dump(), "id": f"{strange}{i}" if strange else c.id} for i, c in enumerate(message.tool_calls)][:1]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "7"} for c in calls]
        told.ai.chat.completions.create(model="told", messages=[USER, {"role": "assistant", "content": "", "tool_calls": calls}, *results], tools=TOOLS, max_tokens=1)
    uses = [b for b in told.claude.messages.create(model="told", max_tokens=2000, messages=[USER], tools=NAMED_TOOLS).content if b.type == "tool_use"][:1]
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": "7"} for b in uses]
    told.claude.messages.create(model="told", max_tokens=1, tools=NAMED_TOOLS, messages=[USER, {"role": "assistant", "content": uses}, {"role": "user", "content": results}])
    call = {"function": {"name": "get_weather", "arguments": ARGUMENTS}}
    told.llama.chat(model="told", tools=TOOLS, options={"num_predict": 1}, messages=[
        USER, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_name": "get_weather", "content": "7"}])


BODIES = {"/v1/chat/completions": {"tools": TOOLS}, "/v1/responses": {"tools": FLAT_TOOLS}, "/v1/messages": {"tools": NAMED_TOOLS, "max_tokens": 50},
          "/api/chat": {"tools": TOOLS}}
WAYS = [(path, stream) for path in BODIES for stream in (False, True)]


def continued(server, path, stream, given):
    """The calls, each a name and its arguments, that come after the beginning of an answer; None: the template cannot continue it."""
    body = {"model": "told", "stream": stream, "input" if path == "/v1/responses" else "messages": [USER, {"role": "assistant", "content": given}], **BODIES[path]}
    status, got = server.ask(path, body)
    if status != 200:
        assert status == 400 and re.search("ends, so it cannot be continued|chat template: line", json.dumps(got)), (status, got)
        return None
    calls = []
    if path == "/api/chat":
        lines = [json.loads(line) for line in got.splitlines()] if isinstance(got, str) else [got]
        return [(c["function"]["name"], c["function"]["arguments"]) for line in lines for c in line["message"].get("tool_calls", [])]
    events = [json.loads(line[6:]) for line in got.split("\n") if line.startswith("data: {")] if stream else []
    if path == "/v1/chat/completions":
        deltas = [d for e in events for c in e["choices"] for d in c["delta"].get("tool_calls", [])]
        for i, d in enumerate(deltas if stream else got["choices"][0]["message"].get("tool_calls", [])):
            if d.get("index", i) == len(calls):
                assert d["id"] and d["type"] == "function"
                calls.append([d["function"]["name"], ""])
            calls[d.get("index", i)][1] += d["function"]["arguments"]
        assert ((events[-1] if stream else got)["choices"][0]["finish_reason"] == "tool_calls") == (calls != [])
    elif path == "/v1/responses":
        output = (events[-1]["response"] if stream else got)["output"]
        calls = [[item["name"], item["arguments"]] for item in output if item["type"] == "function_call"]
        begun = [e["output_index"] for e in events if e["type"] == "response.output_item.added" and e["item"]["type"] == "function_call"]
        deltas = ["".join(e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta" and e["output_index"] == i) for i in begun]
        assert not stream or deltas == [c[1] for c in calls]
    elif stream:
        begun = {e["index"]: e["content_block"]["name"] for e in events if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use"}
        calls = [(name, "".join(e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta" and e["index"] == i)) for i, name in begun.items()]
    else:
        calls = [(b["name"], b["input"]) for b in got["content"] if b["type"] == "tool_use"]
    return [tuple(c) for c in calls]


def read(arguments):
    with contextlib.suppress(ValueError):
        return json.loads(arguments)


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_that_the_client_began(weft, weft_env, run_weft, answers, shared_dir, tmp_path, name):
    """An answer that is cut anywhere goes on from there: a call that it has begun comes whole, and complete ones do not come again. What follows is the rest of the
    first call and all of the second, so that it fits one of the cuts."""
    path = shared_dir / "templates" / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"no {path}")
    prompt, whole = conversation(run_weft, path, name)
    begin, text = split(prompt, whole)
    text = text.partition(prompt[len(begin):])[2] if begin != prompt else text
    fits = text.index("Paris") + 2
    rest = text[fits:]
    model = scripted.write(tmp_path / "told.gguf", {"".join(map(chr, range(256))): [rest[:9], rest[9:]]}, path.read_text(), context=4096, bos=True)
    with Server(weft, weft_env, model) as s:
        cases, cuts = [], [n for n in range(1, len(text) + 1) if n < len(text) / 2 or n % 3 == 0]
        for n in cuts:                                   # what is left of the content, and the prompt before it
            shown = s.ask("/apply-template", {"messages": [USER, {"role": "assistant", "content": text[:n]}], "tools": TOOLS})[1].get("prompt", "")
            left = os.path.commonprefix([shown[::-1], text[:n][::-1]])[::-1]
            case = {"template": path.read_text(), "prompt": shown[:len(shown) - len(left)], "tools": json.dumps(TOOLS)}
            cases += [{**case, "text": left, "cut": True}, {**case, "text": left + rest}]
        parsed = [[part for part in parts if part[0] == "call"] for parts in answers(cases)]
        continues = 0
        for n, had, wanted in zip(cuts, parsed[::2], parsed[1::2]):
            wanted = [c for i, c in enumerate(wanted) if i >= len(had) or [c[2], c[4]] != [had[i][2], had[i][4]]]
            for way in WAYS if n == fits else [WAYS[n % len(WAYS)]]:
                calls = continued(s, *way, text[:n])
                if calls is None:
                    continue
                continues += 1
                where = (text[:n], way, calls, wanted)
                assert [c[0] for c in calls] == [c[1] for c in wanted], where
                for (_, arguments), want in zip(calls, wanted):
                    if isinstance(arguments, str):
                        assert arguments == want[2] or (read(want[2]) is not None and read(arguments) == read(want[2])), where
                    elif read(want[2]) is not None:
                        assert arguments == read(want[2]), where
                assert n != fits or name.startswith("meetkai") or [read(c[1]) if isinstance(c[1], str) else c[1] for c in calls] == [ARGUMENTS] * (1 + (name not in ONE_CALL)), where
    assert continues > len(cuts) / 2 or name.startswith("openai")          # OpenAI's refuses marks within content; Functionary's writes a header before it
