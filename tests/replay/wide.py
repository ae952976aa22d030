"""Files of the families and of the encoders as wide as real models, without numbers: holes instead of tensors, for tools that read no weight.

In the small files of the tests a kernel's start costs as much as its work, so that the compiler decides otherwise than for a real model.
"""
import os

import gguf
import numpy as np

import make_model

TIMES, HEADS = 10, 20                   # by which a family is wider; by which an encoder of 2 heads has more of them
ENCODER = 40                            # by which an encoder is wider, whose streams are multiples of these
STREAMS = 24, 40
SIZES = {"dim", "ffn", "expert_ffn", "shared", "heads", "kv", "inner", "ssm_heads", "groups", "latent", "q_rank"}
KEYS = ("feed_forward_length", "inner_size", "time_step_rank", "head_count", "kv_lora_rank", "q_lora_rank", "embedding_length", "ssm.group_count")
F32 = gguf.GGMLQuantizationType.F32


class Holes:
    """Tensors of a file that is being written: their shapes and places, no bytes."""

    def __init__(self, writer, path):
        self.w, self.path, self.size = writer, path, 1 << 20

    def add(self, name, shape, kind=F32):
        """shape: rows last, as numpy has it"""
        block, size = gguf.GGML_QUANT_SIZES[kind]
        n = int(np.prod(shape)) // block * size
        if kind == F32:
            self.w.add_tensor_info(name, list(shape), np.dtype(np.float32), n)
        else:
            self.w.add_tensor_info(name, [*shape[:-1], shape[-1] // block * size], np.dtype(np.uint8), n, raw_dtype=kind)
        self.size += (n + 31) // 32 * 32

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_ti_data_to_file()
        self.w.close()
        os.truncate(self.path, os.path.getsize(self.path) + self.size)


class WideModel(make_model.Model):
    def __init__(self, path, arch, p):
        super().__init__(path, arch, p)
        self.holes = Holes(self.w, path)

    def normal(self, name, shape, mean, std):
        return np.zeros(shape, np.float32)

    def put(self, name, x):
        self.holes.add(name, np.shape(x))

    def weights(self, name, x):
        fits = x.shape[-1] % gguf.GGML_QUANT_SIZES[self.quant][0] == 0
        self.holes.add(name, x.shape, self.quant if fits else F32)

    def close(self):
        self.holes.close()


def times(value):
    if isinstance(value, (list, tuple)):
        return [times(v) for v in value]
    return value * TIMES if isinstance(value, int) and not isinstance(value, bool) else value


def write_family(name, quant, path):
    p = make_model.FAMILIES[name]
    changes = {k: times(v) for k, v in p.items() if k in SIZES}
    changes["keys"] = {k: times(v) if k.endswith(KEYS) and "indexer" not in k else v for k, v in p.get("keys", {}).items()}
    if "block_indexer" in p:            # it has a head for each head of keys
        heads, size = p["block_indexer"]
        changes["block_indexer"] = heads * TIMES, size
        changes["keys"]["attention.indexer.head_count"] = heads * TIMES
    make_model.write(name, path, WideModel, **changes, **({"quant": quant} if quant else {}))


def write_encoder(small, path):
    """A wide copy of the file `small`; of MobileNet, whose channels are said by tensors alone, an equal one."""
    reader, writer = gguf.GGUFReader(small), gguf.GGUFWriter(path, "clip")
    if any("msfa" in tensor.name for tensor in reader.tensors):
        path.write_bytes(small.read_bytes())
        return
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if isinstance(value, int) and field.name.endswith(("embedding_length", "feed_forward_length", "projection_dim")):
            value *= ENCODER
        elif isinstance(value, int) and field.name.endswith(("head_count", "head_count_kv")):
            value *= HEADS
        writer.add_key_value(field.name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    holes = Holes(writer, path)
    for tensor in reader.tensors:
        shape = [int(n) for n in tensor.shape]
        if any(part in tensor.name for part in ("attn_q_norm", "attn_k_norm", "per_dim_scale")) and shape[0] < min(STREAMS):      # of a head
            shape[0] = shape[0] * ENCODER // HEADS
        for i, n in enumerate(shape):
            places = "position_embd" in tensor.name and i == 1 and len(shape) <= 2 or tensor.name.startswith("a.input_projection") and i == 0
            if n == int(tensor.shape[i]) >= min(STREAMS) and any(n % s == 0 for s in STREAMS) and not places:
                shape[i] = n * ENCODER
        holes.add(tensor.name, shape[::-1])
    holes.close()
