"""A private Slurm of virtual nodes on this machine: own ports, key, folders; its daemons end with it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import pytest
from harness import PATIENCE
from ports import free_ports
from robust_attack import socket_inodes

TOOLS = ["munged", "slurmctld", "slurmd", "srun", "sinfo"]
START_S = 90.0 * PATIENCE


def why_not() -> Optional[str]:
    """The reason why no Slurm can be started here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (packages slurm-wlm and munge)"
    return None if os.geteuid() == 0 else "Slurm's daemons need root"


class Slurm:
    """Nodes n1, n2, … of four CPUs each."""

    def __init__(self, nodes: int = 2, credential_s: int = 120, kill_wait_s: int = 3) -> None:
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._credential_s = (
            credential_s  # what slurmctld gives a step to start in; a requeued job waits for so long
        )
        self._kill_wait_s = kill_wait_s  # from SIGTERM to SIGKILL, when a job is cancelled
        # Short, because it holds sockets; readable, because munged insists.
        self.folder = Path(tempfile.mkdtemp(prefix="rueda-slurm-"))
        self.folder.chmod(0o755)
        self._daemons: List[subprocess.Popen[bytes]] = []
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def environment(self) -> Dict[str, str]:
        """What Slurm's commands need."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_", "SLURM_"))}
        return {**clean, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(64))
        for node in self.nodes:
            (self.folder / "tmp" / node).mkdir(parents=True)
            (self.folder / f"spool.{node}").mkdir()
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(self._configuration())
        munge = {"key-file": "munge.key", "socket": "sock", "pid-file": "munged.pid"}
        munge |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        self._run("munged", "--foreground", *(f"--{k}={self.folder / v}" for k, v in munge.items()))
        self._await(lambda: (self.folder / "sock").exists(), "munged")
        self._run("slurmctld", "-D")
        for node in self.nodes:
            self._run("slurmd", "-D", "-N", node)
        self._await(self._is_idle, "idle nodes")

    def _configuration(self) -> str:
        host = socket.gethostname()
        first = free_ports(1 + len(self.nodes))
        ports = range(first, first + 1 + len(self.nodes))
        at = self.folder
        nodes = "".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN\n"
            for node, port in zip(self.nodes, ports[1:])
        )
        # MPICH names its shared memory after the job. Two clusters on this machine, or one that was killed
        # before, must not have a job of the same number.
        first_job = random.SystemRandom().randrange(1000, 2_000_000)
        return f"""
ClusterName=test
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/sock,cred_expire={self._credential_s}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool.%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.%n.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.%n.log
TmpFS={at}/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_interval=1
KillWait={self._kill_wait_s}
{nodes}PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""

    def _run(self, *command: str) -> None:
        with open(self.folder / f"{command[0]}.{len(self._daemons)}.out", "wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _is_idle(self) -> bool:
        asked = subprocess.run(
            ["timeout", "3", "sinfo", "-h", "-t", "idle", "-o", "%D"],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        return asked.stdout.strip() == str(len(self.nodes))

    def _await(self, claim, what: str) -> None:
        deadline = time.monotonic() + START_S
        while not claim():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "".join(path.read_text(errors="replace") for path in self.folder.glob("*.out"))
                raise RuntimeError(f"Slurm: no {what}; ended: {ended}\n{logs}")
            time.sleep(0.05)

    def has_mpi(self, kind: str) -> bool:
        listed = subprocess.run(
            ["timeout", "10", "srun", "--mpi=list"], env=self.environment, capture_output=True, text=True
        )
        return kind in (listed.stdout + listed.stderr).split()

    def _steps(self) -> List[int]:
        """pids of Slurm's processes for steps of jobs: each listens at a socket in our folder."""
        unix = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
        ours = {each[6] for each in unix if len(each) > 7 and each[7].startswith(str(self.folder))}
        daemons = {daemon.pid for daemon in self._daemons}
        others = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - daemons
        return [pid for pid in others if ours & socket_inodes(pid)]

    def stop(self) -> None:
        # A step that has not reported its end when the daemons go waits for them for ever.
        deadline = time.monotonic() + 15
        while self._steps() and time.monotonic() < deadline:
            time.sleep(0.1)
        for step in self._steps():
            with contextlib.suppress(ProcessLookupError):
                os.kill(step, signal.SIGKILL)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module", name="slurm")
def make_slurm() -> Iterator[Slurm]:
    """Four nodes, for the tests of a module."""
    reason: Optional[str] = why_not()
    if reason:
        pytest.skip(reason)
    made = Slurm(nodes=4)
    yield made
    made.stop()
