"""Clients of today against weft serve, each unchanged, with a model that says what it is told to: chat, streams, tool calls (chosen by the
model, required, in parallel, over three turns), answers by a schema, reasoning, embeddings, reranking.

outside.py has what each client does.  It runs in an environment of its own (tests/python/clients.txt, scripts/setup.sh test), because several of
these packages still want an older openai than the other tests.
"""
import json
import os
import subprocess

import pytest
import scripted
from conftest import REPO
from serving import Server

THREADS = 1

gguf = pytest.importorskip("gguf")
projector = pytest.importorskip("projector")

TEMPLATE = ("{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }}\n{% endfor %}</tools> call: <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{% endif %}"
            "{%- for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
            "{%- for c in m.tool_calls or [] %}<tool_call>\n{\"name\": {{ c.function.name | tojson }}, \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
            "{% endfor %}")


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


SCRIPTS = {
    "1": ["Hello", ", how", " are", " you?"],
    "3": ["<think>\nIt is", " easy.\n</think>\n\n", "Four", " it is."],
    "4": [call("add", {"a": 10, "b": 20}) + "\n", call("add", {"a": 30, "b": 40})],
    "5": [call("add", {"a": 1, "b": 2})],
    "6": [call("add", {"a": 3, "b": 4})],
    "7": ["It is", " done."],
    "N": [call("crm__add", {"a": 1, "b": 2})],
    "S": [call("tool_search", {"query": "sums", "limit": 3})],
    "9": ['{"name": "Paris",', ' "country": "France"}'],
    '"': ['eleven"}'],      # a text within a call that has to be
}
PARIS = {"name": "Paris", "country": "France"}
WIDTH = 1024


@pytest.fixture(scope="module")
def server(weft, weft_env, make_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    path = scripted.write(folder / "told.gguf", SCRIPTS, TEMPLATE, context=8192)
    make_encoder.write("bert-rank", folder / "ranks.gguf")
    encoder = projector.write(folder / "mmproj.gguf", WIDTH)
    with Server(weft, weft_env, path, "-m", folder / "ranks.gguf", "--pooling", "last", "--mmproj", encoder) as s:
        yield s


@pytest.fixture
def client(server, weft_env, tmp_path):
    python = os.environ.get("WEFT_CLIENTS") or str(REPO / "build" / "clients" / "bin" / "python")
    if not os.path.exists(python):
        pytest.skip(f"no {python}: scripts/setup.sh test makes it")

    def run(name):
        env = {**weft_env, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
               "OPENAI_API_KEY": "none"}
        done = subprocess.run([python, str(REPO / "tests" / "python" / "outside.py"), name, server.url], env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])
    return run


def holds(came, *ways):
    """What every client has to have got, in each of the ways that it has for it."""
    wanted = {
        "chat": "Hello, how are you?", "stream": "Hello, how are you?", "structured": PARIS, "by_tool": PARIS, "required": "add",
        "parallel": [{"a": 10, "b": 20}, {"a": 30, "b": 40}], "embedding": WIDTH, "reasoning": ["It is easy.", "Four it is."],
    }
    for way in ways:
        assert way in came
    for way, value in came.items():
        if way in wanted:
            assert value == wanted[way], way
        if way == "turns":
            assert value["text"] == "It is done."
            if "called" in value:
                assert [c[:2] for c in value["called"]] == [["add", {"a": 1, "b": 2}], ["add", {"a": 3, "b": 4}]] and value["ids"] == 2


def test_openai(client):
    came = client("openai")
    holds(came, "chat", "stream", "structured", "turns", "parallel", "required", "reasoning", "embedding")
    assert came["responses"] == "Hello, how are you?"


def test_anthropic(client):
    holds(client("anthropic"), "chat", "stream", "turns", "parallel", "required", "reasoning")


def test_ollama(client):
    came = client("ollama")
    holds(came, "chat", "stream", "turns", "parallel", "structured", "reasoning", "embedding")
    assert {name.split(":")[0] for name in came["list"]} == {"told", "ranks"} and {"completion", "tools"} <= set(came["show"])


def test_litellm(client):
    came = client("litellm")
    holds(came, "chat", "stream", "turns", "parallel", "required", "structured", "reasoning", "embedding")
    assert came["rerank"] == 2 and came["anthropic"] == came["ollama"] == "Hello, how are you?"
    for way, (said, tokens) in came["pictures"].items():
        assert said == "Hello, how are you?" and tokens > 64, way             # a picture's rows are among them


def test_langchain(client):
    holds(client("langchain"), "chat", "stream", "turns", "parallel", "required", "structured", "by_tool", "embedding")


def test_langchain_ollama(client):
    came = client("langchain_ollama")
    holds(came, "chat", "stream", "parallel", "structured", "embedding")
    assert came["complete"] == "Hello, how are you?"


def test_openai_agents(client):
    came = client("agents")
    for how in ("by_chat", "by_responses"):
        holds(came[how], "chat", "stream", "structured", "turns")


def test_instructor(client):
    came = client("instructor")
    assert len(came) == 3 and all(city == PARIS for city in came.values())


def test_pydantic_ai(client):
    came = client("pydantic_ai")
    for how in ("by_chat", "by_responses"):
        holds(came[how], "chat", "stream", "turns", "by_tool", "structured")
    holds(came["by_messages"], "chat", "stream", "turns", "by_tool")


def test_llama_index(client):
    came = client("llama_index")
    holds(came, "chat", "stream", "parallel", "structured", "embedding")
    assert came["called"] == "3 and on to 6"


def test_smolagents(client):
    came = client("smolagents")
    holds(came, "chat")
    assert came["agent"] == "eleven"


def test_llm(client):
    holds(client("llm"), "chat", "stream", "structured", "turns")


# ---- public reports: what came when they were tried is in docs/outside.md ----------------------------------------------------------


def user(text):
    return [{"role": "user", "content": text}]


def function(parameters, name="add"):
    return {"type": "function", "function": {"name": name, "description": "it", "parameters": parameters}}


def fields(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


ADD = function(fields(a={"type": "integer"}, b={"type": "integer"}))
NAMED = {"type": "json_schema", "json_schema": {"name": "", "strict": True, "schema": {"type": "object", "properties": {"name": {"type": "string"}}}}}


def chunks(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_parallel_calls_have_indices_of_their_own(server):
    """ollama 15457, 16212: every call of a stream had index 0, and the stream ended with "stop"."""
    got = chunks(server.ask("/v1/chat/completions", {"model": "told", "messages": user("call 4"), "tools": [ADD], "stream": True})[1])
    choices = [c["choices"][0] for c in got if c["choices"]]
    calls = [call for c in choices for call in c["delta"].get("tool_calls") or []]
    named = [(call["index"], call["function"]["name"]) for call in calls if call["function"].get("name")]
    assert named == [(0, "add"), (1, "add")] and choices[-1]["finish_reason"] == "tool_calls"
    assert [json.loads("".join(call["function"].get("arguments") or "" for call in calls if call["index"] == i)) for i in (0, 1)] == \
        [{"a": 10, "b": 20}, {"a": 30, "b": 40}]


def test_a_schema_in_the_other_api_s_field(server):
    """lmstudio-bug-tracker 2403: /v1/responses took response_format, which is chat's, and answered without it."""
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": fields(name={"enum": ["Paris"]}, country={"enum": ["France"]})}}
    status, got = server.ask("/v1/responses", {"model": "told", "input": "say 1", "response_format": schema})
    assert status == 200 and json.loads(got["output"][0]["content"][0]["text"]) == PARIS, got


def test_tools_of_codex(server):
    """llama.cpp 20156, codex 10635: a tool of another type than function was the end of the request."""
    tools = [{"type": "function", **ADD["function"]}, {"type": "web_search"}, {"type": "namespace", "name": "mcp__x", "tools": []}, {"type": "image_generation"},
             {"type": "local_shell"}, {"type": "custom", "name": "apply_patch", "description": "it", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}]
    body = {"model": "told", "tools": tools, "tool_choice": "auto", "parallel_tool_calls": False, "store": False, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "x", "client_metadata": {"a": "b"}, "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "call 5"}]}]}
    status, got = server.ask("/v1/responses", body)
    assert status == 200 and [item["type"] for item in got["output"]] == ["function_call"], got
    assert json.loads(got["output"][0]["arguments"]) == {"a": 1, "b": 2}


NAMESPACES = [{"type": "namespace", "name": name, "description": f"About {name}.", "tools": [{"type": "function", **ADD["function"]}, {"type": "custom", "name": "sql"}]}
              for name in ("crm", "mcp__x__")]


def test_namespaces_of_codex(server):
    """llama.cpp 24295, codex 23186, 36942: Codex groups the tools of an MCP server in a namespace; models never saw them, or calls came back with a name that
    Codex does not know."""
    tools = [*NAMESPACES, {"type": "function", **ADD["function"]}]
    body = {"model": "told", "tools": tools, "input": "call N"}
    status, got = server.ask("/v1/responses", body)
    [made] = got["output"]
    assert status == 200 and (made["namespace"], made["name"], json.loads(made["arguments"])) == ("crm", "add", {"a": 1, "b": 2}), got
    assert got["tools"] == tools

    events = chunks(server.ask("/v1/responses", {**body, "stream": True})[1])
    items = [e["item"] for e in events if e["type"] in ("response.output_item.added", "response.output_item.done")]
    assert len(items) == 2 and all((item["namespace"], item["name"]) == ("crm", "add") for item in items)
    assert [e["name"] for e in events if e["type"] == "response.function_call_arguments.done"] == ["add"]
    assert events[-1]["response"]["output"][0]["namespace"] == "crm"

    plain = server.ask("/v1/responses", {**body, "input": "call 5"})[1]["output"][0]       # a function outside of a namespace
    assert plain["name"] == "add" and "namespace" not in plain

    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "3, say 7"}
    got = server.ask("/v1/responses", {**body, "input": [{"role": "user", "content": "call N"}, made, result]})[1]
    assert got["output"][0]["content"][0]["text"] == "It is done."


def test_what_a_model_sees_of_namespaces(server):
    """The prompt is that of functions with both names; what is said about a namespace comes before its first function, and a call has both names again."""
    def seen(tools, items):
        return server.ask("/v1/responses/input_tokens", {"model": "told", "tools": tools, "input": items})[1]["input_tokens"]

    flat = [{"type": "function", **ADD["function"], "name": name, "description": f"About {about}.\n\nit"} for name, about in
            (("crm__add", "crm"), ("mcp__x__add", "mcp__x__"))]
    made = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    assert seen(NAMESPACES, [made]) == seen(flat, [made])
    assert seen(flat, [{**made, "namespace": "crm"}]) == seen(flat, [{**made, "name": "crm__add"}]) == seen(flat, [made]) + len("crm__")
    assert seen(flat, [{**made, "namespace": "mcp__x__"}]) == seen(flat, [made]) + len("mcp__x__")


SEARCH = {"type": "tool_search", "execution": "client", "description": "finds tools", "parameters": fields(query={"type": "string"})}


def test_searches_for_tools_of_codex(server):
    """Codex 0.163 hides tools of MCP servers from models that it knows until a search, which it runs itself, has found them."""
    tools = [SEARCH, {"type": "function", **ADD["function"]}]
    body = {"model": "told", "tools": tools, "input": "find S"}
    got = server.ask("/v1/responses", body)[1]
    [made] = got["output"]
    assert (made["type"], made["execution"], made["status"], made["arguments"]) == ("tool_search_call", "client", "completed", {"query": "sums", "limit": 3})
    assert got["tools"] == tools and "Weft-Ignored" not in server.headers

    events = chunks(server.ask("/v1/responses", {**body, "stream": True})[1])
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert [(item["type"], item["arguments"]) for item in done] == [("tool_search_call", made["arguments"])]
    assert not [e for e in events if "function_call_arguments" in e["type"]]

    found = {"type": "tool_search_output", "call_id": made["call_id"], "status": "completed", "execution": "client", "tools": [NAMESPACES[0]]}
    later = [{"role": "user", "content": "find S"}, made, found, {"role": "user", "content": "call N"}]
    [made] = server.ask("/v1/responses", {**body, "input": later})[1]["output"]
    assert (made["type"], made["namespace"], made["name"]) == ("function_call", "crm", "add")

    twice = [*later[:3], {**later[1], "call_id": "again"}, {**found, "call_id": "again"}]
    seen = [server.ask("/v1/responses/input_tokens", {"model": "told", "tools": tools, "input": [*twice[:4], {**twice[4], "tools": again}, *user("crm__add" if not again else "")]})[1]
            for again in (found["tools"], [])]
    assert seen[0]["input_tokens"] == seen[1]["input_tokens"] + 1                  # the definition is seen once, its name (and a line end) with each result

    hosted = {"type": "tool_search"}            # the provider's server would search
    assert server.ask("/v1/responses", {**body, "tools": [hosted, tools[1]], "input": "say 1"})[0] == 200
    assert server.headers["Weft-Ignored"] == "tools[0] (tool_search)"


def test_choices_of_tools_in_namespaces(server):
    plain = {"type": "function", **ADD["function"]}
    crm, mcp = NAMESPACES

    def named(tools, choice):
        body = {"model": "told", "tools": tools, "tool_choice": choice, "input": "call N", "max_output_tokens": 200}
        status, got = server.ask("/v1/responses", body)
        assert status in (200, 400), got
        return {(item.get("namespace"), item["name"]) for item in got["output"] if item["type"] == "function_call"} if status == 200 else got["error"]["message"]

    one = {"type": "function", "name": "add"}
    inner = {**one, "namespace": "crm"}
    for wrap in (lambda choice: choice), (lambda choice: {"type": "allowed_tools", "mode": "required", "tools": [choice]}):
        for tools in [crm, plain], [plain, crm], [crm, mcp], [mcp, crm]:
            assert named(tools, wrap(inner)) == {("crm", "add")}
        assert named([crm, plain], wrap(one)) == {(None, "add")}
        assert named([crm], wrap(one)) == named([crm], wrap({**one, "name": "crm__add"})) == {("crm", "add")}
        assert named([mcp], wrap({**one, "namespace": "mcp__x__"})) == {("mcp__x__", "add")}
        assert "which several namespaces have" in named([crm, mcp], wrap(one))
        assert "'add' of the namespace 'none', which is not one of the tools" in named([crm, plain], wrap({**one, "namespace": "none"}))
        assert "'sub', which is not one of the tools" in named([crm, plain], wrap({**one, "name": "sub"}))


def test_names_that_two_tools_would_have(server):
    plain = {"type": "function", **ADD["function"]}
    other = {**NAMESPACES[0], "name": "crm__"}
    found = {"type": "tool_search_output", "call_id": "c", "tools": [NAMESPACES[0]]}
    for tools, more, names in (([NAMESPACES[0], {**plain, "name": "crm__add"}], [], "'add' of the namespace 'crm' and 'crm__add'"),
                               ([other, NAMESPACES[0]], [], "'add' of the namespace 'crm__' and 'add' of the namespace 'crm'"),
                               ([{**plain, "name": "crm__add"}], [found], "'crm__add' and 'add' of the namespace 'crm'")):
        status, got = server.ask("/v1/responses", {"model": "told", "tools": tools, "input": [*more, *user("say 1")]})
        assert status == 400 and names in got["error"]["message"], got
    assert server.ask("/v1/responses", {"model": "told", "tools": [NAMESPACES[0]], "input": [found, *user("say 1")]})[0] == 200


def test_own_members_of_tools(server):
    """own_name and namespace are no members that a client gives to a function; without `tools` there are those that a search found; what is ignored has its place."""
    odd = {"type": "function", **ADD["function"], "own_name": "x", "namespace": {"name": "y"}}
    got = server.ask("/v1/responses", {"model": "told", "tools": [odd], "input": "call 5"})[1]
    assert got["output"][0]["name"] == "add" and "namespace" not in got["output"][0] and got["tools"] == [odd]
    found = {"type": "tool_search_output", "call_id": "c", "tools": [NAMESPACES[0], {"type": "web_search"}]}
    for tools in [], None:
        got = server.ask("/v1/responses", {"model": "told", "tools": tools, "input": [*user("find S"), found, *user("call N")]})[1]
        assert (got["output"][0]["namespace"], got["output"][0]["name"]) == ("crm", "add") and got["tools"] == []
    assert server.headers["Weft-Ignored"] == "input[1].tools[0].tools[1] (custom), input[1].tools[1] (web_search)"


def test_odd_results_of_a_search(server):
    for inner in None, 3, [], [1, None, {}, {"name": 1}, {"type": "namespace", "name": "x", "tools": [1, {}]}]:
        items = [{"type": "tool_search_call", "call_id": "c", "arguments": inner}, {"type": "tool_search_output", "call_id": "c", "tools": inner}, {"role": "user", "content": "say 1"}]
        for tools in [SEARCH], [], None:
            status, got = server.ask("/v1/responses", {"model": "told", "tools": tools, "input": items})
            assert status == 200 or (status == 400 and got["error"]["message"]), got


def test_a_namespace_s_odd_members(server):
    """Tools inside a namespace that are no functions are named as ignored; a namespace without tools has none."""
    odd = [1, {"type": "custom", "name": "sql"}, {"type": "function"}, {"type": "function", "name": 1}]
    for inner in odd, [], None, {}, "x":
        for name in "crm", None, 1:
            status, got = server.ask("/v1/responses", {"model": "told", "tools": [{"type": "namespace", "name": name, "tools": inner}], "input": "say 1"})
            assert status == 200 and got["output"][0]["content"][0]["text"] == "Hello, how are you?", got
    assert server.ask("/v1/responses", {"model": "told", "tools": [{"type": "namespace", "name": "crm", "tools": odd}], "input": "say 1"})[0] == 200
    ignored = server.headers["Weft-Ignored"]
    assert [f"tools[0].tools[{i}]" in ignored for i in range(5)] == [True] * 4 + [False], ignored


def test_tools_that_claude_code_finds(server):
    """Claude Code 2.1 shows most tools only when the model has searched for them: a tool_reference in a result was refused, and three requests of each
    conversation failed."""
    deferred = {"name": "fetch", "description": "gets a page", "input_schema": fields(url={"type": "string"}), "defer_loading": True}
    search = {"name": "search", "description": "finds tools", "input_schema": fields(query={"type": "string"})}
    found = [{"role": "user", "content": "find"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"query": "page"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "tool_reference", "tool_name": "fetch"}]},
                                          {"type": "text", "text": "say 1"}]}]

    def count(tools, messages):
        return server.ask("/v1/messages/count_tokens", {"model": "told", "tools": tools, "messages": messages})

    hidden, shown = count([search, deferred], user("say 1")), count([search, {**deferred, "defer_loading": False}], user("say 1"))
    assert hidden == count([search], user("say 1")) and shown[1]["input_tokens"] > hidden[1]["input_tokens"] + 100
    assert count([search, deferred], found) == count([search, {**deferred, "defer_loading": False}], found)
    status, got = server.ask("/v1/messages", {"model": "told", "max_tokens": 9, "tools": [search, deferred], "messages": found})
    assert status == 200 and got["content"][0]["text"] == "Hello, how are you?", got

    status, got = count([search], found)
    assert status == 400 and "tool_reference to 'fetch'" in got["error"]["message"]
    runs = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}     # Anthropic's server would search: here nothing does
    assert count([search, deferred, runs], user("say 1")) == shown


@pytest.mark.parametrize("limit, said, reasoned", [(60, "3", 2), (1, "3", 1), (60, "1", 0), (60, "4", 0)])
def test_tokens_of_reasoning(server, limit, said, reasoned):
    """Codex, inspect-ai and Claude Code show how much was reasoning: the usage of Responses said 0, that of chats and Messages nothing."""
    for stream in False, True:
        for path, body, last, details, name in (
                ("/v1/chat/completions", {"messages": user("say " + said), "max_tokens": limit, "stream_options": {"include_usage": True}}, -1, "completion_tokens_details", "reasoning_tokens"),
                ("/v1/responses", {"input": "say " + said, "max_output_tokens": limit}, -1, "output_tokens_details", "reasoning_tokens"),
                ("/v1/messages", {"messages": user("say " + said), "max_tokens": limit}, -2, "output_tokens_details", "thinking_tokens")):
            got = server.ask(path, {"model": "told", "tools": [], "stream": stream, **{k: v for k, v in body.items() if stream or k != "stream_options"}})[1]
            end = chunks(got)[last] if stream else got
            usage = end.get("response", end)["usage"]
            assert usage[details] == {name: reasoned}, (path, end)


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_threads_of_anthropic(server, thread, path):
    """anthropic 2.14: tool_runner asks for a thread; it sends whole conversations if the error says that there is none, and otherwise raises the error."""
    body = {"model": "told", "messages": user("say 1"), **({"max_tokens": 9} if path.endswith("messages") else {})}
    status, got = server.ask(path, {**body, "thread": thread})
    assert status == 400 and got["error"]["details"]["error_code"] == "thread_unsupported_request", got
    status, got = server.ask(path, {**body, "mcp_servers": [1]})
    assert status == 400 and "details" not in got["error"], got
    assert server.ask(path, {**body, "thread": None})[0] == 200


def test_results_of_calls_in_parts(server):
    """llama.cpp 23465: a result that was a list of parts, as Codex sends it, was refused."""
    result = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "say 1"}]}
    status, got = server.ask("/v1/responses", {"model": "told", "input": [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "c1", "name": "add",
                                                                                                           "arguments": "{}"}, result]})
    assert status == 200 and got["output"][0]["content"][0]["text"] == "Hello, how are you?", got


@pytest.mark.parametrize("nothing", ["", []])
def test_probes_without_input(server, nothing):
    """ik_llama.cpp 1964: agents ask for one token of nothing to see whether a server is there."""
    status, got = server.ask("/v1/responses", {"model": "told", "input": nothing, "max_output_tokens": 1})
    assert status == 200 or (status == 400 and "'input'" in got["error"]["message"]), got


def test_texts_longer_than_the_context(server):
    """ollama 14186: /api/embed refused a long text whatever `truncate` said."""
    text = "word " * 4000
    assert server.ask("/api/embed", {"model": "told", "input": text})[0] == 200
    status, got = server.ask("/api/embed", {"model": "told", "input": text, "truncate": False})
    assert status == 400 and "8192" in got["error"]


def test_special_tokens_as_text(server):
    """llama.cpp 26309: /tokenize made a control token of text, though parse_special was false."""
    body = {"model": "told", "content": "<|end|>", "add_special": False}
    assert server.ask("/tokenize", {**body, "parse_special": False})[1]["tokens"] == list(b"<|end|>")
    assert len(server.ask("/tokenize", {**body, "parse_special": True})[1]["tokens"]) == 1


def test_a_schema_for_an_answer_that_has_begun(server):
    """llama.cpp 23990: a schema with an answer that had begun was an error; the whole answer has to match."""
    body = {"model": "told", "messages": [*user("which"), {"role": "assistant", "content": '{"name":'}], "response_format": NAMED, "max_tokens": 60}
    for begun in '{"name":', "{", '{"name": "Ad':
        body["messages"][-1]["content"] = begun
        for seed in range(3):
            status, got = server.ask("/v1/chat/completions", {**body, "seed": seed, "logit_bias": {str(ord('"')): 60, str(ord("}")): 50}})
            choice = got["choices"][0]
            assert status == 200 and choice["finish_reason"] == "stop", got
            assert isinstance(json.loads(begun + choice["message"]["content"]).get("name", ""), str)
    body["messages"][-1]["content"] = "Here it is: "
    status, got = server.ask("/v1/chat/completions", {**body, "logit_bias": {str(ord("}")): 80}})
    assert status == 200 and isinstance(json.loads(got["choices"][0]["message"]["content"]), dict), got


LONG = {"type": "string", "maxLength": 10000}


@pytest.mark.parametrize("tool", [
    pytest.param(fields(findings={"type": "array", "maxItems": 50, "items": fields(summary={"type": "string", "maxLength": 2000})}), id="llama.cpp 27859, qwen-code 10530"),
    pytest.param(fields(o=fields(s={"type": "string", "pattern": "^[a-z]+$"}), p=fields(s={"type": "string", "pattern": "\\S"})), id="llama.cpp 25746"),
    pytest.param(fields(**{f"p{i}": {"type": "string", "minLength": 1, "maxLength": 65536} for i in range(30)}), id="llama.cpp 26596"),
    pytest.param(fields(options=fields(schema=fields(prompt=LONG), formats={"type": "array", "items": LONG})), id="firecrawl 4512"),
])
def test_schemas_of_tools_with_long_texts(server, tool):
    """Lengths of 2,000 and more, patterns within: the peer's grammars had as many copies, and refused the request."""
    for choice in "auto", "required":
        status, got = server.ask("/v1/chat/completions", {"model": "told", "messages": user("say 1"), "tools": [function(tool)], "tool_choice": choice, "max_tokens": 20})
        assert status == 200, got


def test_tags_of_training(run_weft, tmp_path):
    """llama-cpp-python 2225: a template with transformers' {% generation %} did not load."""
    path = tmp_path / "template.jinja"
    path.write_text("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}A:{{ m.content }}{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}{% endfor %}")
    r = run_weft(["template", path, "--messages", json.dumps([*user("hi"), {"role": "assistant", "content": "yo"}])])
    assert r.returncode == 0 and r.out == "U:hiA:yo", r.err


def test_curl_without_a_content_type(server):
    """llama.cpp 18063: curl --data-raw, which calls everything a form; a whole answer; parts of text."""
    body = {"model": "told", "stream": False, "messages": [{"role": "user", "content": [{"type": "text", "text": "--- File: Pasted ---\nsay 1"}]}]}
    status, got = server.ask("/v1/chat/completions", body, Content_Type="application/x-www-form-urlencoded", User_Agent="curl/7.88.1", Accept="*/*")
    assert status == 200 and got["choices"][0]["message"]["content"] == "Hello, how are you?", got
