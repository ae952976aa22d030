"""What a file recommends for sampling (general.sampling.*) is the default of run, chat and serve; options and requests say otherwise."""
import gguf
import pytest

from conftest import copy_with_keys
from serving import Server

PROMPT = ["-p", "def ", "-n", "16"]
KEYS = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "xtc_probability": 0.25, "xtc_threshold": 0.2, "penalty_last_n": 33, "penalty_repeat": 1.05,
        "mirostat": 0, "mirostat_tau": 4.0, "mirostat_eta": 0.25}
FIELDS = {"temp": "temperature", "penalty_last_n": "repeat_last_n", "penalty_repeat": "repeat_penalty"}


@pytest.fixture
def server(weft, weft_env):
    return lambda model, *args: Server(weft, weft_env, model, *args)


@pytest.fixture(scope="module")
def with_keys(tinypy, tmp_path_factory):
    """A copy of the small model whose file has these keys, written by the gguf package."""
    reader = gguf.GGUFReader(tinypy)

    def write(keys):
        path = tmp_path_factory.mktemp("keys") / "m.gguf"
        kinds = {int: gguf.GGUFValueType.INT32, float: gguf.GGUFValueType.FLOAT32, str: gguf.GGUFValueType.STRING}
        copy_with_keys(reader, path, {f"general.sampling.{name}": (value, kinds[type(value)], None) for name, value in keys.items()})
        return path
    return write


def text(run_weft, path, *more, command="run", **how):
    done = run_weft([command, "-m", path, *PROMPT, "--seed", "5", *more], **how)
    assert done.returncode == 0, done.err
    return done.stdout


def test_run(run_weft, tinypy, with_keys):
    greedy, drawn = text(run_weft, tinypy, "--temp", "0"), text(run_weft, tinypy)
    assert greedy != drawn
    assert text(run_weft, with_keys({"temp": 0.0})) == greedy
    path = with_keys(KEYS)
    said = [word for name, value in KEYS.items() for word in (OPTIONS[name], str(value))]
    assert text(run_weft, path) == text(run_weft, tinypy, *said)
    assert text(run_weft, path, "--temp", "0", "--repeat-penalty", "1", "--xtc-probability", "0") == greedy       # options say otherwise


OPTIONS = {"temp": "--temp", "top_k": "--top-k", "top_p": "--top-p", "min_p": "--min-p", "xtc_probability": "--xtc-probability", "xtc_threshold": "--xtc-threshold",
           "penalty_last_n": "--repeat-last-n", "penalty_repeat": "--repeat-penalty", "mirostat": "--mirostat", "mirostat_tau": "--mirostat-ent",
           "mirostat_eta": "--mirostat-lr"}


def test_chat(run_weft, tinypy, with_keys):
    def said(path, *more):
        done = run_weft(["chat", "-m", path, "-n", "12", "--seed", "5", *more], input=b"def f(x):\n/quit\n")
        assert done.returncode == 0, done.err
        return done.stdout
    assert said(with_keys({"temp": 0.0})) == said(tinypy, "--temp", "0") != said(tinypy)


def test_serve(server, with_keys, tinypy):
    def shown(s):
        return s.ask("/props")[1]["default_generation_settings"]["params"]
    with server(with_keys(KEYS)) as s:
        expected = {FIELDS.get(name, name): pytest.approx(value) if isinstance(value, float) else value for name, value in KEYS.items()}
        _, answer = s.ask("/completion", {"prompt": "def ", "n_predict": 2})
        for got in (shown(s), answer["generation_settings"]):
            assert {name: got[name] for name in expected} == expected and got["typical_p"] == 1
        _, answer = s.ask("/completion", {"prompt": "def ", "n_predict": 2, "temperature": 1.5})
        assert answer["generation_settings"]["temperature"] == 1.5 and answer["generation_settings"]["top_k"] == 20
    with server(with_keys(KEYS), "--temp", "0.8", "--top-k", "40") as s:              # llama.cpp's defaults, but said
        assert shown(s)["temperature"] == pytest.approx(0.8) and shown(s)["top_k"] == 40 and shown(s)["min_p"] == 0
    with server(tinypy) as s:
        assert shown(s)["temperature"] == pytest.approx(0.8) and shown(s)["top_k"] == 40 and shown(s)["min_p"] == pytest.approx(0.05)


@pytest.mark.parametrize("name, value, why", [
    ("temp", -1.0, "the temperature is -1; it must lie between 0"), ("temp", float("nan"), "the temperature is nan"),
    ("top_p", 1.5, "top-p is 1.5"), ("top_k", "many", "found STRING"), ("mirostat", 7, "mirostat is 7"), ("penalty_last_n", -5, "repeat-last-n is -5"),
    ("penalty_repeat", 0.0, "the repeat penalty is 0")])
def test_a_value_of_no_use_is_left_out(run_weft, tinypy, with_keys, name, value, why):
    path = with_keys({name: value, "xtc_threshold": 0.2})
    done = run_weft(["run", "-m", path, *PROMPT, "--seed", "5"])
    assert done.returncode == 0 and done.stdout == text(run_weft, tinypy)
    assert f"general.sampling.{name}" in done.err and why in done.err and str(path) in done.err
