"""A shell command that ends with everything it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

GRACEFUL_TERMINATION_TIME_S = 5
_LOOK_SECONDS = 0.05
_DRAIN_SECONDS = 3.0  # for output of processes that have left the command's session


def _kill(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)  # the command leads a session, and so a group, of its own


def _terminate(process: subprocess.Popen[bytes]) -> None:
    _kill(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACEFUL_TERMINATION_TIME_S)
    _kill(process, signal.SIGKILL)
    process.wait()


def _forward(source: Any, target: TextIO, prefix: str, with_time: bool) -> None:
    with source:
        for line in source:
            stamp = time.asctime() if with_time else ""
            target.write(f"{stamp}{prefix}{line.decode(errors='replace')}")
            target.flush()


def execute(
    command: str | Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Runs the command and returns its exit status, 128 + n after signal n.

    index: lines get the prefix `[index]<stdout>:`. events: if one is set, the command is ended, with SIGTERM
    and 5 s later SIGKILL; so it is if this call is interrupted. prefix_output_with_timestamp: lines begin
    with the time.
    """
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    sinks = (
        (process.stdout, stdout or sys.stdout, "stdout"),
        (process.stderr, stderr or sys.stderr, "stderr"),
    )
    threads = []
    for source, target, name in sinks:
        prefix = "" if index is None else f"[{index}]<{name}>:"
        call = (source, target, prefix, prefix_output_with_timestamp)
        threads.append(threading.Thread(target=_forward, args=call, daemon=True))
        threads[-1].start()
    try:
        while process.poll() is None:
            if any(event.is_set() for event in events or ()):
                _terminate(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
    finally:
        if process.poll() is None:
            _terminate(process)
        _kill(process, signal.SIGKILL)  # what it has left in its group
        for thread in threads:
            thread.join(_DRAIN_SECONDS)
    status = process.returncode
    return status if status >= 0 else 128 - status
