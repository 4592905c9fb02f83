"""An elastic job that is punished: its processes, hosts, disk and records. How it is started: `launched_job`,
`members_job`.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from faults import Kind
from scene import Process, Scene

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/multiprocess"))  # processes, virtual hosts

import processes  # noqa: E402 (found in tests/multiprocess)

DISK = "16m"
MARK = "PUNISHED_JOB"  # a variable of all processes of a job
SILENCE_S = 5  # a rank that says nothing for longer is lost


@dataclass(frozen=True)
class Plan:
    """What is started."""

    folder: Path
    ranks: int = 4
    least: int = 2
    seed: int = 0
    pace: float = 0.02  # seconds that a rank computes in each step
    has_timeline: bool = False


class Hosts(Protocol):
    """A part of virtual_hosts.VirtualHosts."""

    names: list[str]

    def space(self, name: str) -> str: ...
    def address(self, index: int) -> str: ...
    def words(self) -> list[str]: ...
    def environment(self) -> dict[str, str]: ...
    def limit_host(self, name: str, rate: str) -> None: ...


def is_alive(process: Process) -> bool:
    """Whether it is still that process, and no other one with its number."""
    if not processes.is_alive(process.pid):
        return False
    try:
        variables = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return False
    return f"RUEDA_ELASTIC_UID={process.uid}".encode() in variables.split(b"\0")


def costs_of(pid: int) -> dict[str, int]:
    """Descriptors, threads and resident memory of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines if ":" in line)
        return {
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(found["Threads"]),
            "memory_kib": int(found["VmRSS"].split()[0]),
        }
    except (OSError, KeyError, ValueError):
        return {}


class Records:
    """Reads what the processes write, as they write it."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene()
        self._folder = folder
        self._read: dict[str, int] = {}
        self._ended: set[str] = set()

    def read(self) -> Scene:
        """The scene, with all that is there by now."""
        for entry in os.scandir(self._folder):
            if entry.name.endswith(".jsonl") and entry.name not in self._ended:
                self._read_file(entry)
        return self.scene

    def _read_file(self, entry: os.DirEntry[str]) -> None:
        at = self._read.get(entry.name, 0)
        pid = int(entry.name.partition(".")[0])
        if os.stat(entry.path).st_size == at:
            if not processes.state_of(pid):
                self._ended.add(entry.name)
            return
        with open(entry.path, "rb") as file:
            file.seek(at)
            content = file.read()
        whole = content.rpartition(b"\n")[0]
        for line in whole.splitlines():
            self.scene.add(pid, json.loads(line))
        self._read[entry.name] = at + (len(whole) + 1 if whole else 0)


class Job(abc.ABC):
    """It runs from `with` on. The hosts, if any, are there before it and stay."""

    has_launcher: bool

    def __init__(self, plan: Plan, hosts: Hosts | None) -> None:
        self.plan, self.hosts = plan, hosts
        self.log, self.output = plan.folder / "log", plan.folder / "job.txt"
        self.stop_file = plan.folder / "enough"
        self.disk: Path | None = None
        self.records = Records(self.log)
        self._undo = contextlib.ExitStack()
        self.log.mkdir(parents=True)

    @property
    def host_names(self) -> list[str]:
        """As the job knows them."""
        return list(self.hosts.names) if self.hosts else ["localhost"]

    @property
    def checkpoints(self) -> Path:
        """Where rank 0 writes them."""
        return self.disk or self.plan.folder / "disk"

    def __enter__(self) -> Job:
        with contextlib.ExitStack() as undo:
            self.disk = self._mount(undo)
            self._start(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @abc.abstractmethod
    def exit_code(self) -> int | None:
        """What it has ended with; None: it runs."""

    @abc.abstractmethod
    def can_bear(self, members: list[Process], kind: Kind) -> bool:
        """Whether it goes on after such a fault, whichever of its members it strikes. members: by rank."""

    def launcher(self) -> int | None:
        """The pid of `rueda run`, if there is one."""
        return None

    def is_leaving(self, process: Process) -> bool:
        """Whether it has been told to go."""
        return False

    @abc.abstractmethod
    def prepare(self) -> None:
        """A fault is to come."""

    @abc.abstractmethod
    def tend(self) -> None:
        """Called again and again while somebody waits for the job."""

    @abc.abstractmethod
    def _start(self, undo: contextlib.ExitStack) -> None:
        """Starts it, and notes how it is ended."""

    def _program(self) -> list[str]:
        plan = self.plan
        words = [sys.executable, str(HERE / "program.py"), "--log", str(self.log), "--seed", str(plan.seed)]
        words += ["--steps", str(10**9), "--pace", str(plan.pace), "--stop-file", str(self.stop_file)]
        return [*words, "--checkpoints", str(self.checkpoints)]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **(self.hosts.environment() if self.hosts else {}),
            "PYTHONPATH": str(ROOT / "python"),
            "RUEDA_DETERMINISM": "bitwise",
            "RUEDA_PEER_TIMEOUT_SECONDS": str(SILENCE_S),
            "OMP_NUM_THREADS": "1",
            MARK: str(self.plan.folder),
        }

    def _mount(self, undo: contextlib.ExitStack) -> Path | None:
        disk = self.plan.folder / "disk"
        disk.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)]
        if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode != 0:
            return None
        undo.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)
        return disk
