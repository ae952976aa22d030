#!/usr/bin/env python3
"""record_folders.py: small folders of every class that weft convert knows, and what llama.cpp's converter writes for them, for tests/records/folders.

    record_folders.py LLAMA_CPP OUT_FOLDER [NAME ...]       default: all names

LLAMA_CPP is its source (the records were made with 0c1e570's convert_hf_to_gguf.py and transformers 5.24.0). config.json and the names and shapes of tensors are what transformers
saves for a small model; weights are those of make_folder.py. Of keys the values are recorded, of tensors type, shape and a hash. The converter finds the name of a way to cut words
by a hash of tokens, which made-up vocabularies have not: the name is given to it.
"""
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import make_folder

SMALL = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1000000.0}
KINDS = {   # name: class of the model, of its configuration, what this has
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-yarn": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32, "rope_parameters": YARN}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": None, "head_dim": 32}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0156}),
}
TYPES = {"BF16": ["auto", "f32", "q8_0"], "F16": ["auto", "bf16"], "F32": ["auto", "f32", "bf16", "q8_0"]}
RUN = """import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: PRE
sys.argv = [sys.argv[1] + "/convert_hf_to_gguf.py", *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")"""


def describe(path):
    import gguf
    reader = gguf.GGUFReader(path)
    keys = {k: [f.types[0].name, f.contents()] for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    return keys, {t.name: [t.tensor_type.name, [int(n) for n in t.shape], hashlib.sha256(t.data.tobytes()).hexdigest()[:16]] for t in reader.tensors}


def record(llama_cpp, name):
    import transformers
    model, config, own = KINDS[name]
    config = getattr(transformers, config)(**{**SMALL, **own})
    with tempfile.TemporaryDirectory() as folder:
        getattr(transformers, model)(config).save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        head = (Path(folder) / "model.safetensors").read_bytes()
    saved.pop("transformers_version")
    head = json.loads(head[8:8 + int.from_bytes(head[:8], "little")])
    made = {"config": saved, "tensors": {k: v["shape"] for k, v in head.items() if k != "__metadata__"}, "keys": {}, "made": {}}
    with tempfile.TemporaryDirectory() as folder:
        for dtype, types in TYPES.items():
            source = make_folder.write(Path(folder) / dtype / name, made, dtype)
            for out in types:
                path = Path(folder) / "out.gguf"
                subprocess.run([sys.executable, "-c", RUN.replace("PRE", repr("qwen2")), llama_cpp, source, "--outfile", path, "--outtype", out], check=True, stderr=subprocess.DEVNULL)
                keys, made["made"][f"{dtype} {out}"] = describe(path)
                made["keys"] |= {k: v for k, v in keys.items() if k != "general.file_type"}
                made["made"][f"{dtype} {out}"]["general.file_type"] = keys["general.file_type"][1]
    return made


if __name__ == "__main__":
    for kind in sys.argv[3:] or KINDS:
        (Path(sys.argv[2]) / f"{kind}.json").write_text(json.dumps(record(sys.argv[1], kind), separators=(",", ":"), ensure_ascii=False) + "\n")
