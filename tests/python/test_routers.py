"""weft serve as one of several servers behind a router: what routers ask it, how it leaves, and routers that people run in front of three."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from serving import TEMPLATE, Server, sanitizer_report, until

THREADS = 1

CHAT = {"messages": [{"role": "user", "content": "def f(x):"}], "temperature": 0}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("routers") / "plain.jinja"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, template):
    with Server(weft, weft_env, tinypy, "-c", "512", "-np", "4", "--chat-template-file", template) as s:
        yield s


# ---- what routers ask ---------------------------------------------------------------------------------------------------------------

# Fields with their types as the routers' own structures have them: ServerInfo and ModelInfo of SGLang's gateway (src/core/steps/worker/local/
# discover_metadata.rs), load_info of its WorkerManager, is_sleeping of vLLM's production stack (service_discovery.py), and vLLM's version and load.
ASKED = {
    "/server_info": {"model_id": str, "model_path": str, "served_model_name": str, "dp_size": int, "version": str, "max_running_requests": int},
    "/get_server_info": {"served_model_name": str},
    "/model_info": {"model_path": str, "tokenizer_path": str, "is_generation": bool, "model_type": str},
    "/get_model_info": {"model_type": str},
    "/version": {"version": str}, "/load": {"server_load": int}, "/is_sleeping": {"is_sleeping": bool}, "/ping": {"status": str},
    "/health_generate": {"status": str},
}


@pytest.mark.parametrize("path", ASKED)
def test_what_routers_ask(server, path):
    status, got = server.ask(path)
    assert status == 200 and {name: type(got.get(name)) for name in ASKED[path]} == ASKED[path]
    assert server.ask(path, method="HEAD")[0] == 200


def test_the_values(server, version):
    info, model = server.ask("/server_info")[1], server.ask("/model_info")[1]
    assert (info["served_model_name"], info["model_id"], info["version"], info["max_running_requests"]) == ("tinypy", "tinypy", version, 4)
    assert (model["model_type"], model["is_generation"], model["has_image_understanding"]) == ("llama", True, False)
    assert info["model_path"] == model["tokenizer_path"] == ""       # the gateway fetches the tokenizer of what is named here
    assert server.ask("/version")[1] == {"version": version}
    for path in ("/sleep", "/wake_up", "/flush_cache"):
        assert server.ask(path, {}, method="POST")[0] == 501


def test_load(server):
    """As SGLang's power_of_two policy reads it: an array, one entry for each rank, with what its requests hold."""
    assert server.ask("/get_load")[1] == [{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}]
    with server.connect() as c:
        body = json.dumps({"prompt": "def ", "max_tokens": 400, "n": 128, "ignore_eos": True, "stream": True}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.ask("/get_load")[1][0]["num_tokens"] > 0)
        assert server.ask("/load")[1]["server_load"] == server.ask("/get_load")[1][0]["num_reqs"] == 1
    until(lambda: server.ask("/load")[1] == {"server_load": 0})


def test_render(server):
    """The ids are those of the prompt: their text is what the template makes, and they are answered as the messages are."""
    status, got = server.ask("/v1/chat/completions/render", CHAT)
    assert status == 200 and got["model"] == "tinypy"
    ids = got["token_ids"]
    assert len(ids) == server.ask("/v1/chat/completions/input_tokens", CHAT)[1]["input_tokens"]
    assert server.ask("/detokenize", {"tokens": ids})[1]["content"] == server.ask("/apply-template", CHAT)[1]["prompt"]
    chat = server.ask("/v1/chat/completions", {**CHAT, "max_tokens": 20})[1]["choices"][0]["message"]["content"]
    assert server.ask("/v1/completions", {"prompt": ids, "temperature": 0, "max_tokens": 20})[1]["choices"][0]["text"] == chat
    both = server.ask("/v1/completions/render", {"prompt": ["def f", "x"]})[1]
    texts = [server.ask("/tokenize", {"prompt": text})[1] for text in ("def f", "x")]       # as vLLM has it: BOS in front
    assert [one["token_ids"] for one in both] == [one["tokens"] for one in texts] and texts[0]["count"] == len(texts[0]["tokens"])
    assert texts[0]["max_model_len"] == 512
    without = server.ask("/tokenize", {"prompt": "def f", "add_special_tokens": False})[1]["tokens"]
    assert without == server.ask("/tokenize", {"content": "def f"})[1]["tokens"] == texts[0]["tokens"][1:]
    assert server.ask("/v1/chat/completions/render", {"messages": []})[0] == server.ask("/v1/completions/render", {"prompt": "x" * 5000})[0] == 400


@pytest.mark.parametrize("head, status", [
    (b"GET /health HTTP/1.0\r\n\r\n", 200),                 # what HAProxy sends as a check
    (b"GET /health HTTP/1.0\r\nHost: weft\r\n\r\n", 403), (b"GET /health HTTP/1.0\r\nOrigin: http://weft\r\n\r\n", 403),
    (b"GET /health HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\n\r\n", 400)])
def test_checks_without_a_host(server, head, status):
    """HTTP/1.0 needs no Host (RFC 1945), and no browser leaves it out."""
    assert int(server.raw(head).split()[1]) == status


def test_streams_are_not_kept_back(server):
    """nginx holds an answer back until it has a few kB, unless the answer says otherwise."""
    server.ask("/v1/chat/completions", {**CHAT, "max_tokens": 1, "stream": True})
    assert server.headers["X-Accel-Buffering"] == "no"
    server.ask("/v1/chat/completions", {**CHAT, "max_tokens": 1})
    assert "X-Accel-Buffering" not in server.headers


# ---- how it leaves ------------------------------------------------------------------------------------------------------------------

def answer(connection, method, path, body=None):
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    got = connection.getresponse()
    return got, got.read()


def refuses(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        return False
    except ConnectionResetError:                                    # established just before the server closed its socket
        return False
    except ConnectionRefusedError:
        return True


def test_draining(weft, weft_env, tinypy, template):
    """After SIGTERM: no new connections, and /health says no; messages on connections that are there are answered, the last ones."""
    with Server(weft, weft_env, tinypy, "-c", "512", "--chat-template-file", template, "--drain", "600", "--timeout", "600") as s:
        begun, idle, new, health, stream = (http.client.HTTPConnection("127.0.0.1", s.port, timeout=120) for _ in range(5))
        body = json.dumps({**CHAT, "max_tokens": 2}).encode()
        for c in (begun, new, health, stream):                      # a connection without any message would be closed after 10 seconds
            assert answer(c, "GET", "/health")[0].status == 200
        begun.putrequest("POST", "/v1/chat/completions")            # a message of which the end is still to come keeps it from ending
        begun.putheader("Content-Length", str(len(body)))
        begun.endheaders(body[:-1])
        assert answer(idle, "GET", "/health")[0].status == 200
        s.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(s.port))
        got, _ = answer(idle, "GET", "/v1/models")
        assert (got.status, got.headers["Connection"]) == (200, "close")
        got, text = answer(health, "GET", "/health")
        assert (got.status, got.headers["Retry-After"]) == (503, "2") and b"ending" in text and got.headers["Connection"] == "close"
        got, text = answer(new, "POST", "/v1/chat/completions", {**CHAT, "max_tokens": 2})
        assert (got.status, got.headers["Connection"]) == (200, "close") and json.loads(text)["usage"]["completion_tokens"] == 2
        got, text = answer(stream, "POST", "/v1/chat/completions", {**CHAT, "max_tokens": 2, "stream": True})
        assert (got.status, got.headers["Connection"]) == (200, "close") and text.endswith(b"data: [DONE]\n\n")
        assert s.process.poll() is None
        begun.send(body[-1:])
        assert begun.getresponse().status == 200
        assert s.process.wait(120) == 0
        s.check_for_reports()


def test_a_delay_before_draining(weft, weft_env, tinypy, template):
    """--drain-delay: /health says 503, and requests are taken as before, until the time is over; a second signal does not wait for that."""
    with Server(weft, weft_env, tinypy, "-c", "512", "--chat-template-file", template, "--drain-delay", "86400") as s:
        s.process.send_signal(signal.SIGTERM)
        until(lambda: s.ask("/health")[0] == 503)
        assert s.ask("/v1/chat/completions", {**CHAT, "max_tokens": 2})[0] == 200
        assert s.ask("/health")[0] == 503 and s.end(signal.SIGTERM) == 0


# ---- deploy/ ------------------------------------------------------------------------------------------------------------------------

PROBES = "startupProbe", "readinessProbe", "livenessProbe"      # /health says no when it loads, ends, or is stuck


def options(words):
    return {word for word in words if word.startswith("--")}


def test_kubernetes(repo, weft, weft_env):
    """What one part names another has, and the program knows the options; the types are those that the interfaces' own documents give."""
    yaml = pytest.importorskip("yaml", reason="no PyYAML (it comes with check-jsonschema: scripts/setup.sh test)")
    parts = {part["kind"]: part for part in yaml.safe_load_all((repo / "deploy/kubernetes.yaml").read_text())}
    assert {kind: part["apiVersion"] for kind, part in parts.items()} == {
        "Deployment": "apps/v1", "Service": "v1", "PodMonitor": "monitoring.coreos.com/v1", "InferencePool": "inference.networking.k8s.io/v1"}
    pod = parts["Deployment"]["spec"]["template"]
    labels, one = pod["metadata"]["labels"], pod["spec"]["containers"][0]
    assert parts["Service"]["spec"]["selector"] == labels
    assert all(parts[kind]["spec"]["selector"]["matchLabels"] == labels for kind in ("Deployment", "PodMonitor", "InferencePool"))
    port, = one["ports"]
    assert {probe: one[probe]["httpGet"] for probe in PROBES} == dict.fromkeys(
        PROBES, {"path": "/health", "port": port["name"]})
    assert parts["PodMonitor"]["spec"]["podMetricsEndpoints"] == [{"port": port["name"], "path": "/metrics"}]
    assert parts["InferencePool"]["spec"]["targetPorts"] == [{"number": port["containerPort"]}] and str(port["containerPort"]) in one["args"]
    assert {v["name"] for v in pod["spec"]["volumes"]} == {v["name"] for v in one["volumeMounts"]}
    time = {name: int(one["args"][one["args"].index(name) + 1]) for name in ("--drain", "--drain-delay")}
    assert pod["spec"]["terminationGracePeriodSeconds"] > sum(time.values())
    assert all(isinstance(word, str) for word in one["args"])
    known = re.findall(r"--[a-z][\w-]*", subprocess.run([weft, "serve", "--help"], env=weft_env, capture_output=True, text=True).stdout)
    compose = yaml.safe_load((repo / "deploy/compose.yaml").read_text())["services"]["one"]["command"]
    slurm = re.findall(r"--\S+", (repo / "deploy/slurm.sh").read_text().split("weft serve -m")[1])
    assert [word for word in options(one["args"]) | options(compose) | options(slurm) if word not in known] == []


def test_compose(repo):
    pytest.importorskip("check_jsonschema", reason="no check-jsonschema (scripts/setup.sh test)")
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", repo / "deploy/compose.yaml"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_slurm(repo):
    """The directives stand before the first command: sbatch reads no others."""
    script = repo / "deploy/slurm.sh"
    assert subprocess.run(["sh", "-n", script]).returncode == 0
    lines = script.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    assert [i for i, line in enumerate(lines) if line.startswith("#SBATCH") and i > first] == []


# ---- routers ------------------------------------------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def urls(servers):
    return [f"http://127.0.0.1:{s.port}" for s in servers]


def ours(path, pattern, line, servers):
    """A file of deploy/ with our servers in the place of its example's."""
    kept = [text for text in path.read_text().splitlines() if not re.match(pattern, text)]
    at = next(i for i, text in enumerate(path.read_text().splitlines()) if re.match(pattern, text))
    assert len(path.read_text().splitlines()) == len(kept) + 3
    return "\n".join(kept[:at] + [line.format(i, s.port) for i, s in enumerate(servers)] + kept[at:]) + "\n"


def haproxy(deploy, tmp, port, servers):
    text = ours(deploy / "haproxy.cfg", "  server ", "  server s{} 127.0.0.1:{}", servers)
    assert "bind :8000\n" in text
    (tmp / "haproxy.cfg").write_text(text.replace("bind :8000", f"bind 127.0.0.1:{port}"))
    return [program("haproxy"), "-db", "-f", tmp / "haproxy.cfg"], {}


def nginx(deploy, tmp, port, servers):
    text = ours(deploy / "nginx.conf", "  server ", "  server 127.0.0.1:{1} max_fails=1 fail_timeout=5s;", servers)
    assert "listen 8000;" in text
    folders = "".join(f"{name}_temp_path {tmp}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (tmp / "nginx.conf").write_text(f"pid {tmp}/pid;\ndaemon off;\nmaster_process off;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}"
                                    + text.replace("listen 8000", f"listen 127.0.0.1:{port}") + "}\n")
    return [program("nginx"), "-c", tmp / "nginx.conf", "-e", "stderr"], {}


def litellm(deploy, tmp, port, servers):
    yaml = pytest.importorskip("yaml", reason="no PyYAML (it comes with check-jsonschema: scripts/setup.sh test)")
    config = yaml.safe_load((deploy / "litellm.yaml").read_text())
    assert len(config["model_list"]) == 3
    for url, model in zip(urls(servers), config["model_list"]):
        model["model_name"] = "tinypy"
        model["litellm_params"].update(model="openai/tinypy", api_base=url + "/v1")
    (tmp / "litellm.yaml").write_text(yaml.safe_dump(config))
    env = {"LITELLM_MASTER_KEY": KEY, "WEFT_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return [program("litellm"), "--config", tmp / "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)], env


def sglang(policy):
    def command(_, __, port, servers):
        return [program("sglang-router"), "launch", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()), "--policy", policy,
                "--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--worker-urls", *urls(servers)], {}
    return command


def vllm(_, __, port, servers):
    return [program("vllm-router", "--worker-urls"), "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()), "--policy", "cache_aware",
            "--worker-urls", *urls(servers)], {}


def production_stack(_, __, port, servers):
    return [program("vllm-router", "--static-backends"), "--host", "127.0.0.1", "--port", str(port), "--service-discovery", "static", "--routing-logic", "roundrobin",
            "--static-backends", ",".join(urls(servers)), "--static-models", ",".join(["tinypy"] * 3), "--static-model-types", "chat,chat,chat",
            "--static-backend-health-checks", "--static-backend-health-check-interval", "2", "--max-instance-failover-reroute-attempts", "3",
            "--engine-stats-interval", "1"], {}


ROUTERS = {"haproxy": haproxy, "nginx": nginx, "litellm": litellm, "sglang cache_aware": sglang("cache_aware"), "sglang power_of_two": sglang("power_of_two"),
           "vllm-router": vllm, "production-stack": production_stack}
PROGRAMS = {"haproxy": ["haproxy"], "nginx": ["nginx"], "litellm": ["litellm"], "sglang cache_aware": ["sglang-router"], "sglang power_of_two": ["sglang-router"],
            "vllm-router": ["vllm-router", "--worker-urls"], "production-stack": ["vllm-router", "--static-backends"]}
# It asks a server that refuses its connections again and again, instead of another one, until a check has shown that this one is not well.
OPTIONS = {"sglang cache_aware": ["--drain-delay", "5"]}
KEY = "sk-of-this-test-0123456789abcdef"


def program(name, option=None):
    """Two programs have the name vllm-router: option is one that the other has not."""
    folders = [folder for folder in os.environ.get("WEFT_ROUTERS", "").split(":") if folder]
    for path in filter(None, (shutil.which(name, path=folder) for folder in [*folders, os.environ["PATH"], "/usr/sbin"])):
        if not option or option in subprocess.run([path, "--help"], capture_output=True, text=True, timeout=300).stdout:
            return path
    where = "from Debian" if name in ("haproxy", "nginx") else "from PyPI, WEFT_ROUTERS=FOLDER:... names the folders of such programs"
    pytest.skip(f"no {name} ({where})")


def text_of_stream(text):
    """What comes in a stream, or None if it was cut or ended in an error."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    if not lines or lines.pop() != "[DONE]":
        return None
    chunks = [json.loads(line) for line in lines]
    return None if any("error" in c for c in chunks) else "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])


def ask(url, i):
    """The answer's text; otherwise what came in its place."""
    body = {"model": "tinypy", **CHAT, "messages": [{"role": "user", "content": f"def f{i % 7}(x):"}], "max_tokens": 40, "stream": i % 2 == 0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), headers), timeout=300) as got:
            text = got.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read()
    except (OSError, http.client.HTTPException) as e:
        return repr(e)
    if i % 2 == 0:
        return text_of_stream(text) or text
    return json.loads(text)["choices"][0]["message"]["content"]


class Traffic:
    """Requests 0 to n - 1 by eight clients. at: what is done before the request with this number."""
    def __init__(self, url, n, at):
        self.url, self.n, self.at, self.next, self.answers, self.lock = url, n, at, 0, [None] * n, threading.Lock()
        clients = [threading.Thread(target=self.client) for _ in range(8)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()

    def client(self):
        while True:
            with self.lock:
                i, self.next = self.next, self.next + 1
                if i < self.n and i in self.at:
                    self.at[i]([k for k in range(i) if self.answers[k] is None])
            if i >= self.n:
                return
            self.answers[i] = ask(self.url, i)


def is_up(url, router):
    assert router.poll() is None
    return ask(url, 1) is not None and isinstance(ask(url, 1), str) and "Error" not in ask(url, 1)


@pytest.mark.parametrize("name", ROUTERS)
def test_router(name, weft, weft_env, tinypy, template, repo, tmp_path):
    """200 requests through it to three servers. One of them ends at a third: no request sees that. One is killed at two thirds: only requests
    that it was answering may fail."""
    program(*PROGRAMS[name])
    servers = [Server(weft, weft_env, tinypy, "-c", "512", "-np", "4", "--chat-template-file", template, *OPTIONS.get(name, ())) for _ in range(3)]
    port, hurt, log = free_port(), [], open(tmp_path / "log", "w")
    router = None
    try:
        command, env = ROUTERS[name](repo / "deploy", tmp_path, port, [s.ready() for s in servers])
        expected = [ask(servers[0].url, i) for i in range(14)]
        router = subprocess.Popen(command, env={**os.environ, "no_proxy": "*", **env}, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        until(lambda: is_up(url, router), 300, 0.2)

        def kill(in_work):
            servers[1].process.kill()
            servers[1].process.wait()
            hurt.extend(in_work)

        got = Traffic(url, 200, {66: lambda _: servers[0].process.send_signal(signal.SIGTERM), 133: kill}).answers
        wrong = {i: text for i, text in enumerate(got) if text != expected[i % 14]}
        assert wrong.keys() <= set(hurt), wrong
        assert servers[0].process.wait(120) == 0
        assert servers[2].metric("weft:answers_total") > 0 == servers[2].metric("weft:refused_total")
    except Exception:
        print((tmp_path / "log").read_text()[-5000:], file=sys.stderr)
        raise
    finally:
        if router:
            router.terminate()
            router.wait(120)
        log.close()
        for s in servers:
            s.process.kill()
            s.process.wait()
        assert not any(sanitizer_report("".join(s.said)) for s in servers)
