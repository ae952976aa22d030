"""Keys under the architecture's name: each one is read, or known to change nothing, or the file is refused."""
import json
import struct

import gguf
import numpy as np
import pytest

THREADS = 1

# What may stand in a file without being read whatever its value is, and why: src/model/unread_keys.c
HARMLESS = {"vocab_size", "tensor_data_layout", "pooling_type", "embedding_length_out", "classifier.output_labels", "n_deepstack_layers", "rope.scaling.finetuned",
            "{dense}_feat_in", "{dense}_feat_out"}
# ... where a file has no use for them: no window, another kind of norm, no YaRN, no temperature, no experts
IDLE = {"attention.sliding_window_pattern", "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.temperature_length",
        "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_log_multiplier",
        "leading_dense_block_count", "interleave_moe_layer_step", "moe_every_n_layers", "moe_latent_size"}


def conventions(of=gguf.constants.Keys):
    """All keys that the gguf package knows of a model, without the architecture's name."""
    for name, value in vars(of).items():
        if isinstance(value, str) and value.startswith("{arch}."):
            yield value.removeprefix("{arch}.")
        elif isinstance(value, type) and not name.startswith("_"):
            yield from conventions(value)


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


class Template:
    """A file to which keys are added: its header, and a hole where its tensors are, which nobody reads here."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.header, self.data_bytes = path.read_bytes()[:reader.data_offset], path.stat().st_size - reader.data_offset
        self.keys = {name for name in reader.fields}

    def write(self, path, key, value):
        entry = text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<I?", 7, value) if isinstance(value, bool) else struct.pack("<II", 4, value))
        pad = text("test.pad") + struct.pack("<I", 8)
        pad += text(" " * (-(len(entry) + len(pad) + 8) % 32))
        n_keys = struct.unpack_from("<Q", self.header, 16)[0] + 2
        with open(path, "wb") as f:
            f.write(self.header[:16] + struct.pack("<Q", n_keys) + entry + pad + self.header[24:])
            f.truncate(f.tell() + self.data_bytes)


def inspect(run_weft, path):
    done = run_weft(["inspect", "-m", path, "--json"])
    assert done.returncode == 0, done.err
    return json.loads(done.stdout)


def test_every_key_of_the_conventions(run_weft, inspect_file, make_model, tmp_path):
    """A key that is not in the file is added: with a number that is hardly one that changes nothing. The command says the same of each family's last file."""
    path, seen, names = tmp_path / "m.gguf", set(), sorted(set(conventions()))
    assert len(names) > 100
    for family, p in make_model.FAMILIES.items():
        if p["arch"] in seen:
            continue
        seen.add(p["arch"])
        make_model.write(family, path)
        template, about = Template(path), None
        for name in names:
            key = f"{p['arch']}.{name}"
            if key in template.keys:
                continue
            template.write(path, key, 0.7 if any(word in name for word in ("scale", "softcapping", "epsilon", "factor", "freq")) else 3)
            about = inspect_file(path)
            use, why = about["key_uses"].get(key), about["why_not"]
            if about["can_run"]:
                assert use is not None and use != "not supported", key
                no_experts = name.startswith("expert") and not p.get("experts")
                learned = name.startswith("rope.") and p.get("positions")
                assert use == "read" or name in HARMLESS | IDLE or no_experts or learned, f"{key}: {use}"
            else:
                assert f"key '{key}'" in why or "tensor '" in why or use == "read", why
        shown = inspect(run_weft, path)
        assert about == {member: shown[member] for member in about}


@pytest.mark.parametrize("family,key,value,use", [
    ("granite", "swin_norm", True, "not supported"), ("granite", "swin_norm", False, "norms are where they usually are"),
    ("granite", "attention.causal", False, "not supported"), ("granite", "attention.causal", True, "each position sees the ones before it"),
    ("granite", "attention.sliding_window", 16, "not supported"), ("granite", "attention.sliding_window", 0, "the window is as long as the context"),
    ("granite", "nobody.knows", 1, "not supported"), ("granite", "ssm.conv_kernel", 4, "read"), ("stablelm", "ssm.conv_kernel", 4, "not supported"), ("granite", "expert_count", 0, "read"), ("granite", "vision.block_count", 3, "of the part for images"),
    ("stablelm", "use_parallel_residual", True, "read"), ("falcon", "use_parallel_residual", False, "not supported"),
    ("phi2", "use_parallel_residual", True, "as files of this kind are"), ("granite", "attention.key_length_swa", 32, "not supported"),
    ("granite", "attention.key_length_swa", 64, "heads are of one size"), ("gemma2", "attention.key_length_swa", 128, "read")])
def test_uses(run_weft, make_model, tmp_path, family, key, value, use):
    path, p = tmp_path / "m.gguf", make_model.FAMILIES[family]
    make_model.write(family, path, keys={**p.get("keys", {}), key: value})
    about, name = inspect(run_weft, path), f"{p['arch']}.{key}"
    assert about["key_uses"][name] == use and about["key_uses"][f"{p['arch']}.block_count"] == "read"
    shown = next(line for line in run_weft(["inspect", "-m", path]).out.splitlines() if name in line and "cannot run" not in line)
    assert shown.endswith(f"(not read: {use})") == (use != "read")
    if use == "not supported":
        assert f"key '{name}': {str(value).lower()} changes what this model computes and is not supported" in about["why_not"]
        done = run_weft(["run", "-m", path, "--ids", "1", "-n", "1"])
        assert done.returncode == 1 and name in done.err
    else:
        assert about["can_run"]


@pytest.mark.parametrize("name", ["llama-yarn", "phi3-short", "starcoder2", "qwen2", "mistral3"])
def test_a_window_of_all_layers(run_weft, make_model, tmp_path, name):
    """Of one layer with a window, the last answer is that to what the window shows, since only distances matter."""
    family, window = ("qwen3moe-q8_0" if name == "qwen2" else name), 11
    p = make_model.FAMILIES[family]
    changes = {"layers": 1, "quant": "F32"}
    if name == "qwen2":
        changes |= {"arch": "qwen2", "qkv_bias": True, "qk_norm": None, "experts": None}
    keys = {k: v for k, v in p.get("keys", {}).items() if k != "attention.temperature_scale" and not k.startswith("expert")}
    path, ids = tmp_path / "m.gguf", [(i * 37 + 5) % 300 for i in range(40)]

    def answer(ids, **more):
        make_model.write(family, path, **changes, keys={**keys, **more})
        done = run_weft(["run", "-m", path, "-c", "64", "--ids", ",".join(map(str, ids)), "-n", "1", "--temp", "0", "--json", "--top-logprobs", "20"])
        assert done.returncode == 0, done.err
        return dict(map(tuple, json.loads(done.stdout.splitlines()[0])["top"]))

    listed = {"attention.sliding_window_pattern": 0} if name == "qwen2" else {}
    slid, seen, whole = answer(ids, **{"attention.sliding_window": window, **listed}), answer(ids[-window:]), answer(ids)
    assert slid.keys() == seen.keys() and max(abs(slid[t] - seen[t]) for t in slid) < 5e-3
    assert any(t not in whole or abs(slid[t] - whole[t]) > 0.01 for t in slid)
    wide = answer(ids, **{"attention.sliding_window": 256, **listed})   # as long as the context
    assert wide == whole
    if listed:
        make_model.write(family, path, **changes, keys={**keys, "attention.sliding_window": window})
        assert "does not say which layers have it" in inspect(run_weft, path)["why_not"]


@pytest.mark.parametrize("name", ["gemma4", "gemma4-moe", "granite_swa", "step35", "mimo2"])
def test_a_window_as_long_as_the_context(run_weft, make_model, tmp_path, name):
    """Layers that have a window keep their heads and their rope: a short text is answered as with the window of the record, which is that of llama.cpp."""
    path, p = tmp_path / "m.gguf", make_model.FAMILIES[name]
    answers = []
    for window in (p["keys"]["attention.sliding_window"], p["n_ctx"], 2 * p["n_ctx"]):
        make_model.write(name, path, keys={**p["keys"], "attention.sliding_window": window})
        done = run_weft(["run", "-m", path, "-c", "64", "--ids", "5,6,7,8", "-n", "3", "--temp", "0", "--ignore-eos", "--json", "--top-logprobs", "5"])
        assert done.returncode == 0, done.err
        answers.append([[t["id"], dict(map(tuple, t["top"]))] for t in map(json.loads, done.stdout.splitlines()) if "top" in t])
    assert len(answers[0]) == 3
    for other in answers[1:]:
        assert [a[0] for a in other] == [a[0] for a in answers[0]]
        assert all(a[1] == pytest.approx(b[1], abs=1e-4) for a, b in zip(other, answers[0], strict=True))


def test_chunks(run_weft, make_model, tmp_path):
    """Of one layer that sees its chunk, the last answer is that to what has come since the chunk began: no record is long enough for that."""
    path, chunk, p = tmp_path / "m.gguf", 16, make_model.FAMILIES["llama4"]
    make_model.write("llama4", path, layers=1, keys={**p["keys"], "attention.sliding_window": chunk})

    def answer(ids):
        done = run_weft(["run", "-m", path, "-c", "64", "--ids", ",".join(map(str, ids)), "-n", "1", "--temp", "0", "--json", "--top-logprobs", "1000"])
        assert done.returncode == 0, done.err
        return dict(map(tuple, json.loads(done.stdout.splitlines()[0])["top"]))

    ids = [(i * 37 + 5) % 300 for i in range(40)]
    last, since, more = answer(ids), answer(ids[2 * chunk:]), answer(ids[-chunk:])
    assert max(abs(last[t] - since[t]) for t in last) < 5e-3 < max(abs(last[t] - more[t]) for t in last)


@pytest.mark.parametrize("file_type,quant,name", [(None, "Q8_0", "Q8_0"), (7, "Q8_0", "Q8_0"), (15, "Q8_0", "Q4_K_M (mostly Q8_0)"), (15, "Q4_K", "Q4_K_M"),
                                                  (1024, "F32", "F32"), (4, "F32", "F32"), (0, "F32", "F32"), (27, "F32", "IQ3_M (mostly F32)")])
def test_what_a_file_is_called(run_weft, make_model, tmp_path, file_type, quant, name):
    """The mixture's name, and the type that most bytes have where it is another one."""
    def quantise(of, flat):
        t = gguf.GGMLQuantizationType[quant]
        return (t, flat) if quant == "F32" else (t, np.zeros((flat.shape[0], flat.shape[1] // gguf.GGML_QUANT_SIZES[t][0] * gguf.GGML_QUANT_SIZES[t][1]), np.uint8))

    path = tmp_path / "m.gguf"
    make_model.write("granite", path, ffn=512, quant=quantise, general={} if file_type is None else {"file_type": file_type})
    assert inspect(run_weft, path)["summary"] == f"granite 2.3M {name}"
