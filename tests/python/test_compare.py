"""bench/compare.py: that it measures Weft by itself, says what is missing, and talks to a llama-bench of either kind."""
import json
import os
import subprocess
import sys

import projector
import pytest

RESULT = {"file", "summary", "file_bytes", "token_bytes", "limit", "engines"}
ENGINE = {"engine", "error", "rounds", "decode_tps", "prefill_tps", "load_s", "first_s", "peak_bytes", "decode_tps_samples", "prefill_tps_samples", "gb_s",
          "limit_share", "ratio_decode", "ratio_prefill", "kl", "kl_max", "top1", "positions"}


@pytest.fixture(scope="module")
def compare(repo, weft, weft_env):
    def run(*args, env=None):
        command = [sys.executable, str(repo / "bench" / "compare.py"), "--weft", weft, "--limit-mib", "8", *map(str, args)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**weft_env, **(env or {})}, timeout=300)

    return run


def test_weft_alone(compare, tinypy, tmp_path):
    done = compare(tinypy, "--engines", "weft", "--rounds", "1", "-n", "4", "--kl", "--kl-tokens", "4", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert set(out) == {"settings", "missing", "files"} and out["settings"]["tokens"] == 4 and out["missing"] == {}
    result, = out["files"]
    assert set(result) == RESULT and result["summary"] == "llama 5.2M Q8_0"
    assert result["limit"]["error"] is None and len(result["limit"]["samples"]) == 2 and .01 < result["limit"]["huge_gb_s"] < 10000
    engine, = result["engines"]
    assert set(engine) == ENGINE and engine["engine"] == "weft" and engine["error"] is None and engine["rounds"] == 1
    assert engine["decode_tps"] > 0 and engine["prefill_tps"] > 0 and engine["ratio_decode"] == engine["ratio_prefill"] == 1
    assert engine["gb_s"] == pytest.approx(engine["decode_tps"] * result["token_bytes"] / 1e9)
    assert engine["limit_share"] == pytest.approx(engine["gb_s"] / result["limit"]["huge_gb_s"])
    assert 0 < engine["load_s"] <= engine["first_s"] and engine["peak_bytes"] > 1e6
    assert 0 < engine["kl"] < .01 and engine["kl"] <= engine["kl_max"] < .1 and engine["top1"] > .8 and engine["positions"] == 12
    assert "| weft " in done.stdout and "| engine " in done.stdout


def test_bytes_of_a_token(compare, run_weft, tinypy):
    tensors = json.loads(run_weft(["inspect", "-m", tinypy, "--json"]).out)["tensors"]
    done = compare(tinypy, "--engines", "weft", "--rounds", "1", "-n", "1", "--prefill", "0", "--json", "-")
    result, = json.loads(done.stdout)["files"]
    assert not any(t["name"] == "output.weight" for t in tensors)      # the embedding is the head as well
    assert result["token_bytes"] == sum(t["bytes"] for t in tensors)
    assert result["engines"][0]["prefill_tps"] is None and result["engines"][0]["kl"] is None


FAKE = """#!{python}
import json, sys
args = sys.argv[1:]
if args == ["--help"]:
    print("{help}")
    sys.exit()
if "--fail" in args:
    sys.exit("cannot load it")
print("loading ...")
tests = [dict(n_prompt=128, n_gen=0, avg_ts=100.0), dict(n_prompt={prompt}, n_gen=4, avg_ts=20.0)]
assert args[args.index("{flag}") + 1] in ({value}), args
print(json.dumps(tests))
"""


def test_other_engines(compare, tinypy, tmp_path):
    programs = {}
    for name, fields in {"llama": dict(help="  -d, --n-depth <n>", flag="-d", value="'8',", prompt=0), "ik": dict(help="  -gp <pp,tg>", flag="-gp", value="'8,1', '8,4'", prompt=8)}.items():
        path = programs[name] = tmp_path / name
        path.write_text(FAKE.format(python=sys.executable, **fields))
        path.chmod(0o755)
    done = compare(tinypy, "--rounds", "2", "-n", "4", "--llama-bench", programs["llama"], "--ik-bench", programs["ik"], "--ik-options", "-rtr 1", "--ik-options=--fail",
                   "--json", tmp_path / "out.json")
    assert done.returncode == 1 and "ik_llama.cpp --fail failed: ik: cannot load it" in done.stderr
    weft, llama, ik, bad = json.loads((tmp_path / "out.json").read_text())["files"][0]["engines"]
    assert [llama["engine"], ik["engine"], bad["engine"]] == ["llama.cpp", "ik_llama.cpp -rtr 1", "ik_llama.cpp --fail"]
    assert llama["decode_tps_samples"] == ik["decode_tps_samples"] == [20, 20] and ik["prefill_tps"] == 100 and ik["load_s"] is None
    rounds = sorted(t / 20 for t in weft["decode_tps_samples"])
    assert llama["ratio_decode"] == pytest.approx(sum(rounds) / 2)
    assert "cannot load it" in bad["error"] and bad["decode_tps"] is None and bad["rounds"] == 0
    assert "failed: ik: cannot load it" in done.stdout


def test_what_is_missing_is_said(compare, tinypy, tmp_path):
    done = compare(tinypy, "--engines", "llama,ik", "--llama-python", tmp_path / "none", "--ik-bench", tmp_path / "none")
    assert done.returncode == 1 and "without llama.cpp: " in done.stderr and "without ik_llama.cpp: " in done.stderr and "no engine is left" in done.stderr
    done = compare(tinypy, "--weft", tmp_path / "none")
    assert done.returncode == 1 and "build it with scripts/build.sh" in done.stderr
    done = compare(tmp_path / "none.gguf", "--engines", "weft")
    assert done.returncode == 1 and "none.gguf" in done.stderr
    done = compare(tinypy, "--engines", "weft", "--rounds", "1", "-n", "1", "--prefill", "0", "--json", "-", env={"CC": str(tmp_path / "no-compiler")})
    assert done.returncode == 0 and "no memory limit: " in done.stderr
    result, = json.loads(done.stdout)["files"]
    assert result["limit"]["huge_gb_s"] is None and result["engines"][0]["limit_share"] is None and result["engines"][0]["decode_tps"] > 0
    done = compare(tinypy, "--engines", "weft,vllm")
    assert done.returncode == 2 and "'vllm'" in done.stderr
    assert compare(tinypy, "--rounds", "0").returncode == 2


FAKE_PICTURES = """#!{python}
import sys, time
args = sys.argv[1:]
assert args[args.index("-n") + 1] == "1" and "--image" in args and "--mmproj" in args and "--no-warmup" in args, args
print("0.1 I encoding mtmd batch, n_chunks = 1\\n0.2 I mtmd batch encoding done in {ms} ms", file=sys.stderr)
"""


def test_pictures(repo, weft, weft_env, tinypy, tmp_path):
    """bench/pictures.py: first token, the picture's part, processor time and memory of both, and what fails is said."""
    encoder, cli, out = projector.write(tmp_path / "mmproj.gguf"), tmp_path / "cli", tmp_path / "out.json"
    picture = repo / "docs" / "pictures" / "viz.webp"
    command = [sys.executable, repo / "bench" / "pictures.py", "--weft", weft, tinypy, encoder, picture, "--rounds", "2", "--llama-cli", cli, "--json", out]

    def measured(ms):
        cli.write_text(FAKE_PICTURES.format(python=sys.executable, ms=ms))
        cli.chmod(0o755)
        return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=weft_env, timeout=300)

    done = measured(1500)
    assert done.returncode == 0, done.stderr
    ours, other = json.loads(out.read_text())["pictures"][0]["engines"]
    assert other["picture_s"] == 1.5 and other["ratio_picture_s"] > 1 and "| llama.cpp | " in done.stdout
    assert 0 < ours["picture_s"] < ours["first_s"] and ours["cpu_s"] > 0 and ours["peak_mib"] > 1 and ours["ratio_first_s"] == 1 and ours["tokens"] > 60
    done = measured("many")
    assert done.returncode == 1 and "does not say how long encoding took" in done.stderr
