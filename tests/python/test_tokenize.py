"""weft tokenize: ids of real vocabularies, text back from ids, special tokens, and what broken tokenizer keys get."""
import ast
import re
import resource
import unicodedata

import numpy as np
import pytest

VOCABS = ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3", "falcon", "deepseek-llm", "bert-bge"]
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # tokenizer.ggml.token_type
SEPARATOR = "\n__ggml_vocab_test__\n"


def ids_of(run_weft, model, text, *more):
    if isinstance(text, str):
        text = text.encode()
    done = run_weft(["tokenize", "-m", model, "--stdin", "--ids", *more], input=text)
    assert done.returncode == 0, done.err
    assert done.out.count("\n") == 1 and re.fullmatch(r"\[(\d+(, \d+)*)?\]\n", done.out), done.out
    return ast.literal_eval(done.out)


def text_of(run_weft, model, ids, *more):
    done = run_weft(["tokenize", "-m", model, "--detokenize", ",".join(map(str, ids)), *more])
    assert done.returncode == 0, done.err
    return done.stdout


def vocab_strings(path):
    texts = path.with_name(path.name + ".inp").read_bytes().decode().split(SEPARATOR)[:-1]
    lines = path.with_name(path.name + ".out").read_text().split("\n")
    return [(text, [int(x) for x in line.split()]) for text, line in zip(texts, lines)]


@pytest.mark.parametrize("name", VOCABS)
def test_shared_vocabularies(run_weft, shared_dir, sanitized, name):
    path = shared_dir / "vocabs" / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"no {path}")
    strings = vocab_strings(path)
    assert len(strings) > 40
    # The C test goes through all of them; here every fourth (every tenth under the sanitizers) goes through the command.
    for text, ids in strings[:: 10 if sanitized else 4] + strings[-1:]:
        assert ids_of(run_weft, path, text, "--no-bos") == ids, repr(text)
        if ids and name != "bert-bge":                    # which forgets capitals and spaces
            assert text_of(run_weft, path, ids) == text.encode(), repr(text)


def test_prompt_is_literal(run_weft, tinypy):
    """-p takes text as it is; -e reads escapes; ids and pieces agree."""
    literal = run_weft(["tokenize", "-m", tinypy, "-p", r"a\nb", "--ids", "--no-bos"])
    assert literal.returncode == 0, literal.err
    assert ast.literal_eval(literal.out) == ids_of(run_weft, tinypy, r"a\nb", "--no-bos")
    escaped = run_weft(["tokenize", "-m", tinypy, "-p", r"a\nb", "-e", "--ids", "--no-bos"])
    assert ast.literal_eval(escaped.out) == ids_of(run_weft, tinypy, "a\nb", "--no-bos")
    assert literal.out != escaped.out


def test_pieces_are_told_apart(run_weft, tmp_path):
    """one token a line, and a backslash before an n does not look like a newline"""
    csi = [byte_characters()[b] for b in b"\xc2\x9b"]     # U+009B, which terminals act on
    path = write_vocab(tmp_path / "v.gguf", ["".join(csi)], merges=["a b", " ".join(csi)])
    done = run_weft(["tokenize", "-m", path, "--stdin"], input=b"a\n\\n\x1b\xff\xc3\xa9ab\xc2\x9b")
    assert done.returncode == 0, done.err
    assert re.findall(r"-> '(.*)'", done.out) == ["a", r"\n", r"\\", "n", r"\x1B", r"\xFF", r"\xC3", r"\xA9", "ab", r"\xC2\x9B"]


def test_no_bos_leaves_out_the_end_too(run_weft, tmp_path):
    """as the help says"""
    def extra(w):
        w.add_bos_token_id(257), w.add_eos_token_id(258), w.add_add_bos_token(True), w.add_add_eos_token(True)
    path = write_vocab(tmp_path / "v.gguf", ["<s>", "</s>"], [NORMAL] * 257 + [CONTROL] * 2, extra=extra)
    assert ids_of(run_weft, path, "ab") == [257, 256, 258]
    assert ids_of(run_weft, path, "ab", "--no-bos") == [256]


def test_long_text_in_little_memory(run_weft, tinypy, sanitized):
    """Text from stdin or a file is encoded as it comes: memory does not grow with it, and the ids are those of one piece."""
    text = b"def f(x):\n    return x ** 2  # caf\xc3\xa9\n\n" * (20000 if sanitized else 200000)

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (60 << 20, 60 << 20))

    done = run_weft(["tokenize", "-m", tinypy, "--stdin", "--ids", "--no-bos"], input=text, preexec_fn=None if sanitized else limit)
    assert done.returncode == 0, done.err
    ids = done.stdout.split(b", ")
    once = ids_of(run_weft, tinypy, text[: len(text) // 100], "--no-bos")
    assert ids[: len(once) - 5] == [(b"" if i else b"[") + b"%d" % x for i, x in enumerate(once[:-5])]
    assert len(ids) > 95 * len(once)


def test_bos(run_weft, tinypy):
    with_bos, without = ids_of(run_weft, tinypy, "def f():"), ids_of(run_weft, tinypy, "def f():", "--no-bos")
    assert with_bos[1:] == without and len(with_bos) == len(without) + 1
    assert ids_of(run_weft, tinypy, "") == with_bos[:1]


@pytest.mark.parametrize("text", [
    b"", b"x", b"    return x\n", "naïve 你好 😶‍🌫️ e\u0301\u200d".encode(), b"tab\tand\r\nlines\n\n\n",
    b"<|endoftext|> <s> </s> <0x41>",
    b"\xff\xfe broken \xed\xa0\x80 surrogate \xc3", b"nul\0inside\0", bytes(range(256)), b"a" * 5000, b" " * 5000,
], ids=lambda t: repr(t[:12]))
def test_any_bytes_come_back(run_weft, tinypy, text):
    ids = ids_of(run_weft, tinypy, text, "--no-bos")
    if ids:
        assert text_of(run_weft, tinypy, ids) == text
    else:
        assert text == b""


def test_held_out_text_comes_back(run_weft, tinypy, shared_dir):
    path = shared_dir / "models" / "tinypy-heldout.txt"
    if not path.exists():
        pytest.skip(f"no {path}")
    text = path.read_bytes()[:20000]
    ids = ids_of(run_weft, tinypy, text, "--no-bos")
    assert len(ids) < len(text) / 2
    assert text_of(run_weft, tinypy, ids) == text


# ---- vocabularies made here ----

def byte_characters():
    """the characters that stand for the 256 bytes in byte-level BPE, from their definition"""
    keep = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(rest)) for b in range(256)]


def write_vocab(path, tokens=(), types=None, merges=("a b",), model="gpt2", pre="gpt-2", extra=lambda w: None):
    w = pytest.importorskip("gguf").GGUFWriter(path, "llama")
    if model is not None:
        w.add_tokenizer_model(model)
    if pre is not None:
        w.add_tokenizer_pre(pre)
    tokens = [*byte_characters(), "ab", *tokens]
    w.add_token_list([t.encode() for t in tokens])
    w.add_token_types(types if types is not None else [NORMAL] * len(tokens))
    if merges is not None:
        w.add_token_merges(list(merges))
    extra(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return path


def test_user_text_never_becomes_a_control_token(run_weft, tmp_path):
    types = [NORMAL] * 257 + [CONTROL, USER_DEFINED]
    path = write_vocab(tmp_path / "v.gguf", ["<|im_end|>", "<tool>"], types, pre="qwen2")
    text = "ab<|im_end|><tool>"
    plain, parsed = ids_of(run_weft, path, text), ids_of(run_weft, path, text, "--parse-special")
    assert 257 not in plain and plain[0] == 256 and plain[-1] == 258
    assert parsed == [256, 257, 258]
    assert text_of(run_weft, path, plain) == text.encode()
    assert text_of(run_weft, path, parsed) == b"ab<tool>"
    assert text_of(run_weft, path, parsed, "--parse-special") == text.encode()


def test_ten_megabytes_of_one_letter(run_weft, tmp_path):
    path = write_vocab(tmp_path / "v.gguf", ["aa", "aaaa"], merges=["a b", "a a", "aa aa"])
    done = run_weft(["tokenize", "-m", path, "--stdin", "--ids"], input=b"a" * 10_000_000, timeout=60)
    assert done.returncode == 0, done.err
    assert done.out.count("258") == 2_500_000


def fails(run_weft, path, *words):
    done = run_weft(["tokenize", "-m", path, "-p", "ab", "--ids"])
    assert done.returncode == 1, (done.returncode, done.out, done.err)
    assert done.stdout == b""
    for word in (path.name, *words):
        assert word in done.err, (word, done.err)


def add_scores(n):
    return lambda w: w.add_token_scores([0.0] * n)


@pytest.mark.parametrize("change, words", [
    (dict(types=[NORMAL] * 256), ["tokenizer.ggml.token_type", "256", "257"]),
    (dict(types=[NORMAL] * 300), ["tokenizer.ggml.token_type", "300", "257"]),
    (dict(extra=add_scores(3)), ["tokenizer.ggml.scores", "3", "257"]),
    (dict(extra=lambda w: w.add_array("tokenizer.ggml.scores", np.zeros(257, np.int8).tobytes())), ["tokenizer.ggml.scores"]),
    (dict(extra=lambda w: w.add_token_scores([float("nan")] * 257)), ["tokenizer.ggml.scores", "0"]),
    (dict(extra=lambda w: w.add_bos_token_id(257)), ["tokenizer.ggml.bos_token_id", "257"]),
    (dict(extra=lambda w: w.add_eos_token_id(2**32 - 2)), ["tokenizer.ggml.eos_token_id", "4294967294"]),
    (dict(extra=lambda w: w.add_add_bos_token(True)), ["tokenizer.ggml.add_bos_token"]),
    (dict(tokens=["ab"]), ["tokenizer.ggml.tokens", "256", "257"]),
    (dict(tokens=["x" * 70000]), ["tokenizer.ggml.tokens", "70000"]),
    (dict(pre="pre-of-tomorrow"), ["tokenizer.ggml.pre", "pre-of-tomorrow"]),
    (dict(model="model-of-tomorrow"), ["tokenizer.ggml.model", "model-of-tomorrow"]),
    (dict(model=None, pre=None), ["tokenizer.ggml.model"]),
    (dict(merges=None), ["tokenizer.ggml.merges"]),
], ids=lambda x: None if isinstance(x, dict) else "-".join(w.replace("tokenizer.ggml.", "") for w in x)[:40])
def test_bad_vocabularies(run_weft, tmp_path, change, words):
    fails(run_weft, write_vocab(tmp_path / "bad.gguf", **change), *words)


@pytest.mark.parametrize("change", [dict(pre="pre-of-tomorrow"), dict(model="model-of-tomorrow"), dict(merges=None)],
                         ids=["pre", "model", "merges"])
def test_unknown_tokenizers_still_give_text(run_weft, tmp_path, change):
    path = write_vocab(tmp_path / "v.gguf", **change)
    assert text_of(run_weft, path, [256, ord("!")]) == b"ab!"


@pytest.mark.parametrize("merges", [
    ["a zz", "zz a", "y z", "a b"], ["ab a", "a b", "b ab"], ["a b", "a b"], ["a b", "", " ", "a", "a ", " a"],
], ids=["absent", "cyclic", "twice", "malformed"])
def test_odd_merges_are_ignored(run_weft, tmp_path, merges):
    path = write_vocab(tmp_path / "v.gguf", merges=merges)
    assert ids_of(run_weft, path, "abyz") == [256, ord("y"), ord("z")]


def test_empty_tokens_are_harmless(run_weft, tmp_path):
    path = write_vocab(tmp_path / "v.gguf", ["", ""])
    assert ids_of(run_weft, path, "ab") == [256]
    assert text_of(run_weft, path, [257, 256, 258]) == b"ab"


def test_usage(run_weft, tinypy):
    assert run_weft(["tokenize", "-m", tinypy]).returncode == 2
    assert run_weft(["tokenize", "-p", "x"]).returncode == 2
    assert run_weft(["tokenize", "-m", tinypy, "-p", "x", "--stdin"]).returncode == 2
    assert run_weft(["tokenize", "-m", "/nowhere/model.gguf", "-p", "x"]).returncode == 1
    bad = run_weft(["tokenize", "-m", tinypy, "--detokenize", "1,x"])
    assert bad.returncode == 2 and bad.stdout == b""


def test_pieces_are_listed(run_weft, tmp_path):
    path = write_vocab(tmp_path / "v.gguf")
    done = run_weft(["tokenize", "-m", path, "-p", "ab\né"])
    assert done.returncode == 0, done.err
    lines = done.out.splitlines()
    assert [int(line.split()[0]) for line in lines] == [256, 10, 0xC3, 0xA9]
    assert "ab" in lines[0]
    assert all(unicodedata.category(c) != "Cc" for line in lines for c in line)
