"""weft serve with several models: which there are, when they come and go, and that none goes in the middle of a request."""
import concurrent.futures as futures
import json
import os
import shutil
import threading
import time

import pytest
import scripted
from serving import Server, until

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


class Folder(Server):
    """A server with a folder of models, and no other one unless args say so."""

    def __init__(self, weft, env, folder, *args):
        self.folder = folder
        super().__init__(weft, env, None, "--models-dir", folder, *args)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Three models that say who they are, one that is broken, and one that is no model."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("one", "two", "three"):
        scripted.write(folder / f"{name}.gguf", {"1": ["I am ", name], "2": ["and ", "on ", None]}, TEMPLATE, context=1000)
    whole = (folder / "one.gguf").read_bytes()
    (folder / "broken.gguf").write_bytes(whole[:len(whole) // 3])
    (folder / "other.txt").write_text("no model")
    (folder / "half-00002-of-00002.gguf").write_bytes(whole)
    return folder


@pytest.fixture(scope="module")
def server(weft, weft_env, models):
    with Folder(weft, weft_env, models, "--models-max", 2) as s:
        yield s


def say(s, model, text="1", **more):
    return s.ask("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": text}], **more})


def loaded(s):
    return sorted(m["name"] for m in s.ask("/api/ps")[1]["models"])


def test_what_there_is(server):
    names = ["one", "three", "two"]
    assert server.ask("/health")[0] == 200
    assert [m["id"] for m in server.ask("/v1/models")[1]["data"]] == names
    assert [m["name"] for m in server.ask("/api/tags")[1]["models"]] == names
    assert server.ask("/v1/models/two")[1]["meta"]["n_ctx"] == 1000
    assert any("broken.gguf" in line for line in server.said) and not any("half" in line for line in server.said)
    shown = server.ask("/api/show", {"model": "two:latest"})[1]
    assert shown["model_info"]["llama.context_length"] == 1000 and "tools" in shown["capabilities"]


def test_each_answers_for_itself(server):
    for name in ("one", "two", "three", "one"):
        status, got = say(server, name)
        assert status == 200 and got["choices"][0]["message"]["content"] == f"I am {name}" and got["model"] == name
        assert name in loaded(server) and len(loaded(server)) <= 2
        states = {m["id"]: m["status"]["value"] for m in server.ask("/v1/models")[1]["data"]}
        assert sorted(n for n, v in states.items() if v == "loaded") == loaded(server)
    assert server.ask("/props?model=two")[1]["model_alias"] == "two" and "two" in loaded(server)
    assert server.ask("/slots?model=two")[1][0]["n_ctx"] == 1000
    assert server.ask("/tokenize?model=three", {"content": "a"})[1] == {"tokens": [97]}
    assert server.ask("/props")[1]["role"] == "router"


@pytest.mark.parametrize("name", ["four", "broken", "../models/one", "one.gguf", "/etc/passwd", "other.txt", "on", "half"])
def test_unknown_models(server, name):
    message = {"messages": [{"role": "user", "content": "1"}], "model": name}
    status, got = server.ask("/v1/chat/completions", message)
    assert status == 404 and got["error"]["code"] == "model_not_found" and "'three'" in got["error"]["message"] and "broken'," not in got["error"]["message"]
    status, got = server.ask("/v1/messages", {**message, "max_tokens": 5})
    assert status == 404 and got["error"]["type"] == "not_found_error"
    status, got = server.ask("/api/chat", message)
    assert status == 404 and isinstance(got["error"], str)
    status, got = server.ask("/completion", {"model": name, "prompt": "1"})
    assert status == 404 and got["error"]["type"] == "not_found_error"
    assert server.ask("/api/show", {"model": name})[0] == 404


def test_a_request_without_a_name(server):
    assert say(server, "one\0")[0] == 400
    status, got = server.ask("/v1/completions", {"prompt": "1"})
    assert status == 400 and got["error"]["param"] == "model" and "'one'" in got["error"]["message"]


def test_who_does_not_want_to_wait(server):
    say(server, "one")
    say(server, "two")
    ask = lambda path, **headers: server.ask(path, {"model": "three", "prompt": "1", "max_tokens": 1}, **headers)[0]
    assert ask("/v1/completions?autoload=false") == 503 and "Retry-After" not in server.headers
    assert loaded(server) == ["one", "two"]
    assert ask("/v1/completions", Prefer="wait=0") == 503 and server.headers["Retry-After"]      # it comes, and the client asks again
    until(lambda: "three" in loaded(server))
    assert ask("/v1/completions?autoload=false") == 200


def test_none_goes_in_the_middle_of_a_request(server):
    """Two that are at work, and places for two: the third one waits for one of them to end."""
    with futures.ThreadPoolExecutor(4) as pool:
        long = [pool.submit(say, server, name, "2", max_tokens=400) for name in ("one", "two")]
        until(lambda: server.metric("llamacpp:requests_processing") == 2 or all(f.done() for f in long))
        third = pool.submit(say, server, "three")
        assert third.result()[1]["choices"][0]["message"]["content"] == "I am three"
        assert [len(f.result()[1]["choices"][0]["message"]["content"]) for f in long] == [1400, 1400]


def test_many_for_one_that_is_not_there(server):
    say(server, "one")
    say(server, "two")
    before = sum("ready: three" in line for line in server.said)
    with futures.ThreadPoolExecutor(8) as pool:
        for status, got in pool.map(lambda i: say(server, "three"), range(8)):
            assert status == 200 and got["choices"][0]["message"]["content"] == "I am three"
    assert sum("ready: three" in line for line in server.said) == before + 1


def test_keep_alive(weft, weft_env, models):
    with Folder(weft, weft_env, models, "--sleep-idle-seconds", 300) as s:
        ask = lambda **more: s.ask("/api/generate", {"model": "one", **more, "stream": False})[1]
        assert ask()["done_reason"] == "load" and loaded(s) == ["one"]
        left = lambda: time.mktime(time.strptime(s.ask("/api/ps")[1]["models"][0]["expires_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())
        assert 290 < left() < 310
        assert ask(prompt="1", keep_alive="1h30m")["response"] and 5390 < left() < 5410
        assert ask(prompt="1", keep_alive=-1)["response"] and left() > 1e8
        assert ask(prompt="1", keep_alive="0.2s")["response"]
        until(lambda: loaded(s) == [])
        assert say(s, "one", keep_alive=0)[0] == 200         # in every family
        until(lambda: loaded(s) == [])
        assert ask(prompt="1")["response"] and loaded(s) == ["one"] and ask(keep_alive=0)["done_reason"] == "unload"
        until(lambda: loaded(s) == [])
        assert ask(keep_alive=0)["done_reason"] == "unload" and sum("ready: one" in line for line in s.said) == 3      # not loaded for that
        for wrong in ("soon", "5x", "1.2.3s", {}, ""):
            assert s.ask("/api/generate", {"model": "one", "prompt": "1", "keep_alive": wrong})[0] == 400
        assert s.metric("weft:answers_total") == 5           # of models that have gone, too


def test_models_that_come_and_go(weft, weft_env, models, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(models / "one.gguf", folder / "one.gguf")
    with Folder(weft, weft_env, folder) as s:
        assert s.ask("/v1/completions", {"prompt": "1", "max_tokens": 2})[1]["model"] == "one"       # the only one needs no name
        (folder / "new.gguf").write_bytes(b"GGUF")
        time.sleep(1.1)
        assert [m["id"] for m in s.ask("/v1/models")[1]["data"]] == ["one"]
        shutil.copy(models / "two.gguf", folder / "new.gguf")
        os.unlink(folder / "one.gguf")
        time.sleep(1.1)
        assert say(s, "new")[1]["choices"][0]["message"]["content"] == "I am two"
        assert say(s, "one")[0] == 200                       # it is in memory still
        assert s.ask("/api/generate", {"model": "one", "keep_alive": 0})[0] == 200
        until(lambda: loaded(s) == ["new"])
        time.sleep(1.1)
        assert say(s, "one")[0] == 404
        assert s.end() == 0


def test_several_of_the_command_line(weft, weft_env, models):
    with Server(weft, weft_env, models / "one.gguf", "-m", models / "two.gguf", "--alias", "first") as s:
        until(lambda: s.ask("/health")[0] == 200)
        assert loaded(s) == ["first", "two"]
        assert say(s, "first")[1]["choices"][0]["message"]["content"] == "I am one"
        assert s.ask("/v1/completions", {"prompt": "1", "max_tokens": 2})[1]["model"] == "first"      # who names none gets the first
        assert say(s, "one")[0] == 404 and say(s, "three")[0] == 404


def test_two_names(weft, weft_env, models):
    """llama-server's --alias a,b: the model is found by both, and /v1/models lists them."""
    with Server(weft, weft_env, models / "one.gguf", "--alias", "gpt-4o, gpt-4o-mini,") as s:
        assert loaded(s) == ["gpt-4o"] and s.ask("/v1/models")[1]["data"][0]["aliases"] == ["gpt-4o-mini"]
        for name in ("gpt-4o", "gpt-4o-mini", "gpt-4o-mini:latest"):
            assert say(s, name)[1]["choices"][0]["message"]["content"] == "I am one"
        assert s.ask("/api/show", {"model": "gpt-4o-mini"})[0] == 200


def test_a_load_that_fails(weft, weft_env, models, tmp_path):
    """What a look at the file does not show: those who wait are told, and others do not notice."""
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(models / "one.gguf", folder / "one.gguf")
    shutil.copy(models / "two.gguf", folder / "two.gguf")
    with Folder(weft, weft_env, folder, "-c", 1000) as s:
        assert say(s, "one")[0] == 200
        whole = (folder / "two.gguf").read_bytes()
        (folder / "two.gguf").write_bytes(whole[:len(whole) // 2])
        status, got = say(s, "two")
        assert status == 500 and "two" in got["error"]["message"] and say(s, "one")[0] == 200
        (folder / "two.gguf").write_bytes(whole)
        assert say(s, "two")[0] == 200


def test_several_files_of_one_name(weft, weft_env, models, tmp_path):
    """One is served, and the log says which is not; where it goes, the other has the name. A link to the folder itself is no second list."""
    folder = tmp_path / "models"
    for name, model in (("a", "one"), ("b", "two")):
        (folder / name).mkdir(parents=True)
        shutil.copy(models / f"{model}.gguf", folder / name / "same.gguf")
        shutil.copy(models / "three.gguf", folder / name / f"{name}.gguf")
    os.symlink("a", folder / "self")
    with Folder(weft, weft_env, folder, "-t", 1) as s:
        def ids():
            return sorted(m["id"] for m in s.ask("/v1/models")[1]["data"])
        assert ids() == ["a", "b", "same"] and say(s, "same")[1]["choices"][0]["message"]["content"] == "I am one"
        assert sum(f"{folder}/b/same.gguf: is not served: {folder}/a/same.gguf has the name 'same', too" in line for line in s.said) == 1
        s.ask("/api/generate", {"model": "same", "keep_alive": 0})
        until(lambda: not loaded(s))
        shutil.rmtree(folder / "a")
        (folder / "self").unlink()
        until(lambda: ids() == ["b", "same"])
        assert say(s, "same")[1]["choices"][0]["message"]["content"] == "I am two"


def test_a_log_is_no_model(run_weft, models, tmp_path):
    """A file of --models-dir that nobody reads yet is not appended to, under any name."""
    folder = tmp_path / "models"
    shutil.copytree(models, folder)
    os.symlink(folder / "one.gguf", tmp_path / "log")
    for name in folder / "one.gguf", tmp_path / "log":
        done = run_weft(["serve", "--models-dir", folder, "--port", 0, "--log-file", name])
        assert done.returncode == 1 and b"is a model: lines are not appended" in done.stderr, done.stderr
    assert (folder / "one.gguf").read_bytes() == (models / "one.gguf").read_bytes()


CUT = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "1"}]}, "/v1/completions": {"prompt": "a"}, "/tokenize": {"content": "a"},
       "/api/chat": {"messages": [{"role": "user", "content": "1"}]}, "/v1/messages": {"max_tokens": 3, "messages": [{"role": "user", "content": "1"}]}}


@pytest.mark.parametrize("path", CUT)
def test_a_file_that_is_cut_and_replaced(weft, weft_env, models, tmp_path, path):
    """A fault of the server, whose log has it; the next request has the file that is there then, which was not the case when it was only the client's."""
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(models / "one.gguf", folder / "one.gguf")
    with Folder(weft, weft_env, folder, "-t", 1) as s:
        assert say(s, "one")[0] == 200
        os.truncate(folder / "one.gguf", 100_000)
        status, got = s.ask(path, {"model": "one", **CUT[path]})
        assert status == 500 and "it was cut" in json.dumps(got), got
        until(lambda: any("it was cut" in line and "warning" in line for line in s.said))
        shutil.copy(models / "one.gguf", folder / "new")
        os.rename(folder / "new", folder / "one.gguf")
        assert say(s, "one")[1]["choices"][0]["message"]["content"] == "I am one"


def test_a_load_does_not_freeze_a_stream(weft, weft_env, make_gguf, tinypy, tmp_path):
    """While a model is compiled and loaded the tokens of another one go on coming."""
    folder = tmp_path / "models"
    folder.mkdir()
    os.symlink(make_gguf("tiny-llama:q4_0"), folder / "slow.gguf")
    os.symlink(tinypy, folder / "quick.gguf")
    with Folder(weft, {**weft_env, "WEFT_CACHE": "off"}, folder) as s:
        assert s.ask("/v1/completions", {"model": "quick", "prompt": "def ", "max_tokens": 400, "ignore_eos": True})[0] == 200
        came, done = [], threading.Event()

        def load():
            began = time.monotonic()
            assert s.ask("/v1/completions", {"model": "slow", "prompt": "a", "max_tokens": 1})[0] == 200
            came.append((began, time.monotonic()))
            done.set()

        import urllib.request
        body = json.dumps({"model": "quick", "prompt": "def ", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
        waiter, stamps = threading.Thread(target=load), []
        waiter.start()
        while not done.is_set():                             # answers of 400 tokens, one after another
            with urllib.request.urlopen(urllib.request.Request(s.url + "/v1/completions", body, {"Content-Type": "application/json"})) as got:
                stamps += [time.monotonic() for line in got if line.startswith(b"data: {")]
        waiter.join()
        began, ended = came[0]
        within = [began] + [t for t in stamps if began < t < ended] + [ended]
        largest = max(b - a for a, b in zip(within, within[1:]))
        assert ended - began > 0.5 and len(within) > 20 and largest < 0.7 * (ended - began), (ended - began, len(within), largest)
