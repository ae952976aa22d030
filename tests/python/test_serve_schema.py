"""schemathesis on /openapi.json: what the description of the interfaces says of requests and answers is what they do.

One of its checks is left out: that whatever fits the description is accepted. A prompt may be longer than the context, a text no grammar, an id not in the
vocabulary, and no schema says so. Models that do not rank texts, and those whose file does not say how a vector is made, answer 501."""
import importlib.util
import re
import subprocess
import sys

import pytest
from serving import TEMPLATE, Server

THREADS = 1

CONFIG = """[checks]
positive_data_acceptance.enabled = false
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]
"""
# schemathesis gives each field that a request does not vary its least value, and a "keep_alive" of 0 sends the model away:
# of 12,500 requests thousands loaded it anew, which took most of this test's time. Of each operation one such request in 16
# stays as it is; the others keep the model for five minutes, in the same form (a text or a number).
HOOKS = """import collections
import schemathesis

met = collections.Counter()


@schemathesis.hook
def before_call(context, case, kwargs):
    kept = case.body.get("keep_alive") if isinstance(case.body, dict) else None
    if str(kept) in ("0", "0.0"):
        met[case.operation.label] += 1
        if met[case.operation.label] % 16:
            case.body = {**case.body, "keep_alive": "5m" if isinstance(kept, str) else 300}
"""


TWINS = "input_tokens$"        # their bodies are those of the endpoints whose prompts they count


@pytest.mark.skipif(not importlib.util.find_spec("schemathesis"), reason="schemathesis is not there")
def test_what_openapi_says(weft, weft_env, tinypy, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text(TEMPLATE)
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    hooks = tmp_path / "weft_hooks.py"
    hooks.write_text(HOOKS)
    with Server(weft, weft_env, tinypy, "-c", "96", "-n", "4", "-t", "1", "--chat-template-file", template) as s:
        done = subprocess.run([sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", s.url + "/openapi.json", "--exclude-path-regex", TWINS, "--phases", "coverage,fuzzing",
                               "--max-examples", "10", "--seed", "1", "--no-shrink", "--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "60",
                               "--generation-database", "none"],
                              capture_output=True, text=True, timeout=1700, cwd=tmp_path,
                              env={**weft_env, "SCHEMATHESIS_HOOKS": "weft_hooks", "PYTHONPATH": str(tmp_path)})
        assert done.returncode == 0, done.stdout + done.stderr
        assert s.process.poll() is None and s.ask("/health")[0] == 200
        methods = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
        paths = s.ask("/openapi.json")[1]["paths"]
        operations = sum(len(methods & set(row)) for path, row in paths.items() if not re.search(TWINS, path))
        assert f"Tested: {operations - 1}" in done.stdout, done.stdout           # it leaves the description itself out
