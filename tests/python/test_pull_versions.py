"""A repository's next version has other files: its name stands for what it fetched last."""
import json
from pathlib import Path

import pytest
from serving import Server
from test_pull_folder import files_of, pull, store, written  # noqa: F401
from test_pull_origins import parts_of, registry  # noqa: F401

SAY = ["--ids", "3,5,7", "-n", "6", "--ignore-eos", "--temp", "0"]
FOLDER = "a folder"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory, run_weft):
    """Models that answer differently: their bytes, or files of a folder, and what they answer."""
    base = tmp_path_factory.mktemp("kinds")
    made = {}
    for kind in "qwen3", "llama", "gemma3", "olmo2":
        folder = written(base / kind, kind)
        assert run_weft(["convert", folder, base / f"{kind}.gguf"]).returncode == 0
        made[kind] = (base / f"{kind}.gguf").read_bytes()
    folder = written(base / "phi3", "phi3")
    made[FOLDER] = files_of(folder)
    out = {kind: run_weft(["run", "-m", base / ("phi3" if kind == FOLDER else f"{kind}.gguf"), *SAY]).out for kind in made}
    assert len(set(out.values())) == len(out) == 5 and all(out.values())
    return made, out


@pytest.fixture
def repo(pull, registry, kinds):
    class Repo:
        made, out = kinds

        def version(self, of):
            """of: a kind for each file, or FOLDER."""
            registry.others["u/c"] = self.made[FOLDER] if of == FOLDER else {path: self.made[kind] for path, kind in of.items()}

        def fetch(self, of, name="u/c", local=None):
            self.version(of)
            done = pull("pull", f"hf:{name}")
            assert done.returncode == 0, done.err
            assert local is None or done.err.splitlines()[-1].split()[1].endswith(local), done.err

        def runs(self, name, ways=None):
            """What each way of naming it runs: all the same, and nothing is fetched."""
            asked = len(registry.asked)
            ways = ways or [["-hf", name], ["-hf", name, "--offline"], [f"hf:{name}", "--offline"], [f"hf:{name}"], [name], ["-m", name]]
            said = [pull("run", *way, *SAY) for way in ways]
            assert len(registry.asked) == asked and all(s.returncode == 0 for s in said), [s.err for s in said]
            got = {next((k for k, o in self.out.items() if o == s.out), s.out) for s in said}
            assert len(got) == 1, got
            return got.pop()

        def unknown(self, name):
            done = pull("run", "-hf", name, "--offline", *SAY)
            assert done.returncode == 1 and "it was not fetched before" in done.err, (done.err, done.out)
    return Repo()


Q8, Q4, BOTH = {"m-Q8_0.gguf": "qwen3"}, {"m-Q4_K_M.gguf": "llama"}, {"m-Q8_0.gguf": "gemma3", "m-Q4_K_M.gguf": "olmo2"}


@pytest.mark.parametrize("versions, names", [
    ([Q8, FOLDER, Q8, FOLDER], ["qwen3", FOLDER, "qwen3", FOLDER]),
    ([FOLDER, Q4, FOLDER], [FOLDER, "llama", FOLDER]),
    ([Q4, Q8, BOTH, Q8], ["llama", "qwen3", "olmo2", "qwen3"]),
    ([{"a.gguf": "qwen3"}, {"b.gguf": "llama"}, {"a.gguf": "gemma3"}], ["qwen3", "llama", "gemma3"]),
    ([{"x/m-Q8_0.gguf": "qwen3"}, {"m-Q8_0.gguf": "llama"}, {"x/m-Q8_0.gguf": "qwen3"}], ["qwen3", "llama", "qwen3"])])
def test_the_last_version(repo, versions, names):
    for version, name in zip(versions, names, strict=True):
        repo.fetch(version)
        assert repo.runs("u/c") == name == repo.runs("u/c:latest")


def test_a_type_names_its_own(pull, repo, store):
    """What was fetched by one name changes nothing for another one."""
    repo.fetch(Q8, "u/c:Q8_0")
    assert repo.runs("u/c:q8_0") == repo.runs("u/c") == "qwen3"                # u/c was never fetched as such: any file
    repo.fetch(FOLDER)
    assert repo.runs("u/c") == FOLDER and repo.runs("u/c:Q8_0") == "qwen3"
    repo.fetch(BOTH, "u/c:Q4_K_M")
    assert repo.runs("u/c") == FOLDER and repo.runs("u/c:Q8_0") == "qwen3" and repo.runs("u/c:Q4_K_M") == "olmo2"
    repo.fetch(BOTH, "u/c")
    assert repo.runs("u/c") == "olmo2"
    repo.fetch({"n-Q8_0.gguf": "llama"}, "u/c:q8_0")
    assert repo.runs("u/c:Q8_0") == "llama" and repo.runs("u/c") == "olmo2"
    repo.fetch({"m-Q8_0.gguf": "qwen3", "b-Q4_K_M.gguf": "gemma3"}, "u/c:Q8_0")
    assert repo.runs("u/c:Q8_0") == "qwen3"


def test_hf_fetches_it_as_well(pull, registry, repo, store):
    """A file that was fetched by -hf, then removed by hand, so that -hf fetches the newer version."""
    repo.version(Q4)
    assert pull("run", "-hf", "u/c", *SAY).out == repo.out["llama"]
    (store / "u_c_m-Q4_K_M.gguf").rename(store / "kept.gguf")
    repo.version(Q8)
    assert pull("run", "-hf", "u/c", *SAY).out == repo.out["qwen3"]
    (store / "kept.gguf").rename(store / "u_c_m-Q4_K_M.gguf")
    assert repo.runs("u/c") == "qwen3"


def test_rm_removes_what_is_meant(pull, repo, store):
    """The older version stays, and is not taken for the newer one."""
    repo.fetch(Q8)
    repo.fetch(FOLDER)
    assert pull("rm", "hf:u/c", "-y").returncode == 0
    assert not (store / "u_c").exists() and (store / "u_c_m-Q8_0.gguf").exists()
    repo.unknown("u/c")
    for name in "hf:u/c", "u/c":
        none = pull("rm", name, "-y")
        assert none.returncode == 1 and "there is no model" in none.err
    assert repo.runs("u/c:Q8_0") == "qwen3" and repo.runs(None, [["u_c_m-Q8_0"], ["-m", store / "u_c_m-Q8_0.gguf"]]) == "qwen3"
    assert pull("run", "-hf", "u/c", *SAY).out == repo.out[FOLDER]             # fetched again
    assert repo.runs("u/c") == FOLDER
    assert pull("rm", "u_c_m-Q8_0", "-y").returncode == 0 and repo.runs("u/c") == FOLDER
    assert pull("rm", "u_c", "-y").returncode == 0 and not list(store.iterdir())


def test_rm_of_one_of_two(pull, repo, store):
    """No version has changed: the other one is taken, as before."""
    repo.fetch(BOTH)
    repo.fetch(BOTH, "u/c:Q8_0")
    assert repo.runs("u/c") == "olmo2"
    assert pull("rm", "u/c", "-y").returncode == 0 and repo.runs("u/c") == "gemma3" and not (store / "u=c.name").exists()
    assert pull("rm", "u/c", "-y").returncode == 0 and not list(store.iterdir())


def test_a_store_without_notes(pull, repo, store):
    """As an older program leaves it: names lead to what they led to, until they are fetched again."""
    for version, name in ((Q8, "u/c:Q8_0"), (Q4, "u/c:Q4_K_M"), (FOLDER, "u/c")):
        repo.fetch(version, name)
    for note in store.glob("*.name"):
        note.unlink()
    assert repo.runs("u/c") == "llama" and repo.runs("u/c:Q8_0") == "qwen3"
    repo.fetch(FOLDER)
    assert repo.runs("u/c") == FOLDER and repo.runs("u/c:Q8_0") == "qwen3"
    assert pull("rm", "u/c", "-y").returncode == 0
    repo.unknown("u/c")


@pytest.mark.parametrize("note", ["", "hf:u/c\n", "hf:u/c\nu_c_m-Q8_0.gguf", "hf:U/c\nu_c_m-Q8_0.gguf\n", "hf:u/c\nnone.gguf\n", "hf:u/c\nu_c/../x.gguf\n", "hf:u/c\nu_c_gone.gguf\n", "\0" * 3000, "hf:u/c\nu_c_m-Q8_0.gguf\nmore\n" * 500])
def test_notes_that_say_nothing(pull, repo, store, note):
    repo.fetch(Q4)
    (store / "x.gguf").write_bytes(repo.made["gemma3"])
    (store / "u=c.name").write_text(note)
    assert repo.runs("u/c") == "llama"
    repo.fetch(Q8)
    assert repo.runs("u/c") == "qwen3"
    assert pull("rm", "x", "-y").returncode == 0


def test_notes_that_are_no_files(pull, repo, store, tmp_path):
    repo.fetch(Q4)
    (store / "u=c.name").unlink()
    (store / "u=c.name").mkdir()
    repo.version(Q8)
    done = pull("pull", "u/c")
    assert done.returncode == 0 and "which model hf:u/c stands for is not noted" in done.err
    assert repo.runs("u/c") == "llama"


def test_another_repository_of_that_name_here(pull, registry, repo, store):
    """The file that a note names has become that of u_c/d."""
    registry.others["u/c_d"] = {"m-Q8_0.gguf": repo.made["qwen3"]}
    registry.others["u_c/d"] = {"m-Q8_0.gguf": repo.made["llama"]}
    for name, kind in ("u/c_d", "qwen3"), ("u_c/d", "llama"), ("u/c_d", "qwen3"):
        assert pull("pull", name).returncode == 0 and repo.runs(name) == kind
    repo.unknown("u_c/d")
    registry.others["u/c_d"] = repo.made[FOLDER]
    assert pull("pull", "u/c_d").returncode == 0 and repo.runs("u/c_d") == FOLDER
    registry.others["u_c/d"] = {"m-Q8_0.gguf": repo.made["llama"]}
    assert pull("pull", "u_c/d").returncode == 0 and repo.runs("u_c/d") == "llama" and repo.runs("u/c_d") == FOLDER


def test_an_end_before_all_is_there(pull, registry, repo):
    """The older version goes on until all of the newer one is there."""
    repo.fetch(Q8)
    repo.version(FOLDER)
    registry.lost = {"config.json"}
    assert pull("pull", "u/c").returncode == 1 and repo.runs("u/c") == "qwen3"
    registry.lost = set()
    repo.fetch(FOLDER)
    assert repo.runs("u/c") == FOLDER
    repo.version(Q4)
    registry.lost = {"m-Q4_K_M.gguf"}
    assert pull("pull", "u/c").returncode == 1 and repo.runs("u/c") == FOLDER


def test_other_numbers_of_parts(pull, registry, repo, store, tinypy, tmp_path):
    """One file, two parts, three parts of one name: none is mixed with another one."""
    def answer(*model):
        done = pull("run", *model, "-p", "def f(", "-n", "4", "--temp", "0")
        assert done.returncode == 0, done.err
        return done.out

    for n in 2, 3:
        (tmp_path / f"v{n}").mkdir()
    versions = [{"m.gguf": Path(tinypy).read_bytes()}] + [parts_of(tmp_path / f"v{n}", tinypy, n=n, seed=n) for n in (2, 3)]
    wants = []
    for i in 0, 1, 2, 1, 0, 2, 0:
        registry.others["u/c"] = versions[i]
        assert pull("pull", "u/c").returncode == 0
        want = answer("-m", store / f"u_c_{sorted(versions[i])[0]}")
        assert answer("-hf", "u/c") == answer("-hf", "u/c", "--offline") == answer("u/c") == want
        wants.append(want)
    assert len(set(wants)) == 3
    rows = json.loads(pull("list", "--json").out)
    assert [(row["name"], row["bytes"], row["whole"]) for row in rows] == [
        (name, sum(map(len, version.values())), True) for name, version in zip(("u_c_m", "u_c_m-00001-of-00002", "u_c_m-00001-of-00003"), versions, strict=True)]
    assert [answer(row["name"]) for row in rows] == wants[:3]
    (store / "u_c_m-00002-of-00003.gguf").unlink()
    assert [row["whole"] for row in json.loads(pull("list", "--json").out)] == [True, True, False]
    assert pull("rm", "u_c_m-00001-of-00003", "-y").returncode == 0 and not list(store.glob("*-of-00003*")) and answer("u/c") == wants[0]
    assert pull("rm", "u/c", "-y").returncode == 0 and not (store / "u_c_m.gguf").exists()
    repo.unknown("u/c")
    assert [row["name"] for row in json.loads(pull("list", "--json").out)] == ["u_c_m"] and answer("u_c_m") == wants[1]
    assert pull("rm", "u_c_m", "-y").returncode == 0 and not list(store.iterdir())


def test_a_file_by_name(pull, registry, repo, store, tinypy, tmp_path):
    """-hff, also of the first part of several, whatever other versions are there."""
    parts = parts_of(tmp_path, tinypy, n=2)
    first, second = sorted(parts)
    registry.others["u/c"] = {**parts, "m.gguf": Path(tinypy).read_bytes()}
    for file in first, "m.gguf", first:
        ask = ["run", "-hf", "u/c", "-hff", file, "-p", "def f(", "-n", "2", "--temp", "0"]
        done = pull(*ask)
        assert done.returncode == 0, done.err
        asked = len(registry.asked)
        assert pull(*ask, "--offline").out == pull(*ask).out == done.out == pull("run", "-m", store / f"u_c_{file}", *ask[5:]).out and len(registry.asked) == asked
    (store / f"u_c_{second}").unlink()
    assert pull(*ask, "--offline").returncode == 1 and pull("run", "-hf", "u/c", "--offline", *ask[5:]).returncode == 0


def test_drafts_and_the_server(pull, weft, weft_env, registry, repo, store):
    repo.fetch(Q8)
    repo.fetch(FOLDER)
    env = {**weft_env, "LLAMA_CACHE": str(store), "HF_ENDPOINT": registry.url}
    for args in ["-hf", "u/c"], ["-hf", "u/c", "--offline"], ["-m", "hf:u/c"], ["-m", "u/c"]:
        with Server(weft, env, None, *args) as s:
            assert [m["id"] for m in s.ask("/v1/models")[1]["data"]] == ["u_c"], args
    with Server(weft, env, None) as s:                                          # all that is here, by its names here
        assert [m["id"] for m in s.ask("/v1/models")[1]["data"]] == ["u_c", "u_c_m-Q8_0"]
    assert sorted(row["name"] for row in json.loads(pull("list", "--json").out)) == ["u_c", "u_c_m-Q8_0"]
    same = pull("run", "-m", store / "u_c", "-hfd", "u/c", "--offline", *SAY)
    assert same.returncode == 0 and same.out == repo.out[FOLDER], same.err


def test_encoders_of_versions(pull, registry, repo, store):
    """A newer version's encoder belongs to the file that it has; a folder has none."""
    registry.others["u/c"] = {"m-Q8_0.gguf": repo.made["qwen3"], "mmproj-F16.gguf": b"GGUF of a first one"}
    assert pull("pull", "u/c").returncode == 0
    registry.others["u/c"] = repo.made[FOLDER]
    assert pull("pull", "u/c").returncode == 0 and (store / "u_c.mmproj").read_text() == "-\n"
    registry.others["u/c"] = {"m-Q4_K_M.gguf": repo.made["llama"], "mmproj-b-F16.gguf": b"GGUF of a second one"}
    assert pull("pull", "u/c").returncode == 0 and repo.runs("u/c") == "llama"
    assert (store / "u_c_m-Q4_K_M.gguf.mmproj").read_text() == "u_c_mmproj-b-F16.gguf\n"
    assert pull("rm", "u/c", "-y").returncode == 0
    assert not (store / "u_c_mmproj-b-F16.gguf").exists() and (store / "u_c_mmproj-F16.gguf").exists()
    repo.unknown("u/c")
