"""Ranks that may be killed, stopped and lied to, each a fresh process at the price of a fork.

A nursery process imports torch once and forks the ranks before any of them has called init. Each rank has its
own session, so that whatever it leaves behind can be found.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import pytest
from harness import library, make_job_folder, rank_environment

PRELUDE = """
import json, os, signal, subprocess, sys, threading, time
import torch
import rueda.torch as hvd
def say(what, **facts):
    print(json.dumps({"what": what, "at": time.monotonic(), **facts}), flush=True)
def await_file(name, limit_s=30.0):
    end = time.monotonic() + limit_s
    while not os.path.exists(name):
        assert time.monotonic() < end, f"the test never made {name}"
        time.sleep(0.005)
"""


# ---- the nursery ----


def nurse() -> str:
    """Forks a rank per line of input and reports its end; returns, in a rank, the source it is to run."""
    import gc

    import rueda.torch  # noqa: F401 (what forking saves the ranks)

    gc.freeze()  # a rank's end takes 0.3 s instead of 0.7 s

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    orders = b""
    while True:
        ready, _, _ = select.select([0, reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            tell({"ended": pid, "status": os.waitstatus_to_exitcode(status), "at": time.monotonic()})
        if 0 not in ready:
            continue
        piece = os.read(0, 1 << 20)
        if not piece:
            sys.exit(0)
        *lines, orders = (orders + piece).split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(reading)
                os.close(writing)
                return become_rank(order)
            tell({"started": pid})


def tell(news: Dict[str, Any]) -> None:
    os.write(1, json.dumps(news).encode() + b"\n")


def become_rank(order: Dict[str, Any]) -> str:
    os.setsid()
    nothing = os.open("/dev/null", os.O_RDONLY)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    return str(order["source"])


class Nursery:
    """The test's side of the nursery."""

    def __init__(self) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
        environment = {
            **clean,
            "PYTHONPATH": rank_environment(0, 1, Path("/"), "tcp")["PYTHONPATH"],
            "RUEDA_LIBRARY": library(),
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._buffer = b""
        self.ends: Dict[int, Dict[str, Any]] = {}

    def start(self, order: Dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        started: List[int] = []
        deadline = time.monotonic() + 60  # the first one waits for the import of torch
        while not started:
            assert time.monotonic() < deadline, "the nursery does not answer"
            started = self.listen(1.0)
        return started[0]

    def listen(self, seconds: float) -> List[int]:
        """Takes in news; returns the pids of started ranks."""
        started = []
        ready, _, _ = select.select([self._out], [], [], seconds)
        if ready:
            piece = os.read(self._out, 65536)
            assert piece, "the nursery died"
            *lines, self._buffer = (self._buffer + piece).split(b"\n")
            for line in lines:
                news = json.loads(line)
                if "started" in news:
                    started.append(news["started"])
                else:
                    self.ends[news["ended"]] = news
        return started

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


# ---- jobs ----


def state_of(pid: int) -> Optional[str]:
    """The state letter of a process, or None when it is gone; orphans stay zombies for a while."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


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

    def output(self, rank: int) -> str:
        path = self.folder / f"output.{rank}"
        return path.read_text(errors="replace") if path.exists() else ""

    def said(self, rank: int, what: str) -> List[Dict[str, Any]]:
        """What the rank reported under this heading."""
        records = [
            json.loads(line) for line in self.output(rank).splitlines() if line.startswith('{"what": ')
        ]
        return [record for record in records if record["what"] == what]

    def await_said(self, rank: int, what: str, limit_s: float = 30.0) -> Dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while not (records := self.said(rank, what)):
            self.nursery.listen(0.005)
            if self.pids[rank] in self.nursery.ends or time.monotonic() > deadline:
                raise AssertionError(f"rank {rank} never said '{what}'\n{self.everything()}")
        return records[0]

    def kill(self, rank: int, number: int = signal.SIGKILL) -> float:
        """When."""
        os.kill(self.pids[rank], number)
        return time.monotonic()

    def release(self, name: str) -> None:
        """Lets ranks go on that await this file."""
        (self.folder / name).touch()

    def wait(self, limit_s: float = 30.0, ranks: Optional[Sequence[int]] = None) -> List[int]:
        """Exit statuses; negative: killed by that signal. Late ranks fail the test with their stacks."""
        awaited = [self.pids[rank] for rank in (ranks if ranks is not None else range(len(self.pids)))]
        deadline = time.monotonic() + limit_s
        while late := [pid for pid in awaited if pid not in self.nursery.ends]:
            if time.monotonic() > deadline:
                for pid in late:
                    os.kill(pid, signal.SIGABRT)  # faulthandler prints the stacks
                self.nursery.listen(1.0)
                raise AssertionError(f"{len(late)} ranks still run after {limit_s} s\n{self.everything()}")
            self.nursery.listen(0.1)
        return [self.nursery.ends[pid]["status"] for pid in awaited]

    def ended_at(self, rank: int) -> float:
        return float(self.nursery.ends[self.pids[rank]]["at"])

    def everything(self) -> str:
        parts = []
        for rank, pid in enumerate(self.pids):
            end = self.nursery.ends.get(pid)
            parts.append(f"---- rank {rank}: {end or 'running'} ----\n{self.output(rank)[-6000:]}")
        return "\n".join(parts)

    def assert_ended_well(self, ranks: Optional[Sequence[int]] = None, limit_s: float = 30.0) -> None:
        statuses = self.wait(limit_s, ranks)
        assert all(status == 0 for status in statuses), f"{statuses}\n{self.everything()}"

    def stop(self) -> None:
        for pid in self.pids:
            for member in living_of_session(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        wait_until(lambda: not self._is_any_alive(), 10, "the end of killed ranks")
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
        job = Job(self._nursery, folder)
        self._jobs.append(job)
        for rank in range(size):
            variables = rank_environment(rank, size, folder, transports)
            variables["TMPDIR"] = str(folder / "temporary")
            variables.update(environment or {})
            variables.update(by_rank(rank) if by_rank else {})
            order = {
                "folder": str(folder),
                "output": str(folder / f"output.{rank}"),
                "environment": {k: v.replace("$FOLDER", str(folder)) for k, v in variables.items() if v},
                "source": PRELUDE + body,
            }
            job.pids.append(self._nursery.start(order))
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


@functools.cache
def shared_nursery() -> Nursery:
    nursery = Nursery()
    atexit.register(nursery.stop)
    return nursery


@pytest.fixture(name="jobs")
def make_jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Starts jobs; whatever they leave behind fails the test."""
    failures = request.session.testsfailed
    made = Jobs(shared_nursery())
    yield made
    made.finish(is_checked=request.session.testsfailed == failures)


if __name__ == "__main__":
    source = nurse()
    try:
        # At the top level of the main thread, so that a rank ends as a script does.
        exec(compile(source, "<rank>", "exec"), {"__name__": "__main__"})
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
