"""A process of a model dies or hangs while `mpirun -n 2 weft serve` answers: all end with an error within ten seconds, and nothing wrong was said.

WEFT_RANK_MOMENTS=50 tries so many moments of each kind in place of a few.
"""
import http.client
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from rank_serving import MpichServer, MpichTcpServer, RankServer, TcpServer, processes_below
from serving import Server, until

THREADS = 1

MOMENTS = int(os.environ.get("WEFT_RANK_MOMENTS") or 3)
LIMIT_S = 10
PROMPTS = ["def f(x):", "import os\n", "class A:\n", "for i in "]
# A process that is stopped is noticed after eight seconds; one that is gone, at once.
FAULTS = {"killed": (signal.SIGKILL, "rows", RankServer), "killed by layers": (signal.SIGKILL, "layer", RankServer), "stopped": (signal.SIGSTOP, "rows", RankServer),
          "killed under MPICH": (signal.SIGKILL, "rows", MpichServer), "stopped under MPICH": (signal.SIGSTOP, "rows", MpichServer),
          "killed over TCP": (signal.SIGKILL, "rows", TcpServer), "stopped over TCP": (signal.SIGSTOP, "rows", TcpServer)}


@pytest.fixture(scope="module")
def serve(weft, weft_env, tinypy):
    def start(kind, *more):
        return kind(weft, weft_env, tinypy, "-c", "2048", "--parallel", "4", *more)
    return start


def pieces(port, prompt):
    """The texts of a streamed answer, and None after the last one. An answer that breaks off ends without."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"prompt": prompt, "n_predict": 100, "temperature": 0, "stream": True, "ignore_eos": True, "cache_prompt": True}
    c.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = c.getresponse()
    assert answer.status in (200, 503), answer.status
    while answer.status == 200 and (line := answer.readline()):
        if line.startswith(b"data: "):
            said = json.loads(line[6:])
            if "error" in said:
                return
            yield said["content"]
            if said["stop"]:
                yield None
                return


@pytest.fixture(scope="module")
def answers(serve):
    """What one process says."""
    with serve(Server) as s:
        return {p: "".join(x for x in pieces(s.port, p) if x) for p in PROMPTS}


class Client(threading.Thread):
    """Asks until the server is gone."""

    def __init__(self, port, prompt, expected):
        super().__init__(daemon=True)
        self.port, self.prompt, self.expected = port, prompt, expected
        self.whole, self.wrong = 0, None
        self.start()

    def run(self):
        try:
            while not self.wrong:
                self.ask()
        except (OSError, http.client.HTTPException):
            return

    def ask(self):
        said = ""
        for piece in pieces(self.port, self.prompt):
            if piece is None:
                self.whole += 1
            else:
                said += piece
            if not self.expected.startswith(said) or (piece is None and said != self.expected):
                self.wrong = said
                return


def runs(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def fail_once(serve, answers, how, split, kind, rank, after):
    """Seconds until all were gone."""
    s = serve(kind, *(["-sm", split] if split != "rows" else [])).ready()
    ranks = s.ranks
    clients = [Client(s.port, p, answers[p]) for p in PROMPTS]
    try:
        time.sleep(after)
        os.kill(ranks[rank], how)
        began = time.monotonic()
        for c in clients:
            c.join(max(0, began + LIMIT_S - time.monotonic()))
        status = s.process.wait(max(0.1, began + LIMIT_S - time.monotonic()))
        until(lambda: not any(map(runs, ranks.values())), max(0.1, began + LIMIT_S - time.monotonic()))
        took = time.monotonic() - began
        assert not any(c.is_alive() for c in clients), "a request hangs"
        assert status, "a status of 0"
        assert not any(c.wrong for c in clients), [(c.prompt, c.wrong) for c in clients]
        s.check_for_reports()
        return took, status, sum(c.whole for c in clients), "".join(s.said)
    finally:
        for p in ranks.values():
            if runs(p):
                os.kill(p, signal.SIGKILL)
        s.process.kill()
        s.process.wait()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_that_fails(serve, answers, fault):
    how, split, kind = FAULTS[fault]
    draw = random.Random(fault)
    for i in range(MOMENTS if kind is RankServer else max(2, MOMENTS // 3)):
        rank, after = i % 2, draw.uniform(0, 2)
        took, status, whole, said = fail_once(serve, answers, how, split, kind, rank, after)
        print(f"{fault}: process {rank} after {after:.2f} s: all gone after {took:.2f} s, status {status}, {whole} answers before")
        if how == signal.SIGSTOP:
            assert status == 1 and f"process {rank} does not answer" in said, said


@pytest.mark.parametrize("kind", [RankServer, MpichServer])
def test_a_launcher_that_dies(serve, kind):
    """It cannot end its processes any more; they end by themselves."""
    s = serve(kind).ready()
    try:
        s.process.kill()
        until(lambda: not any(map(runs, s.ranks.values())), LIMIT_S)
    finally:
        for p in s.ranks.values():
            if runs(p):
                os.kill(p, signal.SIGKILL)
        s.process.wait()


def test_filters_of_calls(serve, sanitized):
    """Every process has one while it serves, and so has the one beside it that compiles."""
    if sanitized:
        pytest.skip("sanitizers make calls that the filter forbids, so a build with them has none")
    with serve(RankServer) as s:
        for pid in s.ready().ranks.values():
            family = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
            assert len(family) == 2 and all("\nSeccomp:\t2\n" in Path(f"/proc/{p}/status").read_text() for p in family)


def test_processes_that_go_on(serve, answers):
    """One that stops for three seconds, and a machine that sleeps for eight with all processes on it, harm nothing."""
    s = serve(RankServer).ready()
    ranks = list(s.ranks.values())
    clients = [Client(s.port, p, answers[p]) for p in PROMPTS]
    try:
        for which, seconds in ((ranks[:1], 3), (ranks[1:], 3), (ranks, 8)):
            for how in (signal.SIGSTOP, signal.SIGCONT):
                for p in which:
                    os.kill(p, how)
                time.sleep(seconds if how == signal.SIGSTOP else 1)
        before = [c.whole for c in clients]
        until(lambda: all(c.whole > n for c, n in zip(clients, before)), 60)
        assert not any(c.wrong for c in clients) and s.process.poll() is None
    finally:
        for p in filter(runs, ranks):
            os.kill(p, signal.SIGKILL)
        s.process.kill()
        s.process.wait()


def listening(pids):
    """The addresses on which these processes await TCP connections."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    addresses = {f"socket:[{row[9]}]": row[1] for row in rows if row[3] == "0A"}
    links = [os.readlink(fd) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {addresses[link] for link in links if link in addresses}


@pytest.mark.parametrize("kind", [RankServer, MpichServer, TcpServer, MpichTcpServer])
def test_ports(serve, answers, sanitized, kind):
    """No process listens for connections but the first one, on the server's own port: a byte to a port of Open MPI once stopped the server without an error."""
    if sanitized:
        pytest.skip("sanitizers make calls that the filter forbids, so a build with them has none, and MPI keeps its ports")
    with serve(kind) as s:
        server = [pid for pid, name in processes_below(s.process.pid).items() if name.startswith("weft")]
        assert len(server) >= 4 and set(s.ranks.values()) <= set(server)
        assert listening(server) == {f"0100007F:{s.port:04X}"}
        assert "".join(x for x in pieces(s.port, PROMPTS[0]) if x) == answers[PROMPTS[0]]
