"""Chat templates: weft template against Python's jinja2, on every template in the shared folder and on a corpus of small ones."""
import json
import re
import struct

import pytest

from jinja_corpus import CASES, DATA, FAILS
from test_cli import one_error

reference = pytest.importorskip("jinja_reference")


def args_of(file, messages, tools=None, generation=True, bos="<s>", eos="</s>", variables=None):
    args = ["template", file, "--messages", json.dumps(messages), "--bos", bos, "--eos", eos, "--now", reference.NOW]
    if tools is not None:
        args += ["--tools", json.dumps(tools)]
    if variables:
        args += ["--chat-template-kwargs", json.dumps(variables)]
    return args if generation else args + ["--no-generation-prompt"]


def compare(run_weft, file, template, *conversation, **more):
    """None where weft prints what jinja2 prints, or fails where it fails; else what differs."""
    want = reference.reference(template, *conversation, **more)
    done = run_weft(args_of(file, *conversation, **more))
    if isinstance(want, Exception):
        if done.returncode != 1 or not re.search(r"line \d+: ", done.err) or done.out:
            return f"jinja2 fails ({want!r}), weft gives {done.returncode}: {done.out!r} {done.err}"
        if isinstance(want, reference.Raised) and " ".join(str(want).split()) not in " ".join(done.err.split()):
            return f"jinja2 raises {str(want)!r}, weft says {done.err}"
        return None
    if done.returncode != 0 or done.err:
        return f"weft fails: {done.err}jinja2 gives {want!r}"
    return None if done.stdout == want.encode() else f"weft   {done.out!r}\njinja2 {want!r}"


# ---- templates of models -----------------------------------------------------------------------------------------------

def test_templates_of_models(run_weft, shared_dir):
    files = sorted((shared_dir / "templates").glob("*.jinja"))
    if not files:
        pytest.skip("no shared templates")
    wrong, texts = [], 0
    for file in files:
        template = reference.ENV.from_string(file.read_text(encoding="utf-8"))
        good = 0
        for name, (messages, tools, generation, variables) in reference.conversations().items():
            difference = compare(run_weft, file, template, messages, tools=tools, generation=generation,
                                 variables={k: v for k, v in variables.items() if k != "documents"})
            if difference:
                wrong.append(f"{file.name}, {name}: {difference}")
            good += not isinstance(reference.reference(template, messages, tools, generation, variables=variables), Exception)
        assert good >= 6, f"{file.name}: only {good} conversations give a text at all"
        texts += good
    assert not wrong, "\n\n".join(wrong[:10]) + f"\n\n{len(wrong)} differ"
    assert texts > 20 * len(files) / 2


# ---- the language ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("template", CASES)
def test_language(run_weft, tmp_path, template):
    file = tmp_path / "t.jinja"
    file.write_bytes(template.encode())
    messages = [{"role": "user", "content": "Hi"}]
    want = reference.reference(template, messages, variables=DATA)
    assert not isinstance(want, Exception), want
    difference = compare(run_weft, file, template, messages, variables=DATA)
    assert difference is None, difference


@pytest.mark.parametrize("template", FAILS)
def test_failures(run_weft, tmp_path, template):
    file = tmp_path / "t.jinja"
    file.write_bytes(template.encode())
    want = reference.reference(template, [], variables=DATA)
    assert isinstance(want, Exception), want
    difference = compare(run_weft, file, template, [], variables=DATA)
    assert difference is None, difference
