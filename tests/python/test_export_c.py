"""weft export --c: a model as C. Any compiler builds it, for any processor the same bits come out, and the ids are those of weft run."""
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import REPO

TINYPY = REPO / "models/tinypy.gguf"
RECORDS = REPO / "tests/records"
IDS = "1,2,3,300,200"
PLAIN = {"WEFT_CPU": "x86-64"} if os.uname().machine == "x86_64" else {}         # no multiply-add of one instruction, as in C
NEAR = 0.02                                                                       # two ids as likely as each other: sums in another order decide

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


def export(run_weft, model, out, *more, **env):
    done = run_weft(["export", model, "--c", "-o", out, *more], env=env, timeout=600)
    assert done.returncode == 0, done.err
    return out


def build(source, *compiler):
    program = source.with_suffix("." + re.sub(r"\W", "_", "_".join(compiler)))
    done = subprocess.run([*compiler, source, "-o", program, "-lm"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr
    return program


def run(*args):
    return subprocess.run(list(map(str, args)), env={}, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", ["mixtral", "mamba", "gemma3", "deepseek2-lite", "gpt-oss-mxfp4", "glm4-sections"])
def test_families(run_weft, make_model, tmp_path, name):
    """Mixtures of experts, recurrences, windows, MLA, rotations by three numbers: what weft run answers."""
    model, record = tmp_path / f"{name}.gguf", json.loads((RECORDS / f"{name}.json").read_text())
    make_model.write(name, model)
    program = build(export(run_weft, model, tmp_path / "model.c", "-c", record["n_ctx"]), "gcc", "-O0", "-Wall", "-Wextra")
    mine = run(program, "-n", 8, model, *record["prompt"])
    assert mine.returncode == 0, mine.stderr
    theirs = run_weft(["run", "-m", model, "-c", record["n_ctx"], "--ids", ",".join(map(str, record["prompt"])), "-n", "8", "--temp", "0", "--json",
                       "--top-logprobs", "2"], env=PLAIN, timeout=600)
    assert theirs.returncode == 0, theirs.err
    lines, compared = list(map(json.loads, theirs.out.splitlines())), 0
    for line, id in zip(lines, mine.stdout.split()):
        (_, most), (_, next) = line["top"]
        if most - next < NEAR:
            break
        assert int(id) == line["id"], (mine.stdout, lines)
        compared += 1
    else:
        assert len(lines) == len(mine.stdout.split())
    assert compared >= 2


HARNESS = """#define main model_main
#include "model.c"
#undef main
int main(int argc, char **argv) {
  (void)model_main;
  read_weights(argv[1]);
  begin(argc);
  for (int i = 2; i < argc; i++) step(atoi(argv[i]), i - 2);
  for (int i = 0; i < VOCAB; i++) { uint32_t bits; memcpy(&bits, &logits[i], 4); printf("%08x\\n", (unsigned)bits); }
}
"""
ARM = "aarch64-linux-gnu-gcc", "-static", "-O2"
COMPILERS = [("gcc", "-O0", "-std=c99"), ("gcc", "-O3", "-march=native"), ("clang", "-O2", "-Wall", "-Wextra", "-march=native"), ("tcc", "-Wall"), ARM]


@pytest.fixture(scope="module")
def harness(run_weft, tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    export(run_weft, TINYPY, folder / "model.c")
    (folder / "all.c").write_text(HARNESS)
    program = build(folder / "all.c", "gcc", "-O2", "-Wall", "-Wextra")
    return folder, run(program, TINYPY, *IDS.split(",")).stdout


@pytest.mark.parametrize("compiler", COMPILERS, ids=" ".join)
def test_the_same_bits(harness, compiler):
    folder, expected = harness
    if not shutil.which(compiler[0]) or (compiler == ARM and not shutil.which("qemu-aarch64-static")):
        pytest.skip(f"the compiler {compiler[0]} is not installed")
    if compiler == ARM and subprocess.run([*ARM, "-xc", "-", "-o", "/dev/null"], input=b"#include <math.h>\nint main(void) { return 0; }",
                                          capture_output=True).returncode:
        pytest.skip(f"{compiler[0]} has no C library (libc6-dev-arm64-cross)")
    program = build(folder / "all.c", *compiler)
    done = run(*(["qemu-aarch64-static"] if compiler == ARM else []), program, TINYPY, *IDS.split(","))
    assert done.stdout.count("\n") == 2048 and done.stdout == expected, done.stderr


def test_tinypy(run_weft, harness):
    """Ids as weft run's, to the end of a long answer."""
    folder, _ = harness
    program = build(folder / "model.c", "gcc", "-O1")
    theirs = run_weft(["run", "-m", TINYPY, "--ids", IDS, "-n", "24", "--temp", "0", "--json"], env=PLAIN, timeout=600)
    mine = run(program, "-n", 24, TINYPY, *IDS.split(","))
    assert mine.stdout.split() == [str(json.loads(line)["id"]) for line in theirs.out.splitlines()], mine.stderr
    full = run(program, "-n", 512, TINYPY, *["5"] * 510)
    assert full.returncode == 0 and 0 < len(full.stdout.split()) <= 3, "of 512 positions 2 are left, and the last id needs none"


def test_the_text_depends_on_the_model_alone(run_weft, harness, tmp_path):
    folder, _ = harness
    for env in ({"DEV": "REF"}, {"WEFT_CPU": "x86-64-v2"} if PLAIN else {"WEFT_CPU": "armv8-a"}, {"PREFETCH": "0"}):
        assert export(run_weft, TINYPY, tmp_path / "other.c", **env).read_bytes() == (folder / "model.c").read_bytes(), env


def test_names_are_comments(run_weft, tmp_path):
    name = tmp_path / "a*\n#error b\\\n.gguf"
    shutil.copy(TINYPY, name)
    build(export(run_weft, name, tmp_path / "model.c"), "gcc", "-O0", "-Wall")


def test_another_file(harness, tmp_path):
    folder, _ = harness
    program, other = build(folder / "model.c", "gcc", "-O1"), tmp_path / "other.gguf"
    data = bytearray(TINYPY.read_bytes())
    other.write_bytes(data[:-1])
    assert "is not the file that this program was made of: its size" in run(program, other, 1).stderr
    at = data.index(b"general.architecture")
    data[at] ^= 1
    other.write_bytes(data)
    done = run(program, other, 1)
    assert done.returncode == 1 and "its metadata" in done.stderr and done.stdout == ""
    assert "cannot be opened" in run(program, tmp_path / "none", 1).stderr
    for id in "2048", "-1", "x", "", "99999999999999999999":
        done = run(program, TINYPY, id)
        assert done.returncode == 1 and "is not a number that is possible here" in done.stderr, id
    assert run(program, TINYPY, *["1"] * 513).returncode == 1 and run(program, TINYPY).returncode == 2


def test_refused(run_weft, make_encoder, tmp_path):
    out = tmp_path / "out.c"

    def said(*args, status):
        done = run_weft(["export", *args, "-o", out], timeout=600)
        assert done.returncode == status and not out.exists(), done.err
        return done.err

    assert "--cpu and --program do not apply" in said(TINYPY, "--c", "--cpu", "v2", status=2)
    assert "-c: only with --c" in said(TINYPY, "-c", "64", "--cpu", "v2", status=2)
    assert "none.gguf" in said(tmp_path / "none.gguf", "--c", status=1)
    encoder = next(iter(make_encoder.ENCODERS))
    make_encoder.write(encoder, tmp_path / "encoder.gguf")
    assert "makes embeddings only" in said(tmp_path / "encoder.gguf", "--c", status=1)
