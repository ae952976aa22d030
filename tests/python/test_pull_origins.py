"""What two repositories or two versions have under one name here is not mixed: encoders, models in parts, folders."""
import json
import os
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from registry import Registry
from serving import Server, until
from test_pull_folder import files_of, pull, store, written  # noqa: F401

ASK = ["-p", "def f(", "-n", "2", "--temp", "0"]


@pytest.fixture
def registry():
    r = Registry({})
    yield r
    r.close()


# ---- encoders ---------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def media(tmp_path_factory):
    """A picture, and two encoders of equal size."""
    image, projector = pytest.importorskip("PIL.Image"), pytest.importorskip("projector")
    folder = tmp_path_factory.mktemp("media")
    image.new("RGB", (60, 40), (200, 30, 30)).save(folder / "red.png")
    first = projector.write(folder / "e.gguf").read_bytes()
    return folder / "red.png", first, first[:-3] + bytes([first[-3] ^ 1]) + first[-2:]


NAME = "u_r_x_mmproj-m-f16.gguf"
SAYS = "is another repository's encoder, "


@pytest.fixture
def both(pull, registry, store, tinypy, media):
    """Two repositories whose encoders have one name here; the second one's is there."""
    data = Path(tinypy).read_bytes()
    registry.others = {"u/r_x": {"m-Q8_0.gguf": data, "mmproj-m-f16.gguf": media[1]}, "u_r/x": {"m-Q4_K_M.gguf": data, "mmproj-m-f16.gguf": media[2]}}
    for name in "hf:u/r_x:Q8_0", "hf:u_r/x:Q4_K_M":
        assert pull("pull", name).returncode == 0
    assert (store / NAME).read_bytes() == media[2]
    return [*ASK, "--image", media[0]]


def test_another_repositorys_encoder_is_not_taken(pull, store, both):
    file = store / "u_r_x_m-Q8_0.gguf"
    for model in ["-hf", "u/r_x:Q8_0", "--offline"], ["-m", "hf:u/r_x:Q8_0", "--offline"], ["-m", "u/r_x:Q8_0"], ["-m", "u_r_x_m-Q8_0"], ["-m", file]:
        for command in "run", "chat":
            done = pull(command, *model, *both)
            assert done.returncode == 1 and f"{store / NAME} {SAYS}hf:u_r/x/mmproj-m-f16.gguf, and not that of {file}" in done.err, (model, done.err)
    there = pull("run", "-m", file.name, *both, cwd=store)
    assert there.returncode == 1 and f"{NAME} {SAYS}" in there.err
    none = pull("run", "-m", file, *ASK)
    assert none.returncode == 0 and SAYS not in none.err
    assert pull("run", "-m", file, "--mmproj", store / NAME, *both).returncode == 0
    for model in ["-hf", "u_r/x:Q4_K_M", "--offline"], ["-m", store / "u_r_x_m-Q4_K_M.gguf"]:
        assert pull("run", *model, *both).returncode == 0


def test_it_is_fetched_again(pull, registry, store, both, media):
    for name, theirs in ("u/r_x:Q8_0", media[1]), ("u_r/x:Q4_K_M", media[2]), ("u/r_x:Q8_0", media[1]):
        registry.asked.clear()
        done = pull("run", "-hf", name, *both)
        assert done.returncode == 0 and f"{store / NAME} is another model's, and is replaced" in done.err and (store / NAME).read_bytes() == theirs, done.err
        assert [path.rsplit("/", 1)[1] for path, _ in registry.asked if "/resolve/" in path] == ["mmproj-m-f16.gguf"]
        registry.asked.clear()
        assert pull("run", "-hf", name, *both).returncode == 0 and registry.asked == []
    assert pull("pull", "hf:u_r/x:Q4_K_M").returncode == 0 and (store / NAME).read_bytes() == media[2]


def test_it_stays_if_its_own_model_does(pull, store, both):
    assert pull("rm", "u_r_x_m-Q8_0", "-y").returncode == 0 and (store / NAME).exists()
    assert pull("run", "-m", store / "u_r_x_m-Q4_K_M.gguf", *both).returncode == 0


def test_it_goes_with_its_own_model(pull, store, both):
    """Whatever the other one's note says."""
    assert pull("rm", "u_r_x_m-Q4_K_M", "-y").returncode == 0 and not (store / NAME).exists()
    assert (store / "u_r_x_m-Q8_0.gguf").exists()


def test_the_server_leaves_it_out(pull, weft, weft_env, registry, store, both):
    env = {k: v for k, v in weft_env.items() if k != "HF_TOKEN"} | {"LLAMA_CACHE": str(store), "HF_ENDPOINT": registry.url}

    def sees(s, name):
        return s.ask(f"/props?model={name}")[1]["modalities"]["vision"]

    for model, args in ((None, ["-hf", "u/r_x:Q8_0", "--offline"]), (store / "u_r_x_m-Q8_0.gguf", [])):
        with Server(weft, env, model, *args) as s:
            assert not sees(s, "u_r_x_m-Q8_0") and f"{store / NAME} {SAYS}" in "".join(s.said), s.said
    for args in [], ["--models-dir", str(store)]:
        with Server(weft, env, None, *args) as s:
            for name, expected in ("u_r_x_m-Q8_0", False), ("u_r_x_m-Q4_K_M", True):
                assert s.ask("/completion", {"model": name, "prompt": "a", "n_predict": 1})[0] == 200 and sees(s, name) == expected, name
            assert "".join(s.said).count(f"{store / NAME} {SAYS}") == 1, s.said
    with Server(weft, env, None, "-hf", "u/r_x:Q8_0") as s:
        assert sees(s, "u_r_x_m-Q8_0") and SAYS not in "".join(s.said)


def test_one_model_of_two_repositories(pull, registry, store, tinypy, media):
    """The encoders differ: by name the one of that repository is meant, by the path any of the two."""
    data = Path(tinypy).read_bytes()
    registry.others = {"u/r_x": {"m-Q8_0.gguf": data, "mmproj-m-f16.gguf": media[1]}, "u_r/x": {"m-Q8_0.gguf": data, "mmproj-m-f16.gguf": media[2]}}
    asked = [*ASK, "--image", media[0]]
    for name, other, theirs in ("u/r_x", "u_r/x", media[1]), ("u_r/x", "u/r_x", media[2]), ("u/r_x", "u_r/x", media[1]):
        assert pull("run", "-hf", name, *asked).returncode == 0 and (store / NAME).read_bytes() == theirs
        assert pull("run", "-hf", name, "--offline", *asked).returncode == 0
        assert pull("run", "-m", store / "u_r_x_m-Q8_0.gguf", *asked).returncode == 0
        if len((store / "u_r_x_m-Q8_0.gguf.from").read_text().splitlines()) > 1:
            done = pull("run", "-hf", other, "--offline", *asked)
            assert done.returncode == 1 and SAYS in done.err, done.err


@pytest.mark.parametrize("model, encoder, fits", [
    ("hf:u/r/m.gguf", "hf:u/r/a/mmproj.gguf", True), ("hf:u/r/m.gguf", "hf:u/r_/mmproj.gguf", False), ("hf:u/r/m.gguf", "hf:u_r/m/mmproj.gguf", False),
    ("hf:u/r/m.gguf", "hf:a/b/mmproj.gguf\nhf:u/r/mmproj.gguf", True), ("hf:a/b/m.gguf\nhf:u/r/m.gguf", "hf:u/r/mmproj.gguf", True), ("hf:u/r/m.gguf", "hf:u/r/mmproj.gguf\nhf:a/b/mmproj.gguf", True),
    ("ollama:library/a_b:latest", "ollama:library/a_b:latest", True), ("ollama:library/a_b:latest", "ollama:a/b:latest", False), ("ollama:library/a:b_c", "ollama:library/a_b:c", False),
    ("host/a/b/m.gguf?" + "0" * 64, "host/a/b/mmproj.gguf", True), ("host/a/b/c/m.gguf", "host/a/b/mmproj.gguf", True), ("host/a/b/m.gguf", "host/a_b/mmproj.gguf", False), ("hf:u/r/m.gguf", "u/r/mmproj.gguf", False),
    (None, "hf:u/r/mmproj.gguf", True), ("hf:u/r/m.gguf", None, True), (None, None, True), ("hf:u/r/m.gguf", "", False), ("", "hf:u/r/mmproj.gguf", False), ("", "", False)])
@pytest.mark.parametrize("noted", [True, False])
def test_origins(pull, store, tinypy, media, model, encoder, fits, noted):
    """Of all kinds, beside files whose names fit; those without a note fit, as llama.cpp's do."""
    store.mkdir()
    path, beside = store / "u_r_m.gguf", store / "u_r_mmproj.gguf"
    path.write_bytes(Path(tinypy).read_bytes())
    beside.write_bytes(media[1])
    for of, lines in (path, model), (beside, encoder):
        if lines is not None:
            Path(f"{of}.from").write_text(lines and lines + "\n")
    if noted:
        Path(f"{path}.mmproj").write_text(beside.name + "\n")
    done = pull("run", "-m", path, *ASK, "--image", media[0])
    assert done.returncode == (0 if fits else 1), done.err
    empty = [of for of, lines in ((beside, encoder), (path, model)) if lines == ""]
    assert ("another repository's encoder" in done.err) == (not fits and not empty), done.err
    assert not empty or f"{empty[0]}.from does not say the origin of that file" in done.err, done.err


# ---- models in parts --------------------------------------------------------------------------------------------------------------

def parts_of(folder, tinypy, n=3, seed=0):
    """A model in parts, of which the first has no weights; with a seed some weights of the others differ."""
    reader, files = gguf.GGUFReader(tinypy), {}
    tensors = [[], *[reader.tensors[i::n - 1] for i in range(n - 1)]]
    for i in range(n):
        name = f"m-{i + 1:05}-of-{n:05}.gguf"
        writer = gguf.GGUFWriter(folder / name, "llama")
        for key, field in reader.fields.items() if not i else []:
            if not key.startswith("GGUF.") and key != "general.architecture":
                writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
        for key, value in ("split.no", i), ("split.count", n):
            writer.add_uint16(key, value)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors[i]:
            data = tensor.data.copy()
            if seed and data.dtype == np.float32:
                data *= 1 + seed / 4
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type if data.dtype == np.uint8 else None)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        files[name] = (folder / name).read_bytes()
    return files


@pytest.fixture(scope="module")
def versions(tmp_path_factory, tinypy):
    made = [parts_of(tmp_path_factory.mktemp(f"v{seed}"), tinypy, seed=seed) for seed in (0, 1)]
    names = sorted(made[0])
    assert made[0][names[0]] == made[1][names[0]] and all(made[0][name] != made[1][name] for name in names[1:])
    return made


PARTLY = "the model's parts are not completely downloaded: 'weft pull' of its name goes on"


def test_parts_of_two_versions(pull, weft, weft_env, registry, store, versions, tmp_path):
    """The fetch of a newer version ends after one of its parts."""
    old, new = versions
    first, second, third = sorted(old)
    registry.others = {"u/m": old}
    path = store / f"u_m_{first}"
    assert pull("pull", "hf:u/m").returncode == 0
    before = pull("run", "-m", path, *ASK)
    assert before.returncode == 0, before.err
    registry.others, registry.lost = {"u/m": new}, {second}
    assert pull("pull", "hf:u/m").returncode == 1                # nothing was changed
    assert pull("run", "-m", path, *ASK).out == before.out and pull("run", "-hf", "u/m", "--offline", *ASK).returncode == 0
    registry.lost = {third}
    assert pull("pull", "hf:u/m").returncode == 1
    assert (store / f"u_m_{second}").read_bytes() == new[second] and (store / f"u_m_{third}").read_bytes() == old[third]
    for command in ["run", "-m", path, *ASK], ["bench", "-m", path, "-p", "2", "-n", "1", "-r", "1"], ["quantize", path, tmp_path / "q.gguf", "Q8_0"], ["inspect", path], ["serve", "-m", path, "--port", "0"]:
        done = pull(*command)
        assert done.returncode == 1 and f"{path}: {PARTLY}" in done.err, (command, done.err)
    row, = json.loads(pull("list", "--json").out)
    assert not row["whole"]
    offline = pull("run", "-hf", "u/m", "--offline", *ASK)
    assert offline.returncode == 1 and "was not fetched before" in offline.err
    registry.lost = set()
    with Server(weft, weft_env, None, "--models-dir", str(store)) as s:
        assert s.ask("/v1/models")[1]["data"] == []
        done = pull("run", "-hf", "u/m", *ASK)
        assert done.returncode == 0 and {name: (store / f"u_m_{name}").read_bytes() for name in new} == new, done.err
        until(lambda: [m["id"] for m in s.ask("/v1/models")[1]["data"]] == ["u_m_m"], pause=0.2)
    assert pull("run", "-m", path, *ASK).out == done.out and json.loads(pull("list", "--json").out)[0]["whole"]
    assert {Path(f"{store / f'u_m_{name}'}.from").read_text() for name in new} == {f"hf:u/m/{name}\n" for name in new}


def test_parts_of_two_repositories(pull, registry, store, versions):
    """Their first parts are equal, the others are not: the name of the one no longer means what the other one's fetch left."""
    registry.others = {"u/r_x": versions[0], "u_r/x": versions[1]}
    for name, other, files in ("u/r_x", "u_r/x", versions[0]), ("u_r/x", "u/r_x", versions[1]), ("u/r_x", "u_r/x", versions[0]):
        assert pull("pull", f"hf:{name}").returncode == 0
        assert {part: (store / f"u_r_x_{part}").read_bytes() for part in files} == files
        assert pull("run", "-hf", name, "--offline", *ASK).returncode == 0
        done = pull("run", "-hf", other, "--offline", *ASK)
        assert done.returncode == 1 and "was not fetched before" in done.err, done.err
    registry.others["u_r/x"] = versions[0]                       # of both, if they are equal
    assert pull("pull", "hf:u_r/x").returncode == 0
    assert all(pull("run", "-hf", name, "--offline", *ASK).returncode == 0 for name in registry.others)


def test_parts_that_are_fetched_while_they_are_read(run_weft, built_tool, versions, tmp_path):
    """The first part is equal in both versions; the fetch begins after it was opened, and changes what was not."""
    for name, data in versions[0].items():
        (tmp_path / name).write_bytes(data)
    first, second, _ = (tmp_path / name for name in sorted(versions[0]))
    (tmp_path / "empty").touch()
    env = {"LD_PRELOAD": built_tool("libswap.so", "WEFT_SWAP"), "SWAP_AT": f"/{second.name}", "SWAP_FROM": str(tmp_path / "empty"), "SWAP_TO": f"{first}.from"}
    done = run_weft(["--no-sandbox", "quantize", first, tmp_path / "one.gguf", "Q8_0"], env=env)
    assert done.returncode == 1 and f"{first}: {PARTLY}" in done.err, done.err
    Path(f"{first}.from").unlink()
    assert run_weft(["quantize", first, tmp_path / "one.gguf", "Q8_0"]).returncode == 0


# ---- folders ----------------------------------------------------------------------------------------------------------------------

WANTING = "is not completely downloaded: 'weft pull' of the model's name goes on"
SAY = ["--ids", "3,5,7", "-n", "4", "--ignore-eos", "--temp", "0"]


def test_a_folder_of_two_versions(pull, registry, store, tmp_path):
    """By each path that leads to it, on each command; until the fetch ends."""
    files = files_of(written(tmp_path / "source" / "small"))
    registry.others = {"me/small": files}
    assert pull("pull", "me/small").returncode == 0
    folder, link = store / "me_small", tmp_path / "link"
    link.symlink_to(folder)
    assert pull("run", "-m", folder, *SAY).returncode == 0
    registry.others["me/small"] = {path: data + b" " if path.endswith(".json") else data for path, data in files.items()}
    registry.lost = {"tokenizer.json"}
    assert pull("pull", "me/small").returncode == 1 and (folder / "config.json").exists()
    paths = [folder, f"{folder}/", f"{folder}/.", link, f"{folder}/../me_small"]
    for command in [["run", "-m", path, *SAY] for path in paths] + [["bench", "-m", folder, "-p", "2", "-n", "1", "-r", "1"], ["convert", folder, tmp_path / "c.gguf"], ["quantize", folder, tmp_path / "q.gguf", "Q8_0"],
                   ["inspect", folder], ["tokenize", "-m", folder, "-p", "a"], ["chat", "-m", folder, "a"], ["embed", "-m", folder, "-p", "a"], ["serve", "-m", folder, "--port", "0"], ["serve", "-m", link, "--port", "0"]]:
        done = pull(*command)
        assert done.returncode == 1 and WANTING in done.err, (command, done.err)
    inside = pull("run", "-m", ".", *SAY, cwd=folder)
    assert inside.returncode == 1 and WANTING in inside.err
    (folder / "config.json").unlink()                            # as when its first fetch ended early
    done = pull("run", "-m", folder, *SAY)
    assert done.returncode == 1 and WANTING in done.err
    registry.lost = set()
    assert pull("pull", "me/small").returncode == 0
    assert all(pull("run", "-m", path, *SAY).returncode == 0 for path in paths)


def test_a_folder_that_is_fetched_while_it_is_read(run_weft, built_tool, tmp_path):
    """The fetch begins after config.json was read, and has changed none of the files that were."""
    folder = written(tmp_path / "small")
    (tmp_path / "empty").touch()
    env = {"LD_PRELOAD": built_tool("libswap.so", "WEFT_SWAP"), "SWAP_AT": "/tokenizer.json", "SWAP_FROM": str(tmp_path / "empty"), "SWAP_TO": f"{folder}.from"}
    done = run_weft(["--no-sandbox", "convert", folder, tmp_path / "c.gguf"], env=env)
    assert done.returncode == 1 and WANTING in done.err, done.err
    Path(f"{folder}.from").write_text("hf:me/small/\n")
    assert run_weft(["convert", folder, tmp_path / "c.gguf"]).returncode == 0
