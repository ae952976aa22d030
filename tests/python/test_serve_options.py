"""Options of the server that say what a request gets that does not say it, and who may ask.

Texts are what llama-server (llama.cpp 0c1e570, on the CPU) answers with the same model, options and requests.
"""
import contextlib
import http.client
import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import projector
import pytest

from serving import TEMPLATE, Server

THREADS = 1

PROMPT = "def add(a, b):\n    return"
GREEDY = " a\n\ndef a(a, b):\n    return"


@pytest.fixture
def serve(weft, weft_env, tinypy):
    def start(*args, env=None, model=tinypy):
        return Server(weft, {**weft_env, **(env or {})}, model, *args)
    return start


def complete(s, **more):
    status, answer = s.ask("/completion", {"prompt": PROMPT, **more})
    assert status == 200, answer
    return answer["content"], answer["stop_type"]


def test_sampling_options_are_defaults(serve):
    said = ("--temp 0.3 --top-k 7 --top-p 0.8 --min-p 0.02 --repeat-penalty 1.1 --repeat-last-n 33 --presence-penalty 0.25 --frequency-penalty 0.5 "
            "--dry-multiplier 0.8 --xtc-probability 0.1 --mirostat 0 --seed 42 -l 5-1 --samplers top_k;temperature -n 6 -r STOP").split()
    expected = {"seed": 42, "temperature": 0.3, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 7, "top_p": 0.8, "min_p": 0.02, "top_n_sigma": -1,
                "xtc_probability": 0.1, "xtc_threshold": 0.1, "typical_p": 1, "repeat_last_n": 33, "repeat_penalty": 1.1, "presence_penalty": 0.25,
                "frequency_penalty": 0.5, "dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
                "ignore_eos": False, "samplers": ["top_k", "temperature"], "stop": ["STOP"]}
    with serve(*said) as s:
        shown = s.ask("/props")[1]["default_generation_settings"]["params"]
        _, answer = s.ask("/completion", {"prompt": PROMPT})
        used = answer["generation_settings"]
        for name, value in expected.items():
            for got in (shown, used):
                assert got[name] == (pytest.approx(value) if isinstance(value, float) else value), name
        assert answer["tokens_predicted"] == 6
        _, own = s.ask("/completion", {"prompt": PROMPT, "top_k": 3, "seed": 1, "stop": [], "n_predict": 2})
        assert own["generation_settings"]["top_k"] == 3 and own["generation_settings"]["seed"] == 1 and own["generation_settings"]["stop"] == []
        assert own["generation_settings"]["temperature"] == pytest.approx(0.3) and own["tokens_predicted"] == 2
        texts = {s.ask("/completion", {"prompt": PROMPT})[1]["content"] for _ in range(3)}
        assert len(texts) == 1                                  # the server's seed, each time


def test_every_sampling_option_reaches_requests(serve):
    """Each by another value than its default, as llama-server shows it."""
    values = {"--temp": ("temperature", 0.5), "--dynatemp-range": ("dynatemp_range", 0.25), "--dynatemp-exp": ("dynatemp_exponent", 2), "--top-k": ("top_k", 11),
              "--top-p": ("top_p", 0.5), "--min-p": ("min_p", 0.125), "--typical": ("typical_p", 0.75), "--top-nsigma": ("top_n_sigma", 2),
              "--xtc-probability": ("xtc_probability", 0.5), "--xtc-threshold": ("xtc_threshold", 0.25), "--repeat-last-n": ("repeat_last_n", 5),
              "--repeat-penalty": ("repeat_penalty", 1.25), "--presence-penalty": ("presence_penalty", 0.5), "--frequency-penalty": ("frequency_penalty", 0.75),
              "--dry-multiplier": ("dry_multiplier", 0.5), "--dry-base": ("dry_base", 2), "--dry-allowed-length": ("dry_allowed_length", 3),
              "--dry-penalty-last-n": ("dry_penalty_last_n", 9), "--mirostat": ("mirostat", 2), "--mirostat-ent": ("mirostat_tau", 4), "--mirostat-lr": ("mirostat_eta", 0.25),
              "--adaptive-target": ("adaptive_target", 0.5), "--adaptive-decay": ("adaptive_decay", 0.75),
              "--seed": ("seed", 7), "--predict": ("n_predict", 4)}
    with serve("--ignore-eos", *(word for name, (_, value) in values.items() for word in (name, value))) as s:
        shown = s.ask("/props")[1]["default_generation_settings"]["params"]
        assert {field: shown[field] for field, _ in values.values()} == {field: value for field, value in values.values()} and shown["ignore_eos"] is True


def test_greedy_by_option(serve):
    with serve("--temp", "0", "-n", "12") as s:
        assert complete(s) == (GREEDY, "limit") and complete(s, n_predict=3) == (" a\n\n", "limit") and complete(s, n_predict=-1) == (GREEDY, "limit")
        _, chat = s.ask("/v1/completions", {"prompt": PROMPT})
        assert chat["choices"][0]["text"] == GREEDY
    with serve("--temp", "-1", "-n", "12", "--repeat-penalty", "1.5", "-r", "x") as s:
        assert complete(s) == (" a\n\n# ---------------------------------------------------------/---", "limit")
        assert complete(s, repeat_penalty=1) == (GREEDY, "limit") and complete(s, stop=["return"], repeat_penalty=1)[1] == "word"


def test_output_is_constrained_by_default(serve, tmp_path):
    grammar = 'root ::= " (" [a-z]+ ")"'
    with serve("--temp", "0", "-n", "12", "--grammar", grammar) as s:
        assert complete(s) == (" (b)", "eos")
        assert complete(s, grammar='root ::= "x"')[0] == "x"                    # the request's own
        assert complete(s, json_schema={"const": 5})[0] == "5"
    (tmp_path / "schema.json").write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}))
    with serve("--temp", "0", "-n", "24", "-jf", tmp_path / "schema.json") as s:
        assert complete(s)[0] == '{"a": 0}' or json.loads(complete(s)[0])["a"] >= 0
        assert set(json.loads(complete(s)[0])) == {"a"}


@pytest.mark.parametrize("args, says", [(["-j", "{"], "--json-schema"), (["--samplers", "a", "--sampler-seq", "k"], "use one of them"),
                                        (["--grammar", "x", "-j", "{}"], "more than once"), (["--chat-template", "nonsense"], "none of these names"),
                                        (["--chat-template-kwargs", "[]"], "expected a JSON object"), (["-l", "5"], "--logit-bias"),
                                        (["--grammar", "root ::= ("], "--grammar: "), (["--grammar", "root ::= <[99999999]>"], "outside the vocabulary"), (["-j", '{"type": "x"}'], "--json-schema: "),
                                        (["--grammar-file", "/dev/null"], "/dev/null: "), (["-jf", "/no/file"], "/no/file")])
def test_wrong_defaults(weft, weft_env, tinypy, args, says):
    done = subprocess.run([weft, "serve", "-m", tinypy, "--port", "0", *args], env=weft_env, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and says in done.stderr, done.stderr


# ---- templates -------------------------------------------------------------------------------------------------------------

MESSAGES = [{"role": "user", "content": "Hello"}]


def applied(s, **more):
    return s.ask("/apply-template", {"messages": MESSAGES, **more})[1]["prompt"]


def test_chat_template_as_name_file_and_text(serve, tmp_path):
    chatml = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    for args, expected in ((["--chat-template", "chatml"], chatml), (["--chat-template", TEMPLATE, "--jinja"], "# user\nHello\n# assistant\n"),
                           (["--chat-template", tmp_path / "t.jinja"], "# user\nHello\n# assistant\n"),
                           (["--chat-template-file", tmp_path / "t.jinja"], "# user\nHello\n# assistant\n")):
        with serve(*args) as s:
            prompt = applied(s)
            assert prompt.endswith(expected) and prompt.removesuffix(expected) in ("", "<|endoftext|>"), (args, prompt)


def test_variables_of_the_template(serve):
    """The server's, with the request's in their place; -rea and --reasoning-effort are variables that templates know."""
    template = "{{ enable_thinking is defined and enable_thinking }} {{ reasoning_effort }} {{ more }}"
    with serve("--chat-template", template, "--chat-template-kwargs", '{"more": "x"}', "-rea", "on", "--reasoning-effort", "low") as s:
        assert applied(s) == "True low x"
        assert applied(s, chat_template_kwargs={"enable_thinking": False, "more": 2}) == "False low 2"
    with serve("--chat-template", template, "--reasoning-effort", "default", env={"LLAMA_ARG_REASONING": "off", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS": '{"more": "y"}'}) as s:
        assert applied(s) == "False  y"


# ---- who may ask, and the rest -----------------------------------------------------------------------------------------------

def test_keys_on_the_command_line(serve):
    with serve("--api-key", "k1,second-key", "--host", "0.0.0.0", "--port", "0") as s:
        for key, status in (("k1", 200), ("second-key", 200), ("k1,second-key", 401), ("k", 401), (None, 401)):
            s.url = f"http://127.0.0.1:{s.port}"
            assert s.ask("/v1/models", **({"Authorization": f"Bearer {key}"} if key else {}))[0] == status, key
        assert "fewer than 8 characters is too easy to find" in "".join(s.said)
    with serve(env={"LLAMA_API_KEY": "from-the-environment"}) as s:
        assert s.ask("/v1/models")[0] == 401 and s.ask("/v1/models", Authorization="Bearer from-the-environment")[0] == 200


@pytest.mark.parametrize("words", [["--api-key", ""], ["--api-key", ","], ["--api-key", '""'], ["--allow-host", ""], ["--allow-media-from", ","]])
def test_a_list_of_nothing(run_weft, tinypy, words):
    """A variable of the shell that is not set asks for no server without keys."""
    done = run_weft(["serve", "-m", tinypy, "--port", 0, *words])
    assert done.returncode == 2 and f"{words[0]} is empty: it needs " in done.err


def test_the_page_and_variables(serve):
    for args, env, status in (([], {}, 200), (["--no-webui"], {}, 404), ([], {"LLAMA_ARG_UI": "0"}, 404), (["--ui"], {"LLAMA_ARG_UI": "0"}, 200), ([], {"LLAMA_ARG_NO_UI": "1"}, 404)):
        with serve(*args, env=env) as s:
            assert s.ask("/")[0] == status, (args, env)


def test_models_that_were_fetched_are_served(weft, weft_env, run_weft, tinypy, tmp_path):
    """As "llama-server" without a model and "ollama serve" do. An encoder of pictures alone is no model."""
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF")
    none = run_weft(["serve", "--port", "0"], env={"LLAMA_CACHE": str(tmp_path)})
    assert none.returncode == 2 and "no model: give one with -m FILE" in none.err
    for name in ("user_one-Q8_0.gguf", "two.gguf"):
        (tmp_path / name).symlink_to(tinypy)
    with Server(weft, {**weft_env, "LLAMA_CACHE": str(tmp_path)}, None) as s:
        assert sorted(m["id"] for m in s.ask("/v1/models")[1]["data"]) == ["two", "user_one-Q8_0"]
        assert s.ask("/v1/completions", {"model": "two", "prompt": "def f", "max_tokens": 2})[1]["model"] == "two"
        assert s.ask("/props")[1]["role"] == "router"
        assert any("no model is given: serving those of 'weft list'" in line for line in s.said)
    (tmp_path / "two.gguf").unlink()
    with Server(weft, {**weft_env, "LLAMA_CACHE": str(tmp_path)}, None) as s:          # llama.cpp's test_router_props: asking loads nothing
        assert s.ask("/props")[1]["role"] == "router" and s.ask("/v1/models")[1]["data"][0]["status"]["value"] == "unloaded"
        assert s.ask("/completion", {"prompt": "def f", "n_predict": 1})[0] == 200 and s.ask("/props")[1]["total_slots"] == 16


def test_no_slots(serve):
    """As in llama.cpp's test_server_slots: 501 without the endpoint, and /props says so."""
    for args, env, status in ((["--no-slots"], {}, 501), ([], {"LLAMA_ARG_ENDPOINT_SLOTS": "0"}, 501), (["--slots"], {}, 200), ([], {}, 200)):
        with serve(*args, env=env) as s:
            assert s.ask("/slots")[0] == status and s.ask("/props")[1]["endpoint_slots"] == (status == 200), (args, env)


# Of llama.cpp's test_security.py: an origin, what --cors-origins says, and whether the origin may ask. Its default is *, ours is a page of this machine.
ORIGINS = [("localhost", origin, True) for origin in ("http://localhost", "http://localhost:8080", "http://127.0.0.1", "http://127.0.0.1:3000", "http://[::1]", "http://[::1]:3000")]
ORIGINS += [("localhost", origin, False) for origin in ("http://web.mydomain.fr", "http://evil.com", "http://notlocalhost", "http://localhost.evil.com")]
ORIGINS += [("*", "http://web.mydomain.fr", True), ("https://a.example,http://b.example:3000", "https://a.example", True),
            ("https://a.example,http://b.example:3000", "http://b.example:3000", True), ("https://a.example,http://b.example:3000", "http://b.example", False)]


def test_origins_as_llama_server_names_them(serve):
    for said in dict.fromkeys(said for said, _, _ in ORIGINS):
        with serve("--cors-origins", said, "--allow-host", "weft,weft.example") as s:
            for _, origin, may in (row for row in ORIGINS if row[0] == said):
                status = s.ask("/completions", method="OPTIONS", Origin=origin, Host="weft:8080", Access_Control_Request_Method="POST")[0]
                assert status == (204 if may else 403) and (not may or s.headers["Access-Control-Allow-Origin"] == origin), (said, origin)
    with serve(env={"LLAMA_ARG_CORS_ORIGINS": "http://a.example"}) as s:
        assert s.ask("/v1/models", Origin="http://a.example")[0] == 200


def test_threads_and_the_norm_of_vectors(serve):
    with serve("--threads-http", "4", "--timeout", "600", "--embd-normalize", "-1", "--pooling", "mean") as s:
        vector = s.ask("/v1/embeddings", {"input": "def f(x): return x"})[1]["data"][0]["embedding"]
        assert abs(sum(x * x for x in vector) - 1) > 0.01
        vector = s.ask("/embedding", {"content": "def f(x): return x", "embd_normalize": 2})[1][0]["embedding"][0]
        assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-4)


# ---- TLS -------------------------------------------------------------------------------------------------------------------

def test_https(serve, certificate):
    key, cert = certificate
    with serve("--ssl-key-file", key, "--ssl-cert-file", cert, "--temp", "0", "-n", "12", "--api-key", "a-key-of-ours") as s:
        assert s.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(cert))
        headers = {"Authorization": "Bearer a-key-of-ours", "Content-Type": "application/json"}

        def ask(**body):
            c = http.client.HTTPSConnection("localhost", s.port, context=trusted, timeout=60)
            c.request("POST", "/completion", json.dumps({"prompt": PROMPT, **body}), headers)
            return c, c.getresponse()

        c, answer = ask()
        assert json.loads(answer.read())["content"] == GREEDY and c.sock.version() in ("TLSv1.2", "TLSv1.3")
        c.request("GET", "/health")                                              # the connection stays
        assert c.getresponse().status == 200
        _, stream = ask(stream=True)
        pieces = [json.loads(line[6:])["content"] for line in stream.read().decode().splitlines() if line.startswith("data: {")]
        assert "".join(pieces) == GREEDY and len(pieces) > 5
        c, stream = ask(stream=True, n_predict=400, ignore_eos=True)             # a client that leaves ends its answer
        stream.read(10)
        c.close()
        with pytest.raises(ssl.SSLCertVerificationError):                        # who does not know the certificate
            http.client.HTTPSConnection("localhost", s.port, context=ssl.create_default_context(), timeout=60).request("GET", "/health")
        with socket.create_connection(("127.0.0.1", s.port), timeout=60) as plain, contextlib.suppress(ConnectionError):
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(1000)
        if shutil.which("curl"):
            done = subprocess.run(["curl", "-sS", "--cacert", cert, f"https://localhost:{s.port}/v1/models", "-H", "Authorization: Bearer a-key-of-ours"], capture_output=True, text=True)
            assert json.loads(done.stdout)["data"][0]["object"] == "model", done.stderr
        deadline = time.monotonic() + 30
        while json.loads(ask(n_predict=1)[1].read())["stop"] is not True and time.monotonic() < deadline:
            time.sleep(0.1)
        assert s.end() == 0


def test_https_that_cannot_start(weft, weft_env, tinypy, certificate, tmp_path):
    key, cert = certificate
    (tmp_path / "text").write_text("hello")
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other], check=True, capture_output=True)
    locked, cut = tmp_path / "locked.pem", tmp_path / "cut.pem"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked], check=True, capture_output=True)
    cut.write_text(cert.read_text()[:300])
    reasons = set()
    for args, says in (([key, None], "both a private key and its certificate"), ([None, cert], "--ssl-key-file and --ssl-cert-file"),
                       ([tmp_path / "no", cert], "No such file"), ([key, tmp_path / "text"], "nothing in PEM"), ([other, cert], f"{other}, {cert}: TLS does not start with this key and certificate: "),
                       ([cert, key], f"{cert}, {key}: TLS does not start"), ([locked, cert], f"{locked}, {cert}: TLS does not start"),
                       ([key, cut], f"{key}, {cut}: TLS does not start")):
        options = [w for name, file in zip(("--ssl-key-file", "--ssl-cert-file"), args) if file for w in (name, str(file))]
        done = subprocess.run([weft, "serve", "-m", tinypy, "--port", "0", *options], env=weft_env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and says in done.stderr, (args, done.stderr)
        reasons |= set(re.findall("TLS does not start.*: (.+)", done.stderr))
    assert len(reasons) >= 3, reasons                           # each fault has its own, as GnuTLS says it


# ---- reasoning ---------------------------------------------------------------------------------------------------------------

def test_reasoning_has_a_budget(serve, tmp_path):
    """As many tokens as it says, then the message and the end mark, and the answer goes on behind them."""
    (tmp_path / "think.jinja").write_text(TEMPLATE.replace("# assistant\n", "# assistant\n<think>\n"))
    def answer(s, **more):
        return s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "def f"}], **more})[1]["choices"][0]["message"]
    with serve("--temp", "0", "-n", "24", "--chat-template-file", tmp_path / "think.jinja", "--reasoning-budget", "5", env={"LLAMA_ARG_THINK_BUDGET_MESSAGE": " (enough)"}) as s:
        free = answer(s, reasoning_budget_tokens=-1)
        assert not free["content"] and len(free["reasoning_content"]) > 40
        raw = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "def f"}], "reasoning_format": "none", "logprobs": True})[1]
        drawn = [t["token"] for t in raw["choices"][0]["logprobs"]["content"]]
        for n, got in ((5, answer(s)), (3, answer(s, reasoning_budget_tokens=3)), (3, answer(s, thinking_budget_tokens=3))):
            thought = got["reasoning_content"].removesuffix(" (enough)")
            assert thought != got["reasoning_content"] and free["reasoning_content"].startswith(thought) and got["content"]
            assert thought == "".join(drawn[:n]).strip(), (n, thought)
        anthropic = pytest.importorskip("anthropic").Anthropic(base_url=s.url, api_key="none")
        blocks = anthropic.messages.create(model="any", max_tokens=24, messages=[{"role": "user", "content": "def f"}], thinking={"type": "enabled", "budget_tokens": 3}).content
        assert [b.type for b in blocks] == ["thinking", "text"] and blocks[0].thinking.strip().removesuffix(" (enough)") == "".join(drawn[:3]).strip()
        kept = answer(s, reasoning_format="none")
        assert "reasoning_content" not in kept and kept["content"].strip() == free["reasoning_content"].strip()
        assert s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "reasoning_budget_tokens": "many"})[0] == 400
        assert s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "reasoning_format": "deepseek-legacy"})[0] == 400


# ---- what people paste ---------------------------------------------------------------------------------------------------------

def pasted():
    for line in Path(__file__).with_name("command_lines.txt").read_text().splitlines():
        if not line.startswith("#"):
            source, command, *refused = line.split("\t")
            yield pytest.param(command, refused[0] if refused else None, id=f"{source}: {command[:60]}")


def test_there_are_sixty():
    assert len(list(pasted())) >= 60


COMMANDS = {"llama-server": "serve", "llama-cli": "chat", "llama-completion": "run"}


@pytest.mark.parametrize("command, refused", pasted())
def test_a_pasted_command_line(weft, weft_env, tinypy, tmp_path, command, refused):
    """It starts, or is refused with the reason that the list has. Where others could reach the server, it wants keys or --no-key."""
    for name, text in (("TEMPLATE", TEMPLATE), ("KEYS", "a-key-of-ours\n")):
        (tmp_path / name).write_text(text)
    files = {"MODEL": tinypy, "DRAFT": tinypy, "TEMPLATE": str(tmp_path / "TEMPLATE"), "KEYS": str(tmp_path / "KEYS")}
    words = shlex.split(command)
    for file in re.findall(r"[\w/.-]*mmproj[\w.-]*\.gguf", command):
        files[file] = str(projector.write(tmp_path / "mmproj.gguf"))
    env = dict(weft_env)
    while not words[0].startswith("llama-"):
        name, value = words.pop(0).split("=", 1)
        env[name] = files.get(value, value)
    tool, *args = [files.get(word, word) for word in words]
    short = ["-n", "2", "-c", "256"] if tool != "llama-server" else [] if refused else ["--port", "0"]
    run = [weft, COMMANDS[tool], *args, *short]
    if tool == "llama-server" and not refused:
        if "0.0.0.0" in command and "KEYS" not in command:
            done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and "can be reached from other machines: give keys" in done.stderr
            run.append("--no-key")
        with subprocess.Popen(run, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as p:
            said = []
            for line in p.stderr:
                said.append(line)
                if "ready" in line:
                    break
            p.terminate()
            assert "ready" in said[-1] and "error" not in "".join(said), "".join(said)
        return
    done = subprocess.run(run, env=env, input="hi\n", capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0 and "error" not in done.stderr) if not refused else (done.returncode == 2 and refused in done.stderr), done.stderr
