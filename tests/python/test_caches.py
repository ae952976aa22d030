"""What is kept between runs is used for exactly what it was made of: docs/caches.md lists the caches, what each is named by, and which test here
changes one thing that a name could leave out. Models and adapters are changed as people change them: trained anew at the same path, patched in place
with the old time put back, copied over each other, renamed, split."""
import glob
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import gguf
import pytest
import test_control
import test_lora
from serving import Server
from test_serve import until

ASK = {"prompt": "def f(x):\n    return x + 1\n" * 25, "max_tokens": 8, "seed": 3, "temperature": 0, "logprobs": 1, "return_tokens": True}
TENSOR = "blk.0.attn_v.weight"


@pytest.fixture
def kept(weft, weft_env, tmp_path):
    """kept(model, *args): (tokens that came from files, the choices, what the server said) of a server of its own; fresh=True: without the folder."""
    folder = tmp_path / "kept"
    folder.mkdir()

    def once(model, *args, fresh=False, wait=lambda s: None):
        keep = [] if fresh else ["--keep-in", folder]
        with Server(weft, weft_env, model, *keep, *args) as s:
            wait(s)
            status, answer = s.ask("/v1/completions", ASK)
            assert status == 200 and s.end() == 0, (answer, s.said)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"], s.said

    once.folder = folder
    return once


def copy(tinypy, path):
    """A model that was written some time ago."""
    shutil.copy(tinypy, path)
    return path


def place_in(model, name=TENSOR, share=0.25):
    """Where in the file the upper byte of a scale of this tensor lies, in no sample that anybody would take of its middle or its ends."""
    t = next(t for t in gguf.GGUFReader(model).tensors if t.name == name)
    assert t.tensor_type == gguf.GGMLQuantizationType.Q8_0
    return int(t.data_offset + int(t.n_bytes * share) // 34 * 34 + 1)


def patch(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x08]))


def patch_in_place(path, at):
    """As with a debugger: the same inode, size and time."""
    before = os.stat(path)
    patch(path, at)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)


def learned(s):
    """The files' content is known: with -v."""
    return any(" content " in line for line in s.said)


def is_used(answer):
    return answer[0] > 100


def is_not_used(answer, fresh, before):
    assert answer[0] == 0, "pages of something else were taken up"
    assert answer[1] == fresh[1] != before[1]


def test_an_adapter_trained_anew(kept, tinypy, tmp_path):
    """The same path, the same scale, other numbers; and the first one again, at another path."""
    lora = tmp_path / "lora.gguf"
    tensors = [test_lora.of_model(tinypy, ["attn_v", "ffn_up"], 4, seed=seed)[0] for seed in (1, 2)]
    test_lora.write(lora, "llama", tensors[0])
    first = kept(tinypy, "--lora", lora)
    assert is_used(kept(tinypy, "--lora", lora))
    copy(lora, tmp_path / "first.gguf")
    test_lora.write(lora, "llama", tensors[1])
    is_not_used(kept(tinypy, "--lora", lora), kept(tinypy, "--lora", lora, fresh=True), first)
    again = kept(tinypy, "--lora", tmp_path / "first.gguf")
    assert is_used(again) and again[1] == first[1]
    assert not is_used(kept(tinypy, "--lora-scaled", f"{lora}:0.5")) and not is_used(kept(tinypy))


def test_a_control_vector(kept, tinypy, tmp_path):
    """Its numbers, scale and layers; a range that takes no direction away is the same one."""
    vector = tmp_path / "vector.gguf"
    tensors = [test_control.directions(tinypy, seed) for seed in (1, 2)]
    test_control.write(vector, tensors[0])
    assert not is_used(kept(tinypy))
    first = kept(tinypy, "--control-vector", vector)
    assert not is_used(first)
    again = kept(tinypy, "--control-vector", vector, "--control-vector-layer-range", 1, 99)
    assert is_used(again) and again[1] == first[1]
    assert not is_used(kept(tinypy, "--control-vector-scaled", f"{vector}:0.5"))
    assert not is_used(kept(tinypy, "--control-vector", vector, "--control-vector-layer-range", 2, 99))
    test_control.write(vector, tensors[1])
    is_not_used(kept(tinypy, "--control-vector", vector), kept(tinypy, "--control-vector", vector, fresh=True), first)


@pytest.mark.parametrize("how", ["patched in place", "copied over", "put in its place"])
def test_a_model_changed_in_one_byte(kept, tinypy, tmp_path, how):
    """Size, time and name stay; of the inode too, but for the last."""
    model, other = copy(tinypy, tmp_path / "model.gguf"), tmp_path / "other.gguf"
    first = kept(model)
    assert is_used(kept(model))
    shutil.copy2(model, other)
    patch_in_place(other, place_in(other))
    if how == "patched in place":
        patch_in_place(model, place_in(model))
    elif how == "copied over":
        subprocess.run(["cp", "-p", other, model], check=True)
    else:
        os.replace(other, model)
    is_not_used(kept(model), kept(model, fresh=True), first)
    again = kept(model)
    assert is_used(again) and again[1] != first[1]


def test_the_same_content_elsewhere(kept, tinypy, tmp_path):
    """Renamed, copied, linked, touched, under another name in answers: the content decides, and pages are used."""
    model = copy(tinypy, tmp_path / "model.gguf")
    first = kept(model)
    known = lambda s: until(lambda: learned(s))
    os.rename(model, tmp_path / "renamed.gguf")
    os.link(tmp_path / "renamed.gguf", tmp_path / "linked.gguf")
    copy(tinypy, tmp_path / "copied.gguf")
    for name in "renamed", "linked", "copied":
        again = kept(tmp_path / f"{name}.gguf", "--alias", "another name", "-v", wait=known)
        assert is_used(again) and again[1] == first[1], name
    os.utime(tmp_path / "renamed.gguf")
    assert is_used(kept(tmp_path / "renamed.gguf", "-v", wait=known))


def split(tinypy, folder):
    """The model in three files, as gguf-split makes them."""
    r = gguf.GGUFReader(tinypy)
    w = gguf.GGUFWriter(folder / "part.gguf", "llama", split_max_tensors=len(r.tensors) // 3 + 1)
    for f in r.fields.values():
        if not f.name.startswith("GGUF.") and f.name != "general.architecture":
            w.add_key_value(f.name, f.contents(), f.types[0], f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None)
    for t in r.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return sorted(folder.glob("part-*.gguf"))


def test_each_file_of_a_split_model_counts(kept, tinypy, tmp_path):
    parts = split(tinypy, tmp_path)
    assert len(parts) == 3
    first = kept(parts[0])
    assert is_used(kept(parts[0]))
    last = gguf.GGUFReader(parts[2]).tensors
    name = next(t.name for t in last if t.tensor_type == gguf.GGMLQuantizationType.Q8_0 and "ffn_down" in t.name)
    patch_in_place(parts[2], place_in(parts[2], name))
    is_not_used(kept(parts[0]), kept(parts[0], fresh=True), first)


OTHERWISE = [["--override-kv", "llama.attention.layer_norm_rms_epsilon=float:0.001"], ["--rope-freq-base", "5000"], ["--rope-scaling", "linear", "--rope-scale", "2"],
             ["--precision", "exact"]]


def test_what_options_change(kept, tinypy):
    """Each option that changes what is computed has pages of its own; those that change how have the same."""
    kept(tinypy)
    for args in OTHERWISE:
        assert not is_used(kept(tinypy, *args)), args
    for args in ["-t", "1"], ["-ub", "64"], ["-np", "1"], ["--no-repack"], ["--chat-template", "{{ messages[0].content }}"], ["--temp", "0.1"]:
        assert is_used(kept(tinypy, *args)), args
    for args in OTHERWISE:
        assert is_used(kept(tinypy, *args)), args


def test_files_are_read_once(kept, tinypy, tmp_path):
    """The first server reads the model for its digest, and says so; the next one has it from the cache, and all pages from its first moment on."""
    model = copy(tinypy, tmp_path / "model.gguf")
    _, _, said = kept(model, "-v", wait=lambda s: until(lambda: learned(s)))
    assert any(" content " in line and " files " in line and "percent=100" in line for line in said), said
    again = kept(model, "-v")
    assert is_used(again) and any(" content " in line and " cache " in line for line in again[2])


def test_a_change_under_a_server(weft, weft_env, tinypy, tmp_path):
    """A model that is written to while it is in use is said to be, and nothing is kept of it from then on; chmod and a link are no change."""
    model, kept, slots = copy(tinypy, tmp_path / "model.gguf"), tmp_path / "kept", tmp_path / "slots"
    kept.mkdir()
    slots.mkdir()
    ask = lambda s, text: s.ask("/v1/completions", {**ASK, "prompt": text + ASK["prompt"]})
    act = lambda s, how: s.ask(f"/slots/0?action={how}", {"filename": "a"}, method="POST")[0]
    pages = lambda: len(list(kept.glob("*.page")))
    with Server(weft, weft_env, model, "--keep-in", kept, "--slot-save-path", slots, "-np", "1") as s:
        assert ask(s, "a")[0] == 200 and act(s, "save") == 200
        until(lambda: pages() >= 3)
        model.chmod(0o600)
        os.link(model, tmp_path / "link.gguf")
        assert act(s, "save") == act(s, "restore") == 200
        before = pages()
        assert ask(s, "b")[0] == 200
        until(lambda: pages() > before)
        assert not any("warning" in line for line in s.said), s.said
        patch(model, place_in(model))
        assert ask(s, "c")[0] == 200                         # the next one says it
        until(lambda: any("was written to" in line and str(model) in line for line in s.said))
        assert act(s, "save") == act(s, "restore") == 503
        before = pages()
        assert ask(s, "d")[0] == 200
        until(lambda: any("--keep-in" in line and "was changed" in line for line in s.said))
        assert s.end() == 0 and pages() == before
    assert sum("was written to" in line for line in s.said) == sum("--keep-in" in line for line in s.said) == 1


def test_a_patch_with_its_time_put_back_under_a_server(weft, weft_env, tinypy, tmp_path):
    """ctime alone says it: the file is read again, and is not what it was."""
    model, slots = copy(tinypy, tmp_path / "model.gguf"), tmp_path / "slots"
    slots.mkdir()
    with Server(weft, weft_env, model, "--slot-save-path", slots, "-np", "1") as s:
        assert s.ask("/v1/completions", ASK)[0] == 200
        act = lambda how: s.ask(f"/slots/0?action={how}", {"filename": "a"}, method="POST")
        assert act("save")[0] == 200
        patch_in_place(model, place_in(model))
        status, answer = act("restore")
        assert status == 503 and "was changed" in answer["error"]["message"]
        assert s.end() == 0


def test_a_session_is_of_its_adapter(weft, weft_env, tinypy, tmp_path):
    """Files of slots, too: an adapter trained anew is refused, with what is wrong."""
    lora, slots = tmp_path / "lora.gguf", tmp_path / "slots"
    slots.mkdir()
    answers = []
    for seed, action in (1, "save"), (1, "restore"), (2, "restore"):
        if action == "save" or seed == 2:
            test_lora.write(lora, "llama", test_lora.of_model(tinypy, ["attn_v"], 4, seed=seed)[0])
        with Server(weft, weft_env, tinypy, "--lora", lora, "--slot-save-path", slots, "-np", "1") as s:
            if action == "save":
                assert s.ask("/v1/completions", ASK)[0] == 200
            answers.append(s.ask(f"/slots/0?action={action}", {"filename": "a"}, method="POST"))
            assert s.end() == 0
    assert [status for status, _ in answers] == [200, 200, 400]
    assert "of another model" in answers[2][1]["error"]["message"]


# ---- other caches -----------------------------------------------------------------------------------------------------------------

def test_the_table_of_a_folder_of_models(weft, weft_env, tinypy, tmp_path):
    """A file that is copied over with its time, and a part that comes later, are seen."""
    folder, parts = tmp_path / "models", tmp_path / "parts"
    folder.mkdir()
    parts.mkdir()
    changed, other = folder / "a.gguf", tmp_path / "other.gguf"
    copy(tinypy, changed)
    data = bytearray(changed.read_bytes())
    at = data.index(b"llama.context_length") + len("llama.context_length") + 4
    data[at:at + 4] = (77).to_bytes(4, "little")
    other.write_bytes(data)
    shutil.copystat(changed, other)
    split(tinypy, parts)
    first, second, third = sorted(parts.glob("*.gguf"))
    shutil.copy(first, folder)
    with Server(weft, weft_env, None, "--models-dir", folder) as s:
        names = lambda: {m["name"]: m["digest"] for m in s.ask("/api/tags")[1]["models"]}
        length = lambda: s.ask("/api/show", {"model": "a"})[1]["model_info"]["llama.context_length"]
        digest = names()["a"]
        assert list(names()) == ["a"] and length() != 77                     # a part of a model is none
        subprocess.run(["cp", "-p", other, changed], check=True)
        shutil.copy(second, folder)
        shutil.copy(third, folder)
        until(lambda: len(names()) == 2 and length() == 77)
        assert names()["a"] != digest
        assert s.end() == 0


def test_pieces_of_a_file_that_is_quantised(weft, run_weft, tinypy, tmp_path):
    """A run that was ended leaves whole tensors, of the file as it was: patched with its time put back, none of them is taken."""
    model, out = copy(tinypy, tmp_path / "model.gguf"), tmp_path / "out.gguf"
    pieces = tmp_path / "out.gguf.part.pieces"
    command = [weft, "quantize", model, out, "Q3_K", "1", "--allow-requantize"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and not (pieces.exists() and pieces.stat().st_size > 65 + 8 * 34):
            time.sleep(.001)
        run.kill()
    if not pieces.exists():
        pytest.skip("the first run was done before it could be ended")
    patch_in_place(model, place_in(model, "token_embd.weight"))
    done = run_weft(command[1:])
    assert done.returncode == 0 and "from tensor" not in done.err, done.err
    fresh = tmp_path / "fresh.gguf"
    assert run_weft([*command[1:3], fresh, *command[4:]]).returncode == 0
    assert out.read_bytes() == fresh.read_bytes()


def test_kernels_of_another_compiler(run_weft, tinypy, tmp_path, cache_dir):
    """A library of LLVM that was built anew makes all kernels anew; the same one, in another folder or container, none."""
    found = [p for p in glob.glob("/usr/lib/*-linux-gnu/libLLVM*.so*") if re.search(r"libLLVM(\.so\.(19|2\d)|-(19|2\d)\.so)", p) and not os.path.islink(p)]
    if not found:
        pytest.skip("the library of LLVM lies elsewhere")
    newest, folder, stats = max(found), tmp_path / "lib", tmp_path / "stats"
    folder.mkdir()
    shutil.copy2(newest, folder)

    def made(path, named=None):
        env = {"WEFT_CACHE": cache_dir, "LD_LIBRARY_PATH": path, "WEFT_LLVM": named}
        done = run_weft(["run", "-m", tinypy, "-p", "def", "-n", 2, "--stats", stats], env=env)
        assert done.returncode == 0, done.err
        return json.loads(stats.read_text())["kernels_compiled"]

    assert made(None) > 0 and made(None) == 0 and made(folder) == 0
    os.utime(folder / os.path.basename(newest), (1, 1))
    assert made(folder) > 0 and made(folder) == 0 and made(None) == 0
    # Named by its file, in a folder that the sandbox lets nothing else read: the same kernels, and others where there are none yet.
    assert made(None, named=folder / os.path.basename(newest)) == 0
    shutil.rmtree(cache_dir)
    assert made(None, named=folder / os.path.basename(newest)) > 0


def test_a_file_that_is_refused_opens_no_cache(run_weft, tinypy, tmp_path, cache_dir):
    """The keeper waits until a model's description has been read: what it does otherwise is half of such a run."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(tinypy).read_bytes()[:3000])
    for model, status in (cut, 1), (tinypy, 0):
        assert run_weft(["run", "-m", model, "-p", "def", "-n", 1], env={"WEFT_CACHE": cache_dir}).returncode == status
        assert bool(list(Path(cache_dir).rglob("*.db"))) == (status == 0)
