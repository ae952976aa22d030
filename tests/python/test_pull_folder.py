"""Repositories of Hugging Face without a GGUF file: their files become a folder, on every command and behind the server."""
import fcntl
import hashlib
import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SANITIZED, load_tool
from registry import Registry
from serving import Server

folders = load_tool("make_folder")
RECORDS = Path(__file__).resolve().parents[1] / "records" / "folders"
# what published repositories have besides
OTHERS = {"README.md": b"# a model", ".gitattributes": b"*", "pytorch_model.bin": b"PK", "original/consolidated.00.safetensors": b"no", "onnx/model.onnx": b"no",
          "onnx/config.json": b"{}", "consolidated.safetensors": b"no", "special_tokens_map.json": b"{}", "figures/model.safetensors": b"no"}


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def written(folder, kind="qwen3", **more):
    return folders.write(folder, json.loads((RECORDS / f"{kind}.json").read_text(encoding="utf-8")), **more)


@pytest.fixture
def source(tmp_path):
    return written(tmp_path / "source" / "small")


@pytest.fixture
def registry(source):
    r = Registry({})
    r.others = {"me/small": {**OTHERS, **files_of(source)}}
    yield r
    r.close()


@pytest.fixture
def store(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def pull(run_weft, registry, store):
    def run(*args, **more):
        return run_weft(args, env={"HF_ENDPOINT": registry.url, "LLAMA_CACHE": store, "HF_TOKEN": None, **more.pop("env", {})}, **more)
    return run


def fetched(store, name="me_small"):
    """The files without the notes beside them."""
    return {path: data for path, data in files_of(store / name).items() if not path.endswith((".from", ".etag"))}


SAY = ["--ids", "3,5,7", "-n", "12", "--ignore-eos", "--temp", "0"]


def test_it_runs_as_its_folder_does(pull, run_weft, registry, store, source):
    expected = run_weft(["run", "-m", source, *SAY])
    done = pull("run", "-hf", "me/small", *SAY)
    assert expected.returncode == done.returncode == 0 and done.stdout == expected.stdout, done.err
    assert fetched(store) == files_of(source)
    row, = json.loads(pull("list", "--json").out)
    assert row["name"] == "me_small" and row["path"] == str(store / "me_small") and row["whole"] and row["bytes"] > sum(map(len, files_of(source).values()))
    again = pull("pull", "me/small")
    assert again.returncode == 0 and f"{store / 'me_small'} is there" in again.err
    asked = len(registry.asked)
    for name in ["-hf", "me/small"], ["-m", "hf:me/small"], ["-m", "me_small"], ["me/small"]:
        assert pull("run", *name, *SAY).stdout == expected.stdout
    assert pull("run", "--offline", "-hf", "me/small", *SAY).stdout == expected.stdout and len(registry.asked) == asked
    removed = pull("rm", "me/small", "--yes")
    assert removed.returncode == 0 and not list(store.iterdir()), removed.err


def test_a_file_in_parts(pull, store, registry, source):
    """The index says which files there are; others are left out."""
    whole = files_of(source)
    data = whole.pop("model.safetensors")
    names = [k for k in json.loads(data[8:8 + int.from_bytes(data[:8], "little")]) if k != "__metadata__"]
    index = json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}).encode()
    registry.others["me/small"] = {**OTHERS, **whole, "model-00001-of-00001.safetensors": data, "model.fp32.safetensors": data, "model.safetensors.index.json": index}
    done = pull("run", "-hf", "me/small", *SAY)
    assert done.returncode == 0, done.err
    assert set(fetched(store)) == {*whole, "model-00001-of-00001.safetensors", "model.safetensors.index.json"}


def test_a_newer_version_takes_the_place_of_the_older(pull, store, registry, source, tmp_path):
    """Files of equal size with other content, files with other names, files that are gone."""
    registry.others["me/small"]["chat_template.jinja"] = b"{{ messages[0].content }}"
    assert pull("pull", "me/small").returncode == 0
    (store / "me_small" / "notes.txt").write_text("mine")
    now = dict(registry.others["me/small"])
    del now["chat_template.jinja"]
    now["model-00001-of-00001.safetensors"] = now.pop("model.safetensors")
    now["generation_config.json"] = b'{"top_k": 11}'
    now["config.json"] = now["config.json"].replace(b"1e-06", b"1e-05")
    assert now["config.json"] != registry.others["me/small"]["config.json"]
    registry.others["me/small"] = now
    done = pull("pull", "me/small")
    assert done.returncode == 0, done.err
    mine = fetched(store)
    assert mine.pop("notes.txt") == b"mine" and mine == {path: now[path] for path in mine}
    assert "config.json" in mine and "model-00001-of-00001.safetensors" in mine and "model.safetensors" not in mine and "chat_template.jinja" not in mine
    assert not list((store / "me_small").glob("model.safetensors*")) and not list((store / "me_small").glob("chat_template*"))


def test_a_download_that_ends_early(pull, store, registry, source):
    registry.lost = {"model.safetensors"}
    done = pull("pull", "me/small")
    assert done.returncode == 1 and "404" in done.err
    row, = json.loads(pull("list", "--json").out)
    assert not row["whole"] and not (store / "me_small" / "config.json").exists()
    offline = pull("run", "--offline", "-hf", "me/small", *SAY)
    assert offline.returncode == 1 and "was not fetched before" in offline.err
    assert pull("serve", "--port", "0").returncode == 2                     # nothing to serve
    registry.lost = {"chat_template.jinja"}                                 # it is there
    done = pull("run", "-hf", "me/small", *SAY)
    assert done.returncode == 0 and fetched(store) == files_of(source), done.err
    assert sum(path.endswith("chat_template.jinja") for path, _ in registry.asked) == 1


def test_what_is_not_read_is_refused_first(pull, store, registry):
    """Before any weights are fetched."""
    files = registry.others["me/small"]
    files["config.json"] = files["config.json"].replace(b"Qwen3ForCausalLM", b"SomethingForCausalLM")
    done = pull("run", "-hf", "me/small", *SAY)
    assert done.returncode == 1 and "me/small has no GGUF file" in done.err and "config.json: key 'architectures': folders of SomethingForCausalLM are not read" in done.err
    assert not any("safetensors" in path for path, _ in registry.asked) and not store.exists()


@pytest.mark.parametrize("change, expected", [
    (lambda f: f.pop("model.safetensors"), "has neither a GGUF file nor a model of transformers (config.json, model.safetensors): another repository may have one, such as USER/small-GGUF"),
    (lambda f: f.pop("config.json"), "has neither a GGUF file nor a model of transformers"),
    (lambda f: f.update({"model.safetensors.index.json": b'{"weight_map": {"a": "model-00002-of-00002.safetensors"}}'}), "lacks model-00002-of-00002.safetensors, which its model.safetensors.index.json names"),
    (lambda f: f.update({"model.safetensors.index.json": b'{"weight_map": {"a": "../x.safetensors"}}', "../x.safetensors": b"x"}), "lacks ../x.safetensors, which"),
    (lambda f: f.update({"model.safetensors.index.json": b'{"weight_map": {"a": "original/consolidated.00.safetensors"}}'}), "lacks original/consolidated.00.safetensors"),
    (lambda f: f.update({"model.safetensors.index.json": b"[]"}), "not a JSON object"),
    (lambda f: f.update({"config.json": b"<html>"}), "not a JSON object"),
    (lambda f: f.update({"config.json": b"{}"}), "config.json: key 'architectures': is missing, or names no class"),
], ids=range(8))
def test_repositories_that_are_none(pull, store, registry, change, expected):
    change(registry.others["me/small"])
    done = pull("pull", "me/small")
    assert done.returncode == 1 and expected in done.err, done.err
    assert not list(store.glob("*/*.safetensors"))


def test_names_that_lead_elsewhere(pull, store, registry, source, tmp_path):
    evil = {path: b"evil" for path in ("../config.json", "/etc/config.json", "../../config.json", "a/../tokenizer.json", "..model.safetensors", "x/1_Pooling/config.json",
                                       "../1_Pooling/config.json", "/1_Pooling/config.json", "model\n.safetensors", "._Pooling/config.json")}
    registry.others["me/small"].update(evil)
    done = pull("pull", "me/small")
    assert done.returncode == 0 and fetched(store) == files_of(source), done.err
    assert b"evil" not in {p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_what_is_in_the_way(pull, weft, weft_env, store, registry):
    """A folder of the user's own stays; one that is only partly there is not served, and rm of it leaves nothing."""
    mine = store / "me_small"
    mine.mkdir(parents=True)
    (mine / "config.json").write_text("mine")
    done = pull("pull", "me/small")
    assert done.returncode == 1 and "is in the way of the model's folder, and was not fetched" in done.err and fetched(store) == {"config.json": b"mine"}
    (mine / "config.json").unlink()
    mine.rmdir()
    assert pull("pull", "me/small").returncode == 0
    registry.others["me/small"]["chat_template.jinja"] += b" "
    registry.others["me/small"]["tokenizer.json"] += b" "
    registry.lost = {"tokenizer.json"}
    assert pull("pull", "me/small").returncode == 1 and (mine / "config.json").exists()
    with Server(weft, weft_env, None, "--models-dir", str(store)) as s:
        assert s.ask("/v1/models")[1]["data"] == []
    assert pull("rm", "me_small", "--yes").returncode == 0 and not list(store.iterdir())


def test_an_encoder_that_cannot_have_its_name_here(pull, store, registry, tinypy):
    registry.others["me/small"] = {"small.gguf": Path(tinypy).read_bytes(), "mmproj,f16.gguf": b"GGUF"}
    done = pull("run", "-hf", "me/small", "-p", "def", "-n", "2")
    assert done.returncode == 0, done.err
    done = pull("pull", "me/small")
    assert done.returncode == 0 and "its encoder is left out: 'me_small_mmproj,f16.gguf' cannot be the name of a file here" in done.err
    assert {p.name for p in store.iterdir()} <= {"me=small.name", "me_small_small.gguf", "me_small_small.gguf.from", "me_small_small.gguf.mmproj"} and len(list(store.parent.iterdir())) <= 3


def test_a_type_is_one_of_gguf_files(pull, registry):
    done = pull("run", "-hf", "me/small:Q8_0", *SAY)
    assert done.returncode == 1 and "me/small has no GGUF file, so none of Q8_0; me/small without it names the model as it is" in done.err
    done = pull("run", "-hf", "me/small", "-hff", "x.gguf", *SAY)
    assert done.returncode == 1 and "me/small has no file x.gguf; it has no GGUF file" in done.err


def test_two_repositories_of_one_name_here(pull, store, registry, source):
    """me_a/b and me/a_b are one folder here: the last one that was fetched."""
    other = written(source.parent / "other", "llama")
    registry.others = {"me/a_b": files_of(source), "me_a/b": files_of(other)}
    for name, expected in ("me/a_b", source), ("me_a/b", other), ("me/a_b", source):
        assert pull("run", "-hf", name, *SAY).returncode == 0
        assert {path: hashlib.sha256(data).hexdigest() for path, data in fetched(store, "me_a_b").items()} == {path: hashlib.sha256(data).hexdigest() for path, data in files_of(expected).items()}


class Late(dict):
    """Files of a repository; before one of them is sent for the nth time, something else happens."""

    def meanwhile(self, path, nth, act):
        self.path, self.left, self.act = path, nth, act
        return self

    def __getitem__(self, path):
        if path == self.path:
            self.left -= 1
            if not self.left:
                self.act()
        return super().__getitem__(path)


def test_two_at_once_of_one_name_here(pull, store, registry, source):
    """The files have equal sizes. What comes second changes nothing."""
    theirs, said = files_of(source), []
    registry.others["me_a/b"] = {path: data.replace(b"1e-06", b"1e-05") if path == "config.json" else data if "safetensors" in path else data.replace(b"e", b"E", 1) for path, data in theirs.items()}
    for path in theirs:
        shutil.rmtree(store, ignore_errors=True)
        said.clear()
        nth = 3 if path == "config.json" else 1         # config.json is sent before, to check the class; a file is read twice to send it
        registry.others["me/a_b"] = Late(theirs).meanwhile(path, nth, lambda: said.append(pull("pull", "me_a/b")))
        first = pull("pull", "me/a_b")
        assert first.returncode == 0 and fetched(store, "me_a_b") == theirs, (path, first.err)
        assert said[0].returncode == 1 and f"{store / 'me_a_b'} is being fetched or removed by another program just now" in said[0].err, (path, said[0].err)
        assert not list(store.glob("*.lock")), path


def test_two_at_once_of_files_of_one_name(pull, store, registry, tinypy):
    """Parts of a model."""
    data, said = Path(tinypy).read_bytes(), []
    names = [f"x-{i:05}-of-00002.gguf" for i in (1, 2)]
    registry.others = {"u_m/v2": {name: data[:-1] + b"x" for name in names}, "u/m_v2": Late(dict.fromkeys(names, data)).meanwhile(names[1], 1, lambda: said.append(pull("pull", "hf:u_m/v2")))}
    first = pull("pull", "hf:u/m_v2")
    assert first.returncode == 0 and said[0].returncode == 1 and "u_m_v2_x-00001-of-00002.gguf is being fetched or removed by another program just now" in said[0].err
    assert [(store / f"u_m_v2_{name}").read_bytes() for name in names] == [data, data] and not list(store.glob("*.lock"))


def test_two_at_once_with_one_encoder(pull, weft, weft_env, store, registry, tinypy, tmp_path):
    """Two models of a repository: what comes second waits for the encoder, which is fetched once."""
    data, others = Path(tinypy).read_bytes(), []
    log = tmp_path / "second.txt"

    def second():
        env = {k: v for k, v in weft_env.items() if k != "HF_TOKEN"} | {"HF_ENDPOINT": registry.url, "LLAMA_CACHE": str(store)}
        with open(log, "wb") as out:
            others.append(subprocess.Popen([weft, "pull", "hf:u/m:Q8_0"], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        while b"waiting for another program" not in log.read_bytes() and others[0].poll() is None:
            time.sleep(0.05)

    registry.others["u/m"] = Late({"m-Q4_0.gguf": data, "m-Q8_0.gguf": data + b"x", "mmproj-F16.gguf": b"GGUF and more"}).meanwhile("mmproj-F16.gguf", 1, second)
    first = pull("pull", "hf:u/m:Q4_0")
    assert first.returncode == 0 and others[0].wait(60) == 0, (first.err, log.read_text())
    said = log.read_text()
    assert f"waiting for another program, which fetches {store / 'u_m_mmproj-F16.gguf'}" in said and f"{store / 'u_m_mmproj-F16.gguf'} is there" in said, said
    assert sorted(p.name for p in store.glob("*.gguf")) == ["u_m_m-Q4_0.gguf", "u_m_m-Q8_0.gguf", "u_m_mmproj-F16.gguf"] and not list(store.glob("*.lock"))
    assert [len([asked for asked in registry.asked if asked[0].endswith(name)]) for name in ("m-Q4_0.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf")] == [1, 1, 1], registry.asked


def test_an_encoder_with_the_models_name_here(pull, store, registry, tinypy):
    """In a store the names of folders are parts of a file's: the lock of the one would be waited for by the other, for ever."""
    data = Path(tinypy).read_bytes()
    registry.others["u/m"] = {"mmproj/F16.gguf": data, "mmproj_F16.gguf": b"GGUF and more"}
    done = pull("pull", "hf:u/m", timeout=60)
    assert done.returncode == 0 and "its encoder is left out: mmproj/F16.gguf and mmproj_F16.gguf have one name here" in done.err, done.err
    assert (store / "u_m_mmproj_F16.gguf").read_bytes() == data


def test_locks(pull, store, source):
    """One that a dead program left is no obstacle; a pipe, a link or a folder in its place is named and not waited for."""
    store.mkdir()
    lock = store / "me_small.from.lock"
    lock.touch()
    assert pull("pull", "me/small").returncode == 0 and not lock.exists()
    with open(lock, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for args in ["pull", "me/small"], ["rm", "me_small", "--yes"]:
            done = pull(*args)
            assert done.returncode == 1 and "is being fetched or removed by another program just now" in done.err and lock.exists(), done.err
        done = pull("run", "-hf", "me/small", *SAY)             # it is there
        assert done.returncode == 0, done.err
    lock.unlink()
    for make in lambda: os.mkfifo(lock), lambda: lock.symlink_to(store / "nothing"), lock.mkdir:
        make()
        done = pull("pull", "me/small", timeout=20)
        assert done.returncode == 1 and f"{lock}: " in done.err and not (store / "nothing").exists(), done.err
        lock.rmdir() if lock.is_dir() else lock.unlink()
    assert fetched(store) == files_of(source)


def seconds_of(act):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    act()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def test_an_index_of_many_files(pull, registry):
    """Each of its names is looked for in a list that is as long: 20,000 names took 10 s."""
    names = [f"model-{i:05}-of-20000.safetensors" for i in range(20000)]
    registry.others["me/small"] = {**dict.fromkeys(names, b""), "model.safetensors.index.json": json.dumps({"weight_map": dict(zip(names, names, strict=True))}).encode()}

    def act():
        done = pull("pull", "me/small")
        assert done.returncode == 1 and "has neither a GGUF file nor a model of transformers" in done.err, done.err
    assert seconds_of(act) < (20 if SANITIZED else 4)


def test_parts_that_are_many(pull, registry):
    """Likewise, for files in parts: the last one is not there."""
    registry.others["me/small"] = {f"x-{i:05}-of-20000.gguf": b"" for i in range(1, 20000)}

    def act():
        done = pull("pull", "me/small")
        assert done.returncode == 1 and "me/small lacks x-20000-of-20000.gguf" in done.err, done.err
    assert seconds_of(act) < (20 if SANITIZED else 4)


def test_a_gguf_file_comes_first(pull, store, registry, tinypy):
    registry.others["me/small"]["small-Q8_0.gguf"] = Path(tinypy).read_bytes()
    assert pull("pull", "me/small").returncode == 0
    assert (store / "me_small_small-Q8_0.gguf").exists() and not (store / "me_small").exists()


def test_an_encoder_of_texts(pull, store, registry, tmp_path, run_weft):
    """Its folder has another one inside, which says how rows become a vector."""
    folder = written(tmp_path / "encoder", "bert")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": json.loads((folder / "config.json").read_text())["hidden_size"], "pooling_mode_mean_tokens": True}))
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                                                     {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
    registry.others["me/vectors"] = {**OTHERS, **files_of(folder)}
    done, expected = pull("embed", "-hf", "me/vectors", "-p", "some text"), run_weft(["embed", "-m", folder, "-p", "some text"])
    assert done.returncode == expected.returncode == 0 and done.stdout == expected.stdout and done.stdout, done.err
    assert fetched(store, "me_vectors") == files_of(folder)
    assert pull("rm", "me_vectors", "--yes").returncode == 0 and not list(store.iterdir())


def test_the_server_has_it(pull, weft, weft_env, store, registry, source, tmp_path):
    """Without a model all that was fetched is served; folders of a folder of models, too."""
    assert pull("pull", "me/small").returncode == 0
    ask = {"prompt": [3, 5, 7], "n_predict": 12, "temperature": 0, "ignore_eos": True}
    answers = []
    for args in [], ["--models-dir", str(source.parent)], ["-hf", "me/small"]:
        with Server(weft, {**weft_env, "LLAMA_CACHE": str(store), "HF_ENDPOINT": registry.url}, None, *args) as s:
            names = [m["id"] for m in s.ask("/v1/models")[1]["data"]]
            assert len(names) == 1 and names[0] == ("small" if "--models-dir" in args else "me_small"), names
            status, got = s.ask("/completion", {**ask, "model": names[0]})
            assert status == 200, got
            answers.append(got["content"])
    assert answers[0] == answers[1] == answers[2]
