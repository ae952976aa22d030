"""weft convert, and folders of Hugging Face's as they are: the bytes that llama.cpp's converter writes (records), the tokens that the tokenizers package makes, and errors that name
file, key and value. Folders are written by tests/tools/make_folder.py."""
import base64
import hashlib
import itertools
import json
import math
import re
import resource
import struct
from pathlib import Path

import pytest
from conftest import SANITIZED, load_tool

gguf = pytest.importorskip("gguf")
THREADS = 2
RECORDS = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in sorted((Path(__file__).resolve().parents[1] / "records" / "folders").glob("*.json"))}
folders = load_tool("make_folder")
# What differs: docs/convert.md
BARE = ("gemma", "gemma2", "gptneox", "phi2", "stablelm", "falcon", "minicpm3", "orion")        # files of the converter have no base of rotation
OURS = {"general.name", "gemma3.attention.scale", "gpt2.attention.head_count_kv", *(f"{arch}.attention.head_count_kv" for arch in ("gptneox", "baichuan", "qwen")), "phimoe.rope.scaling.attn_factor", *(f"{arch}.rope.freq_base" for arch in BARE)}
THEIRS = {"gemma": {"tokenizer.ggml.eot_token_id"}, "lladamoe": {"tokenizer.ggml.mask_token_id"}}


def convert(run_weft, folder, out, *args):
    done = run_weft(["convert", folder, out, *args])
    assert done.returncode == 0, done.err
    return gguf.GGUFReader(out)


def keys_of(reader):
    return {k: [f.types[0].name, f.contents()] for k, f in reader.fields.items() if not k.startswith("GGUF.")}


def fails(run_weft, folder, *expected):
    done = run_weft(["convert", folder, folder / "out.gguf"])
    assert done.returncode == 1 and not (folder / "out.gguf").exists(), done.err
    for text in expected:
        assert text in done.err, done.err


@pytest.fixture
def folder(tmp_path):
    return folders.write(tmp_path / "small", RECORDS["qwen3"])


@pytest.mark.parametrize("kind", RECORDS)
def test_as_llama_cpp_writes_it(run_weft, tmp_path, kind):
    record = RECORDS[kind]
    for case, expected in record["made"].items():
        dtype, out = case.split()
        source = folders.write(tmp_path / dtype / kind, record, dtype)
        reader = convert(run_weft, source, tmp_path / "out.gguf", "--outtype", out)
        keys = {k: v for k, v in keys_of(reader).items() if k not in OURS}
        file_type = keys.pop("general.file_type")[1]
        assert file_type == expected.get("general.file_type", file_type), case
        assert keys == {k: v for k, v in record["keys"].items() if k not in OURS | THEIRS.get(kind, set())}, case
        made = {t.name: [t.tensor_type.name, [int(n) for n in t.shape], hashlib.sha256(t.data.tobytes()).hexdigest()[:16]] for t in reader.tensors}
        assert made == {k: v for k, v in expected.items() if k != "general.file_type"}, case
        assert kind in ("erniemoe", "afmoe", "laguna", "mimo2") or list(made) == [k for k in expected if k != "general.file_type"], case


def test_what_a_folder_of_gemma_3_leaves_out(run_weft, tmp_path):
    """The published ones of 4B say how wide the model is and how deep; heads and the context are the class's."""
    record = json.loads(json.dumps(RECORDS["gemma3-seeing"]))
    for key in ("num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_activation"):
        del record["config"]["text_config"][key]
        record["config"].pop(key, None)
    keys = keys_of(convert(run_weft, folders.write(tmp_path / "gemma3-seeing", record), tmp_path / "out.gguf"))
    expected = {**RECORDS["gemma3-seeing"]["keys"], "gemma3.context_length": ["UINT32", 131072]}
    assert {k: keys[k] for k in keys if k.startswith("gemma3.") and k not in OURS} == {k: expected[k] for k in expected if k.startswith("gemma3.")}


def test_a_vocabulary_of_dna(run_weft, tmp_path):
    """HybridDNATokenizer (Carbon): its code makes the tokens after those of tokenizer.json, and the converter marks k-mers by U+E000."""
    def written(name, n):
        record = json.loads(json.dumps(RECORDS["llama"]))
        record["config"]["vocab_size"] = n
        record["tensors"] |= {"lm_head.weight": [n, 64], "model.embed_tokens.weight": [n, 64]}
        return folders.write(tmp_path / name / "small", {**record, "tokenizer_config": folders.settings(tokenizer_class="HybridDNATokenizer")})

    base = json.loads((written("any", 320) / "tokenizer.json").read_text())
    first = len(base["model"]["vocab"]) + len(base["added_tokens"])
    end = -(-(first + 3 + 4096) // 128) * 128
    reader = convert(run_weft, written("dna", end + 1), tmp_path / "out.gguf")
    keys = keys_of(reader)
    kmers = ["".join(k) + "\ue000" for k in itertools.product("ATCG", repeat=6)]
    expected = ["<dna>", "</dna>", "<oov>", *kmers, *(f"<unused_{i}>" for i in range(end - first - 4099)), f"[PAD{end}]"]
    assert keys["tokenizer.ggml.model"][1] == "hybriddna" and keys["tokenizer.ggml.pre"][1] == "qwen2"
    assert keys["tokenizer.ggml.tokens"][1][first:] == expected and keys["tokenizer.ggml.token_type"][1][first:] == [1] * (end - first) + [5]
    assert keys["tokenizer.ggml.tokens"][1][first - 1] == "<think>"
    for model in tmp_path / "out.gguf", tmp_path / "dna" / "small":
        done = run_weft(["tokenize", "-m", model, "-p", "a<dna>ccccccGT</dna>", "--ids"])
        ids = json.loads(done.out) if done.returncode == 0 else done.err
        names = keys["tokenizer.ggml.tokens"][1]
        assert ids == [names.index(t) for t in ("a", "<dna>", "CCCCCC\ue000", "GTAAAA\ue000", "</dna>")], ids
    fails(run_weft, written("less", end - 1), "config.json: key 'vocab_size'", f"{end - 1}, but the tokens of DNA after {first} of tokenizer.json end at {end}")


@pytest.mark.parametrize("kind", [k for k, r in RECORDS.items() if "answer" in r])
def test_as_transformers_answers(run_weft, tmp_path, kind):
    """Probabilities of the token after some: transformers' with weights of 32 bits. Blocks of 4 bits are multiplied as floats."""
    ids, expected = (RECORDS[kind]["answer"][k] for k in ("ids", "logprobs"))
    source = folders.write(tmp_path / kind, RECORDS[kind], "F32")
    done = run_weft(["run", "-m", source, "--ids", ",".join(map(str, ids)), "-n", "1", "--json", "--top-logprobs", str(len(expected)), "--temp", "0", "--precision", "exact", "-ctk", "f32", "-ctv", "f32", "-c", "64"])
    assert done.returncode == 0, done.err
    ours = dict(json.loads(done.stdout.splitlines()[0])["top"])
    assert len(ours) == len(expected)
    assert sum(math.exp(p) * (p - ours[i]) for i, p in enumerate(expected)) <= 1e-6


def test_weights_in_several_files(run_weft, tmp_path):
    one = folders.write(tmp_path / "one" / "small", RECORDS["llama"])
    many = folders.write(tmp_path / "many" / "small", RECORDS["llama"], files=3)
    made = [{t.name: t.data.tobytes() for t in convert(run_weft, f, tmp_path / "out.gguf").tensors} for f in (one, many)]
    assert made[0] == made[1] and len(made[0]) == 22


@pytest.mark.parametrize("kind, dtype", [("qwen3", "BF16"), ("llama", "F32"), ("gemma3-seeing", "BF16"), ("olmo3", "F16"),
                                         ("qwen35-seeing", "BF16"), ("qwen35moe-seeing", "F16"), ("qwen3next", "F32"), ("deepseek2", "F32"), ("deepseek3", "BF16"), ("granitemoeshared", "F16"), ("glm4moe", "BF16"), ("erniemoe", "F32"),
                                         ("gemma4", "BF16"), ("gemma4-seeing", "F32"), ("gemma3n-seeing", "BF16"), ("kimilinear", "F32"), ("glm5next", "BF16"), ("minicpm3", "BF16"), ("deepseek32", "F32"), ("hyv3", "BF16"), ("mellum", "F32"), ("mimo2", "BF16"), ("cohere2moe", "F32"), ("laguna", "BF16"), ("granitemoeswa", "BF16"), ("minimax-m3", "BF16"), ("dbrx", "F32"), ("museglimmer", "BF16"), ("hrm", "F32"), ("hyv4", "F32"), ("glm4lite", "F32"), ("deepseek4", "BF16"), ("glm", "BF16"), ("ling2", "F32"), ("mimo2-fused", "BF16"), ("step37", "F32"), ("kimik3", "BF16"), ("ling3", "BF16"), ("dots3", "BF16"), ("qwen4exp", "F32"), ("graniteswitch", "F32"), ("hunyuanmoe", "BF16"), ("deepseek1", "BF16"), ("ling1", "F32"), ("internlm2", "F32"), ("baichuan", "BF16"), ("orion", "F32"), ("qwen1", "BF16"), ("deci", "F32"), ("deci-linear", "BF16"), ("bamba", "F32"), ("openelm", "BF16"), ("codeshell", "F32"), ("refact", "BF16"), ("plamo", "F32"), ("arctic", "BF16"), ("chameleon", "F32"), ("qwen3vl-seeing", "BF16"), ("lfm2", "F32"), ("gpt-oss-mxfp4", "BF16"), ("llama-nvfp4", "BF16"), ("qwen3moe-nvfp4", "F32"), ("nanbeige", "F32"), ("pangu", "BF16"), ("maincoder", "F32"), ("plm", "BF16"), ("sarvam", "F32"), ("grovemoe", "BF16"), ("smallthinker", "F32"), ("maple", "BF16"), ("spark", "F32"), ("grok", "BF16"), ("grok1", "F32"), ("jais", "F32"), ("talkie", "BF16"), ("chatglm", "F32"), ("rwkv7", "F32"), ("rwkv6", "BF16")])
def test_a_folder_runs_as_its_file_does(run_weft, tmp_path, kind, dtype):
    source = folders.write(tmp_path / kind, RECORDS[kind], dtype)
    convert(run_weft, source, tmp_path / "out.gguf", "--outtype", dtype.lower())
    (tmp_path / "links").mkdir()
    for file in source.iterdir():                      # as a cache of downloads has them
        (tmp_path / "links" / file.name).symlink_to(file)
    text = "def add(a, b):\n    return a + b\n" * 40
    (tmp_path / "text").write_text(text)
    answers = []
    for model in (tmp_path / "out.gguf", source, tmp_path / "links"):
        done = run_weft(["perplexity", "-m", model, "-f", tmp_path / "text", "-c", "64", "--save-all-logits", tmp_path / "logits"])
        assert done.returncode == 0, done.err
        answers.append((tmp_path / "logits").read_bytes())
    assert answers[0] == answers[1] == answers[2] and len(answers[0]) > 10000
    assert run_weft(["inspect", source]).returncode == 0


CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = folders.QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
QWEN35 = folders.ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK3 = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
CASES = "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
DEEPSEEK_LLM = ["[\r\n]", "\\s?[" + CASES + "]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, WORDS]}
BEGIN = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [269], "tokens": ["<|im_end|>"]}}}
PRES = {    # tokenizer.ggml.pre: how words are cut, normalizer, ignore_merges, what is put before a text
    "qwen2": (folders.split(folders.QWEN2), "NFC", False, None), "deepseek-r1-qwen": (folders.split(folders.QWEN2), None, False, None),
    "llama-bpe": (folders.split(LLAMA3), None, True, BEGIN), "glm4": (folders.split(LLAMA3), None, True, None), "smaug-bpe": (folders.split(LLAMA3), None, False, None),
    "qwen35": (folders.split(QWEN35), "NFC", False, None), "gpt-4o": (folders.split(CASED % (folders.ENDINGS + "?", folders.ENDINGS + "?", "{1,3}")), None, False, None),
    "tekken": (folders.split(CASED % ("", "", "")), None, True, None), "gpt-2": (WORDS, None, False, None), "mpt": (WORDS, "NFC", False, None),
    "deepseek-llm": (folders.split(*DEEPSEEK_LLM, {"type": "Digits", "individual_digits": True}), "none", False, None),
    "deepseek-v3": (folders.split(*DEEPSEEK3), "none", False, None), "refact": (DIGITS, None, False, None), "command-r": (DIGITS, "NFC", False, None)}
TEXT = "def f(x): return 12345 if x else 'I\u2019m, it's THEIR\u0301 CamelCase'\r\n\n\t  \u00e9te\u0301 e\u0301e \u4e16\u754c 3.14  \n   a  a return--++ \u0e01\u0e33 <think>x\u0301y \u0130'LL 9" + " re" * 20
# merges whose outcome shows where words end: letters with what stands before, digits, signs, white space
JOINS = [*folders.MERGES, "1 2", "12 3", "3 4", "Ċ Ċ", "Ġ Ċ", "ĉ Ġ", "' s", "' L", "+ +", "- -", "m e", "E L", "Ġ 1", "s Ġ", "l C", "( x", "Ì ģ", "e Ì", "é t", "/ Ċ", "' re", ". 1", "x Ìģ"]


@pytest.mark.parametrize("pre", PRES)
def test_words_are_cut_as_tokenizer_json_says(run_weft, tmp_path, pre):
    """Merges that are there for words alone: what is cut otherwise has other tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    how, normalizer, whole, processor = PRES[pre]
    merges = [m for m in JOINS if pre != "deepseek-llm" or not m[0].isdigit()]         # no token of it has two digits
    merges = [m for m in merges if all(len(p) == 1 or p in {x.replace(" ", "") for x in JOINS} for p in m.split(" "))]
    merges = [m for m in merges if all(p in {*folders.alphabet(), *(x.replace(" ", "") for x in merges)} for p in m.split(" "))]
    record = dict(RECORDS["qwen3"], config=dict(RECORDS["qwen3"]["config"], vocab_size=320), tokenizer=folders.tokenizer(pre=how, normalizer=normalizer, processor=processor, merges=merges))
    record["tokenizer"]["model"]["ignore_merges"] = whole
    if normalizer == "none":                           # as DeepSeek's has it
        record["tokenizer"]["normalizer"] = {"type": "Sequence", "normalizers": []}
    source = folders.write(tmp_path / "small", record)
    reader = convert(run_weft, source, tmp_path / "out.gguf")
    assert reader.fields["tokenizer.ggml.pre"].contents() == pre
    theirs = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in (TEXT, TEXT.upper(), *TEXT.split("\n")):
        ours = run_weft(["tokenize", "-m", source, "-p", text, "--ids", "--no-bos"])
        assert ours.returncode == 0, ours.err
        assert json.loads(ours.out) == theirs.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("kind", ["kimilinear", "kimik25", "hunyuanmoe", "qwen1"])
def test_a_vocabulary_of_ranks(run_weft, tmp_path, kind):
    """tiktoken's own program makes the same tokens; special tokens are those of the Python class that the folder names."""
    tiktoken = pytest.importorskip("tiktoken")
    source, tokens = folders.write(tmp_path / kind, RECORDS[kind]), folders.rank_tokens(kind != "qwen1")
    pattern = folders.QWEN2 if kind in ("hunyuanmoe", "qwen1") else r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    special = {"<|im_end|>": 271, "<|extra_204|>": 476} if kind == "qwen1" else {"<|bos|>": 272, "<|eos|>": 273, "<|extra_44|>": 319} if kind == "hunyuanmoe" else {"[BOS]": 270, "<|im_end|>": 272, "<|reserved_token_525|>": 525}
    theirs = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens=special)
    for text in ("def f(a): return a if DEF else 12345\n\n   \u4e16\u754creturn \u00e9 x\u00e9y returns'LL", "".join(special)):
        ours = run_weft(["tokenize", "-m", source, "-p", text, "--ids", "--no-bos", "--parse-special"])
        assert ours.returncode == 0, ours.err
        assert json.loads(ours.out) == theirs.encode(text, allowed_special="all"), text
    assert keys_of(convert(run_weft, source, tmp_path / "out.gguf"))["tokenizer.ggml.eos_token_id"][1] == {"kimilinear": 272, "kimik25": 1, "hunyuanmoe": 2, "qwen1": 269}[kind]


@pytest.mark.parametrize("change, expected", [
    (lambda lines: lines[:3] + ["!" + lines[3]] + lines[4:], "tiktoken.model: line 4 is no token"),
    (lambda lines: lines[:3] + [lines[3].split()[0]] + lines[4:], "tiktoken.model: line 4 is no token"),
    (lambda lines: lines[:3] + [lines[3] + "x"] + lines[4:], "tiktoken.model: line 4 is no token"),
    (lambda lines: lines[:3] + [f"{'QUFB' * 342} 3"] + lines[4:], "tiktoken.model: line 4 is no token of at most 1024 bytes"),
    (lambda lines: lines[:3] + lines[4:], "tiktoken.model: line 4 has the rank 4"),
    (lambda lines: lines[:3] + ["AA== 3"] + lines[4:], "tiktoken.model: line 4 has the rank 3, or a token that was there before"),
    (lambda lines: lines + [f"{'QUFB' * i} {269 + i}" for i in range(1, 300)], "tiktoken.model: has more tokens than config.json says, 540"),
    (lambda lines: [], "tiktoken.model: has no tokens"),
    (None, "tokenizer.json: is missing"),
])
def test_ranks_that_are_none(run_weft, tmp_path, change, expected):
    source = folders.write(tmp_path / "kimilinear", RECORDS["kimilinear"])
    path = source / "tiktoken.model"
    lines = path.read_text().splitlines()
    path.unlink() if change is None else path.write_text("".join(line + "\n" for line in change(lines)))
    fails(run_weft, source, expected)


def test_ranks_that_are_long(run_weft, tmp_path):
    """The two parts of a token are found in a time that does not grow with the square of its length: for 16 long texts it took 3.6 s, and now 0.8 s."""
    texts = [hashlib.shake_256(bytes([i])).digest(1024) for i in range(24)]
    tokens = [*(bytes([i]) for i in range(256)), *sorted({text[:n] for text in texts for n in range(2, 1025)}, key=len)]
    count = len(tokens) + 300
    record = dict(RECORDS["kimilinear"], config=dict(RECORDS["kimilinear"]["config"], vocab_size=count),
                  tensors=dict(RECORDS["kimilinear"]["tensors"], **{name: [count, 64] for name in ("lm_head.weight", "model.embed_tokens.weight")}))
    source = folders.write(tmp_path / "kimilinear", record)
    (source / "tiktoken.model").write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    reader = convert(run_weft, source, tmp_path / "out.gguf")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 3.5 * (8 if SANITIZED else 1)
    assert len(reader.fields["tokenizer.ggml.merges"].data) == len(tokens) - 256          # each is the one before it and a byte


def test_words_that_python_code_cuts(run_weft, tmp_path):
    source = folders.write(tmp_path / "kimilinear", RECORDS["kimilinear"])
    changed(source, "tokenizer_config.json", lambda t: t.update(tokenizer_class="OwnTokenizer"))
    fails(run_weft, source, "tokenizer_config.json: key 'tokenizer_class': OwnTokenizer cuts words in a way that is not known")


def changed(folder, file, change):
    data = json.loads((folder / file).read_text())
    change(data)
    (folder / file).write_text(json.dumps(data))


def test_each_class_is_complete(run_weft, folder):
    """Rows of classes name others that they are like, each of which has to have a row."""
    rows = "".join(p.read_text(encoding="utf-8") for p in sorted((Path(__file__).resolve().parents[2] / "src" / "model").glob("hf_classes*.c")))
    likes, names = set(re.findall(r'\.like = "(\w+)"', rows)), re.findall(r'^  \{\.name = "(\w+)"', rows, re.M)
    assert len(set(names)) > 90 and likes and likes < set(names)
    changed(folder, "config.json", lambda c: [c.pop(k) for k in list(c) if k != "architectures"])
    for name in [n for n in sorted(set(names)) if n in likes or f'"{n}", .like' in rows]:
        changed(folder, "config.json", lambda c: c.update(architectures=[name]))      # noqa: B023
        fails(run_weft, folder, "config.json: key '")


@pytest.mark.parametrize("file, change, expected", [
    ("config.json", lambda c: c.update(architectures=["MadeUpForCausalLM"]), "key 'architectures': folders of MadeUpForCausalLM are not read (those of "),
    ("config.json", lambda c: c.pop("architectures"), "key 'architectures': is missing"),
    ("config.json", lambda c: c.update(hidden_size=-3), "config.json: key 'hidden_size': -3 is not from 0 to 4294967295"),
    ("config.json", lambda c: c.update(hidden_size=1 << 70), "config.json: key 'hidden_size': is not a whole number"),
    ("config.json", lambda c: c.update(num_hidden_layers=None), "config.json: key 'num_hidden_layers': is missing"),
    ("config.json", lambda c: c.update(vocab_size=1 << 31), "key 'vocab_size': 2147483648 is not from 1 to 4194304"),
    ("config.json", lambda c: c.update(vocab_size=100), "but config.json says that there are 100"),
    ("config.json", lambda c: c.update(rms_norm_eps="small"), "key 'rms_norm_eps': is not a number"),
    ("config.json", lambda c: c.update(eos_token_id=9999, pad_token_id=1), ""),
    ("config.json", lambda c: c.update(bos_token_id=9999), "key 'bos_token_id': 9999 is not a token: there are 320"),
    ("config.json", lambda c: c.update(rope_parameters={"rope_type": "spiral"}), "key 'rope_type': 'spiral' is not known"),
    ("config.json", lambda c: c.update(rope_parameters={"rope_type": "yarn", "factor": 2.0}), "key 'original_max_position_embeddings': is missing"),
    ("config.json", lambda c: c.update(quantization_config={"quant_method": "fp8", "fmt": "e5m2"}), "key 'quantization_config': fp8 weights are not read yet"),
    ("config.json", lambda c: c.update(quantization_config={"quant_method": "fp8", "weight_block_size": [128]}), "weight_block_size': is not two numbers from 1 on"),
    ("config.json", lambda c: c.update(quantization_config={"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "int", "num_bits": 4}}}}), "compressed-tensors weights are not read yet"),
    ("config.json", lambda c: c.update(quantization_config={"quant_method": "hqq"}), "hqq weights are not read yet"),
    ("config.json", lambda c: c.update(quantization_config={"group_size": 64, "bits": 4}), "key 'quantization_config': MLX's or other quantised weights are not read yet"),
    ("config.json", lambda c: c.update(rope_parameters="yarn"), "config.json: key 'rope_parameters': is not an object"),
    ("config.json", lambda c: c.update(rope_scaling=[]), "key 'rope_scaling': is not an object"),
    ("config.json", lambda c: c.update(rope_parameters={"rope_type": 5}), "key 'rope_type': is not a text"),
    ("config.json", lambda c: c.update(rope_scaling={"type": ["linear"]}), "key 'type': is not a text"),
    ("config.json", lambda c: c.update(rope_parameters={"full_attention": 1e6}), "key 'full_attention': is not an object"),
    ("config.json", lambda c: c.update(rope_parameters={"sliding_attention": {"rope_type": True}}), "key 'rope_type': is not a text"),
    ("config.json", lambda c: c.update(text_config=[c.copy()]), "key 'text_config': is not an object"),
    ("config.json", lambda c: c.update(text_config={"rope_parameters": "none"}), "key 'rope_parameters': is not an object"),
    ("config.json", lambda c: c.update(quantization_config="fp8"), "key 'quantization_config': is not an object"),
    ("config.json", lambda c: c.update(bos_token_id="<s>"), "key 'bos_token_id': is not a token id, or a list of them"),
    ("config.json", lambda c: c.update(eos_token_id=[2, True]), "key 'eos_token_id': is not a token id"),
    ("config.json", lambda c: c.update(pad_token_id=1 << 70), "key 'pad_token_id': is not a token id"),
    ("config.json", lambda c: c.update(norm_topk_prob="yes"), "key 'norm_topk_prob': is not true or false"),
    ("config.json", lambda c: c.update(tie_word_embeddings=1), "key 'tie_word_embeddings': is not true or false"),
    ("config.json", lambda c: c.update(layer_types="full_attention"), "key 'layer_types': is not a list"),
    *(("config.json", lambda c, k=k: c.update({k: 1}), f"key '{k}': is not true or false") for k in (
        "norm_head", "moe_primary_router_apply_softmax", "use_double_wide_mlp", "attention_k_eq_v", "enable_lm_head_fp32", "apply_mla_qkv_lora_rescale", "use_qk_norm", "block_auto_adjust_ff_dim", "new_decoder_architecture",
        "multi_query", "mamba_rms_norm", "mamba_norm_before_gate", "scale_decoder_outputs", "use_sliding_window")),
    *(("config.json", lambda c, k=k: c.update({k: "full"}), f"key '{k}': is not a list") for k in ("sliding_window_layout", "rope_layout", "moe_layer_layout", "indexer_types", "mlp_layer_types")),
    *(("config.json", lambda c, k=k: c.update({k: True}), f"key '{k}': is not a text") for k in ("classifier_pooling", "expert_selection_fn")),
    ("config.json", lambda c: c.update(rope_scaling=None, pad_token_id=None, layer_types=None, tie_word_embeddings=None, bos_token_id=[1]), ""),
    ("tokenizer_config.json", lambda t: t.update(eos_token=7), "tokenizer_config.json: key 'eos_token': is not a text, or an object with its content"),
    ("tokenizer_config.json", lambda t: t.update(bos_token={"text": "<s>"}), "key 'bos_token': is not a text, or an object"),
    ("tokenizer_config.json", lambda t: t.update(add_bos_token="no"), "key 'add_bos_token': is not true or false"),
    ("tokenizer.json", lambda t: t["model"].update(type="Unigram"), "a vocabulary of Unigram, but only BPE is read"),
    ("tokenizer.json", lambda t: t["model"].update(byte_fallback=True), "BPE with byte_fallback, which needs tokenizer.model beside it"),
    ("config.json", lambda c: c.update(hidden_act="gelu"), "key 'hidden_act': gelu, but files of qwen3 have no key for it, and are of silu"),
    ("config.json", lambda c: c.update(use_sliding_window=True), "key 'use_sliding_window': true, but files of qwen3 have no key for it"),
    ("tokenizer.json", lambda t: t.update(pre_tokenizer={"type": "Metaspace"}), "key 'pre_tokenizer': this way of cutting words is not known (after NFC): Metaspace of another kind"),
    ("tokenizer.json", lambda t: t.update(normalizer={"type": "NFKC"}), "key 'normalizer': NFKC is not known"),
    ("tokenizer.json", lambda t: t["model"]["vocab"].update(twice=3), "two tokens have the number 3"),
    ("tokenizer.json", lambda t: t["model"]["merges"].append(["a"]), "key 'merges': the one at 13 is no pair"),
    ("tokenizer.json", lambda t: t["added_tokens"].append({"id": 5}), "key 'added_tokens': the one at 3 has no content"),
    ("tokenizer.json", lambda t: t["added_tokens"].append({"id": -5, "content": "x"}), "this token has no id, or one that is not a number"),
])
def test_what_json_cannot_say(run_weft, folder, file, change, expected):
    changed(folder, file, change)
    if expected:
        fails(run_weft, folder, expected)
    else:
        assert run_weft(["convert", folder, folder / "out.gguf"]).returncode == 0


@pytest.mark.parametrize("command", ["run", "convert"])
@pytest.mark.parametrize("name, value, key", [("hidden_size", 0, "embedding_length"), ("num_attention_heads", 1 << 20, "attention.head_count"),
                                              ("rms_norm_eps", -1.0, "attention.layer_norm_rms_epsilon"), ("intermediate_size", 0, "feed_forward_length")])
def test_keys_have_the_names_of_the_folder(run_weft, folder, command, name, value, key):
    """A size that only the model's reader refuses is named as config.json names it."""
    changed(folder, "config.json", lambda c: c.update({name: value}))
    done = run_weft([command, folder, *(["-p", "a", "-n", "1"] if command == "run" else [folder / "out.gguf"])])
    assert done.returncode == 1 and f"key 'qwen3.{key}' ('{name}' in config.json): " in done.err, done.err


@pytest.mark.parametrize("kind, change, expected", [
    ("qwen35", lambda c: c.update(linear_num_value_heads=5), "linear_attn.A_log': 6 rows are not those of heads (linear_num_key_heads linear_num_value_heads)"),
    ("qwen35", lambda c: c.update(linear_value_head_dim=1 << 20), "rows are not those of heads (linear_num_key_heads linear_num_value_heads linear_value_head_dim)"),
    ("qwen35", lambda c: c.update(linear_value_head_dim=1 << 21), "key 'linear_value_head_dim': 2097152 is more than 1048576"),
    ("qwen35", lambda c: c.update(linear_num_key_heads=0), "key 'linear_num_key_heads': is 0"),
    ("qwen35", lambda c: c.update(layer_types=["linear_attention"]), "key 'layer_types': is not a list of 2 layers"),
    ("qwen35", lambda c: c.update(layer_types=["linear_attention", 3]), "key 'layer_types': has 'what is no text'"),
    ("qwen35", lambda c: c.update(rope_parameters={"mrope_section": [1] * 5}), "key 'mrope_section': is not a list of at most 4 numbers"),
    ("qwen35", lambda c: c.update(rope_parameters={"mrope_section": [-1]}), "key 'mrope_section': has what is no count"),
    ("qwen35", lambda c: c.update(rope_parameters={"partial_rotary_factor": 2.0}), "key 'partial_rotary_factor': is not from 0 to 1"),
    ("qwen35", lambda c: c.update(attn_output_gate=False), "key 'attn_output_gate': false, but files of qwen35 have no key for it"),
    ("qwen3next", lambda c: c.update(linear_key_head_dim=17), "linear_attn.in_proj_qkvz.weight': 448 rows are not those of heads"),
    ("qwen3next", lambda c: c.update(linear_num_key_heads=4), "linear_attn.in_proj_qkvz.weight': 448 rows are not those of heads"),
    ("qwen3next", lambda c: c.update(norm_topk_prob=False), "key 'norm_topk_prob': false, but files of qwen3next have no key for it"),
])
def test_heads_of_linear_attention_that_do_not_fit(run_weft, tmp_path, kind, change, expected):
    source = folders.write(tmp_path / kind, RECORDS[kind])
    changed(source, "config.json", change)
    fails(run_weft, source, expected)


def test_a_kernel_of_8_bits_is_refused(run_weft, tmp_path):
    """Its axes are not those of a matrix with scales."""
    name = "model.layers.0.linear_attn.conv1d.weight"
    record = RECORDS["qwen35"]
    source = folders.write(tmp_path / "qwen35", {**record, "tensors": {k: v for k, v in record["tensors"].items() if k != name}})
    changed(source, "config.json", lambda c: c.update(quantization_config={"quant_method": "fp8"}))
    with_tensor(source / "model.safetensors", name, "F8_E4M3", [256, 1], bytes(256))
    with_tensor(source / "model.safetensors", name + "_scale_inv", "F32", [1], bytes(4))
    fails(run_weft, source, f"key '{name}': becomes 'blk.0.ssm_conv1d.weight' in another order, and has scales of blocks")


def test_blocks_that_predict_further_tokens(run_weft, tmp_path):
    """As many as there are tensors of; a saved model whose config.json still names one has none."""
    record = RECORDS["qwen35-seeing"]
    none = {**record, "tensors": {k: v for k, v in record["tensors"].items() if not k.startswith("mtp.")}}
    keys = keys_of(convert(run_weft, folders.write(tmp_path / "none", none), tmp_path / "out.gguf"))
    assert keys["qwen35.block_count"][1] == 2 and "qwen35.nextn_predict_layers" not in keys
    for name, expected in (("mtp.layers.5000.x.weight", "is of a layer beyond 4096"), ("mtp.layers.0.x.weight", "is not one that Qwen3_5ForConditionalGeneration has"),
                           ("mtp.layers.00.mlp.up_proj.weight", "is not one that"), ("mtp.layers", "is not one that"), ("mtp.fcs.weight", "is not one that")):
        more = {**record, "tensors": {**record["tensors"], name: [4]}}
        fails(run_weft, folders.write(tmp_path / "more", more), f"tensor '{name}' " + expected)


@pytest.mark.parametrize("kind, change, expected", [
    ("gemma4", lambda c: c.update(layer_types=["full_attention"]), "key 'layer_types': is not a list of 4 layers"),
    ("gemma4", lambda c: c.update(layer_types=["full_attention"] * 3 + [None]), "key 'layer_types': has 'what is no text'"),
    ("gemma4", lambda c: c.update(per_layer_config={"1": {"head_dim": -1}}), "key 'per_layer_config': head_dim of layer 1 is no count"),
    ("gemma4", lambda c: c.update(per_layer_config={"1": {"head_dim": 1 << 20}}), "key 'global_head_dim': 1048576 is not from 2 to 65536"),
    ("gemma4", lambda c: c.update(num_kv_shared_layers=5), "key 'num_kv_shared_layers': 5 of 4 layers"),
    ("gemma4", lambda c: c.update(intermediate_size=(1 << 32) - 1), "key 'intermediate_size': 4294967295 is too much"),
    ("gemma4-seeing", lambda c: c["text_config"].update(num_key_value_heads=1 << 31), "key 'num_key_value_heads': 2147483648 or 1 is too many"),
    ("gemma4", lambda c: c["rope_parameters"]["full_attention"].update(rope_type="default"), "key 'rope_type': of full_attention is not proportional"),
    ("gemma4", lambda c: c["rope_parameters"]["full_attention"].update(partial_rotary_factor=-1), "key 'partial_rotary_factor': is not from 0 to 1"),
    ("gemma4", lambda c: c.update(use_bidirectional_attention="all"), "key 'use_bidirectional_attention': 'all', but files of gemma4 have no key for it"),
    ("gemma4", lambda c: c.update(attention_bias=True), "key 'attention_bias': true, but files of gemma4 have no key for it"),
])
def test_layers_of_gemma_4_that_do_not_fit(run_weft, tmp_path, kind, change, expected):
    source = folders.write(tmp_path / kind, RECORDS[kind])
    changed(source, "config.json", change)
    fails(run_weft, source, expected)


def test_gemma_4_as_it_is_published(run_weft, tmp_path):
    """Sizes of the full layers stand beside the others; layers that take the keys of others have matrices that are not read; what is left out is the class's."""
    for kind, heads in (("gemma4", {"global_head_dim": 64, "num_global_key_value_heads": 7}), ("gemma4-seeing", {"global_head_dim": 64, "num_global_key_value_heads": 1})):
        record = json.loads(json.dumps(RECORDS[kind]))
        config = record["config"].get("text_config", record["config"])
        for key in ("per_layer_config", "rms_norm_eps", "rope_parameters"):
            del config[key]
        config.update(heads)
        expected = {**RECORDS[kind]["keys"], "general.name": ["STRING", kind], "general.file_type": ["UINT32", 32]}
        if kind == "gemma4":                                # the numbers of the file's size are those of its tensors
            record["tensors"].update({f"model.layers.{i}.self_attn.{n}_proj.weight": [s, 64] for i, s in ((2, 64), (3, 128)) for n in "kv"})
            expected.pop("general.size_label")
        keys = keys_of(convert(run_weft, folders.write(tmp_path / kind, record), tmp_path / "out.gguf"))
        assert {k: v for k, v in keys.items() if k in expected} == expected
        assert run_weft(["run", "-m", tmp_path / kind, "--ids", "5,6,7", "-n", "2", "--temp", "0", "--json"]).returncode == 0
    config["layer_types"] = None
    keys = keys_of(convert(run_weft, folders.write(tmp_path / "silent" / kind, record), tmp_path / "out.gguf"))
    assert keys["gemma4.attention.sliding_window_pattern"][1] == [True, False]


@pytest.mark.parametrize("change, expected", [
    (lambda t: t["model"].update(byte_fallback=False), "key 'model': is not BPE with byte_fallback, as that of Gemma4ForCausalLM is"),
    (lambda t: t["model"].update(type="Unigram"), "key 'model': is not BPE with byte_fallback"),
    (lambda t: t.update(normalizer={"type": "NFC"}), "key 'normalizer': does not replace spaces, as that of Gemma4ForCausalLM does"),
    (lambda t: t.update(normalizer=None), "key 'normalizer': does not replace spaces"),
])
def test_vocabularies_that_are_not_of_gemma_4(run_weft, tmp_path, change, expected):
    source = folders.write(tmp_path / "gemma4", RECORDS["gemma4"])
    changed(source, "tokenizer.json", change)
    fails(run_weft, source, "tokenizer.json: " + expected)
    (source / "tokenizer.json").unlink()
    fails(run_weft, source, "tokenizer.json: is missing")


def test_lines_of_gemma_4_become_the_tokens_of_its_tokenizer(run_weft, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    source = folders.write(tmp_path / "gemma4", RECORDS["gemma4"])
    theirs = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in ("def add(a, b):\n    return a + b\n", " a  a return\n\n x \u00e9\u2581a", "re <late>  a\n   retu", "<|channel>in a<channel|>"):
        ours = run_weft(["tokenize", "-m", source, "-p", text, "--ids", "--no-bos"])
        assert ours.returncode == 0, ours.err
        assert json.loads(ours.out) == theirs.encode(text, add_special_tokens=False).ids, text


def test_layers_follow_from_the_interval(run_weft, tmp_path):
    record = json.loads(json.dumps(RECORDS["qwen35"]))
    del record["config"]["layer_types"]
    record["config"]["full_attention_interval"] = 2
    assert keys_of(convert(run_weft, folders.write(tmp_path / "qwen35", record), tmp_path / "out.gguf")) == {**RECORDS["qwen35"]["keys"], "general.name": ["STRING", "qwen35"],
        "general.file_type": ["UINT32", 32], "qwen35.full_attention_interval": ["UINT32", 2]}


@pytest.mark.parametrize("kind, change, expected", [
    ("deepseek2", lambda c: c["rope_parameters"].update(mscale=1.0), "key 'mscale': is not mscale_all_dim, but files of deepseek2 have one key for both"),
    ("deepseek2", lambda c: c["rope_parameters"].pop("mscale"), "key 'mscale': is not mscale_all_dim"),
    ("deepseek2", lambda c: c.update(topk_method="group_limited_greedy"), "key 'topk_method': group_limited_greedy, but files of deepseek2 have no key for it"),
    ("deepseek3", lambda c: c.update(rope_interleave=False), "key 'rope_interleave': false, but files of deepseek2 have no key for it"),
    ("deepseek3", lambda c: c.update(scoring_func="tanh"), "key 'scoring_func': is neither softmax, sigmoid nor sqrtsoftplus"),
    ("deepseek3", lambda c: c.update(qk_nope_head_dim=40), "kv_b_proj.weight': 160 rows are not those of heads (num_attention_heads qk_nope_head_dim)"),
    ("deepseek3", lambda c: c.update(num_attention_heads=3), "kv_b_proj.weight': 160 rows are not those of heads"),
    ("deepseek3", lambda c: c.update(v_head_dim=23), "attn_v_b.weight"),
    ("deepseek3", lambda c: c.update(kv_lora_rank=None), "key 'kv_lora_rank': is missing"),
    ("glm4moe", lambda c: c.update(num_nextn_predict_layers=5000), "key 'num_nextn_predict_layers': 5000 is more than 4096"),
    ("granitemoe", lambda c: c.update(intermediate_size=95), "blk.0.ffn_"),
    ("erniemoe", lambda c: c.update(moe_intermediate_size=None), "key 'moe_intermediate_size': is missing"),
])
def test_what_files_of_a_class_cannot_say(run_weft, tmp_path, kind, change, expected):
    source = folders.write(tmp_path / "small", RECORDS[kind])
    changed(source, "config.json", change)
    fails(run_weft, source, expected)


def test_layers_that_only_config_json_has(run_weft, tmp_path):
    """transformers saves GLM without the layer that predicts a further token, and still says that there is one. The file has the layers that there are; the converter's says one more (docs/convert.md)."""
    record = RECORDS["glm4moe"]
    fewer = {**record, "tensors": {n: s for n, s in record["tensors"].items() if not n.startswith("model.layers.2.")}}
    keys = keys_of(convert(run_weft, folders.write(tmp_path / "small", fewer), tmp_path / "out.gguf"))
    assert keys["glm4moe.block_count"][1] == 2 and keys.get("glm4moe.nextn_predict_layers", [0, 0])[1] == 0
    done = run_weft(["run", "-m", tmp_path / "small", "-p", "a", "-n", "2"])
    assert done.returncode == 0, done.err
    changed(tmp_path / "small", "tokenizer.json", lambda t: t["added_tokens"].pop(3))
    (tmp_path / "small" / "out.gguf").unlink(missing_ok=True)
    fails(run_weft, tmp_path / "small", "key 'added_tokens': has no <|observation|>")


def test_the_older_name_of_ernie(run_weft, tmp_path):
    source = folders.write(tmp_path / "ernie", RECORDS["ernie"])
    made = []
    for name in ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"):
        changed(source, "config.json", lambda c, name=name: c.update(architectures=[name]))
        convert(run_weft, source, tmp_path / "out.gguf")
        made.append((tmp_path / "out.gguf").read_bytes())
    assert made[0] == made[1]


def head_of(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]


def put_head(path, text, data):
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize("change, expected", [
    (lambda t: t.update(data_offsets=[0, 1 << 62]), "its data_offsets, 0 and 4611686018427387904, are not in the"),
    (lambda t: t.update(data_offsets=[9, 5]), "its data_offsets, 9 and 5, are not in the"),
    (lambda t: t.update(data_offsets=[-1, 5]), "its data_offsets are not two numbers"),
    (lambda t: t.update(data_offsets=7), "its data_offsets are not two numbers"),
    (lambda t: t.update(data_offsets=[0, t["data_offsets"][1] - t["data_offsets"][0]]), "its data overlaps with that of"),
    (lambda t: t.update(shape=[1 << 62, 1 << 62]), "its shape is larger than any file"),
    (lambda t: t.update(shape=[96, 65]), "bytes of data, but shape and dtype BF16 make 12480"),
    (lambda t: t.update(shape=[1.5, 2]), "its shape has what is no size"),
    (lambda t: t.update(shape=[1] * 9), "its shape is not a list of at most 8 numbers"),
    (lambda t: t.update(dtype="BF15"), "dtype 'BF15' is not one that is known"),
    (lambda t: t.update(dtype="I16"), "tensors of I16 are not read"),
])
def test_heads_that_lie(run_weft, folder, change, expected):
    head, data = head_of(folder / "model.safetensors")
    change(head[NAME])
    put_head(folder / "model.safetensors", json.dumps(head).encode(), data)
    fails(run_weft, folder, "model.safetensors: key '", expected)


# What config.json or a name says, beside tensors of something else: shapes are checked against it by whoever opens the file
UNFIT = {
    "a layer more": (lambda c: c.update(num_hidden_layers=c["num_hidden_layers"] + 1), None),
    "513 layers": (lambda c: c.update(num_hidden_layers=513), None),
    "2^31 layers": (lambda c: c.update(num_hidden_layers=1 << 31), None),
    "a wider model": (lambda c: c.update(hidden_size=c["hidden_size"] + 1), None),
    "more heads of keys": (lambda c: c.update(num_key_value_heads=2 * c["num_attention_heads"]), None),
    "a negative epsilon": (lambda c: c.update(rms_norm_eps=-1.0), None),
    "no norm": (None, lambda h: h.pop("model.norm.weight")),
    "a layer with a zero in front": (None, lambda h: h.update({NAME.replace(".0.", ".00."): h.pop(NAME)})),
    "a layer that is none": (None, lambda h: h.update({NAME.replace(".0.", ".99."): h.pop(NAME)})),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_cannot_run_is_not_written(run_weft, folder, name):
    config, names = UNFIT[name]
    if config:
        changed(folder, "config.json", config)
    else:
        head, data = head_of(folder / "model.safetensors")
        names(head)
        put_head(folder / "model.safetensors", json.dumps(head).encode(), data)
    fails(run_weft, folder, "weft: error: ", "small")
    assert sorted(p.name for p in folder.iterdir() if "out" in p.name) == []


def test_heads_that_are_none(run_weft, folder):
    path = folder / "model.safetensors"
    head, data = head_of(path)
    text = json.dumps(head).encode()
    for content, expected in ((b"abc", "has 3 bytes: no safetensors file"), (struct.pack("<Q", 1 << 63) + text, "a head of 9223372036854775808 bytes"),
                              (struct.pack("<Q", len(text)) + text[:-1] + b"]", "line 1, column"), (struct.pack("<Q", 1 << 16) + b"[" * (1 << 16), "line 1, column"),
                              (struct.pack("<Q", 2) + b"[]", "is not a JSON object"), (struct.pack("<Q", len(text)) + text + data[:-1], "are not in the")):
        path.write_bytes(content)
        fails(run_weft, folder, "model.safetensors: ", expected)
    twice = text[:-1] + b"," + json.dumps({NAME: head[NAME]}).encode()[1:]
    put_head(path, twice, data)
    fails(run_weft, folder, "duplicate object key")
    put_head(path, text.replace(b"mlp.up_proj", b"mlp.sideways"), data)
    fails(run_weft, folder, "tensor 'model.layers.0.mlp.sideways.weight' is not one that Qwen3ForCausalLM has")
    path.unlink()
    fails(run_weft, folder, "there is no model*.safetensors")


@pytest.mark.parametrize("change, expected", [
    (lambda m: m.update({NAME: "../model-00001-of-00002.safetensors"}), "'../model-00001-of-00002.safetensors' is not a safetensors file of this folder"),
    (lambda m: m.update({NAME: "/etc/passwd"}), "is not a safetensors file of this folder"),
    (lambda m: m.update({NAME: 3}), "is not the name of a file"),
    (lambda m: m.update({NAME: "model-00003-of-00002.safetensors"}), "model-00003-of-00002.safetensors: cannot be opened"),
    (lambda m: m.update({"model.more.weight": "model-00001-of-00002.safetensors"}), "key 'model.more.weight': no such tensor is in model-00001-of-00002.safetensors"),
    (lambda m: m.update({NAME: "model-0000%d-of-00002.safetensors" % (3 - int(m[NAME][10]))}), "is in "),
    (lambda m: m.pop(NAME), "is not named in model.safetensors.index.json"),
])
def test_an_index_that_lies(run_weft, tmp_path, change, expected):
    source = folders.write(tmp_path / "small", RECORDS["qwen3"], files=2)
    changed(source, "model.safetensors.index.json", lambda index: change(index["weight_map"]))
    fails(run_weft, source, expected)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "model.safetensors"])
def test_a_file_that_cannot_be_reached_is_not_missing(run_weft, folder, name):
    """A link to nothing, as a download that broke leaves it, and one to itself: without its template a model would answer otherwise."""
    (folder / name).unlink(missing_ok=True)
    for to, expected in (("../blobs/none", "No such file or directory"), (name, "Too many levels of symbolic links")):
        (folder / name).symlink_to(to)
        fails(run_weft, folder, f"{name}: cannot be opened: {expected}")
        (folder / name).unlink()


@pytest.mark.skipif(SANITIZED, reason="libswap.so would come before the sanitizers")
@pytest.mark.parametrize("at, name, gone", [("tokenizer.json", "config.json", False), ("tokenizer.json", "model.safetensors", False), ("chat_template.jinja", "tokenizer_config.json", True),
                                            ("chat_template.jinja", "generation_config.json", False)])
def test_a_folder_that_changes_while_it_is_read(run_weft, built_tool, folder, at, name, gone):
    """Another program writes a newer version, file by file: what is read may be of both. A file is replaced, removed, or there at last; the next reading finds what is there then."""
    new, out = folder.parent / "new", folder.parent / "out.gguf"
    before = (folder / name).read_bytes() if (folder / name).exists() else None
    env = {"LD_PRELOAD": built_tool("libswap.so", "WEFT_SWAP"), "SWAP_AT": f"/{at}", "SWAP_FROM": "" if gone else str(new), "SWAP_TO": str(folder / name)}
    for command in ["run", "-m", folder, "--ids", "3,5", "-n", "2", "--ignore-eos"], ["convert", folder, out]:
        if not gone:
            new.write_bytes(before or b"{}")
        done = run_weft(["--no-sandbox", *command], env=env)            # it would not let the other program's work be done in its process
        assert done.returncode == 1 and f"{name}: was changed by another program while the folder was read" in done.err and not out.exists(), done.err
        if before:
            (folder / name).write_bytes(before)
        else:
            (folder / name).unlink()
    done = run_weft(["run", "-m", folder, "--ids", "3,5", "-n", "2", "--ignore-eos"])
    assert done.returncode == 0, done.err


def test_values_that_no_format_has(run_weft, tmp_path):
    record = RECORDS["qwen2"]
    source = folders.write(tmp_path / "small", record, "F32")
    path = source / "model.safetensors"
    head, data = head_of(path)
    at = head[NAME]["data_offsets"][0]
    for value, expected in ((float("nan"), "has a value that is no number"), (1e6, "has values that are too large for F16")):
        put_head(path, json.dumps(head).encode(), data[:at] + struct.pack("<f", value) + data[at + 4:])
        fails(run_weft, source, "tensor 'blk.0.ffn_up.weight': row 0 " + expected)


def test_what_is_no_folder(run_weft, tmp_path, tinypy):
    (tmp_path / "empty").mkdir()
    for path, expected in ((tmp_path / "empty", "config.json: is missing"), (tinypy, "is not a folder"), (tmp_path / "none", "is not a folder")):
        done = run_weft(["convert", path, tmp_path / "out.gguf"])
        assert done.returncode == 1 and expected in done.err, done.err
    done = run_weft(["run", "-m", tmp_path / "empty", "-p", "x"])
    assert done.returncode == 1 and "is a directory, not a GGUF file, and has no config.json" in done.err
    assert run_weft(["convert", tmp_path / "empty"]).returncode == 2 and run_weft(["convert"]).returncode == 2


def test_vocabularies_of_sentencepiece(run_weft, tmp_path):
    source = folders.write(tmp_path / "small", {**RECORDS["llama"], "pieces": True})
    path = source / "tokenizer.model"
    data = path.read_bytes()
    for content, expected in ((b"", "has 0 pieces: no vocabulary"), (data[:-3], "is cut or no message of SentencePiece"), (b"\xff" * 99, "has 0 pieces"),
                              (folders.message((1, folders.message((1, b"\xff\xfe")))), "piece 0 is damaged"), (folders.message((1, folders.message((1, "a"), (3, 9)))), "piece 0 is damaged"),
                              (folders.message((1, folders.message((1, "a"), (2, "scores")))), "piece 0 is damaged"), (folders.pieces(kind=1), "is not of BPE, as vocabularies of LlamaForCausalLM are")):
        path.write_bytes(content)
        fails(run_weft, source, "tokenizer.model: " + expected)


def test_experts_that_are_missing(run_weft, tmp_path):
    record = RECORDS["mixtral"]
    name = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    fewer = {**record, "tensors": {k: v for k, v in record["tensors"].items() if k != name}}
    fails(run_weft, folders.write(tmp_path / "fewer", fewer), "expert 2 of 'blk.1.ffn_up_exps.weight' is missing")
    other = {**record, "tensors": {**record["tensors"], name: [32, 64]}}
    fails(run_weft, folders.write(tmp_path / "other", other), f"key '{name}': has another shape or type than that of another expert")
    more = {**record, "tensors": {**record["tensors"], name.replace(".2.", ".4."): [96, 64]}}
    fails(run_weft, folders.write(tmp_path / "more", more), "config.json says that there are 4 experts")


def with_tensor(path, name, dtype, shape, data):
    head, before = head_of(path)
    head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(before), len(before) + len(data)]}
    put_head(path, json.dumps(head).encode(), before + data)


BLOCKS = [("qwen3", [32, 48], "F32"), ("llama", [128, 128], "BF16"), ("qwen3moe", [16, 16], "F32"), ("qwen3", None, "F32"), ("qwen35moe", [32, 48], "F32"), ("qwen3next", [16, 16], "BF16"), ("deepseek3", [24, 16], "F32"),
          ("qwen35moe-seeing", [24, 16], "F32"), ("qwen35moe-seeing", None, "F32")]
# What compressed-tensors and ModelOpt write: scales of rows, of blocks, or one for all
GROUPS = {"group_0": {"weights": {"type": "float", "num_bits": 8}}}
SCALED = [("qwen3", "row", {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": GROUPS}),
          ("llama", [32, 16], {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [32, 16]}}}}),
          ("qwen2", None, {"quant_method": "modelopt", "quant_algo": "FP8"})]


def in_blocks(tmp_path, kind, block, dtype, config=None):
    """A folder with weights of 8 bits, and one that has what these are as floats."""
    made, config = [], config or {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", **({"weight_block_size": block} if block else {})}
    end, block = "_scale_inv" if config["quant_method"] == "fp8" else "_scale", [1, 1 << 20] if block == "row" else block
    record = RECORDS[kind]
    tensors = {name: ("BF16", shape, folders.weights(name, shape, "BF16")) for name, shape in record["tensors"].items()}
    for name, some in zip(("small", "floats"), folders.in_blocks(tensors, block, dtype, end)):
        made.append(folders.write(tmp_path / name / kind, record))
        folders.safetensors(made[-1] / "model.safetensors", some)
    changed(made[0], "config.json", lambda c: c.update(quantization_config=config))
    return made


@pytest.mark.parametrize("kind, block, config", SCALED)
def test_scales_of_rows(run_weft, tmp_path, kind, block, config):
    """What counts activations is left out."""
    small, floats = in_blocks(tmp_path, kind, block, "BF16", config)
    for part in ("input_scale", "k_scale", "activation_scale"):
        with_tensor(small / "model.safetensors", f"model.layers.0.self_attn.k_proj.{part}", "F32", [1], bytes(4))
    made = [{t.name: t.data.tobytes() for t in convert(run_weft, folder, tmp_path / "out.gguf", "--outtype", "f32").tensors} for folder in (small, floats)]
    assert made[0] == made[1] and len(made[0]) > 10


@pytest.mark.parametrize("kind, block, dtype", BLOCKS)
def test_weights_of_8_bits(run_weft, tmp_path, kind, block, dtype):
    """Each is its number times the scale of its block; the last blocks of rows and columns may be cut."""
    small, floats = in_blocks(tmp_path, kind, block, dtype)
    for out in ("bf16", "f32"):
        made = [{t.name: t.data.tobytes() for t in convert(run_weft, folder, tmp_path / "out.gguf", "--outtype", out).tensors} for folder in (small, floats)]
        assert made[0] == made[1] and len(made[0]) > 10
        assert list(made[0]) == list(made[1])          # whatever stands first in the file of weights
    answers = []
    tensors = json.loads(run_weft(["inspect", small, "--json"]).stdout)["tensors"]
    assert {t["type"] for t in tensors if "ffn_up" in t["name"]} == {"BF16"}          # whatever numbers come first in the file
    convert(run_weft, small, tmp_path / "out.gguf")
    for model in (tmp_path / "out.gguf", small):
        done = run_weft(["run", "-m", model, "--ids", "1,2,3,4,5", "-n", "1", "--json", "--top-logprobs", "400", "--temp", "0"])
        assert done.returncode == 0, done.err
        answers.append(done.stdout.splitlines()[0])
    assert answers[0] == answers[1]


def test_sampling_that_a_folder_proposes(run_weft, folder):
    said = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": None, "repetition_penalty": 1, "eos_token_id": [1, 2]}
    (folder / "generation_config.json").write_text(json.dumps(said))
    keys = keys_of(convert(run_weft, folder, folder / "out.gguf"))
    expected = {"temp": ["FLOAT32", 0.6], "top_k": ["INT32", 20], "top_p": ["FLOAT32", 0.95], "penalty_repeat": ["FLOAT32", 1.0]}
    assert {k[17:]: [v[0], round(v[1], 6)] for k, v in keys.items() if k.startswith("general.sampling.")} == expected
    (folder / "out.gguf").unlink()
    for key, value in (("top_k", 2.5), ("temperature", "warm"), ("top_k", 1 << 40)):
        (folder / "generation_config.json").write_text(json.dumps({key: value}))
        fails(run_weft, folder, f"generation_config.json: key '{key}': is not a")


def test_tokens_that_a_folder_suppresses(run_weft, folder):
    (folder / "generation_config.json").write_text(json.dumps({"suppress_tokens": [3, 5]}))
    keys = keys_of(convert(run_weft, folder, folder / "out.gguf"))
    assert keys["tokenizer.ggml.suppress_tokens"] == ["ARRAY", [3, 5]]
    (folder / "out.gguf").unlink()
    for none in (None, []):
        (folder / "generation_config.json").write_text(json.dumps({"suppress_tokens": none}))
        assert "tokenizer.ggml.suppress_tokens" not in keys_of(convert(run_weft, folder, folder / "out.gguf"))
        (folder / "out.gguf").unlink()
    for value in (7, [1, -1], [1 << 31], [2.5], ["a"]):
        (folder / "generation_config.json").write_text(json.dumps({"suppress_tokens": value}))
        fails(run_weft, folder, "generation_config.json: key 'suppress_tokens': is no list of token ids")


SCALES = "model.layers.0.mlp.up_proj.weight_scale_inv"


@pytest.mark.parametrize("change, expected", [
    (lambda t: t.pop(SCALES), "key 'model.layers.0.mlp.up_proj.weight': has no scales"),
    (lambda t: t.update({SCALES: ("F32", [2, 3], bytes(24))}), f"key '{SCALES}': has another shape than 3 x 2"),
    (lambda t: t.update({SCALES: ("I32", [3, 2], bytes(24))}), f"key '{SCALES}': scales of I32 are not read"),
    (lambda t: t.update({"model.norm.weight_scale_inv": ("F32", [1], bytes(4))}), "key 'model.norm.weight': has scales, and is no matrix of F8_E4M3"),
    (lambda t: t.update({"model.x.weight_scale_inv": ("F32", [1], bytes(4))}), "key 'model.x.weight_scale_inv': there is no matrix that has these scales"),
])
def test_scales_that_are_none(run_weft, tmp_path, change, expected):
    source = folders.write(tmp_path / "small", RECORDS["qwen3"])
    changed(source, "config.json", lambda c: c.update(quantization_config={"quant_method": "fp8", "weight_block_size": [32, 32]}))
    tensors, _ = folders.in_blocks({name: ("BF16", shape, folders.weights(name, shape, "BF16")) for name, shape in RECORDS["qwen3"]["tensors"].items()}, [32, 32])
    change(tensors)
    folders.safetensors(source / "model.safetensors", tensors)
    fails(run_weft, source, "model.safetensors: ", expected)


@pytest.mark.parametrize("kind, change, expected", [
    ("cohere2", lambda c: c["layer_types"].reverse(), "key 'layer_types': has 'full_attention' at 0, but layers of cohere2 are of other kinds there"),
    ("dots1", lambda c: c.update(layer_types=["full_attention", "sliding_attention"]), "key 'layer_types': has 'sliding_attention' at 1"),
    ("lfm2", lambda c: c.update(layer_types=["conv"]), "key 'layer_types': is not a list of 3 layers"),
    ("lfm2", lambda c: c.update(block_multiple_of=0), "block_multiple_of 0 give no width"),
    ("minimax-m2", lambda c: c.pop("rotary_dim") and c["rope_parameters"].update(partial_rotary_factor=1.5), "key 'partial_rotary_factor': is not from 0 to 1"),
    ("starcoder2", lambda c: c.update(use_bias=False), "key 'use_bias': false, but files of starcoder2 have no key for it"),
])
def test_layers_that_files_do_not_name(run_weft, tmp_path, kind, change, expected):
    source = folders.write(tmp_path / kind, RECORDS[kind])
    changed(source, "config.json", change)
    fails(run_weft, source, "config.json: ", expected)


@pytest.mark.parametrize("kind", ["t5", "t5-gated", "dream", "llada", "lladamoe"])
def test_a_folder_writes_as_its_file_does(run_weft, tmp_path, kind):
    """Models that do not go on token by token."""
    record = json.loads(json.dumps(RECORDS[kind]))
    if kind == "lladamoe":                             # its folders do not name the mask, whose number the class has
        record["config"]["mask_token_id"] = 270
    source = folders.write(tmp_path / kind, record)
    convert(run_weft, source, tmp_path / "out.gguf")
    answers = [run_weft(["run", "-m", m, "-p", "def a b\u00e9", "-n", "12", "--temp", "0", "-c", "64", *(["--diffusion-steps", "4"] if "t5" not in kind else [])]) for m in (source, tmp_path / "out.gguf")]
    assert [a.returncode for a in answers] == [0, 0], answers[0].err
    assert answers[0].stdout == answers[1].stdout != ""


@pytest.mark.parametrize("kind, change, expected", [
    ("gpt2", lambda c: c.update(activation_function="relu"), "key 'activation_function': relu, but files of gpt2 have no key for it, and are of gelu|gelu_new"),
    ("gpt2", lambda c: c.update(n_embd=1 << 30), "key 'hidden_size': 1073741824 is too much"),
    ("gptneox", lambda c: c["rope_parameters"].update(partial_rotary_factor=1.5), "key 'partial_rotary_factor': is not from 0 to 1"),
    ("falcon", lambda c: c.update(alibi=True), "key 'alibi': true, but files of falcon"),
    ("falcon-groups", lambda c: c.update(num_kv_heads=3), "rows are not those of heads (num_key_value_heads num_attention_heads"),
    ("mpt", lambda c: c["attn_config"].update(alibi=False), "key 'alibi': is not true"),
    ("mpt", lambda c: c.update(attn_config=[]), "key 'attn_config': is missing, or is not an object"),
    ("mpt", lambda c: c["attn_config"].update(kv_n_heads=0.5), "key 'kv_n_heads': is not a number of heads"),
    ("stablelm-parallel", lambda c: c.update(num_attention_heads=2), "config.json says that there are 2 heads"),
    ("lfm2moe", lambda c: c.update(routed_scaling_factor=2.5), "key 'routed_scaling_factor': 2.5, but files of lfm2moe have no key for it, and are of 1"),
    ("phimoe", lambda c: c["rope_parameters"].update(long_mscale=1.25), "key 'short_mscale': is not long_mscale"),
    ("afmoe", lambda c: c.update(mup_enabled=False), "key 'mup_enabled': false"),
    ("hunyuan", lambda c: c["rope_parameters"].update(alpha=-1.0), "key 'alpha': -1 and head_dim 32 give no base"),
    ("hunyuan", lambda c: c["rope_parameters"].update(rope_type="yarn"), "key 'rope_type': 'yarn' is not dynamic"),
    ("hunyuan", lambda c: c.update(eod_token_id=400), "key 'eod_token_id': 400 is not a token"),
    ("mamba2", lambda c: c.update(rms_norm=False), "key 'rms_norm': false, but files of mamba2"),
    ("mamba2", lambda c: c.update(n_groups=3), "mixer.norm.weight': is not a list of numbers for 3 rows"),
    ("roberta", lambda c: c.update(pad_token_id=511), "key 'max_position_embeddings': has none after the padding token's, 511"),
    ("roberta", lambda c: c.update(position_embedding_type="relative_key"), "key 'position_embedding_type': relative_key, but files of bert"),
    ("modernbert", lambda c: c["layer_types"].reverse() or c["layer_types"].insert(0, "sliding_attention"), "key 'layer_types': has 'sliding_attention' at 0"),
    ("nomicbert", lambda c: c.update(activation_function="gelu"), "key 'activation_function': gelu, but files of nomic-bert"),
    ("gemma3-text", lambda c: c.update(use_bidirectional_attention=False), "key 'use_bidirectional_attention': false"),
    ("nemotronh", lambda c: c.pop("layers_block_type"), "key 'layers_block_type': is missing"),
    ("nemotronh", lambda c: c["layers_block_type"].append("mlp"), "key 'hybrid_override_pattern': has dense layers and experts"),
    ("nemotronh", lambda c: c.update(hybrid_override_pattern="ME*X"), "key 'hybrid_override_pattern': layer 3 is of an unknown kind"),
    ("nemotronh", lambda c: c.update(num_nextn_predict_layers=1), "key 'num_nextn_predict_layers': 1, but files of nemotron_h_moe"),
    ("glmdsa", lambda c: c["indexer_types"].append("full"), "key 'indexer_types': is not a list of 2 layers"),
    ("glmdsa", lambda c: c.update(indexer_types=["full", "none"]), "key 'indexer_types': has 'none'"),
    ("llama4", lambda c: c.update(moe_layers=[0, 3]), "key 'moe_layers': is not of every layer in 2"),
    ("llama4", lambda c: c.update(use_qk_norm=False), "key 'use_qk_norm': is false, but files of llama4 with 4 experts are of true"),
    ("llama4", lambda c: c.update(no_rope_layers=[1, 1, 0, 1]), "key 'no_rope_layers': has another value than 1 at 2"),
    ("llama4", lambda c: c.update(layer_types=["full_attention"] * 4), "key 'layer_types': is not chunked but for each fourth layer"),
    ("llama4", lambda c: c.update(attention_chunk_size=None), "key 'attention_chunk_size': is null"),
    ("falconh1", lambda c: c.update(ssm_multipliers=[1.0]), "key 'ssm_multipliers': is not a list of 5 numbers"),
    ("falconh1", lambda c: c.update(mamba_norm_before_gate=True), "key 'mamba_norm_before_gate': is not false"),
    ("falconh1", lambda c: c.update(mamba_d_ssm=64), "in_proj.weight': has other rows than the parts with factors in config.json"),
    ("jamba", lambda c: c.pop("attn_layer_period"), "key 'attn_layer_period': is missing"),
    ("granitehybrid", lambda c: c["layer_types"].pop(), "key 'layer_types': is not a list of 3 layers"),
    ("granitehybrid", lambda c: c.update(layer_types=["mamba", "rwkv", "mamba"]), "key 'layer_types': has 'rwkv'"),
])
def test_what_files_of_older_classes_do_not_say(run_weft, tmp_path, kind, change, expected):
    source = folders.write(tmp_path / kind, RECORDS[kind])
    changed(source, "config.json", change)
    fails(run_weft, source, expected)


def test_a_number_of_each_layer(run_weft, tmp_path):
    """Of Apertus: keys of the file, which need every layer."""
    name = "model.layers.1.mlp.act_fn.beta"
    source = folders.write(tmp_path / "apertus", RECORDS["apertus"])
    with_tensor(source / "model.safetensors", name, "BF16", [2], bytes(4))
    fails(run_weft, source, f"key '{name}': is not one number of one of 2 layers")
    record = json.loads(json.dumps(RECORDS["apertus"]))
    del record["tensors"][name]
    fails(run_weft, folders.write(tmp_path / "few", record), "'xielu.beta' is there for 1 of 2 layers")


def test_names_and_masks_of_gpt_2(run_weft, tmp_path):
    """Folders have transformer. before each name, or not, and may have the causal mask of each layer."""
    record = json.loads(json.dumps(RECORDS["gpt2"]))
    plain = convert(run_weft, folders.write(tmp_path / "plain" / "gpt2", record), tmp_path / "out.gguf")
    made = {t.name: t.data.shape for t in plain.tensors}
    record["tensors"] = {"transformer." + n: s for n, s in record["tensors"].items()} | {"transformer.h.0.attn.bias": [1, 1, 64, 64], "transformer.h.0.attn.masked_bias": []}
    other = convert(run_weft, folders.write(tmp_path / "gpt2", record), tmp_path / "out.gguf")
    assert {t.name: t.data.shape for t in other.tensors} == made and keys_of(other) == keys_of(plain)


def test_layers_of_granite_4_as_newer_programs_name_them(run_weft, tmp_path):
    source = folders.write(tmp_path / "granitehybrid", RECORDS["granitehybrid"])
    keys = keys_of(convert(run_weft, source, tmp_path / "out.gguf"))
    changed(source, "config.json", lambda c: c.update(layer_types=["linear_attention", "full_attention", "linear_attention"]))
    assert keys_of(convert(run_weft, source, tmp_path / "out.gguf")) == keys
    assert keys["granitehybrid.attention.head_count_kv"][1] == [0, 2, 0]


def test_a_vocabulary_that_xlm_roberta_does_not_have(run_weft, tmp_path):
    source = folders.write(tmp_path / "xlmroberta", RECORDS["xlmroberta"])
    (source / "sentencepiece.bpe.model").write_bytes(folders.unigram(kind=2))
    fails(run_weft, source, "sentencepiece.bpe.model: is not of Unigram")
    (source / "sentencepiece.bpe.model").unlink()
    (source / "tokenizer.json").write_text(json.dumps(folders.tokenizer()))
    fails(run_weft, source, "sentencepiece.bpe.model: is missing, and tokenizer.json has no vocabulary of Unigram")


XLMR = {"first": ("<s>", "<pad>", "</s>", "<unk>"), "last": ("<mask>",), "extra": ()}


@pytest.mark.parametrize("kind, own, file", [("t5", {}, "spiece.model"), ("umt5", {}, "spiece.model"), ("xlmroberta", XLMR, "sentencepiece.bpe.model")])
def test_a_vocabulary_of_unigram_in_tokenizer_json_alone(run_weft, tmp_path, kind, own, file):
    """As transformers saves it since version 5: the pieces of the file of SentencePiece, and the tokens that the tokenizers package makes."""
    tokenizers = pytest.importorskip("tokenizers")
    theirs = keys_of(convert(run_weft, folders.write(tmp_path / "a" / kind, RECORDS[kind], "F32"), tmp_path / "a.gguf"))
    source = folders.write(tmp_path / "b" / kind, RECORDS[kind], "F32")
    (source / file).unlink()
    said = folders.unigram_json(**own)
    (source / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    ours = keys_of(convert(run_weft, source, tmp_path / "b.gguf"))
    n, words = len(said["model"]["vocab"]), "tokenizer.ggml.tokens"
    first = len(own.get("first", "abc"))
    last = first + len(folders.WORDS) - (kind == "xlmroberta")          # XLM-R's classes leave the last piece of such a file out
    for key in (words, "tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        assert ours[key][1][first:last] == theirs[key][1][first:last] and len(ours[key][1]) == len(theirs[key][1]), key
    kinds = ours["tokenizer.ggml.token_type"][1]
    for added in said["added_tokens"]:
        assert ours[words][1][added["id"]] == added["content"] and kinds[added["id"]] == (2 if added["content"] == "<unk>" else 3)
    assert ours[words][1][n + len(own.get("extra", "ab"))] == f"[PAD{n + len(own.get('extra', 'ab'))}]"
    changed = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
    assert changed <= {words, "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "general.name", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_bos_token"}, changed
    reference = tokenizers.Tokenizer.from_str(json.dumps(said))
    for text in "def return", "  a  b ", "in  (re:turn)+x=, ", "a</s>b", "def <extra_id_0> a" if kind != "xlmroberta" else "def <mask>", "\u00fc?", "":
        done = run_weft(["tokenize", "-m", tmp_path / "b.gguf", "--ids", "--no-bos", "--parse-special", "-p", text])
        assert json.loads(done.stdout) == reference.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("change, expected", [
    (lambda t: t["model"]["vocab"].append(["x"]), "key 'vocab': entry 31 is not a text and a number"),
    (lambda t: t["model"]["vocab"].append(["x", 1e300]), "key 'vocab': the score of entry 31 is too large"),
    (lambda t: t["model"].update(vocab=[]), "key 'vocab': has 33 pieces"),
    (lambda t: t["model"].update(unk_id=99), "key 'unk_id': is not a token: there are 33"),
    (lambda t: t["added_tokens"][0].update(id=-1), "key 'added_tokens': entry 0 has no content, or no id below 33"),
    (lambda t: t["added_tokens"][0].update(id=1 << 40), "key 'added_tokens': entry 0 has no content"),
    (lambda t: t["normalizer"].update(precompiled_charsmap="?"), "key 'normalizer': its precompiled_charsmap is not base64"),
    (lambda t: t.update(pre_tokenizer={"type": "ByteLevel"}), "a step 'ByteLevel', which vocabularies of Unigram do not have"),
    (lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend"}]}), "a step 'Prepend'"),
    (lambda t: t["model"].update(type="WordLevel"), "spiece.model: is missing, and tokenizer.json has no vocabulary of Unigram"),
], ids=range(10))
def test_vocabularies_of_unigram_that_are_none(run_weft, tmp_path, change, expected):
    source = folders.write(tmp_path / "t5", RECORDS["t5"])
    (source / "spiece.model").unlink()
    said = folders.unigram_json()
    change(said)
    (source / "tokenizer.json").write_text(json.dumps(said))
    fails(run_weft, source, expected)


@pytest.mark.parametrize("kind", ["roberta", "xlmroberta", "modernbert", "nomicbert", "gemma3-text"])
def test_a_folder_of_an_encoder_embeds_as_its_file_does(run_weft, tmp_path, kind):
    source = folders.write(tmp_path / kind, RECORDS[kind], "F32")
    convert(run_weft, source, tmp_path / "out.gguf", "--outtype", "f32")
    answers = [run_weft(["embed", "-m", m, "-p", "a b def", "--pooling", "mean"]) for m in (source, tmp_path / "out.gguf")]
    assert [a.returncode for a in answers] == [0, 0], answers[0].err
    assert answers[0].stdout == answers[1].stdout != ""


def test_heads_of_keys_that_falcon_says_by_a_switch(run_weft, tmp_path):
    """Folders that newer programs have written have num_kv_heads, too, which does not count without new_decoder_architecture."""
    for more, heads in (({}, 1), ({"num_kv_heads": 4}, 1)):
        source = folders.write(tmp_path / f"falcon{len(more)}", RECORDS["falcon"])
        changed(source, "config.json", lambda c, more=more: c.update(more))
        assert keys_of(convert(run_weft, source, tmp_path / "out.gguf"))["falcon.attention.head_count_kv"][1] == heads


def test_texts_are_changed_as_spiece_model_says(run_weft, tmp_path):
    """Its table makes A an a, and \u00e9 an e; spaces are joined, and one stands before a text."""
    source = folders.write(tmp_path / "t5", RECORDS["t5"])
    tokens = [json.loads(run_weft(["tokenize", "-m", source, "-p", text, "--ids"]).out) for text in ("A  b\u00e9", "a be")]
    assert tokens[0] == tokens[1] and len(tokens[0]) > 2


@pytest.mark.parametrize("change, expected", [
    (lambda c: c.update(feed_forward_proj="gated-silu"), "key 'feed_forward_proj': is neither relu nor gated-gelu"),
    (lambda c: c.update(relative_attention_max_distance=64), "key 'relative_attention_max_distance': 64, but files of t5 have no key for it"),
    (lambda c: c.update(scale_decoder_outputs=False), "key 'scale_decoder_outputs': what the head reads is not divided, but the folder has no lm_head.weight"),
    (lambda c: c.pop("scale_decoder_outputs") and c.update(tie_word_embeddings=False), "key 'tie_word_embeddings': what the head reads is not divided"),
    (lambda c: c.pop("scale_decoder_outputs") and c.update(architectures=["MT5ForConditionalGeneration"]), "what the head reads is not divided"),
])
def test_what_files_of_t5_do_not_say(run_weft, tmp_path, change, expected):
    source = folders.write(tmp_path / "t5", RECORDS["t5"])
    changed(source, "config.json", change)
    fails(run_weft, source, "config.json: ", expected)


def test_a_vocabulary_that_t5_does_not_have(run_weft, tmp_path):
    source = folders.write(tmp_path / "t5", RECORDS["t5"])
    (source / "spiece.model").write_bytes(folders.unigram(kind=2))
    fails(run_weft, source, "spiece.model: is not of Unigram, as vocabularies of T5ForConditionalGeneration are")
    (source / "spiece.model").unlink()
    (source / "tokenizer.json").write_text(json.dumps(folders.tokenizer()))
    fails(run_weft, source, "spiece.model: is missing")


BLOCKS_OF_4 = "model.layers.0.mlp.experts.gate_up_proj_blocks"
PACKED = "model.layers.0.mlp.up_proj.weight_packed"


@pytest.mark.parametrize("kind, change, expected", [
    ("gpt-oss-mxfp4", lambda t: t.pop(BLOCKS_OF_4.replace("_blocks", "_scales")), f"key '{BLOCKS_OF_4}': has no scales, or not one for each block"),
    ("gpt-oss-mxfp4", lambda t: t.update({BLOCKS_OF_4: ("U8", [4, 192, 32], bytes(4 * 192 * 32))}), f"key '{BLOCKS_OF_4}': is not blocks of 16 bytes"),
    ("gpt-oss-mxfp4", lambda t: t.update({BLOCKS_OF_4.replace("_blocks", "_scales"): ("U8", [4, 192, 3], bytes(4 * 192 * 3))}), f"key '{BLOCKS_OF_4}': has no scales, or not"),
    ("gpt-oss-mxfp4", lambda t: t.update({"model.layers.0.self_attn.q_proj.weight": ("U8", [128, 64], bytes(8192))}), "tensors of U8 are not read"),
    ("llama-nvfp4", lambda t: t.pop(PACKED.replace("_packed", "_scale")), f"key '{PACKED}': has no scales, or not one for each 16 weights"),
    ("llama-nvfp4", lambda t: t.update({PACKED.replace("_packed", "_global_scale"): ("F32", [1], bytes(4))}), "is no finite number, or 0"),
    ("llama-nvfp4", lambda t: t.update({PACKED.replace("_packed", "_global_scale"): ("F32", [2], bytes(8))}), "is not one number"),
])
def test_blocks_that_are_none(run_weft, tmp_path, kind, change, expected):
    source = folders.write(tmp_path / "small", RECORDS[kind])
    head, data = head_of(source / "model.safetensors")
    tensors = {n: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]]) for n, t in head.items() if n != "__metadata__"}
    change(tensors)
    folders.safetensors(source / "model.safetensors", tensors)
    fails(run_weft, source, "model.safetensors: ", expected)


def test_blocks_that_do_not_fit_become_floats(run_weft, tmp_path):
    """Rows of 48 weights: three groups that share a scale, and no block of a file."""
    record = json.loads(json.dumps(RECORDS["llama-nvfp4"]))
    record["config"]["intermediate_size"] = 48
    for name, shape in record["tensors"].items():
        if ".mlp." in name and len(shape) == 2:
            rows, columns = ((48, shape[1]) if "down_proj" not in name else (shape[0], shape[1] * 48 // 128))
            record["tensors"][name] = [rows, columns]
    made = {t.name: t for t in convert(run_weft, folders.write(tmp_path / "small", record), tmp_path / "out.gguf", "--outtype", "f32").tensors}
    floats = {t.name: t for t in convert(run_weft, folders.write(tmp_path / "floats", record, floats=True), tmp_path / "out.gguf", "--outtype", "f32").tensors}
    assert made["blk.0.ffn_up.weight"].tensor_type.name == "NVFP4" and "blk.0.ffn_down.scale" not in made
    assert made["blk.0.ffn_down.weight"].data.tobytes() == floats["blk.0.ffn_down.weight"].data.tobytes()


def test_what_would_be_a_file_that_nobody_reads(run_weft, tmp_path):
    """Found by a review of the readers: each ended the program, took for ever, or wrote a file that cannot be opened."""
    llama = folders.write(tmp_path / "llama", RECORDS["llama"])
    changed(llama, "config.json", lambda c: c.update(head_dim=1, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4}))
    fails(run_weft, llama, "config.json: key 'head_dim': 1 is not from 2 to 65536")
    glm = folders.write(tmp_path / "glm4", RECORDS["glm4"])
    with_tensor(glm / "model.safetensors", NAME, "BF16", [2], bytes(4))
    fails(run_weft, glm, "becomes 'blk.0.ffn_up.weight', and another tensor does, too")
    for i, (templates, expected) in enumerate((([{"name": f"a{i}", "template": ""} for i in range(65)], "65 templates, more than 64"),
                                               ([{"name": "n" * 65, "template": "x"}], "a name has more than 64 bytes"))):
        source = folders.write(tmp_path / f"templates{i}", RECORDS["qwen3"])
        changed(source, "tokenizer_config.json", lambda c, templates=templates: c.update(chat_template=templates))
        fails(run_weft, source, "tokenizer_config.json: key 'chat_template': " + expected)
    many = folders.write(tmp_path / "many", RECORDS["qwen3moe"])
    changed(many, "config.json", lambda c: c.update(num_local_experts=65536))
    fails(run_weft, many, "experts are missing: there are ")


def test_numbers_that_are_none(run_weft, tmp_path):
    """A number of a role or of a piece that is something else is not taken as 0."""
    source = folders.write(tmp_path / "small", RECORDS["llama-pieces"])
    (source / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"content": "<|im_end|>"}]}))
    changed(source, "tokenizer_config.json", lambda c: c.update(eos_token="<|im_end|>"))
    changed(source, "config.json", lambda c: c.update(eos_token_id=2))
    assert convert(run_weft, source, tmp_path / "out.gguf").fields["tokenizer.ggml.eos_token_id"].contents() == 2
    path = source / "tokenizer.model"
    path.write_bytes(path.read_bytes() + folders.message((1, folders.message((1, "zz"), (3, b"abcdefgh")))))
    fails(run_weft, source, "tokenizer.model: piece ")
