"""Jobs whose ranks may be killed, stopped and lied to, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import pytest
from harness import PATIENCE, make_job_folder, rank_environment
from nursery import Nursery, shared_nursery, torch_imports

LIMIT_S = 90.0 * PATIENCE  # ends what hangs, also on a machine that does much else

PRELUDE = """
import json, os, signal, subprocess, sys, threading, time
import torch
import rueda.torch as hvd
def say(what, **facts):
    print(json.dumps({"what": what, "at": time.monotonic(), **facts}), flush=True)
def await_file(name, limit_s=120.0):
    end = time.monotonic() + limit_s
    while not os.path.exists(name):
        assert time.monotonic() < end, f"the test never made {name}"
        time.sleep(0.005)
"""


# ---- jobs ----


def living_of_session(session: int) -> List[int]:
    """pids of the living processes of a session."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(entry))
    return found


def wait_until(claim: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not claim():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.005)


@dataclass
class Job:
    """Ranks of one job, each running the same source."""

    nursery: Nursery
    folder: Path
    pids: List[int] = field(default_factory=list)
    source: str = ""
    environments: List[Dict[str, str]] = field(default_factory=list)

    def start_rank(self, rank: int) -> int:
        output = self.folder / f"output.{rank}"
        return self.nursery.start(self.source, self.folder, output, self.environments[rank])

    def start_again(self, rank: int) -> None:
        """A successor of a rank that has ended; what it says replaces what that one said."""
        self.pids[rank] = self.start_rank(rank)

    def output(self, rank: int) -> str:
        path = self.folder / f"output.{rank}"
        return path.read_text(errors="replace") if path.exists() else ""

    def said(self, rank: int, what: str) -> List[Dict[str, Any]]:
        """What the rank reported under this heading."""
        records = [
            json.loads(line) for line in self.output(rank).splitlines() if line.startswith('{"what": ')
        ]
        return [record for record in records if record["what"] == what]

    def await_said(self, rank: int, what: str, limit_s: float = LIMIT_S) -> Dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while True:
            is_last = self.pids[rank] in self.nursery.ends or time.monotonic() > deadline
            if records := self.said(rank, what):  # asked after that: it may say so and end at once
                return records[0]
            if is_last:
                raise AssertionError(f"rank {rank} never said '{what}'\n{self.everything()}")
            self.nursery.listen(0.005)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> float:
        """When."""
        os.kill(self.pids[rank], number)
        return time.monotonic()

    def release(self, name: str) -> None:
        """Lets ranks go on that await this file."""
        (self.folder / name).touch()

    def wait(self, limit_s: float = LIMIT_S, ranks: Optional[Sequence[int]] = None) -> List[int]:
        """Exit statuses; negative: killed by that signal. Late ranks fail the test with their stacks."""
        awaited = [self.pids[rank] for rank in (ranks if ranks is not None else range(len(self.pids)))]
        if not self.nursery.await_ends(awaited, limit_s):
            late = [pid for pid in awaited if pid not in self.nursery.ends]
            for pid in late:
                os.kill(pid, signal.SIGABRT)  # faulthandler prints the stacks
            self.nursery.listen(1.0)
            raise AssertionError(f"{len(late)} ranks still run after {limit_s} s\n{self.everything()}")
        return [self.nursery.ends[pid]["status"] for pid in awaited]

    def ended_at(self, rank: int) -> float:
        return float(self.nursery.ends[self.pids[rank]]["at"])

    def everything(self) -> str:
        parts = []
        for rank, pid in enumerate(self.pids):
            end = self.nursery.ends.get(pid)
            parts.append(f"---- rank {rank}: {end or 'running'} ----\n{self.output(rank)[-6000:]}")
        return "\n".join(parts)

    def assert_ended_well(self, ranks: Optional[Sequence[int]] = None, limit_s: float = LIMIT_S) -> None:
        statuses = self.wait(limit_s, ranks)
        assert all(status == 0 for status in statuses), f"{statuses}\n{self.everything()}"

    def stop(self) -> None:
        for pid in self.pids:
            for member in living_of_session(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        wait_until(lambda: not self._is_any_alive(), LIMIT_S, "the end of killed ranks")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_any_alive(self) -> bool:
        return any(living_of_session(pid) for pid in self.pids)


class Jobs:
    """Starts jobs and, at the end of the test, checks that they left nothing behind."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._jobs: List[Job] = []
        self._shared_memory = set(os.listdir("/dev/shm"))

    def start(
        self,
        size: int,
        body: str,
        environment: Optional[Dict[str, str]] = None,
        transports: str = "shm,tcp",
        by_rank: Optional[Callable[[int], Dict[str, str]]] = None,
    ) -> Job:
        folder = make_job_folder()
        (folder / "temporary").mkdir()
        job = Job(self._nursery, folder, source=PRELUDE + body)
        self._jobs.append(job)
        for rank in range(size):
            variables = rank_environment(rank, size, folder, transports)
            variables["TMPDIR"] = str(folder / "temporary")
            variables.update(environment or {})
            variables.update(by_rank(rank) if by_rank else {})
            given = {k: v.replace("$FOLDER", str(folder)) for k, v in variables.items() if v}
            job.environments.append(given)
            job.pids.append(job.start_rank(rank))
        return job

    def finish(self, is_checked: bool) -> None:
        """is_checked: what is left behind is a failure."""
        left: Dict[str, Any] = {}
        for number, job in enumerate(self._jobs):
            left[f"processes of job {number}"] = [m for pid in job.pids for m in living_of_session(pid)]
            left[f"files of job {number}"] = os.listdir(job.folder / "temporary")
            job.stop()
        left["shared memory"] = [
            name for name in set(os.listdir("/dev/shm")) - self._shared_memory if "rueda" in name
        ]
        if is_checked:
            assert not any(left.values()), left


@pytest.fixture(name="jobs")
def make_jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Starts jobs; whatever they leave behind fails the test."""
    failures = request.session.testsfailed
    made = Jobs(shared_nursery(torch_imports()))
    yield made
    made.finish(is_checked=request.session.testsfailed == failures)
