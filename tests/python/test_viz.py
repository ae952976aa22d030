"""weft viz in a real browser: the page opens without a complaint and without a network, shows as many kernels as --stats counts, source of the kernel that
was clicked, a lane for each thread, every rewrite; and takes the names of a hostile model as text."""
import json
import os
import re
import subprocess
import threading

import pytest

import browser


@pytest.fixture(scope="module")
def page(run_weft, tinypy, tmp_path_factory):
    path = tmp_path_factory.mktemp("viz") / "page.html"
    done = run_weft(["viz", "-m", tinypy, "--out", path, "-n", "4", "-t", "2"])
    assert done.returncode == 0 and done.out == "" and str(path) in done.err, done.err
    return path


@pytest.fixture(scope="module")
def window():
    if not browser.find():
        pytest.fail("no Chromium: scripts/setup.sh test installs chromium-headless-shell")
    with browser.Browser() as b:
        yield b


@pytest.fixture
def shown(window, page):
    window.errors.clear(), window.requests.clear()
    window.open("/dev/null")
    window.open(page)
    yield window
    assert window.errors == []
    assert all(url.startswith(("file://", "data:")) for url in window.requests)


def view(b, hash, selector):
    b.eval(f"location.hash = {json.dumps(hash)}")
    b.until(f"document.querySelector({json.dumps(selector)})")


def data(page):
    return [json.loads(m) for m in re.findall(r'<script type="application/json" id="d\d+">(.*?)</script>', page.read_text())]


def text(b, selector):
    return b.eval(f"document.querySelector({json.dumps(selector)}).textContent")


def test_the_file(page):
    """One file, small, that names no other."""
    html = page.read_text()
    assert len(html) < 3 << 20
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", html) and "default-src 'none'" in html
    overview, graph, *kernels = data(page)
    assert len(kernels) == 1 + max(k[0] for k in overview["kernels"])
    for k in kernels:
        assert k["source"].count("define void @" + k["name"]) == 1 and k["name"] + ":" in k["assembly"]
        marks = [m[0] for m in k["record"]["marks"]]
        assert marks[0] == "schedule" and marks[-1] == "decompose"
        assert all(0 <= n < len(k["record"]["nodes"]) for step in k["record"]["steps"] for n in step[1:])
        assert all(0 < back <= i for i, node in enumerate(k["record"]["nodes"]) for back in node[1:])
    assert [m[0] for m in graph["record"]["marks"]] == ["model", "dots", "flash attention", "schedule"] and min(graph["tensors"]) >= 0


def test_kernels(shown, run_weft, tinypy, tmp_path):
    run = ["run", "-m", tinypy, "-c", "64", "-p", "x", "-n", "1", "--stats", tmp_path / "stats"]       # one page of the caches, as there
    assert run_weft(run).returncode == 0
    stats = json.loads((tmp_path / "stats").read_text())
    view(shown, "kernels", "#table")
    assert text(shown, "h2") == f"{stats['kernels_per_token']:.0f} kernels per token"
    assert shown.eval("document.querySelectorAll('#list a').length") == shown.eval("document.querySelectorAll('#table tr.row').length") == shown.eval("nUnique")
    shown.click("nav a[data-view=graph]")
    shown.until("document.querySelector('.tools button:last-child')")
    shown.click(".tools button:last-child")                          # all of them
    shown.until("document.querySelectorAll('svg g.node').length == kernels.length")
    assert shown.eval("new Set(kernels.map(k => k.level)).size") == stats["kernels_per_token"]


def test_a_click_shows_source_and_assembly(shown, page):
    view(shown, "kernels", "#table")
    u = shown.eval("groups.find(g => g.parts.includes('FFN down')).u")          # a product, which has a loop
    name = text(shown, f"#table tr.row[data-unique='{u}'] td.k")
    shown.click(f"#table tr.row[data-unique='{u}']")
    shown.until("document.querySelector('#source')")
    assert "@" + name in text(shown, "#source") and text(shown, "aside a.on .name") == name
    kernel = next(k for k in data(page)[2:] if k["name"] == name)
    lines = shown.eval("[...document.querySelectorAll('#source div')].map(d => d.textContent.slice(d.firstChild.textContent.length))")
    assert "\n".join(lines) == kernel["source"]
    assert shown.eval("document.querySelectorAll('#assembly .hot').length") > 2      # the loop that counts
    assert "cycles" in shown.eval("document.querySelectorAll('.pane h4 small')[1].textContent")


def test_a_lane_for_each_thread(shown):
    shown.click("nav a[data-view=timeline]")
    shown.until("document.querySelector('g.lane')")
    assert shown.eval("[...document.querySelectorAll('g.lane')].map(l => l.querySelectorAll('.bar').length)") == [shown.eval("kernels.length")] * 2
    inside = "over.lanes.every(l => l.every((x, i) => x >= 0 && x <= over.step_us && (!i || x >= l[i - 1])))"
    assert shown.eval(inside)                                        # one after the other, within the token
    assert shown.eval("Math.abs(kernels.reduce((s, k) => s + k.us, over.overhead_us) - over.step_us)") < 1


def test_rewrites(shown, page):
    kernels = data(page)[2:]
    u = max(range(len(kernels)), key=lambda i: len(kernels[i]["record"]["steps"]))
    record = kernels[u]["record"]
    view(shown, f"kernel/{u}/rewrites/s/3", "#rule")
    rule = record["rules"][record["steps"][3][0]]
    assert text(shown, "#rule") == rule[3] and f"{rule[1]}:{rule[2]}" in text(shown, "#where") and rule[4] in text(shown, "#where")
    assert text(shown, ".steps a.on").startswith("3")
    assert len(text(shown, ".expr .del")) > 0                        # what it changed
    shown.press("n")
    shown.until("document.querySelector('.steps a.on').textContent.startsWith('4')")
    view(shown, f"kernel/{u}/rewrites/p/{len(record['marks']) - 1}", ".code .add")
    assert text(shown, ".pane:last-child h4").startswith("decompose")
    assert text(shown, "#opts").split("  ") == [m[0] for m in record["marks"] if m[0].isupper() or "(" in m[0]]
    view(shown, "model/s/0", "#rule")


def test_the_rule_stands_where_it_says(page, repo):
    for table, line, rule, file in {tuple(r[1:]) for k in data(page)[2:] for r in k["record"]["rules"]}:
        source = (repo / "src" / file).read_text().splitlines()[line - 1]
        assert "".join(rule.split("  ->  ")[0].split()) in "".join(source.split()), (table, line)


def test_graphs(shown):
    view(shown, "kernel/2/graph/0", "svg g.node")
    assert "STORE" in shown.eval("document.querySelector('svg').textContent")
    shown.press("m")                                                 # tensors
    shown.until("document.querySelector('.tabs a.on').textContent == 'Tensors' && document.querySelector('svg g.node')")
    view(shown, "memory", "svg .bar")
    assert shown.eval("document.querySelectorAll('svg .bar').length") == shown.eval("over.temps.length")


def test_search_and_keys(shown):
    shown.press("/")
    for c in "ffn_down":
        shown.press(c)
    shown.until("document.querySelectorAll('#list a').length < nUnique")
    assert shown.eval("[...document.querySelectorAll('#list a')].every(a => groupOf(+a.dataset.unique).all.some(k => k.role.includes('ffn_down') || k.reads.some(b => b.includes('ffn_down'))))")
    shown.press("Enter")
    shown.until("location.hash.startsWith('#kernel/')")
    shown.press("p")
    shown.until("location.hash.endsWith('/program')")
    shown.press("3")
    shown.until("document.querySelector('g.lane')")
    dark = shown.eval("document.documentElement.classList.contains('dark')")
    shown.press("t")
    assert shown.eval("document.documentElement.classList.contains('dark')") is not dark
    shown.press("t")
    shown.press("?")
    assert shown.eval("document.querySelector('dialog').open")
    assert "[object" not in text(shown, "dialog") and "searchj k" in re.sub(r" +", " ", text(shown, "dialog")).replace("next, previous kernel", "") and text(shown, "dialog kbd") == "/"


@pytest.mark.parametrize("hash", ["constructor", "kernel/0/constructor", "kernel/0/graph/-1", "kernel/0/graph/x", "kernel/0/tensors/1.5", "model/p/-3", "kernels/%25zz", "kernel/-1"])
def test_addresses_that_are_none(shown, hash):
    """What nobody links to shows a page all the same, and complains of nothing."""
    shown.eval("document.getElementById('main').textContent = ''")
    view(shown, hash.replace("%25", "%"), "#main h2")


def test_the_first_page(shown):
    """Where the time goes, by part of the model: the pieces of a bar are as long as what they stand for, and a prompt stands beside a token."""
    shown.until("document.querySelector('.stack')")
    assert text(shown, "h2") == "Where does the time of a token go?"
    assert shown.eval("[...document.querySelectorAll('.where h3')].map(h => h.textContent)") == ["A token", "A prompt, in chunks of 64 tokens", "Compiling", "Memory"]
    widths = shown.eval("[...document.querySelectorAll('.where')].map(w => { const s = w.querySelector('.stack'); return [...s.children].reduce((x, c) => x + c.offsetWidth, 0) / s.offsetWidth })")
    assert all(0.9 < w < 1.1 for w in widths), widths
    parts = shown.eval("[...document.querySelectorAll('.where')].slice(0, 2).map(w => [...w.querySelectorAll('tbody tr td:first-child')].map(td => td.textContent))")
    for names in parts:
        assert {"embedding", "attention", "Q, K and V", "FFN down", "FFN up and gate", "attention output", "quantise activations"} <= set(names) and "-" not in names
    assert "output" in parts[0] and shown.eval("over.passes.some(p => p[0] === 'machine code' && p[1] > 0) && over.memory.weights > 1e6 && over.memory['KV cache'] > 0")
    assert shown.eval("new Set(kernels.map(k => colour(k.part))).size === new Set(kernels.map(k => k.part)).size")       # a colour each


def test_columns_sort(shown):
    view(shown, "kernels", "#table")
    names = "[...document.querySelectorAll('#table tr.row td.k')].map(td => td.textContent)"
    shown.eval("[...document.querySelectorAll('#table th button')].find(b => b.textContent.startsWith('kernel')).click()")
    shown.until("location.hash === '#kernels/kernel'")
    sorted_ = shown.eval(names)
    assert sorted_ == shown.eval(names + ".sort((a, b) => a.localeCompare(b))")
    shown.eval("[...document.querySelectorAll('#table th button')].find(b => b.textContent.startsWith('kernel')).click()")
    shown.until("location.hash === '#kernels/-kernel'")
    assert shown.eval(names) == sorted_[::-1] or shown.eval(names) != sorted_
    shown.eval("[...document.querySelectorAll('#table th button')].find(b => b.textContent.startsWith('count')).click()")
    shown.until("location.hash === '#kernels/count'")
    counts = shown.eval("[...document.querySelectorAll('#table tr.row td:nth-child(4)')].map(td => +td.textContent)")
    assert counts == sorted(counts, reverse=True)


def test_layers_are_drawn_once(shown):
    view(shown, "graph", "svg g.node")
    n, all_, layers = shown.eval("document.querySelectorAll('svg g.node').length"), shown.eval("kernels.length"), shown.eval("over.layers")
    assert n < all_ * 2 / layers + 12 and f"× {layers}" in text(shown, "main svg")
    shown.click(".tools button:first-child")
    shown.until("document.querySelectorAll('svg g.node').length > %d" % n)


def test_a_bar_says_what_it_is(shown):
    view(shown, "timeline", "g.lane .bar")
    shown.eval("[...document.querySelectorAll('g.lane .bar')].sort((a, b) => b.getAttribute('width') - a.getAttribute('width'))[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    shown.until("document.querySelector('#detail b')")
    assert "thread " in text(shown, "#detail") and "GB/s" in text(shown, "#detail") and shown.eval("document.querySelector('#detail a').hash").startswith("#kernel/")
    shown.eval("const b = document.querySelector('.bar.on').getBoundingClientRect(); document.querySelector('main svg').dispatchEvent(new WheelEvent('wheel', "
               "{bubbles: true, cancelable: true, deltaY: -4000, clientX: (b.left + b.right) / 2, clientY: b.top + 5}))")
    shown.until("document.querySelector('svg .said text')")          # there is room for it now
    assert shown.eval("[...document.querySelectorAll('svg .said text')].every(t => kernels.some(k => k.part === t.textContent || k.part.startsWith(t.textContent.replace('…', ''))))")


def test_rewrites_by_rule(shown, page):
    u = max(range(len(data(page)) - 2), key=lambda i: len(data(page)[2 + i]["record"]["steps"]))
    view(shown, f"kernel/{u}/rewrites/s/3", ".steps .fired a.on")
    fired = shown.eval("[...document.querySelectorAll('.steps details[open] .fired')].map(f => [+f.querySelector('b').textContent.split(' ')[0], f.querySelectorAll('a').length])")
    assert fired and all(n == links for n, links in fired) and [n for n, _ in fired] == sorted((n for n, _ in fired), reverse=True)
    assert "→" in text(shown, ".steps a.on")


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_it_fits(shown, width):
    """Nothing is wider than the window, in any view; and text is no smaller than it was."""
    shown.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    try:
        for hash in ("overview", "kernels", "timeline", "graph", "memory", "model", "kernel/2/source", "kernel/2/rewrites/p/1"):
            view(shown, hash, "main h2")
            assert shown.eval("document.documentElement.scrollWidth") <= width, hash
        view(shown, "overview", ".stack")
        assert shown.eval("[...document.querySelectorAll('.where td, .where p, h2')].every(x => parseFloat(getComputedStyle(x).fontSize) >= 12 && x.getBoundingClientRect().right <= innerWidth + 1)")
    finally:
        shown.call("Emulation.clearDeviceMetricsOverride")


def test_a_hostile_name(window, run_weft, tinypy, tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    path = folder / "<script>alert(1)<!--.gguf"
    path.symlink_to(tinypy)
    out = tmp_path / "page.html"
    assert run_weft(["viz", "-m", path, "--out", out, "-n", "1"]).returncode == 0
    html = out.read_text()
    assert "<script>alert" not in html and "<img" not in html and html.count("<!--") == 0
    window.errors.clear()
    window.open(out)
    assert text(window, "#title") == "<script>alert(1)<!--.gguf" and window.errors == []


def test_names_from_the_file(run_weft, tinypy, tmp_path):
    """A tensor whose name is mark-up, and one that would end the script: refused by the loader or shown as text, never code."""
    data_ = open(tinypy, "rb").read()
    old, new = b"output_norm.weight", b"</script><b>.eight"
    assert len(old) == len(new) and old in data_
    path = tmp_path / "model.gguf"
    path.write_bytes(data_.replace(old, new))
    done = run_weft(["viz", "-m", path, "--out", tmp_path / "page.html", "-n", "1"])
    assert done.returncode == 1 and "output_norm" in done.err


def test_viz_of_a_run(run_weft, tinypy, tmp_path):
    done = run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "4"], env={"VIZ": "1"}, cwd=tmp_path)
    assert done.returncode == 0 and "weft-viz.html" in done.err and data(tmp_path / "weft-viz.html")[0]["tokens"] == 1
    assert run_weft(["bench", "-m", tinypy, "-p", "4", "-n", "0", "-r", "1"], env={"VIZ": tmp_path / "b.html"}).returncode == 0 and (tmp_path / "b.html").exists()


@pytest.mark.parametrize("command", [["run", "-p", "def ", "-n", "1"], ["bench", "-p", "4", "-n", "0", "-r", "1"], ["chat", "-p", "def ", "-n", "1"]], ids=lambda c: c[0])
def test_a_page_that_cannot_be_written_is_a_failure(run_weft, tinypy, tmp_path, command):
    """A page of VIZ is a result: the status says that it is missing."""
    done = run_weft([command[0], "-m", tinypy, *command[1:]], env={"VIZ": tmp_path / "none" / "page.html"})
    assert done.returncode == 1 and f"{tmp_path}/none/page.html" in done.err, done.err


def test_other_ways(run_weft, tinypy, tmp_path):
    done = run_weft(["viz", "-m", tinypy, "--out", "-", "-n", "1", "-p", "16", "-d", "20"])
    (tmp_path / "p").write_text(done.out)
    overview = data(tmp_path / "p")[0]
    assert overview["tokens"] == 16 and overview["depth"] == 20
    for env in ({"DEV": "NULL"}, {"DEV": "REF"}, {"RENDER": "c"}):
        done = run_weft(["viz", "-m", tinypy, "--out", tmp_path / "p", "-n", "1"], env=env, timeout=400)      # a C compiler takes its time
        assert done.returncode == 0, done.err
        assert bool(data(tmp_path / "p")[3]["source"]) is (env == {"RENDER": "c"})
    assert run_weft(["viz", "-m", tinypy, "--out", "/dev/full", "-n", "1"]).returncode == 1
    assert run_weft(["viz", "-m", tinypy, "--out", tmp_path / "no" / "p", "-n", "1"]).returncode == 1
    assert run_weft(["viz"]).returncode == 2
