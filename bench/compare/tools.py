"""Finds programs, builds them, runs them with a time limit, and reads times from their files."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Unavailable(Exception):
    """The reason why a peer does not take part, as one sentence."""


def rueda_command() -> str:
    """The `rueda` command: RUEDA_BIN, or the one beside this Python, or that of the release build."""
    places = [
        os.environ.get("RUEDA_BIN"),
        Path(sys.executable).parent / "rueda",
        ROOT / "build/release/bin/rueda",
    ]
    for place in places:
        if place and Path(place).exists():
            return str(place)
    raise SystemExit("compare: the rueda command was not found; run make setup, or set RUEDA_BIN")


def run(command: List[str], limit_s: float, env: Optional[Dict[str, str]] = None) -> None:
    """Runs a command that must succeed. If it takes too long, its whole process group is ended."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_for([process], command, limit_s)


def run_ranks(commands: List[List[str]], limit_s: float, env: Optional[Dict[str, str]] = None) -> None:
    """Starts one process per rank and waits for all."""
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for command in commands
    ]
    wait_for(processes, commands[0], limit_s)


def wait_for(processes: List[subprocess.Popen[str]], command: List[str], limit_s: float) -> None:
    try:
        for process in processes:
            said, _ = process.communicate(timeout=limit_s)
            if process.returncode != 0:
                lines = said.strip().splitlines() or ["it printed nothing"]
                why = next((line for line in lines if "error" in line.lower()), lines[-1])
                raise Unavailable(f"{Path(command[0]).name} ended with status {process.returncode}: {why}")
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} did not end within {limit_s:.0f} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.communicate()


def compile_peer(compiler: str, source: str, out: Path, flags: List[str]) -> Path:
    """Builds a program of this folder once."""
    if not shutil.which(compiler):
        raise Unavailable(f"{compiler} is not installed")
    program = out / f"{Path(source).stem}.{Path(compiler).name}"
    if not program.exists() or program.stat().st_mtime < (HERE / source).stat().st_mtime:
        run([compiler, "-O2", str(HERE / source), "-o", str(program), *flags], 120)
    return program


def call_medians(out: Path, ranks: int) -> Dict[str, float]:
    """Microseconds from the last rank's start to the last rank's end: the median over the calls, by label."""
    starts: Dict[str, List[List[int]]] = {}
    ends: Dict[str, List[List[int]]] = {}
    for rank in range(ranks):
        own_starts: Dict[str, List[int]] = {}
        own_ends: Dict[str, List[int]] = {}
        for line in Path(f"{out}.{rank}").read_text().splitlines():
            label, start, end = line.split()
            own_starts.setdefault(label, []).append(int(start))
            own_ends.setdefault(label, []).append(int(end))
        for label in own_starts:
            starts.setdefault(label, []).append(own_starts[label])
            ends.setdefault(label, []).append(own_ends[label])
    return {
        label: statistics.median(
            (max(end) - max(start)) / 1e3 for start, end in zip(zip(*starts[label]), zip(*ends[label]))
        )
        for label in starts
    }


def model_path(name: str) -> Path:
    path = ROOT / "bench" / "models" / f"{name}.json"
    if not path.exists():
        known = ", ".join(sorted(one.stem for one in path.parent.glob("*.json")))
        raise SystemExit(f"compare: unknown model {name}; choose from {known}")
    return path


def model_counts(name: str) -> List[int]:
    return [count for _, count in json.loads(model_path(name).read_text())["parameters"]]
