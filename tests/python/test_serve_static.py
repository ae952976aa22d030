"""--path: files of a folder at /. Statuses are those of llama.cpp's own server (the one in llama-cpp-python 0.3.36) for the same folder, but where it says so."""
import http.client
import os
import subprocess
import pytest
from serving import Server

THREADS = 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    at = tmp_path_factory.mktemp("static") / "site"
    for name, text in (("index.html", "<h1>hi</h1>"), ("sub/index.html", "sub"), ("sub/a b.txt", "x"), (".git/config", "secret"), ("d d/index.html", "1"),
                       ("\u00fc.css", "h"), ("health", "no"), ("empty/x", "x"), ("../outside", "secret")):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    (at / "big.bin").write_bytes(os.urandom(3_000_000))
    os.symlink("/etc/passwd", at / "link")
    os.symlink("/etc", at / "links")
    os.mkfifo(at / "pipe")
    return at


@pytest.fixture(scope="module", params=[(), ("--no-sandbox",)], ids=["confined", "open"])
def server(weft, weft_env, tinypy, site, request):
    with Server(weft, weft_env, tinypy, "--path", site, "--api-key", "secret", options=request.param) as s:
        yield s


def get(server, path, method="GET"):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    c.request(method, path)
    r = c.getresponse()
    return r.status, r.getheader("Content-Type"), r.read(), r.getheader("Location")


@pytest.mark.parametrize("path, kind, text", [
    ("/", "text/html; charset=utf-8", b"<h1>hi</h1>"), ("/index.html", "text/html; charset=utf-8", b"<h1>hi</h1>"), ("/sub/", "text/html; charset=utf-8", b"sub"),
    ("/sub/a%20b.txt", "text/plain; charset=utf-8", b"x"), ("/%C3%BC.css", "text/css; charset=utf-8", b"h"), ("/d%20d/", "text/html; charset=utf-8", b"1"),
    ("/sub%2findex.html", "text/html; charset=utf-8", b"sub"), ("/index.html?v=1", "text/html; charset=utf-8", b"<h1>hi</h1>")])
def test_files(server, path, kind, text):
    assert get(server, path)[:3] == (200, kind, text) and get(server, path, "HEAD")[:3] == (200, kind, b"")


def test_a_large_file_and_folders(server, site):
    assert get(server, "/big.bin")[:3] == (200, "application/octet-stream", (site / "big.bin").read_bytes())
    assert get(server, "/sub")[0] == 308 and get(server, "/sub")[3] == "sub/" and get(server, "/d%20d")[3] == "d%20d/"         # there 301
    assert get(server, "/empty/")[0] == 404


@pytest.mark.parametrize("path", [
    "/../outside", "/sub/../../outside", "/%2e%2e/outside", "/sub/..%2f..%2foutside", "//etc/passwd", "/nothing", "/pipe", "/a%0d%0ab", "/page/chat.js", "/" + "x" * 300,
    "/link", "/links", "/links/passwd",            # there 403
    "/.git/config", "/sub/../index.html"])         # there 200
def test_nothing_else_is_seen(server, path):
    status, _, body, _ = get(server, path)
    assert status == 404 and b"secret" not in body and b"root:" not in body


def test_other_paths_are_as_they_were(server):
    assert get(server, "/health")[2] != b"no"                          # there the file
    assert get(server, "/v1/models")[0] == 401 and get(server, "/slots")[0] == 401
    assert get(server, "/index.html", "POST")[0] == 401


def test_a_folder_that_is_none(weft, weft_env, tinypy, site):
    for path in (site / "none", site / "index.html"):
        r = subprocess.run([weft, "serve", "-m", tinypy, "--port", "0", "--path", path], env=weft_env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and f"--path {path}: " in r.stderr
