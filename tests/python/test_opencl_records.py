"""The records that the CPU's answers are held to, on OpenCL (DEV=CL), through whatever driver is installed."""
import json

import pytest

from test_golden import GAP, MEAN_KL, compare, distributions
from test_opencl_models import ONCE, driver  # noqa: F401 (used by every test of this file as well)

# A compiler such as PoCL's takes about a second for a kernel: one record of each kind of layer and of format.
RECORDS = ["tiny-llama", "tiny-qwen3moe", "tiny-deepseek2-mla", "tinypy-q4_k_m", "tinypy-f16"]


@pytest.mark.parametrize("name", RECORDS)
def test_record(run_weft, shared_dir, name):
    path = shared_dir / "models" / f"{name}.gguf"
    record = json.loads(path.with_suffix(".json").read_text())
    kl, wrong = [], []
    for case in record["cases"][:1]:
        ours = distributions(run_weft, path, case["prompt_ids"], case["tokens"], record["vocab_size"], env=ONCE, timeout=900)
        case_kl, case_wrong = compare([step["top"] for step in case["steps"]], ours)
        kl += case_kl
        wrong += case_wrong
    mean = sum(kl) / len(kl)
    print(f"{name}: mean KL {mean:.6f}, largest {max(kl):.6f}, {len(kl)} steps")
    assert mean <= MEAN_KL
    assert not wrong, f"another likeliest token (by more than {GAP}) at {len(wrong)} of {len(kl)} steps: {'; '.join(wrong[:5])}"
