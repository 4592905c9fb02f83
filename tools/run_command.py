"""Runs a command with a time limit, for the tools that run tests."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import IO, Dict, List, Optional

ROOT = Path(__file__).resolve().parent.parent
TIMED_OUT = 1 << 16  # beside exit statuses and signals


def run(
    command: List[str],
    limit_s: float,
    env: Optional[Dict[str, str]] = None,
    output: Optional[IO[str]] = None,
) -> int:
    """Streams the output, or writes it to a file; returns exit status, -signal, or TIMED_OUT (then all its
    processes are killed)."""
    full_env = {**os.environ, **(env or {})}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=full_env,
        start_new_session=True,
    )
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def describe_exit(status: int) -> str:
    if status == TIMED_OUT:
        return "ran past its time limit and was killed"
    if status < 0:
        return f"killed by signal {signal.Signals(-status).name}"
    return f"ended with exit status {status} although no test failed"
