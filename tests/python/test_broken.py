"""Invariants that are broken on purpose, and model files that nobody would write: an error of that model, and the program goes on."""
import concurrent.futures as futures
import os
import re
import shutil
import subprocess

import pytest
from conftest import load_tool
from serving import TEMPLATE, Server, until

mutants = load_tool("mutants")


def place(repo, path, text):
    """FILE:LINE of the check with this text, as WEFT_DIE names it."""
    lines = (repo / "src" / path).read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if text in line)
    while not re.search(r"\b(die|fail)_if\(", lines[at]):
        at -= 1
    return f"{os.path.basename(path)}:{at + 1}"


# ---- invariants ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("cached,first,every", [(True, 0, 3), (False, 44, 40)])
def test_every_check(built_tool, weft_env, tinypy, cached, first, every):
    """While a model is opened and evaluated (in libweft, beside another one): an error each time, and no memory and no descriptor is lost.
    WEFT_BREAK_ALL=1 tries every check."""
    first, every = (0, 1) if os.environ.get("WEFT_BREAK_ALL") else (first, every)
    env = weft_env if cached else {**weft_env, "WEFT_CACHE": "off"}
    tool = built_tool("broken_tool", "WEFT_BROKEN_TOOL")
    if cached:
        subprocess.run([tool, tinypy, "0", "1000"], env=env, capture_output=True, check=False)
    done = subprocess.run([tool, tinypy, str(first), str(every)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    n, again, blocks, size, descriptors = map(int, re.search(r"(\d+) places, (\d+) times made again; .* (-?\d+) blocks, (-?\d+) bytes and (-?\d+) desc", done.stdout).groups())
    assert n > 20 and again * every <= 24 and blocks <= 0 and size <= 4096 and descriptors <= 0, done.stdout


@pytest.mark.parametrize("file,text,about", [
    ("graph/shape.c", "BITCAST of a last axis that does not fit", "while tensor '"),
    ("device/code.c", "code: a blob of ", "kernel "),                       # on a thread that compiles
    ("codegen/descriptor.c", "has too long a name", "the feature "),         # while the device is opened
])
def test_a_command_says_so(run_weft, repo, tinypy, file, text, about):
    at = place(repo, file, text)
    done = run_weft(["run", "-m", tinypy, "-p", "def ", "-n", "2"], env={"WEFT_DIE": at, "WEFT_CACHE": "off"})
    assert done.returncode == 1 and not done.stdout
    assert str(tinypy) in done.err or "descriptor" in at
    assert "internal error at " in done.err and f"{at}: " in done.err and text in done.err and about in done.err


class Folder(Server):
    def __init__(self, weft, env, folder, die):
        super().__init__(weft, {**env, "WEFT_DIE": die}, None, "--models-dir", folder, "--chat-template", TEMPLATE, "-c", "512")


@pytest.fixture
def folder(tmp_path, tinypy):
    for name in ("good", "worse"):
        shutil.copy(tinypy, tmp_path / f"{name}.gguf")
    return tmp_path


def ask(s, model, tokens=4, **more):
    return s.ask("/v1/completions", {"model": model, "prompt": "def ", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more})


def status(s, model):
    return next(m["status"] for m in s.ask("/models")[1]["data"] if m["id"] == model)


def test_while_a_model_is_loaded(weft, weft_env, repo, folder):
    """Both files are looked at and one is loaded; the other one's load breaks while that one answers, and is whole when it is tried again."""
    with Folder(weft, weft_env, folder, place(repo, "model/model.c", "layers have more than") + ":4") as s, futures.ThreadPoolExecutor(1) as pool:
        code, first = ask(s, "good")
        assert code == 200
        under_way = pool.submit(ask, s, "good", 300)
        code, answer = ask(s, "worse")
        assert code == 500 and "worse.gguf: internal error at " in answer["error"]["message"], answer
        shown = status(s, "worse")
        assert shown["failed"] is True and "internal error at " in shown["error"] and "error" not in status(s, "good")
        assert under_way.result()[0] == 200
        assert ask(s, "good")[1]["choices"] == first["choices"]
        code, again = ask(s, "worse")
        assert code == 200 and again["choices"][0]["text"] == first["choices"][0]["text"] and "error" not in status(s, "worse")
        assert s.end() == 0


def test_while_a_model_answers(weft, weft_env, repo, folder):
    """The request gets the error, the model goes, and the next request loads it again. How often the check is passed while models are loaded depends on the machine."""
    for passed in 4000, 8000, 12000, 16000:
        with Folder(weft, weft_env, folder, place(repo, "device/replay.c", "is out of its bounds") + f":{passed}") as s:
            if ask(s, "good")[0] != 200 or ask(s, "worse")[0] != 200:
                continue                                              # it was passed that often by then
            code, answer = ask(s, "worse", 400, temperature=2)
            assert code == 500 and "worse.gguf: internal error at " in answer["error"]["message"], answer
            assert ask(s, "good")[0] == 200
            assert ask(s, "worse")[0] == 200
            until(lambda: any("internal error at" in line for line in s.said), 10)
            assert s.end() == 0
            return
    raise AssertionError("the check is passed more often while two models are loaded than an answer takes")


# ---- files ---------------------------------------------------------------------------------------------------------------

# Of each of these some hundred files are tried: parts of different kinds, and each way in which a graph reads a tensor.
KINDS = ["phi3-short", "gemma4-moe", "rwkv7", "kimi-linear", "nemotron_h_moe", "llama4"]


@pytest.mark.parametrize("name", KINDS)
def test_shapes_and_keys(built_tool, weft_env, make_model, tmp_path, name):
    """Dimensions of tensors and values of keys that are wrong: each file is loaded and has a prompt and two sequences evaluated, or is refused
    with a sentence that names the tensor or the key. WEFT_MUTANTS=1 tries all of them."""
    make_model.write(name, tmp_path / "m.gguf")
    every = 1 if os.environ.get("WEFT_MUTANTS") else 37
    runner = mutants.Runner(built_tool("mutants_tool", "WEFT_MUTANTS_TOOL"), tmp_path / "m.gguf", weft_env)
    counts, wrong = mutants.sweep(runner, every, 5)
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] > 5 and counts["ok"]


@pytest.mark.parametrize("name", ["mamba", "llama-yarn"])
def test_parts_of_another_kind(run_weft, make_model, tmp_path, name):
    """A stream of several rows is of hy_v4 alone: a file of another kind that has its keys and tensors is refused."""
    family = make_model.FAMILIES[name]
    hyper = {"hyper_connection.count": 2, "hyper_connection.epsilon": 1e-6, "hyper_connection.magnitude": 2.0}
    make_model.write(name, tmp_path / "m.gguf", keys={**family.get("keys", {}), **hyper})
    done = run_weft(["run", "-m", tmp_path / "m.gguf", "-p", "a", "-n", "2"])
    assert done.returncode == 1 and re.search(rf"m.gguf: tensor '[a-z0-9_.]*hc_[a-z_.]+' is not one that {family['arch']} is known to have", done.err), done
