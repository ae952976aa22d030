"""The page of weft serve in a browser without windows: what a model says is shown and never run, answers can be stopped, edited and made again."""
import json
import re
import time

import pytest
import scripted
from browser import Browser, find
from serving import Server

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
    b.until(f"!running && document.querySelectorAll('article.assistant').length === {answers}")


def test_headers(server):
    for path in ("/", "/page/chat.js", "/page/chat.css", "/page/text.js", "/page/store.js"):
        assert server.ask(path)[0] == 200
        policy = server.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and server.headers["X-Frame-Options"] == "DENY"
    html = server.ask("/")[1]
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
    wait = "take({prompt_progress: {queue_position: %d, queue_wait_ms: %d, total: 9, processed: 0, cache: 0}}, {}, {}), document.getElementById('rate').textContent"
    assert page.eval(wait % (3, 4200)) == "Waiting: 2 before this one, about 5 s" and page.eval(wait % (1, 0)) == "Waiting: next"


def test_stop_edit_and_branches(page, server):
    page.eval("document.getElementById('input').value = 'On and on 2'; send()")
    page.until("document.querySelector('article.assistant .body')?.textContent.length > 20")
    assert server.metric("llamacpp:requests_processing") == 1
    page.click("#stop")
    page.until("!running")
    end = time.monotonic() + 20
    while server.metric("llamacpp:requests_processing"):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "stopped" in page.eval("document.querySelector('article.assistant .tools').textContent")
    page.eval("[...document.querySelectorAll('article.user button')].find(b => b.textContent === 'Edit').click()")
    page.eval("document.querySelector('article textarea').value = 'The end? 3'; [...document.querySelectorAll('article button')].find(b => b.textContent === 'Send').click()")
    page.until("!running && document.querySelector('article.assistant .body').textContent === 'The end of it'")
    assert "2/2" in page.eval("document.querySelector('article.user .tools').textContent")
    page.eval("[...document.querySelectorAll('article.assistant button')].find(b => b.textContent === 'Again').click()")
    page.until("!running && document.querySelector('article.assistant .tools').textContent.includes('2/2')")
    page.eval("[...document.querySelectorAll('article.user button')].find(b => b.textContent === '‹').click()")
    assert page.eval("document.querySelector('article.assistant .body').textContent").startswith("Short answer")


def test_what_was_cut_goes_on(page):
    page.eval("settings.max_tokens = 2")
    say(page, "On and on 2", 1)
    article = "document.querySelector('article.assistant')"
    assert page.eval(f"{article}.querySelector('.body').textContent") == "Short answer" and "cut" in page.eval(f"{article}.textContent")
    page.eval(f"settings.max_tokens = null; [...{article}.querySelectorAll('button')].find(b => b.textContent === 'Continue').click()")
    page.until(f"!running && {article}.querySelector('.body').textContent === 'Short answer and more'")
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
    exported = page.eval("store.export()")
    page.eval("document.getElementById('search').value = 'nothing has this'; drawList()")
    assert page.eval("document.getElementById('list').children.length") == 0
    page.eval("document.getElementById('search').value = 'remember'; drawList()")
    assert page.eval("document.getElementById('list').children.length") == 1
    assert page.eval(f"store.import({json.dumps(exported)})") == 1
    hostile = {"conversations": [{"title": "<img src=x onerror='window.hurt = 1'>", "nodes": {"a": {"id": "a", "parent": "", "role": "user", "content": "<script>window.hurt = 1</script>"},
                                  "b": {"id": "b", "role": "boss"}}, "chosen": {"": "a", "a": "a"}}]}
    assert page.eval(f"store.import({json.dumps(json.dumps(hostile))})") == 1
    page.eval("document.getElementById('search').value = ''; drawList(); show(store.sorted('').find((c) => c.title.startsWith('<img')))")
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
