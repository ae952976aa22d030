"""weft profile: rows that add up, bytes that are those of the file, and figures that move with what is asked."""
import json
from collections import Counter

import pytest

KEYS = {"token_us", "step_us", "step_tokens", "limit_gb_s", "overhead_us", "wait_us", "kernels_per_token", "kernels_per_block", "fusion_rate", "kernels", "no_counters", "advice"}
ROW = {"name", "role", "count", "us", "wait_us", "pct", "gb_s", "gflop_s", "limit_share", "bytes", "flops", "cycles", "instructions", "cache_misses", "branch_misses"}


@pytest.fixture(scope="module")
def profile(run_weft, tinypy):
    def run(*args, model=tinypy, **more):
        done = run_weft(["profile", "-m", model, "--json", *args], **more)
        assert done.returncode == 0, done.err
        p = json.loads(done.out)
        assert set(p) == KEYS and all(set(k) == ROW for k in p["kernels"])
        return p

    return run


def by_role(p, key):
    sums = Counter()
    for k in p["kernels"]:
        sums[k["role"]] += k[key]
    return sums


def check_sums(p):
    us = sum(k["us"] for k in p["kernels"])
    assert us + p["overhead_us"] == pytest.approx(p["step_us"], rel=1e-4)
    assert sum(k["pct"] for k in p["kernels"]) == pytest.approx(100 * us / p["step_us"], rel=1e-4)
    assert sum(k["wait_us"] for k in p["kernels"]) == pytest.approx(p["wait_us"], rel=1e-3, abs=1e-3)
    assert all(0 <= k["wait_us"] <= k["us"] * 1.001 for k in p["kernels"])
    assert [k["us"] for k in p["kernels"]] == sorted((k["us"] for k in p["kernels"]), reverse=True)
    for k in p["kernels"]:
        assert k["gb_s"] == pytest.approx(k["bytes"] / k["us"] / 1e3, rel=1e-4) and k["gflop_s"] == pytest.approx(k["flops"] / k["us"] / 1e3, rel=1e-4)
        assert k["limit_share"] == pytest.approx(k["gb_s"] / p["limit_gb_s"], rel=1e-4)


def test_one_token(profile, run_weft, tinypy, tmp_path):
    p = profile("-n", "16", "-d", "200")              # more than one page of the caches, as a run has
    check_sums(p)
    assert p["step_tokens"] == 1 and p["token_us"] == p["step_us"] > 0 and .1 < p["limit_gb_s"] < 10000
    layers = 6
    counts = by_role(p, "count")
    assert counts["blk.*.ffn_down"] == counts["blk.*.attn_output"] == layers
    assert sum(k["count"] for k in p["kernels"]) >= p["kernels_per_token"] == pytest.approx(layers * p["kernels_per_block"])
    assert run_weft(["run", "-m", tinypy, "-p", "x", "-n", "1", "--stats", tmp_path / "stats"]).returncode == 0
    stats = json.loads((tmp_path / "stats").read_text())
    assert (stats["kernels_per_token"], stats["fusion_rate"]) == pytest.approx((p["kernels_per_token"], p["fusion_rate"]), rel=1e-5)


def test_bytes_are_those_of_the_file(profile, run_weft, tinypy):
    tensors = json.loads(run_weft(["inspect", "-m", tinypy, "--json"]).out)["tensors"]
    size = Counter()
    for t in tensors:
        size[t["name"].split(".")[-2]] += t["bytes"]
    p = profile("-n", "2")
    read = by_role(p, "bytes")
    for name in ("ffn_down", "attn_output", "attn_k"):       # and a few activations
        assert size[name] <= read["blk.*." + name] <= 1.1 * size[name], name
    assert sum(read.values()) >= sum(t["bytes"] for t in tensors)
    flops = by_role(p, "flops")                              # two for every weight, and little else
    n = sum(t["elements"] for t in tensors if t["name"].endswith("ffn_down.weight"))
    assert 2 * n <= flops["blk.*.ffn_down"] <= 2.3 * n


def test_every_kernel_says_what_it_is_for(profile, run_weft, tinypy):
    """The embedding is at both ends of this model; what reads no weight has a name as well."""
    p = profile("-n", "2", "-d", "200")
    counts, read = by_role(p, "count"), by_role(p, "bytes")
    embedding = next(t for t in json.loads(run_weft(["inspect", "-m", tinypy, "--json"]).out)["tensors"] if t["name"] == "token_embd.weight")
    assert counts["token_embd"] == counts["output"] == 1 and read["token_embd"] < 1e4 and embedding["bytes"] <= read["output"] <= 1.1 * embedding["bytes"]
    assert counts["positions"] == 2 and counts["quantise activations"] % 6 == 0 and counts["attention"] >= 12     # sine and cosine; at least two in each layer
    assert set(counts) == {"token_embd", "output", "output_norm", "positions", "quantise activations", "attention",
                           *("blk.*." + w for w in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_down"))}


def test_depth(profile):
    near, far = profile("-n", "2"), profile("-n", "2", "-d", "300")
    assert by_role(far, "bytes")["attention"] > 2.5 * by_role(near, "bytes")["attention"]      # three pages, not one
    assert by_role(far, "bytes")["blk.*.ffn_down"] == by_role(near, "bytes")["blk.*.ffn_down"]


def test_a_chunk_of_a_prompt(profile):
    p = profile("-p", "48", "-n", "3")
    check_sums(p)
    assert p["step_tokens"] == 48 and p["token_us"] == pytest.approx(p["step_us"] / 48, rel=1e-4)
    one = profile("-n", "2")
    ratio = by_role(p, "flops")["blk.*.attn_k"] / by_role(one, "flops")["blk.*.attn_k"]
    assert 47 < ratio < 49
    assert by_role(p, "bytes")["blk.*.attn_k"] < 4 * by_role(one, "bytes")["blk.*.attn_k"]
    assert profile("-p", "1000", "-ub", "32", "-n", "1")["step_tokens"] == 32


def test_nearly_all_of_a_token_is_in_kernels(profile, make_gguf):
    """With layers of a real size, starting and ending a token is nothing; kernels and token then agree within 3 %."""
    path = make_gguf("llama-3.2-1b:q4_0", "--set", "n_layer=2", "--set", "n_vocab=4096")
    for _ in range(3):               # where other programs run, a token also waits for a processor; more threads would all the more
        p = profile("-n", "16", "-t", "1", model=path)
        check_sums(p)
        inside = sum(k["us"] for k in p["kernels"]) / p["token_us"]
        if inside >= .97:
            break
    assert inside >= .97
    heavy = by_role(p, "pct")
    assert heavy.most_common(1)[0][0].startswith("blk.*.ffn_")


def test_the_table(run_weft, tinypy):
    done = run_weft(["profile", "-m", tinypy, "-n", "4", "-t", "1"])
    assert done.returncode == 0 and "1 thread," in done.out
    for words in ("role ", "blk.*.ffn_down ", "all kernels ", "overhead ", "token ", "memory limit ", "kernels  "):
        assert "\n" + words in done.out, words
    assert "a chunk of 8 tokens" in run_weft(["profile", "-m", tinypy, "-n", "1", "-p", "8"]).out


def test_the_columns_stand_below_one_another(run_weft, tinypy):
    """Whatever the length of a kernel's name."""
    lines = run_weft(["profile", "-m", tinypy, "-n", "2"]).out.splitlines()
    rows = [line for line in lines if line.endswith("%") and "overhead" not in line]
    assert len(rows) > 5 and len({len(row) for row in rows}) == 1


def test_advice(profile, run_weft, tinypy):
    """More threads than cores is one thing that slows a machine down; what else there is depends on this one."""
    cores = json.loads(run_weft(["env", "--json"]).out)["machine"]["threads"]
    says = f"threads: {cores + 1} share {cores} core"
    assert any(line.startswith(says) for line in profile("-t", str(cores + 1))["advice"])
    assert not any(line.startswith("threads: ") for line in profile("-t", str(cores))["advice"])
    assert f"advice        {says}" in run_weft(["profile", "-m", tinypy, "-n", "2", "-t", str(cores + 1)]).out


def test_counters(profile, run_weft, tinypy):
    """Counted where the processor lets us, and said why not where it does not."""
    p = profile("-n", "4")
    table = run_weft(["profile", "-m", tinypy, "-n", "1"]).out
    if p["no_counters"]:
        assert all(k["cycles"] is None and k["branch_misses"] is None for k in p["kernels"])
        assert "\ncounters      " + p["no_counters"] in table and " IPC " not in table
        assert any(words in p["no_counters"] for words in ("not permitted", "no hardware counters", "perf_event_open"))
        return
    assert " IPC " in table
    for k in p["kernels"]:
        if k["flops"] > 1e5:
            assert .05 < k["instructions"] / k["cycles"] < 10 and k["cache_misses"] >= 0


def test_devices_without_a_limit(profile):
    p = profile("-n", "1", env={"DEV": "NULL"})
    assert p["limit_gb_s"] is None and all(k["limit_share"] is None for k in p["kernels"]) and p["kernels_per_token"] > 0


def test_too_deep(run_weft, tinypy):
    done = run_weft(["profile", "-m", tinypy, "-d", "500000000"])
    assert done.returncode == 1 and done.err.startswith("weft: error: ") and "context" in done.err


def test_a_picture(run_weft, tinypy, tmp_path):
    """The encoder's own kernels: in them are the bytes of the file, and two operations for each weight and row, beside a few for each output."""
    image, projector, gguf = (pytest.importorskip(name) for name in ("PIL.Image", "projector", "gguf"))
    encoder = projector.write(tmp_path / "mmproj.gguf")
    image.effect_noise((900, 700), 90).save(tmp_path / "noise.png")
    args = ["profile", "-m", tinypy, "--mmproj", encoder, "--image", tmp_path / "noise.png", "-n", "2"]
    done = run_weft([*args, "--json"])
    assert done.returncode == 0, done.err
    p = json.loads(done.out)
    assert set(p) == KEYS | {"parts", "before_us"} and all(set(k) == ROW for k in p["kernels"])
    check_sums(p)
    weights = {t.name: (t.n_elements, int(t.shape[-1])) for t in gguf.GGUFReader(encoder).tensors}
    (layers,) = gguf.GGUFReader(encoder).fields["clip.vision.block_count"].contents(),
    patches, rows = p["step_tokens"] * gguf.GGUFReader(encoder).fields["clip.vision.projector.scale_factor"].contents() ** 2, p["step_tokens"]
    counts, flops = by_role(p, "count"), by_role(p, "flops")
    assert {"v.blk.*.ffn_up", "v.blk.*.ffn_down", "v.blk.*.attn_q", "v.patch_embd", "mm.model.fc"} <= set(counts) and counts["v.blk.*.ffn_down"] % layers == 0
    for role, n in (("v.blk.*.ffn_down", layers * patches), ("mm.model.fc", rows)):
        elements, outputs = weights[role.replace("*", "0") + ".weight"]
        assert 2 * n * elements <= flops[role] <= 2 * n * elements + 24 * n * outputs, role
    assert p["parts"] > 1 and p["before_us"] > 0
    shown = run_weft(args).out
    assert f"{rows} rows of " in shown and f"(the first of {p['parts']} tiles or windows)" in shown and f"encoding {p['parts']} x " in shown
    assert run_weft([*args, "-p", "8"]).returncode == 2 and "--mmproj FILE names it" in run_weft([*args[:3], "--no-mmproj", *args[5:]]).err
