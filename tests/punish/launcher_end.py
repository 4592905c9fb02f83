"""Kills the launcher of a job, which the job cannot survive, and looks at what is left: no process, and a
checkpoint with which another job goes on to the right bits.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from history import Commit, history_of, read, resumed
from job import HERE, MARK, Job
from processes import is_alive
from undisturbed import run_job

END_LIMIT_S = 60.0  # twice the --agent-timeout of the job, for agents whose connection does not end
RESUME_LIMIT_S = 240.0
MORE_STEPS = 12  # that the other job makes


@dataclass(frozen=True)
class Ending:
    """What was found. faults: sentences about what should not be so."""

    ended_s: float
    checkpoint: int  # its step; -1: there is none
    faults: tuple[str, ...]


def kill_launcher(job: Job) -> Ending:
    """Returns when all processes of the job have ended, or should have."""
    pid = job.launcher()
    assert pid is not None, "there is no launcher"
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while (left := _processes_of(job)) and time.monotonic() < began + END_LIMIT_S:
        job.exit_code()  # reaps it
        time.sleep(0.05)
    ended_s = time.monotonic() - began
    step = max((int(path.stem) for path in job.checkpoints.glob("*.npz")), default=-1)
    faults = [f"process {one} has outlived its launcher by {END_LIMIT_S:.0f} s" for one in left]
    faults += [] if step >= 0 else ["no checkpoint is left"]
    return Ending(round(ended_s, 2), step, tuple(faults))


def resume(job: Job, step: int) -> list[Commit]:
    """The history of the job up to this checkpoint, and of another job that goes on from there."""
    log = job.plan.folder / "resumed"
    words = [str(HERE / "program.py"), "--log", str(log), "--seed", str(job.plan.seed)]
    words += ["--resume", str(job.checkpoints / f"{step}.npz"), "--steps", str(step + MORE_STEPS)]
    run_job("resume", job.plan.ranks, words, RESUME_LIMIT_S)
    return resumed(history_of(read(job.log)), read(log), step)


def _processes_of(job: Job) -> list[int]:
    mark = f"{MARK}={job.plan.folder}".encode()
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in variables and is_alive(int(entry)):
            found.append(int(entry))
    return found
