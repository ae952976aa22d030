"""Many requests of all endpoints, of which a fifth leave before their answer is whole and a fifth are hostile: memory
and descriptors stay flat, answers are those of a fresh process, and nothing is a fault of the server.  test_serve_soak.py runs the short form; the long one by hand, with "ranks" on two processes of MPI:

    python tests/python/soak.py build/weft models/tinypy.gguf 100000 [ranks]
"""
import concurrent.futures as futures
import contextlib
import json
import os
import random
import re
import socket
import sys
import tempfile
import time

import test_serve_framing
import test_serve_leaks
from rank_serving import RankServer
from serving import TEMPLATE, Server

WORDS = ["def ", "class A:\n", "x = ", "import ", "for i in ", "return ", "# a\n", "while True:\n    "]
MEANT = {501, 505}                           # what is not supported, of the model or of HTTP
STARTS = ["def add(a, b):\n    return a + b\n\n" * 3, "class Point:\n    def __init__(self, x):\n", ""]


def make(i):
    """(path, body) of request i: the same in each run."""
    r = random.Random(i)
    text = r.choice(STARTS) + "".join(r.choice(WORDS) for _ in range(r.randint(1, 12)))
    n, more = r.randint(1, 24), {"seed": i, "temperature": r.choice([0, 0.8, 1.2]), "stream": r.random() < 0.5}
    messages = [{"role": "user", "content": text}]
    return [("/completion", {"prompt": text, "n_predict": n, "ignore_eos": True, **more}),
            ("/v1/completions", {"prompt": [text, text + "x"], "max_tokens": n, "n": r.randint(1, 3),
                                 "logprobs": 2, **more, "stream": False}),
            ("/v1/chat/completions", {"messages": messages, "max_tokens": n, **more}),
            ("/v1/messages", {"messages": messages, "max_tokens": n, **more}),
            ("/v1/responses", {"input": text, "max_output_tokens": n, **more}),
            ("/api/generate", {"prompt": text, "raw": True, "stream": more["stream"],
                               "options": {"num_predict": n, "seed": i, "temperature": more["temperature"]}}),
            ("/completion", {"prompt": text, "n_predict": n, **more,
                             "json_schema": {"type": "array", "items": {"type": "integer"}}})][i % 7]


def said(text):
    """What an answer says, without times and names that differ each time: its texts, in their order."""
    return re.findall(r'"(?:content|text|delta|response|token_logprobs)":\s*("(?:[^"\\]|\\.)*"|\[[^]]*\])', text)


def leave(s, i):
    """Asks, and goes at some moment: after the request, or within the answer."""
    path, body = make(i)
    data = json.dumps(body).encode()
    r = random.Random(-i)
    with contextlib.suppress(ConnectionError, socket.timeout), s.connect() as c:
        c.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        if r.random() < 0.7:
            c.recv(r.randint(1, 2000))
        time.sleep(r.random() * 0.02)


def whole(s, i):
    path, body = make(i)
    status, got = s.ask(path, body)
    assert status == 200, (i, status, got)
    return said(got if isinstance(got, str) else json.dumps(got))


# Bodies that mean work, or none that can be done.
BOMBS = [b"[" * 100_000, b'{"prompt":"' + b"x" * 300_000 + b'"}', b'{"prompt":"\\ud800"}', b'{"prompt":' + b"1" * 100_000 + b"}",
         json.dumps({"prompt": "x", "n_predict": 3, "grammar": "root ::= a*\na ::= b | b b\nb ::= \"x\" | a"}).encode(),
         json.dumps({"prompt": "x", "n_predict": 2, "json_schema": {"allOf": [{"type": "integer", "multipleOf": 1e-300}] * 50}}).encode(),
         json.dumps({"prompt": ["a"] * 1000}).encode(), json.dumps({"prompt": "x", "n": 10**9, "n_predict": 2**63}).encode(),
         json.dumps({"prompt": "x", "logit_bias": {str(i): 1 for i in range(5000)}, "n_predict": 1}).encode()]


def hostile(s, i, routes):
    """Status of what nobody should send: bytes that are no HTTP, bombs, wrong values in any field of any endpoint; None: closed without an answer."""
    r = random.Random(~i)
    how = r.random()
    if how < 0.6:                            # numbers that are not divisible by 3 are not plain
        return test_serve_leaks.send(s, 3 * i + 1, routes)[0]
    message = r.choice(list(test_serve_framing.REFUSED.values())) if how < 0.8 else None
    if message is None:
        body = r.choice(BOMBS)
        message = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
    with contextlib.suppress(OSError), s.connect() as c:
        c.sendall(message)
        c.shutdown(socket.SHUT_WR)
        got = c.recv(1000)
        return int(got.split()[1]) if got.startswith(b"HTTP/1.") else None
    return None


def look(s):
    """The least that is resident within two seconds, as free memory goes back some ticks later, and descriptors."""
    held = []
    for _ in range(4):
        time.sleep(0.5)
        held.append(int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{s.pid()}/status").read()).group(1)) * 1024)
    return min(held), len(os.listdir(f"/proc/{s.pid()}/fd"))


def idle(s, seconds=60):
    end = time.monotonic() + seconds
    work = ("llamacpp:requests_processing", "llamacpp:requests_deferred")
    while any(map(s.metric, work)) or s.metric("weft:connections") > 1:
        assert time.monotonic() < end
        time.sleep(0.05)


def soak(weft, env, model, n, clients=8, kept=100, kind=Server):
    """(resident bytes, descriptors) after the first part and at the end, and how many answers were compared.

    The first part is a fifth, and half of a short run: by then plans for all numbers of sequences are made, and the cache has grown to what the requests
    take.  It grows by huge pages, one for each layer (12 MiB at once for tinypy), about once in 400 requests."""
    answers, every, silent, faults, warm = {}, max(1, n // kept), [], [], n // 5 if n >= 500 else n // 2

    def one(s, i, routes):
        if i % 5 == 4:
            return leave(s, i)
        if i % 5 == 3:
            status = hostile(s, i, routes) if i % 10 == 3 or i % 3 else test_serve_leaks.send(s, i, routes)[0]
            if isinstance(status, int) and status >= 500 and status not in MEANT:
                faults.append((i, status))
            return None
        got = whole(s, i)
        if not got:
            silent.append(i)                 # a chat's only token is a line end, which is no content
        if i // 5 % max(1, every // 5) == 0:
            answers[i] = got

    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "plain.jinja")
        with open(template, "w") as f:
            f.write(TEMPLATE)
        args = ("--chat-template-file", template)
        with kind(weft, env, model, *args) as s, futures.ThreadPoolExecutor(clients) as pool:
            routes = test_serve_leaks.routes_of(s)
            list(pool.map(lambda i: one(s, i, routes), range(warm)))
            idle(s)
            first = look(s)
            list(pool.map(lambda i: one(s, i, routes), range(warm, n)))
            idle(s)
            last = look(s)
            assert s.end() == 0
        with Server(weft, env, model, *args) as s:
            for i, got in answers.items():
                assert whole(s, i) == got, i
    assert len(silent) <= n // 100, silent[:20]
    assert not faults, faults[:20]
    return first, last, len(answers)


if __name__ == "__main__":
    began = time.monotonic()
    first, last, compared = soak(sys.argv[1], dict(os.environ), sys.argv[2], int(sys.argv[3]), kind=RankServer if sys.argv[4:] else Server)
    seconds = time.monotonic() - began
    print(f"{sys.argv[3]} requests in {seconds:.0f} s: {first[0] / 2**20:.1f} MiB and {first[1]} descriptors "
          f"after the first part, {last[0] / 2**20:.1f} MiB and {last[1]} at the end; {compared} answers as those of a fresh process")
