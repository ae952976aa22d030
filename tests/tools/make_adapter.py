"""Adapters (LoRA) of random numbers for the small models of make_model.py, as llama.cpp's converter writes them."""
import gguf
import numpy as np

F16 = np.float16


def pair(name, shape, rank, seed):
    """A and B, whose product B A is added; A of what tokens become is held by columns.  shape: {rows, columns}, or {experts, rows, columns}."""
    rng = np.random.default_rng([seed, *name.encode()])
    a, b = rng.standard_normal((*shape[:-2], rank, shape[-1])) / shape[-1] ** 0.5, rng.standard_normal((*shape[:-1], rank)) / rank ** 0.5
    return a.astype(F16), b.astype(F16)


def write(path, arch, tensors, keys=(("general.type", "adapter"), ("adapter.type", "lora")), alpha=16.0, invocation=None):
    w = gguf.GGUFWriter(path, arch)
    for name, value in keys:
        w.add_string(name, value)
    if alpha is not None:
        w.add_float32("adapter.lora.alpha", alpha)
    if invocation is not None:
        w.add_key_value("adapter.alora.invocation_tokens", list(invocation), gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.UINT32)
    for name, data in tensors.items():
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def of_model(model, names, rank, seed=1, dtype=F16):
    """An adapter's tensors, and {name: (A, B)}."""
    tensors, pairs = {}, {}
    for t in gguf.GGUFReader(model).tensors:
        if any(n in t.name for n in names) and len(t.shape) > 1 and "norm" not in t.name and not t.name.endswith(".bias"):
            a, b = pairs[t.name] = pair(t.name, tuple(map(int, t.shape[::-1])), rank, seed)
            tensors[t.name + ".lora_a"], tensors[t.name + ".lora_b"] = (b.astype(dtype), a.T.astype(dtype).copy()) if t.name == "token_embd.weight" else (a.astype(dtype), b.astype(dtype))
    return tensors, pairs
