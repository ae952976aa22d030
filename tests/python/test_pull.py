"""weft pull, list, rm, and models by name on every command, against a server of our own (registry.py)."""
import fcntl
import json
import os
import resource
import shutil
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
    noise = b"GGUF" + (bytes(i * 37 % 251 for i in range(1000)) * (SIZE // 1000))[4:]
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


def test_a_file_that_was_changed_since(pull, registry, store, files):
    """The size and the noted sum are as they were, the bytes are not; a file that was only touched is read once, and stays."""
    assert pull("pull", "user/repo:Q8_0").returncode == 0
    path = store / "user_repo_tiny-Q8_0.gguf"
    path.chmod(0o600)
    inode = path.stat().st_ino
    for _ in range(2):
        done = pull("pull", "user/repo:Q8_0")
        assert done.returncode == 0 and "is there" in done.err and path.stat().st_ino == inode
    before = path.stat()
    with open(path, "r+b") as f:
        f.seek(len(files["tiny-Q8_0.gguf"]) // 2)
        f.write(b"\0\1\2\3")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = pull("pull", "user/repo:Q8_0")
    assert done.returncode == 0 and "was changed since it was fetched" in done.err
    assert path.read_bytes() == files["tiny-Q8_0.gguf"]


def test_a_file_by_name_and_all_of_its_parts(pull, store, files):
    done = pull("pull", "user/repo", "--hf-file", "split/big-00001-of-00002.gguf")
    assert done.returncode == 0, done.err
    for i in (1, 2):
        assert (store / f"user_repo_split_big-0000{i}-of-00002.gguf").read_bytes() == files[f"split/big-0000{i}-of-00002.gguf"]
    encoder, row = json.loads(pull("list", "--json").out)
    assert encoder["name"] == "user_repo_mmproj-tiny-F16" and row["name"] == "user_repo_split_big" and row["bytes"] == 1500 and row["whole"]


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


@pytest.mark.parametrize("first, second, shared", [(("-hf", "u/m_v2"), ("-hf", "u/m"), False), (("-hf", "u/m_v2"), ("-hf", "u_m/v2"), True), (("-mu", "URL/get?1"), ("-mu", "URL/get?2"), True)])
def test_names_that_have_one_file_here(pull, registry, store, tinypy, first, second, shared):
    """u/m_v2 and u_m/v2, also where u/m is looked for, and two queries: each is its own model, whichever came before."""
    one = Path(tinypy).read_bytes()
    other = b"GGUF of another".ljust(len(one))
    registry.others = {"u/m_v2": {"x.gguf": other}, "u/m": {"x.gguf": one}, "u_m/v2": {"x.gguf": one}, "": {"1": other, "2": one}}
    first, second = ([word.replace("URL", registry.url) for word in words] for words in (first, second))
    failed = pull("run", *first, "-p", "a", "-n", "1")
    assert failed.returncode == 1 and b"is unknown: versions 2 and 3 are supported" in failed.stderr, failed.stderr
    asked = len(registry.asked)
    done = pull("run", *second, "-p", "a", "-n", "1")
    assert done.returncode == 0, done.stderr
    assert (b"is another model's" in done.stderr) == (shared and first[0] == "-hf") and len(list(store.glob("*.gguf"))) == 2 - shared
    assert len(registry.asked) > asked and "?" not in "".join(p.read_text() for p in store.glob("*.from") if first[0] == "-hf")
    asked = len(registry.asked)
    assert pull("run", *second, "-p", "a", "-n", "1", "--offline").returncode == 0 and len(registry.asked) == asked
    assert pull("run", *first, "-p", "a", "-n", "1", "--offline").returncode == 1
    for name in [p.name for p in store.glob("*.gguf")]:
        assert pull("rm", "--yes", name).returncode == 0, name
    assert not list(store.iterdir())


def test_two_that_fetch_one_file(pull, registry, store):
    """Who comes second leaves the first one's file alone, also before its first byte; a pipe in its place is not waited for."""
    store.mkdir()
    part = store / "user_repo_tiny-Q8_0.gguf.part"
    with open(part, "w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        done = pull("pull", "hf:user/repo:Q8_0")
        assert done.returncode == 1 and b"is being fetched by another program" in done.stderr
        assert os.stat(part).st_ino == os.fstat(first.fileno()).st_ino
    part.unlink()
    os.mkfifo(part)
    done = pull("pull", "hf:user/repo:Q8_0", timeout=20)
    assert done.returncode == 1 and b"is no regular file" in done.stderr and part.is_fifo()
    part.unlink()
    (store / "mine").write_bytes(b"mine")
    os.link(store / "mine", part)
    done = pull("pull", "hf:user/repo:Q8_0")
    assert done.returncode == 1 and b"has a second name" in done.stderr and (store / "mine").read_bytes() == b"mine"


def test_one_file_of_two_names(pull, registry, store, tinypy):
    """The same bytes need not be fetched again, and belong to both names then; a pipe in a note's place is not waited for."""
    registry.others = {"u/m_v2": {"x.gguf": Path(tinypy).read_bytes()}, "u_m/v2": {"x.gguf": Path(tinypy).read_bytes()}}
    assert pull("pull", "hf:u/m_v2").returncode == 0
    assert b"is there" in pull("pull", "hf:u_m/v2").stderr
    for name in "u/m_v2", "u_m/v2":
        assert pull("run", "-hf", name, "--offline", "-p", "a", "-n", "1").returncode == 0
    for ending in ".from", ".mmproj":
        (store / f"u_m_v2_x.gguf{ending}").unlink()
        os.mkfifo(store / f"u_m_v2_x.gguf{ending}")
    assert pull("run", "-hf", "u/m_v2", "--offline", "-p", "a", "-n", "1", timeout=20).returncode == 0


def test_notes_with_a_second_name(pull, registry, store, tinypy):
    """What a note was before, under its other name, stays as it is."""
    registry.others = {name: {"x.gguf": Path(tinypy).read_bytes()} for name in ("u/m_v2", "u_m/v2")}
    store.mkdir()
    file, linked = store / "u_m_v2_x.gguf", {}

    def link(ending):
        mine, note = store / f"mine{ending}", file.with_name(file.name + ending)
        mine.write_bytes(note.read_bytes() if note.exists() else b"mine")
        note.unlink(missing_ok=True)
        os.link(mine, note)
        linked[mine] = mine.read_bytes()
    for ending in ".from", ".mmproj", ".etag", ".part.etag":
        link(ending)
    assert pull("pull", "hf:u/m_v2").returncode == 0 and {mine: mine.read_bytes() for mine in linked} == linked
    for ending, note in ((".from", "hf:u/m_v2/x.gguf\n"), (".mmproj", "-\n")):
        assert file.with_name(file.name + ending).read_text() == note
        link(ending)
    assert "is there" in pull("pull", "hf:u_m/v2").err and {mine: mine.read_bytes() for mine in linked} == linked
    note = file.with_name(file.name + ".from")
    assert note.read_text() == "hf:u/m_v2/x.gguf\nhf:u_m/v2/x.gguf\n"
    note.unlink()
    note.symlink_to(store / "mine.from")
    file.unlink()
    done = pull("pull", "hf:u_m/v2")
    assert done.returncode == 1 and f"{note}: is no regular file" in done.err and note.is_symlink() and linked[store / "mine.from"] == note.read_bytes(), done.err


def test_one_file_whose_origin_was_not_noted(pull, registry, store, tinypy):
    """A full disk has no room for the note. An empty one is of no name, until its file was compared with what a name means; without any note there is no file."""
    registry.others = {"u/m_v2": {"x.gguf": Path(tinypy).read_bytes()}, "u_m/v2": {"x.gguf": b"GGUF of another"}}
    note = store / "u_m_v2_x.gguf.from"
    store.mkdir()
    note.mkdir()
    done = pull("pull", "hf:u/m_v2")
    assert done.returncode == 1 and f"{note}: Is a directory" in done.err and "goes on from there" in done.err, done.err
    assert not (store / "u_m_v2_x.gguf").exists()
    note.rmdir()
    registry.asked.clear()
    assert pull("pull", "hf:u/m_v2").returncode == 0 and not [path for path, _ in registry.asked if "resolve" in path]
    for name in "u_m/v2", "u/m_v2":
        note.write_text("")
        assert pull("run", "-hf", name, "--offline", "-p", "a", "-n", "1").returncode == 1, name
    done = pull("run", "-hf", "u/m_v2", "-p", "a", "-n", "1")
    assert done.returncode == 0 and "fetching" not in done.err and note.read_text() == "hf:u/m_v2/x.gguf\n", (done.err, note.read_text())


@pytest.mark.parametrize("command", COMMANDS, ids=[c[0] for c in COMMANDS])
def test_every_command_fetches(pull, registry, command):
    done = pull(*command, "-hf", "user/repo:Q8_0")
    assert done.returncode == 0 and "fetching tiny-Q8_0.gguf" in done.err, done.err
    registry.asked.clear()
    assert pull(*command, "-hf", "user/repo:Q8_0").returncode == 0 and registry.asked == []           # nobody is asked again
    assert pull(*command, "-hf", "user/repo:Q8_0", "--offline").returncode == 0


def test_an_operand_beside_a_fetched_model(pull):
    """It is text then, and may be empty, which a path may not."""
    done = pull("run", "-hf", "user/repo:Q8_0", "", "-n", "2")
    assert done.returncode == 0 and done.out, done.err


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


# ---- https ------------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a certificate for 127.0.0.1, which is its own authority, and the key."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl, which makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(path), "-out", str(path.with_name("c.pem"))], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_name("c.pem").read_text())
    return path.with_name("c.pem"), path


@pytest.fixture
def safe(files, certificate):
    r = Registry(dict(files), certificate=certificate[1])
    yield r
    r.close()


@pytest.mark.parametrize("way", ["file", "folder"])
def test_authorities_of_one_s_own(pull, safe, store, files, certificate, tmp_path, way):
    env = {"HF_ENDPOINT": safe.url, "SSL_CERT_FILE": certificate[0]}
    if way == "folder":
        (tmp_path / "c.pem").write_bytes(certificate[0].read_bytes())
        subprocess.run(["openssl", "rehash", tmp_path], check=True)
        env = {"HF_ENDPOINT": safe.url, "SSL_CERT_DIR": tmp_path}
    done = pull("pull", "user/repo:Q8_0", env=env)
    assert done.returncode == 0, done.err
    assert (store / "user_repo_tiny-Q8_0.gguf").read_bytes() == files["tiny-Q8_0.gguf"]


def test_a_libcurl_with_gnutls(pull, safe, store, files, certificate, tmp_path):
    """The program has a gnutls_record_recv() of its own, for the server: that library finds it, and it hands on to GnuTLS."""
    found = sorted(Path("/usr/lib").glob("*/libcurl-gnutls.so.4"))
    if not found:
        pytest.skip("no libcurl-gnutls (Debian's package libcurl3-gnutls)")
    (tmp_path / "libcurl.so.4").symlink_to(found[0])
    done = pull("pull", "user/repo:Q8_0", env={"HF_ENDPOINT": safe.url, "SSL_CERT_FILE": certificate[0], "LD_LIBRARY_PATH": tmp_path})
    assert done.returncode == 0, done.err
    assert (store / "user_repo_tiny-Q8_0.gguf").read_bytes() == files["tiny-Q8_0.gguf"]


@pytest.mark.parametrize("what", ["user/repo:Q8_0", "{}/plain/tiny-Q8_0.gguf"])
def test_a_server_that_nobody_vouches_for(pull, safe, what):
    done = pull("pull", what.format(safe.url), env={"HF_ENDPOINT": safe.url})
    assert done.returncode == 1 and "certificate" in done.err and "SSL_CERT_FILE may name" in done.err and not safe.asked
    assert safe.connections() == 1                                       # another attempt would end as this one


@pytest.mark.parametrize("what", ["user/repo:Q8_0", "{}/plain/tiny-Q8_0.gguf"])
def test_no_list_of_authorities(pull, safe, what, tmp_path):
    """As on a Debian without ca-certificates."""
    env = {"HF_ENDPOINT": safe.url}
    done = pull("pull", what.format(safe.url), env={**env, "SSL_CERT_FILE": tmp_path / "none.pem"})
    assert done.returncode == 1 and f"SSL_CERT_FILE names '{tmp_path}/none.pem', which cannot be read" in done.err
    hidden = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none /etc/ssl/certs && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("no name spaces of a user's own here, which hide the system's list")
    done = pull("pull", what.format(safe.url), env=env, before=hidden)
    assert done.returncode == 1 and "the package ca-certificates has it" in done.err and not safe.asked


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
    other = b"GGUF" + files["tiny-Q4_K_M.gguf"][::-1] + b"and more"
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


PAGE = b"<!DOCTYPE html>\n<html>\x1b[2J<title>Sign in</title>" + b"<p>please</p>" * 500


@pytest.mark.parametrize("name, args", [("tiny-Q8_0.gguf", ["pull", "URL"]), ("tiny-Q8_0.gguf", ["run", "-mu", "URL", "-p", "x", "-n", "1"]), ("tiny-Q8_0.gguf", ["pull", "user/repo:Q8_0"]),
                                        ("tiny-Q8_0.gguf", ["run", "-hf", "user/repo:Q8_0", "-p", "x", "-n", "1"]), ("mmproj-tiny-F16.gguf", ["pull", "URL"]), ("adapter.gguf", ["pull", "URL"]),
                                        ("tiny-Q8_0.gguf", ["pull", "tiny"]), ("model.safetensors", ["pull", "URL"]), ("config.json", ["pull", "user/repo", "--hf-file", "config.json"])])
def test_a_page_in_the_place_of_a_file(pull, registry, store, files, name, args):
    """With 200, as for a login or an error: what came is said, and nothing is left. (It was stored as a model.)"""
    registry.files |= {name: PAGE, "adapter.gguf": PAGE, "model.safetensors": PAGE, "config.json": PAGE}
    registry.type = "text/html; charset=utf-8"
    args = [registry.url + "/plain/" + name if one == "URL" else one for one in args]
    for _ in range(2):
        done = pull(*args)
        assert done.returncode == 1 and "not a GGUF file: the server sent text/html that begins with '<!DOCTYPE html> <html>?[2J<title>Sign in</title>" in done.err and "it was not kept" in done.err, done.err
        assert not store.exists() or not [one for one in store.iterdir() if name.partition(".")[0] in one.name], list(store.iterdir())
    registry.files[name], registry.type = files["tiny-Q8_0.gguf"], None
    assert pull(*args).returncode == 0


@pytest.mark.parametrize("body, words", [(b"", "sent no bytes"), (b"GG", "begins with 'GG'"), (b"PK\3\4" + b"x" * 99, "that begins with 'PK??xxx"), (b'{"error": "no"}', "begins with '{\"error\": \"no\"}'")])
def test_other_files_that_are_no_models(pull, registry, store, body, words):
    registry.files["tiny-Q8_0.gguf"] = body
    done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf")
    assert done.returncode == 1 and words in done.err, done.err
    assert not list(store.iterdir())


def test_a_page_that_was_kept_before(pull, registry, store, files):
    """Whole, or as the beginning of a download: it goes, and the file comes from its first byte on. The rest of a download that turns into a page is no part of it."""
    path = named(store, registry, "tiny-Q8_0.gguf")
    assert pull("pull", registry.url + "/plain/tiny-Q8_0.gguf").returncode == 0
    path.write_bytes(PAGE)
    assert pull("pull", registry.url + "/plain/tiny-Q8_0.gguf").returncode == 0 and path.read_bytes() == files["tiny-Q8_0.gguf"]
    path.unlink()
    (store / (path.name + ".part")).write_bytes(PAGE)
    (store / (path.name + ".part.etag")).write_text('"x"')
    assert pull("pull", registry.url + "/plain/tiny-Q8_0.gguf").returncode == 0 and path.read_bytes() == files["tiny-Q8_0.gguf"] and not ranges(registry)
    path.unlink()
    send = registry.file

    def once(h, data):
        send(h, data)
        registry.gone = 100
    registry.cut_after, registry.cuts, registry.file = 700_000, 1, once
    assert pull("pull", registry.url + "/plain/tiny-Q8_0.gguf").returncode == 1
    registry.file, registry.gone = send, 0
    registry.files["tiny-Q8_0.gguf"], registry.type = PAGE, "text/html"
    done = pull("pull", registry.url + "/plain/tiny-Q8_0.gguf")
    assert done.returncode == 1 and "the server sent text/html" in done.err and not list(store.glob("*tiny-Q8_0.gguf.part")), done.err


def test_a_whole_that_is_less_than_its_part(pull, registry, store):
    """The answer to a request for the rest says that the file has fewer bytes than are there."""
    send = registry.file

    def once(h, data):
        send(h, data)
        registry.gone = 100
    registry.cut_after, registry.cuts, registry.file = 700_000, 1, once
    assert pull("pull", registry.url + "/plain/tiny-Q4_K_M.gguf").returncode == 1
    registry.file, registry.gone, registry.total = send, 0, 1000
    done = pull("pull", registry.url + "/plain/tiny-Q4_K_M.gguf")
    assert done.returncode == 1 and "the server says that the file has 1000 bytes, and 700000 are there" in done.err, done.err


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
    registry.files["tiny-Q4_K_M.gguf"] = other = b"GGUF" + files["tiny-Q4_K_M.gguf"][::-1][4:]
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
        del registry.files["mmproj-tiny-F16.gguf"]
        for more in ({"env": {"HF_TOKEN": " secret\n"}}, {}):    # as a file of a secret has it
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
        held.wait(120)
    registry.file = slow
    p = subprocess.Popen([weft, "pull", "user/repo:Q4_K_M"], env=dict(weft_env, HF_ENDPOINT=registry.url, LLAMA_CACHE=str(store)), stderr=subprocess.PIPE, text=True)
    started.wait(120)
    part = store / "user_repo_tiny-Q4_K_M.gguf.part"
    while not part.exists() or part.stat().st_size < 500_000:
        time.sleep(0.02)
    twin = subprocess.run([weft, "pull", "user/repo:Q4_K_M"], env=dict(weft_env, HF_ENDPOINT=registry.url, LLAMA_CACHE=str(store)), capture_output=True, text=True, timeout=120)
    assert twin.returncode == 1 and "by another program" in twin.stderr                 # two do not write one file
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=120)
    held.set()
    assert p.returncode == 130 and "500 kB of 3.0 MB are kept" in err, err
    assert part.stat().st_size == 500_000


def test_nobody_there(pull, registry):
    registry.close()
    done = pull("pull", "user/repo", timeout=120)
    assert done.returncode == 1 and "error" in done.err


# ---- list and rm --------------------------------------------------------------------------------------------------------------------

def test_list_and_rm(pull, store, registry):
    assert pull("list").out.split() == ["NAME", "SIZE", "CHANGED"]
    assert pull("pull", "user/repo:Q8_0").returncode == 0 and pull("pull", "tiny").returncode == 0
    (store / "notes.txt").write_text("not a model")
    (store.parent / "outside.gguf").write_text("not in the folder")
    rows = [line.split()[0] for line in pull("list").out.splitlines()[1:]]
    assert rows == ["ollama_tiny_latest", "user_repo_mmproj-tiny-F16", "user_repo_tiny-Q8_0"]
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
        p = pexpect.spawn(weft, ["rm", "tiny"], env=env, encoding="utf-8", timeout=120)
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


# ---- encoders of pictures -----------------------------------------------------------------------------------------------------------

def asked_for(registry):
    return [path.rpartition("/")[2] for path, _ in registry.asked if "/resolve/" in path or "/blobs/" in path]


# What llama-server of llama.cpp 0.3.36 (common/download.cpp) fetches of such a repository with -hf user/repo:QUANT: the folder comes first, then the type nearest to the model's.
@pytest.mark.parametrize("others, quant, want", [
    (["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-tiny-Q8_0.gguf"], "Q8_0", "mmproj-tiny-Q8_0.gguf"),
    (["mmproj-F32.gguf", "mmproj-BF16.gguf"], "Q8_0", "mmproj-BF16.gguf"),
    (["a/mmproj-Q8_0.gguf", "mmproj-model-f16.gguf"], "Q8_0", "mmproj-model-f16.gguf"),
    (["mmproj-Q8_0.gguf", "Q6/mmproj-F32.gguf"], "Q6_K", "mmproj-F32.gguf"),
    (["tiny-mmproj.gguf"], "Q8_0", "tiny-mmproj.gguf")])
def test_which_encoder(pull, registry, store, others, quant, want):
    small = registry.files["tiny-Q8_0.gguf"]
    registry.files = {name: b"GGUF" + name.encode() for name in others} | {"tiny-Q8_0.gguf": small, "Q6/tiny-Q6_K.gguf": b"GGUF6"}
    assert pull("pull", f"user/repo:{quant}").returncode == 0
    assert asked_for(registry) == [f"tiny-{quant}.gguf", want]
    encoder = next(p for p in store.iterdir() if p.name.endswith(want))
    assert encoder.read_bytes() == b"GGUF" + next(n for n in others if n.endswith(want)).encode()


def test_an_encoder_is_fetched_and_found(pull, registry, store, tmp_path):
    """By -hf, by the name that 'weft list' shows, and by the path; beside encoders of other models. A command that takes no pictures does not fetch it."""
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (60, 40), (200, 30, 30)).save(tmp_path / "red.png")
    registry.files = {"tiny-Q8_0.gguf": registry.files["tiny-Q8_0.gguf"], "mmproj-F16.gguf": pytest.importorskip("projector").write(tmp_path / "e.gguf").read_bytes()}
    assert pull("bench", "-hf", "user/repo:Q8_0", "-p", "2", "-n", "1", "-r", "1").returncode == 0 and asked_for(registry) == ["tiny-Q8_0.gguf"]
    chat = ["chat", "-n", "2", "hello"]
    assert pull(*chat, "-hf", "user/repo:Q8_0", "--no-mmproj").returncode == 0 and asked_for(registry) == ["tiny-Q8_0.gguf"]
    (store / "other_repo_mmproj-F16.gguf").write_bytes(b"GGUF, of another model")
    want = pull("run", "-hf", "user/repo:Q8_0", "--image", tmp_path / "red.png", "-p", "def f(", "-n", "4", "--temp", "0")
    assert want.returncode == 0 and asked_for(registry) == ["tiny-Q8_0.gguf", "mmproj-F16.gguf"], want.err
    registry.close()
    for model in (["-hf", "user/repo:Q8_0"], ["user_repo_tiny-Q8_0"], ["-m", store / "user_repo_tiny-Q8_0.gguf"], ["-hf", "user/repo:Q8_0", "--offline"]):
        got = pull("run", *model, "--image", tmp_path / "red.png", "-p", "def f(", "-n", "4", "--temp", "0")
        assert got.returncode == 0 and got.out == want.out, got.err
    none = pull("run", "-m", store / "user_repo_tiny-Q8_0.gguf", "--no-mmproj", "--image", tmp_path / "red.png", "-p", "def f(")
    assert none.returncode == 1 and "--mmproj FILE names it" in none.err
    assert pull("rm", "user_repo_tiny-Q8_0", "-y").returncode == 0
    assert [p.name for p in store.iterdir()] == ["other_repo_mmproj-F16.gguf"]


def test_no_encoder_is_no_error(pull, registry, store):
    """That there is none is noted: nobody is asked again. A model that is there is used if its server cannot be asked, which is tried once."""
    del registry.files["mmproj-tiny-F16.gguf"]
    chat = ["chat", "-n", "2", "-hf", "user/repo:Q8_0", "hello"]
    assert pull("bench", *chat[3:5], "-p", "2", "-n", "1", "-r", "1").returncode == 0
    registry.gone = 100
    registry.token = "x"
    done = pull(*chat)
    assert done.returncode == 0 and "no encoder of pictures was fetched" in done.err, done.err
    registry.asked.clear()
    done = pull(*chat)
    assert done.returncode == 0 and "no encoder" not in done.err and registry.asked == []
    registry.token, registry.gone = None, 0
    registry.asked.clear()
    assert pull(*chat).returncode == 0 and registry.asked == []
    assert pull("pull", "user/repo:Q8_0", "--no-mmproj").returncode == 0


def test_a_file_with_a_short_name(pull, registry, store):
    """-hff may name any file of a repository."""
    registry.files["x"] = b"GGUF"
    assert pull("pull", "user/repo", "--hf-file", "x").returncode == 0 and (store / "user_repo_x.gguf").exists()


def test_two_models_with_one_encoder(pull, store):
    for quant in ("Q8_0", "Q4_K_M"):
        assert pull("pull", f"user/repo:{quant}").returncode == 0
    encoder = store / "user_repo_mmproj-tiny-F16.gguf"
    assert pull("rm", "user_repo_tiny-Q4_K_M", "-y").returncode == 0 and encoder.exists()
    assert pull("rm", "user_repo_tiny-Q8_0", "-y").returncode == 0 and not list(store.iterdir())


def test_the_projector_of_ollama(pull, registry, store):
    """Its layer in a manifest, as ollama's registry has it for llava."""
    registry.projector = registry.files["tiny-Q4_K.gguf"]
    assert pull("pull", "tiny").returncode == 0
    assert (store / "ollama_tiny_latest-mmproj.gguf").read_bytes() == registry.projector
    registry.projector = None
    assert pull("pull", "tiny:q8").returncode == 0 and not (store / "ollama_tiny_q8-mmproj.gguf").exists()
