"""Every option that names a file, with every kind of file that is none: an error that names it, at once and in little memory. Options are those of the help."""
import concurrent.futures as futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading

import projector
import pytest
from conftest import REPO, load_tool

folders = load_tool("make_folder")
RECORD = json.loads((REPO / "tests/records/folders/llama.json").read_text(encoding="utf-8"))
COMMANDS = ["run", "chat", "serve", "bench", "profile", "plan", "viz", "tune", "cache", "inspect", "tokenize", "template", "perplexity", "quantize", "convert", "export", "imatrix", "pull",
            "loadtest", "embed", "env", "doctor", "list", "rm", "uninstall"]
# what there is at the name
ODD = ["zero", "closed", "fifo", "folder", "sparse", "unreadable", "loop", "empty"]
TALK = ["-m", "MODEL", "-n", "1", "-c", "64"]
# TEXT: read to its end, also from a pipe. DATA: a file, and no pipe. OUT: written, by a rename; or a cache, whose want is a warning. DIR: a folder. Of each option one command; what others do with it is the same code.
TEXT = {
    "run -f": [*TALK, "-f", "ODD"], "run --grammar-file": [*TALK, "-p", "x", "--grammar-file", "ODD"], "run -jf": [*TALK, "-p", "x", "-jf", "ODD"],
    "chat -f": [*TALK, "-f", "ODD"], "chat -sysf": [*TALK, "-p", "x", "-sysf", "ODD"], "chat --chat-template-file": [*TALK, "-p", "x", "--chat-template-file", "ODD"],
    "chat --chat-template": [*TALK, "-p", "x", "--chat-template", "ODD"], "tokenize -f": ["-m", "MODEL", "-f", "ODD"], "perplexity -f": ["-m", "MODEL", "-f", "ODD"],
    "imatrix -f": ["-m", "MODEL", "-o", "OUT", "-f", "ODD"], "embed -f": ["-m", "MODEL", "--pooling", "mean", "-f", "ODD"],
    "quantize --tensor-type-file": ["--dry-run", "--tensor-type-file", "ODD", "MODEL", "OUT", "Q8_0"], "cache import": ["import", "ODD"], "template": ["ODD", "--messages", "[]"],
    "serve --api-key-file": ["-m", "MODEL", "--port", "0", "--api-key-file", "ODD"], "serve --ssl-key-file": ["-m", "MODEL", "--port", "0", "--ssl-key-file", "ODD", "--ssl-cert-file", "ODD"],
    "serve --ssl-cert-file": ["-m", "MODEL", "--port", "0", "--ssl-key-file", "KEY", "--ssl-cert-file", "ODD"]}
DATA = {
    "run -m": ["-m", "ODD", "-p", "x"], "bench -m": ["-m", "ODD"], "inspect": ["ODD"], "run -md": [*TALK, "-p", "x", "-md", "ODD"], "run -mm": [*TALK, "-p", "x", "-mm", "ODD", "--image", "KEY"],
    "run --image": [*TALK, "-p", "x", "-mm", "MMPROJ", "--image", "ODD"], "run --lora": [*TALK, "-p", "x", "--lora", "ODD"], "run --control-vector": [*TALK, "-p", "x", "--control-vector", "ODD"],
    "run --control-vector-scaled": [*TALK, "-p", "x", "--control-vector-scaled", "ODD:1"], "quantize IN": ["ODD", "OUT", "Q8_0"], "quantize --imatrix": ["--imatrix", "ODD", "MODEL", "OUT", "Q4_0"],
    "export --program": ["MODEL", "-o", "OUT", "--program", "ODD"], "convert IN": ["ODD", "OUT"],
    "perplexity --kl-divergence-base": ["-m", "MODEL", "--kl-divergence", "--kl-divergence-base", "ODD"]}
OUT = {
    "run --stats": [*TALK, "-p", "x", "--stats", "ODD"], "convert -o": ["FOLDER", "-o", "ODD"], "imatrix -o": ["-m", "MODEL", "-f", "LONG", "-c", "64", "-o", "ODD"],
    "perplexity --save-all-logits": ["-m", "MODEL", "-f", "LONG", "-c", "64", "--save-all-logits", "ODD"], "quantize OUT": ["MODEL", "ODD", "Q8_0"], "serve --log-file": ["-m", "MODEL", "--port", "0", "--log-file", "ODD"],
    "export -o": ["MODEL", "-o", "ODD"], "viz --out": ["-m", "MODEL", "-n", "1", "--out", "ODD"], "loadtest --html": ["http://127.0.0.1:1", "--html", "ODD"], "cache export": ["export", "ODD"],
    "serve --keep-in": ["-m", "MODEL", "--port", "0", "--keep-in", "ODD"]}
DIR = {f"serve {name}": ["-m", "MODEL", "--port", "0", name, "ODD"] for name in ("--models-dir", "--path", "--slot-save-path")}
KINDS = {"text": TEXT, "data": DATA, "out": OUT, "dir": DIR}
ELSEWHERE = {"-hff"}                 # a name in a repository; what export reads and writes is read by gguf.c and written by newfile.c, as that of quantize


def test_each_option_is_here(run_weft):
    """What the help of a command calls FILE or DIR is in the tables above, by one of its names."""
    known = {word for table in KINDS.values() for row in table.values() for word in row if word.startswith("-")} | ELSEWHERE
    seen = 0
    for command in COMMANDS:
        for line in run_weft([command, "--help"]).out.splitlines():
            if line.startswith("  -") and re.search(r"\b(FILE|DIR|FOLDER|PAGE)\b", line[:60]):
                names = re.findall(r"(?<![\w-])--?[a-z][\w-]*", line.split("  ")[1])
                assert known & set(names), (command, line)
                seen += 1
    assert seen > 50


def test_an_empty_path_names_its_option(run_weft):
    """As of a variable of the shell that is not set: every option whose value is a path, and the operands."""
    asked = [("run", ["run", ""], "FILE"), ("quantize IN", ["quantize", "", "out", "Q8_0"], "IN.gguf"), ("quantize OUT", ["quantize", "in", "", "Q8_0"], "OUT.gguf"),
             ("convert IN", ["convert", "", "out"], "DIR"), ("convert OUT", ["convert", "in", ""], "OUT.gguf"), ("export", ["export", "", "-o", "x"], "MODEL.gguf"),
             ("cache", ["cache", "export", ""], "FILE"), ("template", ["template", "", "--messages", "[]"], "FILE"), ("--name=", ["run", "--model="], "--model")]
    for command in COMMANDS:
        for line in run_weft([command, "--help"]).out.splitlines():
            found = re.match(r"  (-\S+(?:, -\S+)*) (?:FILE|DIR|PAGE)(?:$|[ ,:[])", line)
            asked += [(command, [command, name, ""], name) for name in (found[1].split(", ") if found else [])]
    assert len(asked) > 150
    for what, words, name in asked:
        done = run_weft(words)
        assert done.returncode == 2 and re.search(rf"error: {re.escape(name)} is empty: it needs the path of a (file|folder)\n$", done.err), (what, name, done.err)
    for words, said in ((["--lora", ":2"], ":2: cannot be opened"), (["--control-vector-scaled", ":2"], "--control-vector-scaled needs FILE:SCALE, not ':2'")):
        done = run_weft(["run", "-m", REPO / "models/tinypy.gguf", "-p", "x", *words])
        assert done.returncode in (1, 2) and said in done.err, done.err


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """name -> a path of that kind, in a folder of its own."""
    def make(folder, name):
        path = folder / name
        if name == "zero":
            return "/dev/zero"
        if name == "closed":                 # not /dev/stdin itself: who writes to a link to nothing might take its place
            path.symlink_to("/proc/self/fd/0")
            return str(path)
        if name == "unreadable":
            return "/proc/self/mem"          # opens, and cannot be read, also for root
        if name == "fifo":
            os.mkfifo(path)
        elif name == "folder":
            path.mkdir()
        elif name == "loop":
            path.symlink_to(path)
        else:
            path.touch()
            os.truncate(path, 5 << 30 if name == "sparse" else 0)
        return str(path)
    return lambda: {name: make(tmp_path_factory.mktemp("odd"), name) for name in ODD}


def close_stdin():
    os.close(0)


def outcome(weft, env, words, waits, closed, cwd):
    """(status, stderr, MiB); one that waits for a pipe, or serves, is told to end: again and again, as the first signal may come before it can be caught."""
    process = subprocess.Popen([weft, *words], env=env, cwd=cwd, stdin=None if closed else subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               preexec_fn=close_stdin if closed else None)
    stop = threading.Event()
    nudge = threading.Thread(target=lambda: [os.kill(process.pid, signal.SIGINT) for i in range(300) if not stop.wait(2 if i else 0.4)])
    if waits:
        nudge.start()
    text = process.stderr.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)      # until it is taken, its number is nobody else's
    stop.set()
    if waits:
        nudge.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    return process.returncode, text, usage.ru_maxrss >> 10


def is_refused(kind, option, name):
    """Whether such a file must be an error."""
    if kind == "out":
        return name == "folder" and option != "serve --keep-in"
    return kind != "text" or name in ("zero", "folder", "sparse", "unreadable", "loop")


def check(kind, option, name, path, status, text, mib, sanitized):
    what = (option, name, status, mib, text)
    assert "internal error" not in text and status in (0, 1, 2, 130, -signal.SIGINT), what
    assert sanitized or mib < 400 + (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10), what      # a child begins with its parent's
    if is_refused(kind, option, name):
        assert status in (1, 2) and path in text, what


@pytest.mark.parametrize("kind, option", [(kind, option) for kind, table in KINDS.items() for option in table], ids=lambda x: x)
def test_odd_files(weft, weft_env, tinypy, odd, tmp_path, sanitized, kind, option):
    folders.write(tmp_path / "folder", RECORD)
    (tmp_path / "pem").write_text("-----BEGIN CERTIFICATE-----\n")
    if "MMPROJ" in KINDS[kind][option]:
        projector.write(tmp_path / "mmproj")
    (tmp_path / "long").write_text("def add(a, b):\n    return a + b\n" * 20)
    paths = odd()

    def one(name):
        fill = {"MODEL": str(tinypy), "ODD": paths[name], "ODD:1": paths[name] + ":1", "OUT": str(tmp_path / f"{name}.out"), "KEY": str(tmp_path / "pem"), "MMPROJ": str(tmp_path / "mmproj"), "FOLDER": str(tmp_path / "folder"), "LONG": str(tmp_path / "long")}
        words = [option.split()[0], *(fill.get(w, w) for w in KINDS[kind][option])]
        waits = not is_refused(kind, option, name) and (name == "fifo" or words[0] == "serve")
        return name, outcome(weft, weft_env, words, waits, name == "closed", tmp_path)

    # tokenize reads a file of any size; a folder is what such an option wants
    names = [n for n in ODD if (option, n) != ("tokenize -f", "sparse") and not (kind == "dir" and n in ("folder", "closed"))]
    with futures.ThreadPoolExecutor(len(names)) as pool:
        for name, (status, text, mib) in pool.map(one, names):
            check(kind, option, name, paths[name], status, text, mib, sanitized)


# what no option names: VIZ, a part that was found, what stands in a folder
BESIDE = {"VIZ": ["run", *TALK, "-p", "x"], "in a folder": ["convert", "FOLDER", "ODD"], "of a folder that runs": ["run", "-m", "FOLDER", "-n", "1", "-p", "x", "--stats", "ODD"]}


@pytest.mark.parametrize("option", [*(o for o, row in OUT.items() if {"MODEL", "LONG", "FOLDER"} & set(row) and o != "serve --keep-in"), *BESIDE])
def test_no_file_that_is_read_is_written(weft, weft_env, tinypy, tmp_path, option):
    """Each of OUT, given a file that the same command reads, under its own name and under another one of the same file (a link)."""
    folders.write(tmp_path / "folder", RECORD)
    (tmp_path / "long").write_text("def add(a, b):\n    return a + b\n" * 20)
    (tmp_path / "model.gguf").write_bytes(pathlib.Path(tinypy).read_bytes())
    fill = {"MODEL": tmp_path / "model.gguf", "LONG": tmp_path / "long", "FOLDER": tmp_path / "folder"}
    row = BESIDE[option] if option in BESIDE else [option.split()[0], *OUT[option]]
    read = [p for name in set(row) & set(fill) for p in (fill[name].iterdir() if name == "FOLDER" else [fill[name]]) if p.suffix != ".md"]
    if option == "VIZ":
        read.append(tmp_path / "long")
        row = ["run", "-m", "MODEL", "-n", "1", "-c", "64", "-f", "LONG"]
    assert read
    for path in read:
        link = tmp_path / f"other-{path.name}"
        os.link(path, link)
        before = path.read_bytes()
        for target in (path, link):
            words = [str({**fill, "ODD": target}.get(w, w)) for w in row]
            got = subprocess.run([weft, *words], env={**weft_env, **({"VIZ": str(target)} if option == "VIZ" else {})}, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
            assert got.returncode in (1, 2) and f"{target}: is the file that is read; write to another one" in got.stderr, (option, target, got)
            assert path.read_bytes() == before and os.path.samefile(path, link), (option, target)


def test_names_without_controls(run_weft, tmp_path):
    """Names of keys, tensors and files come from strangers: each is one line, and commands no terminal behind a pipe."""
    import gguf
    w = gguf.GGUFWriter(tmp_path / "e\x1b[31m\n.gguf", "llama")
    w.add_string("general.author\x1b[2J\u202e\u2028", "x")
    w.add_string("general.name", "a\x1b[2J\u202eb\u061c\ufeff")
    w.add_tensor("blk.0.\x1b[31m\u202e\u2066\u200f\U000e0041evil\n", __import__("numpy").zeros(32, "float32"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    for words in (["inspect", tmp_path / "e\x1b[31m\n.gguf"], ["list"], ["run", "-m", tmp_path / "e\x1b[31m\n.gguf", "-p", "x"]):
        done = run_weft(words, env={"LLAMA_CACHE": str(tmp_path)})
        text = done.out + done.err
        assert "[31m" in text and not re.search("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0041]", text), (words, text)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]|\[31m\n|evil\n", text), (words, text)


def test_a_line_says_what_was_written(run_weft, tinypy, tmp_path):
    """A path with a line's end and marks of direction is one line, of all commands that say what they wrote."""
    folder = tmp_path / "e\u202e\n\x1b[31m"
    folder.mkdir()
    (tmp_path / "text").write_text("def f(x):\n  return x\n" * 200)
    for words in (["viz", tinypy, "--out", folder / "page.html"],
                  ["imatrix", "-m", tinypy, "-f", tmp_path / "text", "-o", folder / "i.gguf", "-c", "64", "--chunks", "1"]):
        done = run_weft(words)
        assert done.returncode == 0, done.err
        assert [line for line in done.err.splitlines() if "\u202e" in line or "\x1b[31m" in line] == [] and "e    " in done.err, (words, done.err)
