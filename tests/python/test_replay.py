"""Kernel replay: the compiler makes the kernels that were accepted last, every time the same, and what it makes otherwise is shown."""
import sys

import pytest


@pytest.fixture(scope="module")
def replay(repo):
    sys.path.insert(0, str(repo / "tests" / "replay"))
    import replay
    return replay


@pytest.fixture(scope="module")
def now(replay, built_tool):
    return replay.kernels_now(built_tool("replay_tool", "WEFT_REPLAY_TOOL"))


def test_kernels_are_those_that_were_accepted(replay, now):
    lines = replay.difference(now, 120)
    if lines:
        pytest.fail("\n".join(lines) + "\n\nIf this change of the compiler was meant to do that: scripts/replay.sh --update, and commit tests/replay with it.", pytrace=False)


def test_codes_that_are_kept_stay_small(now):
    """Several tokens read unpacked codes from memory of the tile.  Instructions for small codes multiply them there, too."""
    of = {machine: [text for key, (_, text) in now.items() if key[0].startswith("llama-1b") and key[1:3] == (machine, "prompt")] for machine in ("avx2", "dotprod")}
    products = [text for text in of["avx2"] if "@llvm.x86.avx2.pmadd" in text]
    assert products and all("@llvm.x86.avx2.pmadd.ub.sw" in text for text in products)
    products = [text for text in of["dotprod"] if "@llvm.aarch64.neon.sdot" in text]
    assert products and not any("splat (i8 64)" in text for text in products)


def test_text_depends_on_nothing_else(replay, now, built_tool):
    assert replay.kernels_now(built_tool("replay_tool", "WEFT_REPLAY_TOOL")) == now
    assert all(text.startswith("define void @" + key[3]) or "define void @" + key[3] + "(" in text for key, (_, text) in now.items())


def test_what_is_stored_fits_together(replay):
    before, texts = replay.kernels_before()
    names = {line.split(" x")[0]: line for line in before}
    assert len(names) == len(before) and len(texts) > 50
    for key, text in texts.items():
        line = replay.summary_line(key, 0, text)
        assert names[line.split(" x")[0]].split(" ", 5)[-1] == line.split(" ", 5)[-1]


def test_a_change_is_shown(replay, now):
    key = next(k for k in now if k[2] == "token" and "fmul" in now[k][1])
    other = dict(now)
    other[key] = (now[key][0], now[key][1].replace("fmul", "fadd", 1))
    gone = next(k for k in now if k[2] == "prompt")
    del other[gone]
    replay_lines = replay.difference(other, 10000)
    assert any(line.startswith("-") and "fmul" in line for line in replay_lines) and any(line.startswith("+") and "fadd" in line for line in replay_lines)
    assert "- " + replay.summary_line(gone, *now[gone]) in replay_lines


def test_a_change_of_one_family_is_shown(replay, make_model, built_tool, tmp_path):
    """replay.sh --against: a row says how many kernels run and how many are other ones; equal builds make equal kernels."""
    import families
    tool, found = built_tool("replay_tool", "WEFT_REPLAY_TOOL"), []
    for name in ("olmo", "olmo2"):
        make_model.write(name, tmp_path / name)
        found.append(families.kernels(tool, "avx2", tmp_path / name))
        assert found[-1] == families.kernels(tool, "avx2", tmp_path / name) and {stage for stage, _ in found[-1]} == {"token", "prompt"}
    assert found[0] != found[1] and families.kernels(tool, "avx2", tmp_path / "none") not in ("", {})
    steps = [[sum(n for (s, _), n in of.items() if s == stage) for of in found] for stage in ("token", "prompt")]
    name, kernels, changed = families.row("olmo", *found).strip("| ").split(" | ")
    assert (name, kernels) == ("olmo", "token {} -> {}, prompt {} -> {}".format(*steps[0], *steps[1])) and 0 < int(changed) <= sum(found[1].values())


def test_encoders_have_kernels_too(replay, built_tool, tmp_path):
    import families
    for name, stages in ("qwen25omni", {"vision", "audio"}), ("idefics3", {"vision"}):
        families.write(name, None, tmp_path / name)
        assert set(families.stages(families.kernels(built_tool("replay_tool", "WEFT_REPLAY_TOOL"), "avx2", tmp_path / name))) == stages


@pytest.mark.parametrize("name, quant", [("olmo2", ""), ("granitehybrid", "Q8_0"), ("glm4v", None)])
def test_wide_models(replay, built_tool, tmp_path, name, quant):
    """replay.sh --against --wide: the same kinds of layers, 10 or 40 times as wide; costs say so."""
    import families
    tool, costs = built_tool("replay_tool", "WEFT_REPLAY_TOOL"), []
    for is_wide in (False, True):
        families.write(name, quant, tmp_path / name, is_wide)
        costs.append(families.costs(tool, "avx2", tmp_path / name))
    assert costs[0].keys() == costs[1].keys() != set()
    for stage, (kernels, levels, operations, moved) in costs[1].items():
        assert 0 < levels <= kernels and operations > 20 * costs[0][stage][2] and moved > 20 * costs[0][stage][3], stage
    assert families.cost_columns(costs[1], costs[1]) == "| 1.000 | 1.000 | +0 |"
