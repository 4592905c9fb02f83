"""Runs `rueda simulate` as a user does, and the smallest workload for it."""

from __future__ import annotations

import subprocess

from launch_support import RUEDA

TINY = {
    "name": "tiny",
    "source": "",
    "compute_source": "",
    "compute_ms": 10,
    "parameters": [["w", 1000]],
    "total": 1000,
}


def simulate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [RUEDA, "simulate", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
