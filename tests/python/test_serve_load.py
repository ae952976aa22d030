"""weft serve among many clients: those that leave, those that say no more and read on, and those that come all at once."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import socket
import threading
import time

import pytest
from serving import TEMPLATE, Server, until


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "plain.jinja"
    path.write_text(TEMPLATE)
    with Server(weft, weft_env, tinypy, "--chat-template-file", path) as s:
        yield s


def post(path, body, version="1.1"):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


# ---- clients that leave ---------------------------------------------------------------------------------------------------------

LONG = {"max_tokens": 400, "n": 4, "ignore_eos": True}
LEAVES = {
    "stream": post("/v1/completions", {**LONG, "prompt": "def ", "stream": True}),
    "stream of HTTP/1.0": post("/v1/completions", {**LONG, "prompt": "def ", "stream": True}, "1.0"),
    "whole answer": post("/v1/completions", {**LONG, "prompt": "def "}),
    "ollama": post("/api/generate", {"model": "any", "prompt": "def ", "options": {"num_predict": 400}}),
    "half a body": post("/v1/completions", {**LONG, "prompt": "def "})[:-5],
}


def test_clients_that_left_hold_no_descriptor(server):
    """A proxy's pool or Prometheus keeps a connection open; those of 120 clients that leave meanwhile are closed all the same."""
    descriptors = lambda: len(os.listdir(f"/proc/{server.process.pid}/fd"))
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as idle:
        idle.request("GET", "/health")
        assert idle.getresponse().read()
        server.ask("/health")
        before = descriptors()
        for how, message in LEAVES.items():
            for i in range(24):
                with server.connect() as c:
                    c.sendall(message)
                    if i % 2 and "stream" in how:
                        assert c.recv(100)
            until(lambda: server.metric("llamacpp:requests_processing") + server.metric("llamacpp:requests_deferred") == 0)
            until(lambda: descriptors() <= before + 1)
        idle.request("GET", "/health")
        assert idle.getresponse().status == 200
    until(lambda: descriptors() <= before)


# ---- clients that say no more and read on -----------------------------------------------------------------------------------------

SHORT = {"prompt": "def ", "max_tokens": 40, "temperature": 0, "ignore_eos": True}


def say_and_close(server, message, wait=0.0):
    """The answer to a message behind which the writing half is closed, as `nc -N` does, read by Python's HTTP client."""
    with server.connect() as c:
        c.sendall(message)
        time.sleep(wait)
        c.shutdown(socket.SHUT_WR)
        got = http.client.HTTPResponse(c, method="POST")
        got.begin()
        return got.status, got.read().decode()


@pytest.mark.parametrize("wait", [0, 0.05])
def test_a_half_closed_client_is_answered(server, wait):
    expected = server.ask("/v1/completions", SHORT)[1]["choices"][0]["text"]
    assert say_and_close(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", wait)[0] == 200
    assert say_and_close(server, b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n", wait)[0] == 200
    status, text = say_and_close(server, post("/v1/completions", SHORT), wait)
    assert status == 200 and json.loads(text)["choices"][0]["text"] == expected
    status, text = say_and_close(server, post("/v1/completions", {**SHORT, "stream": True}), wait)
    parts = [json.loads(line[6:])["choices"][0]["text"] for line in text.splitlines() if line.startswith("data: {")]
    assert status == 200 and "".join(parts) == expected and text.rstrip().endswith("data: [DONE]")


def test_half_closed_clients_among_others(server):
    """Many at once, of which none is the oldest connection for long."""
    import concurrent.futures as futures
    asks = [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", post("/v1/completions", {**SHORT, "max_tokens": 2}), post("/tokenize", {"content": "x"})]
    with futures.ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda i: say_and_close(server, asks[i % 3])[0], range(150)))
    assert got == [200] * 150


def test_a_half_closed_client_waits_and_leaves(weft, weft_env, tinypy):
    """It keeps its place in the queue; once it has left in earnest its place is free."""
    with Server(weft, weft_env, tinypy, "-np", "1") as s:
        with s.connect() as busy:
            busy.sendall(post("/v1/completions", {**LONG, "n": 32, "prompt": "def "}))
            until(lambda: s.metric("llamacpp:requests_processing") == 1)
            with s.connect() as waits:
                waits.sendall(post("/v1/completions", SHORT))
                waits.shutdown(socket.SHUT_WR)
                until(lambda: s.metric("llamacpp:requests_deferred") == 1)
                assert waits.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
                time.sleep(0.2)
                assert s.metric("llamacpp:requests_deferred") == 1
            with s.connect() as leaves:
                leaves.sendall(post("/v1/completions", SHORT))
            until(lambda: s.metric("llamacpp:requests_deferred") == 1)
        until(lambda: s.metric("llamacpp:requests_processing") + s.metric("llamacpp:requests_deferred") == 0)


# ---- clients that come all at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, all_served", [((), True), (("--max-queue", "30"), False)])
def test_many_clients_at_once_are_served(weft, weft_env, tinypy, tmp_path, sanitized, options, all_served):
    """150 of OpenAI's own clients, none of which tries twice: all wait their turn, unless there is a limit."""
    import asyncio
    openai = pytest.importorskip("openai")
    n = 40 if sanitized else 150
    (tmp_path / "plain.jinja").write_text(TEMPLATE)

    async def ask_all(url):
        async def ask(i):
            try:
                got = await ai.chat.completions.create(model="any", messages=[{"role": "user", "content": f"def f{i}(a, b):"}], max_tokens=8,
                                                       temperature=0, extra_body={"ignore_eos": True})
                return got.usage.completion_tokens
            except openai.RateLimitError as e:
                return f"after {int(e.response.headers['retry-after'])}"
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as ai:
            return await asyncio.gather(*map(ask, range(n)))

    with Server(weft, weft_env, tinypy, "--chat-template-file", tmp_path / "plain.jinja", "-np", "4", *options) as s:
        got = asyncio.run(ask_all(s.url))
        served, refused = got.count(8), [x for x in got if str(x).startswith("after ")]
        assert served + len(refused) == n, got
        assert served == n if all_served else 30 <= served < n, got
        assert s.metric("weft:refused_total") == len(refused)


# ---- work that takes long ---------------------------------------------------------------------------------------------------------

RULES = "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | r{i + 1} r{i + 1}\n" for i in range(20000)) + 'r20000 ::= "a" | "" | .'


@pytest.mark.parametrize(("path", "heavy"), [("/completion", {"prompt": "a", "n_predict": 2, "grammar": RULES}),
                                             ("/tokenize", {"content": "1234567890" * 150000, "with_pieces": True})], ids=["grammar", "text"])
def test_small_requests_pass_those_that_take_long(server, path, heavy):
    """More of them at once than there are threads for requests: what has taken 50 ms no longer counts."""
    done, waits = [], []
    threads = [threading.Thread(target=lambda: done.append(server.ask(path, heavy)[0])) for _ in range(6)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sent = time.monotonic()
        assert server.ask("/completion", {"prompt": "def f(", "n_predict": 2})[0] == 200
        waits.append(time.monotonic() - sent)
    took = time.monotonic() - began
    assert len(done) == 6 and set(done) <= {200, 400, 413, 429}
    assert len(waits) > 8 and max(waits) < took / 4, (took, sorted(waits)[-5:])
    threads_of = lambda: len(os.listdir(f"/proc/{server.process.pid}/task"))
    few = threads_of()
    assert few < 24  # those that were slowed down have ended
    assert server.ask("/completion", {"prompt": "def f(", "n_predict": 2})[0] == 200


# ---- more answers than the cache holds -------------------------------------------------------------------------------------------

def test_more_answers_than_the_cache_holds(weft, weft_env, tinypy, built_tool, sanitized):
    """The memory is for some 93 pages of 0.75 MiB, and 14 answers need 112. Unused sequences go for scored prompts and for texts too. Of answers at once the
    last ones give their pages, and say the same later."""
    if sanitized:
        pytest.skip("libmeminfo.so would come before the sanitizers")
    free = os.stat(tinypy).st_size // 1024 + 70 * 1024
    env = dict(weft_env, LD_PRELOAD=built_tool("libmeminfo.so", "WEFT_MEMINFO"), MEMINFO=f"MemTotal: {4 * free} kB\nMemAvailable: {free} kB\n")
    with Server(weft, env, tinypy, "-c", 1024, "-ctk", "f32", "-ctv", "f32", "-np", 16, "--pooling", "mean") as s:
        def ask(i):
            body = {"prompt": [300 + i] + [100 + (7 * k + i) % 90 for k in range(560)], "max_tokens": 400, "temperature": 0, "ignore_eos": True}
            status, o = s.ask("/v1/completions", {**body, "logprobs": 1, "echo": i % 2 == 0})
            assert status == 200, o
            return o["choices"]
        alone = [ask(i) for i in range(14)]
        assert s.ask("/v1/embeddings", {"input": [100] * 1000})[0] == 200
        assert s.metric("weft:gave_way_total") == 0
        with concurrent.futures.ThreadPoolExecutor(15) as at_once:
            texts = at_once.submit(s.ask, "/v1/embeddings", {"input": [[101 + i] * 1000 for i in range(8)]})
            assert list(at_once.map(ask, range(14))) == alone
            assert texts.result()[0] == 200
            assert list(at_once.map(ask, range(14))) == alone
        assert s.metric("weft:gave_way_total") > 0
