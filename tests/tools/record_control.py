"""Makes tests/records/control/llama.json: log-probabilities of llama.cpp's server for small random models with a control vector.

usage: record_control.py LLAMA_SERVER OUT.json   (needs gguf, numpy and a build of llama.cpp; no part of the tests)

nemotron_h is left to its layers with a feed-forward: llama.cpp adds nothing to what leaves the others.
"""
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import make_model

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import test_control  # noqa: E402

PORT = 18471


def log_probabilities(server, model, ids, *options):
    process = subprocess.Popen([server, "-m", model, "--port", str(PORT), "-c", "256", "-np", "1", "-t", "2", "--no-warmup", *options],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{PORT}"
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"{server} ended: {process.returncode}")
            try:
                if urllib.request.urlopen(address + "/health").status == 200:
                    break
            except OSError:
                time.sleep(0.1)
        body = json.dumps({"prompt": ids, "n_predict": 1, "n_probs": 10000}).encode()
        got = json.load(urllib.request.urlopen(urllib.request.Request(address + "/completion", body, {"Content-Type": "application/json"})))
        return {t["id"]: t["logprob"] for t in got["completion_probabilities"][0]["top_logprobs"]}
    finally:
        process.kill()
        process.wait()


def main(server, out):
    records = {}
    with tempfile.TemporaryDirectory() as folder:
        for family, layers in test_control.RECORDED.items():
            model, vector = Path(folder) / "model.gguf", Path(folder) / "vector.gguf"
            make_model.write(family, model)
            test_control.write(vector, test_control.directions(model))
            options = ["--control-vector-scaled", f"{vector}:0.75", *(["--control-vector-layer-range", *map(str, layers)] if layers else [])]
            got, plain = (log_probabilities(server, model, test_control.IDS, *some) for some in (options, []))
            records[family] = {"plain": [round(plain[i], 5) for i in sorted(plain)], "moved": [round(got[i], 5) for i in sorted(got)]}
    Path(out).write_text(json.dumps(records).replace('"plain"', '\n"plain"').replace('"moved"', '\n"moved"') + "\n")


main(*sys.argv[1:])
