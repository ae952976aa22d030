"""weft chat: in a real terminal (pexpect), and with lines from a pipe.  The model is the small one of the repository, which knows no
conversations; a template of a few lines makes do."""
import json
import re
import resource
import subprocess
import time

import pytest

pexpect = pytest.importorskip("pexpect")

# The model writes some Python, and hardly ever ends by itself.
TEMPLATE = "{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}# assistant\n{% endif %}"
PROMPT = re.compile(r"(\d+)/(\d+) > ")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("chat") / "plain.jinja"
    path.write_text(TEMPLATE)
    return str(path)


@pytest.fixture(scope="module")
def chat(run_weft, tinypy, template):
    def run(lines, *args, **more):
        return run_weft(["chat", "-m", tinypy, "--simple-io", "--chat-template-file", template, "-s", "1", *args], input="".join(line + "\n" for line in lines), **more)
    return run


class Terminal:
    """A conversation in a pseudo terminal.  Colours and what is done to the cursor are taken out of what is seen."""
    escapes = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x08|\x0f|\x1b\([A-Z]")

    def __init__(self, weft, env, args):
        self.p = pexpect.spawn(weft, args, env=dict(env, TERM="xterm"), encoding="utf-8", timeout=60, dimensions=(50, 200))
        self.raw = ""
        self.used = self.context = 0

    def prompt(self):
        """What came before the next prompt; its numbers are in used and context."""
        self.p.expect(PROMPT)
        self.used, self.context = int(self.p.match.group(1)), int(self.p.match.group(2))
        self.raw = self.p.before
        return self.escapes.sub("", self.raw).replace("\r", "")

    def say(self, line):
        self.p.sendline(line)
        return self.prompt()

    def end(self):
        self.p.sendline("/exit")
        self.p.expect(pexpect.EOF)
        self.p.close()
        return self.p.exitstatus


@pytest.fixture
def terminal(weft, weft_env, tinypy, template, tmp_path):
    started = []

    def start(*args, env=None):
        full = dict(weft_env, XDG_STATE_HOME=str(tmp_path / "state"), **(env or {}))
        t = Terminal(weft, full, ["chat", "-m", tinypy, "--chat-template-file", template, "-s", "1", *map(str, args)])
        started.append(t)
        t.seen = t.prompt()
        return t
    yield start
    for t in started:
        t.p.close(force=True)


# ---- in a terminal -------------------------------------------------------------------------------------------------------

def test_a_conversation(terminal, tmp_path):
    t = terminal("-n", "20")
    assert (t.used, t.context) == (0, 512)
    assert "tinypy" in t.seen and "a context of 512 tokens" in t.seen
    seen = t.say("hello")
    assert "(cut after 20 tokens: -n)" in seen
    first = t.used
    assert first > 20
    assert "messages" in t.say("/stats") and t.used == first
    t.say("again")
    assert t.used > first + 20
    saved = tmp_path / "conversation.json"
    t.say(f"/save {saved}")
    messages = json.loads(saved.read_text())
    assert [m["role"] for m in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[0]["content"] == "hello" and messages[2]["content"] == "again"
    for text in ("notes of somebody", '{"a": 1}', "[1]"):        # what is no conversation is not written over
        (tmp_path / "notes").write_text(text)
        assert "is there already, and is no saved conversation" in t.say(f"/save {tmp_path / 'notes'}")
        assert (tmp_path / "notes").read_text() == text
    regenerated = t.say("/regen")
    t.say(f"/save {saved}")
    other = json.loads(saved.read_text())
    assert other[:3] == messages[:3] and other[3] != messages[3] and other[3]["content"].strip().splitlines()[0] in regenerated
    assert re.search(r"prompt +1 tokens evaluated, \d+ kept", t.say("/stats"))   # nothing but the last token was evaluated again
    t.say("/clear")
    assert t.used == 0
    t.say("/system be brief")
    t.say("hello")
    t.say(f"/save {saved}")
    assert [m["role"] for m in json.loads(saved.read_text())] == ["system", "user", "assistant"]
    t.say("/system")
    t.say("/clear")
    assert "did you mean /save" in t.say("/sav x") and "/help lists" in t.say("/nonsense")
    for name in ("/help", "/system", "/load", "/save", "/regen", "/clear", "/stats", "/tool", "/exit"):
        assert name in t.say("/help")
    t.say(f"/load {saved}")
    assert "(3 messages)" in t.say(f"/load {saved}")
    assert t.end() == 0


def saved_messages(t, path):
    """What the conversation holds.  A line that was drawn anew (after a resize) has shown one prompt more than there were answers, so that
    prompts do not tell when the file is there."""
    path.unlink(missing_ok=True)
    t.say(f"/save {path}")
    for _ in range(600):
        if path.exists() and path.read_text().endswith("\n"):
            break
        time.sleep(0.05)
    return [m["content"] for m in json.loads(path.read_text())]


def test_a_paste_stays_together(terminal, tmp_path):
    t = terminal("-n", "1")
    t.p.send("\x1b[200~one\ntwo\r\x15three\x1b[201~ four\r")       # keys in a paste are no keys
    t.prompt()
    t.p.send("\x1b[200~alone\n\x1b[201~\r")
    t.prompt()
    assert saved_messages(t, tmp_path / "m.json")[::2] == ["one\ntwo\nthree four", "alone\n"]


def test_keys_of_the_line(terminal, tmp_path):
    """Ctrl-Left and Ctrl-Right, Home and End, Delete; a resize leaves the line whole."""
    t = terminal("-n", "1")
    t.p.send("one three\x1b[1;5Dtwo \x1b[1;5C four\x1b[HX\x1b[3~\x1b[F.")
    t.p.setwinsize(30, 40)
    t.p.send("\x1b[D\x1b[C\r")
    t.prompt()
    family = "\U0001F469\u200D\U0001F469\u200D\U0001F467"                  # one sign of five characters
    t.say(f"a {family} b")
    assert saved_messages(t, tmp_path / "m.json")[::2] == ["Xne two three four.", f"a {family} b"]


def test_messages_of_several_lines(terminal, tmp_path):
    t = terminal("-n", "1")
    t.say('"""on one line"""')
    t.p.sendline('"""begins')
    t.p.expect(r"\.\.\. ")
    t.say('ends"""')
    assert saved_messages(t, tmp_path / "m.json")[::2] == ["on one line", "begins\nends"]


def test_edit_read_and_bye(terminal, tmp_path):
    t = terminal("-n", "1")
    (tmp_path / "notes.txt").write_text("a note\nof two lines")
    assert "(19 bytes of" in t.say(f"/read {tmp_path / 'notes.txt'}")
    t.say("what does it say?")
    t.p.sendline("/edit")
    t.p.expect("edit > ")
    t.p.expect("does it say")
    t.p.send(" Really\r")
    t.prompt()
    assert saved_messages(t, tmp_path / "m.json")[::2] == ["a note\nof two lines\nwhat does it say? Really"]
    t.say("/edit plain")
    assert saved_messages(t, tmp_path / "m.json")[::2] == ["plain"]
    t.say("/set system be brief")
    assert saved_messages(t, tmp_path / "m.json")[0] == "be brief" and "system alone" in t.say("/set parameter x")
    assert "No such file" in t.say("/read /nonexistent") and "needs the name" in t.say("/read")
    assert re.search(r"\(\d+ tokens read at [\d.]+( k)?/s, 1 written at", t.say("more"))
    t.say("/stats off")
    assert "written" not in t.say("more")
    t.p.sendline("/bye")
    t.p.expect(pexpect.EOF)


def test_several_lines_and_history(terminal, tmp_path):
    t = terminal("-n", "1")
    t.p.sendline('"""')
    t.p.expect(r"\.\.\. ")
    t.p.sendline("one")
    t.p.expect(r"\.\.\. ")
    t.p.sendline("two")
    t.p.expect(r"\.\.\. ")
    t.say('"""')
    t.p.sendline("three\\")
    t.p.expect(r"\.\.\. ")
    t.say("four é")
    t.say("last line")
    saved = tmp_path / "lines.json"
    t.say(f"/save {saved}")
    assert [m["content"] for m in json.loads(saved.read_text())][::2] == ["one\ntwo", "three\nfour é", "last line"]
    assert t.end() == 0
    history = tmp_path / "state" / "weft" / "chat_history"
    assert history.stat().st_mode & 0o77 == 0 and history.parent.stat().st_mode & 0o77 == 0
    t = terminal("-n", "1")
    t.p.send("\x1b[A" * 3)               # /exit, /save, then "last line"
    t.p.send("\r")
    t.prompt()
    again = tmp_path / "again.json"
    t.say(f"/save {again}")
    assert json.loads(again.read_text())[0]["content"] == "last line"


def test_ctrl_c_stops_the_answer_only(terminal, tmp_path):
    t = terminal("-c", "20000", "--ignore-eos")
    t.p.sendline("hello")
    t.p.expect(r"\(")                    # of Python: no progress bar has one
    t.p.sendintr()
    seen = t.prompt()
    assert "(stopped after" in seen and t.used > 3
    for _ in range(20):                  # at the prompt: the line is dropped, whether or not it has been read
        t.p.send("half a li")
        t.p.sendintr()
        assert "ends the conversation" in t.prompt()
    saved = tmp_path / "stopped.json"
    t.say(f"/save {saved}")
    messages = json.loads(saved.read_text())
    assert [m["role"] for m in messages] == ["user", "assistant"] and messages[1]["content"]
    t.p.sendeof()
    t.p.expect(pexpect.EOF)
    t.p.close()
    assert t.p.exitstatus == 0


def test_colours_and_thinking(terminal, template, tmp_path):
    thinking = tmp_path / "thinking.jinja"
    thinking.write_text(TEMPLATE.replace("{% endif %}", "<think>{% endif %}"))
    t = terminal("--chat-template-file", thinking, "-n", "5")
    t.say("hello")
    assert "\x1b[0;2m" in t.raw          # dimmed
    saved = tmp_path / "thinking.json"
    t.say(f"/save {saved}")
    answer = json.loads(saved.read_text())[1]
    assert answer["content"] == "" and answer["reasoning_content"]
    t = terminal("--chat-template-file", thinking, "-n", "5", "--color", "off")
    t.say("hello")
    assert "\x1b[0;2m" not in t.raw


def test_a_full_context_is_said_with_a_number(terminal):
    t = terminal("-c", "64", "--ignore-eos")
    assert "the context of 64 tokens is full" in t.say("hello")
    t.p.sendline("hello again")
    t.p.expect(r"The conversation has \d+ tokens and the context holds 64\.")
    t.p.expect(r"Forget the oldest turns\? \[Y/n\] ")
    assert re.search(r"the conversation has \d+ tokens and the context holds 64: shorten it", t.say("n"))
    t.p.sendline("hello again")
    t.p.expect(r"Forget the oldest turns\? \[Y/n\] ")
    assert "(the 2 oldest messages are forgotten)" in t.say("")
    seen = t.say("hello again " * 30)      # one message that is too long by itself
    assert re.search(r"the conversation has \d+ tokens and the context holds 64: shorten it", seen) and "Forget" not in seen
    t.say("/clear")
    t.say("hi")
    assert t.end() == 0


def test_a_full_context_that_shifts(chat, tmp_path):
    """Turns go, oldest first, and neither the system prompt nor the last message."""
    file = tmp_path / "m.json"
    done = chat(["one", "two", "three", "four", "five", f"/save {file}"], "-c", "64", "-n", "12", "-sys", "be brief", "--context-shift")
    assert done.returncode == 0 and "oldest messages are forgotten" in done.err and "shorten it" not in done.err
    messages = json.loads(file.read_text())
    assert messages[0] == {"role": "system", "content": "be brief"} and messages[-2]["content"] == "five" and len(messages) < 11
    assert [m["role"] for m in messages[1:]] == ["user", "assistant"] * (len(messages) // 2)
    done = chat(["one", "two", "three", "four", "five"], "-c", "64", "-n", "12", "-sys", "be brief")
    assert done.returncode == 1 and "--context-shift" in done.err


# ---- one message --------------------------------------------------------------------------------------------------------

def test_one_message(run_weft, tinypy, template, tmp_path):
    """-p, a second word, a file, a pipe, or -p and a file: one answer, and the end."""
    def ask(*args, **more):
        done = run_weft(["chat", tinypy, "--chat-template-file", template, "--temp", "0", "-n", "8", *args], **more)
        assert done.returncode == 0, done.err
        return done.out
    (tmp_path / "q.txt").write_text("hello\nthere\n")
    expected = ask("-p", "hello\nthere")
    assert expected and ask("hello\nthere") == expected
    assert ask("-f", tmp_path / "q.txt") == expected
    assert ask(input="hello\nthere\n") == expected
    assert ask("-p", "hello\\nthere", "-e") == expected
    assert ask("-p", "hello", "-f", "-", input="there\n") == ask("-p", "hello\n\nthere")
    assert ask("-p", "hello", "--simple-io", input="more\n") == ask("-p", "hello")      # and nothing of the pipe
    assert ask("-st", "--simple-io", input="hello\nmore\n") == ask("-p", "hello")
    assert run_weft(["run", tinypy, "--chat-template-file", template, "--temp", "0", "-n", "8", "-p", "hello\nthere"]).out == expected   # an option of chat
    empty = run_weft(["chat", tinypy, "--chat-template-file", template], input="")
    assert empty.returncode == 2 and "no message" in empty.err
    quiet = run_weft(["chat", tinypy, "-p", "x", "-n", "2", "-q", "-ngl", "9"])
    assert quiet.out and quiet.err == ""


def test_an_answer_as_json(run_weft, tinypy, template):
    args = ["chat", tinypy, "--chat-template-file", template, "--temp", "0", "-n", "8", "-p", "hello"]
    text, done = run_weft(args).out, run_weft([*args, "--json"])
    answer = json.loads(done.out)
    assert done.out.count("\n") == 1 and answer["content"].rstrip("\n") == text.rstrip("\n")
    assert answer["role"] == "assistant" and answer["finish_reason"] == "length"
    assert answer["timings"]["predicted_n"] == 8 and answer["timings"]["prompt_n"] > 3 and answer["timings"]["predicted_per_second"] > 0
    assert json.loads(run_weft([*args, "--json", "--regex", "a"]).out)["finish_reason"] == "stop"


def test_the_system_prompt_of_a_file_and_reasoning(run_weft, tinypy, tmp_path):
    plain = tmp_path / "plain.jinja"
    plain.write_text("{{ enable_thinking }} {{ reasoning_effort }} {{ x }}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}")
    (tmp_path / "sys").write_text("brief!")
    def tokens(*args):
        err = run_weft(["chat", tinypy, "--chat-template-file", plain, "-p", "hi", "-n", "0", "--verbose-prompt", *args]).err
        return "".join(re.findall(r" -> '(.*)'$", err, re.M)).replace("\u0120", " ")
    assert tokens("-rea", "off", "--reasoning-effort", "low", "--chat-template-kwargs", '{"x": 5}', "-sysf", tmp_path / "sys") == "False low 5systembrief!userhi"
    assert tokens("-rea", "on").startswith("True")


def test_reasoning_that_is_ended(run_weft, tinypy, tmp_path):
    """As llama-cli's options of these names, and as the server does: the tokens of the budget, the message, the end mark, and the answer goes on."""
    think = tmp_path / "think.jinja"
    think.write_text("{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}# assistant\n<think>\n{# </think> #}")
    def answer(*args):
        return json.loads(run_weft(["chat", tinypy, "--chat-template-file", think, "-p", "def f", "-n", "24", "--temp", "0", "--json", *args]).out)
    free = answer()
    assert not free["content"] and len(free["reasoning_content"]) > 40
    got = answer("--reasoning-budget", "5", "--reasoning-budget-message", " (enough)")
    thought = got["reasoning_content"].removesuffix(" (enough)")
    assert thought != got["reasoning_content"] and free["reasoning_content"].startswith(thought) and len(thought) < 30 and got["content"]
    kept = answer("--reasoning-format", "none")
    assert "reasoning_content" not in kept and kept["content"].strip() == free["reasoning_content"].strip()
    assert answer("--reasoning-budget", "-1") | {"timings": 0} == free | {"timings": 0}


CONVERSATION = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}]


@pytest.mark.parametrize("name, expected", [
    ("chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"),
    ("gemma", "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"),
    ("llama2-sys-bos", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]A</s><s>[INST] V [/INST]"),
    ("mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A</s>[INST] V[/INST]"),
    ("bailing2", "<role>SYSTEM</role>S<|role_end|><role>HUMAN</role>U<|role_end|><role>ASSISTANT</role>A<|role_end|><role>HUMAN</role>V<|role_end|><role>ASSISTANT</role>"),
    ("none", "SUAV")])
def test_templates_by_name(run_weft, tinypy, tmp_path, name, expected):
    """What the prompt is, put together from its tokens: a conversation whose last answer is made again."""
    (tmp_path / "m.json").write_text(json.dumps([*CONVERSATION, {"role": "assistant", "content": "gone"}]))
    done = run_weft(["chat", tinypy, "--simple-io", "--chat-template", name, "-n", "0", "--verbose-prompt"], input=f"/load {tmp_path / 'm.json'}\n/regen\n")
    ids = re.findall(r"^ *(\d+) -> ", done.err, re.M)
    text = run_weft(["tokenize", tinypy, "--detokenize", ",".join(ids), "--parse-special"]).out
    assert text == "<|endoftext|>" + expected        # the model wants its BOS


def test_a_template_that_nobody_knows(run_weft, tinypy):
    done = run_weft(["chat", tinypy, "--chat-template", "cahtml", "-p", "x"])
    assert done.returncode == 1 and "chatml" in done.err and "mistral-v7-tekken" in done.err


# ---- from a pipe -----------------------------------------------------------------------------------------------------------

def test_lines_from_a_pipe(chat, tmp_path):
    done = chat(["hello", '"""', "a", "b", '"""', f"/save {tmp_path / 'x.json'}"], "-n", "12", "-sys", "be brief")
    assert done.returncode == 0, done.err
    messages = json.loads((tmp_path / "x.json").read_text())
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[3]["content"] == "a\nb"
    answers = (messages[2]["content"], messages[4]["content"])
    assert done.out == "".join(a if a.endswith("\n") else a + "\n" for a in answers)
    assert b"\x1b" not in done.stdout and " > " not in done.out


def test_a_pipe_that_fails(run_weft, tinypy, tmp_path):
    """One message from a pipe: the exit status says whether it was answered."""
    (tmp_path / "bad.jinja").write_text("{{ raise_exception('no') }}")
    done = run_weft(["chat", "-m", tinypy, "--chat-template-file", tmp_path / "bad.jinja", "-n", "3"], input="hi\n")
    assert done.returncode == 1 and "no" in done.err
    assert run_weft(["chat", "-m", tinypy, "--chat-template", "none", "-n", "3"], input="hi\n").returncode == 0


def test_what_is_in_the_cache_is_kept(chat):
    done = chat(["hello", "again", "/stats"], "-n", "12")
    kept = int(re.search(r"(\d+) kept", done.err).group(1))
    assert kept >= 12


def test_the_same_answer_whatever_was_kept(chat, tmp_path):
    chat(["one", "two", f"/save {tmp_path / 'a.json'}"], "-n", "12", "--temp", "0")
    messages = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(messages[:2]))
    chat([f"/load {tmp_path / 'b.json'}", "two", f"/save {tmp_path / 'c.json'}"], "-n", "12", "--temp", "0")
    assert json.loads((tmp_path / "c.json").read_text()) == messages


def test_stop_strings(chat):
    done = chat(["hello"], "-n", "40", "-r", "e")
    assert "e" not in done.out and "cut" not in done.err


def test_a_grammar_for_the_answers(chat, tmp_path):
    done = chat(["hello", "again"], "--json-schema", '{"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false}')
    first, second = (json.loads(part + "}") for part in done.out.split("}")[:2])
    assert first["n"] in (1, 2) and second["n"] in (1, 2)
    thinking = tmp_path / "thinking.jinja"   # reasoning is free
    thinking.write_text(TEMPLATE.replace("{% endif %}", "<think>{% endif %}"))
    done = chat(["hello", f"/save {tmp_path / 'a.json'}"], "--chat-template-file", str(thinking), "-n", "20", "--regex", "[0-9]{3}")
    answer = json.loads((tmp_path / "a.json").read_text())[1]
    assert answer["content"] == "" and len(answer["reasoning_content"]) > 10
    assert "more than once" in chat(["x"], "--regex", "a", "--grammar", "root ::= \"a\"").err


def test_text_that_spells_control_tokens(run_weft, tinypy, tmp_path):
    """What people type stays text."""
    plain = tmp_path / "plain.jinja"
    plain.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")

    def context(text):
        done = run_weft(["chat", "-m", tinypy, "--simple-io", "--chat-template-file", plain, "-n", "0"], input=f"{text}\n/stats\n")
        return int(re.search(r"context +(\d+) of", done.err).group(1))

    def count(*more):
        return len(json.loads(run_weft(["tokenize", "-m", tinypy, "-p", text, "--ids", "--no-bos", *more]).out))
    text = "x <|endoftext|> y"
    assert count("--parse-special") < count() and abs(context(text) - count()) <= 1   # the text is cut once, inside of the token's name
    # also in parts of a message
    plain.write_text("{% for m in messages %}{% for p in m.content %}{{ p.text or p }}{% endfor %}{% endfor %}")
    (tmp_path / "parts.json").write_text(json.dumps([{"role": "user", "content": [{"type": "text", "text": text}]}, {"role": "assistant", "content": ""}]))
    done = run_weft(["chat", "-m", tinypy, "--simple-io", "--chat-template-file", plain, "-n", "0"], input=f"/load {tmp_path / 'parts.json'}\n/regen\n/stats\n")
    assert abs(int(re.search(r"context +(\d+) of", done.err).group(1)) - count()) <= 1


def test_tools(run_weft, tinypy, tmp_path):
    """A call in the conversation waits for its result."""
    template = tmp_path / "tools.jinja"
    template.write_text("{{ tools | length }}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}")
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {}}}, {"id": "call00001", "type": "function", "function": {"name": "g", "arguments": {}}}]}]
    (tmp_path / "m.json").write_text(json.dumps(messages))
    done = run_weft(["chat", "-m", tinypy, "--simple-io", "--chat-template-file", template, "--tools", "[{}]", "-n", "2"],
                    input=f"/tool early\n/load {tmp_path / 'm.json'}\n/tool 1\n/tool 2\n/tool 3\n/save {tmp_path / 'n.json'}\n")
    saved = json.loads((tmp_path / "n.json").read_text())
    assert [(m["role"], m.get("tool_call_id"), m.get("name")) for m in saved] == [
        ("user", None, None), ("assistant", None, None), ("tool", "call00000", "f"), ("tool", "call00001", "g"), ("assistant", None, None)]
    assert done.err.count("no call waits") == 2
    (tmp_path / "odd.json").write_text('[{"role": "assistant", "content": null, "tool_calls": [7, {"function": []}]}]')
    run_weft(["chat", "-m", tinypy, "--simple-io", "--chat-template-file", template, "--tools", "[{}]", "-n", "2"],
             input=f"/load {tmp_path / 'odd.json'}\n/tool 1\n/tool 2\n/save {tmp_path / 'n.json'}\n")
    assert [m["role"] for m in json.loads((tmp_path / "n.json").read_text())] == ["assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize("args, says", [
    (["--tools", "{}"], "--tools"), (["--tools", "[1"], "--tools"), (["--chat-template-kwargs", "[]"], "--chat-template-kwargs"),
    (["--chat-template-file", "/nonexistent"], "/nonexistent"), (["--samplers", "bogus"], "bogus")])
def test_bad_options(chat, args, says):
    done = chat(["x"], *args)
    assert done.returncode == 1 and says in done.err and done.stdout == b""


def test_a_model_without_a_template(run_weft, tinypy):
    """It is written as ChatML, with a warning."""
    done = run_weft(["chat", tinypy, "-n", "3", "--temp", "0", "--verbose-prompt"], input="x\n")
    assert done.returncode == 0 and done.err.count("warning") == 1 and "ChatML" in done.err
    named = run_weft(["chat", tinypy, "-n", "3", "--temp", "0", "--verbose-prompt", "--chat-template", "chatml"], input="x\n")
    assert named.out == done.out and "warning" not in named.err and named.err in done.err


def test_a_template_that_fails(chat, tmp_path):
    bad = tmp_path / "bad.jinja"
    bad.write_text("{{ raise_exception('no such luck') }}")
    done = chat(["x", "/stats"], "--chat-template-file", str(bad))
    assert "no such luck" in done.err and ", 0 messages" in done.err


def test_an_empty_prompt(chat, tmp_path):
    nothing = tmp_path / "nothing.jinja"
    nothing.write_text("{# nothing #}")
    done = chat(["x", "y", "/stats"], "--chat-template-file", str(nothing))
    assert done.err.count("empty prompt") == 2 and ", 0 messages" in done.err and done.stdout == b""


def test_a_reader_that_leaves(weft, weft_env, tinypy, template):
    p = subprocess.Popen([weft, "chat", "-m", tinypy, "--simple-io", "--chat-template-file", template, "-c", "100000", "--ignore-eos"], env=weft_env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.stdin.write(b"hello\n")
    p.stdin.flush()
    assert p.stdout.read(10)
    p.stdout.close()
    assert p.wait(60) == 0


def test_saved_whole_or_not_at_all(chat, tmp_path):
    """Where the disk is full, what was saved before stays."""
    path, limit = tmp_path / "saved", 50
    path.write_text("[]")
    done = chat(["x" * limit, f"/save {path}"], "-n", "1", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)), env={"WEFT_CACHE": "off"})
    assert "saved: cannot be written: File too large" in done.err and path.read_text() == "[]" and [p.name for p in tmp_path.glob("saved*")] == ["saved"], done.err
    assert chat(["x", f"/save {path}"], "-n", "1").returncode == 0 and len(json.loads(path.read_text())) == 2


def test_files_that_are_no_conversations(chat, tmp_path):
    (tmp_path / "a").write_text("{")
    (tmp_path / "b").write_text("{}")
    (tmp_path / "c").write_text('[{"content": "x"}]')
    done = chat(["/load", "/load /nonexistent", *(f"/load {tmp_path / name}" for name in "abc"), "/save", "/save /nonexistent/x", "/regen"])
    for says in ("needs the name", "/nonexistent: No such file", "line 1", "expected a JSON array", "has no role", "/nonexistent/x", "no answer"):
        assert says in done.err
    assert done.returncode == 1
