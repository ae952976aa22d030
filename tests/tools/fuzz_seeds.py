"""Seeds of fuzzers whose inputs no other program writes as they are.

    fuzz_seeds.py hf OUT         folders of Hugging Face's, each in one file, without the weights themselves (tests/fuzz/fuzz_hf.c says how): one of each
                                 record of tests/records/folders, and of each kind of packed weights: FP8, GPTQ, AWQ, MLX
    fuzz_seeds.py model OUT      what stands before the data of a file of each family and encoder (mutants.py heads), and of the projectors' files that
                                 llama.cpp's converter wrote (tests/records/projectors)
    fuzz_seeds.py adapter OUT    the heads of a model and of an adapter or a control vector for it, as the gguf package writes them
"""
import argparse
import json
import lzma
import struct
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "tools"), str(TESTS / "python")]
import gguf  # noqa: E402
import make_folder  # noqa: E402
import make_model  # noqa: E402
import mutants  # noqa: E402
import numpy as np  # noqa: E402

GROUP = 32
ADAPTED = ["llama-yarn", "qwen2moe", "gpt-oss", "deepseek2-lite", "qwen35", "gemma3"]     # dense, experts, biases, MLA, recurrent, tied
SCALES = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 48]}
PACKED = {"gptq": {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}},
          "awq": {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}},
          "mlx": {"quantization": {"group_size": GROUP, "bits": 4}, "quantization_config": {"group_size": GROUP, "bits": 4}},
          "fp8": {"quantization_config": SCALES}}


def parts(kind, rows, columns):
    """The tensors {ending: (dtype, shape)} that a matrix of codes is stored as."""
    words, groups = 32 // 4, columns // GROUP
    if kind == "fp8":
        return {".weight": ("F8_E4M3", [rows, columns]), ".weight_scale_inv": ("F32", [-(-rows // 32), -(-columns // 48)])}
    if kind == "mlx":
        return {".weight": ("U32", [rows, columns // words]), ".scales": ("BF16", [rows, groups]), ".biases": ("BF16", [rows, groups])}
    if kind == "awq":
        return {".qweight": ("I32", [columns, rows // words]), ".qzeros": ("I32", [groups, rows // words]), ".scales": ("F16", [groups, rows])}
    return {".qweight": ("I32", [columns // words, rows]), ".qzeros": ("I32", [groups, rows // words]), ".scales": ("F16", [groups, rows]), ".g_idx": ("I32", [columns])}


def packed_head(head, kind):
    """A head in which matrices of layers are stored packed."""
    made, at = {}, 0
    for name, t in head.items():
        if name == "__metadata__":
            continue
        proj = name.endswith("_proj.weight")
        some = {name.removesuffix(".weight") + end: v for end, v in parts(kind, *t["shape"]).items()} if proj else {name: (t["dtype"], t["shape"])}
        for each, (dtype, shape) in some.items():
            n = make_folder.WIDTHS.get(dtype, 1)
            for k in shape:
                n *= k
            made[each] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
            at += n
    return made


def packed_files(folder, kind=None):
    """The bytes of a seed."""
    out = b""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        data, name = path.read_bytes(), path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":
            head = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
            data = json.dumps(packed_head(head, kind) if kind else head, separators=(",", ":")).encode()
        elif path.suffix == ".json":
            value = json.loads(data)
            if kind and name == "config.json":
                value.update(PACKED[kind])
            data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        out += bytes([len(name)]) + name.encode() + struct.pack("<I", len(data)) + data
    return out


def write_folders(out, top):
    records = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in sorted((TESTS / "records" / "folders").glob("*.json"))}
    for name, record in records.items():
        (out / name).write_bytes(packed_files(make_folder.write(top / name, record)))
    for kind in PACKED:
        folder = make_folder.write(top / f"packed-{kind}", records["llama"], "BF16" if kind == "mlx" else "F16")
        (out / f"llama-{kind}").write_bytes(packed_files(folder, kind))
    (out / "llama-files").write_bytes(packed_files(make_folder.write(top / "several", records["llama"], files=3)))
    folder = make_folder.write(top / "empty", records["llama"])
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (out / "llama-empty").write_bytes(packed_files(folder))


def adapter_tensors(reader, rank=4):
    """The zeros of an adapter's tensors for each matrix of a model."""
    for t in reader.tensors:
        shape = [int(n) for n in t.shape[::-1]]
        if len(shape) < 2 or "norm" in t.name or not t.name.endswith(".weight") or "conv" in t.name:
            continue
        a, b = [*shape[:-2], rank, shape[-1]], [*shape[:-1], rank]
        yield t.name + ".lora_a", np.zeros(b if t.name == "token_embd.weight" else a, np.float16)
        yield t.name + ".lora_b", np.zeros(a[::-1] if t.name == "token_embd.weight" else b, np.float16)


def directions(reader, n=2):
    width = next(int(t.shape[0]) for t in reader.tensors if t.name == "token_embd.weight")
    return [(f"direction.{i + 1}", np.zeros(width, np.float32)) for i in range(n - 1)]


def write_head(path, arch, texts, tensors):
    w = gguf.GGUFWriter(path, arch)
    for key, value in texts.items():
        w.add_string(key, value)
    if arch == "controlvector":
        w.add_uint32("controlvector.layer_count", len(tensors))
    else:
        w.add_float32("adapter.lora.alpha", 8.0)
    for name, data in tensors:
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    data = path.read_bytes()
    return data[:mutants.Head(data).offset]


def write_adapters(out, top):
    for family in ADAPTED:
        make_model.write(family, top / "model")
        data, reader = (top / "model").read_bytes(), gguf.GGUFReader(top / "model")
        head, arch = data[:mutants.Head(data).offset], reader.fields["general.architecture"].contents()
        changes = {"": (arch, {"general.type": "adapter", "adapter.type": "lora"}, list(adapter_tensors(reader))),
                   "-control": ("controlvector", {"controlvector.model_hint": arch}, directions(reader))}
        for name, (kind, texts, tensors) in changes.items():
            (out / (family + name)).write_bytes(struct.pack("<I", len(head)) + head + write_head(top / "added", kind, texts, tensors))


def write_models(out, top):
    packed = sorted((TESTS / "records" / "projectors").glob("*.gguf.xz"))
    for path in packed:
        (top / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
    mutants.heads(argparse.Namespace(folder=out, family=[], file=[top / p.stem for p in packed], part="0/1"))


def main():
    write, out = {"model": write_models, "hf": write_folders, "adapter": write_adapters}[sys.argv[1]], Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as top:
        write(out, Path(top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
