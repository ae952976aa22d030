"""A model on several processes gives the bits of one, whatever is cut where, by rows or by layers: families of all kinds, in pieces, forked, saved and restored.

Open MPI starts the processes, and the module that Weft opens for it is the one of the build.
"""
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from rank_serving import launcher, processes_below, processes_of
from serving import Server

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")

THREADS = 1
# Grouped heads, windows, normed heads; experts beside each other and shared; one latent key for all heads, with an indexer; fixed states of all
# kinds beside attention; two streams; layers with a cache of their own and without; K-quants, codes of 4 bits, floats.
FAMILIES = {
    "llama-yarn": "Q4_0", "gemma3": "Q8_0", "gpt-oss": "F32", "qwen3moe-q8_0": "F32", "deepseek2-lite": "F16", "glm-dsa": "F32",
    "rwkv6": "Q8_0", "kimi-k3": "Q8_0", "qwen35": "Q8_0", "mamba2": "F32", "granitehybrid": "Q4_0", "rwkv7": "F32", "gemma3n": "F32", "falcon-h1": "F32", "lfm2moe": "Q8_0",
}
# Those of 4 and 8 processes: a dense model, experts, a recurrent one.
MANY = ("llama-yarn", "qwen3moe-q8_0", "qwen35")


@pytest.fixture(scope="module")
def launch(weft, weft_env, sanitized):
    """launch(n, command): the same on n processes of Open MPI; skips where it is not there."""
    mpirun = launcher(weft)

    def run(n, *command):
        env = {**weft_env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "SPEC": "0"}
        if sanitized:                        # Open MPI leaves memory
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        line = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(n), *map(str, command)] if n > 1 else [*map(str, command)]
        return subprocess.run(line, env=env, capture_output=True, timeout=600, stdin=subprocess.DEVNULL)
    return run


@pytest.fixture(scope="module")
def files(make_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for name, quant in FAMILIES.items():
        make_model.write(name, folder / f"{name}.gguf", quant=quant)
    make_model.write("llama-yarn", folder / "one-layer.gguf", layers=1, quant="Q8_0")      # of a prompt nothing but keys and values is made
    return sorted(folder.glob("*.gguf"))


@pytest.fixture(scope="module")
def hashes(launch, files, built_tool, tmp_path_factory, weft_env):
    """hashes(n, cut, split, shares, names): of all logits of each family, or of those named."""
    tool = built_tool("ranks_tool", "WEFT_RANKS_TOOL")
    known = {}

    def run(n, cut, split="row", shares="-", names=None):
        asked = (n, cut, split, shares, names)
        of = [f for f in files if names is None or f.stem in names]
        if asked not in known:
            out = tmp_path_factory.mktemp("out") / "hashes"
            weft_env["WEFT_RANK_BYTES"] = "2048"          # so small are the weights of these files
            p = launch(n, tool, out, cut, split, shares, *of)
            assert p.returncode == 0, p.stderr.decode(errors="replace")
            known[asked] = dict(line.split() for line in out.read_text().splitlines())
            assert len(known[asked]) == len(names or files)
        return known[asked]
    return run


@pytest.mark.parametrize("n, cut, split, shares", [
    (2, 0, "row", "-"), (2, 7, "row", "-"), (3, 0, "row", "-"), (2, 7, "row", "3,1"), (3, 0, "row", "0,1,0.5"),
    (2, 0, "layer", "-"), (2, 7, "layer", "-"), (3, 0, "layer", "-"), (3, 7, "layer", "0,1,3")])
def test_bits_of_one_process(hashes, n, cut, split, shares):
    alone, together = hashes(1, cut), hashes(n, cut, split, shares)
    assert [Path(f).stem for f in alone if alone[f] != together[f]] == []


@pytest.mark.parametrize("n, cut, split", [(4, 7, "row"), (8, 0, "row"), (4, 0, "layer"), (8, 7, "layer")])
def test_many_processes(hashes, n, cut, split):
    """Some have no part of a product, or no layer."""
    alone, together = hashes(1, cut), hashes(n, cut, split, names=MANY)
    assert {f: alone[f] for f in together} == together


@pytest.mark.parametrize("more", [[], ["-sm", "layer"], ["-sm", "layer", "-ts", "1,3"], ["-sm", "tensor", "-ts", "3/1"]])
def test_command(launch, weft, tinypy, weft_env, more):
    weft_env.pop("WEFT_RANK_BYTES", None)
    command = (weft, "run", tinypy, "-p", "def f(x):", "-n", "24", "--temp", "0", "-t", "1")
    alone, together = launch(1, *command), launch(2, *command, *more)
    assert together.returncode == 0, together.stderr.decode(errors="replace")
    assert together.stdout == alone.stdout and b"24 written" in together.stderr


@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.parametrize("more", [["run", "-p", "def f(x):", "-n", "4"], ["bench", "-p", "40", "-n", "4", "-r", "1", "-sm", "layer"]], ids=["run", "bench"])
def test_the_sandbox(launch, weft, tinypy, built_tool, tmp_path, sanitized, more, transport):
    """Every process has its filter of calls, which refuses nothing that MPI needs, and its list of files."""
    if sanitized:
        pytest.skip("sanitizers make calls that the filter forbids, so a build with them has none")
    if "no Landlock" in launch(1, weft, "env").stdout.decode():
        pytest.skip("a kernel without Landlock")
    (tmp_path / "beside").write_text("x")
    files = [tinypy, tmp_path / "beside", tmp_path / "new", "/dev/shm/x"]
    settings = ["env", f"LD_PRELOAD={built_tool('libreach.so', 'WEFT_REACH')}", f"REACH={':'.join(map(str, files))}", "WEFT_RANK_BYTES=2048",
                *(["OMPI_MCA_btl=tcp,self"] if transport == "tcp" else [])]
    for option, own, other in ([], "r-", "--"), (["--no-sandbox"], "rw", "rw"):
        p = launch(2, *settings, weft, *option, *more, "-m", tinypy, "-t", "1", "-v")
        said = p.stderr.decode()
        assert p.returncode == 0 and "refused" not in said and "denied" not in said, said
        for path, ways in (tinypy, own), (files[1], other):
            assert re.findall(rf"^reach: {re.escape(str(path))} (\S+)$", said, re.M).count(ways) >= 2, said
        if not option:
            assert all(re.findall(rf"^reach: {re.escape(str(path))} (\S+)$", said, re.M).count("--") >= 2 for path in files[2:]), said


def sockets_of(pid):
    links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {int(link[8:-1]) for link in links if link.startswith("socket:")}


def ends_of_tcp():
    """(address, address of the other end): inode, of connections of this machine."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {(row[1], row[2]): int(row[9]) for row in rows if row[3] == "01"}


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_no_process_keeps_the_launcher(weft, weft_env, tinypy, tmp_path, kind):
    """The launcher starts programs on request, whatever the sandbox of the process that asks: once the model is read, none has a connection to it (under MPICH a child has it, which reads no
    model). It ends with the processes, and status 0."""
    env = {**weft_env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "ASAN_OPTIONS": weft_env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    # MPICH's processes inherit a socket
    script = f'readlink "/proc/self/fd/${{PMI_FD:-9}}" >"{tmp_path}/$$"; exec "$0" "$@"'
    with Server(launcher(weft, kind), env, tinypy, "-t", 1, options=("-n", "2", *(["--oversubscribe"] if kind == "openmpi" else []), "sh", "-c", script, weft)) as s:
        below = processes_below(s.process.pid)
        ours = {pid: sockets_of(pid) for pid, name in below.items() if name.startswith("weft") and name != "weft-launcher"}
        theirs = sockets_of(s.process.pid).union(*(sockets_of(pid) for pid, name in below.items() if not name.startswith("weft")))
        ends, ranks = ends_of_tcp(), processes_of(s.process.pid, kind)
        kept = [at for at, inode in ends.items() if inode in theirs and any(ends.get(at[::-1]) in sockets for sockets in ours.values())]
        assert sorted(ranks) == [0, 1] and set(ranks.values()) <= set(ours) and theirs and kept == []
        inherited = {int(name[8:-2]) for f in tmp_path.iterdir() if (name := f.read_text())}
        assert len(inherited) == (2 if kind == "mpich" else 0) and not any(inherited & sockets for sockets in ours.values())
        assert list(below.values()).count("weft-launcher") == len(inherited)
        os.kill(ranks[0], signal.SIGTERM)
        assert s.process.wait(60) == 0


@pytest.mark.parametrize("least", [30000, 200000])
def test_plans_that_gather_nothing(launch, make_model, built_tool, tmp_path, least):
    """Where products are too small to be split, prompts gather nothing, and the others run them all the same."""
    model, tool = tmp_path / "model.gguf", built_tool("ranks_tool", "WEFT_RANKS_TOOL")
    make_model.write("llama-yarn", model, layers=1, quant="Q8_0")
    for n in (1, 2):
        p = launch(n, "env", f"WEFT_RANK_BYTES={least}", tool, tmp_path / str(n), 0, "row", "-", model)
        assert p.returncode == 0, p.stderr.decode(errors="replace")
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text()


@pytest.mark.parametrize("setting, says", [("WEFT_RANK_BYTES=2048", b"WEFT_RANK_BYTES is "), ("WEFT_CPU=x86-64-v2", b"kernels are made for ")])
def test_processes_that_differ(launch, weft, tinypy, setting, says):
    """They are refused before anything is computed."""
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export {setting}; fi; exec "$0" "$@"'
    p = launch(2, "sh", "-c", script, weft, "run", tinypy, "-p", "x", "-n", "2", "-t", "1")
    assert p.returncode and says in p.stderr and b"written" not in p.stdout, p.stderr.decode(errors="replace")


def test_versions_that_differ(launch, weft, tinypy, tmp_path):
    """The other process runs a program whose plans are of other sources."""
    [header] = Path(weft).parent.glob("generated/engine/rows_version.h")
    version = re.search(rb'ROWS_VERSION "(\w{8})', header.read_bytes())[1]      # instructions may hold it in parts of 8
    other = version[::-1]
    program = tmp_path / "weft"
    program.write_bytes(Path(weft).read_bytes().replace(version, other))
    program.chmod(0o755)
    shutil.copy(Path(weft).parent / "libweft-mpi-openmpi.so", tmp_path)
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec {program} "$@"; fi; exec {weft} "$@"'
    p = launch(2, "sh", "-c", script, "weft", "run", tinypy, "-p", "x", "-n", "2", "-t", "1")
    said = re.search(rb"version (\w+) of plans, and rank 0 has (\w+)", p.stderr)
    assert p.returncode == 1 and said and said[1].startswith(other) and said[2].startswith(version), p.stderr.decode(errors="replace")


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_files_that_differ_in_a_bit(launch, weft, tinypy, tmp_path, part):
    """As large, of the same name: two versions on two hosts.  The bits would be those of neither."""
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
        shutil.copy(tinypy, tmp_path / name / "m.gguf")
    flip(tmp_path / "1" / "m.gguf", int(os.path.getsize(tinypy) * part))
    script = f'cd "{tmp_path}/$OMPI_COMM_WORLD_RANK" && exec "$0" "$@"'
    p = launch(2, "sh", "-c", script, weft, "run", "m.gguf", "-p", "def ", "-n", "2", "-t", "1")
    assert p.returncode and b"not the same ones" in p.stderr and b"m.gguf" in p.stderr, p.stderr.decode(errors="replace")
    assert b"written" not in p.stderr


@pytest.mark.parametrize("other", [["-ctk", "q8_0"], ["--temp", "0.5"], ["--override-kv", "x=int:1"]])
@pytest.mark.parametrize("of", ["0", "1"])
def test_command_lines_that_differ(launch, weft, tinypy, other, of):
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = {of} ]; then exec "$0" "$@" {" ".join(other)}; fi; exec "$0" "$@"'
    p = launch(2, "sh", "-c", script, weft, "run", tinypy, "-p", "x", "-n", "2", "-t", "1")
    assert p.returncode and f"'{other[0]}' was asked of".encode() in p.stderr, p.stderr.decode(errors="replace")


def test_started_by_slurm(launch, weft, tinypy):
    """srun --mpi=pmix sets the variables of PMIx, as mpirun does, and its own; otherwise its tasks are alone, and the first one says so."""
    command = (weft, "run", tinypy, "-p", "def f(x):", "-n", "8", "--temp", "0", "-t", "1")
    told = ("env", "-u", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS=2")
    together, alone = launch(2, *told, *command), launch(2, *told, "env", "-u", "PMIX_RANK", "SLURM_PROCID=0", *command)
    assert together.returncode == alone.returncode == 0, together.stderr.decode(errors="replace")
    assert together.stderr.count(b"8 written") == 1 and b"srun" not in together.stderr
    assert alone.stderr.count(b"8 written") == 2 and alone.stderr.count(b"each of the 2 tasks of srun runs alone") == 2


@pytest.mark.parametrize("told", [{"PMI_SIZE": "1"}, {"PMI_RANK": "0"}, {"OMPI_COMM_WORLD_SIZE": "1"}, {"PMI_SIZE": "4"}])
def test_one_process_under_a_launcher(weft, weft_env, told):
    """It has nobody to join; and commands that open no model never do."""
    p = subprocess.run([weft, "--version"], env={**weft_env, **told}, capture_output=True)
    assert p.returncode == 0 and p.stdout.startswith(b"weft ")


def test_one_process_runs(weft, weft_env, tinypy):
    p = subprocess.run([weft, "run", tinypy, "-p", "x", "-n", "2"], env={**weft_env, "PMI_SIZE": "1", "PMI_RANK": "0"}, capture_output=True)
    assert p.returncode == 0 and b"2 written" in p.stderr


def test_work_is_shared(launch, weft, tinypy, weft_env):
    p = launch(2, "env", "DEBUG=1", "WEFT_CACHE=off", weft, "run", tinypy, "-p", "x", "-n", "1", "-t", "1")
    words = p.stderr.decode(errors="replace")
    assert p.returncode == 0 and "ranks: " in words and " is gathered " in words, words[-2000:]


def test_layers_are_shared(launch, weft, tinypy):
    """Each process runs the kernels of its layers alone; the stream goes to the second one, and logits to the first."""
    p = launch(2, "env", "WEFT_RANK_BYTES=2048", weft, "profile", tinypy, "-n", "1", "-t", "1", "--json", "-sm", "layer")
    assert p.returncode == 0, p.stderr.decode(errors="replace")
    sent = [k for k in json.loads(p.stdout)["kernels"] if k["name"] == "allgather"]
    vocab, stream = 4 * 2048, 4 * 256
    assert sum(k["bytes"] for k in sent) <= vocab + 2 * stream
    assert sum(k["bytes"] for k in sent) >= vocab + stream, sent


@pytest.mark.parametrize("link, split", [(None, "row"), ("0.1:1000", "row"), ("20000:0.01", "layer"), ("1GbE", "layer")])
def test_auto_follows_the_link(launch, weft, tinypy, link, split):
    """-sm auto: the model is so small that messages of a usual link take longer than its products. What -sm row and -sm layer gather tells which one it is."""
    def gathered(*more, link=None):
        p = launch(2, "env", "WEFT_RANK_BYTES=2048", *([f"WEFT_LINK={link}"] if link else []), weft, "profile", tinypy, "-n", "1", "-t", "1", "--json", *more)
        assert p.returncode == 0, p.stderr.decode(errors="replace")
        return sorted(k["bytes"] for k in json.loads(p.stdout)["kernels"] if k["name"] == "allgather"), p.stderr.decode(errors="replace")
    expected, (got, said) = gathered("-sm", split)[0], gathered(link=link)
    assert got == expected and ("split by layers: by rows, a token would take about" in said) == (split == "layer"), said


def test_auto_measures_a_link(launch, weft, tinypy):
    p = launch(2, "env", "WEFT_RANK_BYTES=2048", "WEFT_LINK=measured", weft, "run", tinypy, "-p", "def f", "-n", "4", "-t", "1", "--temp", "0")
    q = launch(2, "env", "WEFT_LINK=none", weft, "run", tinypy, "-p", "def f", "-n", "4", "-t", "1")
    assert p.returncode == 0 and b"4 written" in p.stderr, p.stderr
    assert q.returncode and b"WEFT_LINK is a link, or measured: a link 'none' is not known; it may be 1GbE" in q.stderr, q.stderr


@pytest.mark.parametrize("more, says", [
    (["-ts", "1,2,3"], b"(-ts)"), (["-ts", "0,0"], b"(-ts)"), (["-ts", "1,x"], b"(-ts)"), (["-ts", "-1,2"], b"(-ts)"), (["-ts", "1,,2"], b"(-ts)"),
    (["-ts", "nan,1"], b"(-ts)"), (["-sm", "none"], b"(-sm)"), (["-sm", "columns"], b"-sm")])
def test_splits_that_are_refused(launch, weft, tinypy, more, says):
    p = launch(2, weft, "run", tinypy, "-p", "x", "-n", "2", "-t", "1", *more)
    assert p.returncode and says in p.stderr and b"written" not in p.stderr, p.stderr.decode(errors="replace")


@pytest.mark.parametrize("more", [["-sm", "layer"], ["-ts", "16,12,12"], ["-sm", "none", "-ts", "1"]])
def test_splits_of_one_process(launch, weft, tinypy, more):
    p = launch(1, weft, "run", tinypy, "-p", "x", "-n", "2", "-t", "1", *more)
    assert p.returncode == 0 and f"{more[0 if more[1] == 'layer' else -2]} is ignored".encode() in p.stderr, p.stderr


def test_a_file_that_one_process_does_not_have(launch, weft, tinypy, tmp_path):
    """The others open what the first one opens; one that cannot ends all, and says why."""
    script = tmp_path / "one.sh"
    moved = tmp_path / "model.gguf"
    shutil.copy(tinypy, moved)
    script.write_text(f'#!/bin/sh\nif [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec unshare -m sh -c \'mount -t tmpfs x {tmp_path} && exec {weft} run {moved} -p x -n 1\'; fi\n'
                      f'exec {weft} run {moved} -p x -n 1\n')
    script.chmod(0o755)
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a process cannot have its own view of files here")
    p = launch(2, script)
    assert p.returncode and b"process 1: " in p.stderr and b"model.gguf" in p.stderr, p.stderr.decode(errors="replace")


def test_control_vectors(launch, weft, tinypy, tmp_path):
    """What the first process is told to add, all add: they open the vector's file, too."""
    w = gguf.GGUFWriter(tmp_path / "vector.gguf", "controlvector")
    w.add_string("controlvector.model_hint", "llama")
    w.add_uint32("controlvector.layer_count", 3)
    for layer in range(1, 4):
        w.add_tensor(f"direction.{layer}", np.random.default_rng(layer).standard_normal(256).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    command = (weft, "run", tinypy, "-p", "def f(x):", "-n", "24", "--temp", "0", "-t", "1")
    more = ("--control-vector-scaled", f"{tmp_path / 'vector.gguf'}:0.5")
    alone, together, without = launch(1, *command, *more), launch(2, *command, *more), launch(1, *command)
    assert together.returncode == 0, together.stderr.decode(errors="replace")
    assert together.stdout == alone.stdout != without.stdout


def test_too_little_shared_memory(weft, weft_env, tinypy):
    """Open MPI ended by SIGSEGV."""
    command = [launcher(weft), "--oversubscribe", "-np", "2", weft, "run", "-m", tinypy, "-p", "def ", "-n", "4", "--temp", "0"]
    env = {**weft_env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for size, status in (("3m", 1), ("8m", 0)):
        layout = f'mount -t tmpfs -o size={size} none /dev/shm || exit 77; exec "$@"'
        done = subprocess.run(["unshare", "-rm" if os.geteuid() else "-m", "sh", "-c", layout, "sh", *command], env=env, capture_output=True, text=True, timeout=120)
        if done.returncode == 77 or "unshare" in done.stderr:
            pytest.skip("no file system can be mounted here")
        assert done.returncode == status, done
        assert status == 0 or "Open MPI needs 4300 KiB of shared memory, and /dev/shm has 3072 KiB free" in done.stderr
