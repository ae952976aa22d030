"""A browser without a window, driven through its debugging pipe: enough of the protocol to open a page from a file, click, press keys, look, and hear of
every error.  The browser is Chromium as Debian packages it (chromium-headless-shell, or chromium)."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """path of a browser, or None"""
    return next((path for name in ("chromium-headless-shell", "chromium", "google-chrome") if (path := shutil.which(name))), None)


class Browser:
    """with Browser() as b: b.open(path); b.eval("1 + 1"); b.click("#x"); b.press("j"); b.errors"""

    def __init__(self, width=1440, height=900, *more):
        self.errors, self.requests, self.number, self.pending = [], [], 0, b""
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars", "--disable-extensions",
                   "--disable-background-networking", "--no-first-run", f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", *more, "about:blank"]

        def ends():                       # the browser reads from 3 and writes to 4
            a, b = os.dup(to_read), os.dup(back_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen([find(), *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=ends)
        os.close(to_read)
        os.close(back_write)
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    def message(self, timeout=120):
        end = time.monotonic() + timeout
        while b"\0" not in self.pending:
            if not select.select([self.back], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.back, 1 << 20)
            if not got:
                raise EOFError("the browser ended")
            self.pending += got
        text, self.pending = self.pending.split(b"\0", 1)
        return json.loads(text)

    def hear(self, m):
        p = m.get("params", {})
        if m.get("method") == "Runtime.exceptionThrown":
            self.errors.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"])
        elif m.get("method") == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
        elif m.get("method") == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.errors.append(p["entry"]["text"])
        elif m.get("method") == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while (m := self.message()).get("id") != self.number:
            self.hear(m)
        if "error" in m:
            raise RuntimeError(f"{method}: {m['error']}")
        return m["result"]

    def open(self, path):
        self.call("Page.navigate", url=f"file://{path}")
        self.until("document.readyState === 'complete'")

    def eval(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def until(self, expression, timeout=120):
        end = time.monotonic() + timeout
        while not self.eval(f"!!({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(.02)

    def click(self, selector):
        """A press of the mouse in the middle of the element, wherever that goes."""
        box = self.eval(f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))")
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left" if kind != "mouseMoved" else "none", buttons=buttons, clickCount=1)

    def press(self, key):
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
