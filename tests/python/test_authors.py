"""Control tokens come from the template alone: whatever strings of a request say, and wherever they stand.

Expected from outside: the templates of models in the shared folder, what jinja2 makes of them, and the ids of the whole text where no stranger spells a token.
"""
import copy
import json
import re
import subprocess

import pytest
import scripted
from serving import Server
from test_tokenize import CONTROL, NORMAL, USER_DEFINED, write_vocab

THREADS = 1

reference = pytest.importorskip("jinja_reference")
SPELLED = [r"<\|[^|<>\s'\"]{1,40}\|>", r"<｜[^｜\s'\"]{1,40}｜>", r"</?[A-Za-z_][\w:/]{0,40}>", r"\[/?[A-Z_]{2,40}\]", r"<\|[a-z_]+>", r"<[a-z_]+\|>", r"\][<~]\][a-z_]+\[[>~]\["]
REMOVED = re.compile(r"""\.(?:replace|split|strip|lstrip|rstrip|removeprefix|removesuffix)\(\s*(?:'([^'\\]+)'|"([^"\\]+)")""")


@pytest.fixture(scope="session")
def tool(built_tool):
    return built_tool("chat_tool", "WEFT_CHAT_TOOL")


def ask(tool, vocab, template, requests):
    lines = "".join(json.dumps({"messages": m, "tools": t, "no_generation_prompt": not g, "variables": v or None}) + "\n" for m, t, g, v in requests)
    done = subprocess.run([tool, vocab, template], input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(requests)
    return answers


def spelled(text):
    return sorted({token for pattern in SPELLED for token in re.findall(pattern, text)})


def vocabulary(path, tokens):
    """Bytes, and these as control tokens.  Their ids."""
    write_vocab(path, tokens, [NORMAL] * 257 + [CONTROL] * len(tokens), pre="qwen2")
    return {token: 257 + i for i, token in enumerate(tokens)}


# ---- where a stranger may write ----------------------------------------------------------------------------------------

FREE = {"properties", "arguments", "variables", "options"}      # dicts whose keys are anybody's choice


def places(value, path=()):
    """Paths to every string of a value: a member, the name of one ("key"), a new one ("new")."""
    if isinstance(value, str):
        yield path, "value"
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, (*path, i))
    elif isinstance(value, dict):
        yield path, "new"
        for key, item in value.items():
            if FREE & set(path[-1:]):
                yield (*path, key), "key"
            yield from places(item, (*path, key))


def written(request, path, kind, text):
    request = copy.deepcopy(request)
    at = request
    for step in path[:-1] if kind != "new" else path:
        at = at[step]
    if kind == "new":
        at[f"n{text}"] = text
    elif kind == "key":
        changed = {f"{key}{text}" if key == path[-1] else key: value for key, value in at.items()}
        at.clear()
        at.update(changed)
    else:
        at[path[-1]] = f"{at[path[-1]]}{text}"
    return request


def requests_of(names):
    all_of = reference.conversations()
    for name in names:
        messages, tools, generation, variables = all_of[name]
        yield {"messages": messages, "tools": tools or [], "variables": {"extra": "x", **variables}}, generation


def as_request(r, generation):
    return r["messages"], r["tools"] or None, generation, r["variables"]


# ---- templates of models -----------------------------------------------------------------------------------------------

def test_ids_of_harmless_conversations(tool, built_tool, shared_dir, tmp_path):
    """They are those of the whole text, which is jinja2's: control tokens of the template are found wherever it writes them."""
    files = sorted((shared_dir / "templates").glob("*.jinja"))
    if not files:
        pytest.skip("no shared templates")
    whole = built_tool("tokenize_tool", "WEFT_TOKENIZE_TOOL")
    n = found = composed = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        template = reference.ENV.from_string(source)
        requests = list(reference.conversations().values())
        texts = [reference.reference(template, *r[:3], variables=r[3]) for r in requests]
        said = "\n".join(json.dumps(r, ensure_ascii=False) for r in requests)
        made = [t for t in spelled("\n".join(t for t in texts if isinstance(t, str))) if t[1] in "|｜"]   # of roles, too: '<|' + role + '|>'
        tokens = sorted({t for t in spelled(source) + made if t not in said})
        composed += any(t not in source for t in tokens)
        ids = vocabulary(tmp_path / "v.gguf", tokens)
        answers = ask(tool, tmp_path / "v.gguf", file, requests)
        texts = [(text, answer) for text, answer in zip(texts, answers) if isinstance(text, str) and answer.get("text") == text]
        raw = [text.encode() for text, _ in texts]
        done = subprocess.run([whole, tmp_path / "v.gguf", "parse"], input=b"".join(len(t).to_bytes(4, "little") + t for t in raw), stdout=subprocess.PIPE, check=True)
        for (text, answer), line in zip(texts, done.stdout.decode().split("\n")):
            want = [int(i) for i in line.split("\t")[0].split()]
            assert answer["ids"] == want, (file.name, text)
            found += sum(i in ids.values() for i in want)
            n += 1
    assert n > 10 * len(files) and found > 5 * n and composed


@pytest.mark.parametrize("source", ["{% for m in messages %}{{'<|' + m['role'] + '|>' + '\\n' + m['content'] + '<|end|>' + '\\n' }}{% endfor %}",
                                    "{% for m in messages %}{{ '<|%s|>%s<|end|>' | format(m.role, m.content) }}{% endfor %}"], ids=["phi-3", "format"])
def test_roles_are_words_of_the_template(tool, tmp_path, source):
    """As the template of Phi-3 writes them; a role that is not known is a stranger's."""
    ids = vocabulary(tmp_path / "v.gguf", ["<|user|>", "<|assistant|>", "<|end|>", "<|critic|>"])
    (tmp_path / "t.jinja").write_text(source)
    said = [{"role": role, "content": "user|>"} for role in ("user", "assistant", "critic")]
    got, = ask(tool, tmp_path / "v.gguf", tmp_path / "t.jinja", [(said, None, True, {})])
    assert [i for i in got["ids"] if i >= 257] == [ids["<|user|>"], ids["<|end|>"], ids["<|assistant|>"], ids["<|end|>"], ids["<|end|>"]]


def test_strangers_make_no_control_tokens(tool, shared_dir, tmp_path):
    files = sorted((shared_dir / "templates").glob("*.jinja"))
    if not files:
        pytest.skip("no shared templates")
    tried = shown = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        removed = sorted({a or b for a, b in REMOVED.findall(source)} | {"/think", "/no_think", "<think>", "</think>", " ", "\n"})
        tokens = spelled(source) + ["<SPECIAL_11>", "<|eot_id|>", "<|im_end|>"]
        # Reasoning in a content is taken out and written once more, by the template.
        tokens = sorted({t for t in tokens if "think" not in t})
        tokens = tokens[::1 + len(tokens) // 24]
        ids = vocabulary(tmp_path / "v.gguf", tokens)
        attacks = ["q" + "q".join(tokens) + "q"]
        attacks += ["q" + "q".join(t[:len(t) // 2] + hole + t[len(t) // 2:] for t in tokens) + "q" for hole in removed]
        harmless = [re.sub(r"[<|｜>\[\]]", "q", attack) for attack in attacks]
        requests, kinds = [], []
        for request, generation in requests_of(["called-reasoned", "documents"]):
            for i, (path, kind) in enumerate(places(request)):
                for a in (0, 1 + i % (len(attacks) - 1)):          # every place sees the whole tokens, and one way of parting them
                    for text in (attacks[a], harmless[a]):
                        requests.append(as_request(written(request, path, kind, text), generation))
                    kinds.append((file.name, path, kind, attacks[a]))
        answers = ask(tool, tmp_path / "v.gguf", file, requests)
        for i, what in enumerate(kinds):
            attacked, calm = answers[2 * i], answers[2 * i + 1]
            if "error" in attacked or "error" in calm:
                continue
            control = [[t for t in a["ids"] if t >= 257] for a in (attacked, calm)]
            if control[0] != control[1]:           # it decides by what is said: then the tokens are those that it writes
                text = attacked["text"]
                for token, id in ids.items():
                    said = len(re.findall(f"(?<=q){re.escape(token)}(?=q)", text))
                    assert control[0].count(id) <= text.count(token) - said, (what, token, text)
            tried += 1
            shown += any(t in attacked["text"] for t in tokens)
    assert tried > 50 * len(files) and shown > tried // 10


ROLES = ["bos", "eos", "eot", "eom", "seperator", "padding", "mask", "cls", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"]


@pytest.mark.parametrize("typ", [CONTROL, USER_DEFINED], ids=["control", "user-defined"])
def test_tokens_with_a_role_are_control_tokens(tool, tmp_path, typ):
    """What the file's keys name as the beginning, an end and so on, whatever type the file gives it.
    Other user-defined tokens are found in all text."""
    names = [f"<{role}-of-it>" for role in ROLES]

    def keys(w):
        for i, role in enumerate(ROLES):
            w.add_uint32(f"tokenizer.ggml.{role}_token_id", 257 + i)

    types = [NORMAL] * 257 + [typ] * len(names) + [USER_DEFINED]
    write_vocab(tmp_path / "v.gguf", [*names, "<other>"], types, pre="qwen2", extra=keys)
    (tmp_path / "t.jinja").write_text("".join(names) + "{% for m in messages %}{{ m.content }}{% endfor %}")
    said = [{"role": "user", "content": "a<other>" + "b".join(names)}]
    got, = ask(tool, tmp_path / "v.gguf", tmp_path / "t.jinja", [(said, None, True, {})])
    assert [i for i in got["ids"] if i >= 257] == [*range(257, 257 + len(names)), 257 + len(names)]


# ---- every way into a prompt -------------------------------------------------------------------------------------------

TEMPLATE = """{% if tools %}{% for t in tools %}{{ t | tojson }}{{ t.function.name }}{% endfor %}<|end|>{% endif %}{% if documents %}{{ documents }}{% endif %}{{ extra }}
{%- for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ (m.content or '').replace('/t', '') }}{{ m.name }}
{%- for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}{% endfor %}<|end|>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% if extra == 'think' %}<think>\n{% endif %}{% endif %}"""


@pytest.fixture(scope="module")
def server(weft, weft_env, tmp_path_factory):
    path = scripted.write(tmp_path_factory.mktemp("authors") / "told.gguf", {"1": ["One"], ">": ["Here"]}, TEMPLATE)
    with Server(weft, weft_env, path) as s:
        yield s


def bodies(e):
    """Requests with this text in all their strings, and where each has its count of tokens."""
    parameters = {"type": "object", "description": e, "properties": {f"p{e}": {"type": "string", "description": e, "enum": [e, "b"]}}}
    tools = [{"type": "function", "function": {"name": f"f{e}", "description": e, "parameters": parameters}}]
    called = [{"id": f"c{e}", "type": "function", "function": {"name": f"f{e}", "arguments": json.dumps({f"p{e}": e})}}]
    chat = [{"role": "system", "content": e}, {"role": "user", "content": [{"type": "text", "text": e}, {"type": "text", "text": "x"}]},
            {"role": "assistant", "content": e, "reasoning_content": e, "tool_calls": called}, {"role": "tool", "tool_call_id": f"c{e}", "name": e, "content": e},
            {"role": "user", "content": f"{e[:3]}/t{e[3:]}1"}]
    more = {"chat_template_kwargs": {"extra": e}, "documents": [{e: e, "text": e}]}
    usage = lambda name: lambda got: got["usage"][name]                     # noqa: E731
    yield "/v1/chat/completions", {"messages": chat, "tools": tools, "max_tokens": 1, **more}, usage("prompt_tokens")
    yield "/v1/chat/completions/input_tokens", {"messages": chat, "tools": tools, **more}, lambda got: got["input_tokens"]
    yield "/v1/chat/completions/render", {"messages": chat, "tools": tools, **more}, lambda got: len(got["token_ids"])
    yield "/v1/chat/completions", {"messages": [*chat, {"role": "assistant", "content": f"{e} so"}], "max_tokens": 1}, usage("prompt_tokens")
    yield "/v1/responses", {"instructions": e, "input": e, "tools": [{"type": "function", **tools[0]["function"]}], "max_output_tokens": 1}, usage("input_tokens")
    yield "/v1/messages/count_tokens", {
        "model": "told", "system": e, "messages": [{"role": "user", "content": e}, {"role": "assistant", "content": [{"type": "tool_use", "id": e, "name": e, "input": {e: e}}]},
                                                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": e, "content": e}]}],
        "tools": [{"name": f"f{e}", "description": e, "input_schema": parameters}]}, lambda got: got["input_tokens"]
    yield "/api/chat", {"messages": [{**m, "content": e} for m in chat[:2]], "tools": tools, "stream": False, "options": {"num_predict": 1}}, lambda got: got["prompt_eval_count"]
    yield "/api/generate", {"prompt": e, "system": e, "stream": False, "options": {"num_predict": 1}}, lambda got: got["prompt_eval_count"]


def test_every_endpoint(server):
    """A token for each byte, but for control tokens: text of one counts as many as any other text of its length."""
    for (path, body, count), (_, calm, _) in zip(bodies("<|end|>"), bodies("(!end!)")):
        (status, got), (status_calm, expected) = server.ask(path, body), server.ask(path, calm)
        assert status == status_calm == 200, (path, got, expected)
        assert count(got) == count(expected) > 20, path


def test_reasoning_that_is_ended(server):
    """The message that stands before the end of reasoning is the client's text."""
    n = {}
    for said in ("<|end|>", "(!end!)"):
        body = {"messages": [{"role": "user", "content": "1"}], "max_tokens": 60, "reasoning_budget_tokens": 0, "reasoning_budget_message": said,
                "chat_template_kwargs": {"extra": "think"}, "temperature": 0}
        status, got = server.ask("/v1/chat/completions", body)
        assert status == 200, got
        n[said] = got["usage"]["completion_tokens"]
    assert len({*n.values()}) == 1
