"""What llama.cpp's samplers leave of real logits: writes tests/engine/sampler_peer.json, which tests/engine/test_sampler_peer.c reads.

    record_samplers.py TEXT.txt tests/engine/sampler_peer.json      needs llama-cpp-python (0.3.36, of 2026) and models/tinypy.gguf

The same logits and the same text go through both: the logits are llama.cpp's own after 30 prompts of TEXT (10 as they are, 10 that begin again,
10 dialogues), the 60 best of each with all others out of the game.  Random numbers differ between engines, so what is recorded is what
a draw would see: how many candidates are left, the best four of them, and their probabilities.  XTC runs with probability 1.
Instead of a text, sampler_peer.json itself may be given: its prompts stay as they are, and the cases are those of this file.
"""
import ctypes
import json
import math
import sys
from pathlib import Path

import llama_cpp as L

MODEL = Path(__file__).resolve().parents[2] / "models" / "tinypy.gguf"
BEST, SHOWN = 60, 4
BREAKERS = ["\n", ":", "\"", "*"]
CHAIN = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
OFF = {"temp": 1, "top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1, "top_n_sigma": -1, "repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0,
       "repeat_last_n": 64, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_last_n": 64, "dynatemp_range": 0, "dynatemp_exponent": 1,
       "xtc_probability": 0, "xtc_threshold": .1, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": .1,
       "adaptive_target": -1, "adaptive_decay": .9}
DEFAULT = {"temp": .8, "top_k": 40, "top_p": .95, "min_p": .05}
CASES = [
    {}, DEFAULT, {"temp": 0}, {"temp": .3}, {"temp": 2.5}, {"top_k": 1}, {"top_k": 7}, {"top_p": .5}, {"top_p": .9}, {"top_p": 0}, {"min_p": .02}, {"min_p": .3}, {"min_p": 1},
    {"typical_p": .2}, {"typical_p": .7}, {"top_n_sigma": .5}, {"top_n_sigma": 1}, {"top_n_sigma": 2},
    {"xtc_probability": 1, "xtc_threshold": .05}, {"xtc_probability": 1, "xtc_threshold": .2},
    {"dynatemp_range": .5, "temp": .8}, {"dynatemp_range": 2, "dynatemp_exponent": 3}, {"dynatemp_range": .7, "dynatemp_exponent": .3, "temp": .7},
    {"repeat_penalty": 1.3}, {"repeat_penalty": .7, "repeat_last_n": 10}, {"frequency_penalty": .4}, {"presence_penalty": 1.1}, {"presence_penalty": -.5, "repeat_last_n": 3},
    {"repeat_penalty": 1.1, "frequency_penalty": .2, "presence_penalty": .3, "repeat_last_n": 1000},
    {"dry_multiplier": .8}, {"dry_multiplier": .8, "dry_allowed_length": 0}, {"dry_multiplier": 1.5, "dry_base": 1, "dry_allowed_length": 1}, {"dry_multiplier": .8, "dry_last_n": 1000},
    {"dry_multiplier": .8, "dry_last_n": 12, "dry_allowed_length": 1}, {"dry_multiplier": .01, "dry_base": 20, "dry_last_n": 1000},
    {"dry_multiplier": .8, "dry_allowed_length": 1, "dry_last_n": 1000, "breakers": []}, {"dry_multiplier": .8, "dry_allowed_length": 0, "dry_last_n": 1000, "breakers": ["e", "    "]},
    {"dry_multiplier": .8, "dry_allowed_length": 1, "dry_last_n": 1000, "breakers": ["\nUser:", "self."]},
    {"mirostat": 1}, {"mirostat": 1, "mirostat_tau": 2}, {"mirostat": 2}, {"mirostat": 2, "mirostat_tau": 1.5, "temp": .7},
    {**DEFAULT, "repeat_penalty": 1.1, "dry_multiplier": .8, "dry_last_n": 1000, "typical_p": .95, "xtc_probability": 1, "xtc_threshold": .1, "dynatemp_range": .2},
    {"samplers": "adaptive_p", "adaptive_target": .3}, {"samplers": "top_k;adaptive_p", "top_k": 5, "adaptive_target": .05, "adaptive_decay": .5}, {"samplers": "adaptive_p", "adaptive_target": -1},
    {**DEFAULT, "samplers": "adaptive_p;top_k;temperature;min_p", "adaptive_target": .7, "adaptive_decay": .99}, {"samplers": "top_p;adaptive_p", "top_p": .9, "adaptive_target": 1},
    {**DEFAULT, "samplers": "temperature;top_p;min_p"}, {**DEFAULT, "samplers": "min_p;temperature;top_k;penalties;dry", "repeat_penalty": 1.2, "dry_multiplier": 1},
]


def prompts(text):
    pieces = [text[at:at + 300] for at in range(0, 30 * 1500, 1500)]
    yield from pieces[:10]
    for p in pieces[10:20]:
        yield p + "\n" + p[:len(p) // 3]
    for i, p in enumerate(pieces[20:30]):
        yield "".join(f"\nUser: {line}\nBot: \"{line[:20]}\" * {n % 3}:" for n, line in enumerate(p.split("\n")[:6] * 2)) + "\nUser: " + p[:5 + 3 * i]


def tokenize(vocab, text):
    data = text.encode()
    ids = (L.llama_token * (len(data) + 8))()
    return list(ids[:L.llama_tokenize(vocab, data, len(data), ids, len(ids), False, False)])


def logits_after(context, n_vocab, ids):
    L.llama_memory_clear(L.llama_get_memory(context), True)
    tokens = (L.llama_token * len(ids))(*ids)
    assert L.llama_decode(context, L.llama_batch_get_one(tokens, len(ids))) == 0
    return list(L.llama_get_logits_ith(context, -1)[:n_vocab])


def chain_of(vocab, n_vocab, p, breakers):
    chain = L.llama_sampler_chain_init(L.llama_sampler_chain_default_params())
    texts = (ctypes.c_char_p * max(len(breakers), 1))(*[b.encode() for b in breakers])
    make = {
        "penalties": lambda: L.llama_sampler_init_penalties(n_vocab, p["repeat_last_n"], p["repeat_penalty"], p["frequency_penalty"], p["presence_penalty"]),
        "dry": lambda: L.llama_sampler_init_dry(vocab, p["dry_multiplier"], p["dry_base"], p["dry_allowed_length"], p["dry_last_n"], texts, len(breakers)),
        "top_n_sigma": lambda: L.llama_sampler_init_top_n_sigma(p["top_n_sigma"]), "top_k": lambda: L.llama_sampler_init_top_k(p["top_k"]),
        "typ_p": lambda: L.llama_sampler_init_typical(p["typical_p"], 0), "top_p": lambda: L.llama_sampler_init_top_p(p["top_p"], 0),
        "min_p": lambda: L.llama_sampler_init_min_p(p["min_p"], 0), "xtc": lambda: L.llama_sampler_init_xtc(p["xtc_probability"], p["xtc_threshold"], 0, 1),
        "temperature": lambda: L.llama_sampler_init_temp_ext(p["temp"], p["dynatemp_range"], p["dynatemp_exponent"])}
    names = p["samplers"].split(";") if "samplers" in p else CHAIN
    adapts = "adaptive_p" in names                                            # the last one, as llama.cpp's own programs put it
    names = [name for name in names if name != "adaptive_p"]
    stages = [make[name]() for name in names] if not p["mirostat"] else [L.llama_sampler_init_temp(p["temp"])]
    if p["mirostat"] == 1:
        stages.append(L.llama_sampler_init_mirostat(n_vocab, 1, p["mirostat_tau"], p["mirostat_eta"], 100))
    if p["mirostat"] == 2:
        stages.append(L.llama_sampler_init_mirostat_v2(1, p["mirostat_tau"], p["mirostat_eta"]))
    if adapts:
        init = L.llama_cpp._lib.llama_sampler_init_adaptive_p                 # of which the package has no declaration
        init.argtypes, init.restype = [ctypes.c_float, ctypes.c_float, ctypes.c_uint32], L.llama_cpp._lib.llama_sampler_init_dist.restype
        stages.append(init(p["adaptive_target"], p["adaptive_decay"], 1))
    for stage in stages:
        L.llama_sampler_chain_add(chain, stage)
    return chain


def left_of(chain, prompt):
    data = (L.llama_token_data * BEST)(*[L.llama_token_data(id, logit, 0) for id, logit in zip(prompt["ids"], prompt["logits"])])
    array = L.llama_token_data_array(data, BEST, -1, False)
    for id in prompt["past"]:
        L.llama_sampler_accept(chain, id)
    L.llama_sampler_apply(chain, ctypes.byref(array))
    left = [(array.data[i].logit, array.data[i].id) for i in range(array.size)]
    best = max(logit for logit, _ in left)
    weighed = sorted(((-math.exp(logit - best), id) for logit, id in left if logit > -math.inf))
    total = sum(w for w, _ in weighed)
    weighed = [(w, id) for w, id in weighed if w / total > 1e-30]             # what is as unlikely depends on float or double alone
    return {"n": len(weighed), "ids": [id for _, id in weighed[:SHOWN]], "p": [float(f"{w / total:.6g}") for w, _ in weighed[:SHOWN]]}


def main():
    text, out = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    L.llama_backend_init()
    model = L.llama_model_load_from_file(str(MODEL).encode(), L.llama_model_default_params())
    context = L.llama_init_from_model(model, L.llama_context_default_params())
    vocab = L.llama_model_get_vocab(model)
    n_vocab = L.llama_vocab_n_tokens(vocab)
    rows = json.loads(text)["prompts"] if sys.argv[1].endswith(".json") else []
    for prompt in prompts(text) if not rows else []:
        ids = tokenize(vocab, prompt)[-200:]
        logits = [float(f"{x:.7g}") for x in logits_after(context, n_vocab, ids)]
        best = sorted(range(n_vocab), key=lambda id: (-logits[id], id))[:BEST]
        rows.append({"past": ids, "ids": best, "logits": [ctypes.c_float(logits[id]).value for id in best]})
    cases = []
    for case in CASES:
        p, breakers = {**OFF, **case}, case.get("breakers", BREAKERS)
        seen = []
        for row in rows:
            chain = chain_of(vocab, n_vocab, p, breakers)
            seen.append(left_of(chain, row))
            L.llama_sampler_free(chain)
        cases.append({"params": {k: v for k, v in case.items() if k != "breakers"}, "breakers": breakers, "seen": seen})
    lines = ['{"n_vocab": %d,\n"off": %s,\n"prompts": [\n' % (n_vocab, json.dumps(OFF)), ",\n".join(json.dumps({**row, "logits": [float(f"{x:.9g}") for x in row["logits"]]}, separators=(",", ":")) for row in rows),
             '],\n"cases": [\n', ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases), "]}\n"]
    out.write_text("".join(lines))


if __name__ == "__main__":
    main()
