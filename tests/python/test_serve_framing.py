"""Messages that two readers could take for different ones (request smuggling). The cases are those that public collections of such
differences between servers and proxies have (http-garden's list of findings, Http11Probe's suites, h1spec, RFC 9112 and published advisories),
written anew: each is refused with one answer, and what stands behind it is never taken for a request. All hold of plain connections and of TLS."""
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest
from serving import Server

THREADS = 1

BODY = b'{"content":"x"}'
HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"

REFUSED = {
    "request line without CR": b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n",
    "header without CR": GET + b"X-A: b\n\r\n",
    "all lines without CR": b"GET /health HTTP/1.1\nHost: localhost\n\n",
    "end of the header without CR": GET + b"\n" + HIDDEN,
    "a CR in a value": GET + b"X-A: b\rc\r\n\r\n",
    "a CR ends a line": GET + b"X-A: b\rTransfer-Encoding: chunked\r\n\r\n",
    "CR CR LF": GET + b"X-A: b\r\r\n\r\n",
    "folded by a space": GET + b"X-A: b\r\n c\r\n\r\n",
    "folded by a tab": GET + b"X-A: b\r\n\tc\r\n\r\n",
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "folded at the beginning": b"GET /health HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n",
    "NUL in a value": GET + b"X-A: b\0c\r\n\r\n",
    "NUL in a name": GET + b"X\0A: b\r\n\r\n",
    "NUL in a length": HEAD + b"Content-Length: 1\x005\r\n\r\n" + BODY,
    "NUL in the path": b"GET /health\0x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "%00 in the path": b"GET /health%00x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a control in a value": GET + b"X-A: \x01\r\n\r\n",
    "DEL in a value": GET + b"X-A: \x7f\r\n\r\n",
    "space before the colon": HEAD + b"Content-Length : 15\r\n\r\n" + BODY,
    "space before the colon of a coding": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab before the colon": HEAD + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "no name": GET + b": x\r\n\r\n",
    "no colon": GET + b"X-A\r\n\r\n",
    "two hosts": GET + b"Host: other\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two origins": GET + b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n",
    "two keys": GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two types": HEAD + b"Content-Type: text/plain\r\n" + LENGTH + b"\r\n" + BODY,
    "two lengths": HEAD + LENGTH + b"Content-Length: 0\r\n\r\n" + BODY + HIDDEN,
    "the same length twice": HEAD + LENGTH + LENGTH + b"\r\n" + BODY + HIDDEN,
    "a list of lengths": HEAD + b"Content-Length: 15, 15\r\n\r\n" + BODY + HIDDEN,
    "length and chunks": HEAD + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunks and length": CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a length with a sign": HEAD + b"Content-Length: +15\r\n\r\n" + BODY + HIDDEN,
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n" + BODY + HIDDEN,
    "a length in hex": HEAD + b"Content-Length: 0xf\r\n\r\n" + BODY + HIDDEN,
    "a length with an underscore": HEAD + b"Content-Length: 1_5\r\n\r\n" + BODY + HIDDEN,
    "an empty length": HEAD + b"Content-Length: \r\n\r\n" + BODY + HIDDEN,
    "a length of 30 digits": HEAD + b"Content-Length: " + b"0" * 28 + b"15\r\n\r\n" + BODY + HIDDEN,
    "a length behind many spaces": HEAD + b"Content-Length:" + b" " * 90 + b"15\r\n\r\n" + BODY + HIDDEN,
    "another coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\n" + HIDDEN,
    "chunked twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "identity and chunked": HEAD + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked in two headers": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked and something": HEAD + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a coding with a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a coding in quotes": HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + HIDDEN,
    "chunks in HTTP/1.0": CHUNKED.replace(b"/1.1", b"/1.0") + b"\r\n0\r\n\r\n" + HIDDEN,
    "a body with an encoding": HEAD + b"Content-Encoding: gzip\r\n" + LENGTH + b"\r\n" + BODY,
    "a chunk's size without CR": CHUNKED + b"\r\nf\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk without CR": CHUNKED + b"\r\nf\r\n" + BODY + b"\n0\r\n\r\n",
    "the last chunk without CR": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\n\r\n",
    "the end of chunks without CR": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\n\n" + HIDDEN,
    "an extension without CR": CHUNKED + b"\r\nf;a=b\n" + BODY + b"\r\n0\r\n\r\n",
    "a CR in an extension": CHUNKED + b"\r\nf;a\rb\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk with 0x": CHUNKED + b"\r\n0xf\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk with a sign": CHUNKED + b"\r\n+f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a space before a chunk's size": CHUNKED + b"\r\n f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a space behind a chunk's size": CHUNKED + b"\r\nf \r\n" + BODY + b"\r\n0\r\n\r\n",
    "no chunk's size": CHUNKED + b"\r\n\r\n" + HIDDEN,
    "only an extension": CHUNKED + b"\r\n;a=b\r\n" + HIDDEN,
    "a chunk of 2^64 + 15": CHUNKED + b"\r\n1000000000000000f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"\r\ne\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a folded trailer": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nX: y\r\n z\r\n\r\n",
    "a trailer without CR": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nX: y\n\r\n",
    "a name beyond ASCII": GET + b"\xefX-A: b\r\n\r\n",
    "a length's name with NEL": HEAD + b"Content-Length\x85: 15\r\n\r\n" + BODY,
    "a name in brackets": GET + b"X-A[]: b\r\n\r\n",
    "a name of separators": GET + b"(),/;<=>?@{}: b\r\n\r\n",
    "a name on two lines": HEAD + b"Transfer-\r\nEncoding: chunked\r\n\r\n0\r\n\r\n",
    "a space for the colon": HEAD + b"Content-Length 15\r\n\r\n" + BODY,
    "neither name nor value": GET + b":\r\nX-A: b\r\n\r\n",
    "a CR and a letter end the header": GET + b"\rZ" + HIDDEN,
    "a line of a space": b"GET /health HTTP/1.1\r\n \r\nHost: localhost\r\n\r\n",
    "the first line ends with CR": b"GET /health HTTP/1.1\rHost: localhost\r\n\r\n",
    "CR in the version": b"GET /health HTTP/\r\r1.1\r\nHost: localhost\r\n\r\n",
    "a line end within the first line": b"GET /health\nHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a length and more": HEAD + b"Content-Length: 15Z\r\n\r\n" + BODY + HIDDEN,
    "a length with a space": HEAD + b"Content-Length: 1 5\r\n\r\n" + BODY + HIDDEN,
    "a length in octal": HEAD + b"Content-Length: 0o17\r\n\r\n" + BODY + HIDDEN,
    "a length of minus zero": HEAD + b"Content-Length: -0\r\n\r\n" + HIDDEN,
    "a length of letters": HEAD + b"Content-Length: abc\r\n\r\n" + HIDDEN,
    "a length beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + HIDDEN,
    "an empty length, then another": HEAD + b"Content-Length: \r\n" + LENGTH + b"\r\n" + BODY + HIDDEN,
    "three lengths in a list": HEAD + b"Content-Length: 15, 15, 15\r\n\r\n" + BODY + HIDDEN,
    "a comma before the coding": HEAD + b"Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a comma behind the coding": HEAD + b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked before gzip": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + HIDDEN,
    "identity alone": HEAD + b"Transfer-Encoding: identity\r\n\r\n" + HIDDEN,
    "an empty coding": HEAD + b"Transfer-Encoding: \r\n\r\n" + HIDDEN,
    "xchunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a coding between no-break spaces": HEAD + b"Transfer-Encoding: \xa0chunked\xa0\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a coding between high bytes": HEAD + b"Transfer-Encoding: \xffchunked\xff\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a coding with a form feed": HEAD + b"Transfer-Encoding: \x0cchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a coding with NUL": HEAD + b"Transfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n" + HIDDEN,
    "an unknown coding and a length": HEAD + b"Transfer-Encoding: blegh\r\n" + LENGTH + b"\r\n" + BODY + HIDDEN,
    "chunked and identity in two headers": CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a negative chunk": CHUNKED + b"\r\n-f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a negative zero chunk": CHUNKED + b"\r\n-0x0\r\n\r\n" + HIDDEN,
    "a chunk's size with an underscore": CHUNKED + b"\r\n0_f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk's size and letters": CHUNKED + b"\r\nfthese-bytes\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk's size of letters": CHUNKED + b"\r\nINVALID!!!\r\n" + HIDDEN,
    "CR CR before an extension": CHUNKED + b"\r\nf\r\r;ABCD\r\n" + BODY + b"\r\n0\r\n\r\n",
    "CR CR in an extension": CHUNKED + b"\r\nf;a=b\r\r" + b"X" * 13 + b"\r\n0\r\n\r\n",
    "a CR and a letter end a chunk's size": CHUNKED + b"\r\nf\rX" + BODY + b"\r\n0\r\n\r\n",
    "a control in an extension": CHUNKED + b"\r\nf;a=\x01\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk that has no end": CHUNKED + b"\r\nf\r\n" + BODY + b"0\r\n\r\n",
    "an empty line before the last chunk": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n\r\n0\r\n\r\n",
    "letters for the end of chunks": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nXX" + HIDDEN,
    "a trailer without a colon": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nXX\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target without a slash": b"GET %2fhealth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target that begins with a question mark": b"GET ?health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an empty target": b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two spaces before the target": b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space behind the version": b"GET /health HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    "no version": b"GET /health \r\nHost: localhost\r\n\r\n",
    "a tab for a space": b"GET\t/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a method of separators": b'G=":<>(e),[T];?" /health HTTP/1.1\r\nHost: localhost\r\n\r\n',
    "NUL as method": b"\0 /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "letters before the message": b"Extra lineGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/1": b"GET /health HTTP/1\r\nHost: localhost\r\n\r\n",
    "HTTP/9.9": b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "HTTP/4294967297.257": b"GET /health HTTP/4294967297.257\r\nHost: localhost\r\n\r\n",
    "a version of points": b"GET /health HTTP/............0596.7407.\r\nHost: localhost\r\n\r\n",
    "a path of 64 KiB": b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a value of 64 KiB": GET + b"X-A: " + b"a" * 65536 + b"\r\n\r\n",
    "a space behind a length": HEAD + b"Content-Length: 15 \r\n\r\n" + BODY,           # that is allowed, but libmicrohttpd refuses it with two headers
    "a name of 64 KiB": GET + b"a" * 65536 + b": b\r\n\r\n",
    "10,000 headers": GET + b"X-A: b\r\n" * 10000 + b"\r\n",
    "a query of 1,000 arguments": b"GET /health?" + b"a=b&" * 1000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an extension of 64 KiB": CHUNKED + b"\r\nf;a=" + b"b" * 65536 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a trailer of 64 KiB": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nX: " + b"b" * 65536 + b"\r\n\r\n",
    "10,000 trailers": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\n" + b"X: y\r\n" * 10000 + b"\r\n",
    "HTTP/1.2": b"GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/01.1": b"GET /health HTTP/01.1\r\nHost: localhost\r\n\r\n",
    "http/1.1": b"GET /health http/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/1.1 and more": b"GET /health HTTP/1.1x\r\nHost: localhost\r\n\r\n",
    "two spaces": b"GET /health x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a ClientHello": bytes.fromhex("16030100c8010000c40303") + bytes(range(64)),
    "only NULs": bytes(64),
}
TAKEN = {
    "a length": HEAD + LENGTH + b"\r\n" + BODY,
    "empty lines before": b"\r\n\r\n" + HEAD + LENGTH + b"\r\n" + BODY,
    "spaces around a length": HEAD + b"Content-Length:  15\r\n\r\n" + BODY,
    "one chunk": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunks": CHUNKED + b"\r\n00A\r\n" + BODY[:10] + b"\r\n5\r\n" + BODY[10:] + b"\r\n000\r\n\r\n",
    "Chunked": HEAD + b"tRANSFER-eNCODING: Chunked\r\n\r\nF\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an extension": CHUNKED + b'\r\nf;a="b"\r\n' + BODY + b"\r\n0;x\r\n\r\n",
    "trailers": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nX-T: Content-Length\r\nContent-Length: 5\r\n\r\n",
    "identity": HEAD + b"Content-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY,
    "letters beyond ASCII": HEAD + "X-A: é\r\n".encode() + LENGTH + b"\r\n" + BODY,
    "tabs in a value": HEAD + b"X-A:\tb\tc\r\n" + LENGTH + b"\r\n" + BODY,
    "zeros before a length": HEAD + b"Content-Length: 0015\r\n\r\n" + BODY,
    "a tab before a length": HEAD + b"Content-Length:\t15\r\n\r\n" + BODY,

    "an underscore is another name": HEAD + b"Transfer_Encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
    "an empty extension": CHUNKED + b"\r\nf;\r\n" + BODY + b"\r\n0\r\n\r\n",
    "trailers that would be headers": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nTransfer-Encoding: chunked\r\nHost: evil.example\r\nAuthorization: Bearer x\r\n\r\n",
    "a trailer like a message": CHUNKED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nX:POST / HTTP/1.1\r\n\r\n",
    "an empty value": HEAD + b"X-A:\r\n" + LENGTH + b"\r\n" + BODY,
    "a GET with a body": GET + LENGTH + b"\r\n" + BODY,
    "a GET with a message as its body": GET + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "HTTP/1.0": HEAD.replace(b"/1.1", b"/1.0") + LENGTH + b"\r\n" + BODY,
}


@pytest.fixture(scope="module", params=["plain", "TLS"])
def server(request, weft, weft_env, tinypy, tmp_path_factory):
    log = tmp_path_factory.mktemp("framing") / "log"
    tls = request.getfixturevalue("certificate") if request.param == "TLS" else None
    options = ("--ssl-key-file", tls[0], "--ssl-cert-file", tls[1]) if tls else ()
    with Server(weft, weft_env, tinypy, "--log-file", log, *options) as s:
        s.log, s.trusted = log, tls and ssl.create_default_context(cafile=str(tls[1]))
        yield s


def connect(server):
    c = server.connect()
    return server.trusted.wrap_socket(c, server_hostname="localhost") if server.trusted else c


def answers(server, pieces):
    """(statuses, the last body): what comes for these bytes until the server closes."""
    got = b""
    with connect(server) as c:
        c.settimeout(20)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for piece in pieces:
                c.sendall(piece)
                time.sleep(0.0005 * (len(pieces) > 1))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while part := c.recv(65536):
                got += part
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)], got.split(b"\r\n\r\n", 1)[-1]


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_what_two_readers_could_read_differently_is_refused(server):
    answers(server, [HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
    before, wrong = descriptors(server), {}
    for name, message in REFUSED.items():
        statuses, body = answers(server, [message + b"\r\n" + HIDDEN])
        if len(statuses) != 1 or statuses[0] not in (400, 413, 414, 415, 431, 501, 505) or body.count(b"\n") > 1 or b"HTTP/1.1 4" in body:
            wrong[name] = statuses, body[:200]
    assert not wrong
    end = time.monotonic() + 20
    while descriptors(server) > before:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_is_refused_may_follow_what_is_taken(server):
    for behind in (b"\0", b"Invalid\r\n\r\n", b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n"):
        statuses, _ = answers(server, [TAKEN["one chunk"], behind + HIDDEN])
        assert statuses == [200, 400], (behind, statuses)


def test_line_ends_of_a_path_reach_no_header(server):
    with connect(server) as c:
        c.sendall(b"GET /a%0d%0aX-Injected:%20true%0a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        got = b""
        while part := c.recv(65536):
            got += part
    assert b" 404 " in got and b"\nX-Injected" not in got
    assert not any(line.startswith("X-Injected") for line in server.log.read_text().splitlines())


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_what_is_clear_is_taken(server, cut):
    """Whole, byte by byte, and in pieces; two messages on a connection are two answers."""
    for name, message in TAKEN.items():
        both = message + (GET + b"Connection: close\r\n\r\n" if b"/1.0" not in message else b"")
        pieces = [both[i : i + cut] for i in range(0, len(both), cut)] if cut else [both]
        statuses, body = answers(server, pieces)
        assert statuses == [200] * (1 if b"/1.0" in message else 2), (name, statuses, body)


@pytest.mark.parametrize("cut", [0, 1])
def test_cookies_are_nobodys(server, cut):
    """Browsers send those of every program on this host: one answer, however many there are and whatever they hold, and what follows is read."""
    end = GET + b"Connection: close\r\n\r\n"
    for n in (1, 99, 100, 101, 500, 1000, 3000):
        for name in (b"Cookie", b"cookie", b"COOKIE"):
            for value in (b"a=b; " * n, b"," * n, b"a" * 4 * n, b'a="' + b"b;" * n):
                both = GET + name + b": " + value + b"\r\n\r\n" + end
                statuses, body = answers(server, [both[i : i + cut] for i in range(0, len(both), cut)] if cut and n == 100 else [both])
                assert statuses == [200, 200], (n, name, value[:9], statuses, body[:200])
    statuses, body = answers(server, [GET + b"Cookie: a=b\r\nCookie: " + b"a=b; " * 6000 + b"\r\n\r\n" + end])
    assert statuses in ([431], [200, 200]) and b"HTTP/1.1 4" not in body, (statuses, body[:200])


def test_a_refusal_is_in_the_log(server):
    answers(server, [REFUSED["a chunk without CR"]])
    answers(server, [REFUSED["all lines without CR"]])
    end = time.monotonic() + 20
    wanted = {'malformed reason="a line ends without CR"', "POST /tokenize 400"}
    while not wanted <= set(re.findall(r'malformed reason="[^"]*"|POST /tokenize 400', server.log.read_text())):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert answers(server, [TAKEN["HTTP/1.0"]])[0] == [200]


# ---- TLS -------------------------------------------------------------------------------------------------------------------


def half_closed(server, message):
    """What comes behind a message, an end of the TLS session's writing half, and one of TCP's."""
    with server.connect() as c:
        read, write = ssl.MemoryBIO(), ssl.MemoryBIO()
        session, got = server.trusted.wrap_bio(read, write, server_hostname="localhost"), b""

        def go_on(what):
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    return what()
                c.sendall(write.read())
                part = c.recv(65536)
                read.write(part) if part else read.write_eof()

        go_on(session.do_handshake)
        session.write(message)
        with contextlib.suppress(ssl.SSLWantReadError):
            session.unwrap()                                # says that nothing follows, and does not wait for the answer
        c.sendall(write.read())
        c.shutdown(socket.SHUT_WR)
        while part := c.recv(65536):
            read.write(part)
        with contextlib.suppress(ssl.SSLError):
            while part := session.read(65536):
                got += part
        return got


@pytest.mark.parametrize("server", ["TLS"], indirect=True)     # (test_serve_load.py has the plain ones)
def test_a_half_closed_client_of_tls_is_answered(server):
    before = descriptors(server)
    for fields in {}, {"stream": True}:
        body = json.dumps({"prompt": "def ", "max_tokens": 60, "temperature": 0, "ignore_eos": True, **fields}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        got = half_closed(server, head.encode() + body)
        assert b"HTTP/1.1 200" in got and (b"[DONE]" in got if fields else json.loads(got.split(b"\r\n\r\n")[-1])["usage"]["completion_tokens"] == 60), got
    assert b"HTTP/1.1 200" in half_closed(server, HIDDEN)
    end = time.monotonic() + 20
    while descriptors(server) > before:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("server", ["TLS"], indirect=True)
def test_clients_that_offer_http2_get_http1(server, certificate):
    """curl and openssl offer h2 and http/1.1 by ALPN."""
    url = f"https://localhost:{server.port}/health"
    for program, args, says in (("curl", ["curl", "-sS", "--http2", "--cacert", certificate[1], "-w", "%{http_version} %{http_code}", "-o", "/dev/null", url], "1.1 200"),
                                ("openssl", ["openssl", "s_client", "-quiet", "-alpn", "h2,http/1.1", "-CAfile", certificate[1], "-connect", f"localhost:{server.port}"], "HTTP/1.1 200")):
        if not shutil.which(program):
            continue
        done = subprocess.run(args, input=HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), capture_output=True, timeout=60)
        assert says in done.stdout.decode(), (program, done)
