"""Every record on a device of OpenCL that WEFT_TEST_OPENCL names, as DEV=CL:NAME does: a number, or a part of its name.

The suite has PoCL and oclgrind. Other drivers are large or belong to a machine, so this file is for them: WEFT_TEST_OPENCL=intel,llvmpipe
runs all models in both ways to share out work, and docs/porting.md has what came of it. One plan is compiled, that of one token: the
prompt's tokens are forced, all but the first.
"""
import itertools
import json
import os

import pytest

from test_golden import GAP, MEAN_KL, RECORDS, compare, distributions

DEVICES = [name for name in os.environ.get("WEFT_TEST_OPENCL", "").split(",") if name]
PASSED = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "LD_LIBRARY_PATH", "RUSTICL_ENABLE")


pytestmark = pytest.mark.skipif(not DEVICES, reason="WEFT_TEST_OPENCL names no device: for OpenCL drivers other than PoCL and oclgrind (docs/porting.md)")


@pytest.mark.parametrize(("device", "way", "name"), list(itertools.product(DEVICES, ["tiles", "groups"], RECORDS)) or [("", "", "")])
def test_record(run_weft, shared_dir, device, way, name):
    env = {"DEV": f"CL:{device}", "CL_WORK": way, "WEFT_CACHE": "off", **{key: os.environ[key] for key in PASSED if key in os.environ}}
    path = shared_dir / "models" / f"{name}.gguf"
    record = json.loads(path.with_suffix(".json").read_text())
    case = min(record["cases"], key=lambda case: len(case["prompt_ids"]))
    ids = case["prompt_ids"]
    ours = distributions(run_weft, path, ids[:1], ids[1:] + case["tokens"], record["vocab_size"], env=env, timeout=3600)
    kl, wrong = compare([step["top"] for step in case["steps"]], ours[len(ids) - 1:])
    mean = sum(kl) / len(kl)
    print(f"{device}, {way}, {name}: mean KL {mean:.2e}, largest {max(kl):.2e}, {len(kl)} steps")
    assert mean <= MEAN_KL
    assert not wrong, f"another likeliest token (by more than {GAP}) at {len(wrong)} of {len(kl)} steps: {'; '.join(wrong[:5])}"
