"""weft run of models that denoise texts, against records of llama.cpp's diffusion on small files that tests/tools/make_diffusion.py makes."""
import concurrent.futures as futures
import json
import math
import subprocess
from pathlib import Path

import pytest
from serving import Server, until
from test_families import divergence
from test_serve import request

THREADS = 1

RECORDS = Path(__file__).resolve().parents[1] / "records" / "diffusion"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))
MEAN_KL = {"dream-q8_0": 2e-3}                      # llama.cpp rounds activations to 8 bits its own way; others 1e-4


@pytest.fixture(scope="module")
def model(make_diffusion, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def find(name, **more):
        path = folder / f"{name}{'-'.join(more)}.gguf"
        if not path.exists():
            make_diffusion.write(name, path, **more)
        return path
    return find


def recorded(name):
    return json.loads((RECORDS / f"{name}.json").read_text())


def of_ids(ids):
    return ["--ids", ",".join(map(str, ids))]


def denoised(run_weft, path, record, *more):
    done = run_weft(["run", "-m", path, *of_ids(record["prompt"]), "-n", record["length"] - len(record["prompt"]), "--ignore-eos", "--json", *more])
    assert done.returncode == 0, done.err
    return [json.loads(line) for line in done.stdout.splitlines()]


def options(of):
    steps, eps, block, algorithm, temp, top_k, top_p, seed, cfg_scale, _ = of
    schedule = ["--diffusion-block-length", block] if block else ["--diffusion-eps", eps]
    return ["--diffusion-steps", steps, *schedule, "--diffusion-algorithm", algorithm, "--temp", temp, "--top-k", top_k, "--top-p", top_p, "--seed", seed,
            "--diffusion-cfg-scale", cfg_scale]


def test_every_denoiser_has_a_record(make_diffusion):
    assert sorted(make_diffusion.DENOISERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_distributions(run_weft, model, make_diffusion, name):
    """One step writes all masks, each by the logits of the prompt and masks behind it; where logits are shifted, by those of the place before."""
    record = recorded(name)
    ours = denoised(run_weft, model(name), record, "--diffusion-steps", 1, "--top-logprobs", 100000)
    before = 0 if make_diffusion.DENOISERS[name].get("shift") is False else 1
    rows = record["rows"][len(record["prompt"]) - before:][:len(ours)]
    kl = [divergence(row, dict(map(tuple, mine["top"]))) for row, mine in zip(rows, ours, strict=True)]
    print(f"{name}: mean KL {sum(kl) / len(kl):.2g}, largest {max(kl):.2g}")
    assert sum(kl) / len(kl) <= MEAN_KL.get(name, 1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MEAN_KL])
def test_ids(run_weft, model, name):
    """Each algorithm and schedule, greedy and drawn: the ids of llama.cpp, with the same seed."""
    record = recorded(name)
    for run in record["runs"]:
        ours = [token["id"] for token in denoised(run_weft, model(name), record, *options(run["of"]))]
        assert ours == run["ids"], run["of"]


SOME = ["--diffusion-steps", 12, "--temp", 0]


def ids_of(run_weft, path, record, *more):
    return [token["id"] for token in denoised(run_weft, path, record, *more)]


def test_a_low_temperature_of_masks(run_weft, model):
    """Masks that are drawn at next to no temperature are the best ones."""
    path, record = model("rnd1"), recorded("rnd1")
    best = ids_of(run_weft, path, record, *SOME)
    assert ids_of(run_weft, path, record, *SOME, "--diffusion-alg-temp", 1e-7) == best
    assert ids_of(run_weft, path, record, *SOME, "--diffusion-alg-temp", 10, "--seed", 1) != best


def test_noise(run_weft, model):
    """Gumbel noise times next to nothing leaves the likeliest of all tokens; at a temperature it draws by the seed."""
    path, record, steps = model("llada"), recorded("llada"), ["--diffusion-steps", 12]
    noisy = [*steps, "--diffusion-add-gumbel-noise", 1]
    best = ids_of(run_weft, path, record, *steps, "--temp", 0, "--top-k", 0, "--top-p", 1)
    assert ids_of(run_weft, path, record, *noisy, "--temp", 1e-6) == best
    drawn = [ids_of(run_weft, path, record, *noisy, "--temp", 1, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] and drawn[1] != drawn[2] and drawn[0] != best


def test_noise_draws_by_probability(run_weft, model):
    """How often each of the likeliest tokens is drawn, of many masks at once that have nearly one distribution each."""
    path, record = model("dream"), recorded("dream")
    counts, expected, n = {}, {}, 0
    for seed in range(12):
        tokens = denoised(run_weft, path, record, "--diffusion-steps", 1, "--diffusion-add-gumbel-noise", 1, "--temp", 1, "--seed", seed, "--top-logprobs", 100000)
        for token in tokens:
            n += 1
            counts[token["id"]] = counts.get(token["id"], 0) + 1
            for i, logprob in token["top"]:
                expected[i] = expected.get(i, 0) + math.exp(logprob)
    assert abs(sum(expected.values()) - n) < 1e-3
    for i in sorted(expected, key=expected.get)[-5:]:
        assert abs(counts.get(i, 0) - expected[i]) < 5 * math.sqrt(expected[i]) + 1, i


def test_temperatures_that_are_no_floats(built_tool, model, weft_env):
    """Logits divided by them would be infinite, and the last candidate be drawn; the command's own check refuses some of them before."""
    def of(*numbers):
        done = subprocess.run([built_tool("denoise_tool", "WEFT_DENOISE_TOOL"), model("llada"), *map(str, numbers)], env=weft_env, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout.strip()
    likeliest = of(0, 0, 0)
    assert likeliest[0] == 0 and len(likeliest[1].split()) == 8
    assert of(1e-6, 0, 0)[0] == of(0, 1e-30, 0)[0] == 0
    for small in (1e-38, 1e-50, 9e-31, -1, float("nan")):
        assert of(small, 0, 0) == (1, f"temp {small:g}: it must be 0, or 1e-6 to 1e6")
        assert of(0, small, 0) == (1, f"algorithm_temp {small:g}: it must be 0, or 1e-30 to 1e6")
    assert of(9e-7, 0, 0)[0] == 1


def said(run_weft, *args, status=1, **more):
    done = run_weft(list(args), **more)
    assert done.returncode == status, done.err
    return done.err


def test_the_length_of_a_text(run_weft, model):
    """-n counts what is written; without it the text has -ub tokens, or as many as the context, up to 512."""
    path, few = model("llada"), ["--ids", "1,2,3", "--json", "--ignore-eos", "--diffusion-steps", 2]
    for more, n in ((["-n", 5], 5), (["-ub", 16], 13), ([], 253), (["-c", 100], 97), (["-n", 0], 0)):
        done = run_weft(["run", path, *few, *more])
        assert done.returncode == 0 and len(done.stdout.splitlines()) == n, (more, done.err)
    assert "a text of 303 tokens does not fit the context of 256" in said(run_weft, "run", path, "--ids", "1,2,3", "-n", 300)
    assert "the prompt has 3 tokens, and the text with it 3" in said(run_weft, "run", path, "--ids", "1,2,3", "-ub", 3)


def test_what_cannot_be(run_weft, model, tinypy):
    path = model("llada")
    run = ["run", path, "--ids", "1,2,3", "-n", 13]
    assert "block_length 5 does not divide the 16 tokens of the text" in said(run_weft, *run, "--diffusion-block-length", 5)
    assert "10 steps for 4 blocks (16 tokens of the text, block_length 4)" in said(run_weft, *run, "--diffusion-block-length", 4, "--diffusion-steps", 10)
    assert "two schedules: give one" in said(run_weft, *run, "--diffusion-block-length", 4, "--diffusion-eps", 0.1, status=2)
    assert "a grammar does not apply" in said(run_weft, *run, "--json-schema", "{}")
    assert "--force does not apply" in said(run_weft, *run, "--force", "1,2")
    assert "key 'tokenizer.ggml.mask_token_id' is missing" in said(run_weft, "run", model("llada", mask=False), "--ids", "1,2", "-n", 3)
    assert "this model goes on token by token" in said(run_weft, "run", tinypy, "-p", "def", "--diffusion-steps", 3)
    whole = "this model denoises texts as a whole (weft run)"
    assert whole in said(run_weft, "perplexity", "-m", path, "-c", 32, "-f", "-", input="hello " * 40)
    assert whole in said(run_weft, "bench", "-m", path, "-p", 8, "-n", 4)
    assert f"{path}: it does not make one token after another, so it cannot draft any" in said(run_weft, "run", tinypy, "-p", "def", "-c", 128, "-md", path)


def test_a_draft_model_for_it(weft, weft_env, model, tinypy):
    """The error is about the model that denoises, whatever the other one is."""
    for other in tinypy, model("llada"):
        done = subprocess.run([weft, "serve", "-m", model("llada"), "-md", other, "--port", "0"], capture_output=True, env=weft_env, timeout=100)
        assert done.returncode == 1 and f"{model('llada')}: it does not make one token after another, so none can be drafted for it" in done.stderr.decode(), done.stderr


def test_the_text_of_each_step(run_weft, model):
    """With spaces for masks; the last step's result is the text on stdout."""
    done = run_weft(["run", model("llada"), "--ids", "1,2,3", "-n", 12, "--diffusion-steps", 4, "--diffusion-visual", "--temp", 0])
    shown = [part.removesuffix("\n") for part in done.err.split("\x1b[2J\x1b[H")[1:]]
    assert done.returncode == 0 and len(shown) == 4 and shown[0] == " " * 12
    assert done.out.strip() and all(len(a.strip()) <= len(b.strip()) for a, b in zip(shown, shown[1:]))


def test_text_ends_at_an_end_token(run_weft, model):
    """Of what was written, no more than up to the model's end; the figures count that."""
    path = model("llada")
    run = ["run", path, "--ids", "1,2,3", "-n", 12, "--diffusion-steps", 1, "--temp", 0, "--json"]
    whole = [json.loads(line)["id"] for line in run_weft(run).stdout.splitlines()]
    end = f"tokenizer.ggml.eos_token_id=int:{whole[5]}"
    cut = [json.loads(line)["id"] for line in run_weft([*run, "--override-kv", end]).stdout.splitlines()]
    assert cut == whole[:whole.index(whole[5]) + 1]


def test_a_server(weft, weft_env, run_weft, model):
    """Texts are those of weft run with as many steps as tokens; its vectors are those of weft embed."""
    path = model("llada")
    ask = {"prompt": [5, 17, 40], "n_predict": 20, "temperature": 0.8, "seed": 7, "ignore_eos": True, "top_k": 40, "top_p": 0.95}
    run = ["run", path, "--ids", "5,17,40", "-n", 20, "--temp", 0.8, "-s", 7, "--ignore-eos", "-q", "--top-k", 40, "--top-p", 0.95, "--diffusion-steps", 20]
    texts = [run_weft([*run, "-s", seed]).stdout.decode(errors="replace") for seed in (7, 8)]
    with Server(weft, weft_env, path, "--chat-template", "chatml", "-np", 3) as s:
        def text(route, body):
            status, answer = s.ask(route, body)
            assert status == 200, answer
            return answer
        one = text("/completion", ask)
        assert one["content"] == texts[0] and one["stop_type"] == "limit" and one["timings"]["predicted_n"] == 20
        two = text("/v1/completions", {**ask, "max_tokens": 20, "n": 2})
        assert [c["text"] for c in two["choices"]] == texts and two["usage"]["completion_tokens"] == 40
        with futures.ThreadPoolExecutor(4) as pool:
            assert {got["content"] for got in pool.map(lambda _: text("/completion", ask), range(4))} == {texts[0]}
        stream = s.ask("/completion", {**ask, "stream": True})[1]
        assert "".join(json.loads(line[6:])["content"] for line in stream.splitlines() if line.startswith("data: {")) == texts[0]
        chat = text("/v1/chat/completions", {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 9, "temperature": 0})
        assert chat["choices"][0]["finish_reason"] in ("length", "stop") and chat["usage"]["completion_tokens"] <= 9
        stop = texts[0][3:6]
        assert text("/completion", {**ask, "stop": [stop]})["content"] == texts[0][:texts[0].index(stop)]
        assert text("/completion", {**ask, "n_predict": 0})["content"] == ""
        assert text("/completion", {**ask, "n_predict": -1})["tokens_predicted"] == 253
        for more, said in ({"n_probs": 2}, "its tokens have no probabilities"), ({"grammar": 'root ::= "a"'}, "a grammar, a schema or a forced tool call does not apply"), \
                ({"json_schema": {}}, "does not apply"), ({"logit_bias": [[5, 1]]}, "have no probabilities"):
            status, answer = s.ask("/completion", {**ask, **more})
            assert status == 400 and said in answer["error"]["message"], answer
        status, answer = s.ask("/embedding", {"content": [1, 2, 3], "embd_normalize": -1})
        assert status == 200, answer
        assert "completion" in s.ask("/api/show", {"model": "llada"})[1]["capabilities"]
    done = run_weft(["embed", "-m", path, "--ids", "1,2,3", "--embd-output-format", "array", "--embd-normalize", -1])
    assert done.returncode == 0, done.err
    for a, b in zip(answer[0]["embedding"], json.loads(done.stdout), strict=True):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-7)


def test_a_client_that_leaves(weft, weft_env, model):
    """Its texts end with the step under way, and so does one that takes longer than it may."""
    ask = {"prompt": [5, 17, 40], "ignore_eos": True}
    with Server(weft, weft_env, model("llada")) as s:
        with s.connect() as leaving:
            leaving.sendall(request({**ask, "max_tokens": 250, "n": 128}))
            until(lambda: s.metric("llamacpp:requests_processing") == 1)
            steps = s.metric("llamacpp:n_decode_total")
            until(lambda: s.metric("llamacpp:n_decode_total") > steps)        # a step of a text is one of the server
        until(lambda: s.metric("llamacpp:requests_processing") == 0)
        assert s.metric("llamacpp:n_decode_total") < steps + 128 * 64
        status, answer = s.ask("/completion", {**ask, "n_predict": 250, "t_max_predict_ms": 1})
        assert status == 200 and answer["tokens_predicted"] == 0, answer


def test_a_chat(run_weft, model, tmp_path):
    """An answer is what run writes after the text of the template; the next one sees the first; another one to the same message is another one."""
    plain = tmp_path / "plain.jinja"
    plain.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    args = ["-m", model("llada"), "-n", "24", "--temp", "0.8", "-s", "3", "--ignore-eos", "-q", "--diffusion-steps", "8"]
    alone = run_weft(["run", *args, "-p", "abc abc"])

    def chat(*more, **options):
        done = run_weft(["chat", *args, "--chat-template-file", plain, "--json", *more], **options)
        assert done.returncode == 0, done.err
        return [json.loads(line) for line in done.stdout.splitlines()], done.err
    (first, other, next_), _ = chat("--simple-io", input="abc abc\n/regen\nabc\n")
    assert alone.returncode == 0 and first["content"].encode() == alone.stdout and first["finish_reason"] == "length" and first["timings"]["predicted_n"] == 24
    assert other["content"] != first["content"] and next_["timings"]["prompt_n"] > first["timings"]["prompt_n"] + 10
    assert [a["content"] for a in chat("--simple-io", input="abc abc\n/regen\nabc\n")[0]] == [first["content"], other["content"], next_["content"]]
    (shown,), steps = chat("-p", "abc abc", "--diffusion-visual")
    assert shown["content"] == first["content"] and steps.count("\033[2J") == 8
    (full,), _ = chat("-c", "32", "-p", "abc abc", "-n", "400")
    assert full["timings"]["predicted_n"] == 32 - full["timings"]["prompt_n"] and full["finish_reason"] == "length"
    assert chat("-p", "abc abc", "-n", "0")[0][0]["content"] == ""
    (blocks,), _ = chat("-p", "abc abc", "-n", "23", "--diffusion-block-length", "4")          # fewer tokens, so that blocks are whole
    assert 20 <= blocks["timings"]["predicted_n"] <= 23 and (blocks["timings"]["prompt_n"] + blocks["timings"]["predicted_n"]) % 4 == 0


def test_what_cannot_be_in_the_server(run_weft, model):
    """Defaults that every request would be refused for."""
    serve = ["serve", "-m", model("llada"), "--port", "0"]
    for words in ["--grammar", 'root ::= "a"'], ["--json-schema", "{}"]:
        assert "llada.gguf: this model denoises texts as a whole: a grammar or a schema does not apply" in said(run_weft, *serve, *words)
    assert "this model denoises texts as a whole: --logit-bias does not apply" in said(run_weft, *serve, "--logit-bias", "3+1")


def test_what_cannot_be_in_a_chat(run_weft, model, tinypy):
    chat = ["chat", model("llada"), "-p", "a"]
    assert "a grammar does not apply" in said(run_weft, *chat, "--grammar", 'root ::= "a"')
    assert "this model goes on token by token" in said(run_weft, "chat", tinypy, "-p", "a", "--diffusion-steps", "3")
    assert "two schedules" in said(run_weft, *chat, "--diffusion-eps", "0.1", "--diffusion-block-length", "4", status=2)
    assert "and the context holds 32" in said(run_weft, "chat", model("llada"), "-c", "32", "-p", "b " * 50)
