"""make_folder.py: small folders as transformers saves them (config.json, model.safetensors, tokenizer.json, ...), written without it, for test_convert.py.

What a folder has is a record of tests/records/folders: its config.json and the shapes of its tensors. Weights follow from their names.
"""
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


def split(regex):
    steps = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
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


def settings(**more):
    return {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 10 ** 30, "tokenizer_class": "PreTrainedTokenizerFast", **more}


def weights(name, shape, dtype):
    """The bytes of a tensor."""
    x = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32) * np.float32(0.25)
    if dtype == "F16":
        return x.astype(np.float16).tobytes()
    return x.tobytes() if dtype == "F32" else (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write(folder, record, dtype="BF16", files=1):
    """A folder; files: how many its weights are cut into."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**record["config"], "dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text(json.dumps(record.get("tokenizer") or tokenizer(), ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(record.get("tokenizer_config") or settings()))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    tensors = {name: (dtype, shape, weights(name, shape, dtype)) for name, shape in record["tensors"].items()}
    if files == 1:
        safetensors(folder / "model.safetensors", tensors)
        return folder
    where = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors" for i, name in enumerate(tensors)}
    for file in sorted(set(where.values())):
        safetensors(folder / file, {n: t for n, t in tensors.items() if where[n] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())}, "weight_map": where}))
    return folder
