"""Fixtures of the Python tests.

The tests see the program as a user does: they run the command (WEFT_BIN, default build/weft) and look at its exit status,
stdout and stderr.  The environment is made anew for each session: no variable of the caller's reaches the program, and
compiled kernels go to a cache of the session's own.  Models, vocabularies and tools that are not part of the repository lie
in WEFT_SHARED (default: shared/ beside the tree); tests that need them are skipped where there are none.

    weft                      path of the command
    run_weft(args, ...)       runs it: bytes in .stdout and .stderr, text in .out and .err, exit status in .returncode
    built_tool(name, variable)  path of a program of tests/tools
    inspect_file(path)        what `weft inspect --json` says of whether a file can run, from one process for all files
    shared_dir                pathlib.Path of the shared files, or a skip
    tinypy                    path of the model that the repository itself keeps
    cache_dir                 an empty folder for WEFT_CACHE
    make_model                tests/tools/make_model.py as a module: small files of every family
    make_gguf(preset, ...)    path of a file with synthetic weights, made once per session, or a skip
"""
import contextlib
import importlib.abc
import importlib.util
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving import sanitizer_report

REPO = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("WEFT_SHARED") or REPO.parent / "shared").resolve()
SANITIZED = bool(os.environ.get("WEFT_SANITIZED"))  # weft was built with sanitizers: everything is slower

# What the program inherits from the caller.  Sanitizer options must reach it; its own variables must not.
KEPT = {"PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
        "SPEC", "OCL_ICD_VENDORS", "POCL_EXTRA_BUILD_FLAGS", "WEFT_TEST_KERNELS", "POCL_CACHE_DIR", "WEFT_LLVM", "QEMU_CPU"}
os.environ.setdefault("SPEC", "1")                 # graphs and kernels are verified, also where a test is run alone

# Packages of requirements.txt that Debian's Python lacks: where PyPI is out of reach, tests that import one are skipped.
OPTIONAL = ("gguf", "jinja2")


class Missing(importlib.abc.MetaPathFinder):
    """Asked last, for packages that nothing else finds."""

    def find_spec(self, name, path=None, target=None):
        if name in OPTIONAL:
            pytest.skip(f"no {name} in this Python (scripts/setup.sh test installs it from PyPI)", allow_module_level=True)


sys.meta_path.append(Missing())


def skip_terminals():
    """Where no terminal can be made (a chroot or a container without /dev/pts), tests that open one are skipped."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as e:
        why = f"no terminal can be made here, /dev/pts is missing: {e}"
        os.openpty = pty.openpty = pty.fork = lambda *_: pytest.skip(why)


skip_terminals()


class Finished(subprocess.CompletedProcess):
    """A run that ended: .stdout and .stderr are bytes, .out and .err the same as text."""

    @property
    def out(self):
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self):
        return self.stderr.decode("utf-8", "replace")


def pytest_terminal_summary(terminalreporter):
    """What was skipped and why, for scripts/test.sh to print before CTest's summary."""
    path = os.environ.get("WEFT_SKIPS")
    if path:
        skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
        lines = sorted({f"skipped: {Path(file).name}: {reason.removeprefix('Skipped: ')}\n" for file, _, reason in skipped})
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(lines))


@pytest.fixture(scope="session")
def repo():
    return REPO


@pytest.fixture(scope="session")
def version(repo):
    """The version, as weft.h has it: it is written down there alone."""
    header = (repo / "include/weft/base.h").read_text()
    return ".".join(re.search(rf"#define WEFT_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def copy_with_keys(reader, path, keys):
    """Writes the Llama that a GGUFReader has open to path, with further keys: name -> (value, type, type of an array's elements or None)."""
    import gguf
    w = gguf.GGUFWriter(path, "llama")
    for f in reader.fields.values():
        if not f.name.startswith("GGUF.") and f.name != "general.architecture":
            w.add_key_value(f.name, f.contents(), f.types[0], f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None)
    for name, (value, kind, elem) in keys.items():
        w.add_key_value(name, value, kind, elem)
    for t in reader.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def load_tool(name):
    """A module of tests/tools, which may import its neighbours."""
    folder = REPO / "tests" / "tools"
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    spec.loader.exec_module(module)
    sys.path.remove(str(folder))
    return module


@pytest.fixture(scope="session")
def make_model():
    return load_tool("make_model")


@pytest.fixture(scope="session")
def make_encoder():
    return load_tool("make_encoder")


@pytest.fixture(scope="session")
def make_diffusion():
    return load_tool("make_diffusion")


@pytest.fixture(scope="session")
def make_draft():
    return load_tool("make_draft")


@pytest.fixture(scope="session")
def make_source():
    return load_tool("make_source")


@pytest.fixture(scope="session")
def references():
    return load_tool("references")


@pytest.fixture(scope="session")
def sanitized():
    return SANITIZED


@pytest.fixture(scope="session")
def weft():
    path = Path(os.environ.get("WEFT_BIN") or REPO / "build" / "weft").resolve()
    if not path.exists():
        pytest.fail(f"no program at {path}: run scripts/build.sh, or set WEFT_BIN")
    return str(path)


@pytest.fixture(scope="session")
def build(weft):
    """The build folder; there is none where WEFT_BIN names a program that lies elsewhere."""
    folder = Path(weft).parent
    if not (folder / "cmake_install.cmake").exists():
        pytest.skip(f"{folder} is not a build folder")
    return folder


@pytest.fixture(scope="session")
def installed(build, tmp_path_factory):
    """Weft installed into a folder of its own."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix


def program(name):
    """Where a program of the system is, or a skip."""
    path = shutil.which(name)
    if not path:
        pytest.skip(f"the program {name} is not installed")
    return path


@pytest.fixture(scope="session")
def built_tool(weft):
    """path of a program of tests/tools that is built with the tests; variable: of the environment, names another one"""
    def find(name, variable):
        path = Path(os.environ.get(variable) or Path(weft).parent / "tests" / name)
        if not path.exists():
            pytest.fail(f"no {path}: run scripts/build.sh --tests, or set {variable}")
        return str(path)
    return find


def answer_of(tool, path):
    """What inspect_tool, which goes on, says of a file; it ends at a file that it cannot open."""
    try:
        tool.stdin.write(f"{path}\n")
        tool.stdin.flush()
        line = tool.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        pytest.fail(f"{path}: inspect_tool ended with {tool.wait()}: {tool.stderr.read()}")
    about = json.loads(line)
    assert about["can_run"] == (about["why_not"] is None)
    return about


@pytest.fixture(scope="module")
def inspect_file(built_tool, weft_env):
    """inspect_file(path): the members can_run, why_not and key_uses of what `weft inspect --json` says. The same process opens all files."""
    tool = subprocess.Popen([built_tool("inspect_tool", "WEFT_INSPECT_TOOL")], env=weft_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    yield lambda path: answer_of(tool, path)
    said = tool.communicate()[1]
    assert tool.returncode == 0 and not sanitizer_report(said), said


def keep_objects(env, cache):
    """The store of tests/kept_llvm has a second name in the cache, where a confined weft may write. Without it the store is only read there."""
    store = Path(env.get("WEFT_TEST_KERNELS", "")) / "objects"
    if "WEFT_LLVM" in env and store.is_file():
        for folder in cache.parents[1], cache.parent, cache:
            folder.mkdir(mode=0o700)
        with contextlib.suppress(OSError):   # another file system
            os.link(store, cache / "objects")


@pytest.fixture(scope="session")
def weft_env(tmp_path_factory):
    """The environment that run_weft starts from: a home and a kernel cache of this session's own."""
    home = tmp_path_factory.mktemp("home")
    env = {name: value for name, value in os.environ.items() if name in KEPT}
    env.update(HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"))
    env.setdefault("POCL_CACHE_DIR", str(home / "pocl"))    # the suite's: what PoCL compiles is the same for every file
    env.setdefault("LC_ALL", "C.UTF-8")
    keep_objects(env, home / ".cache/weft/kernels")
    return env


@pytest.fixture(scope="module", autouse=True)
def threads(request):
    """A file that says THREADS = 1 is about many models, not about threads: beside other tests these would wait for one another."""
    n = getattr(request.module, "THREADS", None)
    if n is None:
        yield
        return
    env = request.getfixturevalue("weft_env")
    env["LLAMA_ARG_THREADS"] = str(n)
    yield
    del env["LLAMA_ARG_THREADS"]


@pytest.fixture(scope="session")
def run_weft(weft, weft_env):
    """run_weft(args, env=None, timeout=120, input=None, before=()): runs the command, by the words of before.  env adds variables
    (None removes one); input is bytes or text for stdin, which is empty otherwise.  Under the sanitizers the time limit is five times as long, and a
    report of theirs fails the test whatever the exit status."""

    def run(args, env=None, timeout=120, input=None, before=(), **more):
        full = dict(weft_env)
        for name, value in (env or {}).items():
            if value is None:
                full.pop(name, None)
            else:
                full[name] = str(value)
        if isinstance(input, str):
            input = input.encode()
        if input is None:
            more.setdefault("stdin", subprocess.DEVNULL)
        else:
            more["input"] = input
        done = subprocess.run([*before, weft, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=full,
                              timeout=timeout * (5 if SANITIZED else 1), **more)
        if sanitizer_report(said := done.stderr.decode(errors="replace")):
            pytest.fail(f"sanitizer report from weft {' '.join(map(str, args))}:\n{said}")
        return Finished(done.args, done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture()
def saves_beside(weft_env, tmp_path, built_tool):
    """saves_beside(model, tokens, loads, env): one thread writes a sequence while another loads and evaluates one (tests/tools/beside_tool.c)."""
    def run(model, tokens, loads, env):
        (keep := tmp_path / "kept").mkdir()
        tool = built_tool("beside_tool", "WEFT_BESIDE_TOOL")
        done = subprocess.run([tool, model, str(tokens), str(loads), keep], env={**weft_env, **env}, capture_output=True, text=True, timeout=900)
        assert done.returncode in (0, 1), done.stderr
        wrong, n_loads, others, saves = map(int, re.findall(r"\d+", done.stdout))
        assert (wrong, n_loads, others) == (0, loads, 0) and saves > 1, done.stdout
    return run


@pytest.fixture(scope="session")
def shared_dir():
    if not SHARED.is_dir():
        pytest.skip(f"no shared files at {SHARED} (WEFT_SHARED)")
    return SHARED


@pytest.fixture(scope="session")
def vision(shared_dir):
    """Pairs of small models and encoders, with records of transformers and llama.cpp."""
    folder = shared_dir / "vision"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: pairs of models and encoders with records")
    return folder


@pytest.fixture(scope="session")
def tinypy():
    return str(REPO / "models" / "tinypy.gguf")


@pytest.fixture
def cache_dir(tmp_path):
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="session")
def make_gguf(shared_dir, tmp_path_factory):
    """make_gguf(preset, *args): a GGUF file with synthetic weights, e.g. make_gguf("tiny-llama:q6_k", "--seed", "3")."""
    tool = shared_dir / "tools" / "make_gguf.py"
    folder = tmp_path_factory.mktemp("gguf")
    made = {}

    def make(preset, *args):
        if not tool.exists():
            pytest.skip(f"no {tool}")
        key = (preset, *map(str, args))
        if key not in made:
            path = folder / f"{len(made)}-{preset.replace(':', '-').replace('/', '-')}.gguf"
            command = [sys.executable, str(tool), "--preset", preset, "--out", str(path), *map(str, args)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode:
                pytest.fail(f"{' '.join(command)}:\n{done.stdout.decode(errors='replace')}")
            made[key] = str(path)
        return made[key]

    return make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A key and a certificate of our own making for localhost."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl program here, which makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
    return key, cert


def same_text_with_drafts(run_weft, args, text):
    """args end with the file for --stats. The text is `text`, as far as drafts pay and if all are evaluated; of these some are accepted."""
    for always in False, True:
        done = run_weft([*args[:-2], *["--draft-always"] * always, *args[-2:]])
        assert done.returncode == 0 and done.stdout == text
        s = json.loads(args[-1].read_text())
        assert 0 <= s["draft_model_accepted"] <= s["draft_model_tokens"] <= s["draft_tokens"]
    assert s["draft_model_accepted"] > 0
