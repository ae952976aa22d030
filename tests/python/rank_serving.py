"""weft serve on several processes of Open MPI or MPICH."""
import os
import shutil
import signal
from pathlib import Path

import pytest
from serving import Server


RANKS = {"openmpi": b"OMPI_COMM_WORLD_RANK", "mpich": b"PMI_RANK"}


def launcher(weft, kind="openmpi"):
    """mpirun; skips a test where it or its module is not there."""
    found = shutil.which(f"mpirun.{kind}") or (kind == "openmpi" and shutil.which("mpirun"))
    if not found or not (Path(weft).parent / f"libweft-mpi-{kind}.so").exists():
        pytest.skip(f"{kind} is not here (scripts/setup.sh mpi)")
    return found


def processes_below(pid):
    """pid: its name, of all that a process has started"""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (folder / "stat").read_text().rsplit(")", 1)
            parents[int(folder.name)], names[int(folder.name)] = int(rest.split()[1]), name.split("(", 1)[1]
        except OSError:
            continue
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return {one: names[one] for one in below - {pid}}


def processes_of(pid, kind="openmpi"):
    """rank: pid, of what mpirun has started; not of helpers of these"""
    found = {}
    for one, name in processes_below(pid).items():
        try:
            env = dict(x.split(b"=", 1) for x in Path(f"/proc/{one}/environ").read_bytes().split(b"\0") if b"=" in x)
        except OSError:
            continue
        if name == "weft" and RANKS[kind] in env:
            found[int(env[RANKS[kind]])] = one
    return found


class RankServer(Server):
    """Two processes, of a model whose products are all split."""

    kind = "openmpi"

    def __init__(self, weft, env, model, *args):
        env = {**env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "WEFT_RANK_BYTES": "2048"}
        if os.environ.get("WEFT_SANITIZED"):         # Open MPI leaves memory
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        loose = ("--oversubscribe", "--bind-to", "none") if self.kind == "openmpi" else ()
        super().__init__(launcher(weft, self.kind), env, model, "-t", 1, *args, options=(*loose, "-n", "2", weft))
        self.ranks = processes_of(self.process.pid, self.kind)

    def pid(self):
        return self.ranks[0]

    def end(self, how=signal.SIGTERM, timeout=60):
        """The first process ends as a server does; a signal to mpirun ends all at once."""
        os.kill(self.pid(), how)
        status = self.process.wait(timeout)
        self.check_for_reports()
        return status


class MpichServer(RankServer):
    kind = "mpich"


class OverTcp:
    """As between machines: without shared memory."""

    def __init__(self, weft, env, *args):
        super().__init__(weft, {**env, "OMPI_MCA_btl": "tcp,self", "UCX_TLS": "tcp,self"}, *args)


class TcpServer(OverTcp, RankServer):
    pass


class MpichTcpServer(OverTcp, MpichServer):
    pass
