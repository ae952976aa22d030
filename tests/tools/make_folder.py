"""make_folder.py: small folders as transformers saves them (config.json, model.safetensors, tokenizer.json, ...), written without it, for test_convert.py.

What a folder has is a record of tests/records/folders: its config.json and the shapes of its tensors. Weights follow from their names.
"""
import base64
import json
import struct
import zlib

import numpy as np

ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
MERGES = ["Ġ a", "d e", "de f", "r e", "t u", "re tu", "r n", "retu rn", "Ġ retu", "Ġretu rn", "Ġ Ġ", "ĠĠ ĠĠ", "i n"]
BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def alphabet():
    """A character for each byte, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def split(*steps):
    """Each step is a regular expression, or a description."""
    steps = [*({"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False} if isinstance(step, str) else step for step in steps),
             {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
    return {"type": "Sequence", "pretokenizers": steps}


def tokenizer(added=("<|im_end|>", "<|endoftext|>"), plain=("<think>",), pre=None, normalizer="NFC", processor=None, merges=MERGES):
    vocab = {t: i for i, t in enumerate([*alphabet(), *(m.replace(" ", "") for m in merges)])}
    tokens = [{"id": len(vocab) + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": t in added}
              for i, t in enumerate([*added, *plain])]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer and {"type": normalizer},
            "pre_tokenizer": pre or split(QWEN2), "post_processor": processor, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [m.split(" ") for m in merges]}}


def gemma_tokenizer(special=("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|image>", "<|channel>", "<channel|>", "<|turn>", "<turn|>", "<unused0>"), added=("<late>", "<|late|>"), merges=(
        "\u2581 a", "d e", "de f", "r e", "t u", "re tu", "r n", "retu rn", "\u2581 retu", "\u2581retu rn", "\u2581 \u2581", "i n")):
    """BPE of whole lines: spaces are SentencePiece's sign, letters without a token are bytes."""
    words = [*special, *(f"<0x{b:02X}>" for b in range(256)), "\n", *"\u2581abdefinrtu():+=x ,", *(m.replace(" ", "") for m in merges)]
    tokens = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": t not in ("<unused0>", "<late>")} for i, t in enumerate([*words, *added]) if t in special or t in added]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                      "ignore_merges": False, "vocab": {t: i for i, t in enumerate(words)}, "merges": [m.split(" ") for m in merges]}}


def message(*fields):
    """A message of protocol buffers: (number, int, float, str or bytes)."""
    def number(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + number(n >> 7)
    out = b""
    for tag, value in fields:
        if isinstance(value, int):
            out += number(tag << 3) + number(value)
        elif isinstance(value, float):
            out += number(tag << 3 | 5) + struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += number(tag << 3 | 2) + number(len(data)) + data
    return out


def pieces(kind=2):
    """tokenizer.model: a vocabulary of SentencePiece; kind: 2 is BPE."""
    words = ["\u2581a", "\u2581b", "de", "def", "re", "\u2581re", "tu", "rn", "in", "\u2581\u2581"]
    texts = [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((f"<0x{b:02X}>", 6) for b in range(256)), *((w, 1) for w in words), *((c, 1) for c in "\u2581abdefinrtu():+=x ,")]
    all_ = [message((1, t), (2, float(-i)), (3, k)) for i, (t, k) in enumerate(texts)]
    return message(*((1, p) for p in all_), (2, message((3, kind), (4, len(texts)), (35, 1), (40, 0), (41, 1), (42, 2), (43, 0xffffffffffffffff))), (3, message((1, "identity"), (3, 1), (4, 0))))


# What SentencePiece makes of the rules that A is a, and é is e
CHANGES = zlib.decompress(base64.b85decode(
    "c-kG(1<aRK6bIlJ#%Pf4PH7NO8a_Hzx=W<QpgTu*HzKKgba#VvgOr4Hmvr;|x!befc6YXO&&~}Z1x|z@ELJFkzTqi@AfgOiM<FuNh)N8i6Dp0#7sMtmafnYm5|V(#BqAwENKP`e2vU%mRHP*h=}AXMGLV@}WZ_G)k(C@|Cl@)%LvHf&75T}>H+)S&3Q(9r6r~8oDMlD2"
    "C`C!iP?~a-r2^%tL`AAlneX_Ps(ep%s!@{~)TS17sY8A0(U1l-rV&kPLNk7#IX}{p7PO`nZTN{__?h4Mm3FkH1MTTVN4n6NZgiyw-RVV7`p}zxp~cgmUGsuqpd7$p1~HT&3}+Z48Np~qF_tlmXB-omz+@&dl_^YT8ox7xKbXmEW-*sJ%*Qi=zxb1I7O;qgEMYOrSjq~P"
    "vx=3hVKwVm%Ldl7iH&SwGuzn84z`D8XD5HNo4xE|Kl?by0S<GBqa5Kl$2iFe{^1m7IL$fE@-OGP$OSHQi7WiaHLh}l>)hfdceu?x?(%^9JmMiwc+6A&=Q+=K$qQcdinqMsJ@5F)htL17dGHCWG=n?"))


WORDS = ["\u2581a", "\u2581b", "de", "def", "re", "\u2581re", "tu", "rn", "in", *"\u2581abdefinrtu():+=x ,"]


def unigram_json(first=("<pad>", "</s>", "<unk>"), last=(), extra=("<extra_id_0>", "<extra_id_1>"), **more):
    """tokenizer.json with the same pieces, as transformers saves it since version 5. extra: tokens that come after the vocabulary."""
    scores = [-0.5 * (i + 3) for i in range(len(WORDS))]
    vocab = [*([t, 0.0] for t in first), *map(list, zip(WORDS, scores)), *([t, 0.0] for t in last)]
    special = [*enumerate(first), *((len(vocab) - len(last) + i, t) for i, t in enumerate(last)), *((len(vocab) + i, t) for i, t in enumerate(extra))]
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, t in special]
    end = next(t for t in first if t == "</s>")
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(CHANGES).decode()},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}]},
            "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": end, "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {end: {"id": end, "ids": [first.index(end)], "tokens": [end]}}},
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "model": {"type": "Unigram", "unk_id": first.index("<unk>"), "vocab": vocab, "byte_fallback": False}, **more}


def unigram(kind=1):
    """spiece.model: a vocabulary of SentencePiece as T5 has it."""
    texts = [("<pad>", 3), ("</s>", 3), ("<unk>", 2), *((w, 1) for w in WORDS)]
    all_ = [message((1, t), (2, -0.5 * i), *([(3, k)] if k != 1 else [])) for i, (t, k) in enumerate(texts)]
    return message(*((1, p) for p in all_), (2, message((3, kind), (4, len(texts)), (40, 2), (41, 0xffffffffffffffff), (42, 1), (43, 0))), (3, message((1, "own"), (2, CHANGES), (3, 1), (4, 1))))


def rank_tokens(lone=True):
    """Tokens of a vocabulary in tiktoken's format: bytes, what MERGES join, and (lone) one that no two others make."""
    byte = {c: bytes([b]) for b, c in zip([*range(33, 127), *range(161, 173), *range(174, 256), *[b for b in range(256) if not (33 <= b < 127 or 161 <= b < 173 or b > 173)]], alphabet())}
    return [*(bytes([b]) for b in range(256)), *(b"".join(byte[c] for c in m.replace(" ", "")) for m in MERGES), *(["x\u00e9y".encode()] if lone else [])]


def ranks(lone=True):
    return "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(rank_tokens(lone)))


WORLD = ["\t\t", "\t\n", "\t ", "\n\t", "\n\n", "it's", 'say "x"', "a\\b", "'\"", "return", " return", "\u4e16\u754c", "\u200b", "\U0001f680", b"\xe4\xb8", "\x7f\x80"]


def world():
    """rwkv_vocab_v20230424.txt: a line for each token, whose text is as Python writes it."""
    tokens = [*(chr(i) if i < 128 else bytes([i]) for i in range(256)), *WORLD]
    return "".join(f"{i + 1} {t!r} {len(t if isinstance(t, bytes) else t.encode())}\n" for i, t in enumerate(tokens))


def settings(**more):
    return {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 10 ** 30, "tokenizer_class": "PreTrainedTokenizerFast", **more}


def weights(name, shape, dtype):
    """The bytes of a tensor."""
    x = np.asarray(np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape), np.float32) * np.float32(0.25)
    if ".act_fn." in name or name.endswith(".w_g"):                                 # keys of a file: equal in all types
        x = np.round(np.asarray(x) * 16, 0) / np.float32(16)
        x = -abs(x) if name.endswith(".eps") else x
    if dtype == "F16":
        return x.astype(np.float16).tobytes()
    return x.tobytes() if dtype == "F32" else (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def codes(name, shape, dtype):
    """The bytes of a tensor of U8 or I8 (pairs of codes), F8_E4M3 (scales of 16 weights), "E8M0" (powers of two, in U8) or F8_E8M0, or "FACTOR" (of a matrix, in F32)."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    if dtype == "FACTOR":
        return np.asarray(random.rand(*shape) * 8 + 8 if "global" in name else random.rand(*shape) + 0.5, np.float32).tobytes()
    low, high = {"U8": (0, 256), "I8": (0, 256), "E8M0": (120, 126), "F8_E8M0": (120, 126), "F8_E4M3": (8, 40)}[dtype]
    return random.randint(low, high, shape).astype(np.uint8).tobytes()


STORED = {"E8M0": "U8", "FACTOR": "F32"}
FOUR_BITS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def four_bits(pairs):
    """Bytes with two codes each, as floats."""
    pairs = np.frombuffer(pairs, np.uint8)
    return FOUR_BITS[np.stack([pairs & 15, pairs >> 4], -1)].reshape(-1)


def as_floats(tensors):
    """Tensors as write() has them, with those of 4 bits as the matrices that they stand for, of 32 bits."""
    out = dict(tensors)
    for name, (dtype, shape, data) in tensors.items():
        stem = name.removesuffix("_blocks") if name.endswith("_blocks") else name.removesuffix("_packed").removesuffix(".weight")
        if dtype == "I8":                                  # DeepSeek V4
            scale = np.frombuffer(tensors[stem + ".scale"][2], np.uint8).astype(np.int32)
            x = (four_bits(data).reshape(len(scale), -1) * np.ldexp(np.float32(1), scale - 127)[:, None]).astype(np.float32)
            out[name] = ("F32", [shape[0], 2 * shape[1]], x.tobytes())
            del out[stem + ".scale"]
        if dtype != "U8" or name.endswith("_scales"):
            continue
        x, mx = four_bits(data), name.endswith("_blocks")
        scale = np.frombuffer(tensors[stem + ("_scales" if mx else ".weight_scale")][2], np.uint8)
        x = (x.reshape(len(scale), -1) * (np.ldexp(np.float32(1), scale.astype(np.int32) - 127) if mx else e4m3(scale))[:, None]).astype(np.float32)
        if mx:                                             # [experts, rows, columns]; the class has rows and columns the other way round
            x = x.reshape(shape[0], shape[1], -1).transpose(0, 2, 1)
        else:
            for end in (".weight_scale_2", ".weight_global_scale"):
                if stem + end in tensors:
                    f = np.frombuffer(tensors[stem + end][2], np.float32)[0]
                    x = x * (np.float32(1) / f if "global" in end else f)
            x = x.reshape(shape[0], -1)
        for other in [n for n in out if n.startswith(stem) and n[len(stem):] in ("_blocks", "_scales", ".weight", ".weight_packed", ".weight_scale", ".weight_scale_2", ".weight_global_scale", ".input_scale", ".input_global_scale")]:
            del out[other]
        out[stem + ("" if mx else ".weight")] = ("F32", list(x.shape), np.ascontiguousarray(x, np.float32).tobytes())
    return out


WIDTHS = {"I64": 8, "F64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2}      # bytes; others have one


def safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}; in the order of the library: wide numbers first, then by name."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    tensors = dict(sorted(tensors.items(), key=lambda t: (-WIDTHS.get(t[1][0], 1), t[0])))
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def e4m3(codes):
    """What bytes are as floats of 8 bits."""
    e, m = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    return np.where(codes >> 7, -1, 1).astype(np.float32) * np.where(e > 0, np.ldexp(8 + m, e - 10), np.ldexp(m, -9)).astype(np.float32)


def in_blocks(tensors, block, dtype="F32", end="_scale_inv"):
    """Matrices of layers as F8_E4M3 with scales of blocks (rows, columns); None: one for all.  Those tensors, and the same as floats of 32 bits.  end: what names of scales have."""
    small, floats = {}, {}
    for name, (_, shape, data) in tensors.items():
        if not name.endswith(("_proj.weight", "experts.gate_up_proj", "experts.down_proj")) and ".in_proj_" not in name:
            small[name] = floats[name] = tensors[name]
            continue
        random = np.random.RandomState(zlib.crc32(name.encode()))
        codes, size = random.randint(0, 256, shape).astype(np.uint8), block or shape[-2:]
        codes[codes & 127 == 127] = 3                      # no number
        scale = (random.rand(*shape[:-2], *(-(-n // k) for n, k in zip(shape[-2:], size))).astype(np.float32) + 0.5) / 512
        if dtype == "BF16":
            scale = (scale.view(np.uint32) & 0xffff0000).view(np.float32)
        wide = np.repeat(np.repeat(scale, size[0], -2), size[1], -1)[..., :shape[-2], :shape[-1]]
        small[name] = ("F8_E4M3", shape, codes.tobytes())
        bytes_ = scale.tobytes() if dtype == "F32" else (scale.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        small[name + end] = (dtype, list(scale.shape) if block or len(shape) > 2 else [1], bytes_)
        floats[name] = ("F32", shape, (e4m3(codes) * wide).astype(np.float32).tobytes())
    return small, floats


def write(folder, record, dtype="BF16", files=1, floats=False):
    """A folder; files: how many its weights are cut into; floats: without weights of 4 bits."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**record["config"], "dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]}
    if floats:
        config.pop("quantization_config", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    if record.get("unigram"):
        (folder / "spiece.model").write_bytes(unigram())
    elif record.get("aligned"):
        (folder / "sentencepiece.bpe.model").write_bytes(unigram())
    elif record.get("ranks"):
        (folder / record["ranks"]).write_text(ranks(record["ranks"] != "qwen.tiktoken"))
    elif record.get("world"):
        (folder / "rwkv_vocab_v20230424.txt").write_text(world(), encoding="utf-8")
    elif record.get("pieces"):
        (folder / "tokenizer.model").write_bytes(pieces())
    else:
        (folder / "tokenizer.json").write_text(json.dumps(record.get("tokenizer") or (gemma_tokenizer() if record.get("lines") else tokenizer(**record.get("own", {}))), ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(record.get("tokenizer_config") or settings()))
    for name, text in record.get("files", {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    tensors, coded = {name: (dtype, shape, weights(name, shape, dtype)) for name, shape in record["tensors"].items()}, record.get("codes", {})
    tensors |= {name: (STORED.get(of, of), record["tensors"][name], codes(name, record["tensors"][name], of)) for name, of in coded.items()}
    tensors |= {name: ("I64", list(np.shape(v)), np.array(v, np.int64).tobytes()) for name, v in record.get("integers", {}).items()}
    tensors = as_floats(tensors) if floats else tensors
    if files == 1:
        safetensors(folder / "model.safetensors", tensors)
        return folder
    where = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors" for i, name in enumerate(tensors)}
    for file in sorted(set(where.values())):
        safetensors(folder / file, {n: t for n, t in tensors.items() if where[n] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())}, "weight_map": where}))
    return folder
