"""weft export: one file that holds a model, its kernels and a program. It runs in an empty root, and computes what weft computes for the same level, bit for bit."""
import json
import os
import random
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from conftest import REPO, SANITIZED, program
from serving import TEMPLATE, Server

TINYPY = REPO / "models/tinypy.gguf"
LEVELS = "v2", "v3", "v4"
NEEDS = {"v2": "sse4_2", "v3": "avx2", "v4": "avx512bw"}
TEXT = "import os\n\ndef find(path):\n    return [x for x in os.listdir(path)]\n\n" * 12      # several chunks

pytestmark = pytest.mark.skipif(SANITIZED, reason="an exported program is made of the build without sanitizers")


@pytest.fixture(scope="module")
def alone(build):
    path = build / "weft-static"
    if not path.exists():
        pytest.skip("no static program: this build has sanitizers, or lacks a library that cmake/static.cmake names")
    return path


@pytest.fixture(scope="module")
def chat(alone, run_weft, tmp_path_factory):
    """TINYPY as a program for all levels, alone in a folder."""
    path = tmp_path_factory.mktemp("exported") / "chat"
    done = run_weft(["export", TINYPY, "-o", path], timeout=600)
    assert done.returncode == 0, done.err
    assert os.access(path, os.X_OK) and [f.name for f in path.parent.iterdir()] == ["chat"]
    return path


def flags():
    return set(next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "").split())


def best_level():
    for level in reversed(LEVELS):
        if NEEDS[level] in flags():
            return level
    pytest.skip("this processor has none of the levels")


@pytest.fixture(params=LEVELS)
def level(request):
    if NEEDS[request.param] not in flags():
        pytest.skip(f"this processor does not have {NEEDS[request.param]}")
    return "x86-64-" + request.param


def run(path, args, **env):
    return subprocess.run([path, *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def test_the_same_bits(chat, run_weft, level):
    """Ids and logarithms of probabilities, of a prompt of several chunks and of one token after another."""
    args = "run", "-p", TEXT, "-n", "16", "--temp", "0", "--json", "--top-logprobs", "4"
    own = run(chat, args, WEFT_CPU=level)
    assert own.returncode == 0 and own.stdout.count("\n") == 16, own.stderr
    assert own.stdout == run_weft([*args, "-m", TINYPY], env={"WEFT_CPU": level}, timeout=600).out


def test_an_empty_root(chat):
    """Nothing but the file: no /proc, no /dev, no library, no folder that can be written."""
    if os.geteuid():
        pytest.skip("chroot needs root")
    before = run(chat, ["-p", "def ", "-n", "8", "--temp", "0"])
    done = subprocess.run([program("chroot"), chat.parent, "/chat", "-p", "def ", "-n", "8", "--temp", "0"], env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == before.stdout and len(done.stdout) > 8, done.stderr
    assert [f.name for f in chat.parent.iterdir()] == ["chat"]


@pytest.mark.parametrize("args", [
    ["run", "-p", TEXT, "-n", "24"], ["run", "-p", "def f", "-n", "8", "-ub", "16", "-t", "1"], ["run", "-p", "x", "-n", "4", "--top-k", "1", "-c", "64"],
    ["embed", "-p", "def f"], ["embed", "-p", TEXT, "--pooling", "mean"], ["embed", "-p", "x", "--pooling", "last"],
    ["bench", "-p", "80", "-n", "4", "-r", "1"], ["bench", "-npl", "1,2,4", "-p", "16", "-n", "4", "-r", "1"], ["perplexity", "-p", TEXT, "-c", "64"],
    ["tokenize", "-p", "def f"], ["inspect"], ["--version"]], ids=lambda args: " ".join(a for a in args if len(a) < 20))
def test_commands(chat, level, args):
    done = run(chat, args, WEFT_CPU=level)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_a_conversation(chat, level):
    done = run(chat, ["chat", "--chat-template", "chatml", "-p", "def f", "-n", "12", "-st"], WEFT_CPU=level)
    assert done.returncode == 0, done.stderr


def test_serve(chat, level, tmp_path):
    """Texts, answers of several at once, beside prompts; schemas; probabilities; embeddings."""
    template = tmp_path / "template"
    template.write_text(TEMPLATE)
    with Server(str(chat), {"WEFT_CPU": level}, None, "--chat-template-file", template, "--pooling", "mean") as server:
        statuses = []

        def ask(path, body):
            statuses.append((path, *server.ask(path, body, timeout=300)))

        messages = [{"role": "user", "content": "def f"}]
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
        asked = [("/v1/completions", {"prompt": TEXT[i:], "max_tokens": 24, "logprobs": 2}) for i in range(5)]
        asked += [("/v1/chat/completions", {"messages": messages, "max_tokens": 8, "n": 3}), ("/v1/embeddings", {"input": ["def f", TEXT]}),
                  ("/v1/chat/completions", {"messages": messages, "max_tokens": 16, "response_format": schema})]
        many = [threading.Thread(target=ask, args=one) for one in asked]
        for thread in many:
            thread.start()
        for thread in many:
            thread.join()
        assert [s for _, s, _ in statuses] == [200] * len(asked), statuses
        assert server.ask("/v1/models")[1]["data"][0]["id"] == "chat"


def test_it_is_of_the_cpu_whatever_dev_says(alone, run_weft, tmp_path):
    made = []
    for dev in ("CPU", "NULL"):
        done = run_weft(["export", TINYPY, "-o", tmp_path / dev, "--cpu", "v3"], env={"DEV": dev}, timeout=600)
        assert done.returncode == 0, done.err
        made.append((tmp_path / dev).read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["mixtral", "mamba", "gemma3", "deepseek2-lite"])
def test_families(alone, run_weft, make_model, tmp_path, name):
    """Mixtures of experts, recurrences, windows, MLA: what weft run writes, of one token and of prompts of several chunks."""
    level = best_level()
    model, out, r = tmp_path / f"{name}.gguf", tmp_path / name, random.Random(name)
    make_model.write(name, model)
    done = run_weft(["export", model, "-o", out, "--cpu", level], timeout=600)
    assert done.returncode == 0, done.err
    for n in 1, 150:
        ids = ",".join(str(r.randrange(3, make_model.FAMILIES[name]["n_vocab"] - 2)) for _ in range(n))
        args = ["run", "--ids", ids, "-n", "6", "--temp", "0", "--json", "--top-logprobs", "3", "-c", "200"]
        own = run(out, args, WEFT_CPU="x86-64-" + level)
        assert own.returncode == 0 and own.stdout, own.stderr
        assert own.stdout == run_weft([*args, "-m", model], env={"WEFT_CPU": "x86-64-" + level}, timeout=600).out, n


def test_an_encoder(alone, run_weft, make_encoder, tmp_path):
    name, model, out = next(iter(make_encoder.ENCODERS)), tmp_path / "encoder.gguf", tmp_path / "encoder"
    level = best_level()
    make_encoder.write(name, model)
    done = run_weft(["export", model, "-o", out, "--cpu", level], timeout=600)
    assert done.returncode == 0, done.err
    for text in "a", TEXT[:200]:
        args = ["embed", "-p", text, "--embd-output-format", "array"]
        own = run(out, args, WEFT_CPU="x86-64-" + level)
        assert own.returncode == 0 and own.stdout, own.stderr
        assert own.stdout == run_weft([*args, "-m", model], env={"WEFT_CPU": "x86-64-" + level}, timeout=600).out, text


def test_what_is_missing_is_named(chat):
    """Kernels of another option; a level that was not exported."""
    done = run(chat, ["run", "-p", "x", "-n", "1", "--no-repack"])
    assert done.returncode == 1 and "was exported without it for x86-64-v" in done.stderr, done.stderr
    done = run(chat, ["run", "-p", "x", "-n", "1"], WEFT_CPU="x86-64")
    assert done.returncode == 1 and "WEFT_CPU=x86-64: this program has kernels for x86-64-v2, x86-64-v3, x86-64-v4" in done.stderr, done.stderr


def test_without_room_for_its_own_file(chat):
    """It says why it cannot read itself, and not that it has no model."""
    limited = ["sh", "-c", 'ulimit -n 3; exec "$0" run -p x -n 1', chat]
    done = subprocess.run(limited, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"{chat}: cannot be opened: Too many open files" in done.stderr, done.stderr


def test_other_models(chat, run_weft, tmp_path):
    """The file is a model for weft, too; and the program takes another one, whose kernels it has if they are the same."""
    done = run_weft(["inspect", chat])
    assert done.returncode == 0 and "llama" in done.out
    ids = ["--ids", "1,2,3", "-n", "4", "--temp", "0", "--json"]
    assert run_weft(["run", "-m", chat, *ids], timeout=300).out == run_weft(["run", "-m", TINYPY, *ids], timeout=300).out
    done = run(chat, ["run", "-m", TINYPY, *ids])
    assert done.returncode == 0 and done.stdout, done.stderr


def damaged(chat, path, at, value=None, end=None):
    """A copy with another number at a place, or a flipped bit, or cut."""
    data = bytearray(chat.read_bytes())
    if value is None and end is None:
        data[at // 8] ^= 1 << at % 8
    elif value is not None:
        struct.pack_into("<Q", data, at, value)
    path.write_bytes(data[:end])
    path.chmod(0o755)
    return path


HEAD, ROW = 56, 56       # bytes of the head of a set of kernels, and of a row of its table: device/kernel_set.c


def test_damage(chat, tmp_path):
    """Of the tables of kernels, of the trailer, of the end: an error that says which part is damaged, for the program and for weft, which reads the model in it."""
    size = chat.stat().st_size
    trailer, kernels = size - 64, struct.unpack_from("<4Q", chat.read_bytes(), size - 56)[2]
    table, ends = "table of kernels is not what was written", "whose end is missing, was changed, or is of another version of Weft"
    cases = {(kernels + at, value): table for at, value in ((0, 0), (32, 0xFFFFFFFF), (40, 7), (48, 0), (HEAD + 32, 1 << 60), (HEAD + 40, 1 << 60), (HEAD + ROW + 8, 0))}
    cases |= {(trailer + at, value): "its last 64 bytes, which say where its parts are" for at, value in ((8, 65536), (16, 1 << 60), (24, 0), (32, 64), (56, 0))}
    cases |= {(trailer, 0): ends}
    for (at, value), said in cases.items():
        done = run(damaged(chat, tmp_path / "bad", at, value), ["run", "-p", "x", "-n", "1"])
        assert done.returncode == 1 and f"{tmp_path / 'bad'}: is damaged: " in done.stderr and said in done.stderr, (at - kernels, done.stderr)
    for end in (size - 1, size - 64, kernels + 100, kernels):
        done = run(damaged(chat, tmp_path / "bad", 0, end=end), ["run", "-p", "x", "-n", "1"])
        assert done.returncode == 1 and ends in done.stderr, (end, done.stderr)


def test_a_flipped_bit_in_kernels(chat, tmp_path):
    """The answer, or an error that says so; code that was changed does not run."""
    data, r = chat.read_bytes(), random.Random(5)
    kernels, n = struct.unpack_from("<4Q", data, len(data) - 56)[2:]
    ask = ["run", "-p", "def ", "-n", "4", "--temp", "0"]
    expected, refused = run(chat, ask), 0
    assert expected.returncode == 0
    level = sorted(level for level, flag in NEEDS.items() if flag in flags())[-1]
    at = data.index(b"x86-64-" + level.encode(), kernels) - 8          # the set that is used, without its tables
    count, size = struct.unpack_from("<2Q", data, at + 32)
    rows = [struct.unpack_from("<2Q", data, at + HEAD + i * ROW + 32) for i in range(count)]
    for _ in range(24):
        where, length = r.choice(rows)
        bit = 8 * (at + where) + r.randrange(8 * length)
        done = run(damaged(chat, tmp_path / "bad", bit), ask)
        if done.returncode:
            assert done.returncode == 1 and "this program is damaged: kernel " in done.stderr and done.stdout == "", (bit, done.stderr)
            refused += 1
        else:
            assert done.stdout == expected.stdout, bit
    assert refused > 0 and kernels <= at < at + size <= kernels + n


E_MACHINE, AARCH64 = 18, 183        # where an ELF file says its processor; AArch64's number
ARM_LEVELS = ["armv8-a", "armv8.2-a", "armv8.6-a"]


def test_kernels_for_aarch64(alone, run_weft, tmp_path):
    """Levels follow the program: one that says it is for AArch64 gets kernels for that, made on any processor."""
    data = bytearray(alone.read_bytes())
    if struct.unpack_from("<H", data, E_MACHINE)[0] == AARCH64:
        pytest.skip("the program is for AArch64 already, so nothing is cross-compiled")
    struct.pack_into("<H", data, E_MACHINE, AARCH64)
    (tmp_path / "arm").write_bytes(data)
    done = run_weft(["export", TINYPY, "-o", tmp_path / "out", "--program", tmp_path / "arm"], timeout=600)
    assert done.returncode == 0, done.err
    made = (tmp_path / "out").read_bytes()
    at, n = struct.unpack_from("<4Q", made, len(made) - 56)[2:]
    found = []
    while n:
        found.append(made[at + 8:at + 32].split(b"\0")[0].decode())
        size = struct.unpack_from("<2Q", made, at + 32)[1]
        at, n = at + size, n - size
    assert found == ARM_LEVELS
    packed, x86 = (made[len(data):].count(struct.pack("<II", 0x31434657, machine)) for machine in (AARCH64, 62))
    assert packed >= 3 and not x86, "code says of which processors it is: src/device/code.c"
    for levels, program in (("armv8-a", alone), ("v3", tmp_path / "arm")):
        done = run_weft(["export", TINYPY, "-o", tmp_path / "none", "--cpu", levels, "--program", program], timeout=600)
        assert done.returncode == 2 and "is no level for" in done.err and not (tmp_path / "none").exists()


@pytest.mark.parametrize("build", ["build-arm64", "build-musl-aarch64"])
def test_on_aarch64(run_weft, repo, tmp_path, build):
    """What scripts/build.sh --arm64 and --zig have built, with a model, in qemu."""
    static, qemu = repo / build / "weft-static", shutil.which("qemu-aarch64-static")
    if not static.exists() or not qemu:
        pytest.skip(f"{build}/weft-static has not been built, or there is no qemu-aarch64-static")
    done = run_weft(["export", TINYPY, "-o", tmp_path / "chat", "--program", static], timeout=600)
    assert done.returncode == 0, done.err
    args = ["run", "--ids", "1,2,3,300,200", "-n", "8", "--temp", "0", "--json"]
    answers = [subprocess.run([qemu, tmp_path / "chat", *args], env={"WEFT_CPU": level}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
               for level in ARM_LEVELS]
    for done in answers:
        assert done.returncode == 0 and done.stdout.count("\n") == 8, done.stderr
    ids = [[json.loads(line)["id"] for line in text.splitlines()] for text in [done.stdout for done in answers] + [run_weft([*args, "-m", TINYPY], timeout=600).out]]
    assert ids[0] == ids[1] == ids[2] == ids[3]


def test_with_musl(run_weft, repo, tmp_path):
    """The static program of scripts/build.sh --zig, in an empty root and in its sandbox."""
    static = repo / "build-musl-x86_64/weft-static"
    if not static.exists():
        pytest.skip("build-musl-x86_64/weft-static has not been built: scripts/test.sh --zig")
    done = run_weft(["export", TINYPY, "-o", tmp_path / "chat", "--cpu", "v2", "--program", static], timeout=600)
    assert done.returncode == 0, done.err
    args = ["run", "--ids", "1,2,3,300,200", "-n", "8", "--temp", "0", "--json"]
    expected = run_weft([*args, "-m", TINYPY], env={"WEFT_CPU": "x86-64-v2"}, timeout=600).out
    given = dict(stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert subprocess.run([tmp_path / "chat", *args], env={"WEFT_CPU": "x86-64-v2"}, **given).stdout == expected != ""
    chroot = shutil.which("chroot")
    if chroot and not os.geteuid():
        assert subprocess.run([chroot, tmp_path, "/chat", *args], env={"WEFT_CPU": "x86-64-v2"}, **given).stdout == expected


def test_refused(run_weft, alone, weft, tmp_path):
    out = tmp_path / "out"

    def said(*args, status):
        done = run_weft(["export", *args], timeout=600)
        assert done.returncode == status and not out.exists(), done.err
        return done.err

    assert "no model" in said(status=2) and "no file to write" in said(TINYPY, status=2)
    assert "--cpu: 'v9' is not one of v2, v3, v4, armv8-a, armv8.2-a, armv8.6-a" in said(TINYPY, "-o", out, "--cpu", "v2,v9", status=2)
    assert "is not a static program" in said(TINYPY, "-o", out, "--cpu", "v2", "--program", weft, status=1)
    assert "is not a program" in said(TINYPY, "-o", out, "--cpu", "v2", "--program", TINYPY, status=1)
    other = tmp_path / "other"
    data = alone.read_bytes()
    assert (at := data.find(rows_version(alone))) > 0
    other.write_bytes(data[:at] + b"0" * 24 + data[at + 24:])
    assert "is made of other sources" in said(TINYPY, "-o", out, "--cpu", "v2", "--program", other, status=1)


def rows_version(path):
    """The fingerprint of the sources, as the build wrote it."""
    text = (path.parent / "generated/engine/rows_version.h").read_text()
    return text.split('"')[1].encode()
