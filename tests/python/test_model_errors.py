"""Files that do not fit: what `weft inspect` and `weft run` say of them, and that no value of a key breaks anything."""
import json
import random
import lzma
import re
import struct
import subprocess

import gguf
import pytest
from conftest import REPO

THREADS = 1


def inspect(run_weft, path):
    """Why this file cannot run; None where it can."""
    done = run_weft(["inspect", "-m", path, "--json"])
    assert done.returncode == 0, done.err
    about = json.loads(done.stdout)
    assert about["can_run"] == (about["why_not"] is None)
    return about["why_not"]


def test_a_file_that_runs(run_weft, tinypy):
    assert inspect(run_weft, tinypy) is None
    assert "\ncan run\n" in run_weft(["inspect", "-m", tinypy]).out


@pytest.mark.parametrize("family", ["llama4", "gptj", "nemotron_h_moe", "step35", "rwkv6"])
def test_changed_files(built_tool, make_model, tmp_path, family):
    """Some thousand random changes of what stands before the weights: refused, or a model, a graph and a tokenizer; never a signal, nor ten seconds."""
    path = tmp_path / "model.gguf"
    make_model.write(family, path)
    done = subprocess.run([built_tool("mutate_tool", "WEFT_MUTATE_TOOL"), path, "0", "4000"], capture_output=True, text=True, check=False)
    changes, models, tokenizers, _, ended = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
    assert done.returncode == ended == 0, done.stdout
    assert changes == 4000 and min(models, tokenizers) > 100          # most go into texts of the vocabulary, which is then another one


@pytest.mark.parametrize("family, one_of", [("phi3-short", 25), ("gemma4-moe", 25), ("minicpm3", 25), ("granitehybrid", 25), ("kimi-linear", 25), ("qwen4exp", 10)])
def test_changed_keys_and_tensors(built_tool, make_model, tmp_path, family, one_of):
    """Changes that know what keys and tensors are, so that many still fit together: refused, or graphs for one and two sequences, and one of so many runs."""
    path = tmp_path / "model.gguf"
    make_model.write(family, path)
    done = subprocess.run([built_tool("mutate_tool", "WEFT_MUTATE_TOOL"), path, "structure", "0", "1000", str(one_of)], capture_output=True, text=True, check=False)
    changes, models, tokenizers, runs, ended = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
    assert done.returncode == ended == 0, done.stdout + done.stderr
    assert changes == 1000 and min(models, tokenizers) > 100 and runs > 2


def test_indexers_whose_heads_are_smaller_than_what_turns(run_weft, make_model, tmp_path):
    """Each family with an indexer, by a smaller head and by a larger part that turns. The heads of glm5-next do not turn."""
    key, tried = "attention.indexer.key_length", 0
    for family, parts in make_model.FAMILIES.items():
        if key not in parts.get("keys", {}) or family == "glm5-next":
            continue
        make_model.write(family, tmp_path / "m.gguf", keys={**parts["keys"], key: 8})
        done, tried = run_weft(["inspect", "-m", tmp_path / "m.gguf"]), tried + 1
        assert f"{key}': 8 elements; rope.dimension_count says that" in done.out, (family, done.out, done.err)
    make_model.write("qwen4exp", tmp_path / "m.gguf", keys={**make_model.FAMILIES["qwen4exp"]["keys"], "rope.dimension_count": 64})
    assert f"{key}': 48 elements; rope.dimension_count says that 64 of them turn" in run_weft(["inspect", "-m", tmp_path / "m.gguf"]).out
    assert tried >= 12


@pytest.mark.parametrize("whole", [False, True])
def test_an_indexer_of_the_block_after_the_layers(run_weft, make_model, tmp_path, whole):
    """The list of layers with indexers may leave the block out (converted folders do); its tensors say that it has one, which then needs all of them."""
    keys, path = dict(make_model.FAMILIES["glm-dsa-sparse"]["keys"]), tmp_path / "m.gguf"
    make_model.write("glm-dsa-sparse", path, mtp=True, own_keys={"glm-dsa.attention.indexer.types": keys.pop("attention.indexer.types")}, keys=keys)
    reader = gguf.GGUFReader(path)
    assert reader.fields["glm-dsa.attention.indexer.types"].contents() == [True, False, True] and reader.fields["glm-dsa.block_count"].contents() == 4
    if not whole:
        data, rest = without(path.read_bytes(), reader, ["blk.3.indexer.attn_k.weight"])
        path.write_bytes(data + bytes(rest))
    why = inspect(run_weft, path)
    assert why is None if whole else "tensor 'blk.3.indexer.attn_k.weight' is missing" in why, why


@pytest.mark.parametrize("encoder", ["qwen3vl", "gemma4", "qwen3omni", "resampler", "voxtral", "qwen2audio"])
def test_changed_encoders(built_tool, tmp_path, encoder):
    """The same of mmproj files: refused, or an encoder and its graphs."""
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(lzma.decompress((REPO / "tests" / "records" / "projectors" / f"{encoder}.gguf.xz").read_bytes()))
    for how in (["structure", "0", "1000", "0"], ["0", "1000"]):
        done = subprocess.run([built_tool("mutate_tool", "WEFT_MUTATE_TOOL"), path, *how], capture_output=True, text=True, check=False)
        changes, encoders, _, _, ended = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
        assert done.returncode == ended == 0, done.stdout + done.stderr
        assert changes == 1000 and encoders > 10


def test_an_architecture_that_is_not_known(run_weft, make_model, tmp_path):
    path = tmp_path / "m.gguf"
    make_model.write("granite", path, arch="graphite")
    why = inspect(run_weft, path)
    assert "general.architecture" in why and "'graphite' is not known" in why and "alike: granite, granitemoe, granite_swa, graniteswitch, granitehybrid)" in why and "llama" not in why
    done = run_weft(["run", "-m", path, "--ids", "1", "-n", "1"])
    assert done.returncode == 1 and "'graphite' is not known" in done.err
    assert "cannot run: " in run_weft(["inspect", "-m", path]).out


def test_a_context_that_memory_cannot_hold(run_weft, make_model, tmp_path):
    """what nobody asked for is halved until it fits, with a warning; what was asked for is an error"""
    few, many = tmp_path / "few.gguf", tmp_path / "many.gguf"
    make_model.write("granite", few)
    make_model.write("granite", many, keys={"context_length": 1 << 30})
    ids = ["run", "--ids", "1,2,3", "-n", "4", "--temp", "0", "--ignore-eos"]
    want = run_weft([*ids, "-m", few])
    assert want.returncode == 0 and "positions" not in want.err
    done = run_weft([*ids, "-m", many])
    assert done.returncode == 0 and done.stdout == want.stdout
    given = re.search(r"warning: .*many.gguf: a context of (\d+) positions, as there is no memory for the 1073741824 that the model was trained for", done.err)
    assert given and (1 << 30) % int(given[1]) == 0
    done = run_weft([*ids, "-m", many, "-c", str(1 << 30)])
    assert done.returncode == 1 and "for 1073741824 positions" in done.err and "-c" in done.err and not done.stdout


def test_docs_name_what_runs(repo):
    known = [name for path in [*(repo / "src" / "model").glob("arch*.c"), repo / "src" / "model" / "draft.c"] for name in re.findall(r'^  {\.name = "([^"]+)"', path.read_text(), re.M)]
    assert len(known) > 120
    table = (repo / "docs" / "models.md").read_text().split("\n## Architectures\n")[1].split("\n## ")[0]
    rows = [row.split("|")[2] for row in table.splitlines() if row.startswith("|")]
    assert sorted(name for row in rows for name in re.findall(r"`([^`]+)`", row)) == sorted(known)


# family, what is changed, what the error says
MISFITS = [
    ("granite", {"ffn": 96, "keys": {"feed_forward_length": 320}}, ["tensor 'blk.0.ffn_gate.weight' has shape {256, 96, 1, 1}, expected {256, 320} (granite.feed_forward_length = 320)"]),
    ("deepseek2-groups", {"keys": {"attention.kv_lora_rank": 161}},
     ["tensor 'blk.0.attn_kv_a_mqa.weight' has shape {256, 192, 1, 1}, expected {256, 193} (deepseek2.rope.dimension_count = 32, deepseek2.attention.kv_lora_rank = 161)"]),
    ("granite", {"kv": 3}, ["granite.attention.head_count_kv", "3 does not divide", "= 8"]),
    ("granite", {"keys": {"attention.layer_norm_rms_epsilon": 0.0}}, ["granite.attention.layer_norm_rms_epsilon", "0 is not in"]),
    ("granite", {"keys": {"rope.scaling.type": "spiral"}}, ["granite.rope.scaling.type", "'spiral' is not known", "yarn"]),
    ("granite", {"keys": {"attention.head_count": [8, 8]}}, ["granite.attention.head_count", "expected 3 elements, found 2"]),
    ("gemma2", {"norms": "pre"}, ["tensor 'blk.0.post_attention_norm.weight' is missing"]),
    ("gemma", {"norms": "both"}, ["tensor 'blk.0.post_attention_norm.weight' is not one that gemma is known to have"]),
    ("arcee", {"plain": False}, ["tensor 'blk.0.ffn_gate.weight' is not one that arcee is known to have"]),
    ("phi3-short", {"n_rot": 64}, ["tensor 'rope_factors_long.weight' has shape {32, 1, 1, 1}, expected {48, 1}"]),
    ("olmo2", {"qk_norm": "head"}, ["tensor 'blk.0.attn_q_norm.weight' has shape {64, 1, 1, 1}, expected {256, 1}"]),
    ("lfm2", {"keys": {"shortconv.l_cache": 4}}, ["tensor 'blk.0.shortconv.conv.weight' has shape {3, 256, 1, 1}, expected {4, 256}", "lfm2.shortconv.l_cache = 4"]),
    ("qwen35", {"keys": {"ssm.group_count": 4}}, ["qwen35.ssm.group_count", "4 does not divide ssm.time_step_rank = 6"]),
    ("nemotron_h", {"keys": {"ssm.inner_size": 500}}, ["nemotron_h.ssm.time_step_rank", "16 does not divide ssm.inner_size = 500"]),
    ("gemma3n", {"keys": {"altup.num_inputs": 3}}, ["tensor 'altup_proj.weight' has shape {96, 96, 3, 1}, expected {96, 96, 2} (gemma3n.altup.num_inputs = 3)"]),
    ("gemma3n", {"keys": {"embedding_length_per_layer_input": 32}}, ["tensor 'per_layer_token_embd.weight'", "expected {704, 301} (gemma3n.embedding_length_per_layer_input = 32)"]),
    ("granite", {"keys": {"attention.head_count_kv": 4}}, ["tensor 'blk.0.attn_k.weight'", "expected {256, 256} (granite.attention.head_count_kv = 4, granite.attention.key_length = 64)"]),
    ("nemotron_h", {"keys": {"ssm.state_size": 32}}, ["'blk.0.ssm_conv1d.weight'", "(nemotron_h.ssm.inner_size = 512, nemotron_h.ssm.state_size = 32, nemotron_h.ssm.group_count = 4)"]),
    # factors of the rope, of which layers with a window may turn more elements than there are
    ("phi3-long", {"keys": {"rope.dimension_count_swa": 96, "attention.sliding_window": 64}}, ["phi3.rope.dimension_count_swa", "96 elements rotate", "'rope_factors_long.weight' has 36 factors"]),
    ("llama-yarn", {"rope_freqs": True, "keys": {"attention.key_length_swa": 128, "rope.dimension_count_swa": 128, "attention.sliding_window": 64}},
     ["llama.rope.dimension_count_swa", "128 elements rotate", "'rope_freqs.weight' has 32 factors"]),
    ("dots3note", {"keys": {"rope.dimension_count_swa": 64}}, ["dots3note.rope.dimension_count_swa", "64, but latent attention rotates rope.dimension_count = 32 elements"]),
    ("gpt2", {"keys": {"context_length": 300}}, ["tensor 'position_embd.weight' has shape {256, 256, 1, 1}, expected {256, 300}"]),
]


@pytest.mark.parametrize("name,changes,expected", MISFITS)
def test_misfits(run_weft, make_model, tmp_path, name, changes, expected):
    path, changes = tmp_path / "m.gguf", dict(changes)
    changes["keys"] = {**make_model.FAMILIES[name].get("keys", {}), **changes.get("keys", {})}
    make_model.write(name, path, **changes)
    why = inspect(run_weft, path)
    assert why and all(part in why for part in [str(path), *expected]), why


@pytest.mark.parametrize("family", ["gemma3n", "gemma4-moe", "deepseek2-groups", "nemotron_h_moe", "qwen3moe-q8_0", "rwkv7", "phi3-short"])
def test_a_shape_error_names_the_key_that_is_wrong(run_weft, make_model, tmp_path, family):
    """Each whole number of a file is doubled: where a shape does not fit then, the key is among those that the error names."""
    path, named = tmp_path / "m.gguf", 0
    make_model.write(family, path)
    for name, field in gguf.GGUFReader(path).fields.items():
        if not name.startswith(f"{make_model.FAMILIES[family]['arch']}.") or field.types != [gguf.GGUFValueType.UINT32]:
            continue
        done = run_weft(["run", "-m", path, "--override-kv", f"{name}=int:{2 * int(field.parts[-1][0])}", "--ids", "1", "-n", "1", "-c", "32"])
        if "has shape" in done.err:
            behind = re.search(r"expected \{[^}]*\} \((.*)\)$", done.err.strip())
            assert behind and name in [part.split(" = ")[0] for part in behind[1].split(", ")], done.err
            named += 1
    assert named >= 3


# Families whose files have such a key, and the limits of its value. None of these limits is a 32-bit float, and the nearest one may be beyond.
LIMITS = [("granite", "attention.layer_norm_rms_epsilon", 1.1754943508222875e-38, 1), ("gpt2", "attention.layer_norm_epsilon", 1.1754943508222875e-38, 1),
          ("grok", "attention.output_scale", 1e-6, None), ("olmo", "attention.clamp_kqv", None, 1e30), ("granite", "rope.freq_base", 1.001, 1e12), ("gemma3", "rope.freq_base_swa", 1.001, 1e12),
          ("phi3-short", "rope.scaling.attn_factor", 1e-3, 1e3), ("llama-yarn", "rope.scaling.yarn_attn_factor", 1e-3, 1e3), ("llama-yarn", "rope.scaling.yarn_beta_fast", 1e-3, 1e6),
          ("llama-yarn", "rope.scaling.yarn_beta_slow", 1e-3, 1e6), ("llama-yarn", "rope.scaling.factor", 1e-3, 1e6), ("llama-linear", "rope.scaling.factor", 1e-3, 1e6)]


@pytest.mark.parametrize("family,key,least,most", LIMITS)
def test_limits(run_weft, make_model, tmp_path, family, key, least, most):
    """A limit itself is within, as a file's 32-bit float has it; what is clearly beyond is not."""
    path, p = tmp_path / "m.gguf", make_model.FAMILIES[family]
    for limit, beyond in ((least, 0.999), (most, 1.001)):
        if limit is None:
            continue
        make_model.write(family, path, keys={**p.get("keys", {}), key: float(limit)})
        assert inspect(run_weft, path) is None
        make_model.write(family, path, keys={**p.get("keys", {}), key: float(limit * beyond)})
        why = inspect(run_weft, path)
        assert why and f"key '{p['arch']}.{key}'" in why and "is not in" in why, why


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5])
def test_epsilons_of_published_models(run_weft, make_model, tmp_path, epsilon):
    path = tmp_path / "m.gguf"
    make_model.write("gpt2", path, keys={"attention.layer_norm_epsilon": epsilon})
    assert inspect(run_weft, path) is None
    assert run_weft(["run", "-m", path, "--ids", "1,2,3", "-n", "2", "--ignore-eos"]).returncode == 0


def test_more_positions_than_were_learned(run_weft, make_model, tmp_path):
    path = tmp_path / "m.gguf"
    make_model.write("gpt2", path)
    done = run_weft(["run", "-m", path, "--ids", "1", "-n", "1", "-c", "257"])
    assert done.returncode == 1 and "a context of 257 positions, but of this model there are 256 at most" in done.err


def test_layers_by_list_and_blocks_left_out(run_weft, make_model, tmp_path):
    """The same model with its recurrent layers listed, and with a block behind the last layer that predicts further tokens."""
    family, plain, more = make_model.FAMILIES["qwen35"], tmp_path / "plain.gguf", tmp_path / "more.gguf"
    keys = {**family["keys"], "attention.recurrent_layers": [True, True, False, True, False], "nextn_predict_layers": 1, "attention.head_count": [4] * 5}
    make_model.write("qwen35", plain)
    make_model.write("qwen35", more, layers=5, mix="ddada", keys=keys)
    answers = [run_weft(["run", "-m", path, "-c", "64", "--ids", "5,6,7,8,9,10", "-n", "6", "--temp", "0", "--json", "--top-logprobs", "3"]) for path in (plain, more)]
    assert answers[0].returncode == 0 and answers[0].out == answers[1].out


# What a model may lack, by the end of its tensors' names: the families' own names, or all.
ABSENT = {
    "output.weight": {"llama", "granite", "phi3", "qwen3moe", "gpt2", "qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek2", "mamba2", "nemotron_h", "mistral3", "smollm3", "arcee",
                      "seed_oss", "exaone4", "glm4", "chatglm", "falcon", "starcoder", "ernie4_5-moe", "hunyuan-dense", "hunyuan-moe", "deepseek", "afmoe",
                      "bloom", "deci", "falcon-h1", "gemma3n", "gemma4", "granite_swa", "jamba", "llama4", "mamba", "mistral4", "nemotron_h_moe", "olmo", "qwen3vlmoe", "smallthinker",
                      "bailingmoe3", "deepseek32", "glm-dsa", "grok", "hunyuan_vl", "jais2", "maincoder", "minicpm3", "paddleocr", "pangu-embedded", "refact",
                      "plamo3", "nanbeige", "hrm_text", "spark2_5", "arctic", "hy_v3", "laguna", "deepseek2-ocr",
                      "cogvlm", "chameleon", "grovemoe", "plamo2", "minimax-01", "dots3note", "qwen4exp"},
    "time_mix_receptance.bias": {"rwkv6qwen2"},
    "time_mix_key.bias": {"rwkv6qwen2"},
    "time_mix_value.bias": {"rwkv6qwen2"},
    "attn_q_norm.bias": {"chameleon"},
    "attn_k_norm.bias": {"chameleon"},
    "exp_probs_b_vl.bias": {"deepseek4"},
    "exp_probs_b.bias": {"deepseek32", "glm-dsa", "mimo2", "step35", "deepseek2", "dots1", "ernie4_5-moe", "bailingmoe2", "exaone-moe"},
    "ssm_conv1d.bias": {"falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"},
    "ssm_norm.weight": {"falcon-h1"},
    "attn_sinks.weight": {"mimo2"},
    "rope_freqs.weight": {"step35"},
    "ffn_routed_norm.weight": {"kimi-k3"},
    "layer_output_scale.weight": {"gemma4"},
}


def without(data, reader, names):
    """The file less these tensors: a header, and how many bytes follow, which nobody reads here."""
    gone = [(t.field.offset, t.field.offset + sum(p.nbytes for p in t.field.parts)) for t in reader.tensors if t.name in names]
    header, at = [data[:8], struct.pack("<Q", len(reader.tensors) - len(gone))], 16
    for begin, end in sorted(gone):
        header.append(data[at:begin])
        at = end
    last = reader.tensors[-1].field
    header = b"".join([*header, data[at:last.offset + sum(p.nbytes for p in last.parts)]])
    return header + bytes(-len(header) % 32), len(data) - reader.data_offset


def test_every_tensor_taken_out(run_weft, inspect_file, make_model, tmp_path):
    """Of each kind all, and one alone where several layers have it: the file is refused unless this family may lack the tensor. The command says the
    same of each family's last file."""
    path, accepted = tmp_path / "m.gguf", {}
    for family, p in make_model.FAMILIES.items():
        make_model.write(family, path)
        data, reader, kinds = path.read_bytes(), gguf.GGUFReader(path), {}
        for t in reader.tensors:
            kinds.setdefault(re.sub(r"^blk\.\d+\.", "", t.name), []).append(t.name)
        for kind, names in kinds.items():
            for taken in {tuple(names), (names[-1],)}:
                header, size = without(data, reader, taken)
                with open(path, "wb") as f:
                    f.write(header)
                    f.truncate(len(header) + size)
                why = inspect_file(path)["why_not"]
                if why is None:
                    assert len(taken) == len(names), f"{family} without {taken[0]} alone"
                    accepted.setdefault(kind, set()).add(p["arch"])
                else:
                    assert "tensor '" in why and ("is missing" in why or "is not one that" in why or "has shape" in why) or "key '" in why, why
        assert why == inspect(run_weft, path)
    assert accepted == ABSENT


def test_the_bias_of_one_row(run_weft, make_model, tmp_path):
    """A matrix of one row has a bias of one element."""
    path = tmp_path / "m.gguf"
    make_model.write("phi2", path, ffn=1, keys={**make_model.FAMILIES["phi2"]["keys"], "feed_forward_length": 1})
    assert inspect(run_weft, path) is None
    assert run_weft(["run", "-m", path, "-c", "64", "--ids", "1,2,3", "-n", "1"]).returncode == 0


EXTREMES = [0, 1, 3, 2**16, 2**31 - 1, 2**32 - 1, 0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"), True, "", "x", [1, 2, 3], [0] * 7]


@pytest.mark.parametrize("name", ["granite", "phi3-long", "gemma2", "gpt2", "lfm2", "nemotron_h", "qwen3next"])
def test_no_value_of_a_key_breaks_anything(run_weft, make_model, tmp_path, name):
    """Each key with a value that is hardly a right one: the file runs, or an error names a key or a tensor."""
    family, path, rng = make_model.FAMILIES[name], tmp_path / "m.gguf", random.Random(name)
    known = ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
             "attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base", "rope.scaling.factor",
             "attention.sliding_window", "attention.sliding_window_pattern", *family.get("keys", {})]
    for key in known:
        value = rng.choice(EXTREMES)
        make_model.write(name, path, keys={**family.get("keys", {}), key: value})
        why = inspect(run_weft, path)
        assert why is None or "key '" in why or "tensor '" in why, why
        if why is None:
            done = run_weft(["run", "-m", path, "-c", "64", "--ids", "1,2,3", "-n", "1"])
            assert done.returncode == 0, f"{key} = {value}: {done.err}"
