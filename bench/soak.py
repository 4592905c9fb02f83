"""Measures the resident memory of every rank while the same operations repeat: does it grow, and how fast?

    rueda run -np 2 python bench/soak.py --minutes 60 --report out.json

Sizes and names are fixed, so after the first moments no new memory is needed. If memory still grows,
something leaks. Prints each rank's resident memory (VmRSS, which counts shared pages too) over time and
the slope of a straight line through it, by least squares, with its standard error. Samples of the warm-up
are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import numpy as np

import rueda.numpy as hvd

SIZES = (1, 1_000, 65_536, 1_000_000)  # float32 elements
SAMPLES = 240
ROWS = 10  # of the table


def resident_mb() -> float:
    """The resident memory of this process, in MB (10^6 bytes)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit("soak: /proc/self/status has no VmRSS; this measures on Linux only")


def slope(times: Sequence[float], values: Sequence[float]) -> Tuple[float, float]:
    """The least-squares slope and its standard error (of independent residuals)."""
    count = len(times)
    if count < 3 or len(values) != count:
        raise ValueError(f"a slope with an error needs three pairs or more, not {count} and {len(values)}")
    middle, level = sum(times) / count, sum(values) / count
    spread = sum((t - middle) ** 2 for t in times)
    if spread == 0:
        raise ValueError("a slope needs samples of different times")
    rise = sum((t - middle) * (v - level) for t, v in zip(times, values)) / spread
    rest = sum((v - level - rise * (t - middle)) ** 2 for t, v in zip(times, values))
    return rise, math.sqrt(rest / (count - 2) / spread)


def step(arrays: List[np.ndarray]) -> None:
    """One round of fixed operations: a burst that is fused, and every other collective once."""
    for handle in [hvd.allreduce_async(one, name=f"soak.{i}") for i, one in enumerate(arrays)]:
        hvd.synchronize(handle)
    hvd.allgather(arrays[1], name="soak.gather")
    hvd.broadcast(arrays[2], 0, name="soak.broadcast")
    hvd.alltoall(np.resize(arrays[1], 1_000 // hvd.size() * hvd.size()), name="soak.alltoall")
    hvd.reducescatter(arrays[2], name="soak.scatter")


def soak(seconds: float) -> Tuple[List[Tuple[float, float]], int]:
    """Pairs of (minutes, MB) of this rank, and the number of steps. Rank 0's clock decides for all."""
    arrays = [np.ones(size, np.float32) for size in SIZES]
    samples = np.full(
        (SAMPLES + 1, 2), -1.0
    )  # allocated at the start, because a growing list would be measured, too
    began, steps, taken, is_over = time.monotonic(), 0, 0, False
    while not is_over:
        step(arrays)
        steps += 1
        passed = time.monotonic() - began
        if taken <= SAMPLES and passed >= seconds * taken / SAMPLES:
            samples[taken] = passed / 60, resident_mb()
            taken += 1
        clock = hvd.broadcast(np.array([passed]), 0, name="soak.clock")
        is_over = bool(clock[0] >= seconds)
    return [(float(minutes), float(mb)) for minutes, mb in samples[:taken]], steps


def summarize(rank: int, samples: Sequence[Tuple[float, float]], warm_up: float) -> Dict[str, object]:
    """The row of one rank. warm_up: the share of the time that the slope leaves out."""
    kept = [one for one in samples if one[0] >= warm_up * samples[-1][0]]
    rise, error = slope([t for t, _ in kept], [mb for _, mb in kept])
    return {"rank": rank, "mb_per_minute": rise, "standard_error": error, "samples": samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=0.1, help="share of the time, default 0.1")
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    if arguments.minutes <= 0 or not 0 <= arguments.warm_up < 1:
        parser.error("--minutes must be above 0, and --warm-up at least 0 and below 1")
    hvd.init()
    samples, steps = soak(60 * arguments.minutes)
    everybody = hvd.allgather_object(samples)
    if hvd.rank() == 0:
        rows = [summarize(rank, one, arguments.warm_up) for rank, one in enumerate(everybody)]
        print(
            f"{steps} steps; resident memory in MB\nminutes"
            + "".join(f"{'rank ' + str(row['rank']):>10}" for row in rows)
        )
        for i in range(0, len(samples), max(1, len(samples) // ROWS)):
            print(
                f"{samples[i][0]:>7.1f}"
                + "".join(f"{one[min(i, len(one) - 1)][1]:>10.2f}" for one in everybody)
            )
        for row in rows:
            print(f"rank {row['rank']}: {row['mb_per_minute']:+.4f} ± {row['standard_error']:.4f} MB/min")
        if arguments.report:
            arguments.report.write_text(json.dumps(rows))
    hvd.shutdown()


if __name__ == "__main__":
    main()
