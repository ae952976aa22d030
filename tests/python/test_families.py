"""Every family of models against records of llama.cpp, on small files that tests/tools/make_model.py makes.

The weights are F32 but where the name says otherwise, so that both programs compute the same and differ by rounding alone: bounds are
tighter than those for records of quantised files.  The prompt goes through at once and, for families with parts of their own, in chunks and token by token.
"""
import json
import math
import random
import subprocess
from pathlib import Path

import pytest

THREADS = 1

MEAN_KL, GAP = 1e-4, 0.05
QUANTISED_KL = {"q4_0": 2e-3, "q8_0": 2e-3, "mxfp4": 1e-2}      # llama.cpp rounds activations to 8 bits its own way
RECORDS = Path(__file__).resolve().parents[1] / "records"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))


def test_every_family_has_a_record(make_model):
    assert sorted(make_model.FAMILIES) == NAMES


def forced(run_weft, path, record, prompt, tokens, *more):
    """Log-probabilities of the whole vocabulary before each of these tokens."""
    done = run_weft(["run", "-m", path, "-c", record["n_ctx"], "--ids", ",".join(map(str, prompt)), "--force", ",".join(map(str, tokens)), "--json",
                     "--top-logprobs", 100000, *more])
    assert done.returncode == 0, done.err
    return [dict(map(tuple, json.loads(line)["top"])) for line in done.stdout.splitlines()]


def divergence(recorded, ours):
    """KL(recorded || ours) of the recorded tokens, and of all others as one."""
    p, q = [math.exp(x) for _, x in recorded], [math.exp(ours[token]) for token, _ in recorded]
    p.append(max(1 - sum(p), 0))
    q.append(max(1 - sum(q), 0))
    return sum(a * math.log(a / max(b, 1e-12)) for a, b in zip(p, q) if a > 1e-9)


def check(name, recorded, ours):
    kl = [divergence(r, mine) for r, mine in zip(recorded, ours, strict=True)]
    print(f"{name}: mean KL {sum(kl) / len(kl):.2g}, largest {max(kl):.2g}")
    bound = next((most for quant, most in QUANTISED_KL.items() if quant in name), MEAN_KL)
    assert sum(kl) / len(kl) <= bound, f"mean KL {sum(kl) / len(kl):.3g}, each {[f'{x:.2g}' for x in kl]}"
    for i, (r, mine) in enumerate(zip(recorded, ours)):
        assert r[0][1] - r[1][1] <= GAP or max(mine, key=mine.get) == r[0][0], f"step {i}"


@pytest.mark.parametrize("name", NAMES)
def test_family(run_weft, make_model, tmp_path, name):
    path, record = tmp_path / f"{name}.gguf", json.loads((RECORDS / f"{name}.json").read_text())
    make_model.write(name, path)
    prompt, tokens = record["prompt"], record["tokens"]
    at_once = forced(run_weft, path, record, prompt, tokens)
    check(name, record["steps"], at_once)
    if make_model.FAMILIES[name]["layers"] == 2:            # made of parts that other families test in all ways
        return
    one_by_one = forced(run_weft, path, record, prompt[:1], prompt[1:] + tokens)
    check(f"{name}, token by token", list(record["after"].values()) + record["steps"],
          [one_by_one[int(n) - 1] for n in record["after"]] + one_by_one[len(prompt) - 1:])
    chunks = forced(run_weft, path, record, prompt, tokens[:1], "-ub", 7)[0]
    for other in (chunks, one_by_one[len(prompt) - 1]):
        assert other == at_once[0]


# Going back to an earlier position, and cutting a sequence anywhere, change nothing: states of fixed size have to be made again, windows and
# caches to be read again.

@pytest.mark.parametrize("name", ["lfm2", "qwen35", "granitehybrid", "nemotron_h", "gemma3"])
def test_any_cut_and_back_again(run_weft, built_tool, weft_env, make_model, tmp_path, name):
    path, rng = tmp_path / f"{name}.gguf", random.Random(name)
    make_model.write(name, path)
    ids = [rng.randrange(make_model.FAMILIES[name]["n_vocab"] - 2) for _ in range(48)]
    other = [rng.randrange(make_model.FAMILIES[name]["n_vocab"] - 2) for _ in range(20)]

    def decode(steps, chunk=0):
        text = "".join(f"{pos} {' '.join(map(str, part))}\n" for pos, part in steps)
        done = subprocess.run([built_tool("decode_tool", "WEFT_DECODE_TOOL"), path, "64", str(chunk)], input=text.encode(), env=weft_env, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode()
        return [[float(x) for x in line.split()] for line in done.stdout.splitlines()]

    whole = decode([(0, ids)])[0]
    cuts = [0, 1, 6, 20, 23, 24, 40, 48]
    in_parts = decode([(a, ids[a:b]) for a, b in zip(cuts, cuts[1:])])[-1]
    there_and_back = decode([(0, ids[:30]), (30, other), (13, other), (13, ids[13:20]), (5, other[:2]), (5, ids[5:])], chunk=5)[-1]
    for logits in (in_parts, there_and_back):
        assert logits == whole
