"""The command line as a user meets it: help, versions, wrong usage, bad files, inspect, tokenize and env.

Nothing here evaluates a model; that is test_run.py.
"""
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

COMMANDS = ["run", "chat", "serve", "bench", "perplexity", "quantize", "convert", "profile", "viz", "inspect", "tokenize", "template", "env", "doctor", "uninstall"]


def one_error(done, status):
    """The single line of an error, after checking that it is one and that stdout is empty."""
    assert done.returncode == status, done.err
    assert done.stdout == b""
    lines = done.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("weft: error: "), done.err
    return lines[0]


# ---- help and usage ----------------------------------------------------------------------------------------------------

def test_version(run_weft):
    for word in ("--version", "version"):
        done = run_weft([word])
        assert done.returncode == 0 and re.fullmatch(r"weft \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?\n", done.out) and done.err == ""


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["help"], ["help", "help"]])
def test_general_help(run_weft, args):
    done = run_weft(args)
    assert done.returncode == 0 and done.err == ""
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", done.out, re.M), name


def test_without_arguments(run_weft):
    done = run_weft([])
    assert done.returncode == 2 and done.out == "" and "Commands" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(run_weft, command):
    texts = {run_weft(args).out for args in ([command, "--help"], [command, "-h"], ["help", command])}
    assert len(texts) == 1
    text = texts.pop()
    assert text.startswith(f"weft {command} ")
    assert all(len(line) <= 110 for line in text.splitlines())
    assert not re.search(r"[ \t]$", text, re.M)
    done = run_weft([command, "--help"])
    assert done.returncode == 0 and done.err == ""


def test_help_names_what_programs_may_rely_on(run_weft):
    text = run_weft(["run", "--help"]).out
    for flag in ("-m --model -p --prompt -f --ids -n --predict --count -c -t -s --seed --temp --top-k --top-p --min-p --repeat-penalty "
                 "--repeat-last-n --precision --ignore-eos --stats --json --top-logprobs --force --parse-special -e --benchmark "
                 "--no-bos -h").split():
        assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text), flag


USAGE = [
    (["rnu"], "did you mean 'run'"),
    (["frobnicate"], "unknown command 'frobnicate'"),
    (["help", "rnu"], "did you mean 'run'"),
    (["-q", "chat", "x"], "options stand after the command: weft chat -q ..."),
    (["-ngl", "99", "serve", "-m", "x"], "options stand after the command: weft serve -ngl ..."),
    (["ps"], "GET /api/ps"),
    (["show", "x"], "'weft inspect MODEL' shows what a model file holds"),
    (["create", "x", "-f", "Modelfile"], "TEMPLATE is --chat-template"),
    (["llama-server", "-m", "x"], "'weft serve' takes the arguments of llama-server"),
    (["-m"], "-m needs a value"),
    (["run", "--tmep", "1"], "did you mean '--temp'"),
    (["run", "--quux"], "unknown option '--quux'"),
    (["run", "word", "text", "more"], "unexpected argument 'more'"),
    (["run", "word"], "no prompt"),
    (["run", "x", "text", "-p", "a"], "more than once"),
    (["chat", "--stats"], "weft chat has no option '--stats'"),
    (["run", "-m", "x", "-p", "a", "--max-tokens", "5"], "did you mean '--predict'"),
    (["run", "-m", "x", "-p", "a", "--stop", "5"], "did you mean '--reverse-prompt'"),
    (["run", "-m", "x", "-p", "a", "--ctx", "5"], "did you mean '--ctx-size'"),
    (["run", "-m", "x", "-p", "a", "--system", "5"], "did you mean '--system-prompt'"),
    (["run", "-m", "x", "-p", "a", "-o", "5"], "unknown option '-o'; 'weft run --help' lists them"),
    (["run", "-m", "x", "-p", "a", "-dr", "ai/model"], "is not supported: models come from Hugging Face, ollama and addresses"),
    (["chat"], "no model"),
    (["chat", "x", "text", "-p", "a"], "more than once"),
    (["chat", "x", "-no-cnv", "-sys", "a"], "some of a conversation"),
    (["run"], "no model"),
    (["run", "-m"], "-m needs a value"),
    (["run", "-m", "x"], "no prompt"),
    (["run", "-m", "x", "-p", "a", "--ids", "1"], "more than once"),
    (["run", "-m", "x", "-p", "a", "-f", "b"], "more than once"),
    (["run", "-m", "x", "--ids", "1,a"], "'a' is not a token id"),
    (["run", "-m", "x", "--ids", ""], "--ids"),
    (["run", "-m", "x", "-p", "a", "-n", "many"], "'many'"),
    (["run", "-m", "x", "-p", "a", "-n", "9223372036854775808"], "-n"),
    (["run", "-m", "x", "-p", "a", "--temp", "nan"], "--temp"),
    (["run", "-m", "x", "-p", "a", "--repeat-penalty", "0"], "--repeat-penalty"),
    (["run", "-m", "x", "-p", "a", "-t", "-2"], "-t"),
    (["run", "-m", "x", "-p", "a", "-c", "-1"], "-c"),
    (["run", "-m", "x", "-p", "a", "--precision", "half"], "fast|exact"),
    (["run", "-m", "x", "-p", "a", "--top-logprobs", "3"], "--json"),
    (["bench"], "no model"),
    (["bench", "-m", "x", "-p", "a"], "'a'"),
    (["bench", "-m", "x", "-p", "5-1"], "'5-1'"),
    (["bench", "-m", "x", "-pg", "5"], "-pg"),
    (["bench", "-m", "x", "-r", "0"], "-r"),
    (["bench", "-m", "x", "-o", "xml"], "md|json|jsonl|csv|sql"),
    (["bench", "-m", "x", "-p", "0", "-n", "0"], "nothing to measure"),
    (["profile"], "no model"),
    (["profile", "-m", "x", "-n", "0"], "-n must lie between 1 and 10000"),
    (["profile", "-m", "x", "-p", "-1"], "-p"),
    (["profile", "-m", "x", "-d", "99999999999"], "-d"),
    (["inspect"], "no model"),
    (["inspect", "--jsn"], "did you mean '--json'"),
    (["tokenize", "-m", "x"], "nothing to tokenize"),
    (["tokenize", "-p", "x"], "no model"),
    (["tokenize", "-m", "x", "-p", "a", "--stdin"], "one of"),
    (["tokenize", "-m", "x", "--detokenize", "1;2"], "--detokenize"),
    (["template"], "no template"),
    (["template", "x"], "no conversation"),
    (["bench", "-m", "x", "-embd", "1"], "weft embed"),
    (["help", "--as", "x"], "man, bash, zsh, fish, llama.cpp, options or variables"),
    (["help", "--as", "man", "x"], "needs a command"),
    (["template", "x", "y", "--messages", "[]"], "unexpected argument 'y'"),
    (["template", "x", "-m", "y", "--messages", "[]"], "one file"),
    (["env", "x"], "unexpected argument"),
]


@pytest.mark.parametrize("args, expected", USAGE, ids=[" ".join(a) for a, _ in USAGE])
def test_wrong_usage(run_weft, args, expected):
    assert expected in one_error(run_weft(args), 2)


# ---- variables ---------------------------------------------------------------------------------------------------------

WRONG = [("WEFT_TUNE", "yes", "WEFT_TUNE must be one of off|background|always|now, not 'yes'"), ("DEBUG", "x", "DEBUG must be a number from 0 to 7, not 'x'"),
         ("DEBUG", "8", "from 0 to 7"), ("SPEC", "on", "SPEC must be one of 0|1"), ("NOOPT", "true", "0|1"), ("ISOLATE", "no", "0|1"), ("BEAM", "1.5", "from 0 to 64"),
         ("BEAM_SKIP_MS", "soon", "BEAM_SKIP_MS must be a number"), ("MV_BLOCKSIZE", "0", "from 1 to 1024"), ("CL_WORK", "warps", "groups|tiles"),
         ("HF_ENDPOINT", "huggingface.co", "HF_ENDPOINT must begin with http:// or https://"), ("WEFT_CPU", "pentium", "native"), ("DEV", "GPU", "known: CPU"),
         ("RENDER", "gcc", "known: llvm, c"), ("PREFETCH", "x", "KiB")]


@pytest.mark.parametrize("name, value, expected", WRONG, ids=[f"{n}={v}" for n, v, _ in WRONG])
def test_a_wrong_value_of_a_variable_is_an_error(run_weft, tinypy, name, value, expected):
    done = run_weft(["run", tinypy, "-p", "a", "-n", "1"], env={name: value})
    assert done.returncode in (1, 2) and done.out == "" and expected in done.err, done.err
    assert run_weft(["env"], env={name: value}).returncode == 0                       # which is where one looks


def test_variables_of_llama_cpp(run_weft, tinypy):
    """As llama.cpp's tools read them: the command line comes first, 0 is no, and NO_ is no as well."""
    expected = run_weft(["run", tinypy, "-p", "def ", "-n", "4", "--temp", "0", "-s", "1"]).out
    env = {"LLAMA_ARG_MODEL": tinypy, "LLAMA_ARG_N_PREDICT": "4", "LLAMA_ARG_TEMPERATURE": "0"}
    assert run_weft(["run", "-p", "def "], env=env).out == expected
    assert run_weft(["run", "-p", "def ", "-n", "2", "-m", tinypy], env={**env, "LLAMA_ARG_MODEL": "/nowhere.gguf"}).out != expected
    assert "LLAMA_ARG_N_PREDICT needs a whole number, not 'x'" in one_error(run_weft(["run", "-p", "a"], env={**env, "LLAMA_ARG_N_PREDICT": "x"}), 2)
    assert "LLAMA_ARG_THINK_BUDGET 100 is not supported" in one_error(run_weft(["run", "-p", "a"], env={**env, "LLAMA_ARG_THINK_BUDGET": "100"}), 2)
    assert "LLAMA_ARG_NO_MMAP is ignored: model files are memory-mapped" in run_weft(["run", "-p", "a"], env={**env, "LLAMA_ARG_NO_MMAP": "1"}).err
    assert "ignored" not in run_weft(["run", "-p", "a"], env={**env, "LLAMA_ARG_MMAP": "on", "LLAMA_ARG_FLASH_ATTN": "1"}).err
    shown = run_weft(["env"], env={**env, "LLAMA_ARG_NO_MMAP": "1", "LLAMA_API_KEY": "hush-hush"}).out
    assert f"LLAMA_ARG_MODEL  {tinypy}  as -m, --model" in shown and "LLAMA_ARG_NO_MMAP  1  as" in shown and "hush" not in shown
    assert json.loads(run_weft(["env", "--json"], env=env).stdout)["variables"]["LLAMA_ARG_N_PREDICT"]["value"] == "4"


def test_yes_comes_before_no_in_the_table(repo):
    """A variable takes the first of its rows where it says yes, and the next one where it says no."""
    rows = re.findall(r'^  (?:FLAG|OFF|TEXT|INT|REAL|CHOICE|TEXTS|IDLE|REFUSED)\(([A-Z | &~()]+), "(.*?)",.*?(?:\.env = "([A-Z_ ]*)".*?)?\),$',
                      (repo / "src" / "app" / "options.c").read_text(), re.M | re.S)
    variables = {}
    for _, names, env in rows:
        for name in env.split():
            variables.setdefault(name, names)
    assert len(variables) > 120
    for name, names in variables.items():
        no = [n for n in names.split(", ") if n.startswith("--no-")]
        assert not no or "_NO_" in name or len(no) < sum(n.startswith("--") for n in names.split(", ")), (name, names)


# What llama.cpp takes beyond the bounds: temperatures below 0 are greedy, probabilities above 1 and counts below -1 are off.
@pytest.mark.parametrize("odd, same", [("--temp -1", "--temp 0"), ("--temp 0 -n -2", "--temp 0 -n -1"), ("--top-p 1.5 -s 3", "--top-p 1 -s 3"),
                                       ("--top-k -5 -s 3", "--top-k 0 -s 3"), ("--min-p -0.5 -s 3", "--min-p 0 -s 3"), ("--typical 2 -s 3", "--typical 1 -s 3"),
                                       ("--xtc-probability -1 -s 3", "--xtc-probability 0 -s 3"), ("--dynatemp-range -1 -s 3", "--dynatemp-range 0 -s 3"),
                                       ("--top_k 5 -s 3", "--top-k 5 -s 3")])
def test_values_beyond_their_bounds(run_weft, tinypy, odd, same):
    a, b = (run_weft(["run", tinypy, "-p", "def f", "-n", "12", *words.split()]) for words in (odd, same))
    assert a.returncode == b.returncode == 0 and a.out == b.out and a.out


def test_more_threads_than_processors(run_weft, tinypy):
    done = run_weft(["run", tinypy, "-p", "a", "-n", "1", "-t", "1000"])
    n = len(os.sched_getaffinity(0))
    assert done.returncode == 0 and f"-t 1000: this machine has {n} processor" in done.err
    assert "processor" not in run_weft(["run", tinypy, "-p", "a", "-n", "1", "-t", str(n), "-tb", "-1"]).err


# ---- bad files ---------------------------------------------------------------------------------------------------------

OPENERS = [["inspect"], ["tokenize", "-p", "x"], ["run", "-p", "x", "-n", "1"], ["bench", "-p", "1", "-n", "0"], ["profile", "-n", "1"], ["viz", "-n", "1"]]


@pytest.mark.parametrize("opener", OPENERS, ids=lambda o: o[0])
def test_files_that_are_no_models(run_weft, tmp_path, tinypy, opener):
    def refused(path, *expected):
        line = one_error(run_weft([*opener, "-m", path]), 1)
        assert str(path).replace("\n", " ").replace("\x9b", "  ") in line, line
        for text in expected:
            assert text in line, line

    refused(tmp_path / "missing.gguf", "No such file")
    refused(tmp_path, "directory")
    for name, content in [("empty", b""), ("text", b"hello world, this is no model\n" * 10), ("magic", b"GGUF"),
                          ("future", b"GGUF\x63\0\0\0" + b"\0" * 16), ("line\nbreak", b"x" * 40), ("con\x9btrol", b"x" * 40)]:
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name)
    whole = open(tinypy, "rb").read()
    for size in (20, 100, 5000, 20000, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        refused(tmp_path / "cut.gguf")


def test_a_prompt_file_that_is_not_there(run_weft, tinypy, tmp_path):
    assert "nothing.txt" in one_error(run_weft(["run", "-m", tinypy, "-f", tmp_path / "nothing.txt"]), 1)
    assert "nothing.txt" in one_error(run_weft(["tokenize", "-m", tinypy, "-f", tmp_path / "nothing.txt"]), 1)


# ---- inspect -----------------------------------------------------------------------------------------------------------

def as_plain(field):
    """The value of a field of the gguf package, as JSON would have it."""
    value = field.contents()
    if isinstance(value, np.generic):
        value = value.item()
    return value


def same(ours, theirs):
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(same(a, b) for a, b in zip(ours, theirs))
    if isinstance(theirs, float) and not isinstance(theirs, bool):
        return ours is None if theirs != theirs else abs(ours - theirs) <= 1e-12 * abs(theirs)
    return type(ours) is type(theirs) and ours == theirs


def check_inspect(run_weft, path):
    done = run_weft(["inspect", "-m", path, "--json"])
    assert done.returncode == 0 and done.err == ""
    ours = json.loads(done.stdout)
    reader = pytest.importorskip("gguf").GGUFReader(path)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert list(ours["metadata"]) == list(fields)
    for name, field in fields.items():
        assert same(ours["metadata"][name], as_plain(field)), name
    assert ours["n_tensors"] == len(reader.tensors) == len(ours["tensors"])
    for mine, theirs in zip(ours["tensors"], reader.tensors):
        assert mine["name"] == theirs.name
        assert mine["type"] == theirs.tensor_type.name
        assert mine["shape"] == theirs.shape.tolist()
        assert mine["elements"] == int(theirs.n_elements)
        assert mine["bytes"] == int(theirs.n_bytes)
        assert mine["offset"] == int(theirs.data_offset)
    assert ours["tensor_bytes"] == sum(int(t.n_bytes) for t in reader.tensors)
    assert ours["n_params"] == sum(int(t.n_elements) for t in reader.tensors)
    assert ours["file_bytes"] == os.path.getsize(path)
    assert sum(t["bytes"] for t in ours["types"].values()) == ours["tensor_bytes"]


def test_inspect_agrees_with_the_gguf_package(run_weft, tinypy):
    check_inspect(run_weft, tinypy)


@pytest.mark.parametrize("name", ["models/tiny-llama", "models/tiny-deepseek2", "models/tinypy-q4_k_m", "vocabs/ggml-vocab-llama-spm",
                                  "vocabs/ggml-vocab-bert-bge"])
def test_inspect_any_file(run_weft, shared_dir, name):
    check_inspect(run_weft, str(shared_dir / f"{name}.gguf"))


def test_inspect_for_people(run_weft, tinypy):
    done = run_weft(["inspect", "-m", tinypy])
    assert done.returncode == 0 and done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == tinypy and "llama 5.2M Q8_0" in lines[1]
    assert re.search(r"^  llama\.block_count +UINT32 +6$", done.out, re.M)
    assert re.search(r"^  tokenizer\.ggml\.tokens +STRING\[2048\] .*\(2048 elements\)\]$", done.out, re.M)
    assert re.search(r"^  token_embd\.weight +Q8_0 +256 x 2048 +544\.00 KiB$", done.out, re.M)
    assert max(map(len, lines)) < 200                       # long arrays are abbreviated ...
    assert len(run_weft(["inspect", "-m", tinypy, "--full"]).out) > 3 * len(done.out)   # ... unless they are asked for


# ---- tokenize ----------------------------------------------------------------------------------------------------------

def test_tokenize_and_back(run_weft, tinypy, tmp_path):
    text = "def f(x):\n    return 'é\u4e2d' + x\t# <|endoftext|>\n"
    ids = json.loads(run_weft(["tokenize", "-m", tinypy, "-p", text, "--ids"]).out)
    assert ids[0] == 0 and 0 not in ids[1:]                 # BOS, and the control token's text stayed text
    assert run_weft(["tokenize", "-m", tinypy, "-p", text, "--ids"]).out == "[" + ", ".join(map(str, ids)) + "]\n"
    assert run_weft(["tokenize", "-m", tinypy, "--detokenize", ",".join(map(str, ids))]).out == text
    assert json.loads(run_weft(["tokenize", "-m", tinypy, "--stdin", "--ids"], input=text).out) == ids
    (tmp_path / "text").write_text(text)
    assert json.loads(run_weft(["tokenize", "-m", tinypy, "-f", tmp_path / "text", "--ids"]).out) == ids
    assert json.loads(run_weft(["tokenize", "-m", tinypy, "-p", text, "--ids", "--no-bos"]).out) == ids[1:]
    special = json.loads(run_weft(["tokenize", "-m", tinypy, "-p", text, "--ids", "--parse-special"]).out)
    assert special.count(0) == 2
    assert run_weft(["tokenize", "-m", tinypy, "--detokenize", json.dumps(special[1:]), "--parse-special"]).out == text
    lines = run_weft(["tokenize", "-m", tinypy, "-p", text]).out.splitlines()
    assert [int(line.split(" -> ")[0]) for line in lines] == ids
    assert lines[1] == "   316 -> 'def'"


def test_tokenize_escapes(run_weft, tinypy):
    literal = run_weft(["tokenize", "-m", tinypy, "-p", r"a\n\x41", "--ids"]).out
    escaped = run_weft(["tokenize", "-m", tinypy, "-e", "-p", r"a\n\x41", "--ids"]).out
    assert literal != escaped
    assert escaped == run_weft(["tokenize", "-m", tinypy, "-p", "a\nA", "--ids"]).out


def test_tokenize_nothing(run_weft, tinypy):
    assert run_weft(["tokenize", "-m", tinypy, "-p", "", "--ids"]).out == "[0]\n"
    assert run_weft(["tokenize", "-m", tinypy, "-p", "", "--ids", "--no-bos"]).out == "[]\n"
    assert run_weft(["tokenize", "-m", tinypy, "--stdin", "--ids", "--no-bos"]).out == "[]\n"


def test_tokenize_bytes(run_weft, tinypy):
    for data in (b"a\0b", b"\xff\xfe", b"\xed\xa0\x80", bytes(range(256))):
        done = run_weft(["tokenize", "-m", tinypy, "--stdin", "--ids", "--no-bos"], input=data)
        assert done.returncode == 0
        back = run_weft(["tokenize", "-m", tinypy, "--detokenize", done.out.strip()])
        assert back.stdout == data


def test_detokenize_outside_the_vocabulary(run_weft, tinypy):
    assert "2048" in one_error(run_weft(["tokenize", "-m", tinypy, "--detokenize", "5,2048"]), 1)


def test_a_vocabulary_without_tensors(run_weft, shared_dir):
    done = run_weft(["tokenize", "-m", shared_dir / "vocabs" / "ggml-vocab-llama-bpe.gguf", "-p", "Hello world", "--ids"])
    assert done.out == "[128000, 9906, 1917]\n"


def test_an_unknown_tokenizer_says_so(run_weft, tmp_path):
    w = pytest.importorskip("gguf").GGUFWriter(tmp_path / "v.gguf", "llama")
    w.add_tokenizer_model("of-tomorrow")
    w.add_token_list([b"a"])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    line = one_error(run_weft(["tokenize", "-m", tmp_path / "v.gguf", "-p", "x"]), 1)
    assert "tokenizer.ggml.model" in line and "'of-tomorrow'" in line


# ---- env ---------------------------------------------------------------------------------------------------------------

def test_env(run_weft, cache_dir):
    done = run_weft(["env"], env={"MV_BLOCKSIZE": "9", "WEFT_CACHE": cache_dir})
    assert done.returncode == 0
    for name in "DEBUG SPEC BEAM BEAM_SKIP_MS WEFT_TUNE NOOPT MV_THREADS_PER_ROW MV_BLOCKSIZE MV_ROWS_PER_THREAD DEV RENDER ISOLATE WEFT_CPU VIZ WEFT_CACHE".split():
        assert re.search(rf"^{name} ", done.out, re.M), name
    assert re.search(r"^MV_BLOCKSIZE +9 +4 +\S", done.out, re.M)
    assert re.search(r"^threads +\d+$", done.out, re.M)
    assert re.search(rf"^cache +{re.escape(str(cache_dir))}", done.out, re.M)


def test_env_json(run_weft):
    done = run_weft(["env", "--json"], env={"WEFT_CACHE": "off", "DEV": "REF"})
    assert done.returncode == 0
    env = json.loads(done.stdout)
    changes, features = env["machine"]["changes"], env["machine"]["features"].split()      # what the features of this machine change
    assert changes and set(changes) <= set(features) and features[0] in changes and all(len(text) > 20 for text in changes.values())
    assert env["variables"]["DEV"]["value"] == "REF" and env["variables"]["DEV"]["default"] == "CPU"
    assert env["machine"]["cache"] is None
    assert env["machine"]["threads"] >= 1 and env["machine"]["memory_total"] > 0


def test_env_with_a_wrong_cpu(run_weft):
    done = run_weft(["env"], env={"WEFT_CPU": "pentium"})
    assert done.returncode == 0 and "pentium" in done.out


# ---- pipes -------------------------------------------------------------------------------------------------------------

def test_a_closed_pipe_is_quiet(weft, weft_env, shared_dir):
    command = [weft, "inspect", "--json", "-m", str(shared_dir / "vocabs" / "ggml-vocab-gpt-2.gguf")]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=weft_env)
    p.stdout.read(10)
    p.stdout.close()
    assert p.stderr.read() == b""
    p.stderr.close()
    assert p.wait(60) == 0


def test_a_full_disk_is_an_error(run_weft, weft, weft_env, tinypy):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    for args in (["inspect", "-m", tinypy], ["env"], ["--help"], ["--version"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([weft, *args], stdout=full, stderr=subprocess.PIPE, env=weft_env)
        assert done.returncode == 1 and b"No space left" in done.stderr, args


# ---- the manual --------------------------------------------------------------------------------------------------------

def options_of(run_weft, command):
    lines = re.findall(r"^  (-[^ ].*)$", run_weft([command, "--help"]).out, re.M)
    return {name for line in lines for name in re.findall(r"(?<![\w-])--?[a-z][\w-]*", line.split("  ")[0])}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_manual_names_every_option(run_weft, repo, command):
    text = re.sub(r"\\f[BIR]", "", (repo / "docs" / "weft.1").read_text().replace("\\-", "-"))
    section = re.search(rf'^\.SH "WEFT {command.upper()}"$(.*?)^\.SH', text, re.M | re.S).group(1)
    options = options_of(run_weft, command) - {"-h", "--help"}
    assert options or command == "env"
    for option in options:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", section), option


def test_the_manual_has_its_sections(repo):
    text = (repo / "docs" / "weft.1").read_text()
    assert [name in text for name in (".SH ENVIRONMENT", ".SH FILES", '.SH "EXIT STATUS"', '.SH "SEE ALSO"')] == [True] * 4


def test_what_is_made_from_the_table_is_current(repo, weft):
    done = subprocess.run([repo / "scripts" / "docs.sh", "--check", weft], capture_output=True, text=True)
    assert done.returncode == 0, "run scripts/docs.sh\n" + done.stdout[:2000] + done.stderr


def test_completion_of_zsh_and_fish(run_weft, repo):
    """Every option that does something, in each shell's words; where a shell is installed, it reads its file."""
    for shell in ("zsh", "fish"):
        text = (repo / "docs" / f"weft.{shell}").read_text()
        for command in COMMANDS:
            help = run_weft([command, "--help"]).out.split("\nOf llama.cpp,")[0]
            for name in re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(line.split("  ")[1] for line in help.splitlines() if line.startswith("  -"))):
                if name in ("-h", "--help"):
                    continue
                bare = name.lstrip("-")
                said = name if shell == "zsh" else f"-l {bare}" if name.startswith("--") else f"-s {bare}" if len(bare) == 1 else f"-o {bare}"
                assert re.search(rf"(?<![\w-]){re.escape(said)}(?![\w-])", text), (shell, command, name)
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", repo / "docs" / f"weft.{shell}"], capture_output=True, text=True)
            assert done.returncode == 0 and done.stderr == "", done.stderr


def test_completion(repo, weft, weft_env):
    def complete(*words):
        script = f'source docs/weft.bash; COMP_WORDS=({" ".join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _weft; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", script], cwd=repo, env=weft_env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == ""
        return set(done.stdout.split())

    assert complete(weft, "") >= set(COMMANDS)
    assert complete(weft, "in") == {"inspect"}
    assert complete(weft, "help", "b") == {"bench"}
    assert complete(weft, "run", "--top") == {"--top-k", "--top-p", "--top-logprobs", "--top-n-sigma", "--top-nsigma"}
    assert complete(weft, "run", "--pred") == {"--predict"}
    assert complete(weft, "bench", "-o", "") == {"md", "json", "jsonl", "csv", "sql"}
    assert complete(weft, "run", "-m", "models/") == {"models/tinypy.gguf"}
    assert "models/tinypy.gguf" in complete(weft, "run", "models/")
    assert complete(weft, "chat", "--color", "") == {"auto", "on", "off"}
    assert complete(weft, "run", "-sm", "") == {"auto", "row", "layer", "none", "tensor"}
    assert complete(weft, "run", "-mg") == set()               # nothing that has no effect


# ---- control characters ------------------------------------------------------------------------------------------------

HOSTILE_NAME = "a\x1b]0;owned\x07\u009b2Jz\nforged"


def on_a_terminal(weft, args):
    """What the command writes to a terminal."""
    import pty
    master, slave = pty.openpty()
    child = subprocess.Popen([weft, *args], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    child.wait()
    os.close(master)
    return text.replace(b"\r\n", b"\n")


def without_controls(text):
    decoded = text.decode("utf-8")
    return not any(c != "\n" and c != "\t" and (c < " " or "\x7f" <= c < "\xa0") for c in decoded)


def test_no_control_character_reaches_a_terminal(weft, run_weft, tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / f"m{HOSTILE_NAME}.gguf"
    w = gguf.GGUFWriter(tmp_path / "plain.gguf", "llama")
    w.add_string(f"key{HOSTILE_NAME}", f"value{HOSTILE_NAME}")
    w.add_array(f"list{HOSTILE_NAME}", [HOSTILE_NAME])
    w.add_tensor(f"t{HOSTILE_NAME}", np.zeros(4, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.rename(tmp_path / "plain.gguf", path)
    for args in (["inspect", "-m", str(path)], ["inspect", "-m", str(path), "--full"], ["inspect", "-m", str(path), "--json"], ["run", "-m", str(path), "-p", "a"]):
        text = on_a_terminal(weft, args)
        assert b"owned" in text and without_controls(text), args
        assert b"\nforged" not in text, args
    # A pipe may end in a terminal; programs read JSON, which has names as they are.
    text = run_weft(["inspect", "-m", str(path)]).stdout
    assert b"owned" in text and without_controls(text) and b"\nforged" not in text
    shown = json.loads(run_weft(["inspect", "-m", str(path), "--json"]).out)
    assert shown["tensors"][0]["name"] == f"t{HOSTILE_NAME}" and shown["metadata"][f"list{HOSTILE_NAME}"] == [HOSTILE_NAME]


def test_no_control_character_of_a_template_reaches_a_terminal(weft, run_weft, tmp_path):
    file = tmp_path / "t.jinja"
    file.write_text("x\x1b[2J{{ messages[0].content }}y")
    args = ["template", str(file), "--messages", json.dumps([{"role": "user", "content": "\x1b\u009b\u00e9\x7f\n\t"}], ensure_ascii=False)]
    assert on_a_terminal(weft, args) == "x[2J\u00e9\n\ty".encode()
    assert run_weft(args).stdout == "x\x1b[2J\x1b\u009b\u00e9\x7f\n\ty".encode()


def test_inspect_json_of_long_texts(run_weft, tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    texts = ["a" * k + "\u00e9\u20ac\U0001f600\x01\"\n" * 20_000 for k in range(11)]
    w = gguf.GGUFWriter(path, "llama")
    for i, text in enumerate(texts):
        w.add_string(f"text.{i}", text)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    shown = json.loads(run_weft(["inspect", "-m", str(path), "--json"]).out)["metadata"]
    assert [shown[f"text.{i}"] for i in range(11)] == texts


@pytest.mark.parametrize("kind", ["array", "text"])   # a control character becomes six
def test_inspect_json_takes_little_memory(weft, tmp_path, kind):
    gguf = pytest.importorskip("gguf")
    used = []
    for n in (1, 2):
        path = tmp_path / f"{n}.gguf"
        w = gguf.GGUFWriter(path, "llama")
        if kind == "array":
            w.add_key_value("long", np.zeros(n * 2_000_000, np.uint8).tobytes(), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8)
        else:
            w.add_string("long", "\x01" * (n * 5_000_000))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()
        # Through a small process: what a child may count as its own begins with the memory of the one that forked it.
        measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True);"
                   "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", measure, weft, "inspect", "-m", str(path), "--json"], capture_output=True, check=True)
        used.append(int(done.stdout) * 1024)
        limit = 4 * path.stat().st_size + (64 << 20) if kind == "array" else 40_000_000
        assert used[-1] < limit or "WEFT_SANITIZED" in os.environ, used
    assert used[1] - used[0] < 8_000_000 or "WEFT_SANITIZED" in os.environ, used


@pytest.mark.parametrize("arguments", [["quantize", "MODEL", "", "--allow-requantize", "Q4_0"], ["export", "MODEL", "-o", ""], ["cache", "export", ""]])
def test_a_file_to_write_without_a_name(run_weft, tinypy, arguments):
    done = run_weft([str(tinypy) if word == "MODEL" else word for word in arguments])
    assert done.returncode == 2 and "is empty: it needs the path of a file" in done.err
