"""weft serve beside llama-server and ollama: their paths, what browsers and containers send, and what a server says of its model."""
import json
import re
import shutil
import subprocess

import pytest
import test_lora
from serving import TEMPLATE, Server, until

THREADS = 1

MESSAGES = [{"role": "user", "content": "x = 1"}]


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory):
    template = tmp_path_factory.mktemp("paths") / "plain.jinja"
    template.write_text(TEMPLATE)
    with Server(weft, weft_env, tinypy, "--chat-template-file", template, "-c", "256", "--allow-host", "weft", "--allow-host", "*.svc.cluster.local") as s:
        yield s


# ---- paths ----------------------------------------------------------------------------------------------------------------------

# What llama-server registers (tools/server/server.cpp), with a body that each takes; 501 and 405 are answers that give the reason.
LLAMA = [
    ("GET", "/health", None, 200), ("GET", "/v1/health", None, 200), ("GET", "/metrics", None, 200), ("GET", "/props", None, 200),
    ("POST", "/props", {}, 405), ("GET", "/models", None, 200), ("GET", "/v1/models", None, 200), ("POST", "/completion", {"prompt": "x", "n_predict": 1}, 200),
    ("POST", "/completions", {"prompt": "x", "n_predict": 1}, 200), ("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, 200),
    ("POST", "/chat/completions", {"messages": MESSAGES, "max_tokens": 1}, 200), ("POST", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}, 200),
    ("POST", "/v1/chat/completions/control", {}, 501), ("POST", "/v1/responses", {"input": "x", "max_output_tokens": 1}, 200),
    ("POST", "/responses", {"input": "x", "max_output_tokens": 1}, 200), ("POST", "/v1/audio/transcriptions", {}, 501), ("POST", "/audio/transcriptions", {}, 501),
    ("POST", "/v1/messages", {"messages": MESSAGES, "max_tokens": 1}, 200), ("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"}, 400),
    ("POST", "/embedding", {"content": "x"}, 200), ("POST", "/embeddings", {"content": "x"}, 200), ("POST", "/v1/embeddings", {"input": "x"}, 400),
    ("POST", "/rerank", {"query": "x", "documents": ["y"]}, 501), ("POST", "/reranking", {"query": "x", "documents": ["y"]}, 501),
    ("POST", "/v1/rerank", {"query": "x", "documents": ["y"]}, 501), ("POST", "/v1/reranking", {"query": "x", "documents": ["y"]}, 501),
    ("POST", "/tokenize", {"content": "x"}, 200), ("POST", "/detokenize", {"tokens": [5]}, 200), ("POST", "/apply-template", {"messages": MESSAGES}, 200),
    ("POST", "/chat/completions/input_tokens", {"messages": MESSAGES}, 200), ("POST", "/v1/chat/completions/input_tokens", {"messages": MESSAGES}, 200),
    ("POST", "/responses/input_tokens", {"input": "x"}, 200), ("POST", "/v1/responses/input_tokens", {"input": "x"}, 200),
    ("POST", "/v1/messages/count_tokens", {"messages": MESSAGES}, 200), ("GET", "/slots", None, 200), ("POST", "/slots/0?action=save", {"filename": "x"}, 501), ("GET", "/lora-adapters", None, 200), ("POST", "/lora-adapters", [], 200), ("POST", "/models/load", {"model": "tinypy"}, 200),
    ("GET", "/v1/stream?conv_id=nobody", None, 404), ("POST", "/v1/streams/lookup", {"conversation_ids": ["nobody"]}, 200), ("GET", "/tools", None, 501), ("GET", "/cors-proxy", None, 501),
    ("GET", "/models/sse", None, 501), ("POST", "/models", {}, 405),
]
# And ollama's (server/routes.go).
OLLAMA = [
    ("GET", "/", None, 200), ("HEAD", "/", None, 200), ("GET", "/api/version", None, 200), ("GET", "/api/tags", None, 200), ("HEAD", "/api/tags", None, 200),
    ("POST", "/api/pull", {"model": "tinypy", "stream": False}, 200), ("POST", "/api/push", {"model": "x"}, 501), ("POST", "/api/show", {"model": "tinypy"}, 200),
    ("DELETE", "/api/delete", {"model": "x"}, 501), ("POST", "/api/me", {}, 501), ("POST", "/api/create", {"model": "x"}, 501),
    ("HEAD", "/api/blobs/sha256:0", None, 501), ("POST", "/api/copy", {}, 501), ("GET", "/api/ps", None, 200),
    ("POST", "/api/generate", {"prompt": "x", "stream": False, "options": {"num_predict": 1}}, 200),
    ("POST", "/api/chat", {"messages": MESSAGES, "stream": False, "options": {"num_predict": 1}}, 200), ("POST", "/api/embed", {"input": "x"}, 400),
    ("POST", "/api/embeddings", {"prompt": "x"}, 400),
]


@pytest.mark.parametrize("method, path, body, expected", LLAMA + OLLAMA)
def test_paths_of_others(server, method, path, body, expected):
    status, got = server.ask(path, body, method=method)
    assert status == expected, got
    if status in (405, 501) and method != "HEAD":
        error = got["error"]
        assert len(error if isinstance(error, str) else error["message"]) > 20


def test_paths_without_v1_mean_what_they_mean_there(server):
    """/completions and /embeddings are llama.cpp's own forms, /chat/completions is OpenAI's."""
    body = {"prompt": "x = (1,", "temperature": 0, "n_predict": 4, "max_tokens": 4}
    assert server.ask("/completions", body)[1]["content"] == server.ask("/v1/completions", body)[1]["choices"][0]["text"]
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 4}
    assert server.ask("/chat/completions", body)[1]["choices"] == server.ask("/v1/chat/completions", body)[1]["choices"]
    n = server.ask("/v1/chat/completions", body)[1]["usage"]["prompt_tokens"]
    assert server.ask("/chat/completions/input_tokens", body)[1] == {"input_tokens": n}
    assert server.ask("/messages/count_tokens", body)[1] == {"input_tokens": n}
    assert server.ask("/responses/input_tokens", {"input": MESSAGES})[1] == {"object": "response.input_tokens", "input_tokens": n}
    assert server.ask("/nothing", {})[0] == 404


def test_pull(server):
    """What is there is a success, line by line as ollama's clients read it; nothing is fetched."""
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(server.url)
    assert client.pull("tinypy").status == "success" and [p.status for p in client.pull("tinypy", stream=True)][-1] == "success"
    with pytest.raises(ollama.ResponseError, match="weft pull"):
        client.push("tinypy")


def test_a_model_is_loaded_and_unloaded(weft, weft_env, tinypy, tmp_path):
    with Server(weft, weft_env, tinypy) as s:
        assert s.ask("/models/unload", {"model": "tinypy"})[1] == {"success": True}
        until(lambda: s.ask("/v1/models")[1]["data"][0]["status"]["value"] == "unloaded")
        asleep = s.ask("/props")[1]
        assert asleep["is_sleeping"] and s.ask("/v1/models")[1]["data"][0]["status"]["value"] == "unloaded"      # asking does not wake it
        assert s.ask("/models/load", {"model": "tinypy"})[1] == {"success": True}
        assert s.ask("/props")[1]["is_sleeping"] is False and s.ask("/models/load", {})[0] == 400


def test_who_watches_keeps_no_model_awake(weft, weft_env, tinypy):
    """As llama-server's manual says of --sleep-idle-seconds, and its test_sleep.py asks: GET /health, /props, /models and /metrics do not count as use."""
    with Server(weft, weft_env, tinypy, "--sleep-idle-seconds", "1") as s:
        def sleeps(path):
            assert all(s.ask(watched)[0] == 200 for watched in ("/health", "/models", "/metrics", "/slots", path.replace("props", "slots")))
            return s.ask(path)[1]["is_sleeping"]
        for path in ("/props", "/props?model=tinypy"):
            assert s.ask("/completion", {"prompt": "def f", "n_predict": 1})[0] == 200 and not sleeps(path)
            until(lambda: sleeps(path), pause=0.1)
            assert s.ask("/slots")[1] == [] and sleeps(path)
        assert s.ask("/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "x"}]})[0] in (200, 400) and not sleeps("/props")


def test_drafts_are_counted(weft, weft_env, tinypy):
    """llama-server's three counters: what repeats is drafted, alone and beside other answers."""
    names = ["llamacpp:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_draft_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total"]
    with Server(weft, weft_env, tinypy, "--draft-always") as s:
        ask, before = {"prompt": "def f(x):\n    return x\n" * 12, "n_predict": 60, "temperature": 0, "ignore_eos": True}, [0, 0, 0]

        def accepted(prompt):
            nonlocal before
            got = s.ask("/completion", {**ask, "prompt": prompt})[1]
            was, before = before, [s.metric(name) for name in names]
            drafts, *counts = (b - a for a, b in zip(was, before))
            timings = [one["timings"] for one in (got if isinstance(got, list) else [got])]
            assert counts == [sum(t.get(name, 0) for t in timings) for name in ("draft_n", "draft_n_accepted")]
            assert 0 < counts[1] <= counts[0] and 0 < drafts <= counts[0]
        for prompt in (ask["prompt"], [ask["prompt"]] * 3):
            accepted(prompt)


def test_counters_never_fall(weft, weft_env, tinypy):
    """Prometheus takes a counter that falls for a restart; a scrape in the middle of an unloading saw 0. (llama.cpp's test_sleep.py has it.)"""
    with Server(weft, weft_env, tinypy) as s:
        for n in range(1, 7):
            assert s.ask("/completion", {"prompt": "def f", "n_predict": 4, "temperature": 0})[0] == 200
            until(lambda: s.metric("weft:answers_total") == n)             # an answer is counted when it has been given
            assert s.metric("llamacpp:n_decode_total") >= 1
            assert s.ask("/models/unload", {"model": "tinypy"})[0] == 200
            seen = [s.metric("weft:answers_total")]
            while s.ask("/v1/models")[1]["data"][0]["status"]["value"] != "unloaded":
                seen += [s.metric("weft:answers_total") for _ in range(20)]
            assert set(seen) == {n}


# ---- what it says of its model ----------------------------------------------------------------------------------------------------


def test_the_template_in_use_is_shown(server):
    assert server.ask("/props")[1]["chat_template"] == TEMPLATE == server.ask("/api/show", {"model": "x"})[1]["template"]


# Of templates that their authors publish: what ollama and the model's page say that they can.
CAN = {"Qwen-Qwen2.5-7B-Instruct": {"tools"}, "Qwen3-Coder": {"tools"}, "Qwen-QwQ-32B": {"tools", "thinking"}, "google-gemma-2-2b-it": set(),
       "openai-gpt-oss-120b": {"tools", "thinking"}, "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": {"thinking"}, "meta-llama-Llama-3.3-70B-Instruct": {"tools"},
       "mistralai-Ministral-3-14B-Reasoning-2512": {"tools", "thinking"}, "ByteDance-Seed-OSS": {"tools", "thinking"}}


@pytest.mark.parametrize("name", CAN)
def test_capabilities(weft, weft_env, tinypy, shared_dir, name):
    template = shared_dir / "templates" / f"{name}.jinja"
    if not template.exists():
        pytest.skip("the collection of templates is not there")
    with Server(weft, weft_env, tinypy, "--chat-template-file", template) as s:
        assert set(s.ask("/api/show", {"model": "x"})[1]["capabilities"]) == {"completion"} | CAN[name]


def test_the_version_that_clients_ask_for(server):
    """Raycast's extension wants 0.6.4, Continue 0.6.5, Codex 0.13.4: they compare numbers."""
    version = tuple(map(int, server.ask("/api/version")[1]["version"].split(".")))
    assert version >= (0, 13, 4)


# ---- curl, browsers, containers -----------------------------------------------------------------------------------------------------


def test_curl_without_a_type(server):
    """`curl -d` says that it sends a form; so do all examples of ollama and llama.cpp."""
    body = json.dumps({"prompt": "x", "max_tokens": 1})
    for kind in ("application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "application/json"):
        assert server.ask("/v1/completions", body.encode(), Content_Type=kind)[0] == 200
        assert server.ask("/v1/completions", body.encode(), Content_Type=kind, Origin="http://localhost:3000")[0] == (200 if "json" in kind else 415)
        assert server.ask("/v1/completions", body.encode(), Content_Type=kind, Sec_Fetch_Site="cross-site")[0] == (200 if "json" in kind else 415)
    if shutil.which("curl"):
        done = subprocess.run(["curl", "-s", server.url + "/v1/completions", "-d", body], capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(done.stdout)["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("host, status", [("weft:8080", 200), ("WEFT", 200), ("weft.default.svc.cluster.local:8080", 200), ("weft2:8080", 403), ("evil.example", 403),
                                          ("svc.cluster.local.evil.example", 403)])
def test_names_of_services(server, host, status):
    got = server.raw(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), wait=True)
    assert got.startswith(f"HTTP/1.1 {status} ".encode()), got


def test_a_refused_host_names_the_option(server):
    got = server.raw(b"GET / HTTP/1.1\r\nHost: llm:8080\r\nConnection: close\r\n\r\n", wait=False)
    assert b" 403 " in got and b"--allow-host llm " in got


@pytest.mark.parametrize("host", ["llm:abc", "llm:80 evil.example", "[::1%25lo]", "::1", "llm:"])
def test_what_is_no_name_of_a_host(server, host):
    """No option would allow it, so none is named."""
    got = server.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode(), wait=False)
    assert b"--allow-host" not in got and (b" 400 " in got or b" 403 " in got and b"is not a name with or without a port" in got)


@pytest.mark.parametrize("origin, host, status", [
    ("http://localhost:3000", "localhost:1", 200), ("http://127.0.0.1:5173", "localhost:1", 200), ("https://localhost", "127.0.0.1:1", 200), ("http://[::1]:80", "127.0.0.1", 200),
    ("http://localhost.evil.example", "localhost:1", 403), ("http://localhost:x", "localhost:1", 403), ("http://evil.example", "localhost:1", 403), ("null", "localhost", 403),
    ("http://localhost:3000", "10.0.0.7:1", 403), ("http://localhost:3000", "weft:1", 403), ("file://", "localhost", 403)])
def test_pages_of_this_machine(server, origin, host, status):
    """A page that a program of this machine serves may ask a server of this machine, whatever their ports."""
    got = server.raw(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode())
    assert got.startswith(f"HTTP/1.1 {status} ".encode()), got
    assert (f"Access-Control-Allow-Origin: {origin}\r\n".encode() in got) == (status == 200)


# What the JavaScript packages of OpenAI and Anthropic send beside the body.
SDK_HEADERS = ("anthropic-beta,anthropic-dangerous-direct-browser-access,anthropic-version,authorization,content-type,openai-organization,openai-project,x-api-key,"
               "x-stainless-arch,x-stainless-helper-method,x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,"
               "x-stainless-runtime-version,x-stainless-timeout")


def test_preflight(server):
    status, _ = server.ask("/v1/messages", method="OPTIONS", Origin="http://localhost:3000", Access_Control_Request_Method="POST",
                           Access_Control_Request_Headers=SDK_HEADERS, Access_Control_Request_Private_Network="true")
    assert status == 204 and server.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert server.headers["Access-Control-Allow-Headers"] == SDK_HEADERS and "POST" in server.headers["Access-Control-Allow-Methods"]
    assert server.headers["Access-Control-Allow-Private-Network"] == "true"
    assert server.ask("/v1/messages", method="OPTIONS", Origin="http://evil.example", Access_Control_Request_Headers=SDK_HEADERS)[0] == 403


def test_any_host_and_any_origin(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy, "--allow-host", "*", "--allow-origin", "*") as s:
        for host, origin in (("weft:8080", "http://there.example"), ("anything.example", "null"), ("localhost", "chrome-extension://abc")):
            got = s.raw(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode())
            assert got.startswith(b"HTTP/1.1 200 ") and f"Access-Control-Allow-Origin: {origin}\r\n".encode() in got
    with Server(weft, weft_env, tinypy, "--allow-origin", "http://there.example:*") as s:
        for origin, status in (("http://there.example:5", 200), ("http://there.example", 200), ("http://there.example.org", 403), ("http://there.example:5x", 403)):
            assert s.ask("/v1/models", Origin=origin)[0] == status


def test_the_description_is_whole(server):
    """/openapi.json of a build with sanitizers: every kind of field is looked up where there is one."""
    assert len(server.ask("/openapi.json")[1]["paths"]) > 30


def test_a_prefix(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy, "--api-prefix", "/llm/") as s:
        assert s.ask("/llm/health")[0] == 200 and s.ask("/llm/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
        assert s.ask("/llm/v1/models/tinypy")[0] == 200 and s.ask("/llm/api/push", {})[0] == 501
        for path in ("/health", "/v1/models", "/llmhealth", "/llm2/health"):
            assert s.ask(path)[0] == 404, path
        assert s.raw(b"GET /llm HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 308 ")
        page = s.ask("/llm/")[1]
        for link in re.findall(r'(?:href|src)="([^"]+)"', page):
            if link.startswith("data:"):
                continue
            assert not link.startswith("/") and s.ask("/llm/" + link)[0] == 200, link


# ---- adapters ---------------------------------------------------------------------------------------------------------------------------


def test_adapters_are_changed(weft, weft_env, tinypy, tmp_path, run_weft):
    """What an answer is at each scale is what weft run makes with --lora-scaled, whose sums test_lora.py compares with merged weights."""
    adapter = tmp_path / "adapter.gguf"
    test_lora.write(adapter, "llama", test_lora.of_model(tinypy, ["attn_q.", "ffn_up"], 4)[0])
    prompt = [5, 17, 200, 3]

    def expected(*options):
        done = run_weft(["run", "-m", tinypy, "-c", 128, "--ids", ",".join(map(str, prompt)), "-n", 1, "--ignore-eos", "--temp", 0, "--json", "--top-logprobs", 5, *options])
        return [p for _, p in json.loads(done.stdout.splitlines()[0])["top"]]

    def served(s):
        status, got = s.ask("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 5, "ignore_eos": True})
        assert status == 200, got
        return sorted(got["choices"][0]["logprobs"]["top_logprobs"][0].values(), reverse=True)[:5]

    plain, half, whole = expected(), expected("--lora-scaled", f"{adapter}:0.5"), expected("--lora", adapter)
    assert plain != half != whole
    with Server(weft, weft_env, tinypy, "-c", "128", "--lora", adapter, "--lora-init-without-apply") as s:
        assert s.ask("/lora-adapters")[1] == [{"id": 0, "path": str(adapter), "scale": 0.0, "task_name": "", "prompt_prefix": ""}]
        assert served(s) == pytest.approx(plain, abs=1e-5)
        for scales, values in (([{"id": 0, "scale": 0.5}], half), ([{"id": 0, "scale": 1}], whole), ([], plain)):
            assert s.ask("/lora-adapters", scales) == (200, {"success": True})
            assert served(s) == pytest.approx(values, abs=1e-5), scales
            assert s.ask("/lora-adapters")[1][0]["scale"] == (scales[0]["scale"] if scales else 0)
            assert s.ask("/completion", {"prompt": prompt, "n_predict": 1, "lora": scales})[0] == 200
        assert "".join(s.said).count("ready: ") == 1               # it was not loaded again
        assert s.ask("/completion", {"prompt": prompt, "n_predict": 1, "lora": [{"id": 1, "scale": 2}]})[0] == 400
        for wrong in ([{"id": 1, "scale": 1}], [{"id": 0}], {"id": 0}, [{"id": 0, "scale": "x"}], b"[", [1]):
            assert s.ask("/lora-adapters", wrong)[0] == 400, wrong
    with Server(weft, weft_env, tinypy) as s:
        assert s.ask("/lora-adapters")[1] == [] and s.ask("/lora-adapters", [{"id": 0, "scale": 1}])[0] == 400
