"""A grammar whose masks take long costs its own stream only: the others go on, and every answer is what it is alone."""
import concurrent.futures as futures
import http.client
import json
import os
import threading
from pathlib import Path

import pytest
import test_lora
from serving import Server, until

THREADS = 1

# Many ways to read the same text: a mask takes a hundred times what a step does, and more with every token.
AMBIGUOUS = 'root ::= a\na ::= b | a b | a a\nb ::= [^0] | b b'
NAME = {"type": "string", "pattern": "^([a-z]{1,20}|[A-Z]{2,30})( [a-z]{1,20}){0,9}$"}
FIELDS = {"name": NAME, "when": {"type": "string", "format": "date-time"}, "n": {"type": "number", "minimum": -1e6, "maximum": 123456.5}}
LISTS = {f"field_{i}": {"type": "array", "items": {"type": "object", "properties": FIELDS, "required": list(FIELDS)}} for i in range(40)}
HEAVY = {"type": "object", "properties": LISTS, "required": list(LISTS)}
TOKENS, SLOW = 40, 45


def body(i, **more):
    return {"prompt": f"def f{i}(x):\n", "n_predict": TOKENS, "temperature": 0.8, "seed": i, "ignore_eos": True, "stream": True, "cache_prompt": False, **more}


def read(s, asked, count=None):
    """The text of a stream; count[0] is how many events have come."""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
    c.request("POST", "/completion", json.dumps(asked), {"Content-Type": "application/json"})
    text = ""
    for line in c.getresponse():
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            assert "error" not in event, event
            text += event["content"]
            if count:
                count[0] += 1
    return text


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy, "-c", "1024", "-np", "8") as s:
        yield s


@pytest.mark.parametrize("constraint, lags", [({"grammar": AMBIGUOUS}, True), ({"json_schema": HEAVY}, False)], ids=["ambiguous", "a heavy schema"])
def test_others_do_not_wait_for_masks(server, constraint, lags):
    """Steps are counted, not seconds: in one step with the others it would have drawn as many tokens as they have."""
    count, slow = [0], body(9, temperature=1, **constraint)
    alone = [read(server, body(i)) for i in range(3)]
    with futures.ThreadPoolExecutor(4) as pool:
        beside = pool.submit(read, server, {**slow, "n_predict": SLOW}, count)
        while not count[0] and not beside.done():
            threading.Event().wait(0.002)
        others = [pool.submit(read, server, body(i)) for i in range(3)]
        assert [o.result() for o in others] == alone
        drawn = count[0]
        text = beside.result()
    assert not lags or drawn < 3 * TOKENS / 4, drawn
    assert read(server, {**slow, "n_predict": SLOW}) == text


# Sums of sums, as arithmetic is often written: every text has as many readings as there are trees over it.
TREES = 'root ::= e\ne ::= e "+" e | e "*" e | "(" e ")" | [a-z0-9 ]+ | e e'


def test_a_grammar_that_is_too_ambiguous(server):
    """It is the client's, in an answer and in the middle of streams: nothing is wrong with the model, and no client should try again."""
    asked = {"prompt": "a", "grammar": TREES, "temperature": 0, "max_tokens": 200, "ignore_eos": True}
    status, got = server.ask("/completion", asked)
    assert status == 400 and "too ambiguous" in got["error"]["message"] and got["error"]["type"] == "invalid_request_error", got
    for path in "/completion", "/v1/completions":
        c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        c.request("POST", path, json.dumps({**asked, "stream": True}), {"Content-Type": "application/json"})
        last = [line for line in c.getresponse().read().split(b"\n") if line.startswith(b"data: {")][-1]
        assert json.loads(last[6:])["error"]["type"] == "invalid_request_error", last


def niceness(pid):
    """Of each thread of a process; threads end meanwhile."""
    found = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            found.add(int(Path(f"/proc/{pid}/task/{task}/stat").read_text().rsplit(")", 1)[1].split()[16]))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def test_a_late_mask_has_low_priority(server):
    """Also in the sandbox, where a thread may change its own priority alone."""
    with futures.ThreadPoolExecutor(2) as pool:
        beside = [pool.submit(read, server, body(i, grammar=AMBIGUOUS, temperature=1)) for i in (9, 1)]
        seen = set()
        while not all(b.done() for b in beside) and 10 not in seen:
            seen |= niceness(server.process.pid)
    assert 10 in seen


def test_choices_beside_a_slow_grammar(server):
    """Choices of a request share what is computed of its grammar, so they wait for one another; another request does not."""
    asked = {"prompt": "def f(x):\n", "max_tokens": 12, "n": 3, "seed": 3, "temperature": 1}
    with futures.ThreadPoolExecutor(4) as pool:
        both = [pool.submit(server.ask, "/v1/completions", {**asked, "grammar": g}) for g in (AMBIGUOUS, "root ::= [a-z \\n]+", AMBIGUOUS)]
        got = [[c["text"] for c in b.result()[1]["choices"]] for b in both]
    assert got[0] == got[2] and len(got[0]) == 3
    for g, texts in ((AMBIGUOUS, got[0]), ("root ::= [a-z \\n]+", got[1])):
        assert [c["text"] for c in server.ask("/v1/completions", {**asked, "grammar": g})[1]["choices"]] == texts


def test_an_answer_that_fails_beside_its_mask(weft, weft_env, tinypy, tmp_path):
    """Its model's output is no number while its first mask is made, which takes longer than a step: it ends after that, and never before."""
    test_lora.write(tmp_path / "1.gguf", "llama", test_lora.of_model(tinypy, ["attn_q.", "ffn_up", "ffn_down"], 4)[0])
    ways = range(6000)
    grammar = "root ::= " + " | ".join(f"r{i}" for i in ways) + "".join(f'\nr{i} ::= [a-z] r{i} [0-9] | "z{i}" [a-z]{{0,{i % 50 + 3}}} | "q"' for i in ways)
    asked = {"prompt": [5, 6, 7], "n_predict": 4, "grammar": grammar, "lora": [{"id": 0, "scale": 1e6}]}
    with Server(weft, weft_env, tinypy, "-c", "4096", "-np", "4", "--lora", tmp_path / "1.gguf", "--lora-init-without-apply") as s, futures.ThreadPoolExecutor(1) as pool:
        beside = None
        for _ in range(4):
            if not beside or beside.done():
                count = [0]
                beside = pool.submit(read, s, {**body(1), "n_predict": 2000}, count)
                until(lambda: count[0])
            status, got = s.ask("/completion", asked)
            late = 10 in niceness(s.process.pid)
            threading.Event().wait(0.01)
            assert status == 500 and "scale of an adapter" in got["error"]["message"], got
            assert not (late and 10 in niceness(s.process.pid))
        assert s.end() == 0


def test_slow_streams_that_leave(weft, weft_env, tinypy):
    """In the middle of a mask: the place is free afterwards, others are served, and the server ends as asked."""
    with Server(weft, weft_env, tinypy, "-np", "4") as s:
        for _ in range(6):
            with s.connect() as c:
                data = json.dumps(body(1, grammar=AMBIGUOUS, n_predict=400)).encode()
                c.sendall(f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                c.recv(2000)
        assert len(read(s, body(2))) > TOKENS
        c = s.connect()
        c.sendall(f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        c.recv(2000)
        c.close()
        assert s.end() == 0
