"""What an operator sees of weft serve: its log, and /metrics as Prometheus' own parser reads it."""
import contextlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess

import pytest
from serving import TEMPLATE, Server, until

THREADS = 1

parser = pytest.importorskip("prometheus_client.parser")
SECRET = "x5ecretx"
KEY = {"Authorization": f"Bearer {SECRET}-alice"}
CHAT = {"messages": [{"role": "user", "content": f"def {SECRET}"}], "max_tokens": 7, "ignore_eos": True}
RAISES = "{% if messages[0].content == 'fail' %}{{ raise_exception('no ' + messages[1].content) }}{% endif %}"


@pytest.fixture
def start(weft, weft_env, tinypy, tmp_path):
    (tmp_path / "keys").write_text(f"alice:{SECRET}-alice\n")
    (tmp_path / "keys").chmod(0o600)
    (tmp_path / "plain.jinja").write_text(RAISES + TEMPLATE)
    return lambda *args: Server(weft, weft_env, tinypy, "--api-key-file", tmp_path / "keys", "--chat-template-file", tmp_path / "plain.jinja", *args)


# ---- the log ----------------------------------------------------------------------------------------------------------------------


def test_a_line_for_each_request(start, tmp_path):
    """The numbers of the answers, the key's name, reasons of refusals; the life of the server around them."""
    with start("--log-file", tmp_path / "log", "--log-format", "json") as s:
        chat, two = (s.ask("/v1/chat/completions", {**CHAT, "n": n}, **KEY)[1] for n in (1, 2))
        s.ask("/v1/chat/completions", {**CHAT, "stream": True}, **KEY)
        s.ask("/tokenize", {"content": SECRET}, **KEY)
        assert s.ask("/v1/completions", {"prompt": "x"})[0] == 401
        assert s.ask("/v1/completions", {"prompt": "x", "temperature": -3}, **KEY)[0] == 400
        assert s.ask("/v1/completions", {"prompt": "word " * 2000}, **KEY)[0] == 400
        assert s.ask("/no%0Athing", **KEY)[0] == 404
        assert s.ask("/health")[0] == s.ask("/metrics", **KEY)[0] == 200
        assert s.end() == 0
        assert any(line.startswith("weft: listening") for line in s.said) and not any("POST" in line for line in s.said)
    text = (tmp_path / "log").read_text()
    got = [json.loads(line) for line in text.splitlines()]
    assert SECRET not in text and (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e["time"]) for e in got)
    assert {"listening", "loading", "ready", "draining"} <= {e["event"] for e in got}
    requests = [e for e in got if e["event"] == "request"]
    assert len(requests) == 8                                # probes come with -v
    for answer in chat, two:
        e = next(e for e in requests if e.get("id") == answer["id"])
        usage = answer["usage"]
        assert (e["method"], e["path"], e["status"], e["key"], e["model"]) == ("POST", "/v1/chat/completions", 200, "alice", answer["model"])
        assert (e["id"], e["prompt"], e["generated"], e["finish"]) == (answer["id"], usage["prompt_tokens"], usage["completion_tokens"], "length")
        assert e["cached"] == usage["prompt_tokens_details"]["cached_tokens"]
        assert 0 <= e["wait_ms"] <= e["first_ms"] <= e["ms"] and e["prompt_ms"] + e["generation_ms"] <= e["ms"] + 0.2
    by_status = lambda status: [e for e in requests if e["status"] == status]        # one line may come before another
    (key,), (nothing,), (temperature, long) = by_status(401), by_status(404), sorted(by_status(400), key=lambda e: e["reason"], reverse=True)
    assert sorted(e["generated"] for e in by_status(200) if "id" in e) == [7, 7, 14] and len(by_status(200)) == 4
    assert key["status"] == 401 and "key" not in key and "a valid key" in key["reason"]
    assert temperature["status"] == 400 and temperature["reason"].startswith("temperature")
    assert re.search(r"\d+ tokens and the context holds 512", long["reason"])
    assert (nothing["path"], nothing["status"]) == ("/no%0Athing", 404)


LEAKS = [
    ("/v1/completions", b'{"prompt": "' + SECRET.encode()),
    ("/v1/completions", {"prompt": "x", "grammar": f"root ::= {SECRET}"}),
    ("/v1/completions", {"prompt": "x", "json_schema": {"type": SECRET}}),
    ("/v1/completions", {"prompt": "x", "json_schema": {"$ref": f"#/{SECRET}"}}),
    ("/v1/completions", {"prompt": "x", "json_schema": {"pattern": f"({SECRET}", "type": "string"}}),
    ("/v1/completions", {"prompt": "x", "samplers": [SECRET]}),
    ("/v1/completions", {"prompt": "x", "logit_bias": {SECRET: SECRET}}),
    ("/v1/completions", {"prompt": "x", "stop": f"{SECRET}\0"}),
    ("/v1/completions", {"prompt": "x", "model": f"{SECRET}\0"}),
    ("/v1/completions", {"prompt": {SECRET: SECRET}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "fail"}, {"role": "user", "content": SECRET}]}),
    ("/v1/chat/completions", {"messages": [{"role": SECRET, "content": [{"type": SECRET}]}]}),
    ("/v1/chat/completions", {**CHAT, "tools": [{"type": SECRET}]}),
    ("/v1/chat/completions", {**CHAT, "tool_choice": {"type": "function", "function": {"name": SECRET}}}),
    ("/v1/chat/completions", {**CHAT, "response_format": {"type": SECRET}}),
    ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": SECRET}]}]}),
    ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "system": [{"type": SECRET}]}),
    ("/v1/responses", {"input": [{"type": SECRET, "content": SECRET}]}),
    ("/api/chat", {"messages": [{"role": "user", "content": "x"}], "format": SECRET}),
    ("/api/generate", {"prompt": SECRET, "options": {"temperature": SECRET}}),
    ("/api/show", {"model": SECRET + "\0"}),
    ("/infill", {"input_prefix": SECRET, "input_suffix": [SECRET]}),
    ("/detokenize", {"tokens": [SECRET]}),
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_has_a_prompt_an_answer_or_a_key(start, form):
    """Bodies whose faults quote them to their clients; keys that are wrong; answers."""
    with start("-v", "--log-format", "text") if form == "text" else start("-v", "--log-file", "/dev/stderr", "--log-jsonl") as s:
        statuses = [s.ask(path, body, **KEY)[0] for path, body in LEAKS]
        quoted = sum(SECRET in json.dumps(s.ask(path, body, **KEY)[1]) for path, body in LEAKS)
        for headers in ({"Authorization": f"Bearer {SECRET}"}, {"X-Api-Key": SECRET}, {**KEY, "Cookie": SECRET}):
            s.ask("/v1/completions", {"prompt": SECRET, "max_tokens": 2}, **headers)
        _, answer = s.ask("/v1/completions", {"prompt": f"# {SECRET}\n", "max_tokens": 60, "temperature": 0}, **KEY)
        s.end()
        said = "".join(s.said)
    assert sum(status >= 400 for status in statuses) >= 20 and quoted >= 6, (statuses, quoted)
    assert SECRET not in said, [line for line in s.said if SECRET in line]
    assert said.count("POST /v1/completions 400") + said.count('"path":"/v1/completions","status":400') >= 18
    assert len(text := answer["choices"][0]["text"].strip()) > 20 and text not in said


def over_socket(path, target):
    """The beginning of the answer to a GET; b"": nobody listens yet."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as c:
        c.connect(str(path))
        c.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return c.recv(1000)
    return b""


def test_quiet_says_nothing(weft, weft_env, tinypy, tmp_path):
    path = tmp_path / "socket"
    p = subprocess.Popen([weft, "serve", "-m", str(tinypy), "--host", str(path), "-q"], env=weft_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: b"200 OK" in over_socket(path, b"/health"))
    finally:
        p.terminate()
    assert p.communicate(timeout=60) == (b"", b"")


@pytest.mark.parametrize("options", [[], ["--log-file", "log"], ["--log-format", "json"]], ids=["lines", "file", "json"])
def test_a_log_that_nobody_reads_holds_up_nothing(weft, weft_env, tinypy, tmp_path, options):
    """The pipe is full before the first line: a model loads and says that it is ready, requests are answered, the server ends."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writes, b"x" * 4096):
            pass
    os.set_blocking(writes, True)
    p = subprocess.Popen([weft, "serve", "-m", str(tinypy), "--host", "./socket", *options], env=weft_env, stderr=writes, cwd=tmp_path)
    try:
        until(lambda: b" 200 " in over_socket(tmp_path / "socket", b"/health"))
        assert all(b" 404 " in over_socket(tmp_path / "socket", b"/" + b"x" * 150) for _ in range(200))
        p.terminate()
        assert p.wait(60) == 0
        if options[:1] == ["--log-file"]:
            log = (tmp_path / "log").read_text()
            assert log.count(" 404 ") == 200 and "ready" in log
    finally:
        p.kill()
        os.close(reads)
        os.close(writes)


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_that_cannot_be_written_are_counted(start, tmp_path, form):
    """A file that may not grow, as on a full disk: there is a warning, and once there is room the number of lost lines; a line that was cut is ended."""
    log = tmp_path / "log"
    with start("--log-file", log, "--log-format", form) as s:
        before = resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (700, before[1]))
        for _ in range(30):
            assert s.ask("/props")[0] == 401
        until(lambda: any("warning" in line for line in s.said))
        assert log.stat().st_size == 700
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, before)
        s.ask("/slots")
        until(lambda: "/slots" in log.read_text())
        assert s.end() == 0
    assert sum(f"--log-file {log}: File too large: lines are lost" in line for line in s.said) == 1, s.said
    lines = log.read_text().splitlines()
    if form == "json":
        lost, whole = 0, 0
        for line in lines:
            with contextlib.suppress(ValueError):              # but the one that was cut
                event = json.loads(line)
                lost, whole = lost + event.get("lines", 0), whole + (event.get("path") == "/props")
    else:
        lost, whole = sum(int(n) for n in re.findall(r"lost lines=(\d+)", "\n".join(lines))), sum(" ms=" in line and "/props" in line for line in lines)
    assert lost and lost + whole in (30, 31), lines           # a line may be cut behind what is counted here


# ---- /metrics -----------------------------------------------------------------------------------------------------------------------

HISTOGRAMS = {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds",
              "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds", "vllm:request_prompt_tokens", "vllm:request_generation_tokens"}
# what vLLM's routers and llama-server's dashboards read
OTHERS = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc",
          "vllm:gpu_prefix_cache_queries", "vllm:gpu_prefix_cache_hits", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits",
          "vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success", "llamacpp:kv_cache_usage_ratio", "llamacpp:prompt_tokens",
          "llamacpp:prompt_tokens_cached", "llamacpp:prompt_seconds", "llamacpp:tokens_predicted", "llamacpp:tokens_predicted_seconds",
          "llamacpp:n_decode", "llamacpp:n_tokens_max", "llamacpp:prompt_tokens_seconds", "llamacpp:predicted_tokens_seconds",
          "llamacpp:requests_processing", "llamacpp:requests_deferred", "llamacpp:n_busy_slots_per_decode", "weft:slots", "weft:slots_busy",
          "vllm:cache_config_info", "vllm:lora_requests_info"}        # these two of the Gateway API Inference Extension's defaults


def test_metrics_for_prometheus(start):
    """Counts and sums are those of the answers; buckets grow to the count."""
    with start("-np", "3") as s:
        answers = [s.ask("/v1/chat/completions", {**CHAT, "max_tokens": n}, **KEY)[1] for n in (1, 5, 30, 1)]
        s.ask("/v1/completions", {"prompt": "x", "temperature": -1}, **KEY)
        until(lambda: "\nweft:answers_total 4\n" in s.ask("/metrics", **KEY)[1])       # an answer is counted when it has been given
        _, text = s.ask("/metrics", **KEY)
        assert s.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    assert HISTOGRAMS | OTHERS <= families.keys()
    assert all(f.documentation and f.type in ("counter", "gauge", "histogram") for f in families.values())
    assert len(families) == len(re.findall("^# TYPE", text, re.M))
    model = answers[0]["model"]
    value = lambda name, **labels: next(x.value for f in families.values() for x in f.samples if x.name == name and labels.items() <= x.labels.items())
    for name in HISTOGRAMS:
        buckets = [x for x in families[name].samples if x.name == name + "_bucket"]
        assert all(x.labels["model_name"] == model for x in buckets)
        bounds, counts = [float(x.labels["le"]) for x in buckets], [x.value for x in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf") and counts == sorted(counts)
        assert counts[-1] == value(name + "_count"), name
    usage = [a["usage"] for a in answers]
    prompt, drawn, cached = (sum(u["prompt_tokens"] for u in usage), sum(u["completion_tokens"] for u in usage),
                             sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage))
    assert drawn == 37 and cached > 0
    assert value("vllm:request_prompt_tokens_sum") == value("vllm:prompt_tokens_total") == value("vllm:prefix_cache_queries_total", model_name=model) == prompt
    assert value("vllm:request_generation_tokens_sum") == value("vllm:generation_tokens_total") == value("llamacpp:tokens_predicted_total") == drawn
    assert value("vllm:prefix_cache_hits_total") == value("llamacpp:prompt_tokens_cached_total") == cached
    assert value("llamacpp:prompt_tokens_total") == prompt - cached
    assert value("vllm:time_to_first_token_seconds_count") == value("vllm:e2e_request_latency_seconds_count") == 4
    assert value("vllm:request_generation_tokens_bucket", le="1") == 2 and value("vllm:request_generation_tokens_bucket", le="5") == 3
    assert 0 < value("vllm:inter_token_latency_seconds_count") <= drawn - 4        # tokens that were guessed come together
    assert value("vllm:request_success_total", finished_reason="length") == 4
    size, = (x.labels for x in families["vllm:cache_config_info"].samples)
    assert int(size["num_gpu_blocks"]) * int(size["block_size"]) == 3 * 512 and size["model_name"] == model
    assert next(x.labels for x in families["vllm:lora_requests_info"].samples) == {"max_lora": "0", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    assert (value("weft:slots"), value("weft:slots_busy"), value("vllm:num_requests_running")) == (3, 0, 0)
    assert value("vllm:time_to_first_token_seconds_sum") <= value("vllm:e2e_request_latency_seconds_sum")


def test_promtool(start):
    """Prometheus' own check finds nothing but what vLLM's and llama-server's names are: colons, and a counter without _total."""
    if not shutil.which("promtool"):
        pytest.skip("no promtool (Debian's prometheus has it)")
    with start() as s:
        s.ask("/v1/chat/completions", CHAT, **KEY)
        text = s.ask("/metrics", **KEY)[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    found = {line.split(" ", 1)[1] for line in (done.stdout + done.stderr).splitlines() if "n_tokens_max counter" not in line}
    assert found == {"metric names should not contain ':'"}
