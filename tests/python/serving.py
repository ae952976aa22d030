"""A server under test: weft serve on a port of its own, and raw HTTP to it."""
import contextlib
import gzip
import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

TEMPLATE = "{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}# assistant\n{% endif %}"


def sanitizer_report(text):
    marks = "ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "WARNING: ThreadSanitizer"
    return any(mark in text for mark in marks)



def until(true, seconds=60, pause=0.02):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(pause)


class Server:
    def __init__(self, weft, env, model, *args, options=()):
        command = [weft, *options, "serve", *(["-m", str(model)] if model else []), *([] if "--host" in args else ["--port", "0"]), *map(str, args)]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said, self.url, self.is_ready = [], None, threading.Event()
        self.listens = threading.Event()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        assert self.listens.wait(120), self.said

    def listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            if m := re.match(r"weft: listening on (\S+)", line):
                self.url = m.group(1)
                self.port = int(self.url.rsplit(":", 1)[1]) if self.url.startswith("http") else None
                self.listens.set()
            if line.startswith("weft: ready"):
                self.is_ready.set()
        self.listens.set()
        self.is_ready.set()

    def ready(self):
        assert self.is_ready.wait(300) and self.process.poll() is None, self.said
        return self

    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self.ready()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.check_for_reports()

    def end(self, how=signal.SIGTERM, timeout=60):
        self.process.send_signal(how)
        status = self.process.wait(timeout)
        self.check_for_reports()
        assert status >= 0 or status == -how, (status, "".join(self.said))      # killed by a signal that nobody sent
        return status

    def check_for_reports(self):
        self.listener.join(10)
        said = "".join(self.said)
        assert not sanitizer_report(said), said

    def ask(self, path, body=None, method=None, timeout=120, **headers):
        """(status, JSON or text)"""
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        r = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(r, timeout=timeout) as got:
                status, self.headers, text = got.status, got.headers, got.read()
        except urllib.error.HTTPError as e:
            status, self.headers, text = e.code, e.headers, e.read()
        if self.headers["Content-Encoding"] == "gzip":
            text = gzip.decompress(text)
        with contextlib.suppress(ValueError):
            return status, json.loads(text)
        return status, text.decode()

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return s

    def raw(self, data, more=b"", wait=True):
        """What comes back for these bytes, until the server closes or an answer is there."""
        with self.connect() as s:
            with contextlib.suppress(ConnectionError):       # it may have refused what it has read, and not read the rest
                s.sendall(data)
                if more:
                    s.sendall(more)
            got = b""
            with contextlib.suppress(ConnectionError, socket.timeout):
                while b"\r\n\r\n" not in got if wait else True:
                    part = s.recv(65536)
                    if not part:
                        break
                    got += part
            return got

    def metric(self, name):
        text = self.ask("/metrics")[1]
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M).group(1))
