"""Prompts that are far too long: at every endpoint their rest is not tokenized. Where a text is cut or counted, the result is that of the whole text."""
import re

import pytest
from serving import TEMPLATE, Server

THREADS = 1

MB = 1_000_000
TEXT = "hello, this is it. " * (8 * MB // 19)
CONTEXT = 512


def said(text):
    return [{"role": "user", "content": text}]


# endpoint: body; each is an error with the number of tokens that were counted until then
PROMPTS = {
    "/completion": lambda t: {"prompt": t}, "/v1/completions": lambda t: {"prompt": [t, "x"]}, "/v1/chat/completions": lambda t: {"messages": said(t)},
    "/v1/messages": lambda t: {"messages": said("x"), "system": t, "max_tokens": 4}, "/v1/responses": lambda t: {"input": t},
    "/api/chat": lambda t: {"messages": [*said("x"), {"role": "assistant", "content": t}, *said("y")]}, "/api/generate": lambda t: {"prompt": t}, "/embedding": lambda t: {"content": t},
}
VECTORS = {"/v1/embeddings": lambda t: {"input": ["x", t]}, "/embeddings": lambda t: {"content": t}, "/api/embed": lambda t: {"input": t, "truncate": False}}
RANKS = {"/v1/rerank": lambda t: {"query": "x", "documents": [t, "x", "y"]}, "/rerank": lambda t: {"query": t, "documents": ["x"] * 50}}


def figure(server, what):
    return int(re.search(rf"{what}:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1]) * 1024


def refuse(server, table, sanitized):
    for path, body in table.items():
        before = figure(server, "VmRSS")
        open(f"/proc/{server.process.pid}/clear_refs", "w").write("5")
        status, got = server.ask(path, body(TEXT))
        text = str(got)
        found = re.search(r"at least (\d+)", text)
        assert status == 400 and found and CONTEXT < int(found[1]) < 200_000, (path, text[:300])
        assert sanitized or figure(server, "VmHWM") - before < 30 * MB + 8 * len(str(body(TEXT))), path


def test_prompts(weft, weft_env, tinypy, sanitized):
    with Server(weft, weft_env, tinypy, "-c", CONTEXT, "--chat-template", TEMPLATE, "--max-body", "200") as s:
        refuse(s, PROMPTS, sanitized)


@pytest.mark.parametrize("name,table", [("bert", VECTORS), ("bert-rank", RANKS)])
def test_texts(weft, weft_env, make_encoder, tmp_path, sanitized, name, table):
    make_encoder.write(name, tmp_path / "m.gguf")
    with Server(weft, weft_env, tmp_path / "m.gguf", "--max-body", "200") as s:
        refuse(s, table, sanitized)


def test_a_text_that_is_cut_ends_as_it_should(weft, weft_env, make_encoder, tmp_path):
    """What is behind the tokens that fit makes no difference; the separator behind them does."""
    make_encoder.write("bert", tmp_path / "m.gguf")
    with Server(weft, weft_env, tmp_path / "m.gguf") as s:
        vectors = [s.ask("/api/embed", {"input": TEXT[:n]}) for n in (19_000, 2 * MB)]
    assert vectors[0][0] == vectors[1][0] == 200 and vectors[0][1]["embeddings"] == vectors[1][1]["embeddings"]


def test_counts_are_of_the_whole_prompt(weft, weft_env, tinypy):
    """Clients ask for the number in order to cut a prompt themselves."""
    text = TEXT[: MB // 2]
    with Server(weft, weft_env, tinypy, "-c", CONTEXT, "--chat-template", "{{ messages[0].content }}") as s:
        n = len(s.ask("/tokenize", {"content": text})[1]["tokens"])
        counts = [s.ask(path, body)[1]["input_tokens"] for path, body in
                  [("/v1/messages/count_tokens", {"messages": said(text)}), ("/v1/responses/input_tokens", {"input": text}), ("/v1/chat/completions/input_tokens", {"messages": said(text)})]]
    assert n > 100_000 and counts == [n] * 3
