"""A job as the records of its processes show it while it runs. Pure: records in, who is a member out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Process:
    """One process of the job, by what it has written."""

    pid: int
    uid: str
    started: float
    view: int = 0  # the last one in which it came to train; 0: none
    rank: int = -1
    steps: int = 0  # commits in this view
    has_ended: bool = False

    @property
    def host(self) -> str:
        """As the launcher names it."""
        return self.uid.rpartition(":")[0]

    @property
    def slot(self) -> int:
        """Of its host."""
        return int(self.uid.rpartition(":")[2].partition("#")[0])


@dataclass(frozen=True)
class Happening:
    """Something that a process wrote at this time: a commit, or that a collective has failed."""

    t: float
    pid: int
    view: int


@dataclass
class Scene:
    """All of them, in the order in which they were read."""

    processes: dict[int, Process] = field(default_factory=dict)
    commits: list[Happening] = field(default_factory=list)
    losses: list[Happening] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)  # by view

    def add(self, pid: int, record: dict) -> None:
        """What this process has written."""
        what, now = record.get("what"), record["t"]
        if what == "start":
            self.processes[pid] = Process(pid, record["uid"], now)
            return
        process = self.processes[pid]
        if what == "view":
            process.view, process.rank, process.steps = record["view"], record["rank"], 0
            self.sizes[process.view] = record["size"]
        elif what == "lost":
            self.losses.append(Happening(now, pid, record["view"]))
        elif what == "end":
            process.has_ended = True
        elif what is None:
            process.steps += 1
            self.commits.append(Happening(now, pid, record["view"]))

    @property
    def view(self) -> int:
        """The newest one in which somebody trains."""
        return max((one.view for one in self.processes.values()), default=0)

    def members(self, is_alive: Callable[[Process], bool]) -> list[Process]:
        """Those that have made a commit in the newest view and live, by rank. None while some are missing."""
        view = self.view
        found = [one for one in self.processes.values() if one.view == view > 0 and one.steps > 0]
        if len(found) < self.sizes.get(view, 0) or not all(map(is_alive, found)):
            return []
        return sorted(found, key=lambda one: one.rank)

    def newcomers(self, since: float) -> list[Process]:
        """Those that were started after this time and are in no view yet."""
        return [one for one in self.processes.values() if one.started > since and one.view == 0]
