"""weft pull, list, rm, and models by name on every command, against a server of our own (registry.py)."""
import json
import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from registry import Registry

SIZE = 3_000_000


@pytest.fixture(scope="module")
def files(tinypy):
    small = Path(tinypy).read_bytes()
    noise = bytes(i * 37 % 251 for i in range(1000)) * (SIZE // 1000)
    return {"README.md": b"# a model", "mmproj-tiny-F16.gguf": b"GGUF", "tiny-Q8_0.gguf": small, "tiny-Q4_K_M.gguf": noise, "tiny-Q4_K.gguf": b"GGUF2",
            "split/big-00001-of-00002.gguf": noise[:1000], "split/big-00002-of-00002.gguf": noise[:500]}


@pytest.fixture
def registry(files):
    r = Registry(dict(files))
    yield r
    r.close()


@pytest.fixture
def store(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def pull(run_weft, registry, store):
    def run(*args, **more):
        env = {"HF_ENDPOINT": registry.url, "OLLAMA_REGISTRY": registry.url, "LLAMA_CACHE": store, "HF_TOKEN": None, **more.pop("env", {})}
        return run_weft(args, env=env, **more)
    return run


def ranges(registry):
    return [h["Range"] for path, h in registry.asked if "Range" in h]


def named(store, registry, name):
    """What is at an address is called after all of it."""
    return store / f"{registry.url.removeprefix('http://').replace(':', '_')}_plain_{name}"


# ---- what goes well ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, file", [("hf:user/repo", "tiny-Q4_K_M.gguf"), ("user/repo:Q8_0", "tiny-Q8_0.gguf"), ("hf.co/user/repo:q4_k", "tiny-Q4_K.gguf"), ("huggingface.co/user/repo:Q4_K_M", "tiny-Q4_K_M.gguf")])
def test_hugging_face(pull, store, files, name, file):
    done = pull("pull", name)
    assert done.returncode == 0, done.err
    assert (store / f"user_repo_{file}").read_bytes() == files[file] and not list(store.glob("*.part*"))
    again = pull("pull", name)
    assert again.returncode == 0 and "is there" in again.err


def test_a_file_by_name_and_all_of_its_parts(pull, store, files):
    done = pull("pull", "user/repo", "--hf-file", "split/big-00001-of-00002.gguf")
    assert done.returncode == 0, done.err
    for i in (1, 2):
        assert (store / f"user_repo_split_big-0000{i}-of-00002.gguf").read_bytes() == files[f"split/big-0000{i}-of-00002.gguf"]
    (row,) = json.loads(pull("list", "--json").out)
    assert row["name"] == "user_repo_split_big" and row["bytes"] == 1500 and row["whole"]


def test_ollama(pull, store, files, registry):
    for name in ("tiny", "ollama:tiny:q8"):
        assert pull("pull", name).returncode == 0
    assert (store / "ollama_tiny_latest.gguf").read_bytes() == (store / "ollama_tiny_q8.gguf").read_bytes() == files["tiny-Q8_0.gguf"]
    registry.close()
    done = pull("run", "tiny", "-p", "def", "-n", "2", "--temp", "0")           # by its name, with no server
    assert done.returncode == 0 and done.out


def test_an_address(pull, store, files, registry):
    done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf?download=true")
    assert done.returncode == 0, done.err
    assert named(store, registry, "tiny-Q8_0.gguf").read_bytes() == files["tiny-Q8_0.gguf"]


def test_two_addresses_with_files_of_one_name(pull, store, registry, files):
    """Each is its own model; a name and a password in an address are not part of the file's."""
    registry.files["other/tiny-Q8_0.gguf"] = files["tiny-Q4_K.gguf"]
    for folder in ("", "other/"):
        for _ in range(2):
            pull("run", (registry.url + "/plain/" + folder + "tiny-Q8_0.gguf").replace("://", "://me:secret@"), "-p", "x", "-n", "1")
    assert sum("/plain/" in path for path, _ in registry.asked) == 2
    assert named(store, registry, "other_tiny-Q8_0.gguf").read_bytes() == files["tiny-Q4_K.gguf"]
    assert named(store, registry, "tiny-Q8_0.gguf").read_bytes() == files["tiny-Q8_0.gguf"] and not any("secret" in f.name for f in store.iterdir())


COMMANDS = [["run", "-p", "def", "-n", "2"], ["chat", "-n", "2", "hello"], ["bench", "-p", "2", "-n", "1", "-r", "1"], ["inspect"], ["tokenize", "-p", "x"], ["profile", "-n", "1"]]


@pytest.mark.parametrize("command", COMMANDS, ids=[c[0] for c in COMMANDS])
def test_every_command_fetches(pull, registry, command):
    done = pull(*command, "-hf", "user/repo:Q8_0")
    assert done.returncode == 0 and "fetching tiny-Q8_0.gguf" in done.err, done.err
    registry.asked.clear()
    assert pull(*command, "-hf", "user/repo:Q8_0").returncode == 0 and registry.asked == []           # nobody is asked again
    assert pull(*command, "-hf", "user/repo:Q8_0", "--offline").returncode == 0


def test_a_model_by_its_address(pull, registry):
    for way in (["-mu", registry.url + "/plain/tiny-Q8_0.gguf"], [registry.url + "/plain/tiny-Q8_0.gguf"]):
        done = pull("run", *way, "-p", "def", "-n", "2")
        assert done.returncode == 0 and done.out, done.err
    assert sum("/plain/" in path for path, _ in registry.asked) == 1


def test_a_name_that_was_not_fetched(pull):
    for command in (["run", "llama3.2", "-p", "x"], ["chat", "llama3.2:1b", "hello"]):
        done = pull(*command)
        assert done.returncode == 1 and f"'weft pull {command[1]}' fetches" in done.err
    assert "No such file" in pull("run", "/nonexistent/llama3.2", "-p", "x").err and "No such file" in pull("run", "model.gguf", "-p", "x").err


def test_offline_fetches_nothing(pull, registry):
    done = pull("run", "-hf", "user/repo:Q8_0", "-p", "x", "--offline")
    assert done.returncode == 1 and "--offline forbids it" in done.err and registry.asked == []


def test_llama_cpp_s_folder_where_it_is_there(run_weft, registry, tmp_path):
    env = {"HF_ENDPOINT": registry.url, "XDG_CACHE_HOME": tmp_path, "LLAMA_CACHE": None, "WEFT_CACHE": None}
    assert run_weft(["pull", "user/repo:Q8_0"], env=env).returncode == 0
    assert (tmp_path / "weft" / "models" / "user_repo_tiny-Q8_0.gguf").exists()
    (tmp_path / "llama.cpp").mkdir()
    assert run_weft(["pull", "user/repo:Q8_0"], env=env).returncode == 0
    assert (tmp_path / "llama.cpp" / "user_repo_tiny-Q8_0.gguf").exists()


# ---- what goes wrong --------------------------------------------------------------------------------------------------------------

def test_cut_connections_are_gone_on_with(pull, registry, store, files):
    registry.cut_after, registry.cuts = 700_000, 3
    done = pull("pull", "user/repo:Q4_K_M")
    assert done.returncode == 0, done.err
    assert (store / "user_repo_tiny-Q4_K_M.gguf").read_bytes() == files["tiny-Q4_K_M.gguf"]
    assert ranges(registry) == [f"bytes={n}-" for n in (700_000, 1_400_000, 2_100_000)]


def test_what_is_there_is_kept_and_gone_on_with_later(pull, registry, store, files):
    registry.cut_after, registry.cuts = 700_000, 1
    part = store / "user_repo_tiny-Q4_K_M.gguf.part"
    send = registry.file

    def once(h, data):
        send(h, data)
        registry.gone = 100
    registry.file = once
    done = pull("pull", "user/repo:Q4_K_M")
    assert done.returncode == 1 and "700 kB of 3.0 MB are kept, and the same command goes on" in done.err, done.err
    assert part.read_bytes() == files["tiny-Q4_K_M.gguf"][:700_000]
    assert "not whole" in pull("list").out and pull("run", "user_repo_tiny-Q4_K_M", "-p", "x").returncode == 1
    registry.file, registry.gone = send, 0
    registry.asked.clear()
    assert pull("pull", "user/repo:Q4_K_M").returncode == 0 and ranges(registry) == ["bytes=700000-"]
    assert (store / "user_repo_tiny-Q4_K_M.gguf").read_bytes() == files["tiny-Q4_K_M.gguf"] and not part.exists()


def test_another_file_while_it_is_fetched(pull, registry, store, files):
    """Of another length, between two attempts: the second is all of the new one."""
    other = files["tiny-Q4_K_M.gguf"][::-1] + b"and more"
    registry.cuts, registry.cut_after, registry.next = 1, 1_000_000, {"tiny-Q4_K_M.gguf": other}
    done = pull("pull", registry.url + "/plain/tiny-Q4_K_M.gguf")
    assert done.returncode == 0, done.err
    assert next(store.glob("*.gguf")).read_bytes() == other and ranges(registry) == ["bytes=1000000-"]


@pytest.mark.parametrize("status", [204, 302, 303])
def test_answers_that_are_no_file(pull, registry, store, status):
    """Nothing, or elsewhere without saying where: no empty file is left that looks like a model."""
    registry.odd = status
    done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf")
    assert done.returncode == 1 and f"HTTP {status}" in done.err, done.err
    assert not store.exists() or not list(store.iterdir())


def test_a_server_without_ranges_sends_all_again(pull, registry, store, files):
    registry.cut_after, registry.cuts, registry.no_range = 700_000, 1, True
    assert pull("pull", "user/repo:Q4_K_M").returncode == 0
    assert (store / "user_repo_tiny-Q4_K_M.gguf").read_bytes() == files["tiny-Q4_K_M.gguf"]


def test_another_file_under_the_address_begins_anew(pull, registry, store, files):
    """If-Range: what is there belongs to a file that is gone."""
    registry.cut_after, registry.cuts = 700_000, 1
    send = registry.file

    def once(h, data):
        send(h, data)
        registry.gone = 100
    registry.file = once
    assert pull("pull", registry.url + "/plain/tiny-Q4_K_M.gguf").returncode == 1
    registry.file, registry.gone = send, 0
    registry.files["tiny-Q4_K_M.gguf"] = other = files["tiny-Q4_K_M.gguf"][::-1]
    assert pull("pull", registry.url + "/plain/tiny-Q4_K_M.gguf").returncode == 0
    assert named(store, registry, "tiny-Q4_K_M.gguf").read_bytes() == other


@pytest.mark.parametrize("name", ["user/repo:Q4_K_M", "ollama:tiny"])
def test_a_wrong_sum(pull, registry, store, name):
    registry.wrong = True
    done = pull("pull", name)
    assert done.returncode == 1 and "its SHA-256 is" in done.err and list(store.iterdir()) == [], done.err


def test_a_sum_that_an_address_tells(pull, registry, store, files):
    """Hugging Face says the SHA-256 before it redirects to where the file lies."""
    other = Registry(dict(files), host="127.0.0.2")
    try:
        other.wrong = True
        registry.redirect = other.url
        done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf")
        assert done.returncode == 1 and "its SHA-256 is" in done.err
    finally:
        other.close()


def test_the_token_goes_to_its_host_alone(pull, registry, store, files):
    other = Registry(dict(files), host="127.0.0.2")
    try:
        registry.token, registry.redirect = "secret", other.url
        denied = pull("pull", "user/repo:Q8_0")
        assert denied.returncode == 1 and "HF_TOKEN" in denied.err
        for more in ({"env": {"HF_TOKEN": "secret"}}, {}):
            for path in store.glob("*"):
                path.unlink()
            args = [] if more else ["--hf-token", "secret"]
            done = pull("pull", "user/repo:Q8_0", *args, **more)
            assert done.returncode == 0, done.err
        assert all(h.get("Authorization") == "Bearer secret" for path, h in registry.asked[-4:])
        assert len(other.asked) == 2 and not any("Authorization" in h for _, h in other.asked)
        registry.token, registry.redirect = None, None
        registry.asked.clear()
        assert pull("pull", "ollama:tiny", env={"HF_TOKEN": "secret"}).returncode == 0
        assert not any("Authorization" in h for _, h in registry.asked)                     # ollama's registry is another place
        assert "secret" not in pull("env", env={"HF_TOKEN": "secret"}).out + pull("env", "--json", env={"HF_TOKEN": "secret"}).out
    finally:
        other.close()


def test_a_circle_of_redirections_ends(pull, registry):
    registry.redirect = registry.url
    done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf")
    assert done.returncode == 1 and "redirect" in done.err.lower()


@pytest.mark.parametrize("name, says", [("user/none", "no such repository"), ("user/repo:Q9_9", "has no file Q9_9; it has tiny-Q8_0.gguf"), ("ollama:nothing", "has no such model"),
                                        ("user/repo/more", "not a repository"), ("hf:../../etc:x", "not a repository"), ("hf:user/..", "not a repository"), ("hf:user", "not a repository"),
                                        ("ollama:a b", "not a name")])
def test_names_that_are_none(pull, name, says, store):
    done = pull("pull", name)
    assert done.returncode == 1 and says in done.err and (not store.exists() or list(store.iterdir()) == []), done.err


@pytest.mark.parametrize("path", ["../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "x\n.gguf", "x\\y.gguf", ".x.gguf", "a" * 300 + ".gguf", "x\u202e.gguf"])
def test_hostile_names_of_files(pull, registry, store, path):
    registry.tree = [{"type": "file", "path": path, "size": 4}]
    done = pull("pull", "user/repo")
    assert done.returncode == 1 and "cannot be the name of a file" in done.err, done.err
    assert not store.exists() or list(store.iterdir()) == []


@pytest.mark.parametrize("tree", [{}, [], [1, None, "x"], [{"path": 5}], [{"path": "x.gguf", "size": -1}, {"path": "y"}], [{"path": "a-00001-of-99999.gguf", "size": 4}]])
def test_hostile_listings(pull, registry, tree):
    registry.tree = tree
    assert pull("pull", "user/repo").returncode == 1


def test_lies_about_sizes(pull, registry, store):
    registry.length = 10**18                                         # more than there is room for
    done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf")
    assert done.returncode == 1 and "the disk is too full" in done.err, done.err
    registry.tree = [{"type": "file", "path": "tiny-Q8_0.gguf", "size": 7}]
    registry.length = None
    done = pull("pull", "user/repo")
    assert done.returncode == 1 and "it should be 7" in done.err, done.err
    assert not list(store.glob("*.gguf"))


def test_a_limit_on_the_size_of_files(pull, registry, store, files):
    """EFBIG at a place inside of the file, as a full disk would end it; what is there is kept."""
    limit = 1_000_000
    done = pull("pull", "user/repo:Q4_K_M", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    part = store / "user_repo_tiny-Q4_K_M.gguf.part"
    assert done.returncode == 1 and "1.0 MB of 3.0 MB are kept" in done.err and part.stat().st_size == limit, done.err
    assert pull("pull", "user/repo:Q4_K_M").returncode == 0 and ranges(registry) == [f"bytes={limit}-"]


def test_a_full_disk(run_weft, registry, tmp_path, files):
    """On a file system of its own, without the size in the answer, so that writing finds out."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        env = {"HF_ENDPOINT": registry.url, "LLAMA_CACHE": disk}
        done = run_weft(["pull", "user/repo:Q4_K_M"], env=env)
        assert done.returncode == 1 and "the disk is too full: 3.0 MB are to come" in done.err, done.err
        assert list(disk.glob("*.gguf")) == []
        (disk / "ballast").write_bytes(bytes(600_000))
        registry.tree = [{"type": "file", "path": "tiny-Q4_K_M.gguf"}]               # no size; and the answer has none either

        def chunked(h, data):
            h.send_response(200)
            h.send_header("Transfer-Encoding", "chunked")
            h.end_headers()
            for at in range(0, len(data), 50_000):
                h.wfile.write(b"%x\r\n%s\r\n" % (len(data[at:at + 50_000]), data[at:at + 50_000]))
            h.wfile.write(b"0\r\n\r\n")
        registry.file = chunked
        done = run_weft(["pull", "user/repo:Q4_K_M"], env=env)
        assert done.returncode == 1 and "the disk is full" in done.err and "are kept" in done.err, done.err
    finally:
        subprocess.run(["umount", disk])


def test_ctrl_c_keeps_what_is_there(weft, weft_env, registry, store, files):
    held = threading.Event()
    started = threading.Event()

    def slow(h, data):
        h.send_response(200)
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        h.wfile.write(data[:500_000])
        h.wfile.flush()
        started.set()
        held.wait(20)
    registry.file = slow
    p = subprocess.Popen([weft, "pull", "user/repo:Q4_K_M"], env=dict(weft_env, HF_ENDPOINT=registry.url, LLAMA_CACHE=str(store)), stderr=subprocess.PIPE, text=True)
    started.wait(20)
    part = store / "user_repo_tiny-Q4_K_M.gguf.part"
    while not part.exists() or part.stat().st_size < 500_000:
        time.sleep(0.02)
    twin = subprocess.run([weft, "pull", "user/repo:Q4_K_M"], env=dict(weft_env, HF_ENDPOINT=registry.url, LLAMA_CACHE=str(store)), capture_output=True, text=True, timeout=30)
    assert twin.returncode == 1 and "by another program" in twin.stderr                 # two do not write one file
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=30)
    held.set()
    assert p.returncode == 130 and "500 kB of 3.0 MB are kept" in err, err
    assert part.stat().st_size == 500_000


def test_nobody_there(pull, registry):
    registry.close()
    done = pull("pull", "user/repo", timeout=30)
    assert done.returncode == 1 and "error" in done.err


# ---- list and rm --------------------------------------------------------------------------------------------------------------------

def test_list_and_rm(pull, store, registry):
    assert pull("list").out.split() == ["NAME", "SIZE", "CHANGED"]
    assert pull("pull", "user/repo:Q8_0").returncode == 0 and pull("pull", "tiny").returncode == 0
    (store / "notes.txt").write_text("not a model")
    (store.parent / "outside.gguf").write_text("not in the folder")
    rows = [line.split()[0] for line in pull("list").out.splitlines()[1:]]
    assert rows == ["ollama_tiny_latest", "user_repo_tiny-Q8_0"]
    for name in ("nothing", "../outside", "../outside.gguf", "notes.txt", str(store.parent / "outside.gguf")):
        done = pull("rm", name, "--yes")
        assert done.returncode == 1 and "there is no model" in done.err, done.err
    asked = pull("rm", "tiny")
    assert asked.returncode == 2 and "--yes" in asked.err
    assert pull("rm", "tiny", "--yes").returncode == 0 and pull("rm", "hf:user/repo:Q8_0", "-y").returncode == 0
    assert sorted(p.name for p in store.iterdir()) == ["notes.txt"] and (store.parent / "outside.gguf").exists()


def test_rm_asks(weft, weft_env, pull, store):
    pexpect = pytest.importorskip("pexpect")
    assert pull("pull", "tiny").returncode == 0
    env = dict(weft_env, LLAMA_CACHE=str(store), TERM="xterm")
    for answer, there in (("n", True), ("", True), ("y", False)):
        p = pexpect.spawn(weft, ["rm", "tiny"], env=env, encoding="utf-8", timeout=20)
        p.expect(r"remove .*ollama_tiny_latest.gguf \(\S+ MB\)\? \[y/N\] ")
        p.sendline(answer)
        p.expect(pexpect.EOF)
        p.close()
        assert (store / "ollama_tiny_latest.gguf").exists() == there and (p.exitstatus == 0) != there


def test_a_bar_at_a_terminal(weft, weft_env, registry, store, files):
    pexpect = pytest.importorskip("pexpect")
    def slow(h, data):
        h.send_response(200)
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        for at in range(0, len(data), 300_000):
            h.wfile.write(data[at:at + 300_000])
            h.wfile.flush()
            time.sleep(0.1)
    registry.file = slow
    p = pexpect.spawn(weft, ["pull", "user/repo:Q4_K_M"], env=dict(weft_env, HF_ENDPOINT=registry.url, LLAMA_CACHE=str(store), TERM="xterm"), encoding="utf-8", timeout=20, dimensions=(24, 100))
    p.expect(r"\d\.\d MB of 3\.0 MB, \d+\.\d MB/s \[#+\.*\] +\d+ %")
    p.expect(pexpect.EOF)
    p.close()
    assert p.exitstatus == 0
