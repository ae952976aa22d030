"""Fields of requests: those that the packages of OpenAI, Anthropic and ollama know are read, refused by name, or named in the header Weft-Ignored; and
docs/serve.md says which."""
import json
import re
import typing

import pytest
import scripted
from serving import TEMPLATE, Server

THREADS = 1

anthropic = pytest.importorskip("anthropic")
ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")

MESSAGES = [{"role": "user", "content": "x = 1"}]
# A request that each endpoint answers.
BODIES = {
    "/v1/completions/render": {"prompt": "x"}, "/v1/chat/completions/render": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "x", "max_tokens": 1}, "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/responses": {"input": "x", "max_output_tokens": 1}, "/v1/messages": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": MESSAGES}, "/completion": {"prompt": "x", "n_predict": 1}, "/embedding": {"content": "x"},
    "/tokenize": {"content": "x"}, "/detokenize": {"tokens": [5]}, "/apply-template": {"messages": MESSAGES},
    "/v1/chat/completions/input_tokens": {"messages": MESSAGES}, "/v1/responses/input_tokens": {"input": "x"},
    "/api/chat": {"messages": MESSAGES, "stream": False, "options": {"num_predict": 1}},
    "/api/generate": {"prompt": "x", "stream": False, "options": {"num_predict": 1}}, "/api/show": {"model": "tinypy"},
    "/api/pull": {"model": "tinypy", "stream": False}, "/models/load": {"model": "tinypy"}, "/v1/streams/lookup": {"conversation_ids": ["x"]},
}
UNANSWERED = {"/infill", "/v1/embeddings", "/v1/rerank", "/rerank", "/api/embed", "/api/embeddings", "/models/unload"}      # not with this model, or it goes


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory):
    template = tmp_path_factory.mktemp("fields") / "plain.jinja"
    template.write_text(TEMPLATE)
    with Server(weft, weft_env, tinypy, "--chat-template-file", template, "-c", "256") as s:
        yield s


@pytest.fixture(scope="module")
def described(server):
    """Of each endpoint its fields, with those inside of objects as "options.seed"."""
    def flat(schema, prefix=""):
        for name, row in schema["properties"].items():
            inside = next((one for one in row.get("anyOf", []) if "x-ignored" in one), None)
            yield prefix + name, {}
            if inside:
                yield from flat(inside, f"{prefix}{name}.")
        for kind in ("ignored", "refused"):
            for name, row in schema[f"x-{kind}"].items():
                yield prefix + name, row | {"kind": kind}
    paths = server.ask("/openapi.json")[1]["paths"]
    return {path: dict(flat(row["post"]["requestBody"]["content"]["application/json"]["schema"]))
            for path, row in paths.items() if "requestBody" in row.get("post", {})}


def keys(*types):
    """Of TypedDicts, and of unions of such."""
    for one in types:
        yield from keys(*typing.get_args(one)) if typing.get_origin(one) is typing.Union else typing.get_type_hints(one)


def sdk_fields():
    from anthropic.types import message_count_tokens_params, message_create_params, output_config_param, thinking_config_param
    from anthropic.types.beta import message_create_params as beta
    from ollama import _types
    from openai.types import completion_create_params, embedding_create_params
    from openai.types.chat import chat_completion_stream_options_param, completion_create_params as chat
    from openai.types.responses import response_create_params, response_text_config_param
    from openai.types.shared_params import reasoning
    models = lambda *all: [name for one in all for name in one.model_fields]
    options = models(_types.Options)
    return {
        "/v1/chat/completions": {"": keys(chat.CompletionCreateParamsBase, chat.CompletionCreateParamsStreaming),
                                 "stream_options.": keys(chat_completion_stream_options_param.ChatCompletionStreamOptionsParam)},
        "/v1/completions": {"": keys(completion_create_params.CompletionCreateParamsBase, completion_create_params.CompletionCreateParamsStreaming)},
        "/v1/embeddings": {"": keys(embedding_create_params.EmbeddingCreateParams)},
        "/v1/responses": {"": keys(response_create_params.ResponseCreateParamsBase, response_create_params.ResponseCreateParamsStreaming),
                          "reasoning.": keys(reasoning.Reasoning), "text.": keys(response_text_config_param.ResponseTextConfigParam)},
        "/v1/messages": {"": keys(message_create_params.MessageCreateParamsBase, message_create_params.MessageCreateParamsStreaming, beta.MessageCreateParamsBase),
                         "output_config.": keys(output_config_param.OutputConfigParam), "thinking.": keys(thinking_config_param.ThinkingConfigParam)},
        "/v1/messages/count_tokens": {"": keys(message_count_tokens_params.MessageCountTokensParams)},
        "/api/chat": {"": models(_types.ChatRequest), "options.": options}, "/api/generate": {"": models(_types.GenerateRequest), "options.": options},
        "/api/embed": {"": models(_types.EmbedRequest), "options.": options}, "/api/embeddings": {"": models(_types.EmbeddingsRequest), "options.": options},
        "/api/show": {"": models(_types.ShowRequest)}, "/api/pull": {"": models(_types.PullRequest)},
    }


SDK_FIELDS = sdk_fields()


@pytest.mark.parametrize("path", SDK_FIELDS)
def test_fields_of_the_packages(described, path):
    """Each has a row: none is unknown in silence."""
    wanted = {prefix + name for prefix, names in SDK_FIELDS[path].items() for name in names}
    assert len(wanted) >= 1 and sorted(wanted - set(described[path])) == []


def with_field(body, name, value):
    outer, _, inner = (name, "", "") if "speculative." in name else name.partition(".")
    return body | {outer: with_field(body.get(outer, {}), inner, value) if inner else value}


def test_what_each_row_says_is_so(server, described):
    """Ignored fields are told in the header, refused ones by name; values that ask for nothing are neither."""
    seen = 0
    assert set(described) == set(BODIES) | UNANSWERED
    for path, body in BODIES.items():
        assert server.ask(path, body)[0] == 200 and "Weft-Ignored" not in server.headers, path
        for name, row in described[path].items():
            if not row:
                continue
            seen += 1
            status, got = server.ask(path, with_field(body, name, {"some": "thing"}))
            if row["kind"] == "ignored":
                assert status == 200 and server.headers["Weft-Ignored"] == name, (path, name, got)
            else:
                assert status == 400 and f"'{name}' is not supported: " in json.dumps(got), (path, name, got)
            for nothing in [None, *row["unless"]]:
                assert server.ask(path, with_field(body, name, nothing))[0] == 200 and "Weft-Ignored" not in server.headers, (path, name, nothing)
    assert seen > 200


def test_unknown_fields(server):
    body = BODIES["/v1/chat/completions"]
    assert server.ask("/v1/chat/completions", body | {"temprature": 0, "stream_options": {"x": 1}, "none": None})[0] == 200
    assert server.headers["Weft-Ignored"] == "temprature, stream_options.x"
    assert server.ask("/v1/chat/completions", body | {"a\r\nSet-Cookie: x": 1, "\u4f60": 2})[0] == 200
    assert "\r" not in server.headers["Weft-Ignored"] and "Set-Cookie" not in server.headers
    assert server.ask("/v1/chat/completions", body | {f"field_{i}": 1 for i in range(500)})[0] == 200 and server.headers["Weft-Ignored"].endswith(", ...")
    assert server.ask("/v1/chat/completions", body | {"user": "me", "stream": True})[0] == 200 and server.headers["Weft-Ignored"] == "user"
    assert server.ask("/api/chat", BODIES["/api/chat"] | {"options": {"num_predict": 1, "num_ctx": 100}})[0] == 200 and "Weft-Ignored" not in server.headers
    assert server.ask("/api/chat", BODIES["/api/chat"] | {"options": {"num_predict": 1, "num_ctx": 100000}})[0] == 200
    assert server.headers["Weft-Ignored"] == "options.num_ctx"


def table_of(described):
    """The rows of docs/fields.md."""
    rows = {}
    for path, fields in described.items():
        for name, row in fields.items():
            if row:
                unless = ", ".join(f"`{json.dumps(v)}`" for v in row["unless"])
                rows.setdefault((name, row["kind"] + (f" unless {unless}" if unless else ""), row["reason"]), []).append(path)
    return [f"| `{name}` | {', '.join(f'`{p}`' for p in sorted(paths))} | {what} | {why} |" for (name, what, why), paths in sorted(rows.items())]


def test_the_table_in_the_manual(described, repo):
    text = (repo / "docs" / "fields.md").read_text()
    found = [line for line in text.splitlines() if line.startswith("| `")]
    assert found == table_of(described), "docs/fields.md lacks:\n" + "\n".join(table_of(described))
    assert "fields.md" in (repo / "docs" / "serve.md").read_text()


# ---- vLLM's constraints ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ai(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "n": {"type": "integer", "minimum": 3, "maximum": 5}}, "required": ["a", "n"], "additionalProperties": False}
CONSTRAINTS = [
    ("regex", r"[ab]{3}-\d{2}", lambda t: re.fullmatch(r"[ab]{3}-\d{2}", t)), ("choice", ["positive", "negative", "a \"b\"\n"], ["positive", "negative", "a \"b\"\n"].__contains__),
    ("grammar", 'root ::= "yes" | "no"', ["yes", "no"].__contains__), ("json", SCHEMA, lambda t: json.loads(t)["a"] in ("x", "yy") and 3 <= json.loads(t)["n"] <= 5),
    ("json", json.dumps(SCHEMA), lambda t: json.loads(t)["n"] in (3, 4, 5))]


@pytest.mark.parametrize("kind, value, fits", CONSTRAINTS)
def test_constraints_of_vllm(ai, kind, value, fits):
    """As vLLM's manual has them, through OpenAI's package: today's structured_outputs, and guided_* of before."""
    for more in ({"structured_outputs": {kind: value}}, {f"guided_{kind}": value}):
        for seed in range(3):
            chat = ai.chat.completions.create(model="x", messages=MESSAGES, max_tokens=200, seed=seed, extra_body=more)
            assert fits(chat.choices[0].message.content), (more, chat)
            text = ai.completions.create(model="x", prompt="x", max_tokens=200, seed=seed, extra_body=more)
            assert fits(text.choices[0].text), (more, text)


@pytest.mark.parametrize("name, kind", [("regex", "regex"), ("ebnf", "grammar")])
def test_constraints_of_sglang(ai, name, kind):
    """As outlines sends them to SGLang."""
    [(value, fits)] = [row[1:] for row in CONSTRAINTS if row[0] == kind]
    for seed in range(3):
        chat = ai.chat.completions.create(model="x", messages=MESSAGES, max_tokens=200, seed=seed, extra_body={name: value})
        assert fits(chat.choices[0].message.content), chat
    with pytest.raises(openai.BadRequestError, match=f"'{kind}' and 'choice'"):
        ai.chat.completions.create(model="x", messages=MESSAGES, extra_body={name: value, "guided_choice": ["b"]})


def test_wrong_constraints(ai):
    for more, name in (({"guided_choice": []}, "choice"), ({"guided_choice": [1]}, "choice"), ({"guided_regex": "("}, "regex"), ({"structured_outputs": {"json": "{"}}, "json_schema"),
                       ({"guided_regex": "a", "guided_choice": ["b"]}, "choice"), ({"structured_outputs": 3}, "structured_outputs"), ({"guided_regex": 3}, "guided_regex")):
        with pytest.raises(openai.BadRequestError, match=name):
            ai.chat.completions.create(model="x", messages=MESSAGES, extra_body=more)


# What each field says, and a value of another kind for each keyword of a shape; a text of digits is a number to nobody.
PALETTE = [True, 3, -7, 1.5, "AAA", "", [], [3], ["a"], [{}], {}, {"a": 1}, {"type": "x"}]


def test_a_wrong_value_is_refused_on_every_path(server):
    """jsonschema says which members do not fit /openapi.json; none of them is answered, also where only a model is loaded and nothing else looks at them."""
    jsonschema = pytest.importorskip("jsonschema")
    paths = server.ask("/openapi.json")[1]["paths"]
    loads = [("/api/chat", {"options": {"seed": 1}}), ("/api/generate", {"prompt": "", "options": {"seed": 1}})]
    seen = 0
    for path, body in [*BODIES.items(), *loads]:
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        inner = {"options." + name: row for row in schema["properties"].get("options", {}).get("anyOf", []) for name, row in row.get("properties", {}).items()}
        for name, row in (schema["properties"] | inner).items():
            judge = jsonschema.Draft202012Validator(row)
            for value in PALETTE if (path, body) in loads or path == "/v1/chat/completions" else PALETTE[::3]:
                if judge.is_valid(value) or (name == "keep_alive" and path.startswith("/v1")):
                    continue
                seen += 1
                status, got = server.ask(path, with_field(body, name, value))
                assert status == 400, (path, name, value, got)
    assert seen > 3000


def test_what_a_shape_says_is_told(server):
    """The path of the member, and what it must be."""
    for path, body, told in (
            ("/api/chat", {"options": {"json_schema": "{}"}}, "'options.json_schema' must be an object or a boolean, not a string"),
            ("/api/generate", {"options": {"lora": [{"id": "a", "scale": 1}]}}, "lora"), ("/api/chat", {"tools": [{"function": {"name": "f"}}, {"type": "x", "function": 3}]}, "tools[1]"),
            ("/api/generate", {"format": "yaml"}, "'format' must be json or a schema"),
            ("/v1/streams/lookup", {"conversation_ids": ["a", 3]}, "'conversation_ids' must be strings")):
        status, got = server.ask(path, body)
        assert status in (400, 404) and told in json.dumps(got).replace('\\"', '"'), got


def test_two_names_that_differ(server):
    """Where two names mean one thing and say different things, neither wins: the answer names both. Null, an empty text and the same value are fine."""
    chat, complete, load = ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}), ("/completion", {"prompt": "x"}), ("/api/chat", {})
    for (path, body), one, two, a, b in (
            (chat, "repeat_penalty", "repetition_penalty", 1.1, 1.2), (chat, "reasoning_budget_tokens", "thinking_budget_tokens", 5, 6),
            (chat, "max_tokens", "max_completion_tokens", 1, 2), (chat, "json_schema", "guided_json", SCHEMA, True), (complete, "grammar", "guided_grammar", 'root ::= "a"', 'root ::= "b"'),
            (chat, "guided_regex", "structured_outputs.regex", "a", "b"), (complete, "n_predict", "max_tokens", 1, 2), (load, "options.json_schema", "options.guided_json", SCHEMA, "{}"),
            (("/v1/messages", {"messages": MESSAGES, "max_tokens": 1}), "output_format", "output_config.format", *({"type": "json_schema", "schema": s} for s in (SCHEMA, True)))):
        both = lambda x, y: server.ask(path, with_field(with_field(body, one, x), two, y))
        status, got = both(a, b)
        assert status == 400 and f"'{one}'" in json.dumps(got) and f"'{two}'" in json.dumps(got), got
        assert both(a, None)[0] == both(a, a)[0] == 200, (one, two)


def test_two_constraints(server):
    """llama-server refuses a grammar beside a schema: "Cannot use both json_schema and grammar". So does this one, with both names, for all of its constraints."""
    chat, load = ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}), ("/api/generate", {})
    for (path, body), one, two in ((chat, {"grammar": 'root ::= "a"'}, {"json_schema": SCHEMA}), (chat, {"guided_regex": "a"}, {"guided_choice": ["a"]}),
                                   (chat, {"response_format": {"type": "json_object"}}, {"grammar": 'root ::= "a"'}),
                                   (load, {"options": {"grammar": 'root ::= "a"'}}, {"format": "json"}), (("/completion", {"prompt": "x"}), {"grammar": 'root ::= "a"'}, {"json_schema": SCHEMA})):
        status, got = server.ask(path, body | one | two)
        names = [name for part in (one, two) for name in part.get("options", part)]
        assert status == 400 and all(re.search(f"'(guided_)?{name.removeprefix('guided_')}'", json.dumps(got)) for name in names), got
        assert server.ask(path, body | one)[0] == 200 and server.ask(path, body | two)[0] == 200


def test_a_wrong_grammar_beside_a_load(server):
    for constraint, name in (({"grammar": "root ::= ("}, "grammar"), ({"guided_regex": "("}, "regex"), ({"json_schema": {"type": "x"}}, "json_schema")):
        status, got = server.ask("/api/chat", {"options": constraint})
        assert status == 400 and f"'{name}'" in json.dumps(got), got


# ---- tools ----------------------------------------------------------------------------------------------------------------------------

TOOLS = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n" \
        "{\"name\": {{ c.function.name | tojson }}, \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}" \
        "{% if reasoning_effort %}({{ reasoning_effort }}){% endif %}{% if enable_thinking is defined %}({{ enable_thinking }}){% endif %}"


@pytest.fixture(scope="module")
def told(weft, weft_env, tmp_path_factory):
    path = scripted.write(tmp_path_factory.mktemp("fields") / "told.gguf", {"1": ["Hello", " there"]}, TOOLS)
    with Server(weft, weft_env, path) as s:
        yield s


def function(name, **more):
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}, "additionalProperties": False}} | more


# What Codex sends beside its functions, and the other kinds that OpenAI's package has types for.
BUILT_IN = [{"type": "local_shell"}, {"type": "web_search"}, {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}, {"type": "web_search_preview"},
            {"type": "file_search", "vector_store_ids": []}, {"type": "mcp", "server_label": "x"}, {"type": "image_generation"}, {"type": "apply_patch"}]


def test_tools_of_others_servers(told):
    ai = openai.OpenAI(base_url=told.url + "/v1", api_key="none", max_retries=0)
    got = ai.responses.with_raw_response.create(model="x", input="1", tools=[function("shell"), *BUILT_IN])
    assert got.parse().output_text == "Hello there"
    assert got.headers["Weft-Ignored"] == ", ".join(f"tools[{i}] ({t['type']})" for i, t in enumerate(BUILT_IN, 1))
    chat = [{"type": "function", "function": {"name": "shell"}}, {"type": "custom", "custom": {"name": "x"}}]
    got = ai.chat.completions.with_raw_response.create(model="x", messages=[{"role": "user", "content": "1"}], tools=chat)
    assert got.parse().choices[0].message.content == "Hello there" and got.headers["Weft-Ignored"] == "tools[1] (custom)"
    claude = anthropic.Anthropic(base_url=told.url, api_key="none", max_retries=0)
    tools = [{"name": "a", "input_schema": {"type": "object"}}, {"type": "custom", "name": "b", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]
    got = claude.messages.with_raw_response.create(model="x", max_tokens=9, messages=[{"role": "user", "content": "1"}], tools=tools)
    assert got.parse().content[0].text == "Hello there" and got.headers["Weft-Ignored"] == "tools[2] (web_search_20250305)"
    for choice in ({"type": "web_search_preview"}, {"type": "custom", "name": "x"}, {"type": "mcp", "server_label": "x"}):
        with pytest.raises(openai.BadRequestError, match=choice["type"]):
            ai.responses.create(model="x", input="1", tools=[function("shell"), *BUILT_IN], tool_choice=choice)


def test_allowed_tools(told):
    """OpenAI's tool_choice of that type, in both forms: the model sees these alone, and has to call one where it says so."""
    ai = openai.OpenAI(base_url=told.url + "/v1", api_key="none", max_retries=0)
    names = ["one", "two", "three"]
    tools = [{"type": "function", "function": {k: v for k, v in function(n).items() if k != "type"}} for n in names]
    allowed = lambda mode, *only: {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in only]}}
    flat = lambda mode, *only: {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": n} for n in only]}
    prompt = lambda choice: told.ask("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "1"}], "tools": tools, "tool_choice": choice})[1]["input_tokens"]
    assert prompt("auto") - prompt(allowed("auto", "one", "three")) == len("[two]") and prompt(allowed("auto", *names)) == prompt("auto")
    got = ai.chat.completions.create(model="x", messages=[{"role": "user", "content": "1"}], tools=tools, tool_choice=allowed("required", "two"))
    assert [c.function.name for c in got.choices[0].message.tool_calls] == ["two"]
    got = ai.responses.create(model="x", input="1", tools=[function(n) for n in names], tool_choice=flat("required", "three"))
    assert [item.name for item in got.output if item.type == "function_call"] == ["three"]
    for choice in (allowed("required", "four"), allowed("auto"), allowed("perhaps", "one")):
        with pytest.raises(openai.BadRequestError, match="tool_choice"):
            ai.chat.completions.create(model="x", messages=[{"role": "user", "content": "1"}], tools=tools, tool_choice=choice)


def test_effort(told):
    """reasoning_effort and its like are variables of the template; none turns reasoning off."""
    ask = lambda path, **body: told.ask(path + "/input_tokens", body)[1]["input_tokens"]
    messages = [{"role": "user", "content": "1"}]
    plain = ask("/v1/chat/completions", messages=messages)
    assert ask("/v1/chat/completions", messages=messages, reasoning_effort="high") - plain == len("(high)")
    assert ask("/v1/chat/completions", messages=messages, reasoning_effort="none") - plain == len("(False)")
    assert ask("/v1/chat/completions", messages=messages, reasoning_effort="high", chat_template_kwargs={"reasoning_effort": "low"}) - plain == len("(low)")
    assert ask("/v1/responses", input="1", reasoning={"effort": "medium"}) - plain == len("(medium)")
    count = lambda **more: told.ask("/v1/messages/count_tokens", {"messages": messages} | more)[1]["input_tokens"]
    assert count(output_config={"effort": "low"}) - plain == len("(low)") and count(thinking={"type": "disabled"}) - plain == len("(False)")
    assert count(thinking={"type": "adaptive"}) - plain == len("(True)")
    lines = ollama.Client(told.url).chat("x", messages, think="high", stream=False)
    assert lines.prompt_eval_count - plain == len("(high)(True)")


def test_logprobs_of_ollama(told, server):
    client = ollama.Client(told.url)
    got = client.chat("x", [{"role": "user", "content": "1"}], logprobs=True, top_logprobs=2)
    assert [p.token for p in got.logprobs][:2] == ["Hello", " there"] and all(-0.01 < p.logprob <= 0 for p in got.logprobs[:2])
    assert all(len(p.top_logprobs) == 2 and p.top_logprobs[0].token == p.token for p in got.logprobs[:2])
    parts = list(client.generate("x", "1", raw=True, logprobs=True, stream=True))
    assert [p.token for part in parts for p in part.logprobs or []][:2] == ["Hello", " there"]
    assert client.chat("x", [{"role": "user", "content": "1"}]).logprobs is None
    with pytest.raises(ollama.ResponseError, match="top_logprobs"):
        client.chat("x", [{"role": "user", "content": "1"}], top_logprobs=2)
