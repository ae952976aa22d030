"""What a terminal shows of weft, by an emulator that was made elsewhere (pyte), at widths from a telephone's to a wide screen's."""
import contextlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import termios
import threading
import time
import unicodedata

import pytest

from registry import Registry

pexpect = pytest.importorskip("pexpect")
pyte = pytest.importorskip("pyte")

COLUMNS = [20, 40, 80, 200]
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
PROMPT = "0/512 > "
UP, LEFT, HOME, END = "\x1b[A", "\x1b[D", "\x1b[H", "\x1b[F"


class Screen(pyte.HistoryScreen):
    """pyte's cursor stands behind the last column where lines do not wrap; that of xterm, VTE and the VT100 stands on it, and what is erased
    from there on takes the last sign along."""

    def erase_in_line(self, how=0, private=False):
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().erase_in_line(how, private)

    def erase_in_display(self, how=0, *args, **kwargs):
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().erase_in_display(how, *args, **kwargs)


class Terminal:
    def __init__(self, command, env, columns, rows=24):
        self.p = pexpect.spawn(command[0], [str(word) for word in command[1:]], env=env, encoding="utf-8", timeout=120, dimensions=(rows, columns))
        self.screen = Screen(columns, rows, history=10_000, ratio=0.01)
        self.stream = pyte.Stream(self.screen)
        self.raw = ""

    def read(self):
        try:
            got = self.p.read_nonblocking(4096, timeout=0.03)
        except pexpect.TIMEOUT:
            return False
        except pexpect.EOF:
            return None
        self.raw += got
        self.stream.feed(got)
        return True

    def rows(self):
        """All that was shown, the newest last; the second half of a wide sign is nothing."""
        past = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return [*past, *self.screen.display]

    def text(self):
        return "\n".join(row.rstrip() for row in self.rows()).rstrip("\n")

    def until(self, holds):
        end = time.time() + 120
        while not holds(self):
            assert time.time() < end, self.text()
            if self.read() is None:
                assert holds(self), self.text()

    def keys(self, text=""):
        """Sends keys, and reads until nothing more comes."""
        self.p.send(text)
        quiet = 0
        while quiet < 3:
            quiet = 0 if self.read() else quiet + 1
        return self.text()

    def prompt(self):
        self.until(lambda t: re.search(r"\d+/\d+ > $", t.text() + (" " if not t.text().endswith(" ") else "")))

    def say(self, line):
        before = self.raw.count("\x1b[?2004h")
        self.p.send(line + "\r")
        self.until(lambda t: t.raw.count("\x1b[?2004h") > before and re.search(r"\d+/\d+ >$", t.text()))
        return self.text()

    def end(self):
        while self.read() is not None:
            pass


@pytest.fixture
def chat(weft, weft_env, tinypy, tmp_path):
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    started = []

    def start(*options, columns=80, rows=24, term="xterm", ready=True, **more):
        env = dict(weft_env, TERM=term, XDG_STATE_HOME=str(tmp_path / "state"), **more)
        if term is None:
            del env["TERM"]
        t = Terminal([weft, "chat", tinypy, "--chat-template-file", tmp_path / "t.jinja", "-s", "1", "-q", *options], env, columns, rows)
        started.append(t)
        if ready:
            t.until(lambda t: t.text().endswith(PROMPT.rstrip()))
        return t
    yield start
    for t in started:
        t.p.close(force=True)


def messages(t, path):
    """What was said to the model."""
    t.p.send(f"/save {path}\r")
    end = time.time() + 60
    while time.time() < end and not (path.exists() and path.read_text().endswith("\n")):
        t.read()
    return [m["content"] for m in json.loads(path.read_text()) if m["role"] == "user"]


def squeezed(text):
    return re.sub(r"\s", "", unicodedata.normalize("NFC", text))


# ---- the line ------------------------------------------------------------------------------------------------------------

TEXTS = {"ascii": "abcdefghijklmnopqrstuvwxyz0123456789", "wide": "漢字かな交じり文", "mixed": "word 漢字 e\u0301te\u0301 😀 x"}


@pytest.mark.parametrize("columns, kind", [(20, "ascii"), (20, "wide"), (20, "mixed"), (40, "mixed"), (80, "ascii"), (80, "mixed"), (200, "mixed")])
def test_no_character_is_lost_where_a_line_wraps(chat, tmp_path, columns, kind):
    """While it is typed in pieces, after the cursor went through it, and after each end was changed."""
    t = chat("-n", "1", columns=columns, rows=40)
    text, shown = (TEXTS[kind] * 20)[:int(2.5 * columns)], lambda: squeezed(t.text())
    signs = re.findall(".\u0301?", text)
    step = columns // 5 + 1
    for at in range(0, len(text), step):
        t.p.send(text[at:at + step])
        t.read()
    t.until(lambda t: shown() == squeezed(PROMPT + text))
    def becomes(line):
        t.until(lambda t: shown() == squeezed(PROMPT + line))
    t.keys(HOME + "X" + LEFT)
    becomes("X" + text)
    t.keys(END + "Y" + LEFT * 5 + "Z")
    becomes("X" + "".join([*signs[:-4], "Z", *signs[-4:], "Y"]))
    t.keys(HOME + "\x1b[3~" * 20 + END)                                   # fewer rows: nothing of the old ones is left
    left = "".join([*signs[19:-4], "Z", *signs[-4:], "Y"])
    becomes(left)
    t.p.send("\r")
    t.until(lambda t: re.search(r"\n[1-9]\d*/512 >$", t.text()))
    assert messages(t, tmp_path / "m.json") == [left]


def test_a_prompt_that_is_nearly_as_wide_as_the_screen(chat, tmp_path):
    t = chat("-n", "1", "-c", "20000", columns=12, ready=False)
    t.until(lambda t: t.text().endswith(">"))
    t.keys("abcdefghijklmnopqrstuvwxyz" + HOME + "X" + END)
    assert squeezed(t.text()) == ">Xabcdefghijklmnopqrstuvwxyz"


# ---- history and completion ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("typed, message", [(['"""', "one", "two", '"""'], "one\ntwo"), (["three\\", "four"], "three\nfour"), (['"""', "ends with \\", '"""'], "ends with \\"),
                                            (['""""""quoted""" x', '"""'], '"""quoted""" x')])
def test_up_brings_a_message_back_whole(chat, tmp_path, typed, message):
    t = chat("-n", "1")
    for line in typed[:-1]:
        t.p.send(line + "\r")
        t.until(lambda t: t.text().endswith("\n..."))
        t.keys()
    t.say(typed[-1])
    t.keys(UP)
    assert all(line in t.text().rsplit("/512 > ", 1)[1] for line in message.split("\n"))
    t.say("")
    assert messages(t, tmp_path / "m.json") == [message] * 2


def test_tab_completes_commands(chat, tmp_path):
    t = chat("-n", "1")
    last = lambda text: text.rsplit("\n", 1)[-1]
    assert last(t.keys("/he\t")) == PROMPT + "/help" and t.screen.cursor.x == len(PROMPT + "/help ")
    assert last(t.keys("\x15/st\tof")) == PROMPT + "/stats of"
    seen = t.keys("\x15/s\t")
    assert last(seen) == PROMPT + "/s" and seen.split("\n")[-2] == "/system  /save  /stats  /set"
    assert last(t.keys("y\tbe brief")) == PROMPT + "/system be brief"
    assert last(t.keys("\x15/nothing\t")) == PROMPT + "/nothing"
    assert last(t.keys("\x15words /he\t")) == PROMPT + "words /he"        # a message
    t.keys("\x15/sa\t" + str(tmp_path / "s.json") + "\r")
    t.until(lambda t: (tmp_path / "s.json").exists())


@pytest.mark.parametrize("columns", COLUMNS)
def test_help_breaks_between_words(chat, run_weft, tinypy, tmp_path, columns):
    plain = run_weft(["chat", tinypy, "--simple-io", "-q"], input="/help\n").err
    t = chat(columns=columns, rows=60)
    words = set(t.say("/help").split()) - {PROMPT.rstrip()}
    assert "/regen" in words and words - set(plain.split()) <= {"0/512", ">", "/help"}
    assert all(len(row.rstrip()) <= columns for row in t.rows())


# ---- while an answer runs ------------------------------------------------------------------------------------------------

def test_what_is_typed_meanwhile_is_the_next_input(chat, tmp_path):
    """Lines, and one that is not done; the answer has none of it."""
    quiet = chat("-n", "300", "--ignore-eos", "--temp", "0")
    quiet.say("say something")
    t = chat("-n", "300", "--ignore-eos", "--temp", "0")
    t.p.send("say something\r")
    t.until(lambda t: len(t.text()) > 100)
    t.p.send("/system unseen1\runseen2")
    t.until(lambda t: t.text().endswith("> unseen2"))
    answer = quiet.text()[quiet.text().index("something"):quiet.text().rindex("\n")]
    assert t.text()[t.text().index("something"):].startswith(answer) and "unseen" not in answer
    assert t.text()[t.text().index(answer) + len(answer):].count("unseen1") == 1
    t.keys("\x15")
    path = tmp_path / "m.json"
    t.p.send(f"/save {path}\r")
    t.until(lambda t: path.exists())
    assert json.loads(path.read_text())[0] == {"role": "system", "content": "unseen1"}


FLAGS = termios.ECHO | termios.ICANON


@pytest.fixture
def in_shell(weft, weft_env, tinypy, tmp_path):
    """A conversation in the middle of an answer, which a script for sh began as "$@"."""
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    started = []

    def start(script):
        t = Terminal(["sh", "-c", script, "sh", weft, "chat", tinypy, "--chat-template-file", tmp_path / "t.jinja", "-s", "1", "-q", "-c", "20000", "--ignore-eos"],
                     dict(weft_env, TERM="xterm", XDG_STATE_HOME=str(tmp_path)), 80)
        started.append(t)
        t.until(lambda t: t.text().endswith("0/20000 >"))
        t.p.send("go on\r")
        t.until(lambda t: len(t.text()) > 200)
        assert not termios.tcgetattr(t.p.child_fd)[3] & FLAGS
        return t
    yield start
    for t in started:
        t.p.close(force=True)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL"])
def test_the_terminal_after_an_end_meanwhile(in_shell, name):
    """Whatever ends the process: the last one has no say, and the one that reads the keys sees to it."""
    t = in_shell('"$@"; echo "status $?"; exec sleep 60')
    pid = int(open(f"/proc/{t.p.pid}/task/{t.p.pid}/children").read().split()[0])
    os.kill(pid, getattr(signal, name))
    t.until(lambda t: f"status {128 + getattr(signal, name)}" in t.raw and "\x1b[?2004l" in t.raw)
    assert termios.tcgetattr(t.p.child_fd)[3] & FLAGS == FLAGS


def test_ctrl_z_meanwhile(in_shell):
    """The shell gets a terminal that echoes, and after fg the answer goes on without."""
    t = in_shell('set -m; "$@"; stty -a; echo stopped; fg')
    t.p.send("\x1a")
    t.until(lambda t: "\r\nstopped\r\n" in t.raw)
    modes = t.raw.split("\x1b[?2004l")[-1]
    assert " icanon" in modes and " echo " in modes
    after = len(t.raw)
    # any thread may be the one that SIGCONT is for, and others write before it runs
    t.until(lambda t: len(t.raw) > after + 200 and not termios.tcgetattr(t.p.child_fd)[3] & FLAGS)
    t.p.send("\x03")
    t.until(lambda t: t.text().endswith("/20000 >"))
    t.p.send("/bye\r")
    t.end()


# ---- bars, and terminals that obey nothing -------------------------------------------------------------------------------

STORM = [signal.SIGCHLD, signal.SIGWINCH, signal.SIGPIPE, signal.SIGURG, signal.SIGCONT, signal.SIGSTOP]


def test_signals_that_mean_nothing(chat, tmp_path):
    """While a model is loaded, lines are edited and answers come: the same conversation as without, and an ordinary end. (SIGUSR1 and SIGUSR2 end
    this program, as they do others.)"""
    def talk(t):
        said = []
        for line in "def f(", "for x in", "while True":
            t.say(line)
            said.append(messages(t, tmp_path / f"{t.p.pid}-{line[:3]}.json"))
        saved = json.loads((tmp_path / f"{t.p.pid}-whi.json").read_text())
        t.p.send("/bye\r")
        t.end()
        t.p.wait()
        return said, [m["content"] for m in saved], t.p.exitstatus

    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this system does not list the children of a process")
    expected = talk(chat("-n", "60", "--temp", "0"))
    assert expected[2] == 0 and len(expected[1]) == 6
    t, stop, sent = chat("-n", "60", "--temp", "0", ready=False), threading.Event(), []
    shaker = threading.Thread(target=storm, args=(t.p.pid, stop, sent))
    shaker.start()
    try:
        t.prompt()
        got = talk(t)
    finally:
        stop.set()
        shaker.join()
    assert got == expected and len(sent) > 20


def storm(pid, stop, sent):
    """To the program and to the process that reads its lines."""
    r = random.Random(1)
    with contextlib.suppress(OSError):                                # it has ended
        while not stop.wait(0.002):
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = [int(child) for child in file.read().split()]
            target, name = r.choice([pid, *children]), r.choice(STORM)
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, name)
                sent.append(name)
                if name == signal.SIGSTOP:
                    time.sleep(0.005)
                    os.kill(target, signal.SIGCONT)


@pytest.fixture
def slow():
    """A registry that takes a second for a file."""
    r = Registry({"tiny-Q8_0.gguf": b"GGUF" + bytes(3_000_000)})
    send = r.file

    def file(h, data):
        write = h.wfile.write
        def slowly(body):
            for at in range(0, len(body), 300_000):
                write(body[at:at + 300_000])
                time.sleep(.1)
        h.wfile.write = lambda body: slowly(body) if len(body) > 1_000_000 else write(body)
        send(h, data)
    r.file = file
    yield r
    r.close()


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_bar_keeps_to_its_row(weft, weft_env, slow, tmp_path, columns):
    t = Terminal([weft, "pull", "hf:user/repo"], dict(weft_env, TERM="xterm", HF_ENDPOINT=slow.url, LLAMA_CACHE=str(tmp_path)), columns, 10)
    seen = set()
    while t.read() is not None:
        drawn = [row.rstrip() for row in t.rows() if re.search(r"MB|#|%", row)]
        assert len(drawn) <= 1, t.text()                                  # one that wraps leaves its rows behind
        seen |= set(drawn)
    t.p.wait()
    assert t.p.exitstatus == 0 and len(seen) > 2
    assert all(re.fullmatch(r"\S.* \d+ %", row) and len(row) < columns and (columns < 80 or "MB/s [" in row) for row in seen)
    assert not any(" %" in row for row in t.rows())                       # it is gone at the end


@pytest.mark.parametrize("term, options", [("dumb", []), ("", []), (None, []), ("xterm", ["--simple-io"])])
def test_no_control_sequence(chat, tmp_path, term, options):
    """A conversation with a person all the same: prompts are shown, and Ctrl-C stops an answer and no more."""
    t = chat("-c", "20000", "--ignore-eos", *options, term=term, ready=False)
    t.until(lambda t: t.text().endswith("0/20000 >"))
    t.p.send("go on\r")
    t.until(lambda t: len(t.text()) > 300)
    t.p.send("\x03")
    t.until(lambda t: re.search(r"[1-9]\d*/20000 >$", t.text()))
    t.p.send("/help\r")
    t.until(lambda t: t.text().endswith("/20000 >") and "/regen" in t.text())
    t.p.send("\x03")
    t.until(lambda t: "ends the conversation)" in t.text() and t.text().endswith("/20000 >"))
    said = messages(t, tmp_path / "m.json")
    t.p.send("/bye\r")
    t.end()
    t.p.wait()
    assert t.p.exitstatus == 0 and said == ["go on"]
    assert "\x1b" not in t.raw and "\r" not in t.raw.replace("\r\n", "")


@pytest.mark.parametrize("term", ["dumb", None])
def test_no_bar_and_no_colour(weft, weft_env, tinypy, slow, tmp_path, term):
    env = dict(weft_env, HF_ENDPOINT=slow.url, LLAMA_CACHE=str(tmp_path), **({"TERM": term} if term else {}))
    for args in (["pull", "hf:user/repo"], ["run", tinypy, "-p", "def f(", "-n", "8"], ["chat", tinypy, "-p", "hello", "-n", "8"]):
        t = Terminal([weft, *args], env, 80)
        t.end()
        t.p.wait()
        assert t.p.exitstatus == 0 and t.raw and "\x1b" not in t.raw and "\r" not in t.raw.replace("\r\n", ""), args


# ---- pictures ------------------------------------------------------------------------------------------------------------

@pytest.fixture
def pictures(chat, tmp_path):
    """A chat with an encoder, and pictures whose names are hard."""
    image = pytest.importorskip("PIL.Image")
    encoder = pytest.importorskip("projector").write(tmp_path / "mmproj.gguf")
    paths = [tmp_path / name for name in ("red.png", "it's a \"photo\" (1).png", "größe 100%.png")]
    for i, path in enumerate(paths):
        image.new("RGB", (60 + i, 40), (200, 30, 30 + i)).save(path)
    (tmp_path / "notes.png").write_text("no picture")

    def start(**more):
        t = chat("--mmproj", encoder, "-n", "1", "-c", "4096", columns=200, ready=False, **more)
        t.until(lambda t: t.text().endswith("0/4096 >"))
        return t
    return start, paths


# As shells and desktops write a path: Python's shlex.quote (GNOME's terminal does the same), bash's %q (macOS' terminal), a file: URL, and as it is.
WAYS = {"quoted": lambda p: shlex.quote(str(p)), "escaped": lambda p: subprocess.run(["bash", "-c", 'printf %q "$1"', "-", p], capture_output=True, text=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout,
        "url": lambda p: p.as_uri(), "plain": str}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_dropped(pictures, tmp_path, way):
    """Alone on the line it goes before the next message; among words it stands where its path stands."""
    start, paths = pictures
    t = start()
    for path in paths:
        said = squeezed(t.say(WAYS[way](path)))
        assert "tokensof" in said and "gobeforethenextmessage)" in said, t.text()
    t.say("def f(")
    words = "compare " + " with ".join(map(WAYS[way], paths[:1] if way == "plain" else paths)) + "?"
    assert "areinthismessage)" in squeezed(t.say(words))
    first, second = messages(t, tmp_path / "said.json")
    mark = r"<__media_[0-9a-f]+_%d>"
    assert re.fullmatch("".join(mark % i + "\n" for i in range(3)) + r"def f\(", first), first
    assert re.fullmatch("compare " + " with ".join(mark % (3 + i) for i in range(len(paths[:1] if way == "plain" else paths))) + r"\?", second), second


def test_what_is_not_dropped(pictures, tmp_path):
    """Files that are no pictures, paths that do not exist, and a path in a command stay text. A picture that a model without eyes cannot take is an error of that line alone."""
    start, paths = pictures
    t = start()
    lines = [f"what is in {tmp_path}/notes.png?", f"rm {tmp_path}/none.png", "it's 'quoted", f"red.png {tmp_path}"]
    for line in lines:
        t.say(line)
    t.say(f"/system look at {paths[0]}")
    t.say(str(tmp_path / "notes.png"))
    assert "tokens of" not in t.text() and "/help lists the commands" in t.text()
    assert "go before the next message" in t.say(f"/image {paths[0]}") and messages(t, tmp_path / "said.json") == lines


def test_a_picture_and_no_encoder(chat, pictures, tmp_path):
    t, (red, *_) = chat("-n", "1", "--no-mmproj", columns=200), pictures[1]
    assert "--mmproj FILE names it" in t.say(str(red))
    t.say(f"convert {red} to JPEG")
    assert messages(t, tmp_path / "said.json") == [f"convert {red} to JPEG"]


def test_a_bar_while_a_picture_is_encoded(pictures, tmp_path):
    """On a terminal, and gone behind it. Reading so large a picture and making the kernels takes several times as long as a bar waits (0.25 s)."""
    start, _ = pictures
    pytest.importorskip("PIL.Image").effect_noise((6000, 3000), 90).save(tmp_path / "large.png", compress_level=1)
    t = start(WEFT_CACHE="off", SPEC="1")
    said = t.say(str(tmp_path / "large.png"))
    assert re.search(r"(encoding|compiling) +\[[#.]+\] +\d+ %", t.raw), t.raw[-2000:]
    assert "%" not in said and "go before the next message" in said
