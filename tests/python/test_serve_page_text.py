"""What the page makes of texts: examples of the GFM specification 0.29 (its numbers), formulas, highlighting; answers that grow, long and many
conversations. All in one browser: none of it depends on the width."""
import json
import time

import pytest
import scripted
from browser import Browser, find
from serving import Server
from test_serve_page import SCRIPTS, TEMPLATE, imported, visit

THREADS = 1

# Number in the specification, source, HTML. The page's own choices are those of `outline`: headings one level down, a line end is a line end.
SPEC = [
    (20, "_____________________________________\n", "<hr />\n"),
    (89, "```\n<\n >\n```\n", "<pre><code>&lt;\n &gt;\n</code></pre>\n"),
    (199, "| abc | defghi |\n:-: | -----------:\nbar | baz\n", '<table><thead><tr><th align="center">abc</th><th align="right">defghi</th></tr></thead><tbody><tr><td align="center">bar</td><td align="right">baz</td></tr></tbody></table>'),
    (200, "| f\\|oo  |\n| ------ |\n| b `\\|` az |\n| b **\\|** im |\n", "<table><thead><tr><th>f|oo</th></tr></thead><tbody><tr><td>b <code>|</code> az</td></tr><tr><td>b <strong>|</strong> im</td></tr></tbody></table>"),
    (228, "> > > foo\nbar\n", "<blockquote>\n<blockquote>\n<blockquote>\n<p>foo\nbar</p>\n</blockquote>\n</blockquote>\n</blockquote>\n"),
    (270, "> 1. > Blockquote\ncontinued here.\n", "<blockquote>\n<ol>\n<li>\n<blockquote>\n<p>Blockquote\ncontinued here.</p>\n</blockquote>\n</li>\n</ol>\n</blockquote>\n"),
    (280, "- [x] foo\n  - [ ] bar\n  - [x] baz\n- [ ] bim\n", '<ul>\n<li><input checked="" disabled="" type="checkbox"> foo\n<ul>\n<li><input disabled="" type="checkbox"> bar</li>\n<li><input checked="" disabled="" type="checkbox"> baz</li>\n</ul>\n</li>\n<li><input disabled="" type="checkbox"> bim</li>\n</ul>\n'),
    (298, "- a\n- ```\n  b\n\n\n  ```\n- c\n", "<ul>\n<li>a</li>\n<li>\n<pre><code>b\n\n\n</code></pre>\n</li>\n<li>c</li>\n</ul>\n"),
    (313, "`` \\[\\` ``\n", "<p><code>\\[\\`</code></p>\n"),
    (330, "``` f&ouml;&ouml;\nfoo\n```\n", "<pre><code>foo\n</code></pre>\n"),
    (350, "` foo `` bar `\n", "<p><code>foo `` bar</code></p>\n"),
    (424, "*foo**bar***\n", "<p><em>foo<strong>bar</strong></em></p>\n"),
    (491, "~~Hi~~ Hello, world!\n", "<p><del>Hi</del> Hello, world!</p>\n"),
    (521, "[link] bar](/uri)\n", "<p>[link] bar](/uri)</p>\n"),
    (293, "1. a\n\n  2. b\n\n    3. c\n", "<ol>\n<li>\n<p>a</p>\n</li>\n<li>\n<p>b</p>\n</li>\n</ol>\n<pre><code>3. c\n</code></pre>\n"),
    (259, "- foo\n-\n- bar\n", "<ul>\n<li>foo</li>\n<li></li>\n<li>bar</li>\n</ul>\n"),
]

OUTLINE = r"""window.outline = (node, spec) => {
  const out = [], mark = /^(<\w|\/\w|=|\[[ x]\]$)/, is = (s) => s !== undefined && !mark.test(s);
  const text = (t) => { if (is(out.at(-1))) out.push(out.pop() + t); else if (t.trim()) out.push(t); };
  (function walk(n) {
    for (const c of n.childNodes) {
      if (c.nodeType === 3) { if (!n.closest("pre")) text(c.data.replace(/\s+/g, " ")); else if (out.at(-1)[0] === "=") out.push(out.pop() + c.data); else out.push("=" + c.data); continue; }
      if (c.matches(".row")) continue;
      if (c.tagName === "BR") text(" ");
      else if (c.tagName === "INPUT") out.push(c.checked ? "[x]" : "[ ]");
      else if (["A", "SPAN", "DIV", "TBODY"].includes(c.tagName)) walk(c);
      else {
        const tag = c.tagName.toLowerCase().replace("del", "s"), align = c.getAttribute("align") ?? (/^(left|center|right)$/.test(c.className) ? c.className : "");
        out.push("<" + (spec ? tag.replace(/^h([1-5])$/, (_, i) => "h" + (Number(i) + 1)) : tag) + align);
        walk(c);
        out.push("/" + tag);
      }
    }
  })(node);
  return out.map((s) => is(s) ? s.replace(/\s+/g, " ").trim() : s).filter(Boolean).join("|");
};
window.grown = (text, step) => { const to = document.createElement("div"), w = new Writer(to); for (let i = 0; i < text.length; i += step) w.add(text.slice(i, i + step)); return to; };
window.whole = (text) => { const to = document.createElement("div"); write(to, text); return to; };"""

# In the manner of what models write; the formulas as they are in OpenAI's and DeepSeek's answers: \( \), \[ \] and $$.
ANSWER = r"""### Why the sum converges

For \(|r| < 1\), the geometric series is

\[
\sum_{k=0}^{\infty} a r^k = \frac{a}{1-r}
\]

and with $a = 1$ and $r = \tfrac12$ this is $2$. It costs $5 to $10, not \$20.

1. Then write the function:

   ```python
   def mean(values: list[float]) -> float:
       return sum(values) / len(values)   # <b>not</b> a tag
   ```

   > **Note:** the vector is
   > $$\vec{v} = \begin{pmatrix} a \\ b \end{pmatrix}$$

2. Done: see setup.py, https://example.org/a_b_c and [foo].

[foo]: https://example.org/foo
"""


@pytest.fixture(scope="module")
def page(weft, weft_env, tmp_path_factory):
    if not find():
        pytest.fail("no Chromium: scripts/setup.sh test installs chromium-headless-shell")
    path = scripted.write(tmp_path_factory.mktemp("scripted") / "told.gguf", SCRIPTS, TEMPLATE, context=2000)
    with Server(weft, weft_env, path) as s, Browser(1440, 900) as b:
        visit(b, s)
        if not b.eval("!!md"):
            pytest.skip("built without node-markdown-it")
        b.server = s
        b.eval(OUTLINE)
        yield b
        assert not b.errors and all(url.startswith((s.url, "data:", "blob:")) for url in b.requests), (b.errors, b.requests)


def test_the_specification(page):
    for number, source, html in SPEC:
        got, wanted = page.eval(f"[outline(whole({json.dumps(source)})), outline(new DOMParser().parseFromString({json.dumps(html)}, 'text/html').body, true)]")
        assert got == wanted, number


def test_an_answer_that_grows_becomes_what_it_is(page):
    for source in [source for _, source, _ in SPEC] + [ANSWER, "1. a\n\n2. b\n\n- [x]: /u\n\n[x] and [y]\n\n[y]: /v\n", "x\n===\n\n| a |\n|--|\n| b |\n\n    code\n\nend"]:
        for step in (1, 3, 7):
            grown, whole = page.eval(f"[outline(grown({json.dumps(source)}, {step})), outline(whole({json.dumps(source)}))]")
            assert grown.replace("[foo]", "foo").replace("[y]", "y") == whole.replace("[foo]", "foo").replace("[y]", "y"), (source, step)      # a definition behind its use counts at the end


def test_complete_blocks_are_not_made_again(page):
    page.eval("""window.to = document.createElement("div"); window.w = new Writer(to); w.add("one\\n\\n```py\\nx = 1\\n```\\n\\n- two\\n"); window.first = [...to.children].slice(0, 2);
                 window.sizes = []; for (let i = 0; i < 200; i++) { w.add("- item " + i + "\\n\\nText " + i + ".\\n\\n"); sizes.push(w.tail.length); }""")
    assert page.eval("first.every((e, i) => e === to.children[i])") and page.eval("Math.max(...sizes)") < 60
    page.eval("""w.add("```c\\n"); window.code = null; for (let i = 0; i < 100; i++) { w.add("int x" + i + ";\\n"); code ??= to.lastChild; }""")
    assert page.eval("code === to.lastChild && code.querySelector('code').textContent.split('\\n').length === 101")


def test_formulas(page):
    if not page.eval("load('/page/lib/katex.js')"):
        pytest.skip("built without libjs-katex")
    page.eval(f"document.getElementById('thread').replaceChildren(window.to = element('div', {{class: 'body'}})); write(to, {json.dumps(ANSWER)})")
    page.until("to.querySelectorAll('annotation').length === 6")
    assert page.eval("[...to.querySelectorAll('annotation')].map(a => a.textContent.trim())") == [
        "|r| < 1", r"\sum_{k=0}^{\infty} a r^k = \frac{a}{1-r}", "a = 1", r"r = \tfrac12", "2", r"\vec{v} = \begin{pmatrix} a \\ b \end{pmatrix}"]
    assert page.eval("to.querySelectorAll('.katex-display').length") == 2 and "It costs $5 to $10, not $20." in page.eval("to.textContent")
    page.until("document.fonts.check('16px KaTeX_Main')")                       # its fonts come from this server
    assert page.eval("(e => e.getBoundingClientRect().width > 5)(to.querySelector('.katex-html'))")
    hostile = r"$\href{javascript:alert(1)}{x}$ $\includegraphics{https://example.org/x.png}$ $\htmlStyle{color: red}{x}$ $\unknown{$"
    page.eval(f"to.replaceChildren(); write(to, {json.dumps(hostile)})")
    assert page.eval("to.querySelectorAll('a, img, [style*=color\\\\:\\\\ red]').length") == 0 and "unknown" in page.eval("to.textContent")


def test_highlighting_and_links(page):
    page.eval(f"window.to = document.createElement('div'); write(to, {json.dumps(ANSWER)})")
    code = "to.querySelector('pre code')"
    assert page.eval("[...to.querySelectorAll('a')].map(a => a.href)") == ["https://example.org/a_b_c", "https://example.org/foo"]
    if page.eval("load('/page/lib/highlight.js')"):
        page.until(f"{code}.querySelector('.hljs-keyword')?.textContent === 'def' && {code}.querySelector('.hljs-comment').textContent === '# <b>not</b> a tag'")
    assert page.eval(f"{code}.textContent") == "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)   # <b>not</b> a tag\n"
    page.eval("to.replaceChildren(); write(to, '![x](https://example.org/x.png) <https://example.org/y> [a](data:text/html,x) [b](vbscript:x) [c](/etc) www.example.org')")
    assert page.eval("to.querySelectorAll('img').length") == 0 and page.eval("[...to.querySelectorAll('a')].map(a => a.href)") == ["https://example.org/x.png", "https://example.org/y"]


@pytest.mark.parametrize("text", ["[a](b" * 40000, "![](" * 40000, "**a " * 40000, "$a " * 40000, "`" * 50000 + "a", "> " * 2000 + "a", "$" * 50000, "\\[" * 30000], ids=lambda t: t[:5].strip())
def test_senseless_texts_end(page, text):
    began = time.monotonic()
    page.eval(f"whole({json.dumps(text)}).textContent.length")
    assert time.monotonic() - began < 10


def long_conversation(n, title):
    nodes, chosen, parent = {}, {}, ""
    for i in range(n):
        nodes[f"n{i}"] = {"id": f"n{i}", "parent": parent, "role": "assistant" if i % 2 else "user", "content": ANSWER if i % 10 == 9 else f"Message {i} of it. " * 20}
        chosen[parent] = f"n{i}"
        parent = f"n{i}"
    return {"title": title, "system": "", "nodes": nodes, "chosen": chosen}


def test_a_long_conversation_opens_at_its_end(page):
    assert page.eval(imported(json.dumps({"weft": 1, "conversations": [long_conversation(200, "two hundred")]}))) == 1
    page.eval("openConversation(store.sorted().find((h) => h.title === 'two hundred').id)")
    left = "(m => m.scrollHeight - m.scrollTop - m.clientHeight)(document.getElementById('messages'))"
    page.until("document.querySelectorAll('article').length >= 10")
    page.until(f"{left} < 2")
    page.until("document.querySelectorAll('article').length === 200 && document.querySelector('article .katex')")
    page.until(f"{left} < 2")
    assert page.eval("document.getElementById('to-end').hidden")
    assert page.eval("(r => r.top < innerHeight && r.bottom > 0)(document.querySelectorAll('article')[199].getBoundingClientRect())")
    page.eval("document.getElementById('messages').scrollTop -= 500")             # one who reads further up is left there
    page.until("!document.getElementById('to-end').hidden")
    page.eval("document.getElementById('thread').append(element('p', {}, 'more')); window.at = document.getElementById('messages').scrollTop")
    time.sleep(.2)
    assert page.eval("document.getElementById('messages').scrollTop === at")
    page.click("#to-end")
    page.until(f"{left} < 2")


def test_a_thousand_conversations(page):
    page.eval("""(async () => { const text = "Some words of an answer. ".repeat(80); for (let i = 0; i < 1000; i++) {
      const id = "many" + i, nodes = {}; let parent = "";
      for (let k = 0; k < 6; k++) { nodes[k] = { id: String(k), parent, role: k % 2 ? "assistant" : "user", content: text + (i === 7 && k === 5 ? "needle" : k) }; parent = String(k); }
      store.save({ id, title: "Conversation " + i, system: "", nodes, chosen: Object.fromEntries(Object.values(nodes).map(n => [n.parent, n.id])) });
    } await store.write(() => {}); })()""")
    began = time.monotonic()
    visit(page, page.server)
    page.until("document.querySelectorAll('#list > div').length >= 200")
    assert time.monotonic() - began < 5 and page.eval("store.heads.size") >= 1000 and page.eval("document.getElementById('list').children.length") <= 201
    began = time.monotonic()
    page.eval("document.getElementById('search').value = 'NEEDLE words'; search()")
    assert page.eval("[...document.querySelectorAll('#list .name')].map(e => e.textContent)") == ["Conversation 7"] and time.monotonic() - began < 5
