"""Streams that outlive their connections: paths, parameters and answers as llama-server has them (tools/server/README-dev.md, "resumable streaming")."""
import http.client
import json
import time

import pytest
import scripted
from serving import Server, until

THREADS = 1

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
SCRIPTS = {"1": ["One", " two", " three"], "2": ["On", " and", None]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return scripted.write(tmp_path_factory.mktemp("scripted") / "told.gguf", SCRIPTS, TEMPLATE, context=4000)


@pytest.fixture(scope="module")
def server(weft, weft_env, model):
    with Server(weft, weft_env, model) as s:
        yield s


class Stream:
    """A stream that can be left in the middle."""

    def __init__(self, server, text=None, conversation=None, path="/v1/chat/completions", method="POST", key=None, **more):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        headers = {"Content-Type": "application/json"} | ({"X-Conversation-Id": conversation} if conversation else {}) | ({"Authorization": "Bearer " + key} if key else {})
        body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": True, "temperature": 0} | more) if text else None
        self.connection.request(method, path, body, headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def read(self, n):
        got = b""
        while len(got) < n and (part := self.answer.read1(n - len(got))):
            got += part
        return got

    def rest(self):
        return self.answer.read()

    def leave(self):
        self.connection.close()
        self.answer.close()


def text_of(stream):
    events = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])


def processing(server):
    return server.metric("llamacpp:requests_processing")


def test_a_stream_can_be_read_again(server):
    whole = Stream(server, "x 1", "a/b c").rest()
    assert text_of(whole) == "One two three" and whole.endswith(b"data: [DONE]\n\n")
    for start in (0, 7, len(whole) - 1, len(whole), len(whole) + 50):
        again = Stream(server, path=f"/v1/stream?conv_id=a%2Fb%20c&from={start}", method="GET")
        assert again.status == 200 and again.answer.headers["Content-Type"] == "text/event-stream" and again.rest() == whole[start:]
    status, found = server.ask("/v1/streams/lookup", {"conversation_ids": ["a/b c", "other"]})
    assert status == 200 and [(f["conversation_id"], f["is_done"], f["total_bytes"]) for f in found] == [("a/b c", True, len(whole))]
    assert found[0]["started_at"] <= found[0]["completed_at"] <= time.time() + 1


def test_what_is_left_goes_on(server):
    first = Stream(server, "x 2", "long", max_tokens=1500)
    begun = first.read(3000)
    first.leave()
    again = Stream(server, path=f"/v1/stream?conv_id=long&from={len(begun)}", method="GET")
    whole = begun + again.rest()
    assert text_of(whole) == "On and" * 750 and whole.endswith(b"data: [DONE]\n\n")


def test_without_the_header_the_work_ends(server):
    first = Stream(server, "x 2")
    first.read(2000)
    first.leave()
    until(lambda: not processing(server))


def test_delete_ends_it(server):
    first = Stream(server, "x 2", "endless", ignore_eos=True)
    first.read(2000)
    reader = Stream(server, path="/v1/stream?conv_id=endless", method="GET")
    first.leave()
    reader.read(2000)
    assert processing(server) == 1
    assert server.ask("/v1/stream?conv_id=endless", method="DELETE")[0] == 204
    until(lambda: not processing(server))
    reader.rest()
    assert server.ask("/v1/stream?conv_id=endless")[0] == 404
    assert server.ask("/v1/stream?conv_id=endless", method="DELETE")[0] == 204
    second = Stream(server, "x 2", "twice")
    second.read(500)
    third = Stream(server, "x 1", "twice")                  # one conversation has one stream: the first is cancelled
    assert text_of(third.rest()) == "One two three"
    second.rest()
    until(lambda: not processing(server))


def test_what_is_wrong(server):
    for path, status in (("/v1/stream", 400), ("/v1/stream?conv_id=", 400), ("/v1/stream?conv_id=nobody", 404), ("/v1/stream?conv_id=a%2Fb%20c&from=x", 400), ("/v1/stream?conv_id=a%2Fb%20c&from=-1", 400)):
        Stream(server, "x 1", "a/b c").rest()
        got, answer = server.ask(path)
        assert got == status and answer["error"]["message"], (path, got, answer)
    assert server.ask("/v1/streams/lookup", {"conversation_ids": "a"})[0] == 400 and server.ask("/v1/streams/lookup", {"conversation_ids": [1]})[0] == 400
    assert server.ask("/v1/streams/lookup", {})[0] == 400
    assert server.ask("/v1/stream", {})[0] == 405 and set(server.headers["Allow"].split(", ")) == {"GET", "HEAD", "DELETE"}
    assert server.ask("/v1/chat/completions", {"messages": []}, X_Conversation_Id="x" * 257)[0] == 400
    assert server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x 1"}], "temperature": -5, "stream": True}, X_Conversation_Id="refused")[0] == 400
    assert server.ask("/v1/stream?conv_id=refused")[0] == 404                                 # what was refused left nothing


def test_the_last_megabytes_are_kept(server):
    body = {"messages": [{"role": "user", "content": "x 2"}], "max_tokens": 3900, "ignore_eos": True, "stream": True, "logprobs": True, "top_logprobs": 14, "temperature": 0}
    whole = Stream(server, "x 2", "big", **body).rest()
    assert len(whole) > 4 << 20
    status, answer = server.ask("/v1/stream?conv_id=big&from=0")
    assert status == 400 and "no longer" in answer["error"]["message"]
    start = len(whole) - (3 << 20)
    assert Stream(server, path=f"/v1/stream?conv_id=big&from={start}", method="GET").rest() == whole[start:]


def test_a_copy_is_its_keys(weft, weft_env, model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one:secret-of-one\ntwo:secret-of-two\n")
    keys.chmod(0o600)
    with Server(weft, weft_env, model, "--api-key-file", keys) as s:
        whole = Stream(s, "x 1", "mine", key="secret-of-one").rest()
        asked = "/v1/stream?conv_id=mine"
        assert s.ask(asked)[0] == 401 and s.ask(asked, method="DELETE")[0] == 401 and s.ask("/v1/streams/lookup", {"conversation_ids": ["mine"]})[0] == 401
        assert s.ask(asked, Authorization="Bearer secret-of-two")[0] == 404
        assert s.ask("/v1/streams/lookup", {"conversation_ids": ["mine"]}, Authorization="Bearer secret-of-two") == (200, [])
        assert s.ask(asked, method="DELETE", Authorization="Bearer secret-of-two")[0] == 204
        assert Stream(s, path=asked, method="GET", key="secret-of-one").rest() == whole
