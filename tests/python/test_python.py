"""The Python package (python/weft): what llama-cpp-python gives on the same file, and programs that know its interface only.

llama_programs.py has calls that llama-cpp-python documents; llama_cpp_python.json is what version 0.3.36 of it gave on
models/tinypy.gguf.  Texts and counts are equal; logarithms of probabilities and vectors differ by what the two round in
activations.  LangChain's and LlamaIndex's classes for llama_cpp run on Weft as they are.
"""
import asyncio
import gc
import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROUNDING = 0.12  # of a logarithm of a probability: activations are rounded to 8 bits by both, in different places


@pytest.fixture(scope="module")
def python_env(repo, weft, weft_env, sanitized):
    library = Path(weft).parent / "libweft.so"
    if sanitized:
        pytest.skip("Python would have to be built with the sanitizer, too")
    if not library.exists():
        pytest.skip(f"no {library}")
    return {**weft_env, "PYTHONPATH": f"{repo}/python", "WEFT_LIBRARY": str(library), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="module")
def own(python_env):
    """The module weft in this process."""
    pytest.importorskip("cffi", reason="no cffi in this Python (scripts/setup.sh test installs it from PyPI)")
    before = dict(os.environ)
    os.environ.update(WEFT_LIBRARY=python_env["WEFT_LIBRARY"])
    os.environ.update({key: value for key, value in python_env.items() if key in ("WEFT_CACHE", "XDG_CACHE_HOME", "HOME")})
    sys.path.insert(0, python_env["PYTHONPATH"])
    import weft as module
    yield module
    sys.path.remove(python_env["PYTHONPATH"])
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def answers(own, tinypy):
    import llama_programs
    return json.loads(json.dumps(llama_programs.run("weft", str(tinypy)), default=float))


@pytest.fixture(scope="module")
def llm(own, tinypy):
    with own.Llama(str(tinypy), n_ctx=512, verbose=False) as model:
        yield model


RECORD = json.loads((HERE / "llama_cpp_python.json").read_text())
VECTORS = ("embedding", "embedding_normalised")


def alike(expected, got, where=""):
    """Whether two answers are the same but for rounding; None in the record allows anything."""
    if expected is None:
        return
    if isinstance(expected, dict):
        assert set(expected) == set(got), where
        for key in expected:
            alike(expected[key], got[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(expected) == len(got), where
        for i, (x, y) in enumerate(zip(expected, got)):
            alike(x, y, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, abs=ROUNDING), where
    else:
        assert got == expected, where


@pytest.mark.parametrize("program", [name for name in RECORD if name not in VECTORS])
def test_as_llama_cpp_python(answers, program):
    alike(RECORD[program], answers[program], program)


@pytest.mark.parametrize("program, key", [("embedding", "vectors"), ("embedding_normalised", None)])
def test_vectors_as_llama_cpp_python(answers, program, key):
    expected, got = (answer[program][key] if key else [answer[program]] for answer in (RECORD, answers))
    for x, y in zip(expected, got, strict=True):
        dot = sum(a * b for a, b in zip(x, y, strict=True))
        lengths = math.sqrt(sum(a * a for a in x)), math.sqrt(sum(b * b for b in y))
        assert dot / lengths[0] / lengths[1] > 0.999 and lengths[1] == pytest.approx(lengths[0], rel=0.02)


def test_logits_stay_what_they_were(own, llm):
    """The array is the program's: what the model evaluates afterwards changes the next one."""
    llm.reset()
    llm.eval(llm.tokenize(b"def add"))
    logits = llm.logits
    assert logits.dtype == "float32" and logits.shape == (llm.n_vocab(),) and logits is llm.logits and not logits.flags.writeable
    before = logits.copy()
    assert int(before.argmax()) == llm.sample(temp=0)
    llm.eval(llm.tokenize(b"import", add_bos=False))
    assert (llm.logits != before).any() and (logits == before).all()


@pytest.mark.parametrize("end", ["llm.close()", "del llm", "llm.__exit__()", "llm.close(); other = weft.Llama(sys.argv[1], n_ctx=128, verbose=False); other.eval([4] * 100)"])
@pytest.mark.parametrize("what", ["llm.logits", "llm.scores[:4]", "llm.input_ids"])
@pytest.mark.parametrize("logits_all", [False, True])
def test_arrays_outlive_their_model(python_env, tinypy, end, what, logits_all):
    """A process of its own: where an array lies over memory that was freed, reading it may end the process."""
    pytest.importorskip("cffi", reason="no cffi in this Python (scripts/setup.sh test installs it from PyPI)")
    program = f"""import gc, sys, weft
llm = weft.Llama(sys.argv[1], n_ctx=128, logits_all={logits_all}, verbose=False)
llm.eval([1, 2, 3, 4])
array = {what}
before = array.tolist()
{end}
gc.collect()
assert array.tolist() == before
"""
    run_python(python_env, program, tinypy)


def test_other_threads_run_meanwhile(llm):
    """The GIL is free while a model evaluates: another thread counts on."""
    counts, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counts[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        llm.reset()
        start, before = time.monotonic(), counts[0]
        llm.eval(llm.tokenize(b"x = 1\n" * 120)[:500])  # one call into C
        took, counted = time.monotonic() - start, counts[0] - before
    finally:
        done.set()
        thread.join()
    assert counted >= 3 or took < 0.005, f"{counted} in {took:.3f} s"


def test_several_at_once(llm):
    """Threads share a Llama: each gets a whole answer of its own."""
    expected = llm("def add(a, b):\n", max_tokens=8, temperature=0)["choices"][0]["text"]
    found = []
    threads = [threading.Thread(target=lambda: found.append(llm.tokenize(b"def add"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [llm.tokenize(b"def add")] * 8
    assert llm("def add(a, b):\n", max_tokens=8, temperature=0)["choices"][0]["text"] == expected


def test_asynchronous(llm):
    async def both():
        whole = await llm.acreate_completion("def add(a, b):\n", max_tokens=8, temperature=0)
        parts = [part async for part in await llm.acreate_completion("def add(a, b):\n", max_tokens=8, temperature=0, stream=True)]
        return whole["choices"][0]["text"], "".join(part["choices"][0]["text"] for part in parts)

    whole, streamed = asyncio.run(both())
    assert whole == streamed == RECORD["completion"]["choices"][0]["text"][:len(whole)] and whole


def test_a_prompt_is_not_read_twice(llm):
    llm("def add(a, b):\n    return", max_tokens=1, temperature=0)
    read = []
    sequence = llm._sequence
    add = sequence.add
    sequence.add = lambda tokens: (read.append(len(tokens)), add(tokens))[1]
    try:
        llm("def add(a, b):\n    return a", max_tokens=1, temperature=0)
    finally:
        del sequence.add
    assert 0 < sum(read) < 5


@pytest.mark.parametrize("call, words", [
    (lambda own, llm, path: own.Llama("absent.gguf"), "absent.gguf"),
    (lambda own, llm, path: own.Llama(str(HERE / "conftest.py")), "conftest.py"),
    (lambda own, llm, path: own.Llama(path, chat_format="nonsense").create_chat_completion([{"role": "user", "content": "x"}]), "nonsense"),
    (lambda own, llm, path: own.Llama(path, type_k=77), "77"),
    (lambda own, llm, path: llm("x", grammar=own.LlamaGrammar.from_string("root ::= nothing")), "nothing"),
    (lambda own, llm, path: llm("x", top_p=7.0), "top-p"),
    (lambda own, llm, path: llm.create_chat_completion([{"role": "user", "content": "x"}], response_format={"type": "xml"}), "xml"),
    (lambda own, llm, path: own.Llama(path, vocab_only=True)("x"), "vocabulary"),
])
def test_errors_are_sentences(own, llm, tinypy, call, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        call(own, llm, str(tinypy))


def test_a_vocabulary_alone(own, tinypy, llm):
    alone = own.Llama(str(tinypy), vocab_only=True)
    assert alone.tokenize(b"def add") == llm.tokenize(b"def add") and alone.n_vocab() == llm.n_vocab()


def test_what_lives_on_is_harmless(own, tinypy):
    """States and grammars that outlive their model, and objects that are collected in any order, end in errors or nothing."""
    model = own.Llama(str(tinypy), n_ctx=64, verbose=False)
    model("x", max_tokens=2)
    state = model.save_state()
    model.close()
    model.close()
    with pytest.raises(RuntimeError):
        model("x")
    other = own.Llama(str(tinypy), n_ctx=64, verbose=False)
    other.load_state(state)
    assert other.n_tokens == state.n_tokens
    loop = [other, state]
    loop.append(loop)


ELSEWHERE = """
import pickle, sys, weft
state = pickle.load(open(sys.argv[2], "rb"))
model = weft.Llama(sys.argv[1], n_ctx=64, n_batch=int(sys.argv[3]), type_k=int(sys.argv[4]) or None, verbose=False)
read = []
def count(add): return lambda self, tokens: (read.append(len(tokens)), add(self, tokens))[1]
from weft import _engine
_engine.Sequence.add = count(_engine.Sequence.add)
model.load_state(state)
print(model.n_tokens, sum(read), state.llama_state_size, model(sys.argv[5], max_tokens=8, temperature=0)["choices"][0]["text"])
"""


def run_python(env, program, *arguments):
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_state_in_another_process(own, python_env, tinypy, tmp_path):
    """Bytes of the caches: nothing is evaluated again, unless the other model computes something else (its keys are of 8 bits)."""
    prompt = "def add(a, b):\n    return"
    with own.Llama(str(tinypy), n_ctx=64, verbose=False) as model:
        text = model(prompt, max_tokens=8, temperature=0)["choices"][0]["text"]
        model.reset()
        model.eval(model.tokenize(prompt.encode()))
        state, n = model.save_state(), model.n_tokens
        assert state.llama_state_size == len(state.llama_state) > n * 100
        (tmp_path / "state").write_bytes(pickle.dumps(state))

    def elsewhere(type_k):
        return run_python(python_env, ELSEWHERE, tinypy, tmp_path / "state", 64, type_k, prompt).split(" ", 3)

    assert elsewhere(0) == [str(n), "0", str(state.llama_state_size), text + "\n"]
    assert elsewhere(8)[:2] == [str(n), str(n)]


PRETRAINED = """
import sys, weft
with weft.Llama.from_pretrained("user/repo", sys.argv[1], n_ctx=64, verbose=False) as model:
    print(model("def f(x):", max_tokens=4, temperature=0)["choices"][0]["text"])
"""


def test_from_pretrained(python_env, llm, tinypy, tmp_path):
    """By the package huggingface_hub, from a registry on this machine; the second time from its cache."""
    pytest.importorskip("huggingface_hub", reason="no huggingface_hub in this Python (it comes with transformers)")
    from registry import Registry
    registry = Registry({"tiny-Q8_0.gguf": Path(tinypy).read_bytes(), "tiny-F16.gguf": b"not this one", "README.md": b"x"})
    env = {**python_env, "HF_ENDPOINT": registry.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    try:
        expected = llm("def f(x):", max_tokens=4, temperature=0)["choices"][0]["text"] + "\n"
        for asked in (2, 1):                                   # HEAD and GET, then HEAD alone
            registry.asked.clear()
            assert run_python(env, PRETRAINED, "*Q8_0.gguf") == expected
            assert [path for path, _ in registry.asked if "resolve" in path] == ["/user/repo/resolve/main/tiny-Q8_0.gguf"] * asked
        done = subprocess.run([sys.executable, "-c", PRETRAINED, "*.gguf"], env=env, capture_output=True, text=True)
        assert done.returncode and "user/repo: 2 files match *.gguf" in done.stderr
    finally:
        registry.close()


def test_tokens_are_removed(own, tinypy):
    with own.Llama(str(tinypy), n_ctx=64, verbose=False) as model:
        tokens = model.tokenize(b"def add(a, b):\n    return a")
        sequence = own._engine.Sequence(model._model)
        sequence.add(tokens)
        sequence.remove(tokens, 2, 3)
        other = own._engine.Sequence(model._model)
        other.add(tokens[:2] + tokens[5:])
        assert len(sequence) == len(tokens) - 3 and (sequence.add([5]).copy() == other.add([5])).all()
        with pytest.raises(ValueError, match="cannot be removed"):
            sequence.remove(tokens, 2, 1000)


INTEGRATIONS = json.loads((HERE / "llama_integrations.json").read_text())
PACKAGES = {"langchain": "langchain_community", "llama_index": "llama_index.llms.llama_cpp"}


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_integrations(python_env, tinypy, name):
    """The Python with these packages is WEFT_LLAMA_CLIENTS; without one this one is tried."""
    python, package = os.environ.get("WEFT_LLAMA_CLIENTS", sys.executable), next(PACKAGES[key] for key in PACKAGES if name.startswith(key))
    found = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('cffi', {package.split('.')[0]!r}, {package!r}))))"
    if subprocess.run([python, "-c", found], capture_output=True).returncode:
        pytest.skip(f"no {package} in {python}: set WEFT_LLAMA_CLIENTS to a Python that has it")
    done = subprocess.run([python, "-W", "ignore", HERE / "llama_integrations.py", "weft", name, tinypy], env=python_env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    alike(INTEGRATIONS[name], json.loads(done.stdout), name)


def test_the_wheel(repo, weft, weft_env, tinypy, tmp_path, sanitized):
    """scripts/package/wheel.py on this build: pip installs what it makes, and the package and its command run."""
    if sanitized:
        pytest.skip("a wheel holds no sanitizers")
    missing = [name for name in ("ldd", "readelf", "strip") if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {missing[0]}")
    pytest.importorskip("cffi", reason="no cffi in this Python (scripts/setup.sh test installs it from PyPI)")
    wheels = []
    for out in ("one", "two"):
        done = subprocess.run([sys.executable, repo / "scripts/package/wheel.py", repo, Path(weft).parent, tmp_path / out], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        wheels.append(Path(done.stdout.splitlines()[-1]))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as z:            # the command has the page in it, and so the licences of the page's libraries
        notices = [z.read(name) for name in z.namelist() if name.endswith(".dist-info/licenses/page-libraries.txt")]
    assert notices == [(repo / "packaging/copyright").read_bytes()]
    assert re.fullmatch(r"weft-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_\w+\.whl", wheels[0].name)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", tmp_path / "site", wheels[0]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    env = {**weft_env, "PYTHONPATH": str(tmp_path / "site")}
    program = "import sys, weft\nprint(weft.Llama(sys.argv[1], verbose=False)('def add(a, b):\\n', max_tokens=6, temperature=0)['choices'][0]['text'])"
    done = subprocess.run([sys.executable, "-c", program, tinypy], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("\nThis module"), done.stderr
    done = subprocess.run([tmp_path / "site/bin/weft", "--version"], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("weft "), done.stderr
    libraries = {path.name for path in (tmp_path / "site/weft/lib").iterdir()}      # what is linked, and what the server opens with what that needs
    assert {"libsqlite3.so.0", "libmicrohttpd.so.12"} <= libraries and any(name.startswith("libgnutls.so.") for name in libraries)
    # The command imports nothing that takes long, and names the LLVM of the extra `llvm`.
    llvm = tmp_path / "site/llvm_nanobind.libs/libLLVM-0123.so.21.1"
    llvm.parent.mkdir()
    llvm.touch()
    program = "import sys, weft._command\nassert not {'numpy', 'cffi'} & set(sys.modules)\nsys.argv[1:] = ['env', '--json']\nweft._command.main()"
    for given, expected in ({}, str(llvm)), ({"WEFT_LLVM": "/mine.so"}, "/mine.so"):
        done = subprocess.run([sys.executable, "-c", program], env={**env, **given}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["variables"]["WEFT_LLVM"]["value"] == expected


def test_names_of_the_package(own):
    """Each module is imported when one of its names is used."""
    import weft
    assert set(weft.__all__) <= set(dir(weft)) and all(getattr(weft, name) for name in weft.__all__)
    assert weft.__version__ == weft.version()
    with pytest.raises(AttributeError, match="no attribute 'Lama'"):
        weft.Lama


# ---- one model, several users

def text_of(answer):
    return answer["choices"][0]["text"]


def test_seeds(own, tinypy):
    """As in llama-cpp-python: each completion has a seed of its own; those behind a seed that was given follow from it."""
    with own.Llama(str(tinypy), n_ctx=64, verbose=False, seed=11) as model:
        def drawn(**more):
            return text_of(model("def ", max_tokens=8, temperature=1.5, **more))

        first = [drawn() for _ in range(3)]
        assert len(set(first)) == 3
        model.set_seed(11)
        assert [drawn() for _ in range(3)] == first
        assert drawn(seed=5) == drawn(seed=5) != drawn()
        assert len({drawn(seed=-1) for _ in range(3)}) > 1
        messages = [{"role": "user", "content": "x"}]
        chats = [model.create_chat_completion(messages, max_tokens=8, temperature=1.5)["choices"][0]["message"]["content"] for _ in range(3)]
        assert len(set(chats)) == 3


PROMPTS = ["def add(a, b):\n", "import os\n\nclass Foo:\n", "# A test of\n"]


def test_streams_by_turns(llm):
    """Each goes on behind its own text, whatever another one has made of the sequence meanwhile."""
    expected = [llm(prompt, max_tokens=12, temperature=0, logprobs=1) for prompt in PROMPTS]
    streams = [llm(prompt, max_tokens=12, temperature=0, logprobs=1, stream=True) for prompt in PROMPTS]
    parts = [[] for _ in PROMPTS]
    for row in zip(*streams):
        for part, found in zip(row, parts):
            found.append(part["choices"][0])
    for whole, found in zip(expected, parts):
        assert "".join(part["text"] for part in found) == text_of(whole)
        drawn = [x for part in found if part["logprobs"] for x in part["logprobs"]["token_logprobs"]]
        assert drawn == pytest.approx(whole["choices"][0]["logprobs"]["token_logprobs"], abs=1e-4)


def test_prompts_of_several_threads(llm):
    expected = [text_of(llm(prompt, max_tokens=12, temperature=0)) for prompt in PROMPTS]
    found = [[] for _ in PROMPTS]

    def work(i, stream):
        for _ in range(2):
            answer = llm(PROMPTS[i], max_tokens=12, temperature=0, stream=stream)
            found[i].append("".join(map(text_of, answer)) if stream else text_of(answer))

    threads = [threading.Thread(target=work, args=(i, stream)) for i in range(len(PROMPTS)) for stream in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[text] * 4 for text in expected]


def test_tokens_taken_back(llm):
    """Programs set n_tokens: what is evaluated next stands behind so many."""
    llm.reset()
    llm.eval(llm.tokenize(b"def add(a, b):"))
    expected = llm.logits.copy()
    llm.eval(llm.tokenize(b"import this", add_bos=False))
    ids = llm.tokenize(b"def add(a, b):")
    llm.n_tokens = len(ids) - 2
    llm.eval(ids[-2:])
    assert (llm.logits == expected).all() and len(llm._sequence) == len(ids)


# ---- what is refused

def test_parameters_that_cannot_be_kept(own, llm, tinypy, monkeypatch):
    for name in ("tokenizer", "draft_model"):
        with pytest.raises(ValueError, match=name):
            own.Llama(str(tinypy), **{name: object()})
    with pytest.raises(ValueError, match=f"{llm.n_vocab()} tokens"):
        llm("x", logits_processor=lambda ids, scores: scores[:-1])
    with pytest.raises(ValueError, match="chat template"):
        own.Llama(str(tinypy), kv_overrides={"tokenizer.chat_template": "{% if %}"}).create_chat_completion([{"role": "user", "content": "x"}])
    import weft.llama
    for variable, device, expected in (("CL", None, 3), ("", "CL", 3), ("", None, 0), ("CPU", None, 0), ("CL", "CPU", 0)):
        monkeypatch.setenv("DEV", variable)
        assert weft.llama._gpu_layers(device, 3) == expected and weft.llama._gpu_layers(device, -1) == 0


def test_a_library_of_another_version(own):
    """Structs may have grown: none of its functions is called."""
    from types import SimpleNamespace
    from weft import _library
    text = _library.ffi.new("char[]", b"0.2.0")
    other = SimpleNamespace(weft_version=lambda: text, WEFT_VERSION_MAJOR=0, WEFT_VERSION_MINOR=1)
    with pytest.raises(ImportError, match=r"libweft.* 0\.2\.0.* 0\.1\.x"):
        _library._checked(other, "libweft.so.0.1")
    assert own.version().startswith(f"{_library.lib.WEFT_VERSION_MAJOR}.{_library.lib.WEFT_VERSION_MINOR}.")


# ---- chats

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}}} for name in ("walk", "swim")]


@pytest.mark.parametrize("stream", [False, True])
def test_one_of_several_tools_is_required(llm, stream):
    answer = llm.create_chat_completion([{"role": "user", "content": "x"}], tools=TOOLS, tool_choice="required", max_tokens=60, stream=stream)
    if stream:
        parts = [part["choices"][0] for part in answer]
        call, reason = next(part["delta"]["tool_calls"][0] for part in parts if "tool_calls" in part["delta"]), parts[-1]["finish_reason"]
    else:
        call, reason = answer["choices"][0]["message"]["tool_calls"][0], answer["choices"][0]["finish_reason"]
    assert reason == "tool_calls" and call["id"] and call["function"]["name"] in ("walk", "swim")
    assert json.loads(call["function"]["arguments"])["n"] in (1, 2)


def test_a_grammar_ends_the_text(own, llm):
    ends = []
    answer = llm("def", grammar=own.LlamaGrammar.from_regex("(yes|no)"), max_tokens=9,
                 stopping_criteria=lambda ids, logits: ends.append(len(ids)))
    assert text_of(answer) in ("yes", "no") and answer["choices"][0]["finish_reason"] == "stop"
    assert len(ends) == answer["usage"]["completion_tokens"]  # and no token behind it is drawn


def forcing(ids):
    """Of a chat's tokens: these, and then the end."""
    rest = list(ids)

    def process(_, scores):
        scores[:] = -1e9
        scores[rest.pop(0) if rest else 0] = 0
        return scores

    return process


def test_probabilities_of_tokens_that_show_nothing(llm):
    """A character of several tokens: its part of the stream has the probabilities of them all."""
    ids = llm.tokenize("é€x".encode(), add_bos=False)
    parts = [part["choices"][0] for part in llm.create_chat_completion(
        [{"role": "user", "content": "x"}], logprobs=True, stream=True, logits_processor=forcing(ids))]
    assert "".join(part["delta"].get("content", "") for part in parts) == "é€x"
    assert sum(len(part["logprobs"]["content"]) for part in parts if part["logprobs"]) == len(ids) > 3


def test_control_tokens_reach_the_parser(own, tinypy, shared_dir, tmp_path):
    """Mistral's [TOOL_CALLS] is a control token: it begins a call, and is not seen in texts."""
    gguf = pytest.importorskip("gguf")
    template = shared_dir / "templates" / "mistralai-Mistral-Nemo-Instruct-2407.jinja"
    if not template.exists():
        pytest.skip(f"no {template}")
    path = shutil.copy(tinypy, tmp_path / "mistral.gguf")
    reader = gguf.GGUFReader(path, "r+")
    tokens, types = (reader.fields[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    mark = next(i for i, at in enumerate(tokens.data) if len(tokens.parts[at]) == len("[TOOL_CALLS]"))
    tokens.parts[tokens.data[mark]][:] = list(b"[TOOL_CALLS]")
    types.parts[types.data[mark]][:] = gguf.TokenType.CONTROL
    reader.data.flush()
    with own.Llama(str(path), n_ctx=512, verbose=False, kv_overrides={"tokenizer.chat_template": template.read_text()}) as model:
        def said(tools):
            call = model.tokenize(b'[{"name": "walk", "arguments": {"n": 2}}]', add_bos=False)
            answer = model.create_chat_completion([{"role": "user", "content": "x"}], tools=tools, logits_processor=forcing([mark, *call]))
            return answer["choices"][0]

        found = said(TOOLS)
        assert found["finish_reason"] == "tool_calls", found
        assert [found["message"]["tool_calls"][0]["function"][key] for key in ("name", "arguments")] == ["walk", '{"n": 2}']


def test_control_vectors(own, tinypy, tmp_path):
    import test_control
    test_control.write(tmp_path / "vector.gguf", test_control.directions(tinypy))
    path = str(tmp_path / "vector.gguf")
    plain, moved, none = (own._engine.Model(str(tinypy), context=64, control_vectors=vectors, control_from=at).embed([5, 6, 7], 1).tolist()
                          for vectors, at in (([], 0), ([(path, 0.5)], 0), ([(path, 0)], 2)))
    assert plain == none != moved


# ---- handles

def test_nothing_is_left_of_a_collected_model(own, tinypy):
    """What could not be freed while another thread had the model goes with the model."""
    from weft import _handles
    before = set(_handles._handles)
    model = own.Llama(str(tinypy), n_ctx=64, verbose=False)
    grammar = own.LlamaGrammar.from_string('root ::= "x"')._open(model._vocab)
    held, go = threading.Event(), threading.Event()

    def hold(lock):
        with lock:
            held.set()
            go.wait()

    thread = threading.Thread(target=hold, args=(model._lock,))
    thread.start()
    held.wait()
    del grammar  # has to wait
    assert len(set(_handles._handles) - before) >= 3
    go.set()
    thread.join()
    del model
    gc.collect()
    assert set(_handles._handles) <= before


def test_readers_of_a_model_that_another_thread_closes(python_env, tinypy):
    """Texts become tokens and grammars are read without the lock of evaluations: the vocabulary stays until they have ended."""
    program = """
import sys, threading, time, weft
LONG = "root ::= " + "|".join('"a%d"' % i for i in range(20000))
def read(llm, call):
    try:
        while True: call(llm)
    except (RuntimeError, ValueError): pass
for i in range(3):
    llm = weft.Llama(sys.argv[1], n_ctx=128, verbose=False)
    calls = [lambda llm: llm.tokenize(b"a b c " * 300), lambda llm: llm.detokenize([60, 61, 62] * 50), lambda llm: weft.LlamaGrammar.from_string(LONG)._open(llm._vocab)]
    threads = [threading.Thread(target=read, args=(llm, call)) for call in calls + calls[:2]]
    for thread in threads: thread.start()
    time.sleep(0.2)
    llm.close()
    for thread in threads: thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program, tinypy], env=python_env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


IN_A_CHILD = """
import os, pickle, signal, sys, threading, time, weft
llm = weft.Llama(sys.argv[1], n_ctx=128, n_threads=2, seed=1, verbose=False)
before = llm("def", max_tokens=3, temperature=0)["choices"][0]["text"]
state = llm.save_state()
thread = threading.Thread(target=lambda: llm("def", max_tokens=100)) if sys.argv[2] == "busy" else None
if thread:
    thread.start()
    time.sleep(0.03)
if not os.fork():
    signal.alarm(60)
    assert llm.tokenize(b"abc")
    for call in (lambda: llm("def", max_tokens=3), llm.save_state, lambda: llm.load_state(state), lambda: state.llama_state, lambda: next(llm.generate([4, 5]))):
        try:
            call()
        except weft.WeftError as e:
            assert "forked" in str(e), e
        else:
            raise AssertionError("no error")
    llm.close()
    del state
    other = weft.Llama(sys.argv[1], n_ctx=128, n_threads=2, verbose=False)
    assert other("def", max_tokens=3, temperature=0)["choices"][0]["text"] == before
    sys.exit(0)
assert os.wait()[1] == 0
if thread:
    thread.join()
assert llm("def", max_tokens=3, temperature=0)["choices"][0]["text"] == before
"""


@pytest.mark.parametrize("parent", ["idle", "busy"])
def test_a_process_that_was_forked(python_env, tinypy, parent):
    """Its calls are errors, since it has no threads of the model's, and it may open the model again; the parent goes on."""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", IN_A_CHILD, tinypy, parent], env=python_env, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("options", [{"kv_overrides": {"general.name": "a\0b"}}, {"kv_overrides": {"general.name\0": 1}}, {"device": "CPU\0x"}, {"lora_path": "x\0y"}])
def test_a_text_with_a_nul(own, tinypy, options):
    """For C it would end there."""
    with pytest.raises(ValueError, match="NUL"):
        own.Llama(str(tinypy), n_ctx=64, verbose=False, **options)


def test_tokens_are_whole_numbers(own, tinypy):
    llm = own.Llama(str(tinypy), n_ctx=64, verbose=False)
    for ids in ([1.5], ["1"], [True, None]):
        with pytest.raises(TypeError):
            llm.eval(ids)
    llm.eval([1, 2])
    llm.n_tokens = -1
    with pytest.raises(ValueError, match="n_tokens is -1"):
        llm.eval([3])


def test_ids_are_only_read(own, tinypy):
    """Changed ids would make the model take what it has evaluated for another prompt's."""
    with own.Llama(str(tinypy), n_ctx=128, verbose=False) as llm:
        def write(ids, scores):
            ids[0] += 1
            return scores
        for how in {"logits_processor": write}, {"stopping_criteria": lambda ids, logits: write(ids, False)}:
            with pytest.raises(ValueError, match="read-only"):
                llm("def ", max_tokens=3, **how)
        with pytest.raises(ValueError, match="read-only"):
            llm.input_ids[0] = 5
        assert llm.input_ids.shape == (128,)


def test_seeds_and_biases_are_of_whole_numbers(own, tinypy):
    np = pytest.importorskip("numpy")
    with own.Llama(str(tinypy), n_ctx=128, verbose=False) as llm:
        for wrong in 1.5, "x", [], None:
            with pytest.raises(TypeError):
                llm.set_seed(wrong)
        llm.set_seed(np.int64(7))
        drawn = llm("def ", max_tokens=9, temperature=1.5)["choices"][0]["text"]
        llm.set_seed(7)
        assert llm("def ", max_tokens=9, temperature=1.5)["choices"][0]["text"] == drawn
        with pytest.raises(TypeError):
            llm("def ", max_tokens=2, logit_bias={1.5: 3})
        best = llm.tokenize(b"return", add_bos=False)[0]
        texts = [llm("def ", max_tokens=2, temperature=0, logit_bias={key: 100.0})["choices"][0]["text"] for key in (best, str(best), np.int64(best))]
        assert len(set(texts)) == 1 and texts[0] == "returnreturn", texts


@pytest.mark.parametrize("program", [
    "llm = weft.Llama(sys.argv[1], verbose=False); llm('x', max_tokens=2)",
    "llm = weft.Llama(sys.argv[1], verbose=False); g = weft.LlamaGrammar.from_string('root ::= \"x\"')._open(llm._vocab); s = llm.save_state(); loop = [llm]; loop.append(loop)",
    "llm = weft.Llama(sys.argv[1], verbose=False)\ndef work():\n    while True: llm('x', max_tokens=50)\n"
    "threading.Thread(target=work, daemon=True).start(); time.sleep(0.3)",
    "llm = weft.Llama(sys.argv[1], verbose=False)\nif not os.fork(): sys.exit()\nassert os.wait()[1] == 0",
])
def test_the_interpreter_ends(python_env, tinypy, program):
    """A model of a global name dies with the interpreter, when the modules may be gone."""
    pytest.importorskip("cffi", reason="no cffi in this Python (scripts/setup.sh test installs it from PyPI)")
    done = subprocess.run([sys.executable, "-c", f"import os, sys, threading, time, weft\n{program}", tinypy], env=python_env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_adapter_with_activation_tokens(own, run_weft, make_model, tmp_path):
    """aLoRA: from the last occurrence of its tokens in a prompt on, as weft run has it; prompts with and without them share what is before, and what was generated calls nothing."""
    test_lora = pytest.importorskip("test_lora")
    model, lora = str(tmp_path / "model.gguf"), str(tmp_path / "lora.gguf")
    make_model.write("llama-yarn", model)
    test_lora.write(lora, "llama", test_lora.of_model(model, test_lora.FAMILY["llama-yarn"], 6)[0], invocation=test_lora.CALL)
    before, after = [5, 17, 200, 3, 99, 42], [250, 8, 64]
    prompts = [before + after, before + test_lora.CALL + after, before + after, before + test_lora.CALL, before + test_lora.CALL + after + test_lora.CALL + after]

    def said(prompt, *more):
        done = run_weft(["run", model, "--ids", ",".join(map(str, prompt)), "-n", "6", "--ignore-eos", "--temp", "0", "--json", *more])
        assert done.returncode == 0, done.err
        return [json.loads(line)["id"] for line in done.stdout.splitlines()]

    with own.Llama(model, lora_path=lora, n_ctx=128, verbose=False) as llm:
        for prompt in prompts:
            got = [token for token, _ in zip(llm.generate(prompt, temp=0, repeat_penalty=1.0), range(6))]
            assert got == said(prompt, "--lora", lora), prompt
        past = list(llm.eval_tokens)
        got = [token for token, _ in zip(llm.generate([*test_lora.CALL, 9], temp=0, repeat_penalty=1.0, reset=False), range(6))]
        assert len(past) > len(prompts[-1]) and got == said([*past, *test_lora.CALL, 9], "--lora", lora)
        for prompt in prompts[1], prompts[0], prompts[3]:                   # what an earlier prompt called is forgotten
            llm.reset()
            llm.eval(prompt)
            assert [llm.sample(temp=0, repeat_penalty=1.0)] == said(prompt, "--lora", lora)[:1], prompt
        asked = {"max_tokens": 2, "temperature": 0, "echo": True, "logprobs": 1}
        listed = llm.create_completion(prompts[1], **asked)["choices"][0]["logprobs"]["token_logprobs"]
    with own.Llama(model, lora_path=lora, n_ctx=128, verbose=False, logits_all=True) as llm:
        assert llm.create_completion(prompts[1], **asked)["choices"][0]["logprobs"]["token_logprobs"] == listed
    with own.Llama(model, n_ctx=128, verbose=False) as llm:
        assert llm.create_completion(prompts[1], **asked)["choices"][0]["logprobs"]["token_logprobs"] != listed
    assert said(prompts[1], "--lora", lora) != said(prompts[1]), "the adapter changes nothing"
