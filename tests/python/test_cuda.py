"""NVIDIA's GPUs (DEV=CUDA) without one: the driver's library is tests/fake_cuda, which checks every call and runs the kernels' PTX.

What the driver would get also goes through ptxas (PyPI: nvidia-cuda-nvcc-cu12), NVIDIA's own assembler: registers, spills and shared memory are
written to ptxas.txt of the build folder, and a kernel that spills while one token is computed fails.
"""
import importlib.util
import json
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ptxas import assemble, find_ptxas

ARCHS = ["sm_80", "sm_87", "sm_90", "sm_120"]
MODELS = ["tiny-deepseek2-mla", "tinypy-f16", "tinypy-q4_0", "tinypy-q4_k_m", "tinypy-q6_k"]
ONE = "1"                                                # a token alone, and so many that they are a prompt
PROMPT = ",".join(str(3 + i % 7) for i in range(40))


@pytest.fixture(scope="session")
def fake(weft):
    folder = Path(weft).parent / "tests" / "fake_cuda"
    if not (folder / "libcuda.so.1").exists():
        pytest.fail(f"no library in {folder}: run scripts/build.sh --tests")
    return str(folder)


@pytest.fixture
def on_fake(run_weft, fake, tmp_path):
    """Runs the command with the false driver; gives what run_weft gives, and the lines of the driver's log."""
    def run(args, **env):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        done = run_weft(args, env={"DEV": "CUDA", "LD_LIBRARY_PATH": fake, "FAKE_CUDA_LOG": str(log), **env}, timeout=600)
        return done, log.read_text().splitlines() if log.exists() else []
    return run


def tokens(done, what="logprob"):
    assert done.returncode == 0, done.err
    return [(step["id"], step[what]) for step in map(json.loads, done.out.splitlines())]


def generate(path, ids, n):
    return ["run", "-m", str(path), "--ids", ids, "-n", str(n), "--temp", "0", "--json", "--ignore-eos"]


def test_same_tokens(run_weft, on_fake, shared_dir):
    path = shared_dir / "models" / "tiny-llama.gguf"
    done, log = on_fake(generate(path, ONE, 2))
    assert [line for line in log if line.startswith("fault")] == []
    expected = tokens(run_weft(generate(path, ONE, 2)))
    for (ours, logprob), (theirs, other) in zip(tokens(done), expected, strict=True):
        assert ours == theirs and abs(logprob - other) < 1e-4
    # one graph for all tokens, of which only variables change, and nothing is left behind
    assert sum(line.startswith("graph of") for line in log) == 1
    assert log.count("graph launch") == 2
    assert not any(line.startswith("launch ") for line in log if not line.startswith("launch fill_"))    # weights laid out
    patched = [line.split()[1] for line in log if line.startswith("patch")]
    assert patched and not any(name == "r_48_4_4_8_16_2" for name in patched)
    assert log[-1] == "left: 0 pieces of memory, 0 modules, 0 streams, 0 events, 0 graphs, 0 executables"


def test_items_in_step_share_sums_without_memory(on_fake, run_weft, shared_dir, tmp_path):
    """Sums of neighbouring items are exchanged by shuffles, without barriers in between; GPUs before 7.0 use memory, and so do products, of
    which neighbours have other rows. Both compute the CPU's tokens."""
    path = shared_dir / "models" / "tiny-llama.gguf"
    expected = tokens(run_weft(generate(path, ONE, 2)))
    for sm, shuffles in (("90", True), ("61", False)):
        folder = tmp_path / sm
        folder.mkdir()
        done, log = on_fake(generate(path, ONE, 2), FAKE_CUDA_SM=sm, FAKE_CUDA_PTX=str(folder))
        assert [line for line in log if line.startswith("fault")] == []
        for (ours, logprob), (theirs, other) in zip(tokens(done), expected, strict=True):
            assert ours == theirs and abs(logprob - other) < 1e-4
        texts = [text for text in (path.read_text() for path in folder.iterdir()) if not re.search(r"\.entry \w+_n\d", text)]   # merges have both
        shared = [text for text in texts if "shfl.sync.bfly" in text]
        waiting = [text for text in texts if "bar.sync" in text or "barrier.sync" in text]
        exchanges = sum(text.count("shfl.sync.bfly") for text in texts)             # five of each sum of 32 items; a launch may have three sums
        assert len(waiting) >= 5 and (exchanges >= 15 if shuffles else not shared), (sm, exchanges, len(shared), len(waiting), len(texts))
        assert not set(shared) & set(waiting)


@pytest.mark.parametrize("model", ["tinypy-f16"])
def test_cuts_give_the_same_bits(run_weft, fake, shared_dir, model):
    """A prompt read at once, in pieces, and token by token: the same bits, whatever the plans' kernels have fused."""
    args = ["run", "-m", str(shared_dir / "models" / f"{model}.gguf"), "--ids", ",".join(map(str, range(1, 12))), "-n", "1", "--temp", "0", "--json", "--top-logprobs", "8"]
    env = {"DEV": "CUDA", "LD_LIBRARY_PATH": fake, "FAKE_CUDA_SM": "80"}
    whole, *others = [run_weft([*args, "-ub", n], env=env, timeout=600) for n in ("64", "1", "3", "256")]
    assert whole.returncode == 0, whole.err
    for other in others:
        assert other.out == whole.out
    on_cpu = run_weft(args)                              # F16: activations are rounded to halves, which the CPU does not do
    for (ours, top), (theirs, its) in zip(tokens(whole, "top"), tokens(on_cpu, "top"), strict=True):
        assert ours == theirs and all(abs(dict(its).get(key, value) - value) < 0.01 for key, value in top)


def test_long_chunks(on_fake, shared_dir):
    """More than 64 tokens go through at once where groups of items share a weight, unless memory is short: the bits of chunks of 64."""
    def read(*more, **env):
        done, log = on_fake([*generate(path, ",".join(map(str, range(1, 76))), 1), *more], FAKE_CUDA_SM="80", **env)
        assert done.returncode == 0 and [line for line in log if line.startswith("fault")] == [], done.err
        return done, log.count("graph launch")
    for model in ("tiny-llama", "tinypy-q4_0"):
        path = shared_dir / "models" / f"{model}.gguf"
        whole, launches = read()
        pieces, more = read("-ub", "64")
        assert (launches, more) == (2, 3) and tokens(whole) == tokens(pieces)
    little = 20 << 20                                    # chunks of 256 tokens would need some more
    assert read(FAKE_CUDA_MEMORY=str(little), FAKE_CUDA_RUN="0")[1] == 3


def test_context_that_fits(on_fake, shared_dir):
    """What nobody asked for is as long as there is memory on the device for all layers; what a plan keeps there goes with it."""
    args = [*generate(shared_dir / "models" / "tiny-llama.gguf", PROMPT, 1), "--override-kv", "llama.context_length=int:1048576"]
    given = {}
    for mib in (512, 64):
        done, log = on_fake(args, FAKE_CUDA_MEMORY=str(mib << 20), FAKE_CUDA_RUN="0", DEBUG="1", WEFT_CACHE="off")
        assert done.returncode == 0 and log[-1].startswith("left: 0 pieces of memory"), done.err
        assert "layers on CUDA" not in done.err
        positions = re.search(r"warning: .*tiny-llama.gguf: a context of (\d+) positions, as there is no memory for the 1048576 that", done.err)
        given[mib] = int(positions[1]), max(float(size) for size in re.findall(r"arena ([\d.]+) MiB", done.err))
    assert 1 << 20 > given[512][0] > given[64][0] >= 4096 and given[512][1] > 2 * given[64][1]


@pytest.mark.parametrize(("sm", "tiles"), [("80", True), ("75", False)])
def test_products_of_halves_are_tiles(on_fake, shared_dir, tmp_path, sm, tiles):
    """From compute capability 8.0 on all products with F16 are mma, of a token alone as well; not where all bits are wanted."""
    for ids in (ONE, PROMPT):
        for exact in (False, True):
            folder = tmp_path / f"{len(ids)}-{exact}"
            folder.mkdir()
            done, _ = on_fake([*generate(shared_dir / "models" / "tinypy-f16.gguf", ids, 1), *(["--precision", "exact"] if exact else [])],
                              FAKE_CUDA_RUN="0", FAKE_CUDA_PTX=str(folder), FAKE_CUDA_SM=sm)
            assert done.returncode == 0, done.err
            texts = [path.read_text() for path in folder.iterdir()]
            products = [text for text in texts if "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text]
            assert len(products) >= 5 if tiles and not exact else not products


def test_tokens_of_a_prompt_share_keys_and_values(on_fake, shared_dir):
    """A work-group has both queries of a head of keys and four tokens: what it reads of the caches serves eight."""
    done, _ = on_fake(generate(shared_dir / "models" / "tinypy-f16.gguf", PROMPT, 1), FAKE_CUDA_RUN="0", DEBUG="3", WEFT_CACHE="off")
    assert done.returncode == 0, done.err
    blocks = {int(n) for n in re.findall(r"^kernel r_n\d+_n(\d+)_", done.err, re.MULTILINE)}
    assert blocks == {64 // 4}, "tokens of a chunk, in numbers of work-groups"


@pytest.mark.parametrize("context", ["256", "4096"])
def test_items_share_all_stages(on_fake, shared_dir, context):
    """Latent attention has four stages; a list of them once changed its order while they were shared out, and one item made all of a block."""
    done, _ = on_fake([*generate(shared_dir / "models" / "tiny-deepseek2.gguf", ONE, 1), "-c", context], FAKE_CUDA_RUN="0", DEBUG="3", WEFT_CACHE="off")
    assert done.returncode == 0, done.err
    over_blocks = re.findall(r"^kernel r_n\d+_.*$", done.err, re.MULTILINE)
    assert over_blocks and all(line.count("LOCAL(") >= 4 for line in over_blocks), over_blocks


def brought(log):
    return sum(int(line.split()[1]) for line in log if line.startswith("cuMemcpyHtoDAsync"))


def test_layers_on_two_devices(run_weft, on_fake, shared_dir):
    """-ngl: the last layers and the head are the device's, with their weights alone; the tokens are the CPU's."""
    path, ids = shared_dir / "models" / "tiny-llama.gguf", PROMPT
    args = [*generate(path, ids, 3), "-c", "64"]
    expected = tokens(run_weft(args))
    done, log = on_fake([*args, "-ngl", "1"])
    assert [line for line in log if line.startswith("fault")] == []
    assert log[-1].startswith("left: 0 pieces of memory, 0 modules, 0 streams, 0 events, 0 graphs")
    for (ours, logprob), (theirs, other) in zip(tokens(done), expected, strict=True):
        assert ours == theirs and abs(logprob - other) < 1e-4
    sizes = {}
    for n in ("1", "2", "all"):
        _, log = on_fake([*args, "-ngl", n], FAKE_CUDA_RUN="0")
        sizes[n] = brought(log)
    layer = 68 * 1024                                    # attn_output: a layer is more than that, and so is the embedding
    assert sizes["1"] + layer < sizes["2"] and sizes["2"] + layer < sizes["all"]
    none, log = on_fake([*args, "-ngl", "0"])
    assert log == [] and tokens(none) == expected        # the driver is not even opened


def test_bench_names_the_device(on_fake, shared_dir):
    for n, name in (("all", "CUDA"), ("0", "CPU")):
        done, _ = on_fake(["bench", "-m", str(shared_dir / "models" / "tiny-llama.gguf"), "-p", "0", "-n", "2", "-r", "1", "-ngl", n], FAKE_CUDA_RUN="0")
        assert done.returncode == 0 and done.out.splitlines()[-1].split("|")[4].strip() == name


def test_as_many_layers_as_fit(on_fake, shared_dir):
    path = shared_dir / "models" / "tiny-llama.gguf"
    args = [*generate(path, PROMPT, 1), "-c", "64"]

    def needed(layers, memory):
        done, _ = on_fake([*args, "-ngl", layers], FAKE_CUDA_MEMORY=str(memory), FAKE_CUDA_RUN="0")
        assert done.returncode == 1 and done.err.strip().count("\n") == 0
        found = re.search(rf"{layers} layers on CUDA need ([\d.]+) MiB, and ([\d.]+) MiB of its memory are free: (.*)$", done.err.strip())
        return float(found[1]), found[3]
    most, why = needed("3", 1000000)
    assert why == "none fits (-ngl 0); a smaller context (-c) needs less"
    memory = {"FAKE_CUDA_MEMORY": str(int((most - 0.4) * 2**20 * 32 / 31)), "FAKE_CUDA_RUN": "0"}      # a thirty-second part is the driver's
    assert needed("3", memory["FAKE_CUDA_MEMORY"]) == (most, "-ngl 2 fits")
    done, _ = on_fake([*args, "-ngl", "2"], **memory)                                                   # what it says
    assert done.returncode == 0, done.err
    done, log = on_fake(args, **memory)                                                                 # nobody said how many
    assert done.returncode == 0 and f"warning: {path}: 2 of 3 layers on CUDA, as all need {most:.1f} MiB" in done.err
    assert log[-1].startswith("left: 0 pieces of memory")


def test_kernels_from_the_cache(on_fake, shared_dir, tmp_path):
    path = shared_dir / "models" / "tiny-llama.gguf"
    env = {"FAKE_CUDA_RUN": "0", "WEFT_CACHE": str(tmp_path / "cache")}
    args = [*generate(path, ONE, 1), "--stats", str(tmp_path / "stats")]
    made = []
    for _ in range(2):
        done, log = on_fake(args, **env)
        assert done.returncode == 0, done.err
        assert not any(line.startswith("fault") for line in log)
        made.append(json.loads((tmp_path / "stats").read_text())["kernels_compiled"])
    assert made[0] > 10 and made[1] == 0


def test_times(on_fake, shared_dir):
    path = shared_dir / "models" / "tiny-llama.gguf"
    done, log = on_fake(["profile", "-m", str(path), "-n", "1", "--json"], FAKE_CUDA_RUN="0")
    assert done.returncode == 0, done.err
    assert any(line.startswith("launch r_") for line in log) and not any(line.startswith("fault") for line in log)
    assert log[-1].startswith("left: 0 pieces of memory, 0 modules, 0 streams, 0 events")


SENTENCES = [
    ({"FAKE_CUDA_DEVICES": "0"}, "CUDA: NVIDIA's driver finds no GPU: does nvidia-smi list one, and may this process open /dev/nvidia*?"),
    ({"FAKE_CUDA_SM": "35"}, "CUDA: Fake GPU 0 is too old (compute capability 3.5; 5.0 is needed)"),
    ({"FAKE_CUDA_MEMORY": "100000"}, "CUDA_ERROR_OUT_OF_MEMORY (2); a smaller model, context (-c) or chunk (-ub) needs less memory"),
    ({"FAKE_CUDA_FAIL": "cuInit:1:999"}, "CUDA: no device yet: starting the driver: error (999)"),
    ({"FAKE_CUDA_FAIL": "cuModuleLoadDataEx:1:222"}, "the driver is too old for its kernels (PTX for sm_90): a newer driver is needed"),
    ({"FAKE_CUDA_FAIL": "cuGraphLaunch:1:700"}, "launching a plan: CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
    ({"FAKE_CUDA_FAIL": "cuStreamSynchronize:1:719"}, "CUDA_ERROR_LAUNCH_FAILED (719)"),
]


@pytest.mark.parametrize(("env", "sentence"), SENTENCES, ids=[sentence[:30] for _, sentence in SENTENCES])
def test_what_fails_is_one_sentence(on_fake, shared_dir, env, sentence):
    done, _ = on_fake(generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1), FAKE_CUDA_RUN="0", **env)
    assert done.returncode == 1
    assert sentence in done.err and done.err.strip().count("\n") == 0


def test_no_driver(run_weft, shared_dir):
    done = run_weft(generate(shared_dir / "models" / "tiny-llama.gguf", ONE, 1), env={"DEV": "CUDA"})
    if done.returncode == 0:
        pytest.skip("there is a driver here")
    assert done.err.strip() == "weft: error: CUDA needs NVIDIA's driver, and its library libcuda.so.1 is not here: install the driver (nothing else of CUDA is needed)"


def test_env(run_weft, on_fake):
    done, _ = on_fake(["env"], FAKE_CUDA_SM="87", FAKE_CUDA_DEVICES="2")
    assert "CUDA: Fake GPU 0, compute capability 8.7, 4.0 GiB, kernels for sm_87; not used: Fake GPU 1" in done.out
    assert "kernels for sm_90" in on_fake(["env"], FAKE_CUDA_SM="120")[0].out          # the newest that is older runs there


# ---- ptxas ----------------------------------------------------------------------------------------------------------------


def test_ptxas(on_fake, shared_dir, weft, tmp_path):
    ptxas, kernels = find_ptxas(), {}
    for model in MODELS:
        for what, ids in (("token", ONE), ("prompt", PROMPT)):
            folder = tmp_path / model / what
            folder.mkdir(parents=True)
            done, _ = on_fake(generate(shared_dir / "models" / f"{model}.gguf", ids, 1), FAKE_CUDA_RUN="0", FAKE_CUDA_PTX=str(folder), FAKE_CUDA_SM="80")
            assert done.returncode == 0, done.err
            for path in sorted(folder.iterdir()):
                kernels.setdefault(path.read_text(), (model, what, path))
    jobs = [(name, arch) for name in kernels.values() for arch in (ARCHS if name[1] == "token" else ARCHS[:1])]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: assemble(ptxas, job[0][2], job[1]), jobs))
    lines, spilled = [f"{'kernel':44} {'model':20} {'for':7} {'arch':7} registers  spilled  stack  shared"], []
    for ((model, what, path), arch), (registers, spills, stack, shared, _) in zip(jobs, results, strict=True):
        lines.append(f"{path.stem[5:]:44} {model:20} {what:7} {arch:7} {registers:9} {spills:8} {stack:6} {shared:7}")
        if what == "token" and spills:
            spilled.append(lines[-1])
    (Path(weft).parent / "ptxas.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(kernels)} kernels, {len(jobs)} times assembled")
    assert len(kernels) > 50
    assert not spilled, "\n".join(spilled)


# ---- what kernels ask of memory -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu", Path(__file__).resolve().parents[2] / "bench" / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", ["tinypy-q4_0", "tinypy-q6_k", "tinypy-q8_0"])
def test_products_read_words_side_by_side(gpu, weft, fake, shared_dir, model):
    del fake
    rows = list(gpu.rows(Path(weft), str(shared_dir / "models" / f"{model}.gguf"), find_ptxas(), least=1 << 15))
    products = [kernel for kernel, _ in rows if not re.search(r"_n\d", kernel.name)]       # attention has ranges that depend on the position
    assert len(products) >= 3
    for kernel in products:
        assert kernel.width >= 5, f"{kernel.name} reads few bytes at once: {kernel.width}"
        assert kernel.coalesced >= 0.7, f"{kernel.name}: {kernel.coalesced:.0%} of the sectors is asked for"


def test_products_are_dp4a(on_fake, shared_dir, tmp_path):
    for sm, has in (("80", True), ("50", False)):
        folder = tmp_path / sm
        folder.mkdir()
        done, _ = on_fake(generate(shared_dir / "models" / "tinypy-q4_0.gguf", ONE, 1), FAKE_CUDA_RUN="0", FAKE_CUDA_PTX=str(folder), FAKE_CUDA_SM=sm)
        assert done.returncode == 0, done.err
        assert any("dp4a.u32.s32" in path.read_text() for path in folder.iterdir()) == has


@pytest.mark.parametrize(("model", "layers", "a_block", "others"), [
    ("tinypy-q4_0", 6, 8, 3), ("tinypy-q8_0", 6, 8, 3), ("tinypy-f16", 6, 6, 2),
    ("tinypy-q6_k", 6, 8, 3), ("tinypy-q4_k_m", 6, 8, 3),        # activations are rounded 32 at a time, as many as a work-group makes
    ("tiny-llama", 3, 8, 3), ("tiny-qwen2", 3, 9, 3),            # halves of a key of 64, turned together, are of two work-groups
])
def test_launches_of_a_token(gpu, weft, fake, shared_dir, model, layers, a_block, others):
    launched = gpu.launches(Path(weft), str(shared_dir / "models" / f"{model}.gguf"))
    assert sum(count for _, count in launched) == a_block * layers + others, launched


def test_predicted_speed(gpu, weft, fake, run_weft, shared_dir):
    """Tokens per second of a GPU that is not here, from what a token launches."""
    path = str(shared_dir / "models" / "tinypy-q4_0.gguf")
    orin, _, fast = gpu.GPUS
    kernels, (us, _), size = gpu.predict(Path(weft), path, orin)
    assert sum(n for n, _ in kernels.values()) >= 6 * 7                                    # six layers
    assert us == pytest.approx(sum(n * each for n, each in kernels.values()), rel=0.2)     # searches look at two depths
    assert us > 6 * 7 * 3 and 0 < size < 1e7                                               # 3 us between launches
    assert gpu.predict(Path(weft), path, fast)[1][0] < us
    _, (before, after), _ = gpu.predict(Path(weft), path, fast, 20)
    assert 0 < after < before
    env = {"DEV": "CUDA", "LD_LIBRARY_PATH": fake, "FAKE_CUDA_RUN": "0", "WEFT_CACHE": "off"}
    done = run_weft(["tune", "-m", path, "--predict", "voodoo"], env=env)
    assert done.returncode == 1 and "no figures of a GPU 'voodoo' are known; those of orin, rtx4090, h200 are" in done.err
    done = run_weft(["tune", "-m", path, "--predict", "orin"])
    assert done.returncode == 1 and "DEV=CPU has no work-groups: only their times can be predicted" in done.err


def test_what_the_tables_read(gpu):
    line = "access r_512: 512 groups of 128 items, 18900000 bytes, 2000 nodes, 100 loads of 4.0 bytes, 400 sectors, 12800 useful bytes"
    kernel = gpu.parse(f"noise\n{line}\n")["r_512"]
    assert kernel.coalesced == 1 and kernel.width == 4


def test_searches_run_on_the_device(run_weft, fake, shared_dir, tmp_path):
    """Candidates run on the device and are timed by its clock, those of several kernels in a launch and of attention, too; what is found is what
    the next run uses, with the same bits."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    path, env = shared_dir / "models" / "tinypy-q4_0.gguf", {"DEV": "CUDA", "LD_LIBRARY_PATH": fake, "FAKE_CUDA_SM": "80", "WEFT_CACHE": str(cache),
           "FAKE_CUDA_LOG": str(tmp_path / "log")}
    args = [*generate(path, ONE, 3), "--top-logprobs", "8", "-c", "256", "--stats", str(tmp_path / "stats")]
    plain = run_weft(args, env=env, timeout=300)
    tried = 0
    for budget in (10, 60, 240):
        done = run_weft(["tune", "-m", path, "--beam", "1", "--budget", budget, "--no-prompt", "--json", "-c", "256"], env=env, timeout=600)
        assert done.returncode == 0, done.err
        rows = json.loads(done.out)["kernels"]
        found = [row["state"] for row in rows]
        tried = max(tried, rows[0]["tried"])                   # none the second time, where the first one came to its end
        if "better" in found and tried > 1:
            break
    assert "better" in found, done.out
    assert rows[0]["name"].endswith("_then_3") and tried > 1 and not any("reads" in row["why"] for row in rows)
    assert "fault" not in (tmp_path / "log").read_text()
    after = run_weft(args, env=env, timeout=300)
    assert after.out == plain.out
    assert json.loads((tmp_path / "stats").read_text())["kernels_tuned"] > 0


def test_saves_beside_a_run(saves_beside, fake, shared_dir, tmp_path):
    """The driver has one caller at a time; another one is a fault in its log."""
    log = tmp_path / "log"
    saves_beside(shared_dir / "models" / "tiny-llama.gguf", 20, 10, {"DEV": "CUDA", "LD_LIBRARY_PATH": fake, "FAKE_CUDA_LOG": str(log)})
    assert [line for line in log.read_text().splitlines() if line.startswith("fault")] == []
