"""The tokenizers against other people's: random Unicode texts through Weft and through Hugging Face's `tokenizers`, or through a
few lines of Python that say what is meant where that library has no such algorithm.

Vocabularies are trained here, on this repository's own text and on words made up from many scripts.  Each is written as a GGUF
file for Weft.  Patterns and normalisers are those of the models' tokenizer.json files.

WEFT_FUZZ_STRINGS=N takes N texts for each tokenizer instead of a number that suits a quick run.
"""
import itertools
import os
import random
import re
import struct
import subprocess
import unicodedata
from pathlib import Path

import numpy as np
import pytest

hf = pytest.importorskip("tokenizers")
gguf = pytest.importorskip("gguf")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6   # tokenizer.ggml.token_type
COUNT = int(os.environ.get("WEFT_FUZZ_STRINGS", 0)) or 700
ROOT = Path(__file__).resolve().parents[2]


# ---- texts ----

# Characters that Unicode 3.2 had already and whose category has stayed since: the libraries have tables of different ages.
def settled(cp):
    c = chr(cp)
    old = unicodedata.ucd_3_2_0.category(c)
    return old not in ("Cn", "Cs") and old == unicodedata.category(c)


SETTLED = [chr(cp) for cp in range(1, 0x30000) if settled(cp)] + ["\u2581"] * 1000     # the bar that stands for a space in many vocabularies is seldom otherwise
WORDS = sorted(set(re.findall(r"\w+", (ROOT / "README.md").read_text() + (ROOT / "docs" / "architecture.md").read_text())))
SCRIPTS = [(0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x621, 0x64A), (0x905, 0x939),
           (0xE01, 0xE30), (0x1E00, 0x1EF9), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x1100, 0x1112),
           (0x1161, 0x1175), (0x300, 0x345), (0x30, 0x39), (0x660, 0x669), (0x2160, 0x2188), (0x21, 0x2F), (0x3A, 0x40), (0x2010, 0x2027),
           (0x20A0, 0x20B1), (0x2190, 0x21FF), (0x1F00, 0x1F15), (0xFF01, 0xFF5E), (0xF900, 0xFA2D)]
PIECES = [" ", "  ", "     ", "\n", "\n\n", "\r\n", "\t", "'s", "'S", "'LL", "'ve", "n't", "'\u017f", "\u00a0", "\u2028", "\u3000", "e\u0301", "a\u0323\u0302",
          "12345", "3.14", "1234567 ", "...", "!?", "://", "_", "camelCase", "HTTPServer", "\U0001F600", "\u4f60\u597d", "\uac00\u11a8",
          " \u6f22", "\u00bd123", "x1", "\u0130", "\u00df", "\ufb01", "\u212b", "\u0085", "\u24b6123", "\u00b2123"]


def random_text(rng, alphabet):
    parts = []
    for _ in range(rng.randrange(1, 16)):
        kind = rng.random()
        if kind < 0.3:
            parts.append(rng.choice(WORDS))
        elif kind < 0.55:
            parts.append(rng.choice(PIECES))
        elif kind < 0.8:
            low, high = rng.choice(SCRIPTS)
            parts.append("".join(chr(rng.randrange(low, high + 1)) for _ in range(rng.randrange(1, 6))))
        else:
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 8))))
        if rng.random() < 0.4:
            parts.append(" ")
    return "".join(c for c in "".join(parts) if settled(ord(c)) or ord(c) > 0xFFFF)


def random_texts(seed, count=COUNT, alphabet=SETTLED):
    rng = random.Random(seed)
    return ["", " ", "\n", "a"] + [random_text(rng, alphabet) for _ in range(count)]


def corpus():
    rng = random.Random(7)
    invented = [" ".join("".join(chr(rng.randrange(low, min(high, low + 12) + 1)) for _ in range(rng.randrange(2, 6))) for _ in range(40))
                for low, high in SCRIPTS]
    return (ROOT / "README.md").read_text().splitlines() + invented + PIECES * 3


# ---- Weft ----

@pytest.fixture(scope="session")
def tool(built_tool):
    return built_tool("tokenize_tool", "WEFT_TOKENIZE_TOOL")


def run_tool(tool, path, texts, *more):
    """for each text its ids and the bytes that they decode to"""
    raw = [t if isinstance(t, bytes) else t.encode() for t in texts]
    done = subprocess.run([tool, str(path), *more], input=b"".join(struct.pack("=I", len(t)) + t for t in raw),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=3600)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().split("\n")[:-1]
    assert len(lines) == len(texts)
    return [([int(i) for i in ids.split()], bytes.fromhex(back)) for ids, back in (line.split("\t") for line in lines)]


def write(path, model, tokens, types, pre=None, merges=None, scores=None, extra=lambda w: None):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model(model)
    if pre is not None:
        w.add_tokenizer_pre(pre)
    w.add_token_list([t if isinstance(t, bytes) else t.encode() for t in tokens])
    w.add_token_types(types)
    if scores is not None:
        w.add_token_scores(scores)
    if merges is not None:
        w.add_token_merges([f"{a} {b}" for a, b in merges])
    extra(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return path


def compare(texts, ours, theirs, decoded=None):
    wrong = [(t, a, b) for t, (a, _), b in zip(texts, ours, theirs) if a != b]
    assert not wrong, f"{len(wrong)} of {len(texts)}, such as {min(wrong, key=lambda w: len(w[0]))!r}"
    if decoded:
        wrong = [(t, back) for t, (_, back) in zip(texts, ours) if back != decoded(t).encode()]
        assert not wrong, f"{len(wrong)} of {len(texts)} decode to something else, such as {min(wrong, key=lambda w: len(w[0]))!r}"


# ---- byte-level BPE ----

S, NOT_SPACE = r"\s", r"(?!\S)"
ENDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN2 = LLAMA3.replace("{1,3}", "")
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(ends, digits):
    return rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+{ends}|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*{ends}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + TAIL


KIMI_UP, KIMI_LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{KIMI_UP}*{KIMI_LOW}+{ENDS}?|[^\r\n\p{{L}}\p{{N}}]?{KIMI_UP}+{KIMI_LOW}*{ENDS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL)
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL)
HAN_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
JAIS2 = (ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)"
         r"|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}")
BYTES, GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def splits(*patterns, last=BYTES):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + [last])


PRE = {   # tokenizer.ggml.pre: pre-tokenizer, normaliser, whether a word that is a token is taken whole
    "gpt-2": (GPT2, None, False),
    "mpt": (GPT2, "NFC", False),
    "llama-bpe": (splits(LLAMA3), None, True),
    "qwen2": (splits(QWEN2), "NFC", False),
    "qwen35": (splits(QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")), "NFC", False),
    "starcoder": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]), None, False),
    "gpt-4o": (splits(cased(ENDS + "?", r"\p{N}{1,3}")), None, False),
    "tekken": (splits(cased("", r"\p{N}")), None, True),
    "tiny_aya": (splits(r"\d{1,3}(?=(?:\d{3})*\b)", cased(ENDS + "?", r"\p{N}{1,3}")), "NFC", False),
    "kimi-k2": (splits(KIMI), None, False),
    "deepseek-v3": (splits(r"\p{N}{1,3}", HAN_KANA, DEEPSEEK3), None, False),
    "deepseek-coder": (splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"), None, False),
    "spark2_5": (splits(r"\p{N}{1,3}", HAN_KANA, DEEPSEEK3.replace(r"+[\r\n]*|\s*[\r\n]+|", r"+|[\r\n]|"), r"\p{N}"), None, False),
    "falcon": (pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), GPT2, pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
               None, False),
    "bloom": (splits(" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"), None, False),
    "superbpe": (splits(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), None, False),
    "exaone-moe": (splits(ENDS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"),
                   None, False),
    "bailingmoe": (splits(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"), None, False),
    "seed-coder": (splits(ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + TAIL), None, False),
    "jais-2": (splits(JAIS2), None, False),
    "ufakzeka": (splits(QWEN2.split("|", 7)[-1]), None, False),
    "minicpm5": (splits(r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")), None, True),
    "laguna": (splits(r"[^\n]+|[\n]+", QWEN2), None, False),
}


@pytest.fixture(scope="session")
def byte_bpe():
    """tokens by id, and merges"""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = splits(LLAMA3.replace("{1,3}", "+"))
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=1500, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    vocab = t.get_vocab()
    merges = [tuple(m) for m in __import__("json").loads(t.to_str())["model"]["merges"]]
    # Words that no merges lead to, for models that take such words whole.
    for word in ("\u0120HTTPServer", "'s!", "12"):
        vocab.setdefault(word, len(vocab))
    return vocab, merges


@pytest.mark.parametrize("pre", PRE)
def test_byte_level_bpe(tool, tmp_path, byte_bpe, pre):
    vocab, merges = byte_bpe
    pre_tokenizer, normalizer, whole = PRE[pre]
    t = Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges), ignore_merges=whole))
    t.pre_tokenizer = pre_tokenizer
    if normalizer:
        t.normalizer = normalizers.NFC()
    added = ["<|im_end|>", "<tool>"]
    tokens = sorted(vocab, key=vocab.get) + added
    t.add_special_tokens([AddedToken(added[0], special=True)])
    t.add_tokens([AddedToken(added[1], normalized=False)])
    path = write(tmp_path / "v.gguf", "gpt2", tokens, [NORMAL] * len(vocab) + [CONTROL, USER_DEFINED], pre=pre, merges=merges)
    rng = random.Random(pre)
    texts = random_texts(pre)
    texts += ["".join(rng.choice([a, *added]) + rng.choice([b, " "]) for _ in range(4)) for a, b in zip(texts[::20], texts[1::20])]
    ours = run_tool(tool, path, texts, "parse")
    normal = lambda text: "".join(unicodedata.normalize("NFC", part) for part in re.split("(<tool>|<.im_end.>)", text))   # noqa: E731
    compare(texts, ours, [e.ids for e in t.encode_batch(texts)], normal if normalizer else lambda text: text)


def test_regions_of_dna(tool, tmp_path, byte_bpe):
    """HybridDNATokenizer (Carbon) on a small vocabulary: the segments are those of its published code, but for "</dna>" without "<dna>", which makes all before it DNA there.
    Characters beyond ASCII are counted in normal form C and stay as they are: their number of <oov> may be another there."""
    vocab, merges = byte_bpe
    pre_tokenizer, _, _ = PRE["qwen2"]
    t = Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges)))
    t.pre_tokenizer, t.normalizer = pre_tokenizer, normalizers.NFC()
    kmers = ["".join(k) for k in itertools.product("ATCG", repeat=6)]
    tokens = sorted(vocab, key=vocab.get) + ["<dna>", "</dna>", "<oov>"] + [k + "\ue000" for k in kmers]
    path = write(tmp_path / "v.gguf", "hybriddna", tokens, [NORMAL] * len(tokens), pre="qwen2", merges=merges)
    begin, end, oov = range(len(vocab), len(vocab) + 3)
    ids = {k: len(vocab) + 3 + i for i, k in enumerate(kmers)}

    def encode(text):
        out = []
        for plain, opened, content, closed in re.findall(r"(?s)((?:(?!<dna>).)*)(?:(<dna>)((?:(?!</dna>).)*)(</dna>)?)?", unicodedata.normalize("NFC", text)):
            content = re.sub("[a-z]+", lambda m: m[0].upper(), content.strip())
            cut = [content[i:i + 6].ljust(6, "A") for i in range(0, len(content), 6)]
            out += t.encode(plain).ids + [begin] * bool(opened) + [ids.get(k, oov) for k in cut] + [end] * bool(closed)
        return out

    rng = random.Random(8)
    regions = ["<dna>", "</dna>", "<dna>", "ACGTAC", "acgttt", "GATTACA", "CCCCCC", "N", "A", "tt", " ", "\n", "<", "</dn", "\u00e9"]
    texts = ["", "<dna>", "<dna></dna>", "<dna> acgtac\n</dna>x<dna>G", "CCCCCC"]
    for text in random_texts("dna"):
        texts += ["".join(rng.choice(regions) for _ in range(rng.randrange(12))), text + "".join(rng.choice(regions) for _ in range(8)) + rng.choice(["", " " + text])]
    ours = run_tool(tool, path, texts)
    compare(texts, ours, [encode(t) for t in texts])
    assert run_tool(tool, path, ["<dna>ACGTACGT</dna> CCCCCC"])[0][1] == b"<dna>ACGTACGTAAAA</dna> CCCCCC"
    assert sum(oov in a for a, _ in ours) > 100 and sum(begin in a and end in a for a, _ in ours) > 100


# ---- BPE on characters ----

@pytest.fixture(scope="session")
def char_bpe():
    """vocabulary and merges of a BPE on characters with spaces written as bars, and the 256 byte tokens"""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|[\n]+"), "isolated")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False))
    merges = [tuple(m) for m in __import__("json").loads(t.to_str())["model"]["merges"]]
    vocab = t.get_vocab()
    for word in ("\n\n\n",):
        vocab.setdefault(word, len(vocab))
    return vocab, merges, [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(vocab) - 259)


def barred(texts):
    """also with bars where letters were, which are read as spaces and come back as such"""
    return texts + [re.sub("[aeiou\u4e00]", "\u2581", text) for text in texts[::3]] + ["\u2581", "\u2581\u2581 a\u2581b", " \u2581the"]


def spaced(text):
    return text.replace("\u2581", " ")


def test_bpe_on_characters(tool, tmp_path, char_bpe):
    vocab, merges, types = char_bpe
    t = Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges), unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|[\n]+"), "isolated")
    path = write(tmp_path / "v.gguf", "gemma4", sorted(vocab, key=vocab.get), types, merges=merges)
    texts = barred([re.sub("\n{3,}", "\n", text) for text in random_texts("gemma4", 4 * COUNT)])
    ours = run_tool(tool, path, texts)
    compare(texts, ours, [e.ids for e in t.encode_batch(texts, add_special_tokens=False)], spaced)
    assert run_tool(tool, path, ["a\n\n\n"])[0][0] == [vocab["a"], vocab["\n\n\n"]]


def test_sentencepiece_bpe(tool, tmp_path, char_bpe):
    vocab, _, types = char_bpe
    tokens = sorted(vocab, key=vocab.get)
    # Any two neighbours join whose text is a token, the one with the best score first.
    merges = [(token[:i], token[i:]) for token in tokens[259:] for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
    t = Tokenizer(models.BPE(vocab=dict(vocab), merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    path = write(tmp_path / "v.gguf", "llama", tokens, types, scores=[-float(i) for i in range(len(tokens))])
    texts = barred(random_texts("llama", 4 * COUNT))
    ours = run_tool(tool, path, texts)
    compare(texts, ours, [e.ids for e in t.encode_batch(texts, add_special_tokens=False)], spaced)


# ---- WordPiece ----

# Tables of the library's cleaning are those of Unicode 8, which ucd_3_2_0 is older than; unassigned characters stay out.
@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece(tool, tmp_path, lowercase):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=1500, special_tokens=special, show_progress=False))
    vocab = t.get_vocab()
    tokens = [token if token in special else token[2:] if token.startswith("##") else "\u2581" + token for token in sorted(vocab, key=vocab.get)]
    types = [CONTROL] * len(special) + [NORMAL] * (len(tokens) - len(special))

    def extra(w):
        w.add_unk_token_id(1)
        w.add_sep_token_id(3)
        w.add_uint32("tokenizer.ggml.cls_token_id", 2)
        if not lowercase:
            w.add_bool("tokenizer.ggml.normalizer.lowercase", False)

    path = write(tmp_path / "v.gguf", "bert", tokens, types, extra=extra)
    texts = random_texts("bert", 4 * COUNT) + ["a" * 100, "a" * 101, "b " + "a" * 5000]
    ours = run_tool(tool, path, texts)
    compare(texts, ours, [e.ids for e in t.encode_batch(texts, add_special_tokens=False)])


# ---- Unigram ----

def charsmap(pairs):
    """the bytes of a precompiled_charsmap: a double array over the keys, and the replacements"""
    pool, trie = b"", {}
    for key, value in sorted(pairs.items()):
        at = trie
        for b in key.encode():
            at = at.setdefault(b, {})
        at[None] = len(pool)
        pool += value.encode() + b"\0"
    units, used, bases = {0: 0}, {0}, set()

    def place(node, index):
        base = 1
        while True:                                       # the children of a node lie at base ^ byte, its value at base
            wanted = [base ^ (b or 0) for b in node]
            if base not in bases and not used & set(wanted) and (base ^ index) < 1 << 21:
                break
            base += 1
        used.update(wanted)
        bases.add(base)
        distance = base ^ index
        units[index] = units.get(index, 0) | distance << 10 | (1 << 8 if None in node else 0)
        for b, child in node.items():
            if b is None:
                units[base] = 1 << 31 | child
            else:
                units[base ^ b] = b
                place(child, base ^ b)

    place(trie, 0)
    n = max(units) | 255
    raw = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(n + 1))
    return struct.pack("<I", len(raw)) + raw + pool


# Of single characters only, and the texts hold no marks: where a character with marks is looked up, that library takes it as a
# whole and may lose the marks, other than SentencePiece, which made these maps.
FOLDED = {chr(cp): unicodedata.normalize("NFKC", chr(cp)) for low, high in SCRIPTS for cp in range(low, high + 1)
          if settled(cp) and unicodedata.normalize("NFKC", chr(cp)) != chr(cp)} | {"\t": " ", "\n": " ", "\r": " ", "\u3000": " ", "\u00a0": " ", "\ufb01": "fi"}
NO_MARKS = [c for c in SETTLED if unicodedata.category(c)[0] not in "MCZ" and not unicodedata.combining(c) and not "\u1100" <= c <= "\u11ff"
            and not "\uac00" <= c <= "\ud7a3"]


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "charsmap"])
def test_unigram(tool, tmp_path, mapped):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=700, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                                            show_progress=False))
    pieces = __import__("json").loads(t.to_str())["model"]["vocab"]
    pieces = [(p, float(np.float32(s))) for p, s in pieces]
    t = Tokenizer(models.Unigram(pieces, 2))
    blob = charsmap(FOLDED)
    if mapped:
        t.normalizer = normalizers.Sequence([normalizers.Precompiled(blob), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(),
                                             normalizers.Prepend(" ")])
    else:
        t.normalizer = normalizers.Prepend(" ")
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never")

    def extra(w):
        w.add_add_space_prefix(True)
        w.add_remove_extra_whitespaces(mapped)
        w.add_unk_token_id(2)
        if mapped:
            w.add_precompiled_charsmap(blob)

    path = write(tmp_path / "v.gguf", "t5", [p for p, _ in pieces], [CONTROL, CONTROL, UNKNOWN] + [NORMAL] * (len(pieces) - 3),
                 scores=[s for _, s in pieces], extra=extra)
    texts = ["".join(c for c in text if c in " \n\t\r\u3000\u00a0" or c in keep) for keep in [set(NO_MARKS)] for text in random_texts("t5", 4 * COUNT, NO_MARKS)]
    if not mapped:
        texts = [text for text in texts if text]
    ours = run_tool(tool, path, texts)
    compare(texts, ours, [e.ids for e in t.encode_batch(texts, add_special_tokens=False)])


# ---- RWKV and PLaMo-2: what is meant, in Python ----

def test_rwkv(tool, tmp_path):
    rng = random.Random(5)
    words = {bytes([b]) for b in range(256)} | {w.encode()[:k] for w in WORDS for k in (2, 3, 5, 9)} | {c.encode() for c in SETTLED[:3000]}
    words |= {bytes(rng.randrange(256) for _ in range(3)) for _ in range(200)} | {b"\n\n", b"\\", b"'", b"\\n", b" \t"}
    words = sorted(words)

    def written(word):
        out = ""
        for c in word.decode("utf-8", "surrogateescape"):
            byte = ord(c) - 0xDC00 if "\udc80" <= c <= "\udcff" else None
            out += f"\\x{byte:02x}" if byte is not None else {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}.get(c, c)
        return out

    path = write(tmp_path / "v.gguf", "rwkv", ["<s>", *map(written, words)], [CONTROL] + [NORMAL] * len(words))
    ids, longest = {w: i + 1 for i, w in enumerate(words)}, max(map(len, words))

    def encode(text):
        out, at = [], 0
        while at < len(text):
            n = next(n for n in range(longest, 0, -1) if text[at:at + n] in ids and at + n <= len(text))
            out.append(ids[text[at:at + n]])
            at += n
        return out

    texts = [t.encode() for t in random_texts("rwkv")] + [bytes(rng.randrange(256) for _ in range(rng.randrange(30))) for _ in range(200)]
    ours = run_tool(tool, path, texts)
    assert [a for a, _ in ours] == [encode(t) for t in texts]
    assert [back for _, back in ours] == texts


def test_plamo2(tool, tmp_path):
    rng = random.Random(6)
    words = sorted({w[i:j] for w in WORDS + PIECES for i in range(3) for j in range(i + 1, i + 7)} - {""})
    words = [w for w in words if rng.random() < 0.7]
    scores = [rng.choice([-rng.random() * 12, -3.0, -6.0]) for _ in words]
    specials = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>"]
    tokens = specials + [f"<0x{b:02X}>" for b in range(256)] + words
    path = write(tmp_path / "v.gguf", "plamo2", tokens, [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words),
                 scores=[0.0] * 259 + scores)
    cost = {w: -round(float(np.float32(s)) * 1e4) for w, s in zip(words, scores)}

    def encode(text):
        best, first = [0] * (len(text) + 1), [None] * len(text)
        for at in range(len(text) - 1, -1, -1):
            best[at], first[at] = best[at + 1] + 10_000_000, text[at]
            for n in range(1, 10):
                w = text[at:at + n]
                if len(w) == n and w in cost and best[at + n] + cost[w] <= best[at]:
                    best[at], first[at] = best[at + n] + cost[w], w
        out, at = [], 0
        while at < len(text):
            w = first[at]
            out += [259 + words.index(w)] if w in cost else [3 + b for b in w.encode()]
            at += len(w)
        return out

    texts = random_texts("plamo2", min(COUNT, 700))
    compare(texts, run_tool(tool, path, texts), [encode(t) for t in texts], lambda text: text)
