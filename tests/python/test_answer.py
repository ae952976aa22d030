"""Reasoning and calls of tools, taken out of what models write: for each shared template, what it renders of a conversation in which
the model thought and called a tool must come out again, whatever the pieces are in which it comes."""
import json
import os
import re
import subprocess

import pytest

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}}, "required": ["city"]}}}]
ARGUMENTS = {"city": "Paris, \"1\" <b>", "days": 3, "tags": ["a", {"b": 1}]}
USER = {"role": "user", "content": "Weather in Paris?"}

# Templates that show no calls of tools, or none of their own; that render them in a way that does not end; or that fail alone.
NO_CALLS = {"google-gemma-2-2b-it", "ibm-granite-granite-3.3-2B-Instruct", "LFM2-8B-A1B", "llama-cpp-deepseek-r1"}
ONE_CALL = {"meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct", "openai-gpt-oss-120b", "GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B"}
THINKS = {"ByteDance-Seed-OSS", "Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "GLM-4.6", "Kimi-K2-Thinking", "LFM2.5-8B-A1B",
          "MiniMax-M3", "Qwen3.5-4B", "Spark2.5", "StepFun3.5-Flash", "google-gemma-4-31B-it-interleaved", "inclusionai-ling-3.0-flash",
          "muse-glimmer", "openai-gpt-oss-120b", "poolside-Laguna-S-2.1", "poolside-Laguna-XS-2.1", "tencent-Hy3", "Apriel-1.6-15b-Thinker-fixed"}


@pytest.fixture(scope="session")
def answers(built_tool):
    tool = built_tool("answer_tool", "WEFT_ANSWER_TOOL")

    def parse(cases):
        done = subprocess.run([tool], input=json.dumps(cases).encode(), capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)
    return parse


def one(answers, text, template=None, prompt="", tools=TOOLS, piece=0):
    case = {"text": text, "prompt": prompt, "piece": piece}
    if template is not None:
        case["template"] = template
    if tools is not None:
        case["tools"] = json.dumps(tools)
    return answers([case])[0]


def render(run_weft, path, messages, *more):
    done = run_weft(["template", path, "--messages", json.dumps(messages), "--tools", json.dumps(TOOLS), "--bos", "<BOS>", "--eos", "<EOS>",
                     "--now", "2026-01-01", *more])
    return done.out if done.returncode == 0 else None


def conversation(run_weft, path, name):
    """The prompt, and the rest of the conversation with an answer that calls the tool."""
    prompt = render(run_weft, path, [USER])
    for arguments in (ARGUMENTS, json.dumps(ARGUMENTS)):
        for content in ("", None):
            calls = [{"id": f"call1234{i}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}} for i in range(1 + (name not in ONE_CALL))]
            answer = {"role": "assistant", "content": content, "tool_calls": calls, "reasoning_content": "Let me think.", "thinking": "Let me think."}
            whole = render(run_weft, path, [USER, answer], "--no-generation-prompt")
            if whole is not None:
                return prompt, whole
    return prompt, None


def split(prompt, whole):
    """Where the answer begins: where the prompt ends; where a template writes the past in another way than it opens an answer, after what
    they share, but not in the middle of a marker."""
    n = len(os.path.commonprefix([prompt, whole]))
    if n < len(prompt):
        last = whole.rfind("<", 0, n)
        if last >= 0 and ">" not in whole[last:n]:
            n = last
    text = whole[n:]
    while True:   # what a model ends its turn with is a token that ends the generation
        shorter = re.sub(r"(<EOS>|<\|(eot_id|eom_id|im_end|end|end_of_text|role_end|END_OF_TURN_TOKEN|START_OF_TURN_TOKEN|CHATBOT_TOKEN)\|>|<｜[^｜]*｜>|<turn\|>|"
                         r"<seed:eos>|<end_of_sentence>|<SPECIAL_12>|\[e~\[|</assistant>|<｜hy_eos:opensource｜>)\s*$", "", text)
        if shorter == text:
            return (prompt if prompt[n:].startswith("Here are my reasoning steps") else whole[:n]), text
        text = shorter


def every_template(run_weft, shared_dir):
    """(name, a case of what the model says), for each template that shows calls."""
    files = sorted((shared_dir / "templates").glob("*.jinja"))
    if not files:
        pytest.skip(f"no templates in {shared_dir}")
    for path in files:
        if path.stem not in NO_CALLS:
            prompt, whole = conversation(run_weft, path, path.stem)
            assert prompt is not None and whole is not None, path
            begin, text = split(prompt, whole)
            yield path.stem, {"template": path.read_text(), "prompt": begin, "tools": json.dumps(TOOLS), "text": text}


def plain(parts):
    """Without what differs from run to run, and from cut to cut: ids, and how many parts a call came in."""
    return [part[:3] + part[4:5] for part in parts]


def test_every_template(run_weft, answers, shared_dir):
    """What a template renders of a call comes out, in whatever pieces; and arguments come as they are written."""
    seen = set()
    for name, case in every_template(run_weft, shared_dir):
        results = answers([{**case, "piece": piece} for piece in (0, 1, 2, 3, 7, 50)])
        assert all(plain(r) == plain(results[0]) for r in results), name
        calls = [part for part in results[0] if part[0] == "call"]
        assert [(c[1], json.loads(c[2])) for c in calls] == [("get_weather", ARGUMENTS)] * (1 + (name not in ONE_CALL)), (name, case["text"], results[0])
        assert all(c[4] == "done" for c in calls) and len({c[3] for c in calls}) == len(calls), (name, calls)
        assert all(part[5] > len(ARGUMENTS["city"]) for part in results[1] if part[0] == "call"), (name, results[1])   # a part for each letter
        reasoning = "".join(part[1] for part in results[0] if part[0] == "reasoning")
        assert reasoning == ("Let me think." if name in THINKS and "Let me think." in case["text"] else ""), (name, case["text"], results[0])
        content = "".join(part[1] for part in results[0] if part[0] == "content")
        assert "get_weather" not in content and "Paris" not in content and "think." not in content, (name, results[0])
        seen.add(name)
    assert len(seen) > 35


def test_every_cut(run_weft, answers, shared_dir):
    """Where max_tokens ends the answer, wherever that is, what there is of a call is a call with the beginning of its arguments, and nothing of it is
    content."""
    for name, case in every_template(run_weft, shared_dir):
        case["text"] = case["text"].partition("<|END_OF_TURN_TOKEN|>")[0]
        whole, cuts = answers([case])[0], answers([{**case, "cuts": True}])[0]
        calls, had = [part for part in whole if part[0] == "call"], 0
        said = "".join(part[1] for part in whole if part[0] == "content")
        for n, parts in enumerate(cuts, 1):
            where = (name, case["text"][:n], parts)
            now = [part for part in parts if part[0] == "call"]
            assert had <= len(now) <= len(calls), where
            had = len(now)
            for cut, full in zip(now, calls):
                assert cut[1] == full[1] and full[2].startswith(cut[2]) and (cut[2] == full[2] or cut[4] == "open"), where
            content = "".join(part[1] for part in parts if part[0] == "content")
            assert len(content.strip()) <= 1 or said.startswith(content), where          # a lone '<' may be text
        assert had == len(calls), name


# What pydantic and zod make of fields, what models that write XML put there (Qwen3-Coder's and GLM's templates write Python's True and None), and
# what it means.
SHAPES = {"$ref": {"$ref": "#/$defs/Unit"}, "ref to a ref": {"$ref": "#/$defs/Again"}, "allOf": {"allOf": [{"$ref": "#/$defs/Unit"}], "default": "1"}}
VALUES = [
    (SHAPES["$ref"], "1", "1"), (SHAPES["ref to a ref"], "1", "1"), (SHAPES["allOf"], "1", "1"),
    ({"enum": ["1", "2"]}, "2", "2"), ({"const": "7"}, "7", "7"), ({"const": 7}, "7", 7), ({"enum": [1, 2]}, "2", 2),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12", "12"), ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "None", None),
    ({"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]}, "12", "12"), ({"type": ["string", "null"]}, "null", None), ({"type": ["string", "null"]}, "nullify", "nullify"),
    ({"type": "string", "nullable": True}, "None", None), ({"oneOf": [{"const": "1"}, {"const": "2"}]}, "1", "1"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "12", 12), ({"type": "boolean"}, "True", True), ({"type": "boolean"}, "false", False),
    ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "None", None), ({"type": "string"}, "True", "True"), ({"type": "string"}, "{\"a\": 1}", "{\"a\": 1}"),
    ({"$ref": "#/$defs/Point"}, "{\"x\": 1, \"y\": \"2\"}", {"x": 1, "y": "2"}), ({"$ref": "#/$defs/Point"}, "{'x': 1, 'y': None}", {"x": 1, "y": None}),
    ({"type": "array", "items": {"type": "string"}}, "['a', \"b\"]", ["a", "b"]), ({"properties": {"a": {}}}, "{\"a\": [true]}", {"a": [True]}),
    ({"type": "number"}, "123456789012345678901234567890", 123456789012345678901234567890), ({"type": "number"}, "-1.5e3", -1500.0), ({}, "True", True), ({}, "x", "x"),
    ({"type": ["string", "integer"]}, "5", 5), ({"type": ["string", "integer"]}, "5.5", "5.5"), ({"type": "integer"}, "five", "five"),
]
DEFINITIONS = {"Unit": {"type": "string", "enum": ["1", "12"]}, "Again": {"$ref": "#/$defs/Unit"}, "Point": {"type": "object", "properties": {"x": {"type": "integer"}}}}
WRITTEN = {"Qwen3-Coder": "<tool_call>\n<function=f>\n<parameter=v>\n{}\n</parameter>\n</function>\n</tool_call>",
           "GLM-4.6": "<tool_call>f\n<arg_key>v</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
           "MiniMax-M3": "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<v>{}]<]minimax[>[</v>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
           "ByteDance-Seed-OSS": "<seed:tool_call>\n<function=f>\n<parameter=v>{}</parameter>\n</function>\n</seed:tool_call>"}


@pytest.mark.parametrize("name", WRITTEN)
def test_types_by_schemas(answers, shared_dir, name):
    template = shared_dir / "templates" / f"{name}.jinja"
    if not template.exists():
        pytest.skip(f"no {template}")
    cases = []
    for schema, text, _ in VALUES:
        parameters = {"type": "object", "properties": {"v": schema}, "$defs": DEFINITIONS}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        cases.append({"template": template.read_text(), "prompt": "", "tools": json.dumps(tools), "text": WRITTEN[name].replace("{}", text)})
    whole, pieces = answers(cases), answers([{**case, "piece": 1} for case in cases])
    for (schema, text, value), parts, others in zip(VALUES, whole, pieces):
        assert [(p[0], p[4]) for p in parts] == [("call", "done")] and plain(others) == plain(parts), (schema, text, parts)
        got = json.loads(parts[0][2])["v"]
        assert got == value and type(got) is type(value), (schema, text, parts)


def test_ids(answers):
    """Nine letters and digits that nobody has had, unless the model has an id of its own that is new in the conversation; Kimi's, which are numbered,
    get the next number."""
    call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"
    parts = [part for result in answers([{"text": call * 3, "template": "<tool_call>", "tools": json.dumps(TOOLS)}] * 100) for part in result]
    assert len(parts) == 300 == len({part[3] for part in parts}) and all(re.fullmatch("[A-Za-z0-9]{9}", part[3]) for part in parts)
    kimi = "<|tool_call_begin|>functions.f:{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    case = {"template": "<|tool_calls_section_begin|>", "tools": json.dumps(TOOLS), "text": kimi.format(1) + kimi.format(2) + kimi.format(2)}
    first, again, later = answers([case, {**case, "prompt": "... functions.f:1 ..."}, {**case, "prompt": "... functions.f:12 ..."}])
    assert [p[3] for p in first][:2] == ["functions.f:1", "functions.f:2"] == [p[3] for p in later][:2] and first[2][3] == "functions.f:3"
    assert [p[3] for p in again] == ["functions.f:2", "functions.f:3", "functions.f:4"]
    mistral = {"template": "[TOOL_CALLS]", "tools": json.dumps(TOOLS), "text": "[TOOL_CALLS]f[CALL_ID]abcdef012[ARGS]{}"}
    assert answers([mistral])[0] == [["call", "f", "{}", "abcdef012", "done", 1]]
