"""A shell command that ends with everything it has started, at the latest when its caller does."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rueda.run import find_command

GRACEFUL_TERMINATION_TIME_S = 5
_LOOK_SECONDS = 0.05
_REAPER_SECONDS = 10.0  # for the reaper, to kill what is left
_KILLED = 128 + signal.SIGKILL
_DRAIN_SECONDS = 3.0  # for output that has not been read when the command has ended


def _words(command: str | Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The command as execv takes it. FileNotFoundError if there is no such program."""
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    program = shutil.which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise FileNotFoundError(f"There is no program {command[0]!r} to execute: give its path, or set PATH.")
    return [program, *command[1:]]


class _Kept:
    """A command below a reaper, which kills it when this object, or this process, ends."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        pipes = (os.pipe(), os.pipe())
        self.sources = [os.fdopen(reader, "rb") for reader, _ in pipes]
        writers = [writer for _, writer in pipes]
        try:
            self._reaper = subprocess.Popen(
                [find_command(), "reap", "below", *map(str, writers), *words],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=writers,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            for writer in writers:
                os.close(writer)
        self._said = b""

    def status(self, seconds: float) -> int | None:
        """What the shell would say of the command: 128 + n after signal n. None if it runs on meanwhile."""
        assert self._reaper.stdout is not None
        while select.select([self._reaper.stdout], [], [], seconds)[0]:
            part = self._reaper.stdout.read(512)
            self._said += part
            lines = self._said.split(b"\n")
            ended = next((line for line in lines[:-1] if line.startswith(b"ended ")), None)
            if ended is not None:
                status = os.waitstatus_to_exitcode(int(ended.split()[1]))
                return status if status >= 0 else 128 - status
            if not part:  # the reaper, or the command before it had ended, was killed
                return _KILLED
        return None

    def terminate(self) -> None:
        """Asks the command, and what it has started, to end."""
        assert self._reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._reaper.stdin.write(b"A")

    def close(self) -> None:
        """Kills what is left."""
        assert self._reaper.stdin is not None and self._reaper.stdout is not None
        self._reaper.stdin.close()
        try:
            self._reaper.wait(_REAPER_SECONDS)
        except subprocess.TimeoutExpired:
            self._reaper.kill()
            self._reaper.wait()
        self._reaper.stdout.close()


def _forward(source: Any, target: TextIO, prefix: str, with_time: bool) -> None:
    with source:
        for line in source:
            stamp = time.asctime() if with_time else ""
            target.write(f"{stamp}{prefix}{line.decode(errors='replace')}")
            target.flush()


def _wait(kept: _Kept, events: Sequence[threading.Event]) -> int:
    """The exit status of the command, which has some seconds to end once an event is set."""
    deadline = None
    while (status := kept.status(_LOOK_SECONDS)) is None:
        if deadline is None and any(event.is_set() for event in events):
            kept.terminate()
            deadline = time.monotonic() + GRACEFUL_TERMINATION_TIME_S
        if deadline is not None and time.monotonic() > deadline:
            return _KILLED
    return status


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
    and 5 s later SIGKILL; so it is if this call is interrupted. If this process ends, however that happens,
    the command is killed. prefix_output_with_timestamp: lines begin with the time.
    """
    variables = dict(os.environ if env is None else env)
    kept = _Kept(_words(command, variables), variables)
    threads = []
    targets = ((stdout or sys.stdout, "stdout"), (stderr or sys.stderr, "stderr"))
    for source, (target, name) in zip(kept.sources, targets):
        prefix = "" if index is None else f"[{index}]<{name}>:"
        call = (source, target, prefix, prefix_output_with_timestamp)
        threads.append(threading.Thread(target=_forward, args=call, daemon=True))
        threads[-1].start()
    try:
        return _wait(kept, events or ())
    except BaseException:  # Ctrl-C
        now = threading.Event()
        now.set()
        _wait(kept, [now])
        raise
    finally:
        kept.close()
        for thread in threads:
            thread.join(_DRAIN_SECONDS)
