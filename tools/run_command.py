"""Runs a command with a time limit, for the tools that run tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Dict, List, Optional, Set

ROOT = Path(__file__).resolve().parent.parent
TIMED_OUT = 1 << 16  # beside exit statuses and signals


class Stopped(Exception):
    """No command is started any more."""


def _processes_of(session: int) -> List[int]:
    """Also those in process groups of their own, such as the commands of ninja."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it has ended
            if os.getsid(pid) == session:
                found.append(pid)
    return found


def _kill_session(session: int) -> None:
    """Several times, because one may start another one meanwhile."""
    for _ in range(5):
        found = _processes_of(session)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.02)


class _Running:
    """The sessions of all threads, each with the number of its first process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: Set[int] = set()
        self._is_over = False

    def start(
        self, command: List[str], output: Optional[IO[str]], env: Dict[str, str]
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_over:
                raise Stopped(f"not run: {' '.join(command[:6])}")
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
            self._sessions.add(process.pid)
            return process

    def remove(self, session: int) -> None:
        """Its first process has ended. If all is over, what that one has left behind ends too."""
        with self._lock:
            self._sessions.discard(session)
            if self._is_over:
                _kill_session(session)

    def signal_all(self, number: signal.Signals) -> None:
        with self._lock:
            self._is_over = True
            for session in self._sessions:
                if number == signal.SIGKILL:
                    _kill_session(session)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(session, number)


_running = _Running()


def end_all(number: signal.Signals) -> None:
    """Sends a signal to everything that run has started, in any thread, and lets it start nothing more."""
    _running.signal_all(number)


def run(
    command: List[str],
    limit_s: float,
    env: Optional[Dict[str, str]] = None,
    output: Optional[IO[str]] = None,
) -> int:
    """Streams the output, or writes it to a file; returns exit status, -signal, or TIMED_OUT (then all its
    processes are killed)."""
    process = _running.start(command, output, {**os.environ, **(env or {})})
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        if process.poll() is None:
            _kill_session(process.pid)
            process.wait()
        _running.remove(process.pid)


def describe_exit(status: int) -> str:
    if status == TIMED_OUT:
        return "ran past its time limit and was killed"
    if status < 0:
        return f"killed by signal {signal.Signals(-status).name}"
    if status == 0:
        return "ended without a whole report"
    return f"ended with exit status {status} although no test failed"
