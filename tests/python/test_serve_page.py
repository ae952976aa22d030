"""The page of weft serve in a browser without windows: what a model says is shown and never run, answers can be stopped, edited and made again."""
import base64
import contextlib
import io
import json
import re
import socket
import threading
import time
import zipfile

import pytest
import scripted
from browser import Browser, find
from serving import Server

THREADS = 1

TOOLS_TEMPLATE = ("{% for t in tools or [] %}{{ t | tojson }} call: <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{% endfor %}"
                  "{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": {{ c.function.name | tojson }}, \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
                  "{{ m.content }}{% endfor %}")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
SCRIPTS = {
    "1": ["<think>\nLet me", " see.\n</think>\n\n", "## Head\n\nA **bold** `wo", "rd` <script>window.hurt = 1</script> <img src=x onerror=alert(1)>\n\n", "```py\nx = ", "1\n```\n\n",
          "[bad](javascript:alert(1)) [good](https://example.org/a)\n\n", "| a | b |\n|---|---|\n| 1 | <b>2 |\n\n", "- one\n- two"],
    "2": ["Short", " answer", None],
    "3": ["The end", " of it"],
    "r": [" and", " more"],
}


@pytest.fixture(scope="module")
def server(weft, weft_env, tmp_path_factory):
    if not find():
        pytest.fail("no Chromium: scripts/setup.sh test installs chromium-headless-shell")
    path = scripted.write(tmp_path_factory.mktemp("scripted") / "told.gguf", SCRIPTS, TEMPLATE, context=2000)
    with Server(weft, weft_env, path) as s:
        yield s


@pytest.fixture(params=[1440, 820, 390])
def page(server, request):
    with Browser(request.param, 900) as b:
        b.width = request.param
        b.call("Emulation.setDeviceMetricsOverride", width=request.param, height=900, deviceScaleFactor=1, mobile=False)
        visit(b, server)
        yield b
        assert not b.errors and all(url.startswith((server.url, "data:", "blob:")) for url in b.requests), (b.errors, b.requests)


def visit(b, server):
    b.call("Page.navigate", url=server.url + "/")
    b.until("document.readyState === 'complete' && typeof ready !== 'undefined' && ready")


def say(b, text, answers):
    b.eval(f"document.getElementById('input').value = {json.dumps(text)}; send()")
    b.until(f"!busy() && document.querySelectorAll('article.assistant').length === {answers}")


def imported(text, name="x.json"):
    return f"importFile(new File([{json.dumps(text)}], {json.dumps(name)}))"


def test_headers(server):
    html = server.ask("/")[1]
    files = ["/" + path for path in re.findall(r'(?:src|href)="(page/[^"]+)"', html)]        # relative, for --api-prefix
    assert len(files) == 10
    for path in ("/", *files):
        assert server.ask(path)[0] == 200
        policy = server.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and server.headers["X-Frame-Options"] == "DENY"
    assert not re.search(r"<script(?! src=)|\son\w+=|style=|https?://", html)


def test_an_answer(page):
    say(page, "What? 1", 1)
    body = "document.querySelector('article.assistant .body')"
    shown = page.eval(f"{body}.textContent")
    assert "<script>window.hurt = 1</script> <img src=x onerror=alert(1)>" in shown and page.eval("window.hurt === undefined")
    assert page.eval(f"{body}.querySelectorAll('script, img, b').length") == 0
    assert page.eval(f"[...{body}.querySelectorAll('a')].map(a => a.href).join()") == "https://example.org/a"
    assert page.eval(f"{body}.querySelector('h3').textContent") == "Head" and page.eval(f"{body}.querySelector('strong').textContent") == "bold"
    assert page.eval(f"{body}.querySelector('pre code').textContent") == "x = 1\n" and page.eval(f"{body}.querySelectorAll('li').length") == 2
    assert page.eval(f"{body}.querySelectorAll('td').length") == 2
    assert not page.eval("document.querySelector('article details').open") and "Let me see." in page.eval("document.querySelector('.thought').textContent")
    assert page.eval("document.documentElement.scrollWidth <= innerWidth")
    assert " of 2000" in page.eval("document.getElementById('used-text').textContent")
    left = page.eval(f"['h3', 'p', 'table', '.code'].map(e => {body}.querySelector(e)).map(e => e.getBoundingClientRect().left + parseFloat(getComputedStyle(e).paddingLeft))")
    assert len(set(left[:2] + left[3:])) == 1, left                  # texts, and what stands between them, begin at one line
    page.eval("drawGauge(2001)")
    assert page.eval("document.getElementById('used-text').textContent") == "2000 of 2000"


def test_the_place_of_whoever_waits(page):
    wait = "(t => (t.progress({queue_position: %d, queue_wait_ms: %d, total: 9, processed: 0, cache: 0}), turns.delete(current.id), t.status))(new Turn(current, {}))"
    assert page.eval(wait % (3, 4200)) == "Waiting: 2 before this one, about 5 s" and page.eval(wait % (1, 0)) == "Waiting: next"


def test_stop_edit_and_branches(page, server):
    page.eval("document.getElementById('input').value = 'On and on 2'; send()")
    page.until("document.querySelector('article.assistant .body')?.textContent.length > 20")
    assert server.metric("llamacpp:requests_processing") == 1
    page.click("#stop")
    page.until("!busy()")
    end = time.monotonic() + 20
    while server.metric("llamacpp:requests_processing"):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "stopped" in page.eval("document.querySelector('article.assistant .tools').textContent")
    assert server.ask("/v1/streams/lookup", {"conversation_ids": page.eval("Object.values(current.nodes).map(n => n.live?.id ?? '')")}) == (200, [])
    page.eval("[...document.querySelectorAll('article.user button')].find(b => b.textContent === 'Edit').click()")
    page.eval("document.querySelector('article textarea').value = 'The end? 3'; [...document.querySelectorAll('article button')].find(b => b.textContent === 'Send').click()")
    page.until("!busy() && document.querySelector('article.assistant .body').textContent === 'The end of it'")
    assert "2/2" in page.eval("document.querySelector('article.user .tools').textContent")
    page.eval("[...document.querySelectorAll('article.assistant button')].find(b => b.textContent === 'Again').click()")
    page.until("!busy() && document.querySelector('article.assistant .tools').textContent.includes('2/2')")
    page.eval("[...document.querySelectorAll('article.user button')].find(b => b.textContent === '‹').click()")
    assert page.eval("document.querySelector('article.assistant .body').textContent").startswith("Short answer")


def test_what_was_cut_goes_on(page):
    page.eval("settings.max_tokens = 2")
    say(page, "On and on 2", 1)
    article = "document.querySelector('article.assistant')"
    assert page.eval(f"{article}.querySelector('.body').textContent") == "Short answer" and "cut" in page.eval(f"{article}.textContent")
    page.eval(f"settings.max_tokens = null; [...{article}.querySelectorAll('button')].find(b => b.textContent === 'Continue').click()")
    page.until(f"!busy() && {article}.querySelector('.body').textContent === 'Short answer and more'")
    assert page.eval("document.querySelectorAll('article').length") == 2 and "Continue" not in page.eval(f"{article}.textContent")


def test_what_is_kept(page, server):
    say(page, "Remember me 3", 1)
    page.eval("settings.temperature = 0; settings.probabilities = true; keepSettings()")
    visit(page, server)
    page.until("document.querySelectorAll('article').length === 2")
    assert "Remember me 3" in page.eval("document.getElementById('list').textContent")
    say(page, "And now 3", 2)
    page.until("document.querySelectorAll('.token').length === 2")
    assert page.eval("document.querySelector('.token').title").startswith("100.0 %")
    exported = page.eval("exportJson([current]).then(parts => parts.join(''))")
    page.eval("document.getElementById('search').value = 'nothing has this'; search()")
    assert page.eval("document.getElementById('list').children.length") == 0
    page.eval("document.getElementById('search').value = 'end of'; search()")       # what was said, not the title
    assert page.eval("document.getElementById('list').children.length") == 1
    assert page.eval(imported(exported)) == 1
    hostile = {"conversations": [{"title": "<img src=x onerror='window.hurt = 1'>", "nodes": {"a": {"id": "a", "parent": "", "role": "user", "content": "<script>window.hurt = 1</script>"},
                                  "b": {"id": "b", "role": "boss"}}, "chosen": {"": "a", "a": "a"}}]}
    assert page.eval(imported(json.dumps(hostile))) == 1
    page.eval("document.getElementById('search').value = ''; drawList(); openConversation(store.sorted().find((c) => c.title.startsWith('<img')).id)")
    assert page.eval("document.querySelector('article.user .body').textContent") == "<script>window.hurt = 1</script>" and page.eval("window.hurt === undefined")
    page.eval("localStorage.clear()")


def test_dark_and_narrow(page, tmp_path):
    say(page, "What? 1", 1)
    light = page.eval("getComputedStyle(document.body).backgroundColor")
    page.dark(True)
    assert page.eval("getComputedStyle(document.body).backgroundColor") != light
    page.picture(tmp_path / f"page-{page.width}.png")
    narrow = page.width < 760
    assert page.eval("getComputedStyle(document.getElementById('open-side')).display") == ("block" if narrow else "none")
    if narrow:
        page.click("#open-side")
        page.until("document.getElementById('side').getBoundingClientRect().left === 0")
        page.click("#close-side")
        page.until("document.getElementById('side').getBoundingClientRect().right <= 0")


def test_errors_are_shown(page):
    page.eval("settings.temperature = 99999")
    say_error = "document.querySelector('article.error .body')?.textContent"
    page.eval("document.getElementById('input').value = 'x 3'; send()")
    page.until(f"{say_error}?.includes('temperature')")
    page.errors = [e for e in page.errors if "400" not in e]


# ---- what does not depend on the width ----------------------------------------------------------------------------------------------------


@pytest.fixture
def wide(server):
    with Browser(1440, 900) as b:
        visit(b, server)
        yield b
        assert not b.errors and all(url.startswith((server.url, "data:", "blob:")) for url in b.requests), (b.errors, b.requests)


LAST = "document.querySelector('article.assistant:last-of-type')"


def test_a_reload_goes_on_with_the_answer(wide, server):
    wide.eval("settings.temperature = 0; keepSettings(); document.getElementById('input').value = 'On and on 2'; send()")
    wide.until("path(current).at(-1).content.length > 20")
    visit(wide, server)
    wide.until("path(current).length === 2 && path(current)[1].content.length > 20")
    wide.until("!busy()")
    got = wide.eval("path(current)[1]")
    assert len(got["content"]) > 5000 and set(got["content"].split("Short answer")) <= {"", "Short"}, got["content"][:100]      # each token once, in its order
    assert got["stats"]["tokens"] == got["content"].count("Short") + got["content"].count(" answer") and got["used"] >= 1999 and "live" not in got and "cut" in got
    assert wide.eval("document.querySelectorAll('article').length") == 2


def test_an_answer_goes_on_while_another_conversation_is_shown(wide):
    wide.eval("document.getElementById('input').value = 'On and on 2'; send(); window.left = current; fresh()")
    assert not wide.eval("busy()") and wide.eval("turns.size") == 1 and "●" in wide.eval("document.getElementById('list').textContent")
    say(wide, "The end? 3", 1)
    wide.until("!turns.size")
    wide.eval("openConversation(left.id)")
    wide.until("current.id === left.id")
    assert wide.eval("path(current)[1].content.length") > 5000 and wide.eval("path(current)[1].cut").startswith("cut")


def test_a_lost_stream_is_told(wide, server):
    wide.eval("""window.node = addNode({id: "a", parent: "", role: "user", content: "x"}); addNode({id: "b", parent: "a", role: "assistant", content: "Begun", live: {id: "unknown", at: 10}}); store.save(current)""")
    visit(wide, server)
    wide.until("!busy() && path(current).length === 2")
    assert wide.eval("path(current)[1].content") == "Begun" and "no longer has the rest" in wide.eval(f"{LAST}.querySelector('.cut').textContent")
    assert "Continue" in wide.eval(f"{LAST}.textContent")
    wide.errors = [e for e in wide.errors if "404" not in e]


def test_a_server_that_is_gone_is_told_once_in_words(wide):
    wide.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    wide.eval("document.getElementById('input').value = 'The end? 3'; send()")
    wide.until("!busy() && document.querySelector('article.error')?.innerText.includes('reached')")
    shown = wide.eval("document.getElementById('spoken').hidden = true, document.body.innerText")      # screen readers are told, too
    assert shown.count("cannot be reached") == 1 and "Failed" not in shown
    assert wide.eval("(r => r.top > 0 && r.bottom < innerHeight)(document.querySelector('article.error').getBoundingClientRect())")
    wide.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    wide.eval("[...document.querySelectorAll('article.error button')].find(b => b.textContent === 'Try again').click()")
    wide.until("!busy() && document.querySelector('article.assistant .body')?.textContent === 'The end of it'")
    wide.errors = [e for e in wide.errors if "ERR_INTERNET_DISCONNECTED" not in e]


def test_settings_show_what_holds(wide):
    wide.until("document.getElementById('temperature').placeholder")
    assert wide.eval("['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'max_tokens', 'seed'].map(n => document.getElementById(n).placeholder)") == [
        "0.8", "0.95", "40", "0.05", "1", "no limit", "random"]                      # llama.cpp's
    wide.eval("(e => { e.value = '{\"type\"'; e.dispatchEvent(new Event('change')); })(document.getElementById('tools'))")
    assert "no JSON" in wide.eval("document.getElementById('tools').validationMessage") and not wide.eval("settings.tools ?? ''")


def test_figures_of_an_answer(wide):
    say(wide, "The end? 3", 1)
    assert re.fullmatch(r"2 tokens, [\d.]+ per second, first after [\d.]+ s", wide.eval(f"{LAST}.querySelector('.figures').textContent"))
    assert wide.eval(f"{LAST}.querySelector('.figures').title").startswith("Prompt: ")


def test_files(wide):
    """A PDF that Chromium writes, text, and what is neither."""
    wide.eval("document.getElementById('thread').textContent = 'Ein Text für das PDF: naïve café.'")
    pdf = wide.call("Page.printToPDF")["data"]
    wide.eval("show(newConversation())")
    if wide.eval("load('/page/lib/pdf.js')"):
        assert "Ein Text für das PDF: naïve café." in wide.eval(f"readAttachment(new File([Uint8Array.from(atob('{pdf}'), c => c.charCodeAt(0))], 'x.pdf', {{type: 'application/pdf'}})).then(f => f.text.replace(/\\s+/g, ' '))")
        broken = wide.eval(f"readAttachment(new File([Uint8Array.from(atob('{pdf[:400]}'), c => c.charCodeAt(0))], 'x.pdf')).then(f => f.text, e => e.message)")
        assert broken in ("x.pdf is no PDF that can be read.", "x.pdf holds no text: its pages are pictures."), broken
    for name, content, kind, why in (("x.png", "x", "image/png", "cannot be attached"), ("x.bin", "a\\0b", "", "is no text"), ("x.txt", "x' + 'y'.repeat(2000000) + '", "", "million")):
        assert why in wide.eval(f"readAttachment(new File(['{content}'], '{name}', {{type: '{kind}'}})).then(() => '', e => e.message)")
    wide.eval("attach([new File(['a,b\\n```\\n'], 'table.csv', {type: 'text/csv'})])")
    wide.until("document.getElementById('files').textContent.includes('table.csv')")
    say(wide, "The end? 3", 1)
    assert wide.eval("request(path(current)[0].id).then(r => r.messages[0].content)") == "The end? 3\n\ntable.csv\n````\na,b\n```\n\n````"
    assert wide.eval("document.querySelector('article.user .body').textContent") == "The end? 3" and wide.eval("document.querySelector('article.user details.file').open") is False
    assert wide.eval("exportMarkdown(current)").startswith("# The end? 3\n\n## User\n\nThe end? 3\n\ntable.csv\n````\n")


# As llama-server's page writes it (tools/ui/src/lib/services/conversation-transfer.service.ts): a session, then a message a line.
LLAMA = [{"harness": "llama.app", "type": "session", "id": "c1", "name": "From there", "lastModified": 1, "currNode": "m3"}] + [{"type": "message", "message": m} for m in (
    {"id": "r", "convId": "c1", "type": "root", "timestamp": 0, "role": "system", "content": "", "parent": None, "children": ["s"]},
    {"id": "s", "convId": "c1", "type": "text", "timestamp": 1, "role": "system", "content": "Be brief.", "parent": "r", "children": ["m1"]},
    {"id": "m1", "convId": "c1", "type": "text", "timestamp": 2, "role": "user", "content": "Hi", "parent": "s", "children": ["m2", "m3"], "extra": [{"type": "TEXT", "name": "a.txt", "content": "A"}]},
    {"id": "m3", "convId": "c1", "type": "text", "timestamp": 3, "role": "assistant", "content": "Hello", "reasoningContent": "Hm.", "parent": "m1", "children": [],
     "toolCalls": [{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"id": "m2", "convId": "c1", "type": "text", "timestamp": 4, "role": "assistant", "content": "Hey", "parent": "m1", "children": []})]


@pytest.mark.parametrize("form", ["jsonl", "zip", "json", "openai"])
def test_imports(wide, form):
    lines = "\n".join(map(json.dumps, LLAMA))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("one.jsonl", lines)
    old = json.dumps({"conv": LLAMA[0], "messages": [r["message"] | ({"toolCalls": json.dumps(r["message"]["toolCalls"])} if "toolCalls" in r["message"] else {}) for r in LLAMA[1:]]})
    openai = json.dumps({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "Hello", "reasoning_content": "Hm.",
                         "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]})
    data = base64.b64encode({"jsonl": lines.encode(), "zip": packed.getvalue(), "json": old.encode(), "openai": openai.encode()}[form]).decode()
    assert wide.eval(f"importFile(new File([Uint8Array.from(atob('{data}'), c => c.charCodeAt(0))], 'x'))") == 1
    wide.eval("openConversation(store.sorted()[0].id)")
    wide.until("path(current).length === 2")
    assert wide.eval("[current.title, current.system, path(current)[0].content, path(current)[1].content, path(current)[1].reasoning, path(current)[1].calls]") == [
        "Hi" if form == "openai" else "From there", "Be brief.", "Hi", "Hello", "Hm.", [{"id": "abcdefghi", "name": "f", "arguments": "{}"}]]
    assert wide.eval("document.querySelectorAll('article details.call').length") == 1
    if form != "openai":
        assert wide.eval("path(current)[0].files[0].text") == "A" and "1/2" in wide.eval(f"{LAST}.querySelector(':scope > .tools').textContent")
    wrong = "importFile(new File(['%s'], 'x.json')).then(() => '', e => e.message)"
    assert wide.eval(wrong % "[1]") == wide.eval(wrong % "PK") == wide.eval(wrong % "hello") == "x.json holds no conversations."


def test_calls_of_tools(weft, weft_env, tmp_path):
    path = scripted.write(tmp_path / "tools.gguf", {"1": ["<tool_call>\n{\"name\": \"add\", ", "\"arguments\": {\"a\": 1, ", "\"b\": 2}}\n</tool_call>"], "3": ["It", " is three"]}, TOOLS_TEMPLATE, context=2000)
    with Server(weft, weft_env, path) as s, Browser(1440, 900) as b:
        visit(b, s)
        b.eval("settings.temperature = 0; settings.tools = JSON.stringify([{type: 'function', function: {name: 'add', parameters: {type: 'object', properties: {a: {type: 'integer'}, b: {type: 'integer'}}}}}])")
        b.eval("document.getElementById('input').value = '1'; send()")
        b.until("!busy() && document.querySelector('.results textarea')")
        assert b.eval("[path(current)[1].calls[0].name, JSON.parse(path(current)[1].calls[0].arguments)]") == ["add", {"a": 1, "b": 2}] and b.eval("document.querySelector('article details.call').open") is False
        assert "Tool call: add" in b.eval("document.querySelector('article.assistant').textContent")
        b.eval("document.querySelector('.results textarea').value = '3'; document.querySelector('.results button').click()")
        b.until("!busy() && path(current).length === 4")
        assert b.eval("path(current)[3].content") == "It is three" and b.eval("document.querySelectorAll('.results').length") == 0
        assert b.eval("request(path(current)[2].id).then(r => r.messages.slice(1).map(m => [m.role, m.tool_call_id ?? m.tool_calls[0].id]))") == [[r, b.eval("path(current)[1].calls[0].id")] for r in ("assistant", "tool")]
        assert not b.errors, b.errors


def test_a_connection_that_breaks_is_made_again(server):
    """Through a proxy that cuts the first stream in the middle."""
    listener, cut = socket.create_server(("127.0.0.1", 0)), []

    def pump(source, to, answers):
        got = 0
        with contextlib.suppress(OSError):
            while part := source.recv(4096):
                to.sendall(part)
                got += len(part)
                if answers and not cut and got > 20000 and b'"delta"' in part:
                    cut.append(got)
                    break
        for s in (source, to):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                upstream = socket.create_connection(("127.0.0.1", server.port))
                for source, to, answers in ((client, upstream, False), (upstream, client, True)):
                    threading.Thread(target=pump, args=(source, to, answers), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with listener, Browser(1440, 900) as b:
        b.call("Page.navigate", url=f"http://127.0.0.1:{listener.getsockname()[1]}/")
        b.until("document.readyState === 'complete' && typeof ready !== 'undefined' && ready")
        b.eval("settings.temperature = 0; document.getElementById('input').value = 'On and on 2'; send()")
        b.until("!busy() && path(current).length === 2")
        got = b.eval("path(current)[1]")
        assert cut and len(got["content"]) > 5000 and set(got["content"].split("Short answer")) <= {"", "Short"} and got["used"] >= 1999 and "error" not in got


def test_a_key_and_the_choice_of_a_model(weft, weft_env, tmp_path):
    """Models of a folder are loaded when they are asked; the page tells a key that is missing, and takes it."""
    (tmp_path / "models").mkdir()
    for name in ("first", "second"):
        scripted.write(tmp_path / "models" / f"{name}.gguf", {"3": [f"From {name}"]}, TEMPLATE, context=1000)
    keys = tmp_path / "keys"
    keys.write_text("one:secret-of-one\n")
    keys.chmod(0o600)
    with Server(weft, weft_env, None, "--models-dir", tmp_path / "models", "--api-key-file", keys) as s, Browser(1440, 900) as b:
        b.call("Page.navigate", url=s.url + "/")
        b.until("document.readyState === 'complete' && document.getElementById('notice')?.textContent.includes('key')")
        b.eval("(e => { e.value = 'secret-of-one'; e.dispatchEvent(new Event('change')); })(document.getElementById('key'))")
        b.until("ready && document.getElementById('notice').hidden")
        assert b.eval("[...document.querySelectorAll('#models option')].map(o => o.textContent)") == ["first (not loaded)", "second (not loaded)"]
        b.eval("(e => { e.value = 'second'; e.dispatchEvent(new Event('change')); })(document.getElementById('models'))")
        say(b, "x 3", 1)
        assert b.eval("document.querySelector('article.assistant .body').textContent") == "From second"
        b.until("document.querySelector('#models option[value=second]').textContent === 'second' && document.getElementById('models').value === 'second'")
        b.until("document.getElementById('temperature').placeholder === '0.8' && document.getElementById('used-text').textContent.endsWith('of 1000')")
        assert not [e for e in b.errors if "401" not in e], b.errors
        b.eval("localStorage.clear()")
