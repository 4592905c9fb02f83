"""Latency, bandwidth and bursts of allreduce in a PyTorch program, next to torch.distributed with gloo.

    rueda run -np 2 python bench/allreduce.py --report out.json

Both libraries run in the same processes, in turns of a few operations, so that both run under the same
conditions. Times are measured on rank 0, from the call until the result is in place. gloo uses TCP over the
loopback interface, with its defaults (two threads, no fusion). rueda uses the transports of RUEDA_TRANSPORTS.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist

import rueda.torch as hvd

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4, 64, KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB]  # bytes of float32
BURST_TENSORS, BURST_BYTES = 200, 4 * KIB
TURNS = 5  # the libraries take turns this often

Operation = Callable[[], object]


def timed(operation: Operation, rounds: int) -> List[float]:
    """Seconds of each of `rounds` calls."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        operation()
        times.append(time.perf_counter() - started)
    return times


def alternate(operations: Dict[str, Operation], rounds: int) -> Dict[str, Dict[str, float]]:
    """Median, 10th and 90th percentile of each in microseconds, after two calls for warming up."""
    times: Dict[str, List[float]] = {name: [] for name in operations}
    for _ in range(TURNS):
        for name, operation in operations.items():
            hvd.barrier()  # both ranks begin a turn together
            times[name] += timed(operation, 2 + rounds)[2:]
    return {name: summary(values) for name, values in times.items()}


def summary(seconds: List[float]) -> Dict[str, float]:
    ordered = sorted(1e6 * value for value in seconds)
    at = {"p10_us": 0.1, "median_us": 0.5, "p90_us": 0.9}
    return {name: ordered[round(share * (len(ordered) - 1))] for name, share in at.items()}


def one_tensor(count: int) -> Dict[str, Operation]:
    """An allreduce in place of `count` float32."""
    data = torch.zeros(count)
    name = f"bench.{count}"
    return {
        "rueda": lambda: hvd.allreduce_(data, op=hvd.Sum, name=name),
        "gloo": lambda: dist.all_reduce(data),
    }


def burst() -> Dict[str, Operation]:
    """Submits many small tensors at once, as after a backward pass, and waits for all."""
    tensors = [torch.zeros(BURST_BYTES // 4) for _ in range(BURST_TENSORS)]

    def by_rueda() -> None:
        handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"burst.{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    def by_gloo() -> None:
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        for work in works:
            work.wait()

    return {"rueda": by_rueda, "gloo": by_gloo}


def measure() -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = []
    for size in SIZES:
        rounds = 3 if size >= 16 * MIB else 20 if size >= MIB else 100
        for library, times in alternate(one_tensor(size // 4), rounds).items():
            bandwidth = size / times["median_us"] / 1e3  # "algorithm bandwidth": bytes of the tensor per time
            rows.append(
                {"what": "allreduce", "bytes": size, "library": library, **times, "gb_per_s": bandwidth}
            )
    total = BURST_TENSORS * BURST_BYTES
    for library, times in alternate(burst(), 5).items():
        row = {"what": f"burst of {BURST_TENSORS}", "bytes": total, "library": library, **times}
        rows.append({**row, "gb_per_s": total / times["median_us"] / 1e3})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="allreduce of rueda and of gloo")
    parser.add_argument(
        "--report", type=Path, required=True, help="rank 0 writes what it measured here, as JSON"
    )
    report: Path = parser.parse_args().report

    torch.set_num_threads(1)
    hvd.init()
    meeting = report.with_suffix(".gloo")
    if hvd.rank() == 0:
        meeting.unlink(missing_ok=True)
    hvd.barrier()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=hvd.rank(), world_size=hvd.size())
    rows = measure()
    if hvd.rank() == 0:
        report.write_text(json.dumps(rows))
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
