"""Starts the ranks of one part of the GPU suite, and ends them at its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

PARTS = Path(__file__).resolve().parent / "parts"
RESULT = "RESULT "  # begins the line in which a part says what it has measured
_TAIL_BYTES = 4000
_PRIVATE = ("RUEDA_RANK", "RUEDA_SIZE", "RUEDA_LOCAL", "RUEDA_STORE", "HOROVOD_", "OMPI_", "PMI_", "SLURM_")


@dataclass
class Outcome:
    """What became of one part."""

    name: str
    ranks: int
    status: str  # "passed", "failed", "late" or "skipped"
    seconds: float = 0.0
    result: Dict[str, Any] = field(default_factory=dict)  # of rank 0
    why: str = ""  # the end of the output of a rank that failed


# NCCL refuses two ranks on one GPU unless it is told to allow them. From 2.30 on it has a switch; to older
# versions, each rank says that it is a host of its own. Ranks that share a GPU cannot add in its switches.
SHARING = {
    "switch": lambda rank: {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"},
    "hosts": lambda rank: {
        "NCCL_HOSTID": f"rank-{rank}",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "lo",
    },
}


def environment_of(rank: int, ranks: int, folder: Path) -> Dict[str, str]:
    """What a launcher would tell this rank. All ranks are on this host, and may share a GPU."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return {
        **clean,
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "RUEDA_RANK": str(rank),
        "RUEDA_SIZE": str(ranks),
        "RUEDA_LOCAL_RANK": str(rank),
        "RUEDA_LOCAL_SIZE": str(ranks),
        "RUEDA_STORE": f"file://{folder}/store",
        "RUEDA_SECRET_FILE": str(folder / "secret"),
        "MASTER_ADDR": "127.0.0.1",
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
    }


def run_part(
    name: str,
    ranks: int,
    limit_s: float,
    settings: Optional[Dict[str, str]] = None,
    sharing: str = "",
    command: Optional[List[str]] = None,
    kills_last: bool = False,
) -> Outcome:
    """Runs parts/NAME.py on every rank and waits at most limit_s seconds. A rank that fails ends the others.

    settings: further variables; sharing: a key of SHARING; command: what runs Python, for instance a checker;
    kills_last: the last rank is to end by SIGKILL.
    """
    ends = [0] * ranks
    if kills_last:
        ends[-1] = -signal.SIGKILL
    folder = Path(tempfile.mkdtemp(prefix="rueda-gpu-"))
    (folder / "store").mkdir()
    (folder / "secret").touch(mode=0o600)
    (folder / "secret").write_text(secrets.token_hex(32))
    began = time.monotonic()
    processes: List[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            variables = {**environment_of(rank, ranks, folder), **(settings or {})}
            variables.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
            variables.update(SHARING[sharing](rank) if sharing else {})
            with open(folder / f"output.{rank}", "wb") as output:
                processes.append(
                    subprocess.Popen(
                        [*(command or []), sys.executable, str(PARTS / f"{name}.py")],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=variables,
                        cwd=folder,
                        start_new_session=True,
                    )
                )
        status = _wait(processes, ends, began + limit_s)
        outputs = [(folder / f"output.{rank}").read_text(errors="replace") for rank in range(ranks)]
        unexpected = [
            None if process.returncode == end else process.returncode for process, end in zip(processes, ends)
        ]
        return _outcome(name, status, unexpected, outputs, began)
    finally:
        _end(processes)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(processes: List[subprocess.Popen[bytes]], ends: List[int], deadline: float) -> str:
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if codes == ends:
            return "passed"
        if any(code not in (None, end) for code, end in zip(codes, ends)):
            time.sleep(2.0)  # so that the others can say what they know
            return "failed"
        time.sleep(0.05)
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGABRT)  # faulthandler prints where it is
    time.sleep(1.0)
    return "late"


def _end(processes: List[subprocess.Popen[bytes]]) -> None:
    running = [process for process in processes if process.poll() is None]
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # its session, which holds only what it started
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs may hold it
            process.wait(10)


def _outcome(name: str, status: str, codes: List[Optional[int]], outputs: List[str], began: float) -> Outcome:
    outcome = Outcome(name, len(outputs), status, round(time.monotonic() - began, 1))
    for line in outputs[0].splitlines():
        if line.startswith(RESULT):
            outcome.result.update(json.loads(line[len(RESULT) :]))
    skipped = outcome.result.pop("skipped", "")
    if skipped and status != "late" and not any(codes):
        outcome.status, outcome.why = "skipped", skipped
        return outcome
    if status == "passed":
        outcome.status = status
        return outcome
    guilty = next((rank for rank, code in enumerate(codes) if code not in (None, 0)), 0)
    outcome.why = f"rank {guilty} ended with {codes[guilty]}:\n{outputs[guilty][-_TAIL_BYTES:]}"
    return outcome
