"""Folders whose weights are small whole numbers with scales (GPTQ, AWQ, MLX): the floats that the libraries make of them, a folder that answers as its file does, and errors
that name file, key and value. (By hand: the same files through llama.cpp's converter, for GPTQ, and through mlx.core.dequantize.)"""
import copy
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import load_tool
from test_convert import RECORDS, changed, convert, fails

gguf = pytest.importorskip("gguf")
folders = load_tool("make_folder")
GROUP, NAME = 32, "model.layers.0.mlp.up_proj"
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)                   # the column of each nibble of a word
CONFIGS = {"gptq": {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}},
           "gptq-8": {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "checkpoint_format": "gptq_v2"}},
           "gptq-whole": {"quantization_config": {"quant_method": "gptq", "bits": 2, "group_size": -1}},
           "awq": {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}},
           "compressed": {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}}}}},
           "compressed-zeros": {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": False}}}}},
           "compressed-rows": {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "channel", "group_size": None}}}}},
           "mlx": {"quantization": {"group_size": GROUP, "bits": 4}, "quantization_config": {"group_size": GROUP, "bits": 4}},
           "mlx-mixed": {"quantization": {"group_size": GROUP, "bits": 2, NAME: {"group_size": GROUP, "bits": 8}, "mode": "affine"}}}


def words(codes, bits, order=None):
    """Whole numbers along the last axis, packed into words; order: of a word, the element of each part."""
    n = 32 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, n)[..., list(order or range(n))].astype(np.uint64)
    return (parts << (np.arange(n, dtype=np.uint64) * np.uint64(bits))).sum(-1).astype(np.uint32)


def bf16(x):
    """The nearest numbers of bf16, halves to even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000).view(np.float32)


def packed(kind, name, shape):
    """Tensors {ending: (dtype, shape, bytes)} of a matrix, and its floats."""
    rng, (rows, columns) = np.random.default_rng(list(name.encode())), shape
    config = CONFIGS[kind].get("quantization") or CONFIGS[kind]["quantization_config"]
    config = config["config_groups"]["group_0"]["weights"] if "config_groups" in config else config
    bits, groups = config.get(name, config).get("bits", config.get("num_bits")), columns // GROUP if (config["group_size"] or 0) > 0 else 1
    codes, zeros = rng.integers(0, 1 << bits, (rows, columns)), rng.integers(0, 1 << bits, (rows, groups))
    scales = (rng.random((rows, groups)) * 0.02 + 0.001).astype(np.float16)
    group = np.arange(columns) // (columns // groups)
    if kind.startswith("mlx"):
        s, b = bf16(scales), bf16(rng.standard_normal((rows, groups)) * 0.1)
        half = {end: ("BF16", x.shape, (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()) for end, x in ((".scales", s), (".biases", b))}
        w = words(codes, bits)
        return {".weight": ("U32", w.shape, w.tobytes()), **half}, bf16(bf16(codes.astype(np.float32) * s[:, group]) + b[:, group])
    if kind.startswith("compressed"):
        w, asymmetric = words(codes, bits), kind == "compressed-zeros"
        z = words(np.pad(zeros.T, ((0, 0), (0, -rows % (32 // bits)))), bits).T
        more = {".weight_zero_point": ("I32", z.shape, np.ascontiguousarray(z).tobytes())} if asymmetric else {}
        group = rng.permutation(group).astype(np.int32) if asymmetric else group
        more |= {".weight_g_idx": ("I32", group.shape, group.tobytes())} if asymmetric else {}
        tensors = {".weight_packed": ("I32", w.shape, w.tobytes()), ".weight_scale": ("F16", scales.shape, scales.tobytes()), ".weight_shape": ("I64", [2], np.array(shape, np.int64).tobytes()), **more}
        return tensors, scales.astype(np.float32)[:, group] * (codes - (zeros[:, group] if asymmetric else 1 << (bits - 1))).astype(np.float32)
    if kind == "awq":
        w, z, more, plus = words(codes.T, 4, AWQ), words(zeros.T, 4, AWQ), {}, 0
    else:
        group = rng.permutation(group).astype(np.int32)
        w, z, plus = words(codes, bits).T, words(zeros.T, bits), config.get("checkpoint_format") != "gptq_v2"
        more = {".g_idx": ("I32", group.shape, group.tobytes())}
    tensors = {".qweight": ("I32", w.shape, np.ascontiguousarray(w).tobytes()), ".qzeros": ("I32", z.shape, np.ascontiguousarray(z).tobytes()),
               ".scales": ("F16", scales.T.shape, np.ascontiguousarray(scales.T).tobytes()), **more}
    return tensors, scales.astype(np.float32)[:, group] * (codes - zeros[:, group] - plus).astype(np.float32)


def write(folder, kind, of="llama"):
    """A folder, and the floats of its matrices of codes."""
    record, floats = copy.deepcopy(RECORDS[of]), {}
    record["config"].update(CONFIGS[kind])
    folders.write(folder, record, "BF16" if kind.startswith("mlx") else "F16")
    head, data = (folder / "model.safetensors").read_bytes(), {}
    n = struct.unpack("<Q", head[:8])[0]
    for name, t in json.loads(head[8:8 + n]).items():
        stem, end = name.removesuffix(".weight"), "norm.weight"
        if name == "__metadata__":
            continue
        if len(t["shape"]) == 2 and not name.endswith(end) and (kind.startswith("mlx") or "_proj" in name):
            tensors, floats[name] = packed(kind, stem, t["shape"])
            data.update({stem + e: v for e, v in tensors.items()})
        else:
            data[name] = (t["dtype"], t["shape"], head[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
    folders.safetensors(folder / "model.safetensors", data)
    return floats


@pytest.mark.parametrize("kind", CONFIGS)
def test_floats_of_codes(run_weft, tmp_path, kind):
    floats = write(tmp_path / "small", kind, "qwen3")
    made = {t.name: t for t in convert(run_weft, tmp_path / "small", tmp_path / "out.gguf", "--outtype", "f32").tensors}
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for name, want in floats.items():
        layer, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
        got = made[f"blk.{layer}.{names[part]}.weight" if part in names else "token_embd.weight"].data
        assert got.shape == want.shape and (got == want).all(), name
    assert len(floats) >= 14


@pytest.mark.parametrize("kind, type_, of", [("gptq", "F16", "llama"), ("awq", "F16", "mixtral"), ("compressed", "F16", "mixtral"), ("mlx", "BF16", "llama")])
def test_a_folder_answers_as_its_file(run_weft, tmp_path, kind, type_, of):
    """Also where rows of heads are woven and experts stacked. Matrices are halves, as the scales are."""
    write(tmp_path / "small", kind, of)
    reader, text, answers = convert(run_weft, tmp_path / "small", tmp_path / "out.gguf"), tmp_path / "text", []
    assert {t.tensor_type.name for t in reader.tensors} == {type_, "F32"}
    text.write_text("def add(a, b):\n    return a + b\n" * 20)
    for model in (tmp_path / "out.gguf", tmp_path / "small"):
        done = run_weft(["perplexity", "-m", model, "-f", text, "-c", "64", "--save-all-logits", tmp_path / "logits"])
        assert done.returncode == 0, done.err
        answers.append((tmp_path / "logits").read_bytes())
    assert answers[0] == answers[1] and len(answers[0]) > 10000


def four_bits(form, shape):
    """Tensors of a matrix of 4-bit blocks, as packed() has them; form: "mxfp4", "nvfp4" or "pairs" (of folders of FP8)."""
    rng, (rows, columns), of = np.random.default_rng(1), shape, 16 if form == "nvfp4" else 32
    codes = rng.integers(0, 256, (rows, columns // 2)).astype(np.uint8)
    scale = rng.integers(*((8, 100) if form == "nvfp4" else (120, 126)), (rows, columns // of)).astype(np.uint8)
    wide = folders.e4m3(scale) / np.float32(2) if form == "nvfp4" else np.ldexp(np.float32(1), scale.astype(np.int32) - 127)
    floats = folders.four_bits(codes.tobytes()).reshape(shape) * np.repeat(wide, of, 1)
    if form == "pairs":
        return {".weight": ("I8", codes.shape, codes.tobytes()), ".scale": ("F8_E8M0", scale.shape, scale.tobytes())}, floats
    more = {".weight_global_scale": ("F32", [1], np.float32(2).tobytes())} if form == "nvfp4" else {}
    return {".weight_packed": ("U8", codes.shape, codes.tobytes()), ".weight_scale": ("F8_E4M3" if form == "nvfp4" else "U8", scale.shape, scale.tobytes()), **more}, floats


def eight_bits(shape):
    rng = np.random.default_rng(1)
    codes, scale = rng.integers(0, 120, shape).astype(np.uint8), np.float32(0.25)
    return {".weight": ("F8_E4M3", shape, codes.tobytes()), ".weight_scale_inv": ("F32", [1], scale.tobytes())}, folders.e4m3(codes) * scale


BLOCKS = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}}}
FORMS = {**{k: CONFIGS[k] for k in ("gptq", "awq", "compressed", "compressed-zeros", "mlx")}, "fp8": {"quantization_config": {"quant_method": "fp8"}}, "pairs": {"quantization_config": {"quant_method": "fp8"}},
         **{k: {"quantization_config": {**BLOCKS, "format": k + "-pack-quantized"}} for k in ("mxfp4", "nvfp4")}}
TILED, SMALLER, TIMES, TURNED = "model.layers.0.linear_attn.out_proj", "model.layers.0.linear_attn.out_proj ", "model.layers.0.feed_forward.gate_proj", "h.0.mlp.c_fc"


@pytest.mark.parametrize("kind, matrix, to", [("qwen35", TILED, "blk.0.ssm_out.weight"), ("qwen35", SMALLER, "blk.0.ssm_out.weight"), ("falconh1", TIMES, "blk.0.ffn_gate.weight"), ("gpt2", TURNED, "blk.0.ffn_up.weight")])
@pytest.mark.parametrize("form", FORMS)
def test_what_changes_a_matrix_changes_each_form_of_it(run_weft, tmp_path, form, kind, matrix, to):
    """Another order of a row's weights (of whole groups with one scale, or of parts of them), factors of rows, and turned matrices: the numbers of the folder of floats, or an error."""
    record, small, name = copy.deepcopy(RECORDS[kind]), matrix == SMALLER, matrix.strip()
    if small:                                              # 12 heads of 16 weights in place of 6 of 32
        record["config"].update(linear_num_value_heads=12, linear_value_head_dim=16)
        record["tensors"].update({n: [12, *s[1:]] for n, s in record["tensors"].items() if n.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight"))} |
                                 {n: [16] for n in record["tensors"] if n.endswith("linear_attn.norm.weight")})
    shape, got = record["tensors"][name + ".weight"], []
    tensors, floats = eight_bits(shape) if form == "fp8" else four_bits(form, shape) if form in ("pairs", "mxfp4", "nvfp4") else packed(form, name, shape)
    for own, config in ((tensors, FORMS[form]), ({".weight": ("F32", shape, np.ascontiguousarray(floats, np.float32).tobytes())}, {})):
        folder = folders.write(tmp_path / str(len(got)) / "small", {**record, "config": {**record["config"], **config}})
        lie(folder, lambda t: [t.pop(name + ".weight"), t.update({name + end: v for end, v in own.items()})])      # noqa: B023
        if matrix == TURNED and form in CONFIGS:
            return fails(run_weft, folder, f"becomes '{to}' in another order, and has scales of blocks")
        made = {t.name: t for t in convert(run_weft, folder, tmp_path / "out.gguf", "--outtype", "f32").tensors}
        got.append(gguf.dequantize(made[to].data, made[to].tensor_type) * (made[to.replace("weight", "scale")].data[0] if to.replace("weight", "scale") in made else 1))
        if own is tensors:
            kept = {"mxfp4": TILED, "pairs": TILED, "nvfp4": matrix if matrix in (TILED, SMALLER) else None}
            assert (made[to].tensor_type.name != "F32") == (kept.get(form) == matrix)
    assert got[0].shape == got[1].shape and (got[0] == got[1]).all() and np.unique(got[0]).size > 10


@pytest.mark.parametrize("form, change, twice", [
    ("pairs", lambda t: t.update({NAME + ".weight_scale": ["U8", [96, 4], bytes(384)]}), ["scale", "weight_scale"]),
    ("pairs", lambda t: t.update({NAME + ".weight_scale_inv": ["F32", [1], bytes(4)]}), ["scale", "weight_scale_inv"]),
    ("fp8", lambda t: t.update({NAME + ".scale": ["F8_E8M0", [1], bytes(1)]}), ["scale", "weight_scale_inv"]),
    ("mxfp4", lambda t: t.update({NAME + ".weight": ["U8", [96, 32], bytes(3072)], NAME + ".scale": ["U8", [96, 2], bytes(192)]}), ["scale", "weight_scale"]),
])
def test_a_matrix_with_scales_twice(run_weft, tmp_path, form, change, twice):
    """The second scales would make the matrix wider than its bytes, or be read beyond their end."""
    shape = RECORDS["qwen3"]["tensors"][NAME + ".weight"]
    own = (eight_bits(shape) if form == "fp8" else four_bits(form, shape))[0]
    folder = folders.write(tmp_path / "small", {**RECORDS["qwen3"], "config": {**RECORDS["qwen3"]["config"], **FORMS[form]}})
    lie(folder, lambda t: [t.pop(NAME + ".weight"), t.update({NAME + end: v for end, v in own.items()}), change(t)])
    fails(run_weft, folder, f"key '{NAME}.weight': has scales twice: {NAME}.{twice[0]} and {NAME}.{twice[1]}")


@pytest.mark.parametrize("chain", ["weight_scale_inv", "weight"])
def test_a_matrix_that_is_scales(run_weft, tmp_path, chain):
    """As a matrix with scales it would be read as floats, as scales it has one byte for each. In two files, so that either is bound first."""
    shape = RECORDS["qwen3"]["tensors"][NAME + ".weight"]
    codes, scales = ("F8_E4M3", shape, bytes([56]) * (shape[0] * shape[1])), ("F32", shape, np.ones(shape, np.float32).tobytes())
    config = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [1, 1]}}
    folder = folders.write(tmp_path / "small", {**RECORDS["qwen3"], "config": {**RECORDS["qwen3"]["config"], **config}})
    first, second = NAME + ".weight_scale_inv", NAME + ".weight_scale_inv_scale_inv"
    early, late = (second, first) if chain == "weight_scale_inv" else (first, second)
    of = {first: codes, second: scales}
    lie(folder, lambda t: [t.update({NAME + ".weight": codes, early: of[early]}), folders.safetensors(folder / "model-2.safetensors", {late: of[late]})])
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    expected = f"key '{first}': is a matrix with scales, and scales of another" if early == second else f"key '{first}': scales of F8_E4M3 are not read"
    fails(run_weft, folder, expected)


def test_rows_in_pairs_of_four_axes(run_weft, tmp_path):
    """Matrices of experts whose rows are in pairs have three axes; blocks without scales have four."""
    name = "model.layers.0.mlp.experts.gate_up_proj"
    folder = folders.write(tmp_path / "small", RECORDS["gpt-oss"])
    lie(folder, lambda t: [t.pop(name), t.update({name + "_blocks": ("BF16", [8, 4, 16, 64], bytes(8 * 4 * 16 * 64 * 2))})])
    fails(run_weft, folder, f"key '{name}_blocks': 16 rows are not those of heads (pairs of rows)")


@pytest.mark.parametrize("n", [1 << 32, (1 << 32) + 4])
def test_lists_longer_than_32_bits(run_weft, tmp_path, n):
    """A list of numbers that becomes rows of one number; the file has a hole in place of its 8 GB."""
    name = "model.layers.0.attention.A_log"
    folder = folders.write(tmp_path / "small", RECORDS["ling3"])
    path = folder / "model.safetensors"
    lie(folder, lambda t: t.pop(name))
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8:8 + size]), data[8 + size:]
    head[name] = {"dtype": "BF16", "shape": [n], "data_offsets": [len(body), len(body) + 2 * n]}
    text = json.dumps(head).encode()
    with path.open("wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
        f.truncate(8 + len(text) + len(body) + 2 * n)
    fails(run_weft, folder, f"key '{name}': is not a list of numbers for 1 rows")


def lie(folder, change):
    """change(tensors): {name: [dtype, shape, bytes]}."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    tensors = {k: [t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]] for k, t in json.loads(data[8:8 + n]).items() if k[0] != "_"}
    change(tensors)
    folders.safetensors(path, tensors)


@pytest.mark.parametrize("kind, change, expected", [
    ("gptq", lambda t: t.pop(NAME + ".scales"), [NAME + ".qweight", f"'{NAME}.scales' is missing"]),
    ("gptq", lambda t: t.pop(NAME + ".qzeros"), [f"'{NAME}.qzeros' is missing"]),
    ("gptq", lambda t: t.update({NAME + ".g_idx": ["I32", [64], np.full(64, -1, np.int32).tobytes()]}), [NAME + ".g_idx", "element 0 is -1, and there are 2 groups"]),
    ("gptq", lambda t: t.update({NAME + ".g_idx": ["I32", [63], bytes(252)]}), [NAME + ".g_idx", "is not 64 numbers of I32"]),
    ("gptq", lambda t: t.update({NAME + ".scales": ["F16", [1, 96], bytes(192)]}), [NAME + ".scales", "1 groups of 32 do not fit 64 columns"]),
    ("awq", lambda t: t.update({NAME + ".scales": ["F16", [2, 95], bytes(380)]}), [NAME + ".scales", "F16, 2 x 95, expected F32 or F16 or BF16, 2 x 96"]),
    ("awq", lambda t: t.update({NAME + ".scales": ["I16", [2, 96], bytes(384)]}), [NAME + ".scales", "I16, 2 x 96, expected F32 or F16 or BF16"]),
    ("awq", lambda t: t.update({NAME + ".qzeros": ["I32", [2, 11], bytes(88)]}), [NAME + ".qzeros", "I32, 2 x 11, expected I32 or U32, 2 x 12"]),
    ("awq", lambda t: t.update({NAME + ".qweight": ["F32", [64, 12], bytes(3072)]}), [NAME + ".qweight", "is no matrix of I32 or U32"]),
    ("awq", lambda t: t.update({NAME + ".weight": ["F16", [96, 64], bytes(12288)]}), ["becomes 'blk.0.ffn_up.weight', and another tensor does, too"]),
    ("compressed", lambda t: t.pop(NAME + ".weight_shape"), [NAME + ".weight_packed", f"'{NAME}.weight_shape' is missing"]),
    ("compressed", lambda t: t.update({NAME + ".weight_shape": ["I64", [2], np.array([96, -64]).tobytes()]}), [NAME + ".weight_shape", "is not a number of rows and of columns"]),
    ("compressed", lambda t: t.update({NAME + ".weight_shape": ["I64", [2], np.array([96, 128]).tobytes()]}), [NAME + ".weight_packed", "I32, 96 x 8, expected I32 or U32, 96 x 16"]),
    ("compressed", lambda t: t.update({NAME + ".weight_scale": ["F16", [96, 1], bytes(192)]}), [NAME + ".weight_scale", "F16, 96 x 1, expected F32 or F16 or BF16, 96 x 2"]),
    ("compressed-zeros", lambda t: t.update({NAME + ".weight_zero_point": ["I32", [96, 2], bytes(768)]}), [NAME + ".weight_zero_point", "I32, 96 x 2, expected I32 or U32, 24 x 2"]),
    ("compressed-zeros", lambda t: t.update({NAME + ".weight_g_idx": ["I32", [64], np.full(64, 2, np.int32).tobytes()]}), [NAME + ".weight_g_idx", "element 0 is 2, and there are 2 groups"]),
    ("mlx", lambda t: t.pop(NAME + ".biases"), [f"'{NAME}.biases' is missing"]),
    ("mlx", lambda t: t.update({NAME + ".scales": ["BF16", [96, 3], bytes(576)]}), [NAME + ".scales", "3 groups of 32 do not fit 64 columns of 4 bits"]),
    ("mlx", lambda t: [t.update({NAME.replace("mlp.up_proj", "input_layernorm") + e: v for e, v in ((".weight", ["U32", [1, 8], bytes(32)]), (".scales", ["BF16", [1, 2], bytes(4)]), (".biases", ["BF16", [1, 2], bytes(4)]))})], ["a norm is not read from codes"]),
    ("mlx", lambda t: t.update({NAME + ".biases": ["F16", [96, 2], bytes(384)]}), [NAME + ".biases", "F16, 96 x 2, expected BF16, 96 x 2"]),
    ("mlx", lambda t: t.update({NAME + ".weight": ["I32", [96, 8], bytes(3072)]}), [NAME + ".weight", "is no matrix of U32"]),
])
def test_tensors_that_lie(run_weft, tmp_path, kind, change, expected):
    write(tmp_path / "small", kind, "qwen3")
    lie(tmp_path / "small", change)
    fails(run_weft, tmp_path / "small", *expected)


@pytest.mark.parametrize("kind, key, change, expected", [
    ("gptq", "quantization_config", {"bits": 3}, "key 'bits': codes of 3 bits are not read"),
    ("gptq", "quantization_config", {"bits": "four"}, "key 'bits': is not a whole number from 1 to"),
    ("gptq", "quantization_config", {"group_size": 0}, "key 'group_size': is not a whole number from 1 to"),
    ("gptq", "quantization_config", {"checkpoint_format": "marlin"}, "key 'checkpoint_format': 'marlin' is not read (but gptq gptq_v2)"),
    ("awq", "quantization_config", {"bits": 8}, "key 'bits': codes of 8 bits are not read"),
    ("awq", "quantization_config", {"version": "gemv"}, "key 'version': 'gemv' is not read"),
    ("awq", "quantization_config", {"quant_method": "hqq"}, "key 'quantization_config': hqq weights are not read"),
    ("gptq", "quantization_config", {"checkpoint_format": ""}, "key 'checkpoint_format': '' is not read (but gptq gptq_v2)"),
    ("awq", "quantization_config", {"version": "gemm GEMM"}, "key 'version': 'gemm GEMM' is not read"),
    ("compressed", "quantization_config", {"config_groups": {}}, "key 'config_groups': is missing, or has no group"),
    ("compressed", "quantization_config", {"config_groups": {"a": {"weights": {"num_bits": 3, "type": "int"}}}}, "key 'bits': codes of 3 bits are not read"),
    ("compressed", "quantization_config", {"config_groups": {"a": {"weights": {"num_bits": 4, "type": "float"}}}}, "key 'type': 'float' is not read (but int)"),
    ("compressed", "quantization_config", {"config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 32}}, "b": {"weights": {"num_bits": 8, "group_size": 32}}}}, "key 'config_groups': matrices have codes of several kinds"),
    ("mlx", "quantization", {"mode": ""}, "key 'mode': '' is not read (but affine)"),
    ("mlx", "quantization", {"bits": 2}, "2 groups of 32 do not fit 128 columns of 2 bits"),
    ("mlx", "quantization", {"group_size": 16}, "2 groups of 16 do not fit 64 columns of 4 bits"),
    ("mlx", "quantization", {NAME: 5}, f"key '{NAME}': is neither an object nor true or false"),
    ("mlx", "quantization", {"mode": "mxfp4"}, "key 'mode': 'mxfp4' is not read (but affine)"),
    ("mlx", "quantization", {NAME: {"bits": 6}}, "key 'bits': codes of 6 bits are not read"),
])
def test_settings_that_are_not_read(run_weft, tmp_path, kind, key, change, expected):
    write(tmp_path / "small", kind, "qwen3")
    changed(tmp_path / "small", "config.json", lambda c: c[key].update(change))
    fails(run_weft, tmp_path / "small", expected)
