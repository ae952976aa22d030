"""Chat templates: weft template against Python's jinja2, on every template in the shared folder and on a corpus of small ones."""
import json
import os
import random
import re
import struct
import threading
import time

import pytest

from jinja_corpus import CASES, DATA, FAILS
from test_cli import one_error

THREADS = 1

reference = pytest.importorskip("jinja_reference")


def args_of(file, messages, tools=None, generation=True, bos="<s>", eos="</s>", variables=None):
    args = ["template", file, "--messages", json.dumps(messages), "--bos", bos, "--eos", eos, "--now", reference.NOW]
    if tools is not None:
        args += ["--tools", json.dumps(tools)]
    if variables:
        args += ["--chat-template-kwargs", json.dumps(variables)]
    return args if generation else args + ["--no-generation-prompt"]


def compare(run_weft, want, file, *conversation, **more):
    """None where weft prints what jinja2 prints (want), or fails where it fails; else what differs."""
    done = run_weft(args_of(file, *conversation, **more))
    if isinstance(want, Exception):
        if done.returncode != 1 or not re.search(r"line \d+: ", done.err) or done.out:
            return f"jinja2 fails ({want!r}), weft gives {done.returncode}: {done.out!r} {done.err}"
        if isinstance(want, reference.Raised) and " ".join(str(want).split()) not in " ".join(done.err.split()):
            return f"jinja2 raises {str(want)!r}, weft says {done.err}"
        return None
    if done.returncode != 0 or done.err:
        return f"weft fails: {done.err}jinja2 gives {want!r}"
    return None if done.stdout == want.encode() else f"weft   {done.out!r}\njinja2 {want!r}"


# ---- templates of models -----------------------------------------------------------------------------------------------

def test_templates_of_models(run_weft, shared_dir):
    files = sorted((shared_dir / "templates").glob("*.jinja"))
    if not files:
        pytest.skip("no shared templates")
    wrong, texts = [], 0
    for file in files:
        template = reference.ENV.from_string(file.read_text(encoding="utf-8"))
        good = 0
        for name, (messages, tools, generation, variables) in reference.conversations().items():
            want = reference.reference(template, messages, tools, generation, variables=variables)
            difference = compare(run_weft, want, file, messages, tools=tools, generation=generation, variables=variables)
            if difference:
                wrong.append(f"{file.name}, {name}: {difference}")
            good += not isinstance(want, Exception)
        assert good >= 6, f"{file.name}: only {good} conversations give a text at all"
        texts += good
    assert not wrong, "\n\n".join(wrong[:10]) + f"\n\n{len(wrong)} differ"
    assert texts > 20 * len(files) / 2


# ---- the language ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("template", CASES)
def test_language(run_weft, tmp_path, template):
    file = tmp_path / "t.jinja"
    file.write_bytes(template.encode())
    messages = [{"role": "user", "content": "Hi"}]
    want = reference.reference(template, messages, variables=DATA)
    assert not isinstance(want, Exception), want
    difference = compare(run_weft, want, file, messages, variables=DATA)
    assert difference is None, difference


PARTS = ["http://", "https://", "HTTPS://", "www.", "WWW.", "mailto:", "ftp://", "tel:", "git+ssh://", "example", "a", "xn--fsq", "b-c", "%41", "x_y",
         "1", "192", "168", "1234", "dead", "beef", "::", "com", "org", "info", "int", "museum", "COM", ".", ".", ".", ",", ":", ":80", ":123456",
         "/", "?", "#", "/p/q?r=s#t", "@", "@", "(", ")", "<", ">", "[", "]", "&lt;", "&gt;", "&", "'", '"', "-", "--", "!", "é", "ſ", "\u0131", "\u212a", "日本",
         "٣", "²", " ", "\n", "\u00a0", "\x1c", "www", "wiki_(x)", "a@b.c", "user@example.com", "http://[1:2:3:4:5:6:7:8]", "[::1]", "http://1.2.3.4"]
WAYS = ["", "(5)", "(0)", "(-3)", "(nofollow=true)", "(10, true, '_blank')", "(rel='me \"you\" me')", "(target='', rel='zz aa')", "(none, extra_schemes=['ftp://', 'tel:', 'git+ssh:'])",
        "(extra_schemes=[])"]


def test_addresses(run_weft, tmp_path):
    """What looks like one, or nearly: texts of random parts, as links of every kind. WEFT_URLS: how many (default 20,000)."""
    seed = random.Random(5)
    texts = ["".join(seed.choices(PARTS, k=seed.randint(1, 9))) for _ in range(int(os.environ.get("WEFT_URLS") or 20000))]
    links, wrong = 0, []
    for i in range(0, len(texts), 2000):
        some = texts[i:i + 2000]
        for way in seed.sample(WAYS, 3):
            template = "{% for t in texts %}{{ t | urlize" + way + " | tojson }}{{ (t | safe) | urlize" + way + " | tojson }}\n{% endfor %}"
            (tmp_path / "t.jinja").write_text(template)
            want = reference.reference(template, [], variables={"texts": some})
            done = run_weft(args_of(tmp_path / "t.jinja", [], variables={"texts": some}))
            assert done.returncode == 0, done.err
            have = done.stdout.decode().splitlines()
            assert len(have) == len(want.splitlines())
            links += want.count("<a href")
            wrong += [f"{way}: {t!r}\n  weft   {h}\n  jinja2 {w}" for t, h, w in zip(some, have, want.splitlines()) if h != w]
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:10])
    assert links > len(texts) / 5


@pytest.mark.parametrize("template", FAILS)
def test_failures(run_weft, tmp_path, template):
    file = tmp_path / "t.jinja"
    file.write_bytes(template.encode())
    want = reference.reference(template, [], variables=DATA)
    assert isinstance(want, Exception), want
    difference = compare(run_weft, want, file, [], variables=DATA)
    assert difference is None, difference


# ---- the command -------------------------------------------------------------------------------------------------------

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def show(tmp_path):
    """A template that shows what it was given."""
    file = tmp_path / "show.jinja"
    file.write_text("{{ messages | tojson }}{{ tools | tojson }}{{ add_generation_prompt }}[{{ bos_token }}|{{ eos_token }}]{{ x }}{{ strftime_now('%d.%m.%Y') }}")
    return file


def test_json_from_the_line_a_file_and_stdin(run_weft, show, tmp_path):
    text = json.dumps(HELLO)
    (tmp_path / "m.json").write_text("\n " + text)
    want = text + "nullTrue[|]01.01.2026"
    common = ["--now", "2026-01-01"]
    for given in ([text], [tmp_path / "m.json"], ["-"]):
        assert run_weft(["template", show, "--messages", *given, *common], input=text).out == want
    assert run_weft(["template", "-m", show, f"--messages={text}", *common]).out == want
    assert run_weft(["template", "-", "--messages", text, *common], input=show.read_bytes()).out == want
    done = run_weft(["template", show, "--messages", text, "--tools", '[{"name": "f"}]', "--no-generation-prompt", "--bos", "<s>", "--eos", "é",
                     "--chat-template-kwargs", '{"x": {"y": [1.50, true]}}', *common])
    assert done.out == text + '[{"name": "f"}]False[<s>|é]{\'y\': [1.5, True]}01.01.2026'


def test_a_template_from_a_pipe(run_weft, tmp_path):
    """Nothing of it is lost, whether its bytes are there already or not."""
    for first, later in (("hello {{ 1 + 1 }}", ""), ("", "hello {{ 1 + 1 }}"), ("hel", "lo {{ 1 + 1 }}")):
        pipe = tmp_path / f"pipe{len(first)}"
        os.mkfifo(pipe)
        hold = os.open(pipe, os.O_RDWR)
        os.write(hold, first.encode())
        def write():
            time.sleep(0.3)
            os.write(hold, later.encode())
            os.close(hold)
        writer = threading.Thread(target=write)
        writer.start()
        assert run_weft(["template", pipe, "--messages", "[]"], timeout=120).out == "hello 2"
        writer.join()


def test_bad_input_is_named(run_weft, show, tmp_path):
    def refused(*args, **more):
        return one_error(run_weft(["template", show, *args], **more), 1)

    assert "messages: line 1" in refused("--messages", "[1")
    assert "expected a JSON array" in refused("--messages", "{}")
    assert "entry 1" in refused("--messages", '[{}, "x"]')
    assert "nothing.json" in refused("--messages", tmp_path / "nothing.json")
    assert "tools: expected a JSON array" in refused("--messages", "[]", "--tools", "{}")
    assert "'tools' has a place of its own" in refused("--messages", "[]", "--chat-template-kwargs", '{"tools": []}')
    assert "no date" in refused("--messages", "[]", "--now", "today")
    assert "depth" in refused("--messages", "-", input="[" * 1000000)
    (tmp_path / "bad.jinja").write_bytes(b"ok\n{{ \xff }}")
    line = one_error(run_weft(["template", tmp_path / "bad.jinja", "--messages", "[]"]), 1)
    assert "bad.jinja: line 2: byte 6" in line
    assert "No such file" in one_error(run_weft(["template", tmp_path / "none.jinja", "--messages", "[]"]), 1)


def test_model_file(run_weft, tinypy, tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["<s>", "</s>", "x"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template([{"name": "default", "template": "{{ bos_token }}plain {{ messages[0].content }}{{ eos_token }}\n\n"},
                              {"name": "tool_use", "template": "{{ tools | length }} tools{{ bos_token }}"}])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    given = ["--messages", json.dumps(HELLO)]
    assert run_weft(["template", path, *given]).out == "<s>plain Hello</s>\n"
    assert run_weft(["template", path, *given, "--bos", "", "--eos", "E"]).out == "plain HelloE\n"
    assert run_weft(["template", path, *given, "--tools", "[{}, {}]"]).out == "2 tools<s>"
    assert "tokenizer.chat_template" in one_error(run_weft(["template", tinypy, *given]), 1)
    path.write_bytes(path.read_bytes()[:100])
    assert "model.gguf" in one_error(run_weft(["template", path, *given]), 1)


HOSTILE = ["{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{{ 'A' * 1000000000 }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "{{ " + "(" * 1000000, "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
           "{% set l = [1] %}{{ l.append(l) }}{{ l | tojson }}", "{% set l = [0] %}{% for i in l %}{{ l.append(i) }}{% endfor %}", "{{ range(10**9) }}", "{{ 'x' | indent(10**9) }}",
           # work that grows with the square of a text, or that was for nothing
           "{{ ('<!--' * 1000000) | striptags | int | length }}", "{{ ('<' * 9000000) | striptags | int | length }}", "{{ ('{' ~ '[' * 5000000 ~ '}').format(1) }}",
           "{% set a = 'x' * 9999999 %}{% set b = a[1:] ~ 'y' %}{% for i in range(99999) %}{{ a.startswith(b) }}{% endfor %}",
           "{% set a = 'x' * 9999999 %}{% set b = 'y' ~ a[1:] %}{% for i in range(99999) %}{% if a.removesuffix(b) %}{% endif %}{{ b.endswith(a) }}{% endfor %}"]


@pytest.mark.parametrize("template", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_templates_end(run_weft, tmp_path, template):
    file = tmp_path / "t.jinja"
    file.write_text(template)
    assert "t.jinja: line 1: " in one_error(run_weft(["template", file, "--messages", "[]"], timeout=120), 1)


def test_large_integers(run_weft, tmp_path):
    """Beyond 64 bits they are reals, in messages, tools and variables."""
    path = tmp_path / "t.jinja"
    path.write_text("{{ messages[0].n }} {{ tools[0].n }} {{ v }} {{ messages[0].edge }}")
    n = 2**63
    done = run_weft(args_of(path, [{"role": "user", "content": "9223372036854775808", "n": n, "edge": n - 1}], [{"n": -2 * n}], variables={"v": 10**30}))
    assert done.returncode == 0 and done.out == f"{float(n)} {-2.0 * n} 1e+30 {n - 1}", done.err
