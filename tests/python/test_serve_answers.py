"""Answers and conversations in the details on which clients rely: null contents, documents, items of Responses, offsets, cut characters."""
import json
import os
from pathlib import Path

import pytest
import scripted
from serving import Server

THREADS = 1

anthropic = pytest.importorskip("anthropic")
ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}"
            "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{% endfor %}")
SCRIPTS = {"1": ["Hello", " there"], "2": ["caf\u00e9", "\u4f60\u597d", " \U0001f600!"]}


@pytest.fixture(scope="module")
def server(weft, weft_env, tmp_path_factory):
    path = scripted.write(tmp_path_factory.mktemp("answers") / "told.gguf", SCRIPTS, TEMPLATE)
    with Server(weft, weft_env, path) as s:
        yield s


@pytest.fixture(scope="module")
def ai(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def prompt_of(server, messages):
    return server.ask("/apply-template", {"messages": messages})[1]["prompt"]


# ---- conversations ------------------------------------------------------------------------------------------------------------------


def test_content_null_where_it_is_allowed(server, ai):
    """OpenAI's types say Optional for assistant and function, and ollama's for all but its own user: answers without text, results without one."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for message in ({"role": "assistant", "content": None}, {"role": "assistant"}, {"role": "assistant", "content": None, "tool_calls": None, "refusal": None},
                    {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "function", "name": "f", "content": None},
                    {"role": "tool", "tool_call_id": "a", "content": None}):
        got = ai.chat.completions.create(model="x", messages=[{"role": "user", "content": "0"}, message, {"role": "user", "content": "1"}])
        assert got.choices[0].message.content == "Hello there", message
    for role in ("user", "system"):
        with pytest.raises(openai.BadRequestError, match="content"):
            ai.chat.completions.create(model="x", messages=[{"role": role, "content": None}])
    said = ollama.Client(server.url).chat("x", [{"role": "user", "content": "0"}, {"role": "assistant"}, {"role": "tool", "tool_name": "f"}, {"role": "user", "content": "1"}])
    assert said.message.content == "Hello there"
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    told = [{"role": "user", "content": "0"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": None}, {"type": "text", "text": "1"}]}]
    assert claude.messages.create(model="x", max_tokens=9, messages=told).content[0].text == "Hello there"


def test_parts_that_refuse(server):
    assert prompt_of(server, [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]}, {"role": "user", "content": "b"}]) == \
        "<assistant>ano<user>b"


def test_documents(server):
    """Anthropic's document and search_result blocks, in messages and results of tools; what is no text is refused by name."""
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    count = lambda content: claude.messages.count_tokens(model="x", messages=[{"role": "user", "content": content}]).input_tokens
    document = {"type": "document", "title": "T", "context": "C", "source": {"type": "text", "media_type": "text/plain", "data": "some text"}}
    expected = "<document>\n<title>T</title>\n<context>C</context>\nsome text\n</document>\n"
    assert count([document, {"type": "text", "text": "1"}]) == len("<user>" + expected + "1")
    assert count([document | {"source": {"type": "content", "content": [{"type": "text", "text": "some "}, {"type": "text", "text": "text"}]}}]) == len("<user>" + expected)
    found = {"type": "search_result", "source": "http://x", "title": "T", "content": [{"type": "text", "text": "found"}]}
    assert count([found]) == len("<user><search_result>\n<title>T</title>\n<source>http://x</source>\nfound\n</search_result>\n")
    result = [{"type": "tool_result", "tool_use_id": "a", "content": [document]}]
    assert count(result) == len("<tool>" + expected)
    assert claude.messages.create(model="x", max_tokens=9, messages=[{"role": "user", "content": [document, {"type": "text", "text": "1"}]}]).content[0].text == "Hello there"
    for source in ({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}, {"type": "url", "url": "http://x/a.pdf"}, {"type": "file", "file_id": "f"}):
        with pytest.raises(anthropic.BadRequestError, match="document"):
            count([document | {"source": source}])


def test_output_config(server):
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    got = claude.messages.create(model="x", max_tokens=50, messages=[{"role": "user", "content": "1"}], output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(got.content[0].text) == {"a": "x"}


def test_items_of_responses(server, ai):
    """A conversation as agents send it back: reasoning, text and parallel calls are items of their own, and one message for the template."""
    items = [{"role": "user", "content": "0"}, {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
             {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "well", "annotations": []}]},
             {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"n\": 1}"}, {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "a", "output": "A"}, {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "B"}]},
             {"type": "reasoning", "id": "r2", "summary": [{"type": "summary_text", "text": "so"}]}, {"type": "function_call", "call_id": "c", "name": "h", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c", "output": "C"}, {"role": "user", "content": "1"}]
    expected = '<user>0<assistant>(hm)well[f {"n": 1}][g {}]<tool>A<tool>B<assistant>(so)[h {}]<tool>C<user>1'
    assert server.ask("/v1/responses/input_tokens", {"input": items})[1]["input_tokens"] == len(expected)
    assert ai.responses.create(model="x", input=items).output_text == "Hello there"
    for body, name in (({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"), ({"input": "1", "previous_response_id": "resp_1"}, "previous_response_id"),
                       ({"input": "1", "conversation": "conv_1"}, "conversation"), ({"input": "1", "background": True}, "background")):
        with pytest.raises(openai.BadRequestError, match=name):
            ai.responses.create(model="x", **body)


# ---- text -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", [False, True])
def test_offsets_are_those_of_the_text(server, ai, stream, echo):
    """text[text_offset[i]:] begins with token i, as OpenAI's manual has it, in characters."""
    if stream and echo:
        return
    asked = {"model": "x", "prompt": "\u00e9a 2", "max_tokens": 9, "logprobs": 0, "echo": echo, "stream": stream}
    if stream:
        choices = [chunk.choices[0] for chunk in ai.completions.create(**asked) if chunk.choices]
        text = "".join(c.text for c in choices)
        pairs = [pair for c in choices if c.logprobs for pair in zip(c.logprobs.tokens, c.logprobs.text_offset)]
    else:
        choice = ai.completions.create(**asked).choices[0]
        text, pairs = choice.text, [*zip(choice.logprobs.tokens, choice.logprobs.text_offset)]
    assert text == ("\u00e9a 2" if echo else "") + "caf\u00e9\u4f60\u597d \U0001f600!"
    whole = [(token, at) for token, at in pairs if "\ufffd" not in token and token != "<|end|>"]
    assert len(whole) >= (6 if echo else 3) and all(text[at:].startswith(token) for token, at in whole), pairs


def test_offsets_with_bos(weft, weft_env, shared_dir, make_gguf):
    """A BOS and the space in front of a text are tokens, and no characters of it."""
    with Server(weft, weft_env, make_gguf("tiny-llama")) as s:
        ids = s.ask("/tokenize", {"content": "Hello world", "add_special": True, "with_pieces": True})[1]["tokens"]
        status, got = s.ask("/v1/completions", {"prompt": "Hello world", "max_tokens": 2, "echo": True, "logprobs": 0, "temperature": 0, "seed": 1})
        assert status == 200, got
        choice = got["choices"][0]
        offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
        assert choice["text"].startswith("Hello world") and len(ids) > 2
        assert offsets[0] == offsets[1] == 0 and offsets[len(ids)] == len("Hello world")
        for token, at in zip(tokens[2:len(ids)], offsets[2:]):
            assert choice["text"][at:].startswith(token), (tokens, offsets)


def test_an_answer_cut_in_a_character(weft, weft_env, tmp_path):
    """What has come of a character when max_tokens is reached is left out; llama-server and vLLM do so."""
    path = scripted.write(tmp_path / "bytes.gguf", {"1": ["a\u00e9", None]}, TEMPLATE)
    with Server(weft, weft_env, path) as s:
        # "\u4f60" as its three bytes: the grammar leaves no other way, and no token has more than one of them
        for n, text in ((1, ""), (2, ""), (3, "\u4f60")):
            for body in ({"prompt": "x", "max_tokens": n, "grammar": 'root ::= "\u4f60\u597d"'},):
                assert s.ask("/v1/completions", body)[1]["choices"][0]["text"] == text
                got = s.ask("/v1/completions", body | {"stream": True})[1]
                lines = [json.loads(line[6:]) for line in got.splitlines() if line.startswith("data: {")]
                assert "".join(line["choices"][0]["text"] for line in lines) == text
            chat = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": n, "grammar": 'root ::= "\u4f60\u597d"'})[1]
            assert chat["choices"][0]["message"]["content"] == text


# ---- nothing is left to draw ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [{"ignore_eos": True}, {"logit_bias": [[0, False]]}])
def test_what_a_grammar_describes_ends_though_the_end_is_banned(weft, weft_env, tinypy, end):
    """The text may end, nothing may follow, and no token may say so: the answer is what was described, in a stream too."""
    with Server(weft, weft_env, tinypy) as s:
        for more, text in (({"grammar": 'root ::= "ab"'}, "ab"), ({"grammar": "root ::= <[65]>"}, "a"), ({"grammar": 'root ::= ""'}, ""), ({"json_schema": {"const": "x"}}, '"x"'),
                           ({"structured_outputs": {"regex": "x{3}"}}, "xxx")):
            body = {"prompt": "def ", "n_predict": 12, "temperature": 0, **more, **end}
            status, got = s.ask("/completion", body)
            assert (status, got["content"], got["stop_type"]) == (200, text, "eos"), (more, got)
            streamed = s.ask("/completion", body | {"stream": True})[1]
            lines = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
            assert "".join(line["content"] for line in lines) == text and lines[-1]["stop_type"] == "eos"
        going_on = s.ask("/completion", {"prompt": "def ", "n_predict": 12, "grammar": 'root ::= "x"*', **end})[1]
        assert going_on["tokens_predicted"] == 12 and set(going_on["content"]) == {"x"}
        chosen = s.ask("/v1/completions", {"prompt": "def ", "max_tokens": 12, "json_schema": {"const": 1}, **end})[1]
        assert chosen["choices"][0]["finish_reason"] == "stop" and json.loads(chosen["choices"][0]["text"]) == 1


def test_a_request_that_bans_all_is_its_own_fault(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy) as s:
        for body in ({"grammar": 'root ::= "a"', "logit_bias": [[65, False]]}, {"logit_bias": [[i, False] for i in range(2048)]}):
            status, got = s.ask("/completion", {"prompt": "def ", "n_predict": 4, **body})
            assert status == 400 and "no token can be drawn" in got["error"]["message"], got


# ---- BOS ------------------------------------------------------------------------------------------------------------------------------


def test_bos_of_chats(weft, weft_env, make_gguf, tmp_path):
    """A template that writes none: transformers' apply_chat_template adds none, llama.cpp does (--chat-bos). One that writes it: never twice."""
    plain, own = tmp_path / "plain.jinja", tmp_path / "own.jinja"
    plain.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    own.write_text("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
    messages = [{"role": "user", "content": "Hello"}]
    count = lambda s, **more: s.ask("/v1/chat/completions/input_tokens", {"messages": messages} | more)[1]["input_tokens"]
    with Server(weft, weft_env, make_gguf("tiny-llama"), "--chat-template-file", plain) as s:
        without = count(s)
        assert count(s, add_special_tokens=True) == without + 1 == len(s.ask("/tokenize", {"content": "Hello", "add_special": True})[1]["tokens"])
    with Server(weft, weft_env, make_gguf("tiny-llama"), "--chat-template-file", plain, "--chat-bos") as s:
        assert count(s) == without + 1
        assert s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 1})[1]["usage"]["prompt_tokens"] == without + 1
    for options in ((), ("--chat-bos",)):
        with Server(weft, weft_env, make_gguf("tiny-llama"), "--chat-template-file", own, *options) as s:
            assert count(s) == without + 1


# ---- choices ------------------------------------------------------------------------------------------------------------------------


def processor_s(s):
    fields = Path(f"/proc/{s.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("big", ["tools", "reasoning_budget_message"])
def test_choices_share_what_is_read(weft, weft_env, tinypy, tmp_path, big):
    """Tools, which this template does not show, and what ends reasoning are read once, however many answers there are."""
    (tmp_path / "t.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}<think>")
    more = {"tools": [{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object", "properties": {f"a{k}": {"type": "string"} for k in range(20)}}}} for i in range(2500)]} \
        if big == "tools" else {"reasoning_budget_message": "and so on, 12 words " * 50000, "reasoning_budget_tokens": 0}
    with Server(weft, weft_env, tinypy, "-c", "512", "-np", "4", "--chat-template-file", tmp_path / "t.jinja") as s:
        def cost(n, **more):
            before = processor_s(s)
            status, got = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "n": n, **more})
            assert status == 200 and len(got["choices"]) == n, got
            return processor_s(s) - before

        cost(1, **more)
        one, bare, many = cost(1, **more), cost(64), cost(64, **more)
    assert many < 3 * one + 2 * bare + 0.1, (one, bare, many)


def test_a_scored_prompt_is_evaluated_once(weft, weft_env, tinypy):
    """And its scores, and its text, are charged as often as they are written."""
    asked = {"prompt": [5 + i % 200 for i in range(600)], "echo": True, "logprobs": 2, "max_tokens": 2, "temperature": 0}
    with Server(weft, weft_env, tinypy, "-c", "1024", "-np", "4", "--max-request-memory", "16") as s:
        one = s.ask("/v1/completions", asked)[1]["choices"][0]
        before = s.metric("llamacpp:prompt_tokens_total")
        status, got = s.ask("/v1/completions", {**asked, "n": 4})
        assert status == 200 and all(c["logprobs"] == one["logprobs"] and c["text"] == one["text"] for c in got["choices"]), got
        assert s.metric("llamacpp:prompt_tokens_total") - before < 700
        status, got = s.ask("/v1/completions", {**asked, "n": 128})
        assert status in (400, 413, 429, 503) and "--max-request-memory" in got["error"]["message"], got
        status, got = s.ask("/v1/completions", {"prompt": "word " * 150, "echo": True, "max_tokens": 1, "n": 128})
        assert status == 200, got


def test_the_text_of_tokens_is_charged(weft, weft_env, tmp_path):
    path = scripted.write(tmp_path / "long.gguf", {"1": ["word " * 40]}, TEMPLATE)
    with Server(weft, weft_env, path, "--max-request-memory", "32") as s:
        token = 257                    # the first after the bytes and the end
        status, got = s.ask("/detokenize", {"tokens": [token] * 100})
        assert status == 200 and got["content"] == "word " * 4000
        status, got = s.ask("/detokenize", {"tokens": [token] * 100000})
        assert status == 413 and "their text" in got["error"]["message"] and "--max-request-memory" in got["error"]["message"], got
        assert s.ask("/detokenize", {"tokens": [1] * 100000})[0] == 200
