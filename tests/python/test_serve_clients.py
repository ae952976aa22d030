"""weft serve as its clients see it: OpenAI's, Anthropic's and ollama's Python packages, unchanged, against a model that says what it is told to."""
import json
import subprocess
import sys

import pytest
import scripted
from serving import Server

anthropic = pytest.importorskip("anthropic")
ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")
gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

TEMPLATE = ("{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }}\n{% endfor %}</tools> call: <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{% endif %}"
            "{%- for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
            "{%- for c in m.tool_calls or [] %}<tool_call>\n{\"name\": {{ c.function.name | tojson }}, \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
            "{% endfor %}")
SCRIPTS = {
    "1": ["Hello", ", how", " are", " you?"],
    "2": ["Let me see. ", "<tool_call>\n{\"name\": \"add\", ", "\"arguments\": {\"a\": 1, ", "\"b\": 2}}\n</tool_call>"],
    "3": ["<think>\nIt is", " easy.\n</think>\n\n", "Four", " it is."],
    "4": ["one ", "two ", "three ", "four "],
    "5": ["a\u00e9", "\u4f60\u597d", "<b>&\"\\\n", "\U0001f600"],
    "7": ["\n\n    ", "indented", " text", "\n \n"],
    "8": ["<think>\nSo it is.\n</think>", "\n\n", "After", " thought.\n"],
    "6": ["<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</tool_call>\n", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 5}}\n</tool_call>"],
}
PICK = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"], "additionalProperties": False, "$defs": {"A": {"enum": ["x"]}}}
OTHER = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
FORCED = {"pick": {"a": "x"}, "other_one": {"n": 7}}      # all that their schemas allow
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}


@pytest.fixture(scope="module")
def told_model(tmp_path_factory):
    return scripted.write(tmp_path_factory.mktemp("scripted") / "told.gguf", SCRIPTS, TEMPLATE)


@pytest.fixture(scope="module")
def server(weft, weft_env, told_model):
    with Server(weft, weft_env, told_model) as s:
        yield s


@pytest.fixture(scope="module")
def ai(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def user(text):
    return [{"role": "user", "content": text}]


# ---- OpenAI -----------------------------------------------------------------------------------------------------------------------


def test_openai_models(ai):
    assert [m.id for m in ai.models.list()] == ["told"]
    assert ai.models.retrieve("told").id == "told"
    with pytest.raises(openai.NotFoundError):
        ai.models.retrieve("other")


def test_openai_chat(ai):
    r = ai.chat.completions.create(model="told", messages=user("say 1"))
    assert r.choices[0].message.content == "Hello, how are you?" and r.choices[0].finish_reason == "stop" and r.choices[0].message.role == "assistant"
    assert r.usage.completion_tokens == 4 and r.usage.total_tokens == r.usage.prompt_tokens + 4


def test_openai_stream(ai):
    with ai.chat.completions.stream(model="told", messages=user("say 1"), stream_options={"include_usage": True}) as stream:
        deltas = [e.delta for e in stream if e.type == "content.delta"]
        final = stream.get_final_completion()
    assert deltas == SCRIPTS["1"]
    assert final.choices[0].message.content == "Hello, how are you?" and final.choices[0].message.role == "assistant" and final.usage.completion_tokens == 4


def test_openai_tools(ai):
    r = ai.chat.completions.create(model="told", messages=user("call 2"), tools=[ADD])
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and call.function.name == "add" and json.loads(call.function.arguments) == {"a": 1, "b": 2} and call.id
    assert r.choices[0].message.content.strip() == "Let me see."
    with ai.chat.completions.stream(model="told", messages=user("call 6"), tools=[ADD]) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [json.loads(c.function.arguments) for c in calls] == [{"a": 3}, {"a": 5}] and final.choices[0].finish_reason == "tool_calls" and calls[0].id != calls[1].id
    r = ai.chat.completions.create(model="told", messages=user("call 6"), tools=[ADD], parallel_tool_calls=False)
    assert len(r.choices[0].message.tool_calls) == 1
    r = ai.chat.completions.create(model="told", messages=user("call 2"), tools=[ADD], tool_choice="none")
    assert r.choices[0].finish_reason == "stop" and not r.choices[0].message.tool_calls
    again = [*user("call 2"), r.choices[0].message.model_dump(exclude_none=True), *user("say 1")]
    again[1] = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]}
    again.insert(2, {"role": "tool", "tool_call_id": "x", "content": "3"})
    assert ai.chat.completions.create(model="told", messages=again, tools=[ADD]).choices[0].message.content == "Hello, how are you?"


def test_white_space(ai, claude, llama, told_model, run_weft):
    """An answer is what the model wrote, with the white space at its beginning and its end; only what follows </think> goes."""
    said, after = "".join(SCRIPTS["7"]), "After thought.\n"
    r = ai.chat.completions.create(model="told", messages=user("7"), logprobs=True).choices[0]
    assert r.message.content == said == "".join(t.token for t in r.logprobs.content) == bytes(b for t in r.logprobs.content for b in t.bytes).decode()
    chunks = list(ai.chat.completions.create(model="told", messages=user("7"), logprobs=True, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == said
    assert "".join(t.token for c in chunks for t in (c.choices[0].logprobs.content if c.choices[0].logprobs else [])) == said
    assert ai.responses.create(model="told", input="7").output_text == said and ai.responses.create(model="told", input="8").output_text == after
    assert claude.messages.create(model="told", max_tokens=99, messages=user("7")).content[0].text == said
    assert claude.messages.create(model="told", max_tokens=99, messages=user("8")).content[-1].text == after
    assert llama.chat(model="told", messages=user("7")).message.content == said and llama.chat(model="told", messages=user("8")).message.content == after
    with_tools = ai.chat.completions.create(model="told", messages=user("7"), tools=[ADD]).choices[0].message
    assert with_tools.content == said and not with_tools.tool_calls
    assert ai.chat.completions.create(model="told", messages=user("8")).choices[0].message.content == after
    assert ai.completions.create(model="told", prompt="7").choices[0].text == said
    for question, expected in (("7", said), ("8", after)):
        shown = run_weft(["chat", "-m", told_model, "--json", "-st", "-p", question]).out
        assert json.loads(shown)["content"] == expected


def test_openai_reasoning(ai):
    r = ai.chat.completions.create(model="told", messages=user("think 3")).choices[0].message
    assert r.content.strip() == "Four it is." and r.reasoning_content.strip() == "It is easy."
    got = {"content": "", "reasoning_content": ""}
    for chunk in ai.chat.completions.create(model="told", messages=user("think 3"), stream=True):
        for name in got:
            got[name] += getattr(chunk.choices[0].delta, name, None) or ""
    assert got["content"].strip() == "Four it is." and got["reasoning_content"].strip() == "It is easy."


def test_openai_limits_and_stops(ai):
    r = ai.chat.completions.create(model="told", messages=user("4"), max_tokens=2).choices[0]
    assert r.message.content == "one two " and r.finish_reason == "length"
    r = ai.chat.completions.create(model="told", messages=user("4"), stop=["e f", "zzz"]).choices[0]
    assert r.message.content == "one two thre" and r.finish_reason == "stop"
    got = "".join(c.choices[0].delta.content or "" for c in ai.chat.completions.create(model="told", messages=user("4"), stop="e f", stream=True))
    assert got == "one two thre"


PICKS = [{"type": "function", "function": {"name": name, "description": "it", "parameters": schema}} for name, schema in (("pick", PICK), ("other_one", OTHER))]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "pick"}}, {"type": "function", "function": {"name": "other_one"}}], ids=range(3))
def test_openai_forced_calls(ai, choice):
    """The model would say something else; the call is one of the tools offered, with arguments as its schema has them, also where the answer is a stream."""
    more = {"model": "told", "messages": user("say 1"), "tools": PICKS, "tool_choice": choice}
    r = ai.chat.completions.create(**more)
    with ai.chat.completions.stream(**more) as stream:
        final = stream.get_final_completion()
    for got in (r.choices[0], final.choices[0]):
        call, = got.message.tool_calls
        assert got.finish_reason == "tool_calls" and not got.message.content and json.loads(call.function.arguments) == FORCED[call.function.name]
        assert choice == "required" or call.function.name == choice["function"]["name"]
    deltas = [d for c in ai.chat.completions.create(**more, stream=True) for d in c.choices[0].delta.tool_calls or []]
    assert len(deltas) > 1 and deltas[0].id and deltas[0].function.name and not any(d.id or d.function.name for d in deltas[1:])
    assert json.loads("".join(d.function.arguments for d in deltas)) == FORCED[deltas[0].function.name]
    both = ai.chat.completions.create(**more, n=2, seed=1, temperature=1.5)
    assert all(len(c.message.tool_calls) == 1 for c in both.choices) and len({c.message.tool_calls[0].id for c in both.choices}) == 2
    cut = ai.chat.completions.create(**more, max_tokens=1).choices[0]
    assert cut.finish_reason == "length" and not cut.message.tool_calls and not cut.message.content
    r = ai.chat.completions.create(**more, temperature=0)
    cut = ai.chat.completions.create(**more, temperature=0, max_tokens=r.usage.completion_tokens - 2).choices[0]
    whole, = r.choices[0].message.tool_calls
    part, = cut.message.tool_calls
    assert cut.finish_reason == "length" and whole.function.arguments.startswith(part.function.arguments) and not cut.message.content
    assert 0 < len(part.function.arguments) < len(whole.function.arguments)


@pytest.mark.parametrize("more, words", [({}, "there are no tools"), ({"tools": PICKS, "tool_choice": {"type": "function", "function": {"name": "none_such"}}}, "none_such"),
                                         ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}]}, "tools"), ({"tools": PICKS, "tool_choice": "perhaps"}, "perhaps")], ids=range(4))
def test_calls_that_cannot_be_forced(server, more, words):
    status, got = server.ask("/v1/chat/completions", {"messages": user("1"), "tool_choice": "required", **more})
    assert status == 400 and (words in got["error"]["message"] or words == "perhaps"), got


def test_forced_calls_of_real_templates(weft, weft_env, tinypy, shared_dir):
    """Each template that writes a call as a name and JSON says how to write one; the others say that they do not."""
    made, refused = 0, 0
    for path in sorted((shared_dir / "templates").glob("*.jinja")):
        with Server(weft, weft_env, tinypy, "--chat-template-file", path, "-c", 4096) as s:
            status, got = s.ask("/v1/chat/completions", {"messages": user("hi"), "tools": PICKS, "tool_choice": "required", "max_tokens": 200, "temperature": 0})
        if status == 200:
            choice = got["choices"][0]
            call, = choice["message"]["tool_calls"]
            assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"], (path, choice)
            assert json.loads(call["function"]["arguments"]) == FORCED[call["function"]["name"]], (path, choice)
            made += 1
        else:
            assert status == 400 and ("does not write a call" in got["error"]["message"] or "not JSON serializable" in got["error"]["message"]), (path, got)
            refused += 1
    assert made >= 27 and made > refused, (made, refused)


def test_openai_log_probabilities_and_choices(ai):
    r = ai.chat.completions.create(model="told", messages=user("5"), logprobs=True, top_logprobs=3, n=2)
    assert [c.index for c in r.choices] == [0, 1] and r.choices[0].message.content == r.choices[1].message.content == "".join(SCRIPTS["5"])
    tokens = r.choices[0].logprobs.content
    assert [t.token for t in tokens] == SCRIPTS["5"] and all(len(t.top_logprobs) == 3 and t.top_logprobs[0].logprob == t.logprob <= 0 for t in tokens)
    assert bytes(tokens[1].bytes).decode() == SCRIPTS["5"][1]


def test_openai_structured(ai):
    """The model would say something else: the grammar makes it JSON, and there is no other way."""
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    r = ai.chat.completions.create(model="told", messages=user("say 1"), response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}})
    assert json.loads(r.choices[0].message.content) == {"a": "x"}
    with pytest.raises(openai.BadRequestError, match="response_format"):
        ai.chat.completions.create(model="told", messages=user("1"), response_format={"type": "nonsense"})
    with pytest.raises(openai.BadRequestError, match="schema"):
        ai.chat.completions.create(model="told", messages=user("1"), response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": 5}}})


@pytest.mark.parametrize("more, name", [
    ({"messages": []}, "messages"), ({"messages": [{"role": "user"}]}, "content"), ({"messages": [{"role": "boss", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}, "content"), ({"tools": [{}]}, "tools"),
    ({"tool_choice": "perhaps"}, "tool_choice"), ({"top_logprobs": 3}, "top_logprobs"), ({"logprobs": True, "top_logprobs": 100000}, "top_logprobs"),
    ({"stream_options": {"include_usage": 3}, "stream": True}, "stream_options.include_usage")], ids=range(9))
def test_openai_errors(server, more, name):
    status, got = server.ask("/v1/chat/completions", {"messages": user("1"), **more})
    assert status == 400 and name in got["error"]["param"] and got["error"]["type"] == "invalid_request_error", got


def test_openai_completions(ai, server):
    r = ai.completions.create(model="told", prompt=["say 1", "and 4"], max_tokens=3, logprobs=2, echo=True)
    assert [c.text for c in r.choices] == ["say 1Hello, how are", "and 4one two three "] and [c.index for c in r.choices] == [0, 1]
    scores = r.choices[0].logprobs
    assert scores.tokens == [*"say 1", *SCRIPTS["1"][:3]] and scores.token_logprobs[0] is None and scores.text_offset[:3] == [0, 1, 2]
    assert len(scores.top_logprobs[5]) in (2, 3) and all(x <= 0 for x in scores.token_logprobs[1:])
    alone = ai.completions.create(model="told", prompt="1", max_tokens=1, logprobs=1, echo=True).choices[0].logprobs       # a prompt of one token
    assert alone.tokens == ["1", SCRIPTS["1"][0]] and alone.token_logprobs[0] is None and alone.text_offset == [0, 1]
    got = [c.choices[0].text for c in ai.completions.create(model="told", prompt="say 1", stream=True)]
    assert "".join(got) == "Hello, how are you?"


def test_prompt_scores_are_those_of_the_model(server, run_weft, tinypy, weft, weft_env):
    """As lm-eval asks: the log-probability of each token of a prompt, the same as drawing them one by one gives."""
    with Server(weft, weft_env, tinypy) as s:
        ids = s.ask("/tokenize", {"content": "def add(a, b):\n    return a", "add_special": True})[1]["tokens"]
        got = s.ask("/v1/completions", {"prompt": ids, "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0})[1]["choices"][0]["logprobs"]
        done = run_weft(["run", "-m", tinypy, "--ids", str(ids[0]), "--force", ",".join(map(str, ids[1:])), "--json"])
        lines = [json.loads(line) for line in done.out.splitlines()]
        expected = [line["logprob"] for line in lines if "logprob" in line]
        assert got["token_logprobs"][1:len(ids)] == pytest.approx(expected[:len(ids) - 1], abs=1e-6)


def test_control_tokens_stay_text(server):
    got = server.ask("/apply-template", {"messages": user("x<|end|>1")})[1]["prompt"]
    assert got == "<user>x<|end|>1"
    assert server.ask("/v1/chat/completions", {"messages": user("x<|end|>1")})[1]["usage"]["prompt_tokens"] == len(got)


# ---- Responses -----------------------------------------------------------------------------------------------------------------


def test_responses(ai):
    r = ai.responses.create(model="told", input="say 1", instructions="Be brief.")
    assert r.output_text == "Hello, how are you?" and r.status == "completed" and r.usage.output_tokens == 4
    r = ai.responses.create(model="told", input="4", max_output_tokens=16)
    assert r.status == "completed"
    r = ai.responses.create(model="told", input=user("4"), max_output_tokens=2)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.output_text == "one two "
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        ai.responses.create(model="told", input="1", previous_response_id="resp_1")


SHOWS_ALL = "{% for m in messages %}# {{ m.role }}\n{{ m.reasoning_content or '' }}|{{ m.tool_calls or '' }}|{{ m.content }}\n{% endfor %}"


def test_responses_of_items_as_they_came(weft, weft_env, tinypy, tmp_path):
    """Messages of the assistant come back with their content as parts: they are what they are as strings, one after another, with reasoning and calls in their places."""
    user, thought = {"role": "user", "content": "hi"}, lambda text: {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}
    said = lambda text, parts: {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}] if parts else text}
    call, result = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    counts = []
    (tmp_path / "all.jinja").write_text(SHOWS_ALL)
    with Server(weft, weft_env, tinypy, "--chat-template-file", tmp_path / "all.jinja") as s:
        for parts in True, False:
            counts.append([])
            for items in ([said("alpha alpha", parts), said("beta", parts)], [thought("one two three"), said("alpha", parts), thought("four"), call, result],
                          [said("alpha", parts), thought("four"), said("beta", parts)], [said("alpha", parts), call, result]):
                status, got = s.ask("/v1/responses/input_tokens", {"input": [user, *items, user]})
                assert status == 200, got
                counts[-1].append(got["input_tokens"])
    assert counts[0] == counts[1]


def test_responses_stream(ai):
    with ai.responses.stream(model="told", input="think 3") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed" and final.output_text.strip() == "Four it is."
    assert [item.type for item in final.output] == ["reasoning", "message"]


def test_responses_tools(ai):
    tool = {"type": "function", "name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}, "strict": False}
    with ai.responses.stream(model="told", input="call 2", tools=[tool]) as stream:
        final = stream.get_final_response()
    call = final.output[-1]
    assert call.type == "function_call" and call.name == "add" and json.loads(call.arguments) == {"a": 1, "b": 2} and call.call_id
    items = [*user("call 2"), {"type": "function_call", "call_id": call.call_id, "name": "add", "arguments": call.arguments},
             {"type": "function_call_output", "call_id": call.call_id, "output": "3"}, *user("say 1")]
    assert ai.responses.create(model="told", input=items, tools=[tool]).output_text == "Hello, how are you?"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "pick"}], ids=range(2))
def test_responses_forced_calls(ai, choice):
    tools = [{"type": "function", "name": name, "parameters": schema, "strict": True} for name, schema in (("pick", PICK), ("other_one", OTHER))]
    call, = ai.responses.create(model="told", input="say 1", tools=tools, tool_choice=choice).output
    assert call.type == "function_call" and json.loads(call.arguments) == FORCED[call.name] and (choice == "required" or call.name == "pick")


# ---- Anthropic -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


TOOL = {"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def test_anthropic(claude):
    m = claude.messages.create(model="told", max_tokens=100, system=[{"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "Be."}], messages=user("say 1"))
    assert m.content[0].text == "Hello, how are you?" and m.stop_reason == "end_turn" and m.id.startswith("msg_") and m.usage.output_tokens == 4
    m = claude.messages.create(model="told", max_tokens=2, messages=user("4"))
    assert m.stop_reason == "max_tokens" and m.content[0].text == "one two "
    m = claude.messages.create(model="told", max_tokens=9, messages=user("4"), stop_sequences=["three"])
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == "three" and m.content[0].text == "one two "


def test_anthropic_stream(claude):
    with claude.messages.stream(model="told", max_tokens=100, messages=user("think 3")) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text.strip() == "Four it is." and [b.type for b in final.content] == ["thinking", "text"] and final.content[0].thinking.strip() == "It is easy."
    assert final.usage.output_tokens == 4 and final.usage.input_tokens + final.usage.cache_read_input_tokens > 0


def test_anthropic_tools(claude):
    with claude.messages.stream(model="told", max_tokens=100, messages=user("call 2"), tools=[TOOL]) as stream:
        final = stream.get_final_message()
    call = final.content[-1]
    assert final.stop_reason == "tool_use" and call.name == "add" and call.input == {"a": 1, "b": 2} and call.id.startswith("toolu_")
    messages = [*user("call 2"), {"role": "assistant", "content": [b.model_dump(exclude_none=True, include={"type", "text", "id", "name", "input"}) for b in final.content]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "3"}]}, {"type": "text", "text": "say 1"}]}]
    m = claude.messages.create(model="told", max_tokens=100, messages=messages, tools=[TOOL])
    assert m.content[0].text == "Hello, how are you?"
    n = claude.messages.count_tokens(model="told", messages=messages, tools=[TOOL]).input_tokens
    assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "other_one"}], ids=range(2))
def test_anthropic_forced_calls(claude, choice):
    tools = [{"name": name, "input_schema": schema} for name, schema in (("pick", PICK), ("other_one", OTHER))]
    with claude.messages.stream(model="told", max_tokens=100, messages=user("say 1"), tools=tools, tool_choice=choice) as stream:
        final = stream.get_final_message()
    call, = final.content
    assert final.stop_reason == "tool_use" and call.input == FORCED[call.name] and (choice["type"] == "any" or call.name == "other_one")
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        claude.messages.create(model="told", max_tokens=9, messages=user("1"), tools=tools, tool_choice={"type": "tool"})


def test_anthropic_errors(claude, server):
    with pytest.raises(anthropic.BadRequestError, match="messages") as e:
        claude.messages.create(model="told", max_tokens=5, messages=[])
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in server.ask("/v1/messages", {"messages": user("1")})[1]["error"]["message"]


# ---- ollama -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama(server):
    return ollama.Client(host=server.url)


def test_ollama(llama):
    r = llama.chat(model="told", messages=user("say 1"))
    assert r.message.content == "Hello, how are you?" and r.done and r.done_reason == "stop" and r.eval_count == 4 and r.eval_duration > 0
    parts = list(llama.chat(model="told", messages=user("think 3"), stream=True))
    assert "".join(p.message.content or "" for p in parts).strip() == "Four it is." and "".join(p.message.thinking or "" for p in parts).strip() == "It is easy."
    assert parts[-1].done and not any(p.done for p in parts[:-1])
    r = llama.chat(model="told", messages=user("call 2"), tools=[ADD])
    assert r.message.tool_calls[0].function.name == "add" and r.message.tool_calls[0].function.arguments == {"a": 1, "b": 2}
    r = llama.chat(model="told", messages=user("4"), options={"num_predict": 2})
    assert r.message.content == "one two " and r.done_reason == "length"


def test_ollama_generate(llama):
    assert llama.generate(model="told", prompt="say 1").response == "Hello, how are you?"
    assert "".join(p.response for p in llama.generate(model="told", prompt="say 1", raw=True, stream=True)) == "Hello, how are you?"
    assert llama.generate(model="told").done_reason == "load"
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(llama.generate(model="told", prompt="1", format=schema).response) == {"a": "x"}


def test_ollama_models(llama, server):
    assert [m.model for m in llama.list().models] == ["told"] and [m.model for m in llama.ps().models] == ["told"]
    shown = llama.show("told")
    assert shown.modelinfo["llama.context_length"] == 2048 and "tools" in shown.capabilities
    assert server.ask("/api/version")[1]["version"]
    with pytest.raises(ollama.ResponseError, match="num_predict"):
        llama.chat(model="told", messages=user("1"), options={"num_predict": "many"})


# ---- llama.cpp ----------------------------------------------------------------------------------------------------------------------


def test_llama_completion(server):
    status, got = server.ask("/completion", {"prompt": "say 1", "n_probs": 2, "return_tokens": True})
    assert got["content"] == "Hello, how are you?" and got["stop_type"] == "eos" and got["tokens_predicted"] == 4 and len(got["tokens"]) == 4
    assert got["completion_probabilities"][0]["token"] == "Hello" and len(got["completion_probabilities"][0]["top_logprobs"]) == 2
    status, got = server.ask("/completion", {"prompt": ["say ", ord("4")], "n_predict": 2})
    assert got["content"] == "one two " and got["stop_type"] == "limit"
    status, got = server.ask("/completion", {"prompt": ["say 1", "4"], "stop": ["two"]})
    assert [g["stop_type"] for g in got] == ["eos", "word"] and got[1]["stopping_word"] == "two"
    status, text = server.ask("/completion", {"prompt": "say 1", "stream": True})
    lines = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert "".join(line["content"] for line in lines) == "Hello, how are you?" and [line["stop"] for line in lines] == [False] * 4 + [True]
    assert lines[-1]["timings"]["predicted_n"] == 4
    status, got = server.ask("/completion", {"prompt": "say 1", "n_predict": 0})
    assert status == 200 and got["content"] == ""
    status, got = server.ask("/completion", {"prompt": "x " * 5000})
    assert status == 400 and got["error"]["type"] == "exceed_context_size_error" and got["error"]["n_ctx"] == 2048


def test_llama_rest(server):
    assert server.ask("/tokenize", {"content": "a<|end|>", "parse_special": False})[1] == {"tokens": [*map(ord, "a<|end|>")]}
    assert server.ask("/tokenize", {"content": "a<|end|>", "with_pieces": True})[1]["tokens"] == [{"id": 97, "piece": "a"}, {"id": 256, "piece": "<|end|>"}]
    assert server.ask("/detokenize", {"tokens": [104, 105]})[1] == {"content": "hi"}
    assert server.ask("/detokenize", {"tokens": [-1]})[0] == server.ask("/detokenize", {"tokens": [99999]})[0] == 400
    props = server.ask("/props")[1]
    assert props["default_generation_settings"]["n_ctx"] == 2048 and props["chat_template"] == TEMPLATE and props["build_info"].startswith("b")
    assert server.ask("/slots")[1][0]["n_ctx"] == 2048
    assert server.ask("/infill", {"input_prefix": "a", "input_suffix": "b"})[0] == 400
    assert "add" in server.ask("/apply-template", {"messages": user("1"), "tools": [ADD]})[1]["prompt"]


# ---- langchain-openai -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain(server):
    langchain_openai = pytest.importorskip("langchain_openai")
    return lambda **more: langchain_openai.ChatOpenAI(base_url=server.url + "/v1", api_key="none", model="told", max_retries=0, **more)


def test_langchain_chat(chain):
    got = chain().invoke("say 1")
    assert got.content == "Hello, how are you?" and got.response_metadata["finish_reason"] == "stop"
    assert got.usage_metadata["output_tokens"] == 4 and got.usage_metadata["total_tokens"] == got.usage_metadata["input_tokens"] + 4
    assert [a.content for a in chain().batch(["say 1", "say 4"])] == ["Hello, how are you?", "one two three four "]
    with pytest.raises(openai.BadRequestError):
        chain(temperature=-1).invoke("say 1")


def test_langchain_stream(chain):
    whole = None
    for part in chain(stream_usage=True).stream("say 1"):
        whole = part if whole is None else whole + part
    assert whole.content == "Hello, how are you?" and whole.usage_metadata["output_tokens"] == 4


@pytest.mark.parametrize("streams", [False, True])
def test_langchain_tools(chain, streams):
    model = chain(streaming=streams).bind_tools([ADD])
    got = model.invoke("say 2")
    assert [(c["name"], c["args"]) for c in got.tool_calls] == [("add", {"a": 1, "b": 2})] and got.response_metadata["finish_reason"] == "tool_calls"
    assert got.content.strip() == "Let me see."
    two = model.invoke("say 6")
    assert [c["args"] for c in two.tool_calls] == [{"a": 3}, {"a": 5}] and len({c["id"] for c in two.tool_calls}) == 2


def test_langchain_structured_output(chain):
    schema = {"title": "flag", "description": "a flag", "type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    for method in ("json_schema", "function_calling"):
        assert chain().with_structured_output(schema, method=method).invoke("say 1") == {"a": "x"}, method


def test_langchain_responses(chain):
    got = chain(use_responses_api=True).invoke("say 1")
    assert got.text == "Hello, how are you?" and got.usage_metadata["output_tokens"] == 4
    parts = list(chain(use_responses_api=True).stream("say 1"))
    assert "".join(p.text for p in parts) == "Hello, how are you?"


def test_fields_that_others_covered(server):
    """What schemathesis found: fields that nobody looked at, because another one said the same or the request only loads a model."""
    messages = [{"role": "user", "content": "1"}]
    for path, body, name in [("/api/chat", {"messages": [], "format": [None]}, "format"), ("/api/generate", {"prompt": "", "format": "xml"}, "format"),
                             ("/api/chat", {"messages": [], "tools": [None]}, "tools[0]"), ("/api/generate", {"prompt": "", "suffix": "A"}, "suffix"),
                             ("/v1/messages", {"messages": messages, "max_tokens": 1, "stop": [{}], "stop_sequences": []}, "stop"),
                             ("/v1/responses", {"input": "1", "seed": 2**63 - 1}, "seed")]:
        status, got = server.ask(path, body)
        assert status == 400 and name in json.dumps(got), (path, got)
    status, got = server.ask("/v1/messages", {"messages": messages, "max_tokens": 9, "stop_sequences": ["zzz"], "stop": "yyy"})
    assert status == 200
    described = server.ask("/openapi.json")[1]["paths"]["/v1/messages"]["post"]
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["messages", "max_tokens"] and schema["properties"]["messages"]["minItems"] == 1
    assert set(described["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


# ---- lm-eval --------------------------------------------------------------------------------------------------------------------------


def test_what_lm_eval_asks(weft, weft_env, tinypy, run_weft):
    """A task of two questions by loglikelihood, as lm-eval 0.4.13's local-completions asks and reads it: prompts as ids, several at once, echo and
    logprobs. Each sum is that of the model, and greedy is said where it is so."""
    with Server(weft, weft_env, tinypy) as s:
        ids = lambda text: s.ask("/tokenize", {"content": text})[1]["tokens"]
        greedy = s.ask("/v1/completions", {"prompt": ids("def add(a, b):\n"), "max_tokens": 3, "temperature": 0, "logprobs": 1})[1]["choices"][0]["text"]
        pairs = [("def add(a, b):\n", greedy), ("def add(a, b):\n", "    import sys"), ("x = ", "1"), ("x = ", "class")]
        pairs = [(ids(context), ids(answer)) for context, answer in pairs]
        status, got = s.ask("/v1/completions", {"model": "any", "prompt": [c + a for c, a in pairs], "temperature": 0, "max_tokens": 1, "logprobs": 1,
                                                "seed": 1234, "echo": True})
        assert status == 200 and [c["index"] for c in got["choices"]] == [0, 1, 2, 3]
        results = []
        for choice, (context, _) in zip(got["choices"], pairs):
            own = choice["logprobs"]["token_logprobs"][len(context):-1]
            best = [max(top.values()) for top in choice["logprobs"]["top_logprobs"][len(context):-1]]
            results.append((sum(own), own == best))
        for (total, _), (context, answer) in zip(results, pairs):
            done = run_weft(["run", "-m", tinypy, "--ids", ",".join(map(str, context)), "--force", ",".join(map(str, answer)), "--json"])
            assert total == pytest.approx(sum(json.loads(line)["logprob"] for line in done.out.splitlines()), abs=1e-3)
        assert results[0][1] and not results[1][1] and results[0][0] > results[1][0]
        assert s.ask("/v1/completions", {"model": "any", "prompt": [c for c, _ in pairs[:1]], "max_tokens": 5, "temperature": 0, "stop": ["\n\n"], "seed": 1234})[0] == 200


QUESTIONS = [("def add(a, b):\n    return a", [" + b", " class"]), ("import", [" os", " )("]), ("for i in", [" range(10):", " return"]), ("x = (1, 2", [")\n", " def def"])]
TASK = """task: small
dataset_path: json
dataset_kwargs: {{data_files: {{test: {}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""


def tokenizer_of(path, folder):
    """The tokenizer of a model file (GPT-2's kind) as transformers has it."""
    fields = gguf.GGUFReader(path).fields
    value = lambda name: fields["tokenizer.ggml." + name].contents()
    texts = value("tokens")
    t = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=[tuple(m.split(" ")) for m in value("merges")]))
    t.pre_tokenizer, t.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    t.add_special_tokens([tokenizers.AddedToken(texts[i], special=True) for i, kind in enumerate(value("token_type")) if kind == 3])
    folder.mkdir()
    t.save(str(folder / "tokenizer.json"))
    end = texts[value("eos_token_id")]
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "bos_token": end}))


def test_lm_eval(weft, weft_env, tinypy, run_weft, tmp_path):
    """lm-eval itself, unchanged, with a small task by loglikelihood: it finds what the model says of each answer."""
    tokenizer_of(tinypy, tmp_path / "tokenizer")
    data, tasks = tmp_path / "data.jsonl", tmp_path / "tasks"
    data.write_text("".join(json.dumps({"question": q, "choices": c, "answer": 0}) + "\n" for q, c in QUESTIONS))
    tasks.mkdir()
    (tasks / "small.yaml").write_text(TASK.format(data))
    with Server(weft, weft_env, tinypy) as s:
        ids = lambda text: s.ask("/tokenize", {"content": text})[1]["tokens"]
        right = 0
        for question, choices in QUESTIONS:
            sums = []
            for choice in choices:
                context = ids(question)
                done = run_weft(["run", "-m", tinypy, "--ids", ",".join(map(str, context)), "--force", ",".join(map(str, ids(question + choice)[len(context):])), "--json"])
                sums.append(sum(json.loads(line)["logprob"] for line in done.out.splitlines()))
            right += sums[0] > sums[1]
        args = f"model=tinypy,base_url={s.url}/v1/completions,tokenizer_backend=huggingface,tokenizer={tmp_path / 'tokenizer'},num_concurrent=2,max_retries=1"
        done = subprocess.run([sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", args, "--tasks", "small", "--include_path", str(tasks),
                               "--output_path", str(tmp_path / "out")], capture_output=True, text=True, timeout=300, check=False,
                              env={**weft_env, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 0, done.stderr[-2000:]
    result, = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(result.read_text())["results"]["small"]["acc,none"] == right / len(QUESTIONS) > 0
