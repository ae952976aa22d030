"""Answers that clients do not read: the server's memory does not grow with files of --path or the table of routes, and all other answers stay within --max-memory."""
import json
import os
import socket
import time
import pytest
from serving import Server, until

THREADS = 1
CLIENTS = 24


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory):
    site = tmp_path_factory.mktemp("unread")
    (site / "big").write_bytes(os.urandom(1 << 20) * 60)
    (site / "empty").write_bytes(b"")
    (site / "large").touch()
    os.truncate(site / "large", 5 << 30)
    with Server(weft, weft_env, tinypy, "--path", site, "--max-memory", "64", "--max-request-memory", "16") as s:
        s.site = site
        yield s


@pytest.fixture(scope="module")
def page(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy, "--max-memory", "64", "--max-request-memory", "48") as s:
        yield s


def rss(server):
    lines = open(f"/proc/{server.process.pid}/status").read().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmRSS")) / 1024


def ask(server, path, body=None):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.settimeout(60)
    c.connect(("127.0.0.1", server.port))
    text = json.dumps(body).encode() if body is not None else b""
    c.sendall((f"{'POST' if text else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n").encode() + text)
    return c


def begun(c):
    return int(c.recv(12).split()[1])


def held(server):
    c = ask(server, "/metrics")
    text = b""
    while b"weft:request_memory_bytes " not in text or not text.endswith(b"\n"):
        text += c.recv(1 << 16)
    return float(text.split(b"\nweft:request_memory_bytes ")[1].split()[0]) / 2 ** 20


def growth(server, path):
    begun(ask(server, path))
    before = rss(server)
    clients = [ask(server, path) for _ in range(CLIENTS)]
    assert [begun(c) for c in clients] == [200] * CLIENTS
    time.sleep(0.5)
    return rss(server) - before, clients


@pytest.mark.parametrize("path", ["/big", "/large"])
def test_files(server, path):
    more, clients = growth(server, path)
    assert more < 12                                 # megabytes; each file whole: 1,440
    first = clients[0]
    size = 0
    while path == "/big" and size < 60 << 20:        # it is whole, however late it is read
        got = first.recv(1 << 20)
        assert got
        size += len(got)
    for c in clients:
        c.close()


def test_a_file_that_becomes_shorter_cuts_the_answer(server):
    short = server.site / "short"
    short.write_bytes(b"x" * (20 << 20))
    c = ask(server, "/short")
    assert begun(c) == 200
    os.truncate(short, 1 << 20)
    size = 0
    while got := c.recv(1 << 20):
        size += len(got)
    assert size < 20 << 20
    assert begun(ask(server, "/empty")) == begun(ask(server, "/health")) == 200


def test_table_of_routes(page):
    more, clients = growth(page, "/openapi.json")
    assert more < 4
    for c in clients:
        c.close()


def test_other_answers(page):
    body = {"content": "def f(x): return x\n" * 30000, "with_pieces": True}          # the answer: 5.8 MB
    clients, statuses = [], []
    for _ in range(8):
        clients.append(ask(page, "/tokenize", body))
        statuses.append(begun(clients[-1]))
        assert held(page) < 57                       # an eighth of 64 MiB is for small requests
    assert statuses[0] == 200 and statuses[-1] == 429 and set(statuses) == {200, 429}
    for c in clients:
        c.close()
    until(lambda: held(page) < 1)
    c = ask(page, "/tokenize", body)
    assert begun(c) == 200
    c.close()
