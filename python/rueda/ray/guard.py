"""Ends what a rank on Ray has started when the rank itself has ended, however it ended.

    python -I -S guard.py PID NAME=value

PID is the rank. After its end, two kinds of processes get SIGKILL: those whose first environment has
NAME=value, which all programs that the rank has started inherit, and those that it has forked, whose numbers
it writes to stdin (8 bytes each, in the byte order of the machine). Both are found even if they have made a
session for themselves. Processes whose parent is Ray's raylet are Ray's own and are left alone. The socket of
a killed rank is removed.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import select
import signal
import struct
import sys
import time
from typing import NamedTuple, Optional

_DEAD_SOCKETS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "dead_sockets.py")
_SECONDS = 5.0
_QUIET_LOOKS = 3
_LOOK_MS = 250  # where the kernel cannot report the end of a process that is no child


class Process(NamedTuple):
    """What tells a living process from a later one of the same number."""

    pid: int
    parent: int
    started: int  # clock ticks since the machine's start


def look(pid: int) -> Optional[Process]:
    """None if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        if fields[0] not in (b"Z", b"X"):
            return Process(pid, int(fields[1]), int(fields[19]))
    return None


def _is_rays(pid: int) -> bool:
    process = look(pid)
    with contextlib.suppress(OSError):
        return process is not None and open(f"/proc/{process.parent}/comm", "rb").read() == b"raylet\n"
    return False


def _is_marked(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return mark in file.read().split(b"\0")
    return False


def left_over(mark: bytes, forked: dict[int, Process]) -> list[int]:
    """What the rank has started and is still alive."""
    own = os.getpid()
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    marked = [pid for pid in pids if pid != own and _is_marked(pid, mark)]
    still = [
        one.pid
        for one in forked.values()
        if (now := look(one.pid)) is not None and now.started == one.started
    ]
    return [pid for pid in {*marked, *still} if look(pid) is not None and not _is_rays(pid)]


def kill_left_over(mark: bytes, forked: dict[int, Process]) -> None:
    """Kills all there are, and those they have started meanwhile: several looks must find nothing."""
    deadline = time.monotonic() + _SECONDS
    quiet = 0
    while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
        left = left_over(mark, forked)
        quiet = 0 if left else quiet + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def watch(rank: Process) -> dict[int, Process]:
    """Returns when the rank has ended, with the processes that it had forked until then."""
    forked: dict[int, Process] = {}
    poll = select.poll()
    poll.register(0, select.POLLIN)
    timeout: Optional[int] = None
    end = -1
    try:
        end = os.pidfd_open(rank.pid)
        poll.register(end, select.POLLIN)
    except (AttributeError, OSError):
        timeout = _LOOK_MS
    while True:
        ready = dict(poll.poll(timeout))
        if 0 in ready:
            data = os.read(0, 8) if ready[0] & select.POLLIN else b""
            if len(data) == 8:
                (pid,) = struct.unpack("q", data)
                if (process := look(pid)) is not None:
                    forked[pid] = process
                continue  # what was forked before the end is read before the end counts
            poll.unregister(0)
        now = look(rank.pid)
        if end in ready or now is None or now.started != rank.started:
            return forked


def main() -> int:
    rank = look(int(sys.argv[1]))
    if rank is None:
        return 1
    if os.fork() != 0:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with open(os.devnull, "r+b") as nothing:  # Ray's log files must end with the rank
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    kill_left_over(sys.argv[2].encode(), watch(rank))
    runpy.run_path(_DEAD_SOCKETS)["remove_dead_sockets"]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
