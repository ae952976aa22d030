"""The line editor of weft chat, at a pseudo terminal that is emulated here: what stands on the screen, where the cursor is, and what was typed.

Terminals disagree about the width of a sign of several characters; two kinds are emulated, one that knows them and one that adds up their parts."""
import json
import os
import re
import signal
import termios
import time
import unicodedata
from pathlib import Path

import pytest

THREADS = 1

pexpect = pytest.importorskip("pexpect")

TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
FAMILY = "\U0001F469\u200D\U0001F469\u200D\U0001F467"      # one sign of five characters
FLAG = "\U0001F1F8\U0001F1EA"
ACCENT = "e\u0301"
PROMPT = "0/512 > "


def width(c):
    if unicodedata.combining(c) or c in "\u200D\uFE0F":
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Screen:
    """The few codes that the editor uses, and no others: anything else fails the test."""

    def __init__(self, columns, rows, joins):
        self.columns, self.height, self.joins = columns, rows, joins
        self.lines, self.row, self.column, self.wraps, self.left = [[]], 0, 0, True, ""

    def feed(self, text):
        text, self.left = self.left + text, ""
        while text:
            if m := re.match(r"\x1b\[(\??)([\d;]*)([A-Za-z])", text):
                self.code(m[1] + m[3], m[2])
            elif re.match(r"\x1b(\[[\d;?]*)?$", text):
                self.left = text
                return
            elif m := re.match(r"[\r\n\x08]", text):
                if text[0] == "\r":
                    self.column = 0
                elif text[0] == "\n":
                    self.down()
            else:
                m = re.match(r"[^\x00-\x1f\x7f]", text)
                assert m, f"not for a terminal: {text[:20]!r}"
                self.put(text[0])
            text = text[m.end():]

    def down(self):
        self.row += 1
        while len(self.lines) <= self.row:
            self.lines.append([])

    def put(self, c):
        line = self.lines[self.row]
        k = min(self.column, len(line)) - 1
        while k > 0 and line[k] == "":
            k -= 1
        last = line[k] if k >= 0 and self.column <= len(line) else ""
        joined = self.joins and (last.endswith("\u200D") or (c in "\U0001F467\u200D" and "\u200D" in last) or ("\U0001F1E6" <= c <= "\U0001F1FF" and len(last) == 1 and "\U0001F1E6" <= last <= "\U0001F1FF"))
        if width(c) == 0 or joined:
            if line:
                line[k] += c
            if joined and len(line[k]) == 2 and line[k][0] >= "\U0001F1E6" and self.column == k + 1:
                line.insert(self.column, "")
                self.column += 1
            return
        n = width(c)
        if self.column + n > self.columns:
            if self.wraps:
                self.down()
                self.column = 0
                line = self.lines[self.row]
            else:
                self.column = self.columns - n
        while len(line) < self.column + n:
            line.append(" ")
        line[self.column:self.column + n] = [c] + [""] * (n - 1)
        self.column += n

    def code(self, what, number):
        n = int(number or 1) if number.isdigit() or not number else 0
        if what == "A":
            self.row -= n
            assert self.row >= 0
        elif what == "C":
            self.column = min(self.column + n, self.columns - 1)
        elif what == "K":
            del self.lines[self.row][self.column:]
        elif what == "J":
            del self.lines[self.row][self.column:]
            del self.lines[self.row + 1:]
        elif what in ("?h", "?l"):
            if number == "7":
                self.wraps = what == "?h"
            else:
                assert number in ("25", "2004")
        else:
            assert what == "m", what

    def text(self, row):
        return "".join(self.lines[row]).rstrip()

    def before_cursor(self):
        return "".join(self.lines[self.row][:self.column])


class Typing:
    def __init__(self, weft, env, tinypy, template, columns, rows, joins):
        self.p = pexpect.spawn(weft, ["chat", tinypy, "--chat-template-file", template, "-n", "1", "-s", "1", "-q"], env=dict(env, TERM="xterm", NO_COLOR="1"), encoding="utf-8", timeout=120, dimensions=(rows, columns))
        self.screen = Screen(columns, rows, joins)
        self.until(lambda s: s.text(s.row).startswith(PROMPT.rstrip()))

    def read(self):
        try:
            self.screen.feed(self.p.read_nonblocking(4096, timeout=0.05))
        except pexpect.TIMEOUT:
            pass

    def until(self, holds):
        end = time.time() + 20
        while not holds(self.screen):
            assert time.time() < end, [self.screen.text(i) for i in range(len(self.screen.lines))]
            self.read()

    def waits(self):
        """Does the program wait for something?  On a busy machine it may have had no processor yet."""
        return Path(f"/proc/{self.p.pid}/stat").read_text().rpartition(") ")[2].startswith("S")

    def keys(self, text):
        """Sends keys and reads until nothing more comes.  The kernel may hand them over late, so half a second is waited for a first change."""
        shown = lambda: (self.screen.row, self.screen.column, str(self.screen.lines))
        first, end, quiet = shown(), time.time() + 0.5, 0
        self.p.send(text)
        while quiet < 3 or (shown() == first and time.time() < end):
            before = shown()
            self.read()
            quiet = quiet + 1 if before == shown() and self.waits() else 0
        return self.screen

    def sent(self, path):
        """Sends what is typed, and all that was said so far."""
        self.p.send("\r")
        self.p.expect(r"\d+/512 > ")
        self.p.send(f"/save {path}\r")
        self.p.expect(r"messages are in\s.*\d+/512 > ")
        return [m["content"] for m in json.loads(path.read_text())][::2]


@pytest.fixture
def typing(weft, weft_env, tinypy, tmp_path):
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    started = []

    def start(columns=80, rows=24, joins=True):
        started.append(Typing(weft, dict(weft_env, XDG_STATE_HOME=str(tmp_path / "state")), tinypy, str(tmp_path / "t.jinja"), columns, rows, joins))
        return started[-1]
    yield start
    for t in started:
        t.p.close(force=True)


LEFT, RIGHT, UP, DOWN, HOME, END, DELETE = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[F", "\x1b[3~"


@pytest.mark.parametrize("joins", [True, False], ids=["joins", "adds_up"])
def test_a_step_is_a_sign(typing, tmp_path, joins):
    t = typing(joins=joins)
    text = f"a{FAMILY}{ACCENT}漢{FLAG}z"
    t.keys(text)
    for stood in (text[:-1], f"a{FAMILY}{ACCENT}漢", f"a{FAMILY}{ACCENT}", f"a{FAMILY}", "a", "", ""):
        assert t.keys(LEFT).before_cursor() == PROMPT + stood
        assert t.screen.text(t.screen.row) == PROMPT + text                  # the line is whole at each step
    t.keys(RIGHT + RIGHT + RIGHT + "\x7f")                                    # the accent goes with its letter
    assert t.screen.text(t.screen.row) == PROMPT + f"a{FAMILY}漢{FLAG}z" and t.screen.before_cursor() == PROMPT + f"a{FAMILY}"
    t.keys(DELETE + DELETE + LEFT + DELETE)
    assert t.sent(tmp_path / "m.json") == ["az"]


def test_words(typing, tmp_path):
    t = typing()
    t.keys("one zwei-trois 四五")
    stood = [t.keys("\x1b[1;5D").before_cursor()[len(PROMPT):] for _ in range(4)]
    assert stood == ["one zwei-trois ", "one zwei-", "one ", ""]
    stood = [t.keys(key).before_cursor()[len(PROMPT):] for key in ("\x1b[1;5C", "\x1b[5C", "\x1bf", "\x1b[1;3C")]
    assert stood == ["one", "one zwei", "one zwei-trois", "one zwei-trois 四五"]
    t.keys("\x1bb\x1bb\x17")                              # Ctrl-W: up to white space
    assert t.screen.text(t.screen.row) == PROMPT + "one trois 四五"
    t.keys("\x1bd\x19\x19\x01\x0b\x19 end")               # Alt-D, Ctrl-Y twice, Ctrl-A, Ctrl-K, Ctrl-Y
    assert t.sent(tmp_path / "m.json") == ["one troistrois 四五 end"]


@pytest.mark.parametrize("joins", [True, False], ids=["joins", "adds_up"])
def test_a_line_longer_than_the_screen_is_wide(typing, tmp_path, joins):
    t = typing(columns=30, rows=20, joins=joins)
    words = " ".join(f"w{i}漢{ACCENT}{FAMILY}" for i in range(20))
    t.keys(words)
    top = t.screen.row
    shown = "".join(t.screen.text(i) if i else t.screen.text(i) for i in range(len(t.screen.lines)))
    assert shown.replace(" ", "").endswith((PROMPT + words).replace(" ", ""))
    assert all(sum(1 for _ in line) <= 30 for line in t.screen.lines)
    t.keys(HOME + "X" + END + "Y")
    assert t.screen.row == top and "".join(t.screen.text(i) for i in range(len(t.screen.lines))).replace(" ", "").endswith((PROMPT + "X" + words + "Y").replace(" ", ""))
    t.keys("\x7f" * 60)                                   # fewer rows: nothing of the old ones is left
    assert len(t.screen.lines) == t.screen.row + 1
    signs = re.findall(FAMILY + r"|.\u0301?", words + "Y")
    assert t.sent(tmp_path / "m.json") == ["X" + "".join(signs[:-60])]


def test_a_row_that_is_exactly_full(typing, tmp_path):
    t = typing(columns=30)
    t.keys("x" * (30 - len(PROMPT)))
    assert t.screen.before_cursor() == "" and t.screen.text(t.screen.row - 1) == PROMPT + "x" * (30 - len(PROMPT))
    t.keys("y" + LEFT + LEFT + "z")
    assert t.sent(tmp_path / "m.json") == ["x" * (29 - len(PROMPT)) + "zxy"]


def test_a_resize_leaves_the_line_whole(typing, tmp_path):
    t = typing(columns=60)
    text = f"some words {FAMILY} and some more of them, forty or so"
    t.keys(text)
    t.keys(LEFT * 5)
    for columns in (40, 25, 90):
        t.p.setwinsize(24, columns)
        t.screen.columns = columns
        t.screen.lines, t.screen.row, t.screen.column = [[] for _ in range(10)], 9, 0        # what terminals make of the old rows is their own affair
        t.keys("")
        shown = "".join("".join(line) for line in t.screen.lines)
        assert re.sub(r"\s", "", PROMPT + text) in re.sub(r"\s", "", shown)
        assert re.sub(r"\s", "", text[:-5]).endswith(re.sub(r"\s", "", t.screen.before_cursor().removeprefix(PROMPT)))
    t.keys("!")
    assert t.sent(tmp_path / "m.json") == [text[:-5] + "!" + text[-5:]]


def test_pastes_and_lines_of_a_message(typing, tmp_path):
    t = typing()
    t.keys("\x1b[200~def f():\r\n\treturn 1\x1b[A\x15\r\x1b[201~")        # keys in a paste are no keys
    assert [t.screen.text(i) for i in range(t.screen.row - 2, t.screen.row + 1)] == [PROMPT + "def f():", "    return 1[A", ""]
    t.keys(UP + UP + HOME + "# a\x1b\r" + DOWN + END + " + 2")           # Alt-Enter is a new line
    assert t.sent(tmp_path / "m.json") == ["# a\ndef f():\n\treturn 1[A + 2\n"]


def test_what_no_terminal_should_see(typing, tmp_path):
    """Bytes that are no UTF-8, and controls of eight bits."""
    t = typing()
    import os
    os.write(t.p.child_fd, b"a\xffb\xc2\x9bc\xe2\x82d")
    t.keys("")
    assert t.screen.text(t.screen.row) == PROMPT + "a\ufffdbc\ufffd\ufffdd"


def test_history(typing, tmp_path):
    t = typing()
    for line in ("alpha one", "beta two", "\x1b[200~gamma\nthree\x1b[201~", "alpha one"):
        t.p.send(line + "\r")
        t.p.expect(r"\d+/512 > ")
    t.p.send("/bye\r")
    t.p.expect(pexpect.EOF)
    history = tmp_path / "state" / "weft" / "chat_history"
    assert history.stat().st_mode & 0o77 == 0 and history.read_text() == "alpha one\nbeta two\ngamma\\nthree\nalpha one\n/bye\n"
    t = typing()
    assert t.keys("mine" + UP).before_cursor() == PROMPT + "/bye"
    assert t.keys(UP).before_cursor() == PROMPT + "alpha one"
    t.keys(UP)
    assert [t.screen.text(i) for i in (t.screen.row - 1, t.screen.row)] == [PROMPT + "gamma", "three"]
    assert t.keys(UP + UP).before_cursor() == PROMPT + "beta two"           # to the first of its lines, and then to the one before
    assert t.keys(UP + UP).before_cursor() == PROMPT + "beta two"           # which is the oldest: alpha one is there once
    assert t.keys(DOWN + DOWN + DOWN + DOWN + DOWN).before_cursor() == PROMPT + "mine"
    t.keys("\x15\x12alph")
    assert t.screen.text(t.screen.row) == "(search: alph) alpha one"
    t.keys("\x07\x12t")
    assert t.screen.text(t.screen.row) == "three"
    t.keys("\x12")
    assert t.screen.text(t.screen.row) == "(search: t) beta two"
    assert t.sent(tmp_path / "m.json") == ["beta two"]


def test_a_text_longer_than_the_screen_is_high(typing, tmp_path):
    t = typing(columns=40, rows=8)
    text = "\n".join(f"line {i}" for i in range(30))
    t.keys(f"\x1b[200~{text}\x1b[201~")
    assert t.screen.text(t.screen.row) == "line 29"
    t.keys(UP * 20 + END + "!")
    assert t.screen.text(t.screen.row) == "line 9!"
    assert t.sent(tmp_path / "m.json") == [text.replace("line 9", "line 9!")]


def test_a_paste_without_marks_is_quick(typing, tmp_path):
    """Some terminals do not say what is pasted: many characters come at once, and the line is walked once for those."""
    t = typing(columns=80)
    t.until(lambda s: s.before_cursor() == PROMPT)
    reader = open(f"/proc/{t.p.pid}/task/{t.p.pid}/children").read().split()[0]
    seconds = lambda: sum(map(int, open(f"/proc/{reader}/stat").read().split()[13:15])) / os.sysconf("SC_CLK_TCK")
    began = seconds()
    t.p.send("x\u00e9" * 10_000 + "y")
    t.until(lambda s: s.before_cursor().endswith("y"))
    assert seconds() - began < 1.5 or "WEFT_SANITIZED" in os.environ


def test_a_long_paste_is_quick(typing, tmp_path):
    t = typing(columns=80)
    text = "\n".join(f"{i} {FAMILY} {'x' * 70}" for i in range(3000))
    began = time.time()
    t.p.send("\x1b[200~" + text + "\x1b[201~")
    t.until(lambda s: s.before_cursor() == "xx" and s.text(s.row - 1).startswith("2999 "))
    assert time.time() - began < 10


def test_a_paste_that_is_too_long(typing, tmp_path):
    """Nothing of it is taken, and what is typed after it is."""
    t = typing()
    for piece in ("\x1b[200~", *["x" * (1 << 20)] * 16, "y\x1b[20\x1b[201~"):
        t.p.send(piece)
    assert t.keys("short").text(t.screen.row) == PROMPT + "short"
    assert t.sent(tmp_path / "1") == ["short"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT"])
def test_the_terminal_is_left_as_it_was(typing, name):
    t = typing()
    t.keys("half a li")
    flags = termios.ECHO | termios.ICANON
    assert not termios.tcgetattr(t.p.child_fd)[3] & flags
    t.p.kill(getattr(signal, name))
    said = t.p.read()
    assert "\x1b[?2004l" in said and termios.tcgetattr(t.p.child_fd)[3] & flags == flags
    t.p.wait()
    assert t.p.signalstatus == getattr(signal, name)


@pytest.fixture
def in_shell(weft, weft_env, tinypy, tmp_path):
    """A conversation that a script for sh begins, as "$@"."""
    (tmp_path / "t.jinja").write_text(TEMPLATE)

    def start(script, *more, **how):
        return pexpect.spawn("sh", ["-c", script, "sh", weft, "chat", tinypy, "--chat-template-file", str(tmp_path / "t.jinja"), *more],
                             env=dict(weft_env, TERM="xterm", NO_COLOR="1", XDG_STATE_HOME=str(tmp_path)), encoding="utf-8", timeout=120, dimensions=(24, 80), **how)
    return start


def test_ctrl_z_gives_the_terminal_back(in_shell):
    """To a shell that does not take it by itself; and after fg the line is there again."""
    p = in_shell('set -m; "$@"; stty -a; echo stopped; fg', "-q")
    p.expect(PROMPT)
    p.send("half a line")
    p.expect("half a line")
    p.send("\x1a")
    p.expect(r"\x1b\[\?2004l")
    p.expect("stopped")
    assert " icanon" in p.before and " echo " in p.before
    p.expect(r"\x1b\[\?2004h")
    p.expect("half a line")
    p.send("\x15/bye\r")
    p.expect(pexpect.EOF)
    p.close()


def test_ctrl_z_of_lines_that_are_not_edited(in_shell):
    """What is typed to the shell meanwhile is the shell's."""
    p = in_shell('set -m; "$@"; echo stopped; read line; echo "got $line."; fg', "--simple-io", "-n", "2", echo=False)
    p.sendline("hello")
    p.expect("cut after 2 tokens")
    p.send("\x1a")
    p.expect("stopped")
    time.sleep(.2)
    p.sendline("for the shell")
    p.expect("got for the shell\\.")
    p.sendline("/bye")
    p.expect(pexpect.EOF)
    p.close()


def test_a_signal_that_is_ignored_stays_so(in_shell):
    p = in_shell('trap "" TSTP; exec "$@"', "-q")
    p.expect(PROMPT)
    p.send("\x1a")
    time.sleep(.3)
    for pid in [p.pid, *open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()]:
        assert open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1][0] != "T"
    p.send("/bye\r")
    p.expect(pexpect.EOF)
    p.close()
    assert p.exitstatus == 0


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_the_reader_ends(typing, name):
    """Whatever ends the process that has the terminal: that is said, and the terminal is as it was."""
    t = typing()
    t.keys("half a li")
    flags = termios.ECHO | termios.ICANON
    reader = open(f"/proc/{t.p.pid}/task/{t.p.pid}/children").read().split()[0]
    os.kill(int(reader), getattr(signal, name))
    said = t.p.read()
    assert "the process that reads what is typed has ended (signal" in said and "\x1b[?2004l" in said
    assert termios.tcgetattr(t.p.child_fd)[3] & flags == flags
    t.p.wait()
    assert t.p.exitstatus == 1


def test_a_long_history_is_cut(typing, tmp_path):
    """To its last thousand, in a file that only its owner can read, whatever happens meanwhile."""
    (tmp_path / "state" / "weft").mkdir(parents=True)
    history = tmp_path / "state" / "weft" / "chat_history"
    history.write_text("".join(f"entry {i}\n" for i in range(2001)))
    t = typing()
    assert t.keys(UP).text(t.screen.row) == PROMPT + "entry 2000"
    assert history.read_text().splitlines() == [f"entry {i}" for i in range(1001, 2001)] and history.stat().st_mode & 0o777 == 0o600
    assert [f.name for f in history.parent.iterdir()] == ["chat_history"]


def test_suspended_and_back(typing, weft):
    """Ctrl-Z and fg: the keys are taken again, and the line is drawn again."""
    t = typing()
    t.keys("half a li")
    os.kill(t.p.pid, signal.SIGSTOP)
    os.system(f"stty icanon echo < {os.ttyname(t.p.child_fd) if os.isatty(t.p.child_fd) else '/dev/null'}")
    os.kill(t.p.pid, signal.SIGCONT)
    assert t.keys("ne").text(t.screen.row) == PROMPT + "half a line"
