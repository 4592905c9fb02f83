"""An elastic job of `rueda run` that is punished: its processes, hosts, disk and records."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scene import Process, Scene

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/multiprocess"))  # virtual hosts

# A slot rests for up to a minute when its process was killed, so there are many more than ranks.
SLOTS = 32
DISK = "16m"
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
    most_slots: int = SLOTS  # those that the job is offered at first, of each host


class Hosts(Protocol):
    """A part of virtual_hosts.VirtualHosts."""

    names: list[str]

    def space(self, name: str) -> str: ...
    def words(self) -> list[str]: ...
    def environment(self) -> dict[str, str]: ...
    def limit_host(self, name: str, rate: str) -> None: ...


def state_of(pid: int) -> str:
    """Its letter in /proc, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_alive(process: Process) -> bool:
    """Whether it is still that process, and no other one with its number."""
    if state_of(process.pid) in ("", "Z", "X"):
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
            if not state_of(pid):
                self._ended.add(entry.name)
            return
        with open(entry.path, "rb") as file:
            file.seek(at)
            content = file.read()
        whole = content.rpartition(b"\n")[0]
        for line in whole.splitlines():
            self.scene.add(pid, json.loads(line))
        self._read[entry.name] = at + (len(whole) + 1 if whole else 0)


class Job:
    """It runs from `with` on. The hosts, if any, are there before it and stay."""

    def __init__(self, plan: Plan, hosts: Hosts | None) -> None:
        self.plan, self.hosts = plan, hosts
        self.log, self.output = plan.folder / "log", plan.folder / "job.txt"
        self.stop_file = plan.folder / "enough"
        self.disk: Path | None = None
        self.most_slots = plan.most_slots
        self._hosts_file = plan.folder / "hosts.txt"
        self._undo = contextlib.ExitStack()
        self.log.mkdir(parents=True)

    @property
    def host_names(self) -> list[str]:
        """As the launcher knows them."""
        return list(self.hosts.names) if self.hosts else ["localhost"]

    def __enter__(self) -> Job:
        with contextlib.ExitStack() as undo:
            self.disk = self._mount(undo)
            each = -(-self.plan.ranks // len(self.host_names))
            self.offer({name: each for name in self.host_names} if self.hosts else {})
            output = undo.enter_context(open(self.output, "wb"))
            self.process = subprocess.Popen(
                self._command(),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            undo.callback(self._end)
            self.records = Records(self.log)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def offer(self, slots: dict[str, int] | None = None) -> None:
        """What the discovery script says from now on: so many slots of these hosts, and all of the others."""
        counts = {name: (slots or {}).get(name, self.most_slots) for name in self.host_names}
        self._offered = counts
        partial = self._hosts_file.with_suffix(".new")
        partial.write_text("".join(f"{name}:{count}\n" for name, count in counts.items() if count))
        partial.rename(self._hosts_file)

    def spread(self) -> None:
        """Offers everything, but where one of several hosts has all processes, nothing more of that one."""
        living = [one for one in self.records.scene.processes.values() if is_alive(one)]
        used = {one.host for one in living}
        is_crowded = len(used) == 1 < len(self.host_names)
        self.offer({name: max(one.slot for one in living) + 1 for name in used} if is_crowded else {})

    def is_leaving(self, process: Process) -> bool:
        """Whether its slot is no longer offered."""
        return process.slot >= self._offered[process.host]

    def launcher(self) -> int:
        """The pid of `rueda run`: what the words before it have become."""
        return self.process.pid

    def _mount(self, undo: contextlib.ExitStack) -> Path | None:
        disk = self.plan.folder / "disk"
        disk.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)]
        if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode != 0:
            return None
        undo.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)
        return disk

    def _command(self) -> list[str]:
        plan = self.plan
        rueda = os.environ.get("RUEDA_BIN", "rueda")
        before = self.hosts.words() if self.hosts else []
        command = [*before, rueda, "run", "-np", str(plan.ranks), "--min-np", str(plan.least)]
        command += ["--max-np", str(plan.ranks), "--host-discovery-script", f"cat {self._hosts_file}"]
        command += ["--elastic-timeout", "120", "--agent-timeout", "30"]
        program = [sys.executable, str(HERE / "program.py"), "--log", str(self.log), "--seed", str(plan.seed)]
        program += ["--steps", str(10**9), "--pace", str(plan.pace), "--stop-file", str(self.stop_file)]
        if self.disk:
            command += ["--log-dir", str(self.disk / "logs")]
            program += ["--checkpoints", str(self.disk)]
        if self.disk and plan.has_timeline:
            command += ["--timeline-filename", str(self.disk / "timeline.json")]
        return command + program

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **(self.hosts.environment() if self.hosts else {}),
            "PYTHONPATH": str(ROOT / "python"),
            "RUEDA_DETERMINISM": "bitwise",
            "RUEDA_PEER_TIMEOUT_SECONDS": str(SILENCE_S),
            "OMP_NUM_THREADS": "1",
        }

    def _end(self) -> None:
        """Ends what still runs: the launcher ends all others."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
