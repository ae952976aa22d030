"""--kv-events-config: what the KV cache holds, as vLLM publishes it. Read by pyzmq and msgspec as vLLM's and SGLang's readers do, into an index
such as routers have: which server has how much of a prompt."""
import concurrent.futures
import hashlib
import json
import re
import shutil
import subprocess
from typing import Optional, Union

import pytest
from serving import Server, TEMPLATE, sanitizer_report, until

THREADS = 1

zmq = pytest.importorskip("zmq", reason="no pyzmq (scripts/setup.sh test)")
msgspec = pytest.importorskip("msgspec", reason="no msgspec (scripts/setup.sh test)")
SIZE = 16
TEXT = "def area(width, height):\n    return width * height\n"


@pytest.fixture(scope="module", autouse=True)
def publishes(weft, weft_env):
    done = subprocess.run([weft, "serve", "-m", "none.gguf", "--kv-events-config", '{"enable_kv_cache_events": true, "endpoint": "tcp://127.0.0.1:*"}'],
                          env=weft_env, capture_output=True, text=True)
    if "libzmq" in done.stderr:
        pytest.skip("no libzmq, or built without its headers (scripts/setup.sh)")


# ---- a reader ---------------------------------------------------------------------------------------------------------------------

class Stored(msgspec.Struct, forbid_unknown_fields=True, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: Optional[int]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]


class Removed(msgspec.Struct, forbid_unknown_fields=True, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: Optional[str]


class Cleared(msgspec.Struct, forbid_unknown_fields=True, tag="AllBlocksCleared"):
    pass


class Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[Union[Stored, Removed, Cleared]]
    data_parallel_rank: int


def cbor(value):
    """RFC 8949, canonical, of what vLLM's hash is made."""
    def head(kind, n):
        for extra, most in ((0, 24), (1, 1 << 8), (2, 1 << 16), (4, 1 << 32)):
            if n < most:
                return bytes([kind << 5 | (n if not extra else {1: 24, 2: 25, 4: 26}[extra])]) + (n.to_bytes(extra, "big") if extra else b"")
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value)) + value.encode()
    return head(4, len(value)) + b"".join(map(cbor, value))


def hashes(ids, size=SIZE):
    """vLLM's sha256_cbor of each block, with PYTHONHASHSEED=0, as it publishes them: the last 64 bits."""
    parent, out = hashlib.sha256(cbor("0")).digest(), []
    for i in range(len(ids) // size):
        parent = hashlib.sha256(cbor((parent, tuple(ids[i * size:i * size + size]), None))).digest()
        out.append(int.from_bytes(parent[-8:], "big"))
    return out


class Reader:
    """Follows a server's messages; asks the server for those that it has missed."""
    def __init__(self, server, topic=""):
        said = re.search(r"events of the KV cache at (tcp://\S+?)(?:, replay at (tcp://\S+))?: anyone", "".join(server.said))
        self.context, (self.endpoint, replay) = zmq.Context(), said.groups()
        self.sub, self.ask = self.context.socket(zmq.SUB), self.context.socket(zmq.DEALER)
        self.sub.connect(self.endpoint)
        self.sub.subscribe(topic)
        self.ask.connect(replay)
        self.tokens, self.topics, self.number = {}, set(), -1

    def close(self):
        self.context.destroy(linger=0)

    def replay(self, first):
        """[(number, message)] from that number on."""
        self.ask.send_multipart([b"", first.to_bytes(8, "big")])
        got = []
        while self.ask.poll(120000):
            empty, number, message = self.ask.recv_multipart()
            assert empty == b""
            if number == b"\xff" * 8:
                assert message == b""
                return got
            got.append((int.from_bytes(number, "big"), message))
        raise AssertionError("no end of a replay")

    def take(self, number, message):
        batch = msgspec.msgpack.decode(message, type=Batch)
        assert number == self.number + 1 and batch.ts > 1.7e9 and batch.data_parallel_rank == 0 and batch.events
        self.number = number
        for event in batch.events:
            if isinstance(event, Stored):
                assert (event.block_size, event.medium, event.lora_id, event.lora_name) == (SIZE, "GPU", None, None)
                assert len(event.token_ids) == SIZE * len(event.block_hashes)
                assert event.parent_block_hash is None or event.parent_block_hash in self.tokens
                before = [] if event.parent_block_hash is None else self.tokens[event.parent_block_hash]
                for i, name in enumerate(event.block_hashes):
                    assert name not in self.tokens
                    before = self.tokens[name] = before + event.token_ids[i * SIZE:i * SIZE + SIZE]
            elif isinstance(event, Removed):
                for name in event.block_hashes:
                    del self.tokens[name]
            else:
                self.tokens.clear()

    def follow(self):
        """What has been told by now: replay is in order behind it, so that nothing has to be waited for."""
        for number, message in self.replay(self.number + 1):
            self.take(number, message)
        return self

    def known(self, ids):
        """Tokens of a prompt that the index says the server has."""
        n = 0
        while n < len(hashes(ids)) and hashes(ids)[n] in self.tokens:
            n += 1
        return n * SIZE


def config(**more):
    return json.dumps({"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*", **more})


@pytest.fixture
def serve(weft, weft_env, tinypy):
    readers = []

    def make(*args, **more):
        server = Server(weft, weft_env, tinypy, "-c", "512", "--chat-template", TEMPLATE, "--kv-events-config", config(**more), *args).ready()
        readers.append((server, Reader(server, more.get("topic", ""))))
        return readers[-1]
    yield make
    for server, reader in readers:
        reader.close()
        server.__exit__()


def ids_of(server, text):
    return server.ask("/tokenize", {"prompt": text})[1]["tokens"]


def cached(server, prompt, n=8):
    status, o = server.ask("/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 0})
    assert status == 200, o
    return o["usage"]["prompt_tokens_details"]["cached_tokens"]


# ---- tests ------------------------------------------------------------------------------------------------------------------------

def test_an_index_knows_what_the_server_has(serve):
    """A prompt, one that begins like it, one that pushes both out: the index says before each how much of it the server takes from its cache."""
    server, reader = serve("-np", "2")
    first = ids_of(server, TEXT * 14)
    assert reader.follow().tokens == {} and reader.number == 0                      # AllBlocksCleared
    assert cached(server, first) == 0
    assert reader.follow().known(first) == len(first) // SIZE * SIZE
    assert list(reader.tokens)[:len(hashes(first))] == hashes(first)                # parents before children, by vLLM's hash
    known, stored = dict(reader.tokens), reader.number
    second = first[:100] + ids_of(server, "class Cat:\n    pass\n" * 9)
    assert reader.known(second) == 96 and 96 <= cached(server, second) <= 100
    new = [msgspec.msgpack.decode(m, type=Batch) for _, m in reader.replay(stored + 1)]
    begins = next(e for b in new for e in b.events if isinstance(e, Stored))
    assert begins.parent_block_hash == hashes(first)[5] and begins.token_ids == second[96:96 + len(begins.token_ids)]
    assert reader.follow().known(second) == len(second) // SIZE * SIZE and known.items() <= reader.tokens.items()
    for i in range(3):                                                              # two sequences stay
        cached(server, ids_of(server, f"# {'other ' * 40}{i}\n" * 3))
    assert reader.follow().known(first) == reader.known(second) == 0
    assert cached(server, first) < SIZE


def test_many_at_once(serve):
    """Whatever runs beside what: no block is told twice, none goes that is not there, and each stands behind its parent (Reader.take)."""
    server, reader = serve("-np", "4")
    starts = [TEXT * n for n in (1, 2, 4)]

    def one(i):
        return server.ask("/v1/completions", {"prompt": starts[i % 3] + f"x{i % 7} = {i % 5}\n" * (i % 4), "max_tokens": 40, "seed": i, "n": 1 + i % 2})[0]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert set(pool.map(one, range(40))) == {200}
    reader.follow()
    prompt = ids_of(server, starts[2])
    assert reader.known(prompt) <= cached(server, prompt, 1) < reader.known(prompt) + SIZE


def test_messages_arrive(serve):
    """Over the socket that readers listen to, under their topic, in the order of their numbers."""
    server, reader = serve("-np", "2", topic="kv@10.0.0.1@tinypy")
    prompts, got = iter(range(10000)), []

    def arrives():
        cached(server, f"# {next(prompts)}\n" * 30)
        return reader.sub.poll(20)
    until(arrives, 300)                                                             # a reader is connected some time after it asks for that
    last = reader.replay(0)[-1][0]
    while not got or got[-1] < last:
        assert reader.sub.poll(120000)
        topic, number, message = reader.sub.recv_multipart()
        assert topic == b"kv@10.0.0.1@tinypy" and msgspec.msgpack.decode(message, type=Batch).events
        got.append(int.from_bytes(number, "big"))
    assert got == list(range(got[0], last + 1))


def test_erased_and_restored(serve, tmp_path):
    server, reader = serve("-np", "2", "--slot-save-path", tmp_path)
    prompt = ids_of(server, TEXT * 4)
    body = {"prompt": prompt, "n_predict": 4, "id_slot": 0}
    assert server.ask("/completion", body)[0] == 200 and reader.follow().known(prompt)
    assert server.ask("/slots/0?action=save", {"filename": "s"}, method="POST")[0] == 200
    assert server.ask("/slots/0?action=erase", b"", method="POST")[0] == 200
    assert reader.follow().tokens == {}
    assert server.ask("/slots/1?action=restore", {"filename": "s"}, method="POST")[0] == 200
    assert reader.follow().known(prompt) == len(prompt) // SIZE * SIZE


def test_a_restart(serve, tmp_path):
    """The last message says that there is nothing any more; numbers begin again, and so does what is known, but for what is in files."""
    server, reader = serve("-np", "2", "--keep-in", tmp_path)
    prompt = ids_of(server, TEXT * 8)
    cached(server, prompt)
    assert reader.follow().known(prompt) and server.end() == 0
    server, reader = serve("-np", "2", "--keep-in", tmp_path)
    assert reader.follow().number == 0 and reader.tokens == {}
    assert cached(server, prompt) >= 128                                            # from the folder
    assert reader.follow().known(prompt) == len(prompt) // SIZE * SIZE


def test_the_oldest_are_lost(serve):
    """Of a ring of four the last four are there; whoever asks for less than a number gets nothing, and others get theirs."""
    server, reader = serve("-np", "2", buffer_steps=4)
    for i in range(6):
        cached(server, f"# {i}\n" * 30)
    for wrong in ([b""], [b"", b"123"], [b"x", bytes(8)], [b"", bytes(8), b""], [b"", bytes(300)]):
        with reader.context.socket(zmq.DEALER) as other:
            other.connect(reader.ask.getsockopt(zmq.LAST_ENDPOINT).decode())
            other.send_multipart(wrong)
            reader.replay(1 << 63)
    numbers = [number for number, _ in reader.replay(0)]
    assert len(numbers) == 4 and numbers[0] > 0 and numbers == list(range(numbers[0], numbers[0] + 4))
    assert reader.replay(numbers[-1] + 1) == reader.replay((1 << 64) - 1) == []


def test_a_reader_that_does_not_read(serve):
    """Nobody waits for it."""
    server, reader = serve("-np", "2", hwm=1, max_queue_size=1)
    for i in range(20):
        cached(server, f"# {i}\n" * 30)
    assert reader.follow().number >= 20


def test_replays_that_are_not_read(serve):
    """Each waits for its client; others get theirs meanwhile, and the end of the server does not wait."""
    server, reader = serve("-np", "2")
    for i in range(60):
        cached(server, f"# {i}\n" * 30)
    waiting = [reader.context.socket(zmq.DEALER) for _ in range(40)]
    for other in waiting:
        other.setsockopt(zmq.RCVHWM, 1)
        other.setsockopt(zmq.RCVBUF, 4096)
        other.connect(reader.ask.getsockopt(zmq.LAST_ENDPOINT).decode())
        for _ in range(40):
            other.send_multipart([b"", bytes(8)])
    assert len(reader.replay(0)) >= 60
    cached(server, "# and one more\n" * 30)
    assert reader.replay(60)
    assert server.end(timeout=30) == 0


def test_arrays(serve):
    """As vLLM had it before 0.24: members by their places."""
    server, reader = serve("-np", "1", event_format="array")
    prompt = ids_of(server, TEXT * 2)
    cached(server, prompt)
    events = [event for _, m in reader.replay(0) for event in msgspec.msgpack.decode(m)[1]]
    names = hashes(prompt)
    assert events[:2] == [["AllBlocksCleared"], ["BlockStored", names, None, prompt[:SIZE * len(names)], SIZE, None, "GPU", None]]
    cached(server, ids_of(server, "# other\n" * 20))
    removed = [event for _, m in reader.replay(2) for event in msgspec.msgpack.decode(m)[1] if event[0] == "BlockRemoved"]
    assert {e[2] for e in removed} == {"GPU"} and set(names) <= {name for e in removed for name in e[1]}


def test_the_size_of_blocks(weft, weft_env, tinypy):
    with Server(weft, weft_env, tinypy, "-c", "512", "-np", "1", "--block-size", "64", "--kv-events-config", config()) as server:
        reader, prompt = Reader(server), ids_of(server, TEXT * 8)
        cached(server, prompt)
        stored = [e for _, m in reader.replay(0) for e in msgspec.msgpack.decode(m, type=Batch).events if isinstance(e, Stored)]
        assert stored[0].block_size == 64 and [name for e in stored for name in e.block_hashes][:len(prompt) // 64] == hashes(prompt, 64)
        assert 'vllm:cache_config_info{block_size="64",num_gpu_blocks="8",' in server.ask("/metrics")[1]
        reader.close()


@pytest.mark.parametrize("text", ['{}', '{"enable_kv_cache_events": false}', '{"enable_kv_cache_events": true, "publisher": "null"}'])
def test_not_wanted(weft, weft_env, tinypy, text):
    with Server(weft, weft_env, tinypy, "--kv-events-config", text) as server:
        assert "events of the KV cache" not in "".join(server.said)


ON = '{"enable_kv_cache_events": true, '


@pytest.mark.parametrize("text, why", [
    ("{", "line 1"), ("[]", "must be a JSON object"), ('{"enable_kv_cache_events": 1}', "'enable_kv_cache_events' must be true or false"),
    (ON + '"endpoint": "tcp://127.0.0.1"}', "'endpoint' must be an address to listen at"), (ON + '"endpoint": "ipc:///x"}', "'endpoint' must be"),
    (ON + '"endpoint": "tcp://*:99999"}', "'endpoint' must be"), (ON + '"endpoint": "tcp://router:5557"}', "'router' is no address of this machine"),
    (ON + '"replay_endpoint": 1}', "'replay_endpoint' must be"), (ON + '"buffer_steps": 0}', "'buffer_steps' must be a number from 1"),
    (ON + '"topic": 1}', "'topic' must be a string"), (ON + '"event_format": "json"}', '\'event_format\' must be "map" or "array"'),
    (ON + '"publisher": "nats"}', '\'publisher\' must be "zmq" or "null"'), (ON + '"endpoints": ""}', "'endpoints' is no member of it"),
    (ON + '"endpoint": "tcp://192.0.2.1:5557"}', "192.0.2.1 port 5557: Cannot assign requested address")])
def test_a_config_that_cannot_be(weft, weft_env, tinypy, text, why):
    done = subprocess.run([weft, "serve", "-m", tinypy, "--port", "0", "--kv-events-config", text], env=weft_env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "--kv-events-config" in done.stderr and why in done.stderr and not sanitizer_report(done.stderr), done.stderr


def test_several_models(weft, weft_env, tinypy, tmp_path):
    other = shutil.copy(tinypy, tmp_path / "other.gguf")
    done = subprocess.run([weft, "serve", "-m", tinypy, "-m", other, "--port", "0", "--kv-events-config", config()], env=weft_env, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 1 and "events name no model" in done.stderr and not sanitizer_report(done.stderr)
