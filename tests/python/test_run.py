"""weft run and weft bench with the small model of the repository: what programs may rely on."""
import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest

STATS = {"load_ms", "compile_ms", "schedule_ms", "codegen_ms", "kernels_compiled", "plans_scheduled", "ttft_ms", "prompt_tps", "decode_tps", "kernels_per_token", "kernels_per_block",
         "fusion_rate", "draft_tokens", "draft_accepted", "draft_model_tokens", "draft_model_accepted", "peak_rss_bytes", "kv_bytes", "kernels_tuned", "tune_tried", "tune_better", "tune_cost", "tune_state"}


def lines_of(done):
    assert done.returncode == 0, done.err
    return [json.loads(line) for line in done.stdout.splitlines()]


def failed(done):
    assert done.returncode == 1 and done.stdout == b"", done.err
    line, = done.err.splitlines()
    assert line.startswith("weft: error: ")
    return line


@pytest.fixture(scope="module")
def run(run_weft, tinypy):
    return lambda *args, **more: run_weft(["run", "-m", tinypy, *args], **more)


def ids_of(run_weft, tinypy, text):
    return json.loads(run_weft(["tokenize", "-m", tinypy, "-p", text, "--ids"]).out)


# ---- text --------------------------------------------------------------------------------------------------------------

def test_text_alone_on_stdout(run):
    done = run("-p", "def ", "-n", "24", "--temp", "0")
    tokens = lines_of(run("-p", "def ", "-n", "24", "--temp", "0", "--json"))
    assert len(tokens) == 24
    assert done.returncode == 0 and done.out == "".join(t["text"] for t in tokens)
    assert re.fullmatch(r"\d+ tokens read at [\d.]+( k)?/s, 24 written at [\d.]+( k)?/s\n", done.err), done.err
    said = run("-p", "def ", "-n", "24", "--temp", "0", "-v")
    assert said.stdout == done.stdout and said.err.splitlines()[-1].startswith("3 tokens read" if "3 tokens" in done.err else done.err[:8])
    for word in ("load", "compile", "prompt", "decode", "kernels", "memory", "tok/s"):
        assert re.search(rf"^{word} |{word}$", said.err, re.M), word
    assert "def " not in done.err
    quiet = run("-p", "def ", "-n", "24", "--temp", "0", "-q", "-ngl", "99")
    assert quiet.stdout == done.stdout and quiet.err == ""


def test_the_prompt_and_its_tokens(run, run_weft, tinypy):
    text = run("-p", "def ", "-n", "4", "--temp", "0").out
    assert run("-p", "def ", "-n", "4", "--temp", "0", "--display-prompt").out == "def " + text
    assert run("-p", "def ", "-n", "4", "--temp", "0", "--display-prompt", "--no-display-prompt").out == text
    shown = run("-p", "def ", "-n", "1", "--temp", "0", "--verbose-prompt").err
    ids = json.loads(run_weft(["tokenize", tinypy, "-p", "def ", "--ids"]).out)
    assert [int(line.split(" -> ")[0]) for line in shown.splitlines() if " -> " in line] == ids
    end = json.loads(run_weft(["tokenize", tinypy, "-p", "<|endoftext|>", "--ids", "--parse-special", "--no-bos"]).out)[0]
    assert run("-p", "def ", "--force", str(end)).out == "" and run("-p", "def ", "--force", str(end), "-sp").out == "<|endoftext|>"


def test_the_model_and_the_prompt_without_names(run, run_weft, tinypy):
    expected = run("-p", "def ", "-n", "4", "--temp", "0").out
    assert run_weft(["run", tinypy, "def ", "-n", "4", "--temp", "0"]).out == expected
    assert run_weft(["run", "-n", "4", tinypy, "--temp", "0", "-p", "def "]).out == expected
    assert run_weft(["run", tinypy, "-n", "4", "--temp", "0"], input="def ").out == expected          # a pipe is the prompt
    assert run_weft([tinypy, "-n", "4", "--temp", "0"], input="def ").out == expected                 # the model has no template
    assert run_weft(["-m", tinypy, "-p", "def ", "-n", "4", "--temp", "0"]).out == expected
    assert run_weft(["chat", tinypy, "-no-cnv", "-p", "def ", "-n", "4", "--temp", "0"]).out == expected


def test_options_of_llama_cpp(run):
    expected = run("-p", "def ", "-n", "4", "--temp", "0")
    done = run("-p", "def ", "-n", "4", "--temp", "0", *"-ngl 99 -fa on -b 2048 -tb 2 -ctk f16 --jinja --mlock --no-mmap --no-warmup --numa isolate --poll 0".split())
    assert done.stdout == expected.stdout
    said, layers, _ = done.err.splitlines()
    assert layers.startswith("weft: warning: -ngl is ignored: no GPU is selected; set DEV=CUDA or DEV=CL")
    assert said == ("weft: --no-mmap is ignored: model files are memory-mapped; --numa is ignored: threads are pinned automatically; "
                    "taskset, nice and chrt change that; --poll is ignored: waiting threads poll for a short time, then sleep")


def test_a_context_beyond_the_trained_one(run):
    assert "the model was trained for 512 tokens" in run("-p", "def ", "-n", "1", "-c", "600").err
    assert "trained" not in run("-p", "def ", "-n", "1", "-c", "512").err


def test_the_model_writes_python(run):
    done = run("-p", "def read_file(self, path):", "-n", "32", "--temp", "0")
    assert done.out.startswith("\n    ") and "return" in done.out.lower(), done.out


def test_weights_where_they_lie(run):
    """The same sums in another order of loops: the same tokens, nearly the same odds."""
    def go(*more):
        return lines_of(run("-p", "def read_file(self):", "-n", "12", "--temp", "0", "--json", *more))
    for laid_out, as_it_lies in zip(go(), go("--no-repack"), strict=True):
        assert laid_out["id"] == as_it_lies["id"] and laid_out["logprob"] == pytest.approx(as_it_lies["logprob"], abs=1e-3)


def test_prompts_from_everywhere_are_the_same(run, run_weft, tinypy, tmp_path):
    prompt = "class Node:\n    def "
    expected = run("-p", prompt, "-n", "12", "--temp", "0").stdout
    assert expected
    (tmp_path / "prompt").write_text(prompt)
    ids = ids_of(run_weft, tinypy, prompt)
    for args, more in [(["-f", tmp_path / "prompt"], {}), (["-f", "-"], {"input": prompt}), (["--ids", ",".join(map(str, ids))], {}),
                       (["--ids", json.dumps(ids)], {}), (["-e", "-p", prompt.replace("\n", "\\n")], {})]:
        assert run(*args, "--predict", "12", "--temp", "0", **more).stdout == expected, args
    without = ",".join(map(str, ids[1:]))
    assert run("-p", prompt, "--no-bos", "-n", "12", "--temp", "0").stdout == run("--ids", without, "-n", "12", "--temp", "0").stdout


def test_count_has_three_names(run):
    outputs = {run("-p", "x", flag, "3", "--temp", "0").stdout for flag in ("-n", "--predict", "--count", "--n-predict")}
    assert len(outputs) == 1


def test_nothing_to_generate(run):
    done = run("-p", "def ", "-n", "0")
    assert done.returncode == 0 and done.stdout == b"" and "3 tokens read" in done.err and ", 0 written" in done.err


# ---- sampling ----------------------------------------------------------------------------------------------------------

def test_same_seed_same_tokens(run):
    one, two, other = (run("-p", "def ", "-n", "24", "-s", seed).stdout for seed in ("7", "7", "8"))
    assert one == two and one != other


def test_a_random_seed_is_told_and_repeats(run):
    first = run("-p", "def ", "-n", "24")
    seed = re.search(r", seed (\d+)$", first.err, re.M).group(1)
    assert run("-p", "def ", "-n", "24", "-s", seed).stdout == first.stdout


def test_threads_and_chunks_change_nothing(run):
    prompt = "import os\n\n\ndef main(argv):\n    for name in argv:\n        print(name, len(name))\n\n\nclass Reader:\n    def __init__(self"
    outputs = {run("-p", prompt, "-n", "16", "-s", "3", *more).stdout
               for more in ([], ["-t", "1"], ["-t", "2"], ["-ub", "1"], ["-ub", "7"], ["-t", "1", "-tb", "3"], ["-t", "2", "-tb", "1"])}
    assert len(outputs) == 1


def test_prompts_take_threads_of_their_own(run_weft, tinypy):
    """What the compiler's page says of a step: how many threads ran it, each of which has a lane with its times."""
    def lanes(*more):
        page = run_weft(["viz", tinypy, "--out", "-", "-n", "1", "-t", "1", *more]).out
        overview = json.loads(re.search(r'<script[^>]* id="d0">(.*?)</script>', page, re.S)[1])
        assert len(overview["lanes"]) == overview["threads"] and all(any(t > 0 for t in lane) for lane in overview["lanes"])
        return overview["threads"]
    assert (lanes("-tb", "3"), lanes("-p", "64", "-tb", "3"), lanes("-p", "64")) == (1, 3, 1)


def test_greedy_ways(run):
    greedy = run("-p", "def ", "-n", "16", "--temp", "0").stdout
    assert run("-p", "def ", "-n", "16", "--top-k", "1", "-s", "5").stdout == greedy
    assert run("-p", "def ", "-n", "16", "--top-p", "0", "-s", "5").stdout == greedy
    assert run("-p", "def ", "-n", "16", "--min-p", "1", "-s", "5").stdout == greedy


def test_repeat_penalty(run):
    text = "x = 1\n" * 12
    plain = lines_of(run("-p", text, "-n", "12", "--temp", "0", "--json", "--ignore-eos"))
    strict = lines_of(run("-p", text, "-n", "12", "--temp", "0", "--json", "--ignore-eos", "--repeat-penalty", "50", "--repeat-last-n", "-1"))
    assert [t["id"] for t in plain] != [t["id"] for t in strict]
    assert len({t["id"] for t in strict}) == 12


def test_order_of_samplers(run):
    greedy = run("-p", "def ", "-n", "16", "--temp", "0").stdout
    assert run("-p", "def ", "-n", "16", "--samplers", "top_k;temperature", "--top-k", "1", "-s", "5").stdout == greedy
    assert run("-p", "def ", "-n", "16", "--sampler-seq", "t", "--top-k", "1", "-s", "5").stdout != greedy   # no top-k in it
    assert run("-p", "def ", "-n", "16", "--top-k", "-1", "-s", "5").stdout == run("-p", "def ", "-n", "16", "--top-k", "0", "-s", "5").stdout   # both are "all"
    assert run("-p", "def ", "-n", "16", "--sampler-seq", "kt", "-s", "5").stdout == run("-p", "def ", "-n", "16", "--samplers", "top-k;temp", "-s", "5").stdout


@pytest.mark.parametrize("options", [
    ["--dry-multiplier", "5", "--dry-allowed-length", "1", "--dry-sequence-breaker", "none", "--temp", "0"], ["--frequency-penalty", "3", "--temp", "0"],
    ["--presence-penalty", "3", "--temp", "0"], ["--xtc-probability", "1", "--xtc-threshold", "0.05"], ["--typical", "0.3"],
    ["--top-nsigma", "0.2", "--top-k", "0"], ["--dynatemp-range", "0.8", "--dynatemp-exp", "2"], ["--mirostat", "1"], ["--mirostat", "2", "--mirostat-ent", "2"]])
def test_every_sampler_does_something(run, options):
    text = "x = 1\n" * 6
    plain = run("-p", text, "-n", "24", "-s", "3", "--ignore-eos", *(["--temp", "0"] if "--temp" in options else [])).stdout
    changed = run("-p", text, "-n", "24", "-s", "3", "--ignore-eos", *options)
    assert changed.returncode == 0 and changed.stdout != plain
    assert run("-p", text, "-n", "24", "-s", "3", "--ignore-eos", *options).stdout == changed.stdout


def test_logit_bias(run):
    first, = lines_of(run("-p", "def ", "-n", "1", "--temp", "0", "--json"))
    second, = lines_of(run("-p", "def ", "-n", "1", "--temp", "0", "--json", "--logit-bias", f"{first['id']}-inf"))
    assert second["id"] != first["id"] and second["logprob"] < first["logprob"]
    forced, = lines_of(run("-p", "def ", "-n", "1", "-s", "1", "--json", "-l", "77+1000", "--logit-bias", "5-1"))
    assert forced["id"] == 77
    assert "99999 is outside" in failed(run("-p", "x", "-n", "1", "-l", "99999+1")) or "99999" in failed(run("-p", "x", "-n", "1", "-l", "99999+1"))


@pytest.mark.parametrize("options, says", [
    (["--logit-bias", "5"], "--logit-bias"), (["--logit-bias", "-5+1"], "--logit-bias"), (["--logit-bias", "5+nan"], "--logit-bias"),
    (["--logit-bias", "5+inf"], "--logit-bias"), (["--samplers", "top_k", "--sampler-seq", "k"], "use one of them"),
    (["--dry-base", "0.5"], "--dry-base"), (["--mirostat", "3"], "--mirostat")])
def test_bad_sampling_options(run, options, says):
    done = run("-p", "x", "-n", "1", *options)
    assert done.returncode == 2 and says in done.err and done.stdout == b""


def test_unknown_sampler(run):
    assert "'bogus' (known: penalties, dry" in failed(run("-p", "x", "-n", "1", "--samplers", "top_k;bogus"))


def test_stop_strings(run):
    text = run("-p", "def ", "-n", "48", "-s", "3").out
    for stop in (text[20:23], text[9:30], text[30:31]):
        done = run("-p", "def ", "-n", "48", "-s", "3", "-r", "never to be seen", "--reverse-prompt", stop)
        assert done.returncode == 0 and done.out == text[:text.index(stop)]
        tokens = lines_of(run("-p", "def ", "-n", "48", "-s", "3", "-r", stop, "--json"))
        assert "".join(t["text"] for t in tokens) == text[:text.index(stop)]
    assert run("-p", "def ", "-n", "48", "-s", "3", "-r", text + "?").out == text   # held back to the end, then shown
    newline = run("-p", "def ", "-n", "48", "-s", "3", "-e", "-r", "\\n").out
    assert newline == text[:text.index("\n")]
    assert "stop string 1 has 0 bytes" in failed(run("-p", "x", "-n", "1", "-r", ""))


# ---- JSON --------------------------------------------------------------------------------------------------------------

def test_json_lines(run):
    tokens = lines_of(run("-p", "def f(", "-n", "8", "--json", "--top-logprobs", "5", "-s", "1"))
    assert len(tokens) == 8
    for t in tokens:
        assert set(t) == {"id", "text", "logprob", "top"}
        assert len(t["top"]) == 5 and t["top"] == sorted(t["top"], key=lambda p: (-p[1], p[0]))
        assert t["logprob"] <= t["top"][0][1] <= 0
        assert dict(map(tuple, t["top"])).get(t["id"], t["logprob"]) == t["logprob"]
    assert all(t["top"] == [] for t in lines_of(run("-p", "def f(", "-n", "2", "--json")))


def test_the_whole_vocabulary(run):
    token, = lines_of(run("-p", "def f(", "-n", "1", "--json", "--top-logprobs", "99999"))
    assert sorted(i for i, _ in token["top"]) == list(range(2048))
    assert math.isclose(sum(math.exp(p) for _, p in token["top"]), 1, abs_tol=1e-5)
    assert dict(map(tuple, token["top"]))[token["id"]] == token["logprob"]


def test_logprobs_are_those_before_the_samplers(run):
    one = lines_of(run("-p", "def f(", "-n", "1", "--json", "--top-logprobs", "9", "--temp", "0"))
    two = lines_of(run("-p", "def f(", "-n", "1", "--json", "--top-logprobs", "9", "--temp", "3", "--top-k", "2", "--repeat-penalty", "9"))
    assert one[0]["top"] == two[0]["top"]


def test_force(run, run_weft, tinypy):
    ids = ids_of(run_weft, tinypy, "def main(argv):\n    return é0")[1:] + [0]   # with an end-of-generation token at the end
    tokens = lines_of(run("-p", "x", "--force", ",".join(map(str, ids)), "--json", "--top-logprobs", "2048"))
    assert [t["id"] for t in tokens] == ids
    assert "".join(t["text"] for t in tokens) == "def main(argv):\n    return é0"
    for t in tokens:
        assert dict(map(tuple, t["top"]))[t["id"]] == t["logprob"]
    again = lines_of(run("-p", "x", "--force", ",".join(map(str, ids)), "--json", "--ignore-eos", "-n", "3"))
    assert [t["id"] for t in again] == ids[:3]
    assert [t["logprob"] for t in again] == [t["logprob"] for t in tokens[:3]]


def test_forced_and_own_tokens_have_the_same_logprobs(run):
    own = lines_of(run("-p", "def ", "-n", "12", "--temp", "0", "--json"))
    forced = lines_of(run("-p", "def ", "--force", ",".join(str(t["id"]) for t in own), "--json"))
    assert forced == own


def test_a_character_comes_whole(run, run_weft, tinypy):
    ids = ids_of(run_weft, tinypy, "é中🎉é")[1:]
    tokens = lines_of(run("-p", "x", "--force", ",".join(map(str, ids)), "--json"))
    assert "".join(t["text"] for t in tokens) == "é中🎉é"
    assert "" in [t["text"] for t in tokens]                # the vocabulary is small: characters are several tokens
    cut = lines_of(run("-p", "x", "--force", ",".join(map(str, ids[:-1])), "--json"))
    assert "".join(t["text"] for t in cut) == "é中🎉\ufffd"
    plain = run("-p", "x", "--force", ",".join(map(str, ids)))
    assert plain.out == "é中🎉é"


# ---- ends --------------------------------------------------------------------------------------------------------------

FLAT = ["--temp", "5", "--top-k", "0", "--min-p", "0", "--top-p", "1"]   # nearly every token is as likely as any other


def test_stops_at_the_end_of_generation(run):
    for seed in range(1, 60):
        ids = [t["id"] for t in lines_of(run("-p", "x", "-n", "480", "-s", seed, "--json", *FLAT))]
        assert 0 not in ids[:-1] and len(ids) <= 480
        if ids[-1] == 0:
            break
        assert len(ids) == 480
    else:
        pytest.fail("no end-of-generation token was ever drawn")
    assert run("-p", "x", "-n", "480", "-s", seed, *FLAT).out == "".join(t["text"] for t in lines_of(
        run("-p", "x", "-n", "480", "-s", seed, "--json", *FLAT)))


def test_ignore_eos_never_draws_it(run):
    done = run("-p", "\n", "-n", "200", "--ignore-eos", "--json", "-s", "1", *FLAT)
    ids = [t["id"] for t in lines_of(done)]
    assert len(ids) == 200 and 0 not in ids


def test_a_full_context_ends_well(run, run_weft, tinypy):
    n = len(ids_of(run_weft, tinypy, "def f(x):"))
    done = run("-p", "def f(x):", "-c", "20", "--ignore-eos", "--json", "--temp", "0")
    assert len(lines_of(done)) == 20 - n + 1                # the last one needs no place any more
    assert re.search(r"context of 20 tokens is full", done.err)
    exact = run("-p", "def f(x):", "-c", "20", "--ignore-eos", "--json", "--temp", "0", "-n", str(20 - n + 1))
    assert exact.stdout == done.stdout and "is full" not in exact.err


def test_a_prompt_that_is_too_long(run):
    ids = ",".join(["5"] * 21)
    line = failed(run("--ids", ids, "-c", "20", "-n", "1"))
    assert "21" in line and "20" in line
    assert run("--ids", ",".join(["5"] * 20), "-c", "20", "-n", "1").returncode == 0


def test_ids_outside_the_vocabulary(run):
    assert "2048" in failed(run("--ids", "1,2048", "-n", "1"))
    assert "2048" in failed(run("-p", "x", "--force", "2048", "-n", "1"))


def test_an_empty_prompt(run):
    assert run("-p", "", "-n", "2").returncode == 0         # this model puts BOS before it
    assert "empty" in failed(run("-p", "", "-n", "2", "--no-bos"))


# ---- figures -----------------------------------------------------------------------------------------------------------

def test_stats(run, tmp_path):
    path = tmp_path / "stats.json"
    assert run("-p", "def ", "-n", "16", "--stats", path).returncode == 0
    stats = json.loads(path.read_text())
    assert set(stats) == STATS and stats.pop("tune_state") is None
    for name, value in stats.items():
        assert isinstance(value, (int, float)) and value >= 0, name
    for name in ("load_ms", "ttft_ms", "prompt_tps", "decode_tps", "kernels_per_token", "kernels_per_block", "fusion_rate", "peak_rss_bytes",
                 "kv_bytes"):
        assert stats[name] > 0, name
    assert stats["peak_rss_bytes"] > 1 << 20


def test_stats_without_tokens(run, tmp_path):
    path = tmp_path / "stats.json"
    assert run("-p", "def ", "-n", "0", "--stats", path).returncode == 0
    stats = json.loads(path.read_text())
    assert set(stats) == STATS and stats["ttft_ms"] is None and stats["decode_tps"] is None


def test_stats_that_cannot_be_written(run, tmp_path):
    done = run("-p", "def ", "-n", "1", "--stats", tmp_path / "missing" / "stats.json")
    assert done.returncode == 1 and "missing" in done.err.splitlines()[-1]


def test_the_second_start_compiles_nothing(run, tmp_path, cache_dir):
    figures = []
    for _ in range(2):
        assert run("-p", "def ", "-n", "4", "--stats", tmp_path / "s", env={"WEFT_CACHE": cache_dir}).returncode == 0
        figures.append(json.loads((tmp_path / "s").read_text()))
    assert figures[0]["kernels_compiled"] > 0 and figures[0]["compile_ms"] > 0
    assert figures[1]["kernels_compiled"] == 0


# What is changed of the schedule in the cache, so that the next start has to make it anew; None: another option is.
@pytest.mark.parametrize("change", [
    None, "value = flip(value)", "value = CAST(substr(value, 1, length(value) - 8) AS BLOB)", "version = 'another'",
    "key = CAST(replace(CAST(key AS TEXT), 'lanes', 'Lanes') AS BLOB)"])
def test_the_second_start_schedules_nothing(run, tmp_path, cache_dir, change):
    def start(*args, **env):
        done = run("-p", "def ", "-n", "8", "--temp", "0", "--no-speculation", "--stats", tmp_path / "s", *args,
                   env={"WEFT_CACHE": cache_dir, **env})
        assert done.returncode == 0, done.err
        return done.stdout, json.loads((tmp_path / "s").read_text())["plans_scheduled"]
    first, second = start(), start()
    assert first[1] == 1 and second == (first[0], 0)
    if change:
        file, = cache_dir.glob("kernels*/*.db")
        with sqlite3.connect(file) as db:
            db.create_function("flip", 1, lambda value: value[:200] + bytes([value[200] ^ 1]) + value[201:])
            assert db.execute(f"UPDATE kernel SET {change} WHERE CAST(key AS TEXT) LIKE 'schedule %'").rowcount == 1
        assert start() == first and start() == second
    else:
        assert start("--precision", "exact")[1] == 1 and start("--no-repack")[1] == 1
        assert start("--rope-scale", "2")[1] == 1 and start("--cache-type-k", "f32")[1] == 1
        assert start(WEFT_CACHE=tmp_path / "new")[1] == 1
        assert start("-t", "1") == second


def test_benchmark(run, run_weft, tinypy):
    done = run_weft(["run", "--model", tinypy, "--benchmark", "5"])
    assert done.returncode == 0 and done.stdout == b""
    assert re.fullmatch(r"1 token read at [\d.]+( k)?/s, 5 written at [\d.]+( k)?/s\n", done.err), done.err


# ---- signals and pipes -------------------------------------------------------------------------------------------------

def start(weft, weft_env, tinypy, *args, **more):
    return subprocess.Popen([weft, "run", "-m", tinypy, "-p", "def ", "-n", "100000", "-c", "100100", "--ignore-eos", *args], env=weft_env,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_interrupt(weft, weft_env, tinypy, tmp_path):
    p = start(weft, weft_env, tinypy, "--stats", str(tmp_path / "stats.json"))
    assert p.stdout.read(5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130
    assert b" written" in err and err.count(b"\n") < 3       # with the warning of -c
    assert set(json.loads((tmp_path / "stats.json").read_text())) == STATS


def test_text_is_not_held_back(weft, weft_env, tinypy):
    p = start(weft, weft_env, tinypy)
    os.set_blocking(p.stdout.fileno(), False)
    reads, end = 0, time.time() + 60
    while reads < 5 and time.time() < end:
        if p.stdout.read():
            reads += 1
        time.sleep(0.05)
    p.kill()
    p.communicate()
    assert reads == 5


def test_a_closed_pipe_is_quiet(weft, weft_env, tinypy):
    p = start(weft, weft_env, tinypy)
    p.stdout.read(5)
    p.stdout.close()
    assert p.wait(60) == 0
    assert all(line.startswith(b"weft: warning: -c") for line in p.stderr.read().splitlines())
    p.stderr.close()


def test_a_full_disk(weft, weft_env, tinypy):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([weft, "run", "-m", tinypy, "-p", "def ", "-n", "4"], env=weft_env, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"No space left" in done.stderr


# ---- bench -------------------------------------------------------------------------------------------------------------

BENCH = {"model_filename", "model_size", "model_n_params", "n_threads", "n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns", "avg_ts",
         "stddev_ts", "samples_ns", "samples_ts"}


def test_bench_json(run_weft, tinypy):
    done = run_weft(["bench", "-m", tinypy, "-p", "8,16", "-n", "3", "-d", "0,4", "-pg", "4,2", "-r", "2", "-t", "1", "-o", "json"])
    assert done.returncode == 0 and done.err == ""
    results = json.loads(done.stdout)
    assert [(r["n_depth"], r["n_prompt"], r["n_gen"]) for r in results] == [
        (d, p, g) for d in (0, 4) for p, g in ((8, 0), (16, 0), (0, 3), (4, 2))]
    for r in results:
        assert BENCH <= set(r)
        assert r["model_filename"] == tinypy and r["n_threads"] == 1 and r["model_n_params"] == 5246208 and r["model_size"] == 5583872
        assert len(r["samples_ns"]) == len(r["samples_ts"]) == 2
        tokens = r["n_prompt"] + r["n_gen"]
        for ns, ts in zip(r["samples_ns"], r["samples_ts"]):
            assert math.isclose(ts, 1e9 * tokens / ns, rel_tol=1e-6)
        assert math.isclose(r["avg_ns"], sum(r["samples_ns"]) / 2, abs_tol=1)
        assert math.isclose(r["avg_ts"], sum(r["samples_ts"]) / 2, rel_tol=1e-6)
        assert math.isclose(r["stddev_ts"], abs(r["samples_ts"][0] - r["samples_ts"][1]) / math.sqrt(2), rel_tol=1e-4, abs_tol=1e-4)


def test_bench_markdown(run_weft, tinypy):
    done = run_weft(["bench", "-m", tinypy, "-p", "4", "-n", "2", "-d", "0-8+8", "-r", "1"])
    lines = done.out.splitlines()
    assert [c.strip() for c in lines[0].strip("|").split("|")] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert len({len(line) for line in lines}) == 1          # aligned
    assert [line.split("|")[6].strip() for line in lines[2:]] == ["pp4", "tg2", "pp4 @ d8", "tg2 @ d8"]
    assert all(re.search(r"\| +[\d.]+ ± [\d.]+ \|$", line) for line in lines[2:])


def test_bench_lines(run_weft, tinypy):
    args = ["bench", "-m", tinypy, "-p", "4", "-n", "2", "-r", "1"]
    lines = [json.loads(line) for line in run_weft([*args, "-o", "jsonl"]).out.splitlines()]
    assert [line["n_prompt"] for line in lines] == [4, 0]
    rows = run_weft([*args, "-o", "csv"]).out.splitlines()
    assert len(rows) == 3 and "avg_ts" in rows[0].split(",") and rows[0].count(",") == rows[1].count(",")


def test_bench_every_combination(run_weft, tinypy, tmp_path):
    """Two models, two numbers of threads, two chunks, two -pg; as SQL, which a database reads back, quotes in a name included."""
    other = tmp_path / "it's.gguf"
    other.symlink_to(tinypy)
    done = run_weft(["bench", "-m", tinypy, "-m", other, "-p", "4", "-p", "6", "-n", "0", "-pg", "2,1", "-pg", "3,1", "-t", "1-2", "-ub", "8,16", "-r", "1", "-o", "sql"])
    assert done.returncode == 0, done.err
    db = sqlite3.connect(":memory:")
    db.executescript(done.out)
    rows = db.execute("SELECT model_filename, n_ubatch, n_threads, n_prompt, n_gen FROM llama_bench WHERE avg_ts > 0 AND test_time LIKE '20__-%Z'").fetchall()
    assert rows == [(m, c, t, p, g) for m in (tinypy, str(other)) for c in (8, 16) for t in (1, 2) for p, g in ((4, 0), (6, 0), (2, 1), (3, 1))]


# ---- what may be wrong around it ---------------------------------------------------------------------------------------

def with_other_name(tinypy, path, key, old, new):
    """A copy of the model whose string value of key is another one of the same length."""
    data = open(tinypy, "rb").read()
    at = data.index(key + b"\x08\0\0\0" + len(old).to_bytes(8, "little") + old) + len(key) + 12
    path.write_bytes(data[:at] + new + data[at + len(new):])
    return str(path)


@pytest.mark.parametrize("key, old, new", [(b"tokenizer.ggml.model", b"gpt2", b"gpt9"), (b"tokenizer.ggml.pre", b"gpt-2", b"gpt-9")])
def test_an_unknown_tokenizer_is_an_error_only_for_text(run_weft, tinypy, tmp_path, key, old, new):
    path = with_other_name(tinypy, tmp_path / "model.gguf", key, old, new)
    line = failed(run_weft(["run", "-m", path, "-p", "x", "-n", "1"]))
    assert key.decode() in line and new.decode() in line and path in line
    expected = run_weft(["run", "-m", tinypy, "--ids", "0,316", "-n", "4", "--temp", "0", "--json"])
    ours = run_weft(["run", "-m", path, "--ids", "0,316", "-n", "4", "--temp", "0", "--json"])
    assert [t["logprob"] for t in lines_of(ours)] == [t["logprob"] for t in lines_of(expected)]


def test_an_unknown_architecture(run_weft, tinypy, tmp_path):
    path = with_other_name(tinypy, tmp_path / "model.gguf", b"general.architecture", b"llama", b"lamax")
    line = failed(run_weft(["run", "-m", path, "--ids", "1", "-n", "1"]))
    assert path in line and "general.architecture" in line and "lamax" in line


def test_a_context_larger_than_memory(run):
    line = failed(run("-p", "x", "-n", "1", "-c", "2000000000"))
    assert "memory" in line and len(re.findall(r"\d+", line)) >= 2


@pytest.mark.parametrize("damage", ["unwritable", "garbage", "truncated"])
def test_a_useless_cache_warns_once(run, tmp_path, cache_dir, damage):
    expected = run("-p", "def ", "-n", "8", "--temp", "0", env={"WEFT_CACHE": cache_dir})
    assert "warning" not in expected.err
    if damage == "unwritable":
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file" / "cache"
    else:
        folder = cache_dir
        for path in cache_dir.glob("kernels*/*"):
            data = path.read_bytes()
            path.write_bytes(b"garbage " * 1000 if damage == "garbage" else data[:len(data) // 2])
    done = run("-p", "def ", "-n", "8", "--temp", "0", env={"WEFT_CACHE": folder})
    assert done.returncode == 0 and done.stdout == expected.stdout
    assert sum(line.startswith("weft: warning:") for line in done.err.splitlines()) == 1, done.err


# ---- the cache -----------------------------------------------------------------------------------------------------------

def test_another_context_compiles_nothing(run, cache_dir, tmp_path):
    """Kernels know no length of a context: other lengths, and prompts of other lengths, find those of the first run."""
    stats, compiled = tmp_path / "stats", []
    for context, words in (300, 40), (500, 3), (2000, 90):
        done = run("-p", "def f(x):\n" * words, "-n", "4", "-c", context, "--no-speculation", "--stats", stats, env={"WEFT_CACHE": cache_dir})
        assert done.returncode == 0 or context == 300, done.err
        compiled.append(json.loads(stats.read_text())["kernels_compiled"])
    assert compiled[0] > 10 and compiled[1:] == [0, 0]


def test_types_of_the_cache(run, tmp_path):
    """Other numbers in the cache: the memory that it takes, and a token that is likely anyway."""
    stats, bytes_of, texts = tmp_path / "stats", {}, set()
    for kind in "f16", "f32", "bf16", "q8_0", "q4_0":
        done = run("-p", "def add(a, b):\n    return", "-n", "3", "--temp", "0", "-ctk", kind, "-ctv", kind, "--stats", stats)
        assert done.returncode == 0, done.err
        bytes_of[kind] = json.loads(stats.read_text())["kv_bytes"]
        texts.add(done.out)
    assert bytes_of["f32"] == 2 * bytes_of["f16"] == 2 * bytes_of["bf16"] and bytes_of["q8_0"] == bytes_of["f16"] * 34 // 64
    assert bytes_of["q4_0"] == bytes_of["f16"] * 18 // 64
    assert len(texts) == 1


def test_unknown_type_of_the_cache(run):
    assert "a cache of type q5_0 is not known; it must be f16, f32, bf16, q8_0 or q4_0" in failed(run("-p", "x", "-ctk", "q5_0"))


def test_heads_too_odd_for_groups(run_weft, make_model, tmp_path):
    make_model.write("llama-linear", tmp_path / "small.gguf")
    line = failed(run_weft(["run", "-m", tmp_path / "small.gguf", "-p", "x", "-n", "2", "-ctv", "q8_0"]))
    assert "small.gguf" in line and "attention.value_length" in line and "80 is no multiple of 32, as a cache of type q8_0 needs" in line


# ---- tokens ahead --------------------------------------------------------------------------------------------------------

def test_guesses_change_nothing(run, tmp_path):
    """A text that repeats itself: with guesses and without the same tokens and log-probabilities, to the last digit. Long, since the
    first guess waits until guesses would have won what the plan took that is there; without them first, which keeps
    the kernels for the other run."""
    stats, texts = tmp_path / "stats", set()
    block = [40, 41, 300, 301, 77, 500, 612, 20, 21, 22, 1000, 1001]
    for more in ["--no-speculation"], []:
        done = run("--ids", ",".join(map(str, block)), "--force", ",".join(map(str, block * 36)), "--json",
                   "--top-logprobs", "3", "--stats", stats, *more)
        texts.add(done.out)
        figures = json.loads(stats.read_text())
        assert len(lines_of(done)) == 432 and figures["draft_accepted"] <= figures["draft_tokens"]
        assert (figures["draft_tokens"] == 0) == bool(more)
    assert len(texts) == 1
