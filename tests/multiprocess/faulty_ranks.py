"""Ranks of which one meets a fault of the system, or is killed, at a chosen moment of init (faults.c)."""

import json
import pathlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Dict, List, Tuple

from harness import PATIENCE, ROOT, library, make_job_folder, rank_environment

LIMIT_S = 90.0 * PATIENCE  # ends what hangs

# A script of every rank. HOSTS: of each rank, a letter; empty: as the launcher says. FAULTS: by rank, the
# arguments of arm_fault().
SCRIPT = """
import ctypes, json, os, sys
HOSTS, FAULTS = json.loads(os.environ["TEST_HOSTS"]), json.loads(os.environ["TEST_FAULTS"])
rank = int(os.environ["RUEDA_RANK"])
if HOSTS:
    os.environ["RUEDA_HOSTNAME"] = HOSTS[rank]
    os.environ["RUEDA_LOCAL_RANK"] = str(HOSTS[:rank].count(HOSTS[rank]))
    os.environ["RUEDA_LOCAL_SIZE"] = str(HOSTS.count(HOSTS[rank]))
import numpy
import rueda.numpy as hvd
if str(rank) in FAULTS:
    call, number, error, family = FAULTS[str(rank)]
    ctypes.CDLL(None).arm_fault(call.encode(), number, error, family)
try:
    hvd.init()
except ValueError as error:
    sys.exit(f"init failed on rank {rank}: {error}")
want = hvd.size() * (hvd.size() - 1) / 2
for turn in range(3):
    got = hvd.allreduce(numpy.full(1000, float(rank)), op=hvd.Sum, name="sum")
    assert (got == want).all(), (got, want)
local = [hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
print(json.dumps({"placed": local, "is_homogeneous": hvd.is_homogeneous()}), flush=True)
hvd.shutdown()
"""

Fault = Tuple[str, int, int, int]  # the function, which call of it, the error (faults.c), address family
KILLED, STOPPED = 0, -1  # instead of an error


def build_faults(folder: pathlib.Path) -> str:
    """The library for LD_PRELOAD."""
    made = folder / "faults.so"
    source = pathlib.Path(__file__).with_name("faults.c")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return str(made)


def variables(shim: str, hosts: str, faults: Dict[int, Fault]) -> Dict[str, str]:
    """What SCRIPT reads, and what it needs."""
    return {
        "LD_PRELOAD": shim,
        "TEST_HOSTS": json.dumps(hosts),
        "TEST_FAULTS": json.dumps(faults),
        "RUEDA_LIBRARY": library(),
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "1",
    }


@dataclass
class Ended:
    """A rank that has ended."""

    status: int
    output: str

    @property
    def cause(self) -> str:
        """The sentence with which init failed; "": it did not."""
        lines = [line for line in self.output.splitlines() if line.startswith("init failed on rank ")]
        return lines[0] if lines else ""


class Ranks:
    """Ranks that no launcher has started; store: "file", or the URL of another one."""

    def __init__(
        self, hosts: str, shim: str, faults: Dict[int, Fault], store: str = "file", **more: str
    ) -> None:
        self._folder = make_job_folder()
        self.processes: List[subprocess.Popen] = []
        for rank in range(len(hosts)):
            environment = rank_environment(rank, len(hosts), self._folder, "shm,tcp")
            environment.update({**variables(shim, hosts, faults), **more})
            if store != "file":
                environment["RUEDA_STORE"] = store
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", SCRIPT],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def finish(self) -> List[Ended]:
        """How each rank ended; whoever does not end by itself fails the test."""
        try:
            outputs = [process.communicate(timeout=LIMIT_S)[0] for process in self.processes]
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
            shutil.rmtree(self._folder)
        return [Ended(process.returncode, output) for process, output in zip(self.processes, outputs)]


def run_by_hand(hosts: str, shim: str, faults: Dict[int, Fault], **more: str) -> List[Ended]:
    return Ranks(hosts, shim, faults, **more).finish()
