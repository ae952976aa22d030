"""/slots/N?action=save, restore and erase of llama.cpp. Statuses and members of the answers are those of llama.cpp's own server (the one in
llama-cpp-python 0.3.36), asked the same on 2026-11-27; so is the rule for names of files."""
import concurrent.futures
import os
import stat
import subprocess
import time
import pytest
from serving import Server, TEMPLATE

SLOTS = "-np", "2", "--chat-template", TEMPLATE, "--slot-save-path"
TURNS = [{"role": "user", "content": "def add(a, b):\n    return a + b\n" * 10}]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "slots"
    made.mkdir()
    return made


def act(server, slot, action, name=None):
    return server.ask(f"/slots/{slot}?action={action}", {"filename": name} if name is not None else b"", method="POST")


def done(server, slot, action, name=None):
    status, o = act(server, slot, action, name)
    assert status == 200, o
    return o


def chat(server, slot, turns=TURNS, **more):
    """(content, log-probabilities, tokens that were cached) of an answer of twelve tokens"""
    status, o = server.ask("/v1/chat/completions", {"messages": turns, "max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 3, "id_slot": slot, **more})
    assert status == 200, o
    return o["choices"][0]["message"]["content"], o["choices"][0]["logprobs"]["content"], o["timings"]["cache_n"]


def test_a_conversation_is_saved_erased_and_restored(weft, weft_env, tinypy, folder):
    """The same text and bits, from memory, from the file, and from the file behind a restart."""
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        content, scores, cached = chat(s, 1)
        assert cached == 0
        turns = [*TURNS, {"role": "assistant", "content": content}, {"role": "user", "content": "go on"}]
        saved = done(s, 1, "save", "talk.bin")
        size = os.stat(folder / "talk.bin")
        assert set(saved) == {"id_slot", "filename", "n_saved", "n_written", "timings"} and set(saved["timings"]) == {"save_ms"}
        assert (saved["id_slot"], saved["filename"], saved["n_written"]) == (1, "talk.bin", size.st_size)
        assert stat.S_IMODE(size.st_mode) == 0o600 and os.listdir(folder) == ["talk.bin"]
        assert [x["n_past"] for x in s.ask("/slots")[1]] == [0, saved["n_saved"]]
        assert done(s, 1, "erase") == {"id_slot": 1, "n_erased": saved["n_saved"]}
        assert done(s, 1, "erase") == {"id_slot": 1, "n_erased": 0}
        new = chat(s, 1, turns)
        assert new[2] == 0                             # nothing is left of it
        done(s, 1, "erase")
        restored = done(s, 1, "restore", "talk.bin")
        assert set(restored) == {"id_slot", "filename", "n_restored", "n_read", "timings"} and set(restored["timings"]) == {"restore_ms"}
        assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])
        again = chat(s, 1, turns)
        assert again[:2] == new[:2] and saved["n_saved"] - 16 <= again[2] <= saved["n_saved"]
        assert s.end() == 0
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        assert done(s, 0, "restore", "talk.bin")["n_restored"] == saved["n_saved"]
        assert chat(s, 0, turns) == again
        done(s, 0, "erase")
        done(s, 0, "restore", "talk.bin")
        first = chat(s, 0)                             # the first turn once more: all but its last token is there
        assert first[:2] == (content, scores) and first[2] > 0.9 * saved["n_saved"]


def test_a_slot_is_what_its_number_was_asked_for(weft, weft_env, tinypy, folder):
    """Two conversations that begin alike, in turns, each in its slot; answers say which; an empty slot is saved as one."""
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        assert done(s, 0, "save", "empty")["n_saved"] == 0 and done(s, 0, "restore", "empty")["n_restored"] == 0
        held = {}
        for slot in (1, 0, 1, 0):
            text = "x = 1\n" * 40 + ("y", "z")[slot] * 3
            o = s.ask("/completion", {"prompt": text, "n_predict": 4 + slot, "temperature": 0, "id_slot": slot})[1]
            assert o["id_slot"] == slot
            held[slot] = o["tokens_evaluated"] + o["tokens_predicted"] - 1
        while any(x["is_processing"] for x in s.ask("/slots")[1]):     # the last step is told when it is over
            time.sleep(0.01)
        assert [x["n_past"] for x in s.ask("/slots")[1]] == [held[0], held[1]]
        assert done(s, 0, "erase")["n_erased"] == held[0] and [x["n_past"] for x in s.ask("/slots")[1]] == [0, held[1]]


def test_names_lead_nowhere_else(weft, weft_env, tinypy, folder):
    (folder.parent / "x").write_bytes(b"not theirs")
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        for name in ("../x", "..", ".", "a/b", "/etc/passwd", "", "x.", " x", "x ", "a..b", "a:b", "a\\b", "a\0b", "a\nb", "x" * 300, "con", "NUL", "aux.txt", "COM1", "lpt9.x", "com\u00b9", "nul .x"):
            for action in ("save", "restore"):
                status, o = act(s, 0, action, name)
                assert (status, o["error"]["type"], o["error"]["param"]) == (400, "invalid_request_error", "filename"), name
        os.symlink(folder.parent / "x", folder / "link")               # of whoever has the folder
        os.mkfifo(folder / "pipe")                                     # nobody waits for its other end
        os.mkdir(folder / "sub")
        assert [act(s, 0, action, name)[0] for action in ("save", "restore") for name in ("link", "pipe", "sub")] == [400] * 6
        assert done(s, 0, "save", ".hidden")["n_saved"] == 0
    assert (folder.parent / "x").read_bytes() == b"not theirs" and sorted(os.listdir(folder)) == [".hidden", "link", "pipe", "sub"]


def test_nothing_else_is_replaced(weft, weft_env, tinypy, folder):
    """A client gives the name: a file that is no saved sequence stays, and one that was saved is replaced."""
    (folder / "notes.txt").write_text("mine")
    (folder / "empty").touch()
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        chat(s, 0)
        status, got = act(s, 0, "save", "notes.txt")
        assert status == 400 and "notes.txt: is there, and no saved sequence" in str(got) and (folder / "notes.txt").read_text() == "mine"
        assert done(s, 0, "save", "empty")["n_written"] == done(s, 0, "save", "empty")["n_written"] > 0


def test_two_that_save_under_one_name(weft, weft_env, tinypy, folder):
    """Each is written, and the last one stays whole."""
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        chat(s, 0)
        chat(s, 1)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda i: act(s, i % 2, "save", "one"), range(120)))
        assert {status for status, _ in results} == {200}, [r for r in results if r[0] != 200][:2]
        assert os.listdir(folder) == ["one"] and done(s, 0, "restore", "one")["n_restored"] > 0


def test_files_of_others_and_damaged_ones(weft, weft_env, tinypy, folder):
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        first = chat(s, 0)
        whole = done(s, 0, "save", "whole")["n_written"]
        at = bytearray((folder / "whole").read_bytes())
        for name, data in (("text", b"nonsense" * 99), ("empty", b""), ("cut", at[:whole // 2]), ("head", at[:40]), ("longer", at + b"\0"), ("twice", at + at)):
            (folder / name).write_bytes(data)
        at[whole // 2] ^= 1
        (folder / "flipped").write_bytes(at)
        for name, why in (("text", "is no file of a sequence"), ("empty", "ends in the middle"), ("cut", "ends in the middle"), ("head", "ends in the middle"),
                          ("longer", "goes on behind its last page"), ("twice", "goes on behind its last page"), ("flipped", "damaged"), ("nowhere", "No such file")):
            status, o = act(s, 0, "restore", name)
            assert status == 400 and o["error"]["message"].startswith(name + ": ") and why in o["error"]["message"], o
        assert chat(s, 0)[:2] == first[:2]                             # what was there is still there
    with Server(weft, weft_env, tinypy, *SLOTS, folder, "-c", "64") as s:
        assert act(s, 0, "restore", "whole")[0] == 400
    with Server(weft, weft_env, tinypy, *SLOTS, folder, "-ctk", "q8_0") as s:
        status, o = act(s, 0, "restore", "whole")
        assert status == 400 and "is of another model, or of other settings of it" in o["error"]["message"], o


def test_what_is_asked_wrongly(weft, weft_env, tinypy, folder):
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s:
        for path, body in (("2?action=save", {"filename": "x"}), ("x?action=save", {"filename": "x"}), ("-1?action=erase", {}), ("0?action=move", {"filename": "x"}),
                           ("0", {"filename": "x"}), ("0?action=save", {}), ("0?action=save", {"filename": 3}), ("0?action=save", b""), ("0?action=save", [])):
            status, o = s.ask("/slots/" + path, body, method="POST")
            assert (status, o["error"]["type"]) == (400, "invalid_request_error"), (path, body, o)
        for query in ("action=erase&action=save", "action=save&action=erase", "action=save&x=1&action=restore"):      # two readers could take it for different ones
            with s.connect() as c:
                c.sendall(f"POST /slots/0?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
                assert c.recv(1000).startswith(b"HTTP/1.1 400"), query
    with Server(weft, weft_env, tinypy) as s:
        for action in ("save", "restore", "erase"):
            status, o = act(s, 0, action, "x")
            assert (status, o["error"]["code"], o["error"]["type"]) == (501, 501, "not_supported_error")


def test_it_waits_for_the_answer_in_the_slot(weft, weft_env, tinypy, folder):
    """While both slots answer, saves and restores come from many clients: all succeed, and nothing of an answer changes."""
    long = {"prompt": "def f(x):\n", "n_predict": 300, "temperature": 0, "ignore_eos": True}
    with Server(weft, weft_env, tinypy, *SLOTS, folder) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        expected = s.ask("/completion", {**long, "id_slot": 0})[1]["content"]
        done(s, 0, "save", "base")
        answers = [pool.submit(s.ask, "/completion", {**long, "id_slot": i}) for i in (0, 1)]
        actions = [pool.submit(act, s, i % 2, ("save", "restore", "erase")[i % 3], f"n{i}" if i % 3 == 0 else "base") for i in range(12)]
        assert [a.result()[0] for a in actions] == [200] * 12
        assert [a.result()[1]["content"] for a in answers] == [expected] * 2
        assert s.end() == 0


def test_a_folder_that_is_none(weft, weft_env, tinypy, folder):
    for path, why in ((folder / "none", "No such file"), (tinypy, "is no folder")):
        r = subprocess.run([weft, "serve", "-m", tinypy, "--port", "0", "--slot-save-path", path], env=weft_env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and f"--slot-save-path {path}: " in r.stderr and why in r.stderr
