"""An answer that has begun (Prefill in docs/serve.md): the prompt ends where its content does, also where a template takes a part of the content away."""
import concurrent.futures as futures

from serving import Server

USER = {"role": "user", "content": "hi"}


def prompts(server, answers):
    """Of each answer the prompt, or None where the template refuses it."""
    def one(answer):
        status, body = server.ask("/apply-template", {"messages": [USER, *([answer] if answer else [])]})[:2]
        assert status in (200, 400), body
        return body["prompt"] if status == 200 else None
    return [one(a and {"role": "assistant", **a}) for a in answers]


def check(weft, env, model, template):
    thought = {"reasoning_content": "thinking so"}
    with Server(weft, env, model, "--chat-template-file", template, "-t", "1", "-c", "256") as s:
        fresh, plain, spaced, cut, line, none, empty, closed, thinking, thinking_none, begun = prompts(s, [
            None, {"content": "hello"}, {"content": "  hello"}, {"content": "a</think>hello"}, {"content": "\n"}, {"content": None}, {"content": ""},
            {"content": "hello\n\n"}, {"content": "", **thought}, {"content": None, **thought}, {"content": "hello", **thought}])
    if plain is None:
        return False
    before = plain[:-5]
    assert plain == before + "hello"
    assert spaced in (plain, before + "  hello")
    assert cut.endswith("hello") and cut.count("hello") == 1
    assert line in (before, before + "\n")
    assert closed in (before + "hello", before + "hello\n", before + "hello\n\n")
    assert none == empty == fresh
    assert thinking == thinking_none and thinking + "hello" == begun
    return True


def test_all_templates(weft, weft_env, tinypy, shared_dir):
    templates = sorted((shared_dir / "templates").glob("*.jinja"))
    with futures.ThreadPoolExecutor(4) as pool:
        done = {t.name: pool.submit(check, weft, weft_env, tinypy, t) for t in templates}
    bad = {name: repr(f.exception()) for name, f in done.items() if f.exception()}
    assert not bad, bad
    assert sum(f.result() for f in done.values()) > 0.8 * len(templates)


def test_content_that_is_not_shown_is_an_error(weft, weft_env, tinypy, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{% for m in messages %}{{ m.role }}:{{ m.content | length }};{% endfor %}")
    with Server(weft, weft_env, tinypy, "--chat-template-file", path) as s:
        for url in ("/apply-template", "/v1/chat/completions"):
            status, body = s.ask(url, {"messages": [USER, {"role": "assistant", "content": "hello"}], "max_tokens": 1})[:2]
            assert status == 400 and "does not say where the answer in the last message ends" in body["error"]["message"]


def test_a_grammar_goes_on_from_what_is_left(weft, weft_env, tinypy, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
    with Server(weft, weft_env, tinypy, "--chat-template-file", path) as s:
        status, body = s.ask("/v1/chat/completions", {"messages": [USER, {"role": "assistant", "content": "  ab"}], "max_tokens": 8, "grammar": 'root ::= "abc"'})[:2]
        assert status == 200 and body["choices"][0]["message"]["content"] == "c"
