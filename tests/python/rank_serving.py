"""weft serve on several processes of Open MPI."""
import os
import shutil
import signal
from pathlib import Path

import pytest
from serving import Server


def launcher(weft):
    """mpirun; skips a test where it or its module is not there."""
    found = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if not found or not (Path(weft).parent / "libweft-mpi-openmpi.so").exists():
        pytest.skip("Open MPI is not here (scripts/setup.sh mpi)")
    return found


def processes_of(pid):
    """rank: pid, of what mpirun has started"""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                env = dict(x.split(b"=", 1) for x in (folder / "environ").read_bytes().split(b"\0") if b"=" in x)
                found[int(env[b"OMPI_COMM_WORLD_RANK"])] = int(folder.name)
        except (OSError, KeyError):
            continue
    return found


class RankServer(Server):
    """Two processes, of a model whose products are all split."""

    def __init__(self, weft, env, model, *args):
        env = {**env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "WEFT_RANK_BYTES": "2048"}
        if os.environ.get("WEFT_SANITIZED"):         # Open MPI leaves memory
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        super().__init__(launcher(weft), env, model, "-t", 1, *args, options=("--oversubscribe", "--bind-to", "none", "-n", "2", weft))
        self.ranks = processes_of(self.process.pid)

    def pid(self):
        return self.ranks[0]

    def end(self, how=signal.SIGTERM, timeout=60):
        """The first process ends as a server does; a signal to mpirun ends all at once."""
        os.kill(self.pid(), how)
        status = self.process.wait(timeout)
        self.check_for_reports()
        return status
