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


def test_every_template(run_weft, answers, shared_dir):
    seen, files = set(), sorted((shared_dir / "templates").glob("*.jinja"))
    if not files:
        pytest.skip(f"no templates in {shared_dir}")
    for path in files:
        name = path.stem
        if name in NO_CALLS:
            continue
        prompt, whole = conversation(run_weft, path, name)
        assert prompt is not None and whole is not None, name
        begin, text = split(prompt, whole)
        cases = [{"template": path.read_text(), "prompt": begin, "tools": json.dumps(TOOLS), "text": text, "piece": piece} for piece in (0, 1, 2, 3, 7, 50)]
        results = answers(cases)
        assert all(r == results[0] for r in results), name
        calls = [(part[1], json.loads(part[2])) for part in results[0] if part[0] == "call"]
        assert calls == [("get_weather", ARGUMENTS)] * (1 + (name not in ONE_CALL)), (name, text, results[0])
        reasoning = "".join(part[1] for part in results[0] if part[0] == "reasoning")
        assert reasoning == ("Let me think." if name in THINKS and "Let me think." in text else ""), (name, text, results[0])
        content = "".join(part[1] for part in results[0] if part[0] == "content")
        assert "get_weather" not in content and "Paris" not in content and "think." not in content, (name, results[0])
        seen.add(name)
    assert len(seen) > 35
