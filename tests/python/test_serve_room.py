"""weft serve: answers of models with windows or recurrent states give way when the cache is full, evaluate their tokens again, and say what they would say alone:
on the CPU, whose memory is short, and on a device, whose pages are few. tests/serve/test_sched.c has windows on the CPU."""
import concurrent.futures
import os

import pytest
from serving import Server

pytest.importorskip("gguf")

THREADS = 2
ANSWERS = 4


def gives_way(weft, env, model, context, prompt, answer):
    with Server(weft, env, model, "-c", context, "-ctk", "f32", "-ctv", "f32", "-np", ANSWERS) as s:
        def ask(i):
            ids = [40 + i] + [33 + (7 * k + i) % 90 for k in range(prompt)]
            status, o = s.ask("/v1/completions", {"prompt": ids, "max_tokens": answer, "temperature": 1, "seed": i, "ignore_eos": True, "logprobs": 1}, timeout=500)
            assert status == 200, o
            return o["choices"]
        alone = [ask(i) for i in range(ANSWERS)]
        assert s.metric("weft:gave_way_total") == 0
        with concurrent.futures.ThreadPoolExecutor(ANSWERS) as at_once:
            assert list(at_once.map(ask, range(ANSWERS))) == alone
        assert s.metric("weft:gave_way_total") > 0


def test_short_memory(weft, weft_env, make_model, built_tool, sanitized, tmp_path):
    """A recurrent model whose pages take 4 MiB: there are some 17, and each answer needs five."""
    if sanitized:
        pytest.skip("libmeminfo.so would come before the sanitizers")
    make_model.write("qwen35", tmp_path / "m.gguf", n_ctx=4096, heads=16, kv=16, head_dim=256)
    free = os.stat(tmp_path / "m.gguf").st_size // 1024 + 68 * 1024
    env = dict(weft_env, LD_PRELOAD=built_tool("libmeminfo.so", "WEFT_MEMINFO"), MEMINFO=f"MemTotal: {4 * free} kB\nMemAvailable: {free} kB\n")
    gives_way(weft, env, tmp_path / "m.gguf", 640, 200, 400)


@pytest.mark.parametrize("family", ["gemma3", "lfm2"])
def test_few_pages(weft, weft_env, run_weft, make_model, tmp_path, family):
    """OpenCL, eight pages: each answer needs four."""
    said = next(line for line in run_weft(["env"]).out.splitlines() if line.lstrip().startswith("CL: "))
    if "no driver is installed" in said or "needs its loader" in said:
        (pytest.fail if os.environ.get("WEFT_SKIPS") else pytest.skip)(f"no OpenCL driver: {said.strip()}")
    make_model.write(family, tmp_path / "m.gguf", n_ctx=4096)
    gives_way(weft, dict(weft_env, DEV="CL"), tmp_path / "m.gguf", 640, 200, 300)
