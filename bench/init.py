"""Measures how a job on this machine starts: how long init takes, how many descriptors ranks hold after it,
and what a 4-byte allreduce costs then.

    python bench/init.py --ranks 8,32,64,128,256 --report out.json

The time of init counts from the moment the last rank calls it until it has returned on all ranks. Processes
start one after the other, and that is not what init does. `slowest` is the longest call of one rank, which
waits for those that start later. RUEDA_BIN and RUEDA_LIBRARY select another build.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Sequence

FOLDER = "RUEDA_BENCH_INIT"  # where a rank writes what it has seen
CALLS = 20  # of the 4-byte allreduce; the first ones open connections and learn the plan
COLUMNS = ("ranks", "init_s", "slowest_s", "descriptors_of_0", "most_of_others", "first_ms", "allreduce_ms")


def allreduce(core: Any, name: bytes) -> float:
    """Seconds of one allreduce of 4 bytes."""
    value, shape = ctypes.c_float(1), ctypes.c_int64(1)
    request = core.Request(
        struct_size=core.REQUEST_BYTES,
        what=core.ALLREDUCE,
        dtype=core.FLOAT32,
        op=core.SUM,
        name=name,
        prescale=1,
        postscale=1,
        ndim=1,
        device=-1,
        shape=ctypes.pointer(shape),
        input=ctypes.addressof(value),
        output=ctypes.addressof(value),
    )
    handle = ctypes.c_int64()
    began = time.monotonic()
    status = core.submit_for_wait(ctypes.byref(request), 1, ctypes.byref(handle))
    if status == 0:
        status = core.wait(handle.value, 300.0)
    if status != 0:
        raise SystemExit(f"init: an allreduce failed: {core.last_error()}")
    took = time.monotonic() - began
    core.release(handle.value)
    if value.value != core.size():
        raise SystemExit(f"init: the sum of {core.size()} ones is {value.value}")
    return took


def run_rank(folder: Path) -> None:
    """One rank of the job that is measured."""
    from rueda import _core as core

    began = time.monotonic()
    if core.init(None) != core.OK:
        raise SystemExit(f"init: {core.last_error()}")
    ended = time.monotonic()
    descriptors = len(os.listdir("/proc/self/fd")) - 1  # listing opens one
    times = [allreduce(core, b"small") for _ in range(CALLS)]
    seen = {"began": began, "ended": ended, "descriptors": descriptors, "times": times}
    (folder / str(core.rank())).write_text(json.dumps(seen))
    core.shutdown()


def summarize(ranks: Sequence[Dict[str, Any]]) -> Dict[str, float]:
    """The row of one job. ranks: what each rank has seen, by rank; their clocks are one."""
    began = [float(one["began"]) for one in ranks]
    ended = [float(one["ended"]) for one in ranks]
    descriptors = [int(one["descriptors"]) for one in ranks]
    times: List[List[float]] = [one["times"] for one in ranks]
    slowest = [max(of_ranks) for of_ranks in zip(*times)]  # of each call
    return {
        "ranks": len(ranks),
        "init_s": max(ended) - max(began),
        "slowest_s": max(end - begin for begin, end in zip(began, ended)),
        "descriptors_of_0": descriptors[0],
        "most_of_others": max(descriptors[1:], default=0),
        "first_ms": slowest[0] * 1e3,
        "allreduce_ms": median(slowest[len(slowest) // 2 :]) * 1e3,
    }


def rueda() -> str:
    """The command `rueda` of this environment, or that which RUEDA_BIN names."""
    found = os.environ.get("RUEDA_BIN") or shutil.which("rueda", path=Path(sys.executable).parent)
    if not found:
        raise SystemExit("init: there is no command `rueda` beside this Python; set RUEDA_BIN to its path")
    return found


def measure(ranks: int, limit_s: float) -> Dict[str, float]:
    """Runs one job of that many ranks on this machine."""
    with tempfile.TemporaryDirectory(prefix="rueda-bench-init-") as folder:
        command = [rueda(), "run", "-np", str(ranks), sys.executable, __file__]
        environment = {**os.environ, FOLDER: folder}
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"init: {ranks} ranks took more than --limit {limit_s:g} s") from None
        if done.returncode != 0:
            raise SystemExit(f"init: the job of {ranks} ranks ended with exit status {done.returncode}")
        return summarize([json.loads((Path(folder) / str(rank)).read_text()) for rank in range(ranks)])


def main() -> None:
    if FOLDER in os.environ:
        return run_rank(Path(os.environ[FOLDER]))
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--ranks", default="8,32,64,128,256", help="sizes of jobs (8,32,64,128,256)")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one job may take (300)")
    parser.add_argument("--report", type=Path, help="writes the rows as JSON")
    arguments = parser.parse_args()
    try:
        sizes = [int(word) for word in arguments.ranks.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise SystemExit(f"init: --ranks {arguments.ranks} is no list of sizes; write it as 8,32,64")
    print(" ".join(f"{name:>16}" for name in COLUMNS), flush=True)
    rows = []
    for size in sizes:
        rows.append(measure(size, arguments.limit))
        print(" ".join(f"{round(rows[-1][name], 3):>16}" for name in COLUMNS), flush=True)
    if arguments.report:
        arguments.report.write_text(json.dumps(rows, indent=1))
    return None


if __name__ == "__main__":
    main()
