"""Adapters in requests: each answer is that of a model which has just its adapters, whoever is in work beside it."""
import itertools
import shutil
import subprocess
import threading

import pytest
import test_caches
import test_lora
from serving import Server, until

THREADS = 1

SCALES = [(0, 0), (1, 0), (0, 0.5), (1, 0.5), (-0.25, 2)]
# names of weights, and a family whose layers differ: attention alone, windows, recurrent layers, latent attention and experts
FAMILIES = {"llama-yarn": ["attn_q.", "ffn_", "output."], "gemma3": ["attn_k.", "ffn_up"], "qwen35": ["attn_q.", "attn_qkv", "ssm_out", "ffn_"],
            "deepseek2-lite": ["attn_q.", "attn_kv_a_mqa", "attn_output", "ffn_down.", "ffn_up_exps", "ffn_down_exps"]}
PROMPTS = [[5, 17, 200, 3, 99, 42, 7, 311, 250, 8, 64, 12], [9, 4, 77], list(range(30, 180))]


@pytest.fixture(params=FAMILIES)
def family(request, make_model, tmp_path):
    """A model, and the options that name two adapters of it."""
    name, model = request.param, tmp_path / "model.gguf"
    make_model.write(name, model)
    arch = test_lora.gguf.GGUFReader(model).get_field("general.architecture").contents()
    for seed in (1, 2):
        test_lora.write(tmp_path / f"{seed}.gguf", arch, test_lora.of_model(model, FAMILIES[name], 2 + seed, seed)[0])
    return model, [tmp_path / "1.gguf", tmp_path / "2.gguf"]


def asked(prompt, scales):
    return {"prompt": prompt, "n_predict": 16, "temperature": 0, "ignore_eos": True, "return_tokens": True, "n_probs": 3,
            "lora": [{"id": i, "scale": scale} for i, scale in enumerate(scales) if scale]}


def answers(s, requests):
    """All at once."""
    got = [None] * len(requests)

    def ask(i):
        got[i] = s.ask("/completion", asked(*requests[i]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(status == 200 for status, _ in got), got
    return [one for _, one in got]


def what(answer):
    return answer["tokens"], [[(t["id"], t["logprob"]) for t in p["top_logprobs"]] for p in answer["completion_probabilities"]]


def test_each_request_has_its_own(weft, weft_env, family):
    model, adapters = family
    goes_back = not test_lora.gguf.GGUFReader(model).get_field("qwen35.ssm.state_size")      # recurrent layers do not
    requests = list(itertools.product(PROMPTS, SCALES))
    expected = []
    for scales in SCALES:
        options = [word for path, scale in zip(adapters, scales) if scale for word in ("--lora-scaled", f"{path}:{scale}")]
        with Server(weft, weft_env, model, "-c", "512", *options) as s:
            expected.append([what(s.ask("/completion", {**asked(prompt, ()), "lora": None})[1]) for prompt in PROMPTS])
    assert len({str(one) for one in expected}) == len(SCALES)
    with Server(weft, weft_env, model, "-c", "512", "-np", "16", "--lora", adapters[0], "--lora", adapters[1]) as s:
        assert what(s.ask("/completion", asked(PROMPTS[0], (0, 0)))[1]) == expected[0][0]           # first of all, and nobody beside it
        for _ in range(2):
            for (prompt, scales), got in zip(requests, answers(s, requests)):
                assert what(got) == expected[SCALES.index(scales)][PROMPTS.index(prompt)], (prompt, scales)
        alone = [s.ask("/completion", asked(PROMPTS[2], scales))[1] for scales in (SCALES[1], SCALES[1], SCALES[4], (3, 0))]
        assert (alone[1]["timings"]["cache_n"] >= 128) == goes_back and not alone[3]["timings"]["cache_n"]
        assert [what(one) for one in alone[:3]] == [expected[i][2] for i in (1, 1, 4)]


def test_what_is_kept_has_the_scales_of_the_start(weft, weft_env, tinypy, tmp_path):
    """Files have what was evaluated with the scales that the server began with, and no request with others finds it."""
    test_lora.write(tmp_path / "1.gguf", "llama", test_lora.of_model(tinypy, ["attn_q.", "ffn_up"], 4)[0])
    options = ["-v", "--lora", tmp_path / "1.gguf", "--keep-in", tmp_path / "kept", "--slot-save-path", tmp_path, "-c", "512"]
    (tmp_path / "kept").mkdir()
    long = PROMPTS[2] * 2
    other, usual = asked(long, (0.5,)), asked(long, (1,))
    with Server(weft, weft_env, tinypy, *options) as s:
        first = [s.ask("/completion", {**ask, "id_slot": i})[1] for i, ask in enumerate((other, usual))]
        assert [one["timings"]["cache_n"] for one in first] == [0, 0]
        assert s.ask("/slots/1?action=save", {"filename": "usual"})[0] == 200
        status, got = s.ask("/slots/0?action=save", {"filename": "other"})
        assert status == 501 and "adapters" in got["error"]["message"]
        until(lambda: test_caches.learned(s))
        assert s.end() == 0
    with Server(weft, weft_env, tinypy, *options) as s:
        until(lambda: test_caches.learned(s))
        again = [s.ask("/completion", ask)[1] for ask in (other, usual)]
        assert [one["timings"]["cache_n"] > 0 for one in again] == [False, True]
        assert [what(one) for one in again] == [what(one) for one in first]
        assert s.ask("/slots/3?action=restore", {"filename": "usual"})[0] == 200


@pytest.mark.parametrize("wrong", [[{"id": 2, "scale": 1}], [{"id": 0}], [{"scale": 1}], {"id": 0}, "a", [1], [{"id": -1, "scale": 1}],
                                   [{"id": 0, "scale": 1}, {"id": 0, "scale": 2}], [{"id": 0, "scale": 1}, {"id": 0, "scale": 1}]])
def test_what_is_no_adapter(weft, weft_env, tinypy, tmp_path, wrong):
    test_lora.write(tmp_path / "1.gguf", "llama", test_lora.of_model(tinypy, ["attn_q."], 4)[0])
    with Server(weft, weft_env, tinypy, "--lora", tmp_path / "1.gguf") as s:
        assert s.ask("/completion", {"prompt": "x", "n_predict": 1, "lora": wrong})[0] == 400
        assert s.ask("/lora-adapters", wrong)[0] == 400


def test_a_scale_that_makes_no_numbers(weft, weft_env, tinypy, tmp_path):
    """Its own request fails; those in the same steps are answered as ever."""
    test_lora.write(tmp_path / "1.gguf", "llama", test_lora.of_model(tinypy, ["attn_q.", "ffn_up", "ffn_down"], 4)[0])
    with Server(weft, weft_env, tinypy, "-c", "512", "-np", "8", "--lora", tmp_path / "1.gguf", "--lora-init-without-apply") as s:
        usual = what(s.ask("/completion", asked(PROMPTS[0], (0,)))[1])
        got = [None] * 8

        def ask(i):
            got[i] = s.ask("/completion", {**asked(PROMPTS[0], (0 if i % 2 else 1e6,)), "n_predict": 16 if i % 2 else 4})

        for _ in range(3):
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert all(status == 200 and what(answer) == usual for status, answer in got[1::2]), got
            assert all(status == 500 and "scale of an adapter or a control vector is too large" in answer["error"]["message"] for status, answer in got[::2]), got
    done = run_of(weft, weft_env, tinypy, f"{tmp_path / '1.gguf'}:1e39")
    assert done.returncode == 1 and "the scale of an adapter must be a number" in done.stderr


def test_an_adapter_for_small_scales(weft, weft_env, make_model, tmp_path):
    """A server starts though a scale of 1 would make no numbers: requests may have smaller ones."""
    model = tmp_path / "model.gguf"
    make_model.write("qwen2moe", model)
    tensors = test_lora.of_model(model, ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"], 4, dtype=test_lora.np.float32)[0]
    test_lora.write(tmp_path / "1.gguf", "qwen2moe", {name: 1e18 * data if name.endswith("lora_a") else data for name, data in tensors.items()})
    with Server(weft, weft_env, model, "-c", "512") as s:
        usual = what(s.ask("/completion", asked(PROMPTS[0], ()) | {"lora": None})[1])
    with Server(weft, weft_env, model, "-c", "512", "--lora", tmp_path / "1.gguf", "--lora-init-without-apply") as s:
        assert [s.ask("/completion", asked(PROMPTS[0], (scale,)))[0] for scale in (1, 1e-18)] == [500, 200]
        assert what(s.ask("/completion", asked(PROMPTS[0], (0,)))[1]) == usual


def run_of(weft, env, model, lora):
    return subprocess.run([weft, "run", "-m", model, "--lora", lora, "-n", "1", "-p", "x"], env=env, capture_output=True, text=True, timeout=120, check=False)


def test_vectors_and_scores_follow(weft, weft_env, make_encoder, tmp_path):
    """/lora-adapters changes what models that rank say, as it does answers."""
    make_encoder.write("qwen3-rank", tmp_path / "rank.gguf")
    test_lora.write(tmp_path / "1.gguf", "qwen3", test_lora.of_model(tmp_path / "rank.gguf", ["attn_q.", "ffn_up", "ffn_down"], 4)[0])
    ask = {"query": "the cat?", "documents": ["a dog", "the cat sat"]}

    def scores(s):
        status, got = s.ask("/v1/rerank", ask)
        assert status == 200, got
        return [one["relevance_score"] for one in sorted(got["results"], key=lambda one: one["index"])]

    with Server(weft, weft_env, tmp_path / "rank.gguf", "--lora", tmp_path / "1.gguf") as s:
        on = scores(s)
    with Server(weft, weft_env, tmp_path / "rank.gguf", "--lora", tmp_path / "1.gguf", "--lora-init-without-apply") as s:
        off = scores(s)
        assert s.ask("/lora-adapters", [{"id": 0, "scale": 1}])[0] == 200 and scores(s) == on != off


def test_models_of_other_architectures_go_without(weft, weft_env, tinypy, make_model, tmp_path):
    (tmp_path / "models").mkdir()
    shutil.copy(tinypy, tmp_path / "models" / "own.gguf")
    make_model.write("gemma3", tmp_path / "models" / "other.gguf")
    test_lora.write(tmp_path / "1.gguf", "llama", test_lora.of_model(tinypy, ["attn_q."], 4)[0])
    with Server(weft, weft_env, None, "--models-dir", tmp_path / "models", "-c", "512", "--lora", tmp_path / "1.gguf") as s:
        for model in "own", "other":
            assert s.ask("/v1/completions", {"model": model, "prompt": PROMPTS[0], "max_tokens": 2})[0] == 200


@pytest.mark.parametrize("name", ["llama-yarn", "gemma3", "qwen35"])
def test_adapters_that_are_called_by_tokens(weft, weft_env, make_model, tmp_path, name):
    """Each answer is that of a server which has seen nothing else: what is cached is used up to the call, and not beyond it."""
    model, lora = tmp_path / "model.gguf", tmp_path / "lora.gguf"
    make_model.write(name, model)
    arch = test_lora.gguf.GGUFReader(model).get_field("general.architecture").contents()
    call, text = [7, 311], list(range(30, 180))
    test_lora.write(lora, arch, test_lora.of_model(model, FAMILIES[name], 4)[0], invocation=call)
    prompts = [text, [*text, *call, 5, 9], [*text, *call, 5, 9, 44, 45, *call, 6], [*text, *call, 5, 9, 44, 45, 46], [*call, *text], [*text, 5, 9]]
    ask = lambda s, prompt: s.ask("/completion", {**asked(prompt, ()), "lora": None, "n_predict": 6})[1]
    expected = []
    for prompt in prompts:
        with Server(weft, weft_env, model, "-c", "512", "--lora", lora) as s:
            expected.append(what(ask(s, prompt)))
    with Server(weft, weft_env, model, "-c", "512") as s:
        plain = [what(ask(s, prompt)) for prompt in prompts]
    assert [a == b for a, b in zip(plain, expected)] == [True, False, False, False, False, True]
    with Server(weft, weft_env, model, "-c", "512", "-np", "8", "--lora", lora) as s:
        got = [ask(s, prompts[i]) for i in (0, 1, 2, 3, 4, 5, 2, 1, 0)]
        assert [what(one) for one in got] == [expected[i] for i in (0, 1, 2, 3, 4, 5, 2, 1, 0)]
        if name == "llama-yarn":
            assert got[1]["timings"]["cache_n"] >= 128 and got[5]["timings"]["cache_n"] >= 128
        together = [None] * len(prompts)
        threads = [threading.Thread(target=lambda i=i: together.__setitem__(i, what(ask(s, prompts[i])))) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert together == expected
