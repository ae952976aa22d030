"""The first hour of somebody who comes from llama.cpp or ollama.

The commands that the two READMEs show first are typed at a pseudo terminal, with nothing translated but the program's name and the
name of the model file.  Those that need what is not there yet are in the list too: they have to be refused with the reason.
Then every row of options that llama.cpp's completion tool and llama-bench have: each is taken, or refused with a reason.
"""
import json
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from registry import Registry

pexpect = pytest.importorskip("pexpect")

OPTIONS = Path(__file__).with_name("llama_options.txt")
PROMPT = r"\d+/\d+ > "
TEMPLATE = "{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}# assistant\n{% endif %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory, tinypy):
    """The small model with a chat template in its file, as most have one."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("newcomer") / "model.gguf"
    reader = gguf.GGUFReader(tinypy)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_chat_template(TEMPLATE)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


@pytest.fixture
def typed(weft, weft_env, model, tmp_path):
    """Types a line into a shell at a terminal; `weft` and MODEL in it are the program's and the model's."""
    def start(line, **more):
        env = dict(weft_env, **more, TERM="xterm", XDG_STATE_HOME=str(tmp_path / "state"), NO_COLOR="1")
        line = re.sub(r"^(.*\| )?weft\b", lambda m: f"{m.group(1) or ''}{weft}", line).replace("MODEL", model)
        return pexpect.spawn("/bin/sh", ["-c", line], env=env, encoding="utf-8", timeout=60, dimensions=(50, 200), cwd=str(tmp_path))
    return start


def until_the_end(p):
    p.expect(pexpect.EOF)
    p.close()
    return p.before, p.exitstatus


# What llama.cpp's README and the pages it leads to show first, then ollama's. True: a conversation begins and goes on.
TALKS = ["weft -m MODEL",                                                   # llama-cli -m model.gguf
         "weft chat -m MODEL --jinja",
         "weft chat -m MODEL -cnv --chat-template chatml",
         'weft run -m MODEL -cnv -sys "You are a helpful assistant"',
         "weft run -m MODEL --jinja -ngl 99 -fa on -c 512",
         "weft run MODEL"]                                                  # ollama run llama3.2

ONCE = [('weft run -m MODEL -no-cnv --prompt "Once upon a time" -n 8', r"\d+ tokens read at"),
        ('weft run -m MODEL --jinja --single-turn -sys "You are a helpful assistant" -p "Hello" -n 8', r"written at|cut after"),
        ('weft run -m MODEL -p "I believe the meaning of life is" -n 8 -no-cnv', r"8 written at"),
        ("weft run -m MODEL -n 8 --grammar-file list.gbnf -p 'Request: schedule a call at 8pm; Command:'", r"written at"),
        ("weft run -m MODEL --ignore-eos -n 8 -p Hello -no-cnv", r"8 written at"),
        ("weft bench -m MODEL -p 4 -n 2 -r 1", r"tg2 .* ± "),
        ("weft bench -m MODEL -p 0 -n 2,4 -r 1 -ngl 99", r"tg4 .* ± "),
        ("weft perplexity -m MODEL -f text.txt -c 32", r"PPL = "),
        ("weft tokenize -m MODEL -p 'Hello world' --ids", r"\[\d+, "),
        ('weft chat MODEL "Why is the sky blue?" -n 8', r"written at|cut after"),   # ollama run llama3.2 "..."
        ('weft chat MODEL "Summarize this file: $(cat text.txt)" -n 8', r"written at|cut after"),
        ("cat text.txt | weft chat MODEL -n 8", r"cut after|\w")]

# Models by name, from a server that has user/repo as Hugging Face has its repositories and tiny as ollama has its models.
BY_NAME = [("weft run -hf user/repo -no-cnv -p Hello -n 4", r"fetching model-Q8_0.gguf(.|\n)*4 written at"),     # llama-cli -hf ggml-org/gemma-3-1b-it-GGUF
           ('weft chat -hf user/repo:Q8_0 "Hello" -n 4', r"written at|cut after"),
           ("weft bench -hf user/repo:Q8_0 -p 4 -n 2 -r 1", r"tg2 .* ± "),
           ("weft pull tiny", r"fetching tiny:latest"),                                                            # ollama pull llama3.2
           ("weft pull hf.co/user/repo:Q8_0", r"user_repo_model-Q8_0.gguf"),                                       # ollama run hf.co/...
           ("weft pull tiny && $WEFT run tiny -no-cnv -p Hello -n 4", r"4 written at"),
           ("weft pull tiny && $WEFT list", r"ollama_tiny_latest"),
           ("weft pull tiny && $WEFT inspect tiny", r"llama"),                                                     # ollama show llama3.2
           ("weft pull tiny && $WEFT rm tiny -y", r"removed ollama_tiny_latest")]

NAMES_A_FILE = [("weft run -m MODEL -p x --control-vector v.gguf", "v.gguf: cannot be opened"),
                ("weft run -m MODEL -p x --lora v.gguf", "v.gguf: cannot be opened")]


@pytest.mark.parametrize("line", TALKS)
def test_conversations(typed, line):
    p = typed(line + " -n 6 -s 1")
    p.expect("a context of 512 tokens")
    p.expect(PROMPT)
    p.sendline("Hello")
    p.expect(r"6 written at")
    p.expect(PROMPT)
    p.sendline("/bye")
    assert until_the_end(p)[1] == 0


@pytest.mark.parametrize("line, sees", ONCE, ids=[line for line, _ in ONCE])
def test_commands_that_end(typed, tmp_path, line, sees):
    (tmp_path / "list.gbnf").write_text('root ::= ("- " [a-z]+ "\\n")+')
    (tmp_path / "text.txt").write_text("def add(a, b):\n    return a + b\n" * 20)
    text, status = until_the_end(typed(line))
    assert status == 0 and re.search(sees, text) and "error" not in text, text


@pytest.mark.parametrize("line, sees", BY_NAME, ids=[line for line, _ in BY_NAME])
def test_models_by_name(typed, weft, model, tmp_path, line, sees):
    registry = Registry({"model-Q8_0.gguf": Path(model).read_bytes(), "tiny-Q8_0.gguf": Path(model).read_bytes()})
    try:
        text, status = until_the_end(typed(line, WEFT=weft, HF_ENDPOINT=registry.url, OLLAMA_REGISTRY=registry.url, LLAMA_CACHE=str(tmp_path / "models")))
    finally:
        registry.close()
    assert status == 0 and re.search(sees, text) and "error" not in text, text


def test_a_conversation_with_a_model_by_name(typed, model, tmp_path):
    registry = Registry({"model-Q8_0.gguf": Path(model).read_bytes()})
    try:
        p = typed("weft -hf user/repo -n 6 -s 1", HF_ENDPOINT=registry.url, LLAMA_CACHE=str(tmp_path / "models"))
        p.expect(PROMPT)
        p.sendline("Hello")
        p.expect("6 written at")
        p.sendline("/bye")
        assert until_the_end(p)[1] == 0
    finally:
        registry.close()


@pytest.mark.parametrize("line, says", NAMES_A_FILE, ids=[line for line, _ in NAMES_A_FILE])
def test_a_file_that_is_not_there_is_named(typed, line, says):
    text, status = until_the_end(typed(line))
    assert status == 1 and says in text, text


def test_a_model_alone(typed, model, tinypy, run_weft):
    """With a template a chat begins, without one what is typed is continued as it stands."""
    p = typed(f"weft {tinypy} -n 6 --temp 0")
    p.expect(PROMPT)
    p.sendline("def f(x):")
    n = len(json.loads(run_weft(["tokenize", tinypy, "-p", "def f(x):", "--ids"]).out))
    p.expect(rf"\({n} tokens read")                    # BOS and the text, and nothing around it
    p.expect(PROMPT)
    p.sendline("/bye")
    until_the_end(p)
    answer = run_weft([model, "-n", "6", "--temp", "0"], input="hello")
    assert answer.returncode == 0 and "cut after 6" in answer.err
    assert answer.out == run_weft(["chat", model, "-n", "6", "--temp", "0", "-p", "hello"]).out


# ---- options -------------------------------------------------------------------------------------------------------------

def rows():
    """[("run", ["-t", "--threads"], ["N"]), ...]"""
    out, tool = [], None
    for line in OPTIONS.read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        if line.endswith(":"):
            tool = line[:-1]
            continue
        words = [w for w in line.split() if not w.startswith("=")]
        names = [w.rstrip(",") for w in words if w.startswith("-")]
        out.append((tool, names, [w for w in words if not w.startswith("-")]))
    return out


def test_there_are_as_many_as_llama_cpp_has():
    assert {name: sum(tool == name for tool, _, _ in rows()) for name in ("server", "cli", "completion", "bench")} == {"server": 255, "cli": 205, "completion": 154, "bench": 46}


VALUES = {"N": "1", "TYPE": "f16", "SEED": "1", "FILE": "FILE", "FNAME": "FILE", "PATH": "FILE", "DIR": "FILE"}


@pytest.mark.parametrize("tool, commands", [("server", ["serve"]), ("cli", ["chat"]), ("completion", ["run", "chat"]), ("bench", ["bench"])])
def test_every_option_is_known(run_weft, tmp_path, tool, commands):
    """None is unknown, whatever becomes of it. (A model that is not there ends the command before anything else happens.)"""
    for _, names, values in (row for row in rows() if row[0] == tool):
        words = [VALUES.get(v, "1").replace("FILE", str(tmp_path / "file")) for v in values]
        for name in names:
            for command in commands:
                first = [command, "-m", "/nonexistent.gguf", *(["--port", "0"] if command == "serve" else []), "-n", "1"]
                done = run_weft([*first, name, *words])
                assert "unknown option" not in done.err and "unexpected argument" not in done.err and "no option" not in done.err, done.err
                refused = "is not supported: " in done.err
                assert done.returncode in (0, 1, 2) and (refused or done.returncode != 2 or "-n" in done.err or name in done.err or "prompt" in done.err
                                                         or "constrained" in done.err or "conversation" in done.err or "model was given" in done.err or str(tmp_path) in done.err), done.err


def test_every_variable_is_known(run_weft):
    """All at once: weft env shows what it knows, and only that."""
    names = {w[1:] for line in OPTIONS.read_text().splitlines() if not line.startswith("#") for w in line.split() if w.startswith("=")}
    assert len(names) > 120
    shown = json.loads(run_weft(["env", "--json"], env={name: "1" for name in names}).stdout)["variables"]
    assert {name for name in names if shown.get(name, {}).get("value") not in ("1", "(set)")} == set()


def test_the_page_for_llama_cpp_has_every_option(repo):
    """With a value where llama.cpp has one, so that none is taken for the next argument."""
    said = {}
    for cell, commands in re.findall(r"^\| (`-.*?) (?<!\\)\| (.*?) \|", (repo / "docs" / "from-llama.cpp.md").read_text(), re.M):
        names = re.findall(r"`(-[^`]*)`", cell)
        for command in commands.split(", "):
            for name in names:
                said[command, name] = re.sub(r"`[^`]*`,?", "", cell).strip()
    for tool, names, values in rows():
        for name in set(names) - {"-h", "--help", "--usage", "--version"}:
            command = {"bench": "bench", "server": "serve", "cli": "chat"}.get(tool) or ("run" if ("run", name) in said else "chat")
            value = said[command, name]
            assert bool(value) == bool(values) or value.startswith("["), (command, name, value, values)


# ---- bench ---------------------------------------------------------------------------------------------------------------

# The columns by which llama.cpp's compare-llama-bench tells results apart, and the ones that it reads, in its versions of 2025 and 2026.
COMPARED = """build_commit build_number cpu_info gpu_info backends model_filename model_type model_size model_n_params n_batch n_ubatch n_threads cpu_mask
cpu_strict poll type_k type_v n_gpu_layers split_mode main_gpu no_kv_offload flash_attn tensor_split tensor_buft_overrides use_mmap load_mode embeddings
no_op_offload n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts n_cpu_moe fit_target fit_min_ctx""".split()


def test_bench_has_the_columns_that_are_compared(run_weft, tinypy):
    args = ["bench", tinypy, "-p", "4", "-n", "2", "-r", "1"]
    for line in run_weft([*args, "-o", "jsonl"]).out.splitlines():
        assert set(COMPARED) <= set(json.loads(line))
    db = sqlite3.connect(":memory:")
    db.executescript(run_weft([*args, "-o", "sql"]).out)
    columns = {row[1]: row[2] for row in db.execute("PRAGMA table_info(llama_bench)")}
    assert set(COMPARED) <= set(columns) and columns["avg_ts"] == "REAL" and columns["n_prompt"] == "INTEGER" and columns["test_time"] == "TEXT"
    assert db.execute("SELECT n_prompt, n_gen, flash_attn, backends FROM llama_bench").fetchall() == [(4, 0, 1, "CPU"), (0, 2, 1, "CPU")]


def test_the_table_of_bench_fits(run_weft, tinypy):
    done = run_weft(["bench", tinypy, "-p", "4", "-n", "2", "-pg", "2,2", "-d", "0,100", "-r", "1"])
    lines = done.out.splitlines()
    assert len(lines) == 8 and max(map(len, lines)) <= 100 and len({len(line) for line in lines}) == 1


# ---- controls ------------------------------------------------------------------------------------------------------------

def test_controls_of_a_model_never_reach_a_terminal(typed, run_weft, tinypy):
    """Bytes of a model that a terminal would obey: ESC, BEL, and U+009B in its two bytes. A pipe gets them as they are."""
    text = b"a\x1b]0;owned\x07b\xc2\x9b2Jc"
    ids = json.loads(run_weft(["tokenize", tinypy, "--stdin", "--ids", "--no-bos"], input=text).out)
    forced = ["run", tinypy, "x", "--force", ",".join(map(str, ids))]
    assert run_weft(forced).stdout == text
    shown, status = until_the_end(typed(f"weft {' '.join(forced)} -q"))          # -q: no bar on a slow machine
    assert status == 0 and "a]0;ownedb2Jc" in shown and not any(c in shown for c in "\x1b\x07\x9b")
