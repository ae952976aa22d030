"""Pictures and sounds in the page of weft serve, in a browser without windows: attached, pasted, dropped, taken away again, sent, stored beside their conversation, exported and imported."""
import base64
import io
import json
import lzma
import wave

import pytest
import scripted
from browser import Browser, find
from serving import Server
from test_serve_page import TEMPLATE, imported, say, visit
from test_serve_pictures import PLAIN

THREADS = 1

Image = pytest.importorskip("PIL.Image")
THUMB = "document.querySelector('article.user .medium img')"


def picture(kind="PNG", size=(60, 40), color=(200, 30, 30)):
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, kind)
    return out.getvalue()


def sound(rate, seconds=0.5):
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes(bytes(2 * int(rate * seconds)))
    return out.getvalue()


def as_file(data, name, kind):
    return f"new File([Uint8Array.from(atob('{base64.b64encode(data).decode()}'), c => c.charCodeAt(0))], '{name}', {{type: '{kind}'}})"


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory):
    if not find():
        pytest.fail("no Chromium: scripts/setup.sh test installs chromium-headless-shell")
    folder = tmp_path_factory.mktemp("page")
    (folder / "plain.jinja").write_text(PLAIN)
    encoder = pytest.importorskip("projector").write(folder / "mmproj.gguf")
    with Server(weft, weft_env, tinypy, "--mmproj", encoder, "--chat-template-file", folder / "plain.jinja", "-n", "8", "--max-body", "2") as s:
        yield s


@pytest.fixture
def wide(server):
    with Browser(1440, 900) as b:
        visit(b, server)
        b.until("takes")
        yield b
        assert not b.errors and all(url.startswith((server.url, "data:", "blob:")) for url in b.requests), (b.errors, b.requests)


def chosen(b, path):
    """As the dialog of the system would do it."""
    node = b.call("DOM.querySelector", nodeId=b.call("DOM.getDocument")["root"]["nodeId"], selector="#chosen-files")["nodeId"]
    b.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)


def brought(b, event, files):
    """Files in the clipboard or under the mouse."""
    field, to, of = {"paste": ("clipboardData", "document.getElementById('input')", "ClipboardEvent"), "drop": ("dataTransfer", "document.getElementById('messages')", "DragEvent")}[event]
    adds = "".join(f"data.items.add({f});" for f in files)
    b.eval(f"(() => {{ const data = new DataTransfer(); {adds} {to}.dispatchEvent(new {of}('{event}', {{{field}: data, bubbles: true, cancelable: true}})); }})()")


@pytest.mark.parametrize("width", [1440, 820, 390])
def test_a_picture(server, width, tmp_path):
    """From the file to the answer and over a reload: the bytes that are sent are those of the file, and the server sees the same prompt that another client gets."""
    path = tmp_path / "red.png"
    path.write_bytes(picture())
    with Browser(width, 900) as b:
        b.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        visit(b, server)
        b.until("takes?.vision")
        assert b.eval("document.getElementById('attach').textContent") == "+ Picture, file" and b.eval("document.getElementById('attach').title") == "Attach text, PDF files, pictures"
        chosen(b, path)
        b.until("document.querySelector('#files .medium img')?.complete")
        brought(b, "drop", [as_file(picture("WEBP", (3000, 2000)), "wide.webp", "image/webp")])
        b.until("document.querySelectorAll('#files .medium img').length === 2")
        b.picture(tmp_path / f"attached-{width}.png")
        assert b.eval("document.documentElement.scrollWidth <= innerWidth") and b.eval("document.getElementById('send').getBoundingClientRect().right <= innerWidth")
        b.eval("document.querySelectorAll('#files button[title^=Leave]')[1].click()")
        assert b.eval("attached.map(f => f.name)") == ["red.png"]
        b.eval("settings.temperature = 0; settings.seed = 1; keepSettings()")
        say(b, "def f(", 1)
        content = b.eval("request(path(current)[0].id).then(r => r.messages[0].content)")
        assert content == [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()}}, {"type": "text", "text": "def f("}]
        theirs = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "temperature": 0})[1]
        assert b.eval("path(current)[1].content") == theirs["choices"][0]["message"]["content"] != "" and b.eval("path(current)[1].stats.prompt") == theirs["usage"]["prompt_tokens"] > 60
        visit(b, server)
        b.until(f"{THUMB}?.complete && takes")
        assert b.eval(f"{THUMB}.naturalWidth") == 60 and b.eval(f"{THUMB}.getBoundingClientRect().right <= innerWidth")
        say(b, "x", 2)
        assert b.eval("path(current)[3].stats.cached") >= theirs["usage"]["prompt_tokens"] - 1                  # the same picture: it is known
        b.click("article.user .medium")
        b.until("document.querySelector('dialog.whole img')?.naturalWidth === 60")
        b.picture(tmp_path / f"whole-{width}.png")
        b.click("dialog.whole img")
        b.until("!document.querySelector('dialog.whole')")
        b.picture(tmp_path / f"sent-{width}.png")
        assert not b.errors, b.errors


def test_where_bytes_are_stored(wide, server):
    """Not in the conversation, which is written every 2 s; they go when it goes."""
    rows = "new Promise(done => { const t = store.base.transaction('media').objectStore('media').getAllKeys(); t.onsuccess = () => done(t.result); })"
    wide.eval(f"attach([{as_file(picture('JPEG', (900, 700)), 'a.jpg', 'image/jpeg')}])")
    wide.until("attached.length === 1")
    say(wide, "def f(", 1)
    wide.until("!store.unwritten.size")
    assert wide.eval("store.get(current.id).then(c => JSON.stringify(c).length)") < 20000 and wide.eval(rows) == wide.eval("[[current.id, path(current)[0].files[0].medium]]")
    exported = wide.eval("exportJson([current]).then(parts => parts.join(''))")
    assert "![" not in wide.eval("exportMarkdown(current)") and "*(picture: a.jpg)*" in wide.eval("exportMarkdown(current)")
    wide.eval("forget(current.id)")
    wide.until("!store.heads.size")
    assert wide.eval(rows) == []
    assert wide.eval(imported(exported)) == 1
    wide.eval("openConversation(store.sorted()[0].id)")
    wide.until("path(current).length === 2")
    sent = wide.eval("request(path(current)[0].id).then(r => r.messages[0].content[0].image_url.url)")
    assert base64.b64decode(sent.partition(",")[2]) == picture("JPEG", (900, 700)) and wide.eval(rows) == wide.eval("[[current.id, path(current)[0].files[0].medium]]")
    wide.eval("store.putMedium = () => Promise.resolve(false); storeMedia(current.id, [{name: 'b.png', blob: new Blob(['x'])}])")
    wide.until("document.getElementById('notice').textContent.includes('no room for b.png')")
    wide.eval("store.getMedium = async () => undefined")
    wide.eval("document.getElementById('input').value = 'again'; send()")
    wide.until("document.querySelector('article.error .body')?.textContent.includes('a.jpg is no longer stored')")


def test_what_is_pasted(wide):
    red = as_file(picture(), "image.png", "image/png")
    brought(wide, "paste", [red])
    wide.until("attached.length === 1")
    brought(wide, "paste", ["'cells', 'text/plain'", "'<td>cells', 'text/html'", red])               # of a spreadsheet: its text is meant
    brought(wide, "paste", ["'/home/image.png', 'text/plain'", red])     # of a file manager, with its path
    wide.until("attached.length === 2")
    brought(wide, "paste", [as_file(sound(16000), "s.wav", "audio/wav")])
    wide.until("document.getElementById('notice').textContent === 's.wav cannot be attached. This model takes text, PDF files, pictures.'")
    assert wide.eval("attached.length") == 2


def test_pictures_that_are_encoded_anew(wide):
    """What the server does not decode, and what is too large for it."""
    read = "readMedium(%s).then(async f => [f.type, f.note, await dataUrl(f.blob)])"
    for kind, size, want in (("GIF", (60, 40), ("image/png", "60 x 40")), ("BMP", (60, 40), ("image/png", "60 x 40")), ("JPEG", (6000, 4000), ("image/jpeg", "6000 x 4000, made smaller"))):
        got = wide.eval(read % as_file(picture(kind, size), "x", "image/" + kind.lower()))
        shown = Image.open(io.BytesIO(base64.b64decode(got[2].partition(",")[2])))
        assert tuple(got[:2]) == want and shown.format == want[0].partition("/")[2].upper() and shown.width * shown.height <= 16e6 * 1.001
        if size == (60, 40):
            assert abs(sum(shown.convert("RGB").getpixel((9, 9))) - 260) <= 12          # GIF's palette is Pillow's
    assert "no picture that this browser" in wide.eval("readMedium(new File(['x'], 'x.png', {type: 'image/png'})).catch(e => e.message)")
    assert "cannot be attached" in wide.eval("readMedium(new File(['x'], 'x.mp4', {type: 'video/mp4'})).catch(e => e.message)")


def test_sounds(wide):
    """As they are, or, if the server does not decode them, as WAV with the rate that models take."""
    wide.eval("showTakes({vision: false, audio: true})")
    assert wide.eval("document.getElementById('attach').textContent") == "+ Sound, file"
    wide.eval(f"attach([{as_file(sound(16000), 's.wav', 'audio/wav')}, {as_file(sound(48000), 's.xyz', 'audio/xyz')}])")
    wide.until("attached.length === 2 && document.querySelectorAll('#files .medium').length === 2")
    parts = wide.eval("Promise.all(storeMedia(current.id, attached).map(f => partOf(current.id, f)))")
    assert [p["type"] for p in parts] == ["input_audio"] * 2 and [p["input_audio"]["format"] for p in parts] == ["wav"] * 2
    assert base64.b64decode(parts[0]["input_audio"]["data"]) == sound(16000)
    with wave.open(io.BytesIO(base64.b64decode(parts[1]["input_audio"]["data"]))) as w:
        assert (w.getnchannels(), w.getsampwidth(), w.getframerate(), w.getnframes()) == (1, 2, 16000, 8000)
    wide.eval("drawFiles()")
    wide.click("#files .medium")
    wide.until("document.querySelector('dialog.whole audio')?.duration === 0.5")


MICROPHONE = "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"


@pytest.fixture(scope="module")
def listener(weft, weft_env, repo, make_model, tmp_path_factory):
    """A model that takes sounds."""
    if not find():
        pytest.fail("no Chromium: scripts/setup.sh test installs chromium-headless-shell")
    folder = tmp_path_factory.mktemp("listener")
    make_model.write("llama-yarn", folder / "m.gguf", dim=40)
    (folder / "mmproj.gguf").write_bytes(lzma.decompress((repo / "tests" / "records" / "projectors" / "voxtral.gguf.xz").read_bytes()))
    (folder / "plain.jinja").write_text(PLAIN)
    with Server(weft, weft_env, folder / "m.gguf", "--chat-template-file", folder / "plain.jinja", "-n", "4") as s:
        yield s


@pytest.mark.parametrize("width", [1440, 820, 390])
def test_a_recording(listener, tmp_path, width):
    """Chromium's own microphone beeps once a second: a tone of some ms in silence. What is recorded is sent as a WAV, and the model answers."""
    numpy = pytest.importorskip("numpy")
    with Browser(width, 900, *MICROPHONE) as b:
        b.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        visit(b, listener)
        b.until("takes?.audio && !document.getElementById('record').hidden")
        b.click("#record")
        b.until("document.getElementById('record').textContent === '■ 0:02'")
        b.picture(tmp_path / f"recording-{width}.png")
        assert b.eval("document.documentElement.scrollWidth <= innerWidth") and b.eval("document.getElementById('send').getBoundingClientRect().right <= innerWidth")
        assert b.eval("document.getElementById('record').title") == "Stop recording"
        b.click("#record")
        b.until("attached.length === 1 && document.querySelector('#files .medium')")
        assert b.eval("recording === null && document.getElementById('record').textContent") == "● Record"
        assert b.eval("attached[0].name").startswith("recording ") and b.eval("attached[0].type") == "audio/wav"
        data = base64.b64decode(b.eval("dataUrl(attached[0].blob)").partition(",")[2])
        with wave.open(io.BytesIO(data)) as w:
            assert (w.getnchannels(), w.getsampwidth(), w.getframerate()) == (1, 2, 16000) and 1.9 < w.getnframes() / 16000 < 8
            loud = numpy.abs(numpy.frombuffer(w.readframes(w.getnframes()), "<i2").astype(float)).reshape(-1)
        assert loud.max() > 1000 and numpy.median(loud) < loud.max() / 10
        b.picture(tmp_path / f"recorded-{width}.png")
        b.eval("showTakes({ vision: true, audio: true }); $('rate').textContent = 'waiting, 3 before this one'")
        b.picture(tmp_path / f"both-{width}.png")
        assert b.eval("document.documentElement.scrollWidth <= innerWidth") and b.eval("document.getElementById('send').getBoundingClientRect().right <= innerWidth")
        b.eval("defaults().then(() => showStatus())")
        say(b, "what is said?", 1)
        content = b.eval("request(path(current)[0].id).then(r => r.messages[0].content)")
        assert content[0]["input_audio"] == {"data": base64.b64encode(data).decode(), "format": "wav"}
        theirs = listener.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})[1]
        assert b.eval("path(current)[1].stats.prompt") == theirs["usage"]["prompt_tokens"] > 40
        assert not b.errors, b.errors


def test_no_microphone(listener, server):
    """Where there is none, or it may not be used, the page says so; a model that takes no sounds has no such button."""
    with Browser(820, 900) as b:
        visit(b, listener)
        b.until("takes?.audio")
        b.click("#record")
        b.until("document.getElementById('notice').textContent.includes('microphone')")
        assert b.eval("recording === null && !document.getElementById('record').disabled")
        visit(b, server)
        b.until("takes")
        assert b.eval("document.getElementById('record').hidden")


def test_errors_of_the_server(wide):
    """Of a picture that it does not decode, and of a body that is too large (--max-body 2)."""
    error = "document.querySelector('article.error .body')?.textContent"
    wide.eval("say('x', '', [{name: 'a.png', kind: 'image', type: 'image/png', blob: new Blob(['no picture'])}])")
    wide.until(f"{error}?.includes('no picture (PNG, JPEG, WebP)')")
    wide.eval("fresh(); say('x', '', [{name: 'a.png', kind: 'image', type: 'image/png', blob: new Blob([new Uint8Array(4 << 20)])}])")
    wide.until(f"{error}?.includes('--max-body')")
    wide.errors = [e for e in wide.errors if "400" not in e and "413" not in e]


# As llama-server's page writes them (tools/ui/src/lib/types/database.d.ts), and as OpenAI's API takes them.
@pytest.mark.parametrize("form", ["llama", "openai"])
def test_imports(wide, form):
    url, wav = "data:image/png;base64," + base64.b64encode(picture()).decode(), base64.b64encode(sound(16000)).decode()
    given = {"llama": {"conv": {"name": "From there", "currNode": "m"}, "messages": [{"id": "m", "type": "text", "role": "user", "content": "Hi", "parent": None, "extra": [
        {"type": "IMAGE", "name": "a.png", "base64Url": url}, {"type": "AUDIO", "name": "s.wav", "base64Data": wav, "mimeType": "audio/wav"}, {"type": "IMAGE", "name": "bad.png", "base64Url": "data:image/png;base64,AAAA"},
        {"type": "IMAGE", "name": "far.png", "base64Url": "https://example.org/a.png"}]}]},
        "openai": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": url}}, {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}}]}]}}[form]
    assert wide.eval(imported(json.dumps(given))) == 1
    wide.eval("openConversation(store.sorted()[0].id)")
    wide.until("path(current).length === 1")
    parts = wide.eval("request(path(current)[0].id).then(r => r.messages[0].content)")
    assert parts[0]["image_url"]["url"] == url and parts[1]["input_audio"] == {"data": wav, "format": "wav"}
    assert parts[2]["text"] == ("Hi" if form == "openai" else "Hi\n\nbad.png\n```\nbad.png is no picture that this browser can open.\n```")


def test_a_model_of_text(weft, weft_env, tmp_path):
    path = scripted.write(tmp_path / "told.gguf", {"3": ["The end"]}, TEMPLATE, context=500)
    with Server(weft, weft_env, path) as s, Browser(820, 900) as b:
        visit(b, s)
        b.until("takes")
        assert b.eval("document.getElementById('attach').textContent") == "+ File"
        brought(b, "drop", [as_file(picture(), "a.png", "image/png")])
        b.until("document.getElementById('notice').textContent === 'a.png cannot be attached. This model takes text, PDF files.'")
        assert not b.errors, b.errors
