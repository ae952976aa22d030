"""What a command may be handed by mistake or by a stranger: files that are no ordinary ones, tunings that somebody else made, and signals at
the wrong moment. Each ends with a result or with an error that names the file; nothing crashes."""
import concurrent.futures as futures
import contextlib
import functools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from serving import TEMPLATE, Server, until

READERS = {
    "run -f": ["run", "-n", "1", "-f"], "run --grammar-file": ["run", "-n", "1", "-p", "x", "--grammar-file"],
    "run --json-schema-file": ["run", "-n", "1", "-p", "x", "--json-schema-file"], "run --chat-template-file": ["run", "-n", "1", "-p", "x", "--chat-template-file"],
    "embed -f": ["embed", "-f"], "perplexity -f": ["perplexity", "-f"], "imatrix -f": ["imatrix", "-o", "out", "-f"], "serve --api-key-file": ["serve", "--port", "0", "--api-key-file"],
    "tokenize -f": ["tokenize", "-f"], "chat -f": ["chat", "-n", "1", "-f"], "chat -sysf": ["chat", "-n", "1", "-p", "x", "-sysf"],
    "run --lora": ["run", "-n", "1", "-p", "x", "--lora"],
    "run --model-draft": ["run", "-n", "1", "-p", "x", "-md"],
}


def crashed(done):
    return done.returncode < 0 or "internal error" in done.err


@pytest.mark.parametrize("reader", READERS)
def test_odd_files(run_weft, tinypy, tmp_path, reader):
    """A folder, a missing file, an empty one, one without an end (with 3 GB of addresses), and one with NUL."""
    (tmp_path / "empty").touch()
    (tmp_path / "nul").write_bytes(b"a\0b")
    (tmp_path / "folder").mkdir()
    words = [*READERS[reader][:1], "-m", tinypy, *READERS[reader][1:]]
    for name in "folder", "missing", "empty", "nul":
        done = run_weft([*words, tmp_path / name], cwd=tmp_path, timeout=120)
        assert not crashed(done), (name, done.err)
        if name in ("folder", "missing"):
            assert done.returncode == 1 and str(tmp_path / name) in done.err, (name, done.err)
            assert ("s a directory" if name == "folder" else "No such file") in done.err, done.err


@pytest.mark.parametrize("words", [["run", "-n", "1", "-f"], ["run", "-n", "1", "-p", "x", "--grammar-file"], ["serve", "--port", "0", "--api-key-file"]], ids=["a prompt", "a grammar", "keys"])
def test_a_file_without_an_end(weft, weft_env, tinypy, sanitized, words):
    if sanitized:
        pytest.skip("the sanitizers' own memory does not fit the limit")
    done = subprocess.run([weft, words[0], "-m", tinypy, *words[1:], "/dev/zero"], env=weft_env, capture_output=True, text=True, timeout=120,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)))
    assert done.returncode == 1 and ("/dev/zero" in done.stderr or "out of memory" in done.stderr), done.stderr


def test_a_pipe_with_a_name(run_weft, tinypy, tmp_path):
    """As `-f <(command)` hands over."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("def add(a, b):\n"))
    writer.start()
    done = run_weft(["run", "-m", tinypy, "-n", "2", "--temp", "0", "-f", tmp_path / "pipe"], timeout=120)
    writer.join()
    (tmp_path / "file").write_text("def add(a, b):\n")
    assert done.returncode == 0 and done.stdout == run_weft(["run", "-m", tinypy, "-n", "2", "--temp", "0", "-f", tmp_path / "file"]).stdout


# ---- tunings of strangers --------------------------------------------------------------------------------------------------------------

ODD_VALUES = [None, True, -1, 0, 2**31, 2**63, 1e308, "", "x" * 70000, "../../etc/passwd", "a\0b", [], [[]], {}, {"": {}}]


def mutated(r, value):
    """A copy in which one place has something else."""
    copy = json.loads(json.dumps(value))
    places, found = [(copy,)], []
    while places:
        here = places.pop()[0]
        for key in list(here) if isinstance(here, dict) else range(len(here)):
            found.append((here, key))
            if isinstance(here[key], (dict, list)):
                places.append((here[key],))
    here, key = r.choice(found)
    how = r.random()
    if how < 0.2 and isinstance(here, dict):
        del here[key]
    elif how < 0.4 and isinstance(here, list):
        here.extend([here[key]] * 3)
    else:
        here[key] = r.choice(ODD_VALUES)
    return copy


OPTIONS = ["LAYOUT", "UPCAST", "UNROLL", "THREAD", "LANES", "ORDER", "BLOCKS", "TC", "SEPARATE", "SWAP", "LOCAL"]


def forged(r, real):
    """One kernel's options are others, of any number, as somebody would write them who knows the form."""
    copy = json.loads(json.dumps(real))
    row = r.choice(copy["tunings"])
    row["opts"] = " ".join(f"{r.choice(OPTIONS)}({r.choice([0, 0, 1, 2, 9, -1])}, {r.choice([0, 2, 3, 4, 16, 2**31 - 1, 10**12])})" for _ in range(r.choice([1, 1, 2, 3])))
    return copy


def test_tunings_of_strangers(run_weft, tinypy, cache_dir, tmp_path, sanitized):
    """All or none, never a crash; and a model runs with whatever was taken, with the same answer as before."""
    env = {"WEFT_CACHE": cache_dir}
    ask = ["run", "-m", tinypy, "-n", "4", "--temp", "0", "-p", "def "]
    before = run_weft(ask, env=env).stdout
    run_weft(["tune", "-m", tinypy, "--budget", "1", "--no-prompt"], env=env, timeout=120)
    whole = run_weft(["cache", "export", "-"], env=env).stdout
    real = json.loads(whole)
    r, taken = random.Random(44), 0
    texts = [json.dumps(mutated(r, real)).encode() for _ in range(12 if sanitized else 40)]
    texts += [json.dumps(forged(r, real)).encode() for _ in range(6 if sanitized else 20)]
    texts += [b"", b"\0", b"[" * 100000, whole[: len(whole) // 2], b"{}", b"null", whole + b"x", b'{"a":' * 5000]
    for text in texts:
        (tmp_path / "theirs.json").write_bytes(text)
        done = run_weft(["cache", "import", tmp_path / "theirs.json"], env=env)
        assert done.returncode in (0, 1) and not crashed(done) and (done.returncode == 0 or "theirs.json" in done.err), (text[:200], done.err)
        taken += done.returncode == 0
    assert taken < len(texts) and run_weft(["cache", "import", "/dev/null"], env=env).returncode == 1
    assert run_weft(ask, env=env).stdout == before


# ---- signals -------------------------------------------------------------------------------------------------------------------------------


STORM = [signal.SIGCHLD, signal.SIGWINCH, signal.SIGPIPE, signal.SIGURG, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGSTOP]


def storm(process, names, stop):
    r = random.Random(1)
    while not stop.wait(0.002) and process.poll() is None:
        name = r.choice(names)
        process.send_signal(name)
        if name == signal.SIGSTOP:
            time.sleep(0.005)
            process.send_signal(signal.SIGCONT)


def test_signals_that_mean_nothing(weft, weft_env, tinypy):
    """While a model loads, kernels are compiled and streams are answered."""
    stop, names = threading.Event(), STORM
    with Server(weft, weft_env, tinypy, "--temp", "0") as s:
        expected = s.ask("/completion", {"prompt": "def ", "n_predict": 40, "ignore_eos": True})[1]["content"]
    server = Server(weft, weft_env, tinypy, "--temp", "0")
    shaker = threading.Thread(target=storm, args=(server.process, names, stop))
    shaker.start()
    with server as s:
        for _ in range(5):
            assert s.ask("/completion", {"prompt": "def ", "n_predict": 40, "ignore_eos": True})[1]["content"] == expected
        stop.set()
        shaker.join()
        assert s.end() == 0


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_closed(weft, weft_env, tinypy, ignored):
    """SIGHUP is SIGTERM: the stream under way is answered to its end. Behind nohup it is nothing."""
    behind = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)} if ignored else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", functools.partial(subprocess.Popen, **behind))
        server = Server(weft, weft_env, tinypy)
    with server as s:
        body = {"prompt": "def ", "n_predict": 300, "ignore_eos": True, "temperature": 0}
        expected = s.ask("/completion", body)[1]["content"]
        with futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(s.ask, "/completion", {**body, "n_predict": 400})
            time.sleep(0.01)
            s.process.send_signal(signal.SIGHUP)
            with contextlib.suppress(OSError):                   # it had not come yet
                assert answer.result()[1]["content"].startswith(expected)
        if ignored:
            assert s.ask("/health")[0] == 200 and s.end() == 0
        else:
            assert s.process.wait(60) == 0


@pytest.mark.parametrize("delay", [0, 0.05, 0.3])
def test_asked_to_end_twice(weft, weft_env, tinypy, delay):
    """In the middle of a stream; the second time at once or later. It ends, and no process stays."""
    with Server(weft, weft_env, tinypy) as s:
        body = json.dumps({"prompt": "def ", "n_predict": 2000, "ignore_eos": True, "stream": True}).encode()
        with s.connect() as c:
            c.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            c.recv(1000)
            s.process.send_signal(signal.SIGTERM)
            time.sleep(delay)
            assert s.end() in (0, -signal.SIGTERM)


# ---- clocks --------------------------------------------------------------------------------------------------------------------------------

JUMPS = [10 * 365 * 86400, -86400, 3600, -40 * 365 * 86400, 2**33, 0]                  # seconds: ten years on, a day back, ..., beyond 32 bits


class Clock:
    """The clock of the day of a program that libjumps.so is loaded into."""

    def __init__(self, path):
        path.write_bytes(bytes(8))
        self.file = open(path, "r+b", buffering=0)

    def set(self, seconds):
        self.file.seek(0)
        self.file.write(seconds.to_bytes(8, "little", signed=True))


@pytest.fixture
def clock(tmp_path, sanitized):
    if sanitized:
        pytest.skip("libjumps.so would come before the sanitizers")
    return Clock(tmp_path / "clock")


def test_a_clock_that_is_set(weft, weft_env, built_tool, tinypy, tmp_path, clock):
    """While streams are answered, slots are saved and a model is about to be unloaded: answers are what they were, waits are as long as they should be."""
    (tmp_path / "slots").mkdir()
    shutil.copy(tinypy, tmp_path / "m.gguf")                           # young: its digest holds only once it has rested
    env = {**weft_env, "LD_PRELOAD": built_tool("libjumps.so", "WEFT_JUMPS"), "CLOCK_FILE": str(tmp_path / "clock")}
    body = {"prompt": "def ", "n_predict": 60, "ignore_eos": True, "temperature": 0, "id_slot": 0}
    with Server(weft, env, tmp_path / "m.gguf", "--slot-save-path", tmp_path / "slots", "--sleep-idle-seconds", "30") as s:
        expected = s.ask("/completion", body)[1]["content"]
        for i, seconds in enumerate(JUMPS):
            setter = threading.Timer(0.01, clock.set, [seconds])
            setter.start()
            assert s.ask("/completion", body)[1]["content"] == expected
            setter.join()
            began = time.monotonic()
            status, got = s.ask("/slots/0?action=save", {"filename": f"s{i}"})
            assert status == 200 and got["n_saved"] > 0, got
            status, got = s.ask("/slots/0?action=restore", {"filename": f"s{i}"})
            assert status == 200 and time.monotonic() - began < 20, got
            created = s.ask("/v1/completions", {"prompt": "def ", "max_tokens": 1})[1]["created"]
            assert abs(created - time.time() - seconds) < 60
            timings = s.ask("/completion", body)[1]["timings"]
            assert all(0 <= timings[name] < 60_000 for name in ("prompt_ms", "predicted_ms")), timings
        assert "unloaded" not in "".join(s.said) and s.ask("/health")[0] == 200      # nobody was idle for 30 s
        clock.set(-86400)
        began = time.monotonic()
        assert s.end() == 0 and time.monotonic() - began < 20


def test_a_clock_that_is_set_while_a_server_ends(weft, weft_env, built_tool, tinypy, tmp_path, clock):
    """The last lines of the log are waited for, whatever time it is."""
    env = {**weft_env, "LD_PRELOAD": built_tool("libjumps.so", "WEFT_JUMPS"), "CLOCK_FILE": str(tmp_path / "clock")}
    for seconds in (10 * 365 * 86400, -86400):
        clock.set(0)
        with Server(weft, env, tinypy, "--log-file", tmp_path / "log", "-v") as s:
            assert s.ask("/completion", {"prompt": "def ", "n_predict": 1})[0] == 200
            setter = threading.Timer(0.02, clock.set, [seconds])
            setter.start()
            assert s.end() == 0
            setter.join()
    assert "/completion" in (tmp_path / "log").read_text()


# What may ask for the time of day: it is shown, or compared with times of files.
TIME_OF_DAY = {
    "app/bench.c": "date of a table", "base/stamp.c": "ages of files", "chat/chat.c": "strftime_now of templates", "device/cache.c": "when an entry was used",
    "serve/call.c": "created", "serve/kv_events.c": "time of a batch", "serve/log.c": "time of a line", "serve/metrics.c": "the time in a metric", "serve/ollama.c": "created_at, expires_at", "serve/replay.c": "began, ended", "serve/serve.c": "start of the process", "serve/shelf.c": "until when a model stays",
}


def test_nothing_waits_by_the_time_of_day(repo):
    """Waits end at times of a clock that nobody sets."""
    found, waits = set(), []
    for path in sorted((repo / "src").rglob("*.[ch]")):
        if {"macos", "windows"} & set(path.parts):         # what stands in for POSIX there; macOS has no other waits than these
            continue
        name, text = str(path.relative_to(repo / "src")), re.sub(r"//[^\n]*", "", path.read_text())
        if re.search(r"CLOCK_REALTIME|\btime\(NULL\)|\bgettimeofday\(|\btimespec_get\(", text):
            found.add(name)
        waits += [f"{name}: {call}" for call in re.findall(r"pthread_cond_timedwait(?!_relative_np)|pthread_timedjoin_np|pthread_(?:mutex|rwlock)_timed\w*lock|sem_timedwait|mq_timed\w+|TFD_TIMER_ABSTIME|TIMER_ABSTIME", text)]
        # Only a condition that os_cond_init made waits by that clock.
        made = set(re.findall(r"os_cond_init\(&\w+->(\w+)\)", text))
        waits += [f"{name}: {of}" for of in re.findall(r"os_cond_wait_until\(&\w+->(\w+),", text) if of not in made]
    assert found == set(TIME_OF_DAY) and waits == ["base/linux/cond.c: pthread_cond_timedwait"]
    assert "pthread_condattr_setclock(&how, CLOCK_MONOTONIC);" in (repo / "src/base/linux/cond.c").read_text()


# ---- little memory -------------------------------------------------------------------------------------------------------------------------

HEAVY = [("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello, this is it. " * 500_000}]}), ("/tokenize", {"content": "a b c " * 1_500_000}),
         ("/completion", {"prompt": "def ", "n_predict": 100, "ignore_eos": True}), ("/v1/completions", {"prompt": ["abc"] * 100, "max_tokens": 2}),
         ("/completion", {"prompt": "x", "n_predict": 4, "json_schema": {"type": "array", "items": {"enum": [f"v{i}" for i in range(5000)]}}})]


def beyond_memory(server):
    """Statuses of heavy requests, eight at a time; None: the connection was closed before all of the body was sent."""

    def ask(i):
        try:
            return server.ask(*HEAVY[i % len(HEAVY)])[0]
        except OSError:
            return None

    with futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, range(24)))


def test_requests_have_a_quarter_of_the_memory_that_is_left(weft, weft_env, built_tool, tinypy, sanitized):
    if sanitized:
        pytest.skip("libmeminfo.so would come before the sanitizers")
    env = dict(weft_env, LD_PRELOAD=built_tool("libmeminfo.so", "WEFT_MEMINFO"), MEMINFO=f"MemTotal: {200 << 10} kB\nMemAvailable: {100 << 10} kB\n")
    with Server(weft, env, tinypy, "--chat-template", TEMPLATE) as s:
        assert any("requests may hold 25 MiB together" in line for line in s.said), s.said
        statuses = beyond_memory(s)
        assert 200 in statuses and {413, 429} & set(statuses) and set(statuses) <= {200, 400, 413, 429, None}, statuses
        assert s.ask("/completion", {"prompt": "def ", "n_predict": 4})[0] == 200 and s.end() == 0


@pytest.fixture
def memory_group():
    """memory_group(MiB): a function for a new process that puts it into a control group with so much memory and no swap, or a skip."""
    made = []

    def make(mib):
        for base, files in ((Path("/sys/fs/cgroup/memory"), ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")), (Path("/sys/fs/cgroup"), ("memory.max", "memory.swap.max"))):
            group = base / f"weft-test-{os.getpid()}-{len(made)}"
            try:
                if not (base / "cgroup.procs").exists():
                    continue
                group.mkdir()
                made.append(group)
                for file in files:
                    (group / file).write_text("0" if "swap" in file else str(mib << 20))
                return lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
            except OSError:
                continue
        pytest.skip("no control group with a limit of memory can be made here")

    make.last = lambda: made[-1]
    yield make
    for group in made:
        until(lambda group=group: not (group / "cgroup.procs").read_text(), seconds=10)      # what was in it ends
        group.rmdir()


NUMBERS = re.compile(r"[\d.]+ [MG]iB of (memory are needed|weights|model)\b.*[\d.]+ [MG]iB (of memory )?are free|needs \d+ MiB of memory beside its models, but only [\d.]+ MiB are free")
SIZES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 192)                   # MiB


def serve_once(weft, env, model, enter):
    """Status and output of a server that is asked once it is ready, and then ended."""
    process = subprocess.Popen([weft, "serve", "-m", model, "--port", "0"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=enter)
    said, url = "", None
    try:
        for line in process.stdout:
            said += line
            url = (re.search(r"http://\S+", line) or [url])[0]
            if "ready: " in line:
                body = json.dumps({"prompt": "def ", "max_tokens": 4}).encode()
                said += urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body), timeout=60).read().decode()
                process.terminate()
        return process.wait(60), said
    finally:
        process.kill()


def run_once(weft, env, model, enter, command):
    args = {"run": ["-p", "def ", "-n", "4"], "bench": ["-p", "16", "-n", "4", "-r", "1"]}
    if command == "serve":
        return serve_once(weft, env, model, enter)
    done = subprocess.run([weft, command, "-m", model, *args[command]], env=env, capture_output=True, text=True, check=False, preexec_fn=enter, timeout=60)
    return done.returncode, done.stdout + done.stderr


def killed_in(group):
    """How many processes the system has ended in a control group for want of memory."""
    file = next(one for one in (group / "memory.oom_control", group / "memory.events") if one.exists())
    return int(re.search(r"oom_kill (\d+)", file.read_text())[1])


@pytest.mark.parametrize("command", ["run", "bench", "serve"])
def test_groups_from_too_small_to_enough(weft, weft_env, tinypy, memory_group, tmp_path, sanitized, command):
    """A control group of each size: it works, or an error names the memory that is needed and what there is. The system ends nothing, and the kernel cache is whole."""
    if sanitized:
        pytest.skip("the sanitizers' own memory does not fit the limit")
    env, worked = {**weft_env, "WEFT_CACHE": str(tmp_path)}, []
    for mib in SIZES:
        enter = memory_group(mib)
        status, said = run_once(weft, env, tinypy, enter, command)
        assert status == 0 or (status == 1 and NUMBERS.search(said)), (mib, status, said)
        assert killed_in(memory_group.last()) == 0, (mib, status, said)
        worked.append(status == 0)
    assert worked == sorted(worked) and not worked[0] and worked[-1], worked
    done = subprocess.run([weft, "cache", "verify"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 damaged" in done.stdout, done


@pytest.mark.parametrize("limit, words", [(resource.RLIMIT_AS, "addresses: ulimit -v"), (resource.RLIMIT_DATA, "data: ulimit -d")], ids=["addresses", "data"])
@pytest.mark.parametrize("command", ["run", "bench", "serve"])
def test_limits_of_addresses(weft, weft_env, tinypy, tmp_path, sanitized, command, limit, words):
    """The same of `ulimit -v` and `-d`: it works, or there is an error. (A server whose threads could not be made freed a pool twice. Of -d the error said how much memory the machine has.)"""
    if sanitized:
        pytest.skip("the sanitizers need addresses")
    env, worked = {**weft_env, "WEFT_CACHE": str(tmp_path)}, []
    for mib in (24, 32, 40, 48, 64, 80, 84, 88, 92, 96, 128, 256, 512, 16384):
        status, said = run_once(weft, env, tinypy, lambda mib=mib: resource.setrlimit(limit, (mib << 20, mib << 20)), command)
        assert status == 0 or (status in (1, 127) and (re.search("(?i)cannot allocate memory|could (not )?be made|out of memory|is not here", said) or NUMBERS.search(said))), (mib, status, said)
        assert "reserving" not in said or f"this process may have {mib << 20} bytes of {words}" in said, said
        worked.append(status == 0)
    assert worked[-1] and not worked[0], (worked, status, said)
    done = subprocess.run([weft, "cache", "verify"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 damaged" in done.stdout, done


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["addresses", "data"])
def test_a_server_with_limits(weft, weft_env, tinypy, monkeypatch, sanitized, limit):
    """Heavy requests at the lowest `ulimit -v` and `-d` of a list at which a server starts, each within the documented limits: answered or refused. (They ended the server.)"""
    if sanitized:
        pytest.skip("the sanitizers need addresses")
    text = "def area(width, height):\n    return width * height  # of a rectangle\n" * 3000
    tools = [{"type": "function", "function": {"name": f"t{k}", "parameters": {"type": "object", "properties": {"p": {"type": "string"}}}}} for k in range(8000)]
    asked = [("/tokenize", {"content": text * 12, "with_pieces": True}), ("/completion", {"prompt": [text[:300]] * 100, "n_predict": 2}),
             ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "tools": tools, "tool_choice": "required"}),
             ("/detokenize", {"tokens": list(range(2000)) * 500})]
    for mib in range(700, 4000, 100):
        lower = lambda mib=mib: resource.setrlimit(limit, (mib << 20, mib << 20))
        if serve_once(weft, weft_env, tinypy, lower)[0] == 0:
            break
    monkeypatch.setattr(subprocess, "Popen", functools.partial(subprocess.Popen, preexec_fn=lower))
    server = Server(weft, weft_env, tinypy, "--chat-template", TEMPLATE, "-np", "4")
    monkeypatch.undo()

    def ask(i):
        try:
            return [server.ask(*asked[(i + k) % 4])[0] for k in range(3)]
        except OSError:              # refused while the body was sent
            return [None]

    with server as s, futures.ThreadPoolExecutor(8) as pool:
        statuses = {status for all_of_one in pool.map(ask, range(8)) for status in all_of_one}
        assert s.process.poll() is None, s.said
        assert statuses <= {200, 400, 413, 429, None}, (statuses, s.said)
        assert s.ask("/completion", {"prompt": "def ", "n_predict": 4})[0] == 200 and s.end() == 0


def test_a_group_with_little_memory(weft, weft_env, tinypy, memory_group, monkeypatch, sanitized):
    """What does not fit is refused in words, and nothing is killed: models, contexts, requests."""
    if sanitized:
        pytest.skip("the sanitizers' own memory does not fit the limit")
    enter = memory_group(256)
    run = lambda *args: subprocess.run([weft, "run", "-m", tinypy, "-p", "def ", "-n", "4", *args], env=weft_env, capture_output=True, text=True, check=False, preexec_fn=enter)
    done = run("-c", "1000000")
    assert done.returncode == 1 and "for 1000000 positions" in done.stderr and "GiB of memory are free" in done.stderr
    assert run().returncode == 0
    monkeypatch.setattr(subprocess, "Popen", functools.partial(subprocess.Popen, preexec_fn=enter))
    server = Server(weft, weft_env, tinypy, "--chat-template", TEMPLATE, "-np", "8")
    monkeypatch.undo()
    with server as s:
        statuses = beyond_memory(s)
        assert s.process.poll() is None and 200 in statuses and {413, 429} & set(statuses) and set(statuses) <= {200, 400, 413, 429, None}, (statuses, s.said)
        assert s.ask("/completion", {"prompt": "def ", "n_predict": 4})[0] == 200 and s.end() == 0
