"""A server with models: a repository user/repo as Hugging Face has them, a model tiny as ollama's registry has it, and plain addresses.

It can cut a connection, send wrong bytes, redirect to another host, ask for a token, forget what a Range is, and lie about sizes.
"""
import hashlib
import json
import re
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from serving import until


def is_large(path):
    """Such files are stored by their SHA-256, others by git's name of their content."""
    return path.endswith((".gguf", ".safetensors"))


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def tree_of(files):
    """What /api/models/USER/REPO/tree/main?recursive=true answers."""
    folders = sorted({path.rsplit("/", 1)[0] for path in files if "/" in path})
    rows = [{"type": "directory", "oid": git_name(path.encode()), "size": 0, "path": path} for path in folders]
    for path, data in files.items():
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        rows.append({"type": "file", "oid": git_name(data), "size": len(data), **({"lfs": lfs} if is_large(path) else {}), "path": path})
    return rows


class Registry:
    """files: {path in user/repo: bytes}; certificate: a file with it and its key, for https; what goes wrong is set by the tests."""

    def __init__(self, files, host="127.0.0.1", certificate=None):
        self.files, self.asked, self.cut_after, self.cuts, self.token = files, [], None, 0, None
        self.wrong, self.redirect, self.no_range, self.tree, self.gone, self.length, self.etag, self.odd, self.next = False, None, False, None, 0, None, True, None, None
        self.type = None                                                                           # Content-Type of files
        self.total = None                                                                          # what a Content-Range says of the whole
        self.projector = None                                                                      # of ollama's model
        self.lost = set()                                                                          # paths of others that are listed and not there
        self.others = {}                                                                           # {"USER/REPO": {path: bytes}}, "": by the query
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                registry.answer(self)

            def do_HEAD(self):
                registry.head(self)

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.peers = []
        self.server.verify_request = lambda _, peer: self.peers.append(peer) or True
        self.url = f"http://{host}:{self.server.server_address[1]}"
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            self.server.handle_error = lambda *_: None                                             # a client that hangs up
            self.url = self.url.replace("http:", "https:")
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def connections(self):
        """How many were made so far. They are taken up in turn: one of our own comes last."""
        with socket.create_connection(self.server.server_address) as mine:
            until(lambda: mine.getsockname() in self.peers)
            return self.peers.index(mine.getsockname())

    def send(self, h, status, body, headers=()):
        h.send_response(status)
        for name, value in headers:
            h.send_header(name, value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def answer(self, h):
        self.asked.append((h.path, dict(h.headers)))
        if self.token and h.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(h, 401, b"no")
        if m := re.fullmatch(r"/(?:api/models/)?([\w.-]+/[\w.-]+)/(?:tree/main\?.*|resolve/main/(.*))", h.path):
            if m[1] in self.others:
                files = self.others[m[1]]
                if m[2] in self.lost:
                    return self.send(h, 404, b"nothing")
                if not m[2]:
                    return self.send(h, 200, json.dumps(tree_of(files)).encode())
                return self.send(h, 200, files[m[2]], [] if is_large(m[2]) else [("ETag", f'"{git_name(files[m[2]])}"')])
        if h.path.startswith("/get?"):
            return self.send(h, 200, self.others[""][h.path[5:]])
        if h.path.startswith("/api/models/user/repo/tree/main"):
            tree = self.tree if self.tree is not None else [
                {"type": "file", "path": path, "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}} for path, data in self.files.items()]
            return self.send(h, 200, json.dumps(tree).encode())
        if m := re.fullmatch(r"/v2/(library|user)/tiny/manifests/(latest|q8)", h.path):
            data = self.files["tiny-Q8_0.gguf"]
            layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64, "size": 3},
                      {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}]
            if self.projector:
                layers.insert(0, {"mediaType": "application/vnd.ollama.image.projector", "digest": "sha256:" + hashlib.sha256(self.projector).hexdigest(), "size": len(self.projector)})
            return self.send(h, 200, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
        if m := re.fullmatch(r"/user/repo/resolve/main/(.*)", h.path):
            return self.file(h, self.files.get(m[1]))
        if m := re.fullmatch(r"/v2/library/tiny/blobs/sha256:([0-9a-f]+)", h.path):
            return self.file(h, next((d for d in self.files.values() if hashlib.sha256(d).hexdigest() == m[1]), None))
        if m := re.fullmatch(r"/plain/([^?]*)(\?.*)?", h.path):
            return self.file(h, self.files.get(m[1]))
        return self.send(h, 404, b"nothing")

    def head(self, h):
        """What huggingface_hub asks before it downloads: size, digest and commit."""
        self.asked.append((h.path, dict(h.headers)))
        m = re.fullmatch(r"/user/repo/resolve/main/(.*)", h.path)
        data = self.files.get(m[1]) if m else None
        h.send_response(404 if data is None else 200)
        if data is not None:
            h.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            h.send_header("X-Repo-Commit", hashlib.sha1(data).hexdigest())
        h.send_header("Content-Length", str(len(data or b"")))
        h.end_headers()

    def file(self, h, data):
        if data is None:
            return self.send(h, 404, b"nothing")
        if self.redirect:
            to, self.redirected = self.redirect, True
            return self.send(h, 302, b"", [("Location", to + h.path), ("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')])
        if self.odd:
            return self.send(h, self.odd, b"")
        if self.gone:
            self.gone -= 1
            return self.send(h, 503, b"later")
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        if self.wrong:
            data = data[:-1] + bytes([data[-1] ^ 1])
        first = 0
        m = re.fullmatch(r"bytes=(\d+)-", h.headers.get("Range", ""))
        if m and not self.no_range and h.headers.get("If-Range", tag) == tag:
            first = int(m[1])
            if first >= len(data):
                return self.send(h, 416, b"")
        h.send_response(206 if first else 200)
        if first:
            h.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{self.total or len(data)}")
        if self.etag:
            h.send_header("ETag", tag)
        if self.type:
            h.send_header("Content-Type", self.type)
        h.send_header("Content-Length", str(self.length or len(data) - first))
        h.end_headers()
        rest = data[first:]
        if self.cuts and self.cut_after is not None:
            self.cuts -= 1
            h.wfile.write(rest[:self.cut_after])
            h.wfile.flush()
            h.close_connection = True
            if self.next:
                self.files, self.next = self.next, None
            return None
        h.wfile.write(rest)
        return None
