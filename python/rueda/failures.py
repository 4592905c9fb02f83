"""How ranks of a job failed, and which failure came first. Values in, values out."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field
from typing import Optional

SYMPTOM_SECONDS = 2.0  # how long the other ranks may go on after a failure, as under `rueda run`


@dataclass
class Failure:
    """How a rank failed, as far as it is known."""

    rank: int
    host: str
    pid: int
    what: str  # "was killed by SIGKILL"
    traceback: str = ""
    tail: tuple[str, ...] = ()  # its last lines on stderr

    @property
    def is_symptom(self) -> bool:
        """Whether it says that another rank failed."""
        return "HorovodInternalError" in self.traceback or "Horovod initialization failed" in self.traceback

    @property
    def is_outnumbered(self) -> bool:
        """Whether its error, which all ranks raise that disagree, says that it differs from most of them."""
        named = re.search(r" Outnumbered: ranks? ([0-9, ]+)", self.traceback)
        return named is not None and str(self.rank) in re.findall(r"[0-9]+", named.group(1))

    def sentence(self) -> str:
        """For the exception: the cause, and then the remote traceback or the last lines."""
        text = f"Rank {self.rank} on {self.host} (pid {self.pid}) {self.what}."
        if self.traceback:
            return f"{text}\n{self.traceback.rstrip()}"
        return "\n".join([text, *(f"| {line}" for line in self.tail)])


def describe_status(status: Optional[int]) -> str:
    """What a wait status means; None: it is unknown, because the reaper was killed."""
    if status is None:
        return "was lost: its reaper process was killed"
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


@dataclass
class Progress:
    """What has happened to the job so far; every event comes with the time in seconds."""

    size: int
    failures: list[Failure] = field(default_factory=list)
    failed_at: Optional[float] = None
    ended: set[int] = field(default_factory=set)

    def fail(self, failure: Failure, now: float) -> None:
        """The first failure starts the clock; a rank counts once, and what it raised counts for more."""
        for known in self.failures:
            if known.rank == failure.rank:
                known.traceback = known.traceback or failure.traceback
                return
        self.failures.append(failure)
        if self.failed_at is None:
            self.failed_at = now

    def first_cause(self) -> Optional[Failure]:
        """The first failure that is not a consequence of another one, as far as one can tell."""
        causes = [one for one in self.failures if not one.is_symptom]
        outnumbered = [one for one in self.failures if one.is_outnumbered]
        return next(iter(causes or outnumbered or self.failures), None)

    def must_stop(self, now: float) -> bool:
        """Whether the ranks that still run have had their time."""
        return self.failed_at is not None and now >= self.failed_at + SYMPTOM_SECONDS
