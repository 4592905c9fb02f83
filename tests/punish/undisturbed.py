"""Runs a job that nobody disturbs to its end."""

from __future__ import annotations

import os
import subprocess
import sys


def run_job(what: str, ranks: int, program: list[str], limit_s: float, **variables: str) -> None:
    """Raises SystemExit with all that it printed if it fails. what: wants this job, for that message.
    program: a script of Python, and its arguments.
    """
    command = [os.environ.get("RUEDA_BIN", "rueda"), "run", "-np", str(ranks), sys.executable, *program]
    bitwise = {"RUEDA_DETERMINISM": "bitwise", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **bitwise, **variables},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise SystemExit(f"{what}: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
