"""Metadata in place of a file's: --override-kv, and the options of RoPE and YaRN, which are such metadata."""
import pytest

IDS = "5,17,200,3,99,42,7,311,250,8,64,12,400,33,2,91,118,76"
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 32}
AS_OPTIONS = ["--rope-scaling", "yarn", "--rope-scale", 8, "--yarn-orig-ctx", 32]


@pytest.fixture
def answer(run_weft):
    def run(model, *args):
        done = run_weft(["run", "-m", model, "-c", 64, "--ids", IDS, "-n", 3, "--ignore-eos", "--temp", 0, "--json", "--top-logprobs", 5, *args])
        assert done.returncode == 0, done.err
        return done.out
    return run


@pytest.fixture
def file(make_model, tmp_path):
    def write(family="llama-linear", **keys):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"
        make_model.write(family, path, keys={"rope.dimension_count": 80, **keys})
        return path
    return write


@pytest.mark.parametrize("keys, options", [
    (YARN, AS_OPTIONS),
    ({**YARN, "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0, "rope.scaling.yarn_attn_factor": 1.25, "rope.scaling.yarn_ext_factor": 0.5},
     [*AS_OPTIONS, "--yarn-beta-fast", 16, "--yarn-beta-slow", 2, "--yarn-attn-factor", 1.25, "--yarn-ext-factor", 0.5]),
    ({**YARN, "rope.scaling.yarn_truncate": False}, [*AS_OPTIONS, "--yarn-truncate", "off"]),
    ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, ["--rope-scale", 4]),
    ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, ["--rope-freq-scale", 0.25]),
    ({"rope.freq_base": 500000.0}, ["--rope-freq-base", 500000]),
    ({"rope.freq_base": 500000.0}, ["--override-kv", "llama.rope.freq_base=float:500000"]),
    ({"rope.freq_base": 500000.0}, ["--override-kv", "{arch}.rope.freq_base=float:5e5"]),
    ({"attention.layer_norm_rms_epsilon": 0.125}, ["--override-kv", "llama.attention.layer_norm_rms_epsilon=float:0.125"]),
])
def test_as_if_the_file_had_it(answer, file, keys, options):
    plain, want = file(), answer(file(**keys))
    assert answer(plain, *options) == want != answer(plain)


def test_what_the_file_has_is_replaced(answer, file):
    scaled = file(**YARN)
    assert answer(scaled, "--rope-scaling", "none") == answer(file())
    assert answer(scaled, "--rope-scaling", "model", "--rope-scale", 0, "--rope-freq-base", 0, "--yarn-orig-ctx", 0, "--yarn-ext-factor", -1, "--yarn-attn-factor", -1,
                  "--yarn-beta-slow", -1, "--yarn-beta-fast", -1) == answer(scaled)
    assert answer(scaled, "--yarn-truncate", "on") == answer(scaled) != answer(scaled, "--yarn-truncate", "off")
    assert answer(scaled, "--rope-scale", 16, "--override-kv", "llama.rope.scaling.original_context_length=int:64") == answer(
        file(**{**YARN, "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 64}))


@pytest.mark.parametrize("options, words", [
    (["--override-kv", "x"], ["'x'", "key=type:value"]), (["--override-kv", "a=int:x"], ["'x' is no such value"]), (["--override-kv", "a=byte:1"], ["int, float, bool or str"]),
    (["--override-kv", "a=bool:yes"], ["no such value"]), (["--override-kv", "a=int:99999999999999999999"], ["no such value"]),
    (["--override-kv", "llama.rope.freq_base=int:5"], ["llama.rope.freq_base", "found INT64 5"]), (["--override-kv", "llama.block_count=int:99"], ["blk.3"]),
    (["--override-kv", "general.architecture=str:marble"], ["'marble' is not known"]), (["--override-kv", "llama.what=int:1"], ["llama.what", "not supported"]),
    (["--rope-scaling", "linear"], ["llama.rope.scaling.factor", "missing"]),
])
def test_refused(run_weft, file, options, words):
    done = run_weft(["run", "-m", file(), "--ids", "1", "-n", 1, *options])
    assert done.returncode == 1 and done.err.count("\n") == 1 and all(word in done.err for word in words), done.err


def test_what_is_no_number(run_weft, file):
    for option in (["--rope-scaling", "spiral"], ["--rope-scale", "-1"], ["--yarn-beta-fast", "x"]):
        assert run_weft(["run", "-m", file(), "--ids", "1", "-n", 1, *option]).returncode == 2


def test_texts(run_weft, tinypy):
    """Of the tokenizer, too."""
    plain = run_weft(["embed", "-m", tinypy, "-p", "a", "--pooling", "none", "--embd-output-format", "raw"])
    more = run_weft(["embed", "-m", tinypy, "-p", "a", "--pooling", "none", "--embd-output-format", "raw", "--override-kv", "tokenizer.ggml.add_eos_token=bool:true"])
    assert len(more.out.splitlines()) == len(plain.out.splitlines()) + 1
