"""weft plan: what a model would do on several machines, from the head of its file alone."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

# so small are the weights of the models here
SMALL = {"WEFT_RANK_BYTES": "2048"}


@pytest.fixture
def plan(run_weft, tinypy):
    def run(*args, model=tinypy):
        done = run_weft(["plan", model, "-t", "1", "--no-prompt", "--json", *args], env=SMALL)
        assert done.returncode == 0, done.err
        got = json.loads(done.out)
        got["splits"] = {s["split"]: s for s in got["splits"]}
        return got
    return run


def test_what_is_said(plan):
    got = plan("--machines", "3", "--link", "10gbe")
    one, rows, layers = (got["splits"][s] for s in ("one", "row", "layer"))
    assert (got["latency_us"], got["gbit_s"], got["context"]) == (20, 9.4, 4096)
    assert one["token_us"] > 0 and one["token_link_us"] == one["token_gathers"] == 0
    assert rows["token_us"] > rows["token_link_us"] > rows["token_gathers"] * 20 > 0
    assert all(s["chunk_us"] is None for s in (one, rows, layers))
    assert [len(s["memory"]) for s in (one, rows, layers)] == [1, 3, 3]
    assert max(rows["memory"]) < 0.6 * one["memory"][0] and max(layers["memory"]) < one["memory"][0]
    assert layers["token_gathers"] == 2 and layers["token_us"] > one["token_us"]


def test_short_contexts(run_weft, plan, make_model, tmp_path):
    """The context is at most the model's; chunks that are timed are not longer than it."""
    make_model.write("gpt2", tmp_path / "m.gguf")
    most = make_model.FAMILIES["gpt2"]["n_ctx"]
    assert most < 4096 and plan(model=tmp_path / "m.gguf")["context"] == most
    assert plan("-c", "512")["context"] == 512 and plan("-c", "3")["splits"]["one"]["token_us"] > 0
    done = run_weft(["plan", tmp_path / "m.gguf", "-t", "1", "--json", "-d", most - 10], env=SMALL)
    assert done.returncode == 0 and json.loads(done.out)["chunk"] == 10, done.err
    done = run_weft(["plan", tmp_path / "m.gguf", "-d", most])
    assert done.returncode == 1 and f"a context of {most} positions has no room for a token after {most}" in done.err


def test_one_machine(plan):
    assert list(plan("--machines", "1")["splits"]) == ["one"]


def test_chunks_of_prompts(run_weft, tinypy):
    done = run_weft(["plan", tinypy, "-t", "1", "--json"], env=SMALL)
    got = json.loads(done.out)
    assert got["chunk"] == 64 and all(s["chunk_us"] > s["token_us"] for s in got["splits"])
    assert got["splits"][1]["chunk_bytes"] > got["splits"][1]["token_bytes"]


def test_chunks_follow_each_other_through_layers(run_weft, tinypy):
    """Six layers on two machines: the busier one has half of them, or four."""
    done = run_weft(["plan", tinypy, "-t", "1", "--json", "--machines", "2", "--link", "0:1e6"], env=SMALL)
    one, _, layers = json.loads(done.out)["splits"]
    assert 0.49 < layers["chunk_us"] / one["chunk_us"] < 0.68 and layers["token_us"] == pytest.approx(one["token_us"], rel=1e-3)


def test_the_link(plan):
    """Two processes exchange their halves: a message for each gathering, and one with the token."""
    late, slow = (plan("--link", link)["splits"]["row"] for link in ("1000:1e6", "0:0.001"))
    assert late["token_link_us"] == pytest.approx(1000 * (late["token_gathers"] + 1), rel=1e-3)
    assert slow["token_link_us"] >= slow["token_bytes"] / 2 * 8


def test_a_head_without_weights(plan, run_weft, tinypy, tmp_path):
    """What is said does not need them."""
    gguf = pytest.importorskip("gguf")
    data = gguf.GGUFReader(tinypy).data_offset
    head = tmp_path / "head.gguf"
    head.write_bytes(Path(tinypy).read_bytes()[:data])
    assert run_weft(["run", head, "-p", "x", "-n", "1"]).returncode == 1
    cut, whole = plan(model=head), plan()
    for split, s in whole["splits"].items():
        assert {k: s[k] for k in ("memory", "token_gathers", "token_bytes")} == \
               {k: cut["splits"][split][k] for k in ("memory", "token_gathers", "token_bytes")}


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_a_head_that_is_cut(run_weft, tinypy, tmp_path, size):
    head = tmp_path / "head.gguf"
    head.write_bytes(Path(tinypy).read_bytes()[:size])
    done = run_weft(["plan", head])
    assert done.returncode == 1 and "head.gguf" in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize("args, status, says", [
    (["--link", "token-ring"], 1, "1GbE, 10GbE, 25GbE, 100GbE, USB4"), (["--link", "50:-1"], 1, "50:-1"), (["--machines", "65"], 2, "64"),
    (["-c", "100", "-d", "100"], 1, "100 positions"), (["--link", "50:1x"], 1, "50:1x")])
def test_refused(run_weft, tinypy, args, status, says):
    done = run_weft(["plan", tinypy, *args])
    assert done.returncode == status and says in done.err, done.err


@pytest.mark.parametrize("name, says", [("llada", "this model denoises texts as a whole"), ("bert", "this model makes embeddings")])
@pytest.mark.parametrize("args", [[], ["--machines", "1"], ["--no-prompt", "-c", "64"]], ids=["usual", "one", "token"])
def test_models_that_see_texts_as_a_whole(run_weft, make_diffusion, make_encoder, tmp_path, name, says, args):
    """They have no speed of tokens; 91 million prompt tokens a second were predicted."""
    path = tmp_path / f"{name}.gguf"
    (make_diffusion if name == "llada" else make_encoder).write(name, path)
    done = run_weft(["plan", path, *args])
    assert done.returncode == 1 and f"{path}: {says}" in done.err and not done.out, (done.out, done.err)


def test_messages_are_those_of_mpi(weft, weft_env, tinypy, plan):
    """As many, with as many bytes, as two processes gather that compute a token together."""
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if not mpirun or not (Path(weft).parent / "libweft-mpi-openmpi.so").exists():
        pytest.skip("Open MPI is not here (scripts/setup.sh mpi)")
    env = {**weft_env, **SMALL, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "SPEC": "0"}
    if os.environ.get("WEFT_SANITIZED"):         # Open MPI leaves memory
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    p = subprocess.run([mpirun, "--oversubscribe", "--bind-to", "none", "-n", "2", weft, "profile", tinypy, "-n", "1", "-t", "1", "--json"],
                       env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=600)
    assert p.returncode == 0, p.stderr.decode(errors="replace")
    rows = [k for k in json.loads(p.stdout)["kernels"] if k["name"] == "allgather"]
    planned = plan("--machines", "2")["splits"]["row"]
    assert planned["token_gathers"] == sum(k["count"] for k in rows) > 0
    assert planned["token_bytes"] == sum(k["bytes"] for k in rows)
    # of each layer the two sums that the next norm reads, as floats; what two products read, as codes with a scale and a sum for each 32; the logits
    layers, width, inner, vocabulary = 6, 256, 768, 2048
    assert planned["token_bytes"] == layers * (2 * 4 * width + (1 + 8 / 32) * (width + inner)) + 4 * vocabulary
