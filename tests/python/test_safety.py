"""What other people, other programs and the system can do to a run: it ends in a message or goes on, and is never ended by a signal."""
import os
import platform
import random
import re
import resource
import shutil
import struct
import subprocess
import sqlite3
import threading
import time

import pexpect
import pytest
from conftest import REPO
from registry import Registry
from serving import Server


@pytest.fixture
def warm(weft_env, run_weft, tinypy):
    """The session's cache holds the kernels of short runs."""
    assert run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "2"]).returncode == 0


def test_a_file_that_is_cut_while_it_runs(weft, weft_env, tinypy, tmp_path, warm, sanitized):
    """At any moment, while loading too: status 1 and a message that names the file, or the answer of a run that was done before."""
    seed = random.Random(3)
    cut = 0
    for i in range(4 if sanitized else 12):
        path = tmp_path / f"model-{i}.gguf"
        shutil.copy(tinypy, path)
        args = [weft, "run", "-m", str(path), "-p", "def ", "-n", "400", "--temp", "0", "-c", "512"] + (["--no-repack"] if i % 2 else [])
        process = subprocess.Popen(args, env=weft_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if i % 3:
            process.stdout.read(20)  # it generates
        else:
            time.sleep(seed.random() * 0.03)  # it loads
        os.truncate(path, seed.choice([0, 100, 1 << 16, 3 << 20]))
        out, err = process.communicate(timeout=300)
        assert process.returncode in (0, 1), (process.returncode, err)
        if process.returncode:
            assert str(path) in err.decode(), err
            cut += 1
    assert cut >= 3


def test_a_file_that_is_cut_while_it_is_inspected(run_weft, tinypy, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(tinypy, path)
    stop = threading.Event()

    def grow_and_cut():
        data = open(tinypy, "rb").read()
        while not stop.is_set():
            with open(path, "r+b") as f:
                f.truncate(5000)
                f.write(data)

    thread = threading.Thread(target=grow_and_cut)
    thread.start()
    try:
        for _ in range(15):
            for args in [["inspect", "-m", path, "--json"], ["tokenize", "-m", path, "-p", "def f(x): return x"]]:
                done = run_weft(args)
                assert done.returncode in (0, 1), (args, done.returncode, done.err)
                assert not done.returncode or done.err.startswith("weft: error: ")
    finally:
        stop.set()
        thread.join()


def test_closed_standard_descriptors(weft, weft_env, tinypy, cache_dir):
    """What is printed must not end up in files that got the numbers of descriptors which the caller had closed."""
    env = {**weft_env, "WEFT_CACHE": str(cache_dir)}
    command = f"exec '{weft}' run -m '{tinypy}' -p 'def ' -n 8"
    done = subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], env=env, timeout=300)
    assert done.returncode == 1  # stdout could not be written
    assert (cache_dir / "kernels" / "lock").stat().st_size == 0
    assert sqlite3.connect(cache_dir / "kernels" / "kernels-2.db").execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    done = subprocess.run(["sh", "-c", f"{command} 2>&-"], env=env, timeout=300, stdout=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout
    assert (cache_dir / "kernels" / "lock").stat().st_size == 0


def test_a_limit_on_the_size_of_files(run_weft, tinypy, cache_dir):
    """The cache cannot grow: the run goes on without it, and says so."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    done = run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "8", "--temp", "0"], env={"WEFT_CACHE": cache_dir}, preexec_fn=limit)
    assert done.returncode == 0 and done.out, done.err
    assert "weft: warning: kernels are not cached" in done.err


@pytest.fixture
def small_stack(run_weft):
    """run_weft with so many bytes of stack."""
    return lambda args, size=256 << 10: run_weft(args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (size, size)))


def test_a_stack_that_is_too_small(small_stack, tinypy, sanitized):
    """The least that is accepted is enough."""
    if sanitized:
        pytest.skip("the sanitizers need a larger stack than is limited here")
    run = ["run", "-m", tinypy, "-p", "def ", "-n", "4", "--temp", "0"]
    for args in run, ["env"], ["--version"]:
        done = small_stack(args, 16 << 10)
        assert done.returncode == 1 and "the limit of a stack is 16 KiB, and at least 128 KiB are needed (ulimit -s 8192)" in done.err, (done.returncode, done.err)
    for args in run, ["env"], ["bench", "-m", tinypy, "-p", "8", "-n", "2", "-r", "1"]:
        assert (done := small_stack(args, 128 << 10)).returncode == 0, (args, done.returncode, done.err)


def test_without_descriptors(run_weft, tinypy, cache_dir, sanitized):
    """A file whose rule of the sandbox cannot be made would be refused as "Permission denied"."""
    for n in 4, 5, 6:
        done = run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "1"], env={"WEFT_CACHE": cache_dir}, preexec_fn=lambda n=n: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        assert "Permission denied" not in done.err and (done.returncode == 0 or "descriptors are left" in done.err or "Too many open files" in done.err), done.err
        if n == 4 and not sanitized and "no Landlock" not in run_weft(["env"]).out:
            assert done.returncode == 1 and "no descriptors are left to open files with: this process may have 4 (ulimit -n)" in done.err, done.err


def test_a_small_stack(small_stack, tmp_path):
    path = tmp_path / "deep.jinja"
    path.write_text("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100000) }}")
    done = small_stack(["template", path, "--messages", '[{"role": "user", "content": "x"}]'])
    assert done.returncode == 1 and "stack" in done.err, (done.returncode, done.err)
    path.write_text("(" * 400 + "1" + ")" * 400)
    path.write_text("{{ " + path.read_text() + " }}")
    done = small_stack(["template", path, "--messages", '[{"role": "user", "content": "x"}]'])
    assert done.returncode in (0, 1)


NESTED = {
    "items": lambda d: '{"items":' * d + "{}" + "}" * d,
    "anyOf": lambda d: '{"anyOf":[' * d + "{}" + "]}" * d,
    "allOf": lambda d: '{"allOf":[' * d + "{}" + "]}" * d,
    "const": lambda d: '{"const":' + "[" * d + "]" * d + "}",
    "enum": lambda d: '{"enum":[' + '{"a":' * d + "1" + "}" * d + "]}",
    "$defs": lambda d: '{"$defs":' * d + "{}" + "}" * d,
}


@pytest.mark.parametrize("name", NESTED)
def test_a_small_stack_and_a_schema(small_stack, tinypy, tmp_path, name):
    """As an argument and as a file: what is nested deeper than the stack has room for is an error, where it has room it is none."""
    path = tmp_path / "schema.json"
    for depth, codes in ((60, (0,)), (1000, (1,)), (2030, (1,))):
        path.write_text(NESTED[name](depth))
        for option in (["-j", path.read_text()], ["-jf", path]):
            done = small_stack(["run", "-m", tinypy, "-p", "x", "-n", "1", *option])
            assert done.returncode in codes, (depth, option[0], done.returncode, done.err)
            assert not done.returncode or "nested too deeply for the stack" in done.err, (depth, done.err)


def test_a_small_stack_and_messages(small_stack, tmp_path):
    path = tmp_path / "plain.jinja"
    path.write_text("{{ messages | length }}")
    for depth, code in ((60, 0), (2000, 1)):
        messages = '[{"role":"user","content":"x","l":' + "[" * depth + "]" * depth + "}]"
        done = small_stack(["template", path, "--messages", messages])
        assert done.returncode == code, (depth, done.returncode, done.err)
        assert not code or "nested too deeply for the stack" in done.err


def test_a_small_stack_and_a_grammar(small_stack, tinypy, tmp_path):
    """Parts in parts that no parentheses show; with 8 MB of stack, too."""
    path = tmp_path / "stars.gbnf"
    path.write_text('root ::= "a"' + "*" * 400000)
    pattern = tmp_path / "schema.json"
    pattern.write_text('{"type": "string", "pattern": "a%s"}' % ("{1,2}" * 200000))
    for size in (8 << 20, 256 << 10):
        for option in (["--grammar-file", path], ["-jf", pattern]):
            done = small_stack(["run", "-m", tinypy, "-p", "x", "-n", "1", *option], size)
            assert done.returncode == 1 and "the stack has no room" in done.err, (size, option[0], done.returncode, done.err)
    groups = tmp_path / "groups.gbnf"
    groups.write_text("root ::= " + "(" * 190 + '"a"' + ")*" * 190)
    done = small_stack(["run", "-m", tinypy, "-p", "x", "-n", "1", "--grammar-file", groups])
    assert done.returncode in (0, 1), (done.returncode, done.err)


def test_out_of_memory_is_a_message(run_weft, tinypy, sanitized):
    """With little address space: a message and status 1, whatever thread notices."""
    if sanitized:
        pytest.skip("the sanitizers reserve address space")
    run = lambda limit: run_weft(["tokenize", "-m", tinypy, "-p", "def " * 2000, "--ids"], preexec_fn=limit)
    failed = 0
    for mib in range(12, 60, 4):
        done = run(lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)))
        assert done.returncode in (0, 1, 127), (mib, done.returncode, done.err)  # 127: the loader found no room for libraries
        failed += done.returncode == 1
    assert failed


def test_out_of_memory_while_compiling(run_weft, tinypy, sanitized):
    """LLVM ends its process when there is no memory: that is a message here, at any limit."""
    if sanitized:
        pytest.skip("the sanitizers reserve address space")
    codes = {}
    for mib in range(40, 400, 15):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        done = run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "2", "-c", "256"], env={"WEFT_CACHE": "off"}, preexec_fn=limit)
        assert done.returncode in (0, 1), (mib, done.returncode, done.err)
        assert done.returncode == 0 or done.err.startswith("weft: "), (mib, done.err)
        codes[done.returncode] = codes.get(done.returncode, 0) + 1
    assert codes.get(1) and codes.get(0), codes


FAILING = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static atomic_long n;
static long want = -2;
static int fails(void) {
  if (want == -2) want = getenv("FAIL_AT") ? atol(getenv("FAIL_AT")) : -1;
  if (atomic_fetch_add(&n, 1) != want) return 0;
  errno = ENOMEM;
  return 1;
}
void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *p, size_t size) { return fails() ? NULL : __libc_realloc(p, size); }
__attribute__((destructor)) static void end(void) { if (want == -1) dprintf(2, "allocations: %ld\\n", (long)n); }
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory, sanitized):
    """A library that makes one allocation fail: number FAIL_AT."""
    if sanitized or not shutil.which("cc"):
        pytest.skip("needs cc, and an allocator of libc's")
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.c").write_text(FAILING)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "failing.c", "-o", "failing.so"], cwd=folder, check=True)
    return str(folder / "failing.so")


@pytest.mark.parametrize("name,tries", [("inspect", 40), ("inspect --json", 40), ("tokenize", 100), ("cache", 40), ("run", 40), ("compile", 15)])
def test_an_allocation_that_fails(run_weft, tinypy, warm, failing, name, tries):
    """Each in turn, or of many some: the run ends well, or with a message and status 1."""
    args = {"inspect": ["inspect", "-m", tinypy], "inspect --json": ["inspect", "-m", tinypy, "--json"], "tokenize": ["tokenize", "-m", tinypy, "-p", "def f(x): return x"], "cache": ["cache", "list"]}
    args = args.get(name, ["run", "-m", tinypy, "-p", "def ", "-n", "2"])
    env = {"LD_PRELOAD": failing, **({"WEFT_CACHE": "off"} if name == "compile" else {})}
    total = int(run_weft(args, env=env).err.split("allocations: ")[1].split()[0])
    codes = set()
    for at in range(0, total, max(1, total // tries)):
        done = run_weft(args, env={**env, "FAIL_AT": str(at)})
        assert done.returncode in (0, 1), (at, total, done.returncode, done.err)
        assert done.returncode == 0 or done.err.startswith("weft: "), (at, total, done.err)
        codes.add(done.returncode)
    assert 1 in codes


def test_hardening(weft, sanitized):
    """Address tables that are read-only once the program runs, addresses that differ from run to run, guarded stacks and copies."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    show = lambda *what: subprocess.run(["readelf", "-W", *what, weft], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "DYN (" in show("-h")
    dynamic = show("-d")
    assert "BIND_NOW" in dynamic or " NOW" in dynamic
    assert "PIE" in dynamic
    segments = show("-l").splitlines()
    assert any("GNU_RELRO" in line for line in segments)
    assert [line.split()[-2] for line in segments if "GNU_STACK" in line] == ["RW"]
    if not sanitized:
        symbols = show("--dyn-syms")
        assert "__stack_chk_fail" in symbols and ("__memcpy_chk" in symbols or "__snprintf_chk" in symbols)


def test_the_sandbox(weft, weft_env, tinypy, warm, run_weft, sanitized):
    """While it generates: no memory is writable and executable at once, and a filter of system calls is in force, for the compiler too."""
    if sanitized:
        pytest.skip("sanitizers make calls that the filter forbids, so a build with them has none")
    for options, filters in (([], "2"), (["--no-sandbox"], "0")):
        args = [weft, *options, "run", "-m", tinypy, "-p", "def ", "-n", "400", "-c", "512", "--temp", "0"]
        process = subprocess.Popen(args, env={**weft_env, "WEFT_CACHE": "off"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.read(20)
        try:
            ids = [str(process.pid), *open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]
            assert len(ids) == 2  # the one that compiles
            for i in ids:
                status = dict(line.split(":\t", 1) for line in open(f"/proc/{i}/status").read().splitlines() if ":\t" in line)
                assert status["Seccomp"] == (filters if i == ids[0] else "2")
                regions = open(f"/proc/{i}/maps").read().splitlines()
                assert regions and not [r for r in regions if r.split()[1].startswith("rwx")]
        finally:
            process.kill()
            process.communicate()
    assert "sandbox   on: " in run_weft(["env"]).out
    assert "sandbox   off: --no-sandbox" in run_weft(["--no-sandbox", "env"]).out
    assert run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "2"], env={"RENDER": "c"}).returncode == 0


# Attempts that work without a sandbox whoever runs the tests, and wherever
PLAIN_ATTEMPTS = ("a memfd mapped twice", "writable and executable", "chmod", "utimensat of a name", "futimens of what is read", "SIGSTOP of another", "prlimit of another", "affinity of another",
                  "policy of another", "a pair of datagrams", "sendmsg(MSG_FASTOPEN)", "a setuid file")


@pytest.fixture
def attacked(built_tool, tmp_path):
    """The environment of a program that attacks from inside when it ends, and what came of each attempt, from what it said."""
    file = tmp_path / "victim.txt"
    file.write_text("x" * 4096)
    victim = subprocess.Popen(["sleep", "300"])
    env = {"LD_PRELOAD": str(built_tool("libattack.so", "WEFT_ATTACK")), "VICTIM": str(victim.pid), "FILE": str(file)}
    yield env, lambda err: dict(re.findall(r"^attack: (.*): (\w+)$", err, re.M))
    victim.kill()
    victim.wait()


@pytest.mark.parametrize("command", ["inspect", "run", "serve"])
def test_attacks_from_inside(weft, weft_env, run_weft, tinypy, warm, attacked, sanitized, command):
    """Memory that is writable and executable, files of others, other processes, the kernel: nothing works, and what no library calls ends the process."""
    env, ends = attacked
    if sanitized or "sandbox   off" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without seccomp filters")
    if command == "serve":
        with Server(weft, {**weft_env, **env}, tinypy) as server:
            assert server.ask("/v1/completions", {"prompt": "def ", "max_tokens": 1})[0] == 200
            server.end()
        err = "".join(server.said)
    else:
        args = {"inspect": ["inspect", "-m", tinypy], "run": ["run", "-m", tinypy, "-p", "def ", "-n", "2"]}[command]
        err = run_weft(args, env=env).err
    found = ends(err)
    assert len(found) == 40 and "works" not in found.values(), found
    assert found["shmat(SHM_EXEC)"] == "refused", found                # there is no memory for it: shmget fails, and shmat would end the process
    for name in ("personality(READ_IMPLIES_EXEC)", "userfaultfd", "unshare", "chroot", "add_key", "ptrace"):
        assert found[name] == "ended", found
    if command == "inspect":
        assert not [name for name in PLAIN_ATTEMPTS if ends(run_weft(["--no-sandbox", *args], env=env).err)[name] != "works"]


@pytest.mark.parametrize("name", ["run", "bench", "perplexity", "chat"])
def test_an_ordinary_run_is_refused_nothing(run_weft, tinypy, tmp_path, name):
    """-v reports what the sandbox refuses: a list that lacks a call shows here."""
    (tmp_path / "text").write_text("def f(x):\n  return x\n" * 40)
    options = {"run": ["-p", "def ", "-n", "2"], "bench": ["-p", "1", "-n", "1", "-r", "1"], "perplexity": ["-f", tmp_path / "text", "-c", "16", "--chunks", "1"],
               "chat": ["--chat-template", "none", "-p", "def ", "-n", "1"]}[name]
    for cache in (tmp_path / "cache", tmp_path / "cache"):  # with and without a compiler
        done = run_weft([name, "-v", "-m", tinypy, *options], env={"WEFT_CACHE": cache})
        assert done.returncode == 0 and "sandbox" not in done.err, done.err


def test_what_the_sandbox_refuses_is_said(run_weft, tinypy, attacked, sanitized):
    env, ends = attacked
    if sanitized or "sandbox   off" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without seccomp filters")
    err = run_weft(["run", "-v", "-m", tinypy, "-p", "def ", "-n", "1"], env=env).err
    assert "works" not in ends(err).values()
    for name in ("kill", "shmget", "personality", "userfaultfd", "prlimit64", "sched_setaffinity"):
        assert f"weft: the sandbox refused the system call {name}\n" in err
    assert "the sandbox refused" not in run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "1"], env=env).err


def siphash(key, data):
    """SipHash-2-4, as its authors describe it."""
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<2Q", key)
    v0, v1, v2, v3 = k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573
    data += bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for rounds, m in [(2, m) for m, in struct.iter_unpack("<Q", data)] + [(4, None)]:
        if m is None:
            v2 ^= 255
        else:
            v3 ^= m
        for _ in range(rounds):
            v0, v2 = v0 + v1 & mask, v2 + v3 & mask
            v1, v3 = (v1 << 13 | v1 >> 51) & mask ^ v0, (v3 << 16 | v3 >> 48) & mask ^ v2
            v0 = (v0 << 32 | v0 >> 32) & mask
            v2, v0 = v2 + v1 & mask, v0 + v3 & mask
            v1, v3 = (v1 << 17 | v1 >> 47) & mask ^ v2, (v3 << 21 | v3 >> 43) & mask ^ v0
            v2 = (v2 << 32 | v2 >> 32) & mask
        v0 ^= m or 0
    return v0 ^ v1 ^ v2 ^ v3


def forge_kernels(folder):
    """All kernels become one instruction that ends a process, each entry with the tag of the folder's secret: what a run that was taken over could write."""
    key, forged = (folder / "key").read_bytes(), 0
    with sqlite3.connect(folder / "kernels-2.db") as db:
        for hash_, name, value, version in db.execute("SELECT hash, key, value, version FROM kernel").fetchall():
            at = value.find(b"\0WFC1")
            if at < 0:
                continue
            n, = struct.unpack_from("<I", value, at + 9)
            value, version = value[:-n] + b"\x0f\x0b" * (n // 2) + bytes(n % 2), version.encode()
            parts = siphash(key, version), len(name), siphash(key, name), len(value), siphash(key, value)
            tag, = struct.unpack("<q", struct.pack("<Q", siphash(key, struct.pack("<5Q", *parts))))
            forged += db.execute("UPDATE kernel SET value = ?, tag = ? WHERE hash = ?", (value, tag, hash_)).rowcount
    return forged


def test_siphash_is_the_one_of_its_authors():
    assert siphash(bytes(range(16)), bytes(range(15))) == 0xa129ca6149be45e5  # the vector of the paper


def test_what_a_confined_run_leaves_is_not_run_outside(built_tool, run_weft, tinypy, cache_dir, sanitized):
    """A cache that a confined run could have filled with code: a run without the sandbox never opens it, and a confined run cannot open that run's."""
    if sanitized or platform.machine() != "x86_64" or "no Landlock" in run_weft(["env"]).out or "sandbox   off" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, another processor, or a kernel without Landlock or seccomp filters")
    run = lambda *options, **more: run_weft([*options, "run", "-m", tinypy, "-p", "def ", "-n", "8", "--temp", "0"], env={"WEFT_CACHE": cache_dir, **more})
    want = run().out
    assert forge_kernels(cache_dir / "kernels") > 5
    assert "0 damaged" in run_weft(["cache", "verify"], env={"WEFT_CACHE": cache_dir}).out  # nothing about them tells it
    assert run("--no-sandbox").out == want  # compiles its own
    files = [cache_dir / "kernels-open" / name for name in ("key", "kernels-2.db")]
    assert all(path.is_file() for path in files)
    env = {"LD_PRELOAD": built_tool("libreach.so", "WEFT_REACH"), "REACH": ":".join(map(str, files)), "WEFT_CACHE": cache_dir}
    reached = re.findall(r"^reach: .* (\S+)$", run_weft(["inspect", "-m", tinypy], env=env).err, re.M)
    assert reached == ["--", "--"]
    assert run("--no-sandbox").out == want


def test_a_confined_run_leaves_no_code(built_tool, run_weft, tinypy, cache_dir, sanitized):
    """From inside of a run: the cache, its secret and the process that has them are out of reach, and that process takes no code. The next run is as ever."""
    if sanitized or "no Landlock" in run_weft(["env"]).out or "sandbox   off" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without Landlock or seccomp filters")
    run = lambda **more: run_weft(["run", "-v", "-m", tinypy, "-p", "def ", "-n", "8", "--temp", "0"], env={"WEFT_CACHE": cache_dir, **more})
    want = run().out
    rows = lambda: dict(((key, version), (value, tag)) for key, value, tag, version in
                        sqlite3.connect(cache_dir / "kernels" / "kernels-2.db").execute("SELECT key, value, tag, version FROM kernel"))
    before = rows()
    key = min((key for key, _ in before if key.startswith(b"layouts ")), key=len)
    done = run(LD_PRELOAD=built_tool("libforge.so", "WEFT_FORGE"), FORGE=cache_dir / "kernels", FORGE_KEY=key.hex())
    ends = dict(re.findall(r"^forge: (.*): (\w+)$", done.err, re.M))
    alive = {"the keeper still answers", "another socket", "a third socket"}
    assert done.returncode == 0 and done.out == want and len(ends) == 22, done.err
    assert {name for name, end in ends.items() if end == "works"} == alive, ends
    assert rows() == before
    assert "0 damaged" in run_weft(["cache", "verify"], env={"WEFT_CACHE": cache_dir}).out
    after = run()
    assert after.out == want and "0 kernels" in after.err, after.err


# Arguments of commands, and the folder that what they make goes to
COMMANDS = {
    "run": ["run", "-m", "MODEL", "-p", "def ", "-n", "1"],
    "bench": ["bench", "-m", "MODEL", "-p", "1", "-n", "1", "-r", "1"],
    "embed": ["embed", "-m", "MODEL", "-p", "def "],
    "inspect": ["inspect", "-m", "MODEL"],
    "tokenize": ["tokenize", "-m", "MODEL", "-p", "def "],
    "perplexity": ["perplexity", "-m", "MODEL", "-f", "TEXT", "-c", "16", "--chunks", "1"],
    "perplexity, to a file": ["perplexity", "-m", "MODEL", "-f", "TEXT", "-c", "16", "--chunks", "1", "--kl-divergence-base", "MADE/base.kld"],
    "imatrix": ["imatrix", "-m", "MODEL", "-f", "TEXT", "-c", "16", "--chunks", "1", "-o", "MADE/imatrix.gguf"],
    "quantize": ["quantize", "--allow-requantize", "MODEL", "MADE/small.gguf", "Q8_0"],
    "profile": ["profile", "-m", "MODEL", "-n", "1"],
    "viz": ["viz", "-m", "MODEL", "-n", "1", "--out", "MADE/page.html"],
    "tune": ["tune", "-m", "MODEL", "--budget", "0.1", "--beam", "1", "-c", "64"],
    "cache export": ["cache", "export", "MADE/tunings.json"],
    "cache": ["cache", "list"],
    "env": ["env"],
    "chat": ["chat", "-m", "MODEL", "--chat-template", "none", "-p", "def ", "-n", "1"],
}
# Of these more may be read, and files written in one folder
READERS = {
    "list": (["list"], None),
    "rm": (["rm", "model", "--yes"], "store"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_keeps_to_its_files(built_tool, run_weft, tinypy, tmp_path, sanitized, name):
    """What a command could open when it ends: its model to be read, also where it lies in the folder of the cache, what it makes, and nothing beside."""
    if sanitized or "no Landlock" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without Landlock")
    cache, made, beside = tmp_path / "cache", tmp_path / "made", tmp_path / "beside"
    model, text = cache / "models" / "model.gguf", tmp_path / "text"
    model.parent.mkdir(mode=0o700, parents=True)
    made.mkdir()
    shutil.copy(tinypy, model)
    for path in (beside, made / "beside"):
        path.write_text("")
    text.write_text("def f(x):\n  return x\n" * 40)
    args = [word.replace("MODEL", str(model)).replace("MADE", str(made)).replace("TEXT", str(text)) for word in COMMANDS[name]]
    files = [model, beside, made / "beside", "/etc/passwd", *(cache / "kernels" / file for file in ("key", "kernels-2.db"))]
    env = {"LD_PRELOAD": built_tool("libreach.so", "WEFT_REACH"), "REACH": ":".join(map(str, files)), "WEFT_CACHE": cache}
    done = run_weft(args, env=env)
    assert done.returncode == 0, done.err
    reached = dict(line[7:].rsplit(" ", 1) for line in done.err.splitlines() if line.startswith("reach: "))
    own = "--" if name == "env" or name.startswith("cache") else "r-"
    makes = any("MADE" in word for word in COMMANDS[name])
    kept = "rw" if name.startswith("cache") else "--"  # by the process that evaluates; the one beside it has the cache
    assert [reached[str(path)] for path in files] == [own, "--", "rw" if makes else "--", "--", kept, kept]
    assert "kernels are not cached" not in done.err


@pytest.mark.parametrize("typed", ["terminal", "pipe"])
def test_a_conversation_keeps_to_its_files(built_tool, run_weft, weft, weft_env, tinypy, tmp_path, sanitized, typed):
    """Its lines name files, which a process without the model opens; the one with the model can open none of them."""
    if sanitized or "no Landlock" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without Landlock")
    beside, made, history = tmp_path / "beside", tmp_path / "made.json", tmp_path / "state" / "weft" / "chat_history"
    beside.write_text("x = 1\n")
    history.parent.mkdir(parents=True)
    history.write_text("")
    files = [tinypy, str(beside), str(made), str(history)]
    env = dict(weft_env, LD_PRELOAD=str(built_tool("libreach.so", "WEFT_REACH")), REACH=":".join(map(str, files)), XDG_STATE_HOME=str(tmp_path / "state"), TERM="xterm")
    args = ["chat", "-m", str(tinypy), "--chat-template", "none", "-n", "2", "-q", *(["--simple-io"] if typed == "pipe" else [])]
    lines = f"/read {beside}\ndef f\n/save {made}\n/clear\n/load {made}\n/exit\n"
    if typed == "pipe":
        seen = run_weft(args, input=lines, env=env).err
    else:
        p = pexpect.spawn(weft, args, env=env, encoding="utf-8", timeout=60, dimensions=(24, 400))
        seen = ""
        for line in lines.splitlines():
            p.expect(r"\d+/\d+ > ")
            seen += p.before
            p.send(line + "\r")
        seen += p.read()
        p.close()
    assert "(6 bytes of" in seen and "(2 messages are in" in seen and "(2 messages)" in seen
    assert "x = 1\\ndef f" in made.read_text()
    reached = dict(re.findall(r"reach: (\S+) (\S+)", seen))
    assert [reached[str(path)] for path in files] == ["r-", "--", "--", "--"]


@pytest.mark.parametrize("name", READERS)
def test_a_command_writes_where_it_may(built_tool, run_weft, tinypy, tmp_path, sanitized, name):
    """Commands that mind the folder of models: nothing beside it, and list nothing at all."""
    if sanitized or "no Landlock" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without Landlock")
    args, writes = READERS[name]
    folders = {which: tmp_path / which for which in ("store", "beside")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "file").write_text("")
    shutil.copy(tinypy, folders["store"] / "model.gguf")
    files = [str(folder / "file") for folder in folders.values()]
    env = {"LD_PRELOAD": built_tool("libreach.so", "WEFT_REACH"), "REACH": ":".join(files), "LLAMA_CACHE": folders["store"]}
    done = run_weft(args, env=env)
    assert done.returncode == 0, done.err
    reached = dict(line[7:].rsplit(" ", 1) for line in done.err.splitlines() if line.startswith("reach: "))
    assert [reached[path] for path in files] == ["rw" if which == writes else "r-" for which in folders]


@pytest.mark.parametrize("options", [[], ["--no-sandbox"]])
def test_pull_keeps_to_its_folder(built_tool, run_weft, tmp_path, sanitized, options):
    """What it fetches comes, and beside it nothing can be read or written but what the system has for transfers."""
    if sanitized or "no Landlock" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without Landlock")
    store, beside, certificates = tmp_path / "new" / "store", tmp_path / "beside", tmp_path / "certificates"
    for path in (beside, certificates):
        path.write_text("")
    registry = Registry({"tiny-Q8_0.gguf": b"GGUF" + bytes(1000)})
    files = [str(path) for path in (store / "user_repo_tiny-Q8_0.gguf", certificates, beside)]
    env = {"LD_PRELOAD": built_tool("libreach.so", "WEFT_REACH"), "REACH": ":".join(files), "LLAMA_CACHE": store, "HF_ENDPOINT": registry.url,
           "SSL_CERT_FILE": certificates, "HF_TOKEN": None}
    try:
        done = run_weft([*options, "pull", "hf:user/repo"], env=env)
    finally:
        registry.close()
    assert done.returncode == 0, done.err
    reached = dict(line[7:].rsplit(" ", 1) for line in done.err.splitlines() if line.startswith("reach: "))
    assert [reached[path] for path in files] == (["rw"] * 3 if options else ["rw", "r-", "--"])


def test_the_sandbox_costs_little(weft, weft_env, tinypy):
    """At the start of a command: 10 ms at most, of the shortest of some runs. (It is half of one.)"""
    best = {(): 9.0, ("--no-sandbox",): 9.0}
    for _ in range(15):
        for options in best:
            began = time.perf_counter()
            subprocess.run([weft, *options, "inspect", "-m", tinypy], env=weft_env, stdout=subprocess.DEVNULL, check=True)
            best[options] = min(best[options], time.perf_counter() - began)
    assert best[()] - best["--no-sandbox",] < 0.01


def test_a_server_keeps_to_its_files(weft, weft_env, tinypy, tmp_path, run_weft, sanitized):
    """A link that comes into the folder of models while it runs, and leads out of it: not followed. One that was there before is."""
    if sanitized or "no Landlock" in run_weft(["env"]).out:
        pytest.skip("a build with sanitizers, or a kernel without Landlock")
    shutil.copy(tinypy, tmp_path / "elsewhere.gguf")
    shutil.copy(tinypy, tmp_path / "besides.gguf")
    for options, refused in (([], True), (["--no-sandbox"], False)):
        folder = tmp_path / f"models{refused}"
        folder.mkdir()
        (folder / "linked.gguf").symlink_to(tmp_path / "besides.gguf")
        with Server(weft, weft_env, None, "--models-dir", folder, options=options) as server:
            ask = lambda name: server.ask("/v1/completions", {"model": name, "prompt": "def ", "max_tokens": 1})
            assert ask("linked")[0] == 200
            (folder / "later.gguf").symlink_to(tmp_path / "elsewhere.gguf")
            shutil.copy(tinypy, folder / "copied.gguf")
            end = time.monotonic() + 60
            while ask("copied")[0] != 200:  # until the folder is looked at again
                assert time.monotonic() < end
                time.sleep(0.1)
            status, answer = ask("later")
            assert (status != 200) == refused, answer
            assert not refused or "no model" in str(answer), answer


KINDS = ["FILES", "COUNTING", "FETCHING", "OPENING", "SERVING", "COMPUTING"]           # of processes: base/confine.h


def test_the_calls_of_each_process_are_listed():
    """docs/architecture.md against base/confine_calls.h, which base_confine holds to what processes may do: the names, and how many there are of each kind."""
    every, names = (1 << len(KINDS)) - 1, {kind: 1 << i for i, kind in enumerate(KINDS)}
    words = {"EVERY": every, "PROGRAMS": every & ~names["COMPUTING"], "NETWORK": names["FETCHING"] | names["OPENING"], **{f"BIT({k})": v for k, v in names.items()}}
    kinds = {}
    for call, who in re.findall(r"^C\((\w+), (.+), \w+\)", (REPO / "src/base/confine_calls.h").read_text(encoding="utf-8"), re.M):
        for word in who.split(" | "):
            has, _, lacks = word.partition(" & ~")
            kinds[call] = kinds.get(call, 0) | words[has] & ~words.get(lacks, 0)
    section = (REPO / "docs/architecture.md").read_text(encoding="utf-8").split("## The sandbox")[1].split("\n## ")[0]
    table, listed = section.split("Each call stands in one row")
    rows = [re.findall(r"`(\w+)`", row.split("|")[2]) for row in listed.splitlines() if row.startswith("| ") and not row.startswith("| processes")]
    groups = {}
    for call, bits in kinds.items():
        groups.setdefault(bits, set()).add(call)
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, rows))
    counts = [int(n) for n in re.findall(r"^\| .+? \| (\d+) \|", table, re.M)]
    assert counts == [sum(bool(bits & 1 << i) for bits in kinds.values()) for i in range(len(KINDS))]


@pytest.mark.parametrize("command", [["cache", "list"], ["cache", "verify"], ["cache", "clear"], "run"], ids=str)
def test_a_view_in_the_place_of_the_kernels(run_weft, tinypy, tmp_path, command):
    """A view without an end is no table of kernels: the cache is begun anew, and nothing waits."""
    run = ["run", "-m", tinypy, "-p", "def ", "-n", "1"]
    env = {"WEFT_CACHE": str(tmp_path / "cache")}
    assert run_weft(run, env=env).returncode == 0
    with sqlite3.connect(tmp_path / "cache/kernels/kernels-2.db") as db:
        db.execute("ALTER TABLE kernel RENAME TO other")
        db.execute("CREATE VIEW kernel AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT other.* FROM other, r")
    db.close()
    done = run_weft(run if command == "run" else command, env=env)
    assert done.returncode == 0 and "kernels-2.db' was damaged and is started afresh" in done.err, done


def test_a_trigger_in_the_kernels(run_weft, tinypy, tmp_path):
    """What was stored stays stored: triggers of a stranger do not run."""
    env = {"WEFT_CACHE": str(tmp_path / "cache")}
    file = tmp_path / "cache/kernels/kernels-2.db"
    assert run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "1"], env=env).returncode == 0
    with sqlite3.connect(file) as db:
        db.execute("DELETE FROM kernel")
        db.execute("CREATE TRIGGER t AFTER INSERT ON kernel BEGIN DELETE FROM kernel; END")
    db.close()
    assert run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "1"], env=env).returncode == 0
    db = sqlite3.connect(file)
    assert db.execute("SELECT count(*) FROM kernel").fetchone()[0] > 3
    db.close()
