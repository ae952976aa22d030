"""Pictures and sounds that requests name by a URL: which hosts and addresses are fetched from, redirections, limits, and what all families of the server make of a URL.

The server that is fetched from is one of this machine. --allow-media-from names it by its address and port, which is the only way to such an address: names never lead there (`localhost` is
such a name, and is refused here). What addresses are for is compared with Python's `ipaddress`.
"""
import glob
import http.client
import http.server
import io
import ipaddress
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from serving import Server, until
from test_serve_pictures import PLAIN, ask, picture, shown

THREADS = 1


class Pictures(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.startswith("/forever"):
            self.server.asked.append(self.path)
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/slow.png":
            time.sleep(60)
        if self.path.startswith("/forever"):
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 20))
            except OSError:
                self.server.asked.append("left")
                return
        status, body = (200, self.server.files[self.path]) if self.path in self.server.files else (404, b"not here")
        self.send_response(status)
        self.send_header("Content-Length", str((40 << 20) if self.path == "/says.png" else len(body)))
        self.end_headers()
        self.wfile.write(body)


class Site(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def png(color=(9, 9, 9)):
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (60, 40), color).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def site():
    server = Site(("127.0.0.1", 0), Pictures)
    server.daemon_threads = True
    server.handle_error = lambda *_: None                              # clients that hang up
    server.asked, server.files = [], {"/a.png": png(), "/says.png": b"", "/text.png": b"hello"}
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory, site):
    folder = tmp_path_factory.mktemp("fetch")
    (folder / "plain.jinja").write_text(PLAIN)
    mmproj = pytest.importorskip("projector").write(folder / "mmproj.gguf")
    env = {**weft_env, "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    with Server(weft, env, tinypy, "--mmproj", mmproj, "--chat-template-file", folder / "plain.jinja", "--allow-media-from", f"127.0.0.1:{site.server_port},localhost:{site.server_port}",
                "--allow-media-from", "*.example.org, example.com") as s:
        yield s


def test_a_picture_is_fetched(server, site):
    """It is what the same bytes are as a data: URL, also after redirections; the proxy of the environment is not used."""
    wanted = ask(server, shown(picture()))[1]["choices"][0]["logprobs"]
    for path in "/a.png", f"/to?{site.url}/a.png", "/to?/a.png", "/to?/to?/to?/a.png":
        status, got = ask(server, shown(site.url + path))
        assert status == 200 and got["choices"][0]["logprobs"] == wanted, got
    assert ask(server, shown(f"http://0x7f.1:{site.server_port}/a.png"))[0] == 200       # the same address, as libcurl reads it


def test_slow_hosts_do_not_hold_what_writes_answers(server, site):
    """More requests than there are threads, in the form of ollama, whose models are found by the request's own code: /health and /v1/models answer at once."""
    left, asked = threading.Event(), json.dumps({"model": "m", "stream": False, "messages": shown(f"{site.url}/slow.png")})

    def wait_for_it():
        c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        c.request("POST", "/api/chat", asked, {"Content-Type": "application/json"})
        left.wait(120)
        c.close()

    threads, before = [threading.Thread(target=wait_for_it) for _ in range(60)], len(site.asked)
    for t in threads:
        t.start()
    try:
        until(lambda: len(site.asked) - before >= 32, pause=0.2)
        assert server.ask("/health", timeout=5)[0] == 200 and server.ask("/v1/models", timeout=5)[0] == 200
    finally:
        left.set()
        for t in threads:
            t.join()


def test_all_families(server, site):
    """URLs by the clients of OpenAI (chat, Responses) and Anthropic."""
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    url, text = site.url + "/a.png", "def f("
    one = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    wanted = one.chat.completions.create(model="model", temperature=0, max_tokens=8, messages=shown(url)).choices[0].message.content
    asked = len(site.asked)
    answer = one.responses.create(model="model", temperature=0, max_output_tokens=8, input=[{"role": "user", "content": [
        {"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": text}]}])
    assert answer.output_text == wanted
    message = anthropic.Anthropic(base_url=server.url, api_key="none").messages.create(model="model", extra_body={"temperature": 0}, max_tokens=8, messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": url}}, {"type": "text", "text": text}]}])
    assert message.content[0].text == wanted
    assert len(site.asked) == asked + 2
    for part in {"type": "input_audio", "input_audio": {"url": url}}, {"type": "audio_url", "audio_url": {"url": url}}:
        status, got = ask(server, [{"role": "user", "content": [part, {"type": "text", "text": text}]}])
        assert status == 200 and got["choices"][0]["message"]["content"] == wanted, got      # what it is, the content says


REFUSED = [("http://127.0.0.1:{other}/a.png", "--allow-media-from does not name it"), ("http://[::1]:{port}/a.png", "--allow-media-from does not name it"),
           ("http://localhost:{port}/a.png", "an address that is not of the Internet"), ("http://LOCALHOST.:{port}/a.png", "cannot be fetched"),
           ("http://example.net/a.png", "example.net, port 80: --allow-media-from does not name it"), ("http://example.org/a.png", "--allow-media-from does not name it"),
           ("http://a.example.org:8080/a.png", "port 8080: --allow-media-from does not name it"), ("http://example.com.evil.net/a.png", "does not name it"),
           ("http://user@127.0.0.1:{port}/a.png", "a user name"), ("http://example.com@169.254.169.254/a.png", "a user name"), ("http://169.254.169.254/latest", "does not name it"),
           ("http://[::ffff:127.0.0.1]:{port}/a.png", "does not name it"), ("ftp://127.0.0.1:{port}/a.png", "only http and https"), ("gopher://127.0.0.1:{port}/a.png", "cannot be fetched"),
           ("file:///etc/passwd", "nothing is fetched"), ("FILE:/etc/passwd", "nothing is fetched"), ("http://", "cannot be fetched"), ("http://127.0.0.1:{port}\\@example.com/", "cannot be fetched"),
           ("{url}/to?http://localhost:{port}/a.png", "an address that is not of the Internet"), ("{url}/to?http://169.254.169.254/latest", "does not name it"),
           ("{url}/to?file:///etc/passwd", "only http and https"), ("{url}/to?/to?/to?/to?/a.png", "leads on more than 3 times"),
           ("{url}/none.png", "HTTP 404"), ("{url}/says.png", "more than 33554432 bytes"), ("{url}/text.png", "no picture (PNG, JPEG, WebP)"),
           ("http://127.0.0.1:{closed}/a.png", "does not name it"), ("http://127.0.0.1:{port}/" + "a" * 9000, "8192 are the most"),
           ("http://127.0.0.1:{port}/a\0b.png", "a NUL")]


@pytest.mark.parametrize(("url", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_fetched(server, site, url, words):
    asked = len(site.asked)
    status, got = ask(server, shown(url.format(url=site.url, port=site.server_port, other=site.server_port ^ 1, closed=9)))
    assert status == 400 and words in got["error"]["message"] and got["error"]["param"] == "messages[0].content", got
    if "{url}" not in url:
        assert len(site.asked) == asked


METRICS = 16384     # the answer with the figures counts as well, and grows with them


def test_limits(server, site):
    """A file without an end is cut at 32 MiB; what takes longer than 10 s is given up, and others are answered meanwhile."""
    held = server.metric("weft:request_memory_bytes")
    status, got = ask(server, shown(site.url + "/forever.png"))
    assert status == 400 and "more than 33554432 bytes" in got["error"]["message"]
    answers = []
    slow = [threading.Thread(target=lambda: answers.append(ask(server, shown(site.url + "/slow.png")))) for _ in range(4)]
    for one in slow:
        one.start()
    before = time.monotonic()
    assert ask(server, shown(picture()))[0] == 200 and time.monotonic() - before < 8
    for one in slow:
        one.join()
    assert all(status == 400 and "takes more than 10 s" in got["error"]["message"] for status, got in answers), answers
    until(lambda: server.metric("weft:request_memory_bytes") <= held + METRICS, 10)


def read_proc(path):
    """The text of a file of /proc; a process or a thread that has ended meanwhile has none."""
    try:
        with open(path) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children_of(pid):
    return [int(child) for path in glob.glob(f"/proc/{pid}/task/*/children") for child in read_proc(path).split()]


def fetcher(server):
    return next(pid for pid in children_of(server.process.pid) if read_proc(f"/proc/{pid}/comm") == "weft-fetcher\n")


def test_who_leaves_is_not_waited_for(server, site):
    """32 requests wait for the network at once, others are answered meanwhile, and the next one hears of it. Clients that close their connections, as all do: their children end, what they held is given back."""
    held = server.metric("weft:request_memory_bytes")
    host, clients = server.url.removeprefix("http://"), []
    body = json.dumps({"messages": shown(site.url + "/slow.png"), "max_tokens": 8})
    for _ in range(40):
        clients.append(http.client.HTTPConnection(host, timeout=60))
        clients[-1].request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    sockets = [one.sock for one in clients]
    until(lambda: len(select.select(sockets, [], [], 0)[0]) == 8, 9)
    for one in clients:
        if one.sock in select.select([one.sock], [], [], 0)[0]:
            answer = one.getresponse()
            assert answer.status == 503 and b"too many wait" in answer.read()
    assert ask(server, shown(picture()))[0] == 200
    for one in clients:
        one.close()
    until(lambda: server.metric("weft:request_memory_bytes") <= held + METRICS, 6)
    until(lambda: not children_of(fetcher(server)), 3)


def test_a_fetcher_that_has_ended(weft, weft_env, tinypy, tmp_path, site):
    """The answer says so, and everything else goes on."""
    (tmp_path / "plain.jinja").write_text(PLAIN)
    mmproj = pytest.importorskip("projector").write(tmp_path / "mmproj.gguf")
    with Server(weft, weft_env, tinypy, "--mmproj", mmproj, "--chat-template-file", tmp_path / "plain.jinja", "--allow-media-from", f"127.0.0.1:{site.server_port}") as s:
        os.kill(fetcher(s), signal.SIGKILL)
        until(lambda: "process that fetches has ended" in ask(s, shown(site.url + "/a.png"))[1].get("error", {}).get("message", ""), 10)
        assert ask(s, shown(site.url + "/a.png"))[0] == 503 and ask(s, shown(picture()))[0] == 200
        assert s.end() == 0


def test_an_address_that_is_named_beside_any_host(weft, weft_env, tinypy, tmp_path, site):
    """`*` is any host of the Internet; what is named literally is fetched from as well, in any order."""
    (tmp_path / "plain.jinja").write_text(PLAIN)
    mmproj = pytest.importorskip("projector").write(tmp_path / "mmproj.gguf")
    with Server(weft, weft_env, tinypy, "--mmproj", mmproj, "--chat-template-file", tmp_path / "plain.jinja", "--allow-media-from", f"*:{site.server_port},127.0.0.1:{site.server_port}") as s:
        assert ask(s, shown(site.url + "/a.png"))[0] == 200
        for host in "localhost", "[::1]":
            status, got = ask(s, shown(f"http://{host}:{site.server_port}/a.png"))
            assert status == 400 and "not of the Internet" in got["error"]["message"]


def test_https(weft, weft_env, tinypy, tmp_path, site):
    """Certificates are checked, by the authorities that SSL_CERT_FILE names; no redirection leads back to http."""
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1",
                           "-addext", "subjectAltName=IP:127.0.0.1"], capture_output=True) if shutil.which("openssl") else None
    if made is None or made.returncode:
        pytest.skip("openssl is not installed")
    safe = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures)
    safe.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    safe.socket = context.wrap_socket(safe.socket, server_side=True)
    safe.asked, safe.files = [], site.files
    threading.Thread(target=safe.serve_forever, daemon=True).start()
    (tmp_path / "plain.jinja").write_text(PLAIN)
    mmproj = pytest.importorskip("projector").write(tmp_path / "mmproj.gguf")
    hosts = f"127.0.0.1:{safe.server_port},127.0.0.1:{site.server_port}"
    url = f"https://127.0.0.1:{safe.server_port}"
    for known in True, False:
        env = {**weft_env, **({"SSL_CERT_FILE": str(tmp_path / "cert.pem")} if known else {})}
        with Server(weft, env, tinypy, "--mmproj", mmproj, "--chat-template-file", tmp_path / "plain.jinja", "--allow-media-from", hosts) as s:
            status, got = ask(s, shown(url + "/a.png"))
            assert (status == 200) == known and (known or "ertificate" in got["error"]["message"] or "SSL" in got["error"]["message"]), got
            if known:
                assert "from https to http" in ask(s, shown(f"{url}/to?{site.url}/a.png"))[1]["error"]["message"]
                assert ask(s, shown(f"{site.url}/to?{url}/a.png"))[0] == 200
    safe.shutdown()


BAD = [("169.254.169.254:80", "link-local, metadata"), ("[fd20:ce::254]:80", "link-local, metadata"), ("[fe80::1]:80", "link-local, metadata"), ("0.0.0.0:80", "link-local, metadata"), ("127.0.0.1", "needs its port"), ("[::1]", "needs its port"),
       ("a*.org", "not a host"), ("http://a.org", "not a host"), ("a.org:0", "not a host"), ("a.org:70000", "not a host"), ("[::1", "not a host"), ("a/b", "not a host"), ("*.", "not a host")]


@pytest.mark.parametrize(("host", "words"), BAD)
def test_hosts_that_cannot_be(run_weft, tinypy, host, words):
    done = run_weft(["serve", "-m", tinypy, "--port", 0, "--allow-media-from", host])
    assert done.returncode == 1 and words in done.err and "--allow-media-from" in done.err


def test_what_addresses_are_for(built_tool):
    """What is fetched from is of the Internet by Python's `ipaddress`; of what it calls so only a few ranges are left out."""
    left_out = [ipaddress.ip_network(n) for n in ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/3", "2001::/23", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "64:ff9b::/96", "::ffff:0:0/96")]
    draw = random.Random(7)
    nets = ["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
            "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "fe80::/10", "fc00::/7", "ff00::/8", "2001:db8::/32", "2000::/3", "100::/64", "fd00:ec2::254/128", "64:ff9b:1::/48", "5f00::/16"]
    addresses = [ipaddress.ip_address(n) for n in ("8.8.8.8", "1.1.1.1", "100.100.100.200", "2606:4700::1111", "2a00:1450:4001:80b::200e")]
    for net in map(ipaddress.ip_network, nets):
        for edge in int(net.network_address) - 1, int(net.network_address), int(net.broadcast_address), int(net.broadcast_address) + 1:
            if 0 <= edge < 1 << net.max_prefixlen:
                addresses.append((ipaddress.IPv4Address if net.version == 4 else ipaddress.IPv6Address)(edge))
    addresses += [ipaddress.IPv4Address(draw.getrandbits(32)) for _ in range(3000)] + [ipaddress.IPv6Address((1 << 125) + draw.getrandbits(125)) for _ in range(3000)]
    addresses += [ipaddress.IPv6Address((draw.getrandbits(128))) for _ in range(1000)]
    four = [a for a in addresses if a.version == 4]
    wrapped = [f"{prefix}{a}" for a in four[:400] for prefix in ("::ffff:", "64:ff9b::")]
    said = subprocess.run([built_tool("address_tool", "WEFT_ADDRESS_TOOL")], input="\n".join([*map(str, addresses), *wrapped]), capture_output=True, text=True, check=True).stdout.split()
    for a, kind in zip(addresses, said):
        if kind == "public":
            assert a.is_global, a
        elif a.is_global and (a.version == 4 or a in ipaddress.ip_network("2000::/3")):      # the rest of IPv6 is not given to anybody
            assert any(a in net for net in left_out if net.version == a.version), a
    kinds = dict(zip(map(str, addresses), said))
    assert kinds["8.8.8.8"] == kinds["2606:4700::1111"] == "public" and kinds["127.0.0.0"] == kinds["10.0.0.0"] == "private" and kinds["169.254.0.0"] == kinds["fd00:ec2::254"] == "special"
    for text, kind in zip(wrapped, said[len(addresses):]):
        assert kind == kinds[text.rsplit(":", 1)[1]], text
