"""Measures what elastic training costs while nothing fails: the same steps in a plain job and in an elastic
one that commits after each, in turns.

    python bench/elastic_cost.py --ranks 2 --turns 4 --steps 200

A step computes for a while, sums gradients of 1 MiB, and updates. The state of the elastic job is a number
and a ledger, so a commit copies nothing large, unless --copied-mib gives it an array of so many MiB, which
each commit copies, as it does parameters (`copy_parameters=False` of PyTorch needs no copy). RUEDA_BIN and
RUEDA_LIBRARY select another build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any, Callable

ELEMENTS = 1 << 18
WARM_UP = 20


def compute(seconds: float) -> None:
    """Keeps a core busy for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def make_steps(count: int, seconds: float, commit: Callable[[], None]) -> list[tuple[float, float]]:
    """The time of each step, and of the commit at its end, in seconds."""
    import numpy as np

    import rueda.numpy as hvd

    weights, gradient = np.zeros(ELEMENTS, np.float32), np.ones(ELEMENTS, np.float32)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        compute(seconds)
        weights -= np.float32(0.5) * hvd.allreduce(gradient, name="gradient")
        summed = time.perf_counter()
        commit()
        ended = time.perf_counter()
        times.append((ended - began, ended - summed))
    return times


def rank(mode: str, steps: int, seconds: float, copied_mib: int) -> None:
    """One rank of a job. Rank 0 prints its median step and its median commit."""
    import numpy as np

    import rueda.numpy as hvd

    hvd.init()
    if mode == "plain":
        times = make_steps(steps + WARM_UP, seconds, lambda: None)
    else:
        kept: Any = {"ledger": hvd.elastic.Ledger(1 << 20, 32)}
        if copied_mib:
            kept = {"parameters": np.ones(copied_mib << 18, np.float32)}
        state: Any = hvd.elastic.NumpyState(step=0, **kept)

        def commit() -> None:
            state.step += 1
            state.commit()

        times = hvd.elastic.run(lambda _: make_steps(steps + WARM_UP, seconds, commit))(state)
    if hvd.rank() == 0:
        print(json.dumps([median(column) for column in zip(*times[WARM_UP:])]), flush=True)
    hvd.shutdown()


def medians(mode: str, options: argparse.Namespace) -> tuple[float, float]:
    """A step and a commit of one job, in seconds."""
    elastic = ["--min-np", str(options.ranks)] if mode == "elastic" else []
    command = [
        os.environ.get("RUEDA_BIN", "rueda"),
        "run",
        "-np",
        str(options.ranks),
        "--no-prefix",
        *elastic,
    ]
    command += [sys.executable, __file__, "--rank", mode, "--steps", str(options.steps)]
    command += ["--compute-ms", str(options.compute_ms), "--copied-mib", str(options.copied_mib)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, stdin=subprocess.DEVNULL
    )
    step, commit = json.loads(done.stdout.splitlines()[-1])
    return step, commit


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compute-ms", type=float, default=20.0)
    parser.add_argument("--copied-mib", type=int, default=0)
    parser.add_argument("--rank", choices=["plain", "elastic"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.rank, options.steps, options.compute_ms / 1e3, options.copied_mib)
        return
    ratios, commits = [], []
    for turn in range(options.turns):
        modes = ["plain", "elastic"] if turn % 2 == 0 else ["elastic", "plain"]
        found = {mode: medians(mode, options) for mode in modes}
        (plain, _), (elastic, commit) = found["plain"], found["elastic"]
        ratios.append(elastic / plain)
        commits.append(commit)
        print(
            f"turn {turn + 1}: plain {1e3 * plain:.3f} ms, elastic {1e3 * elastic:.3f} ms, "
            f"ratio {ratios[-1]:.4f}, in it a commit of {1e6 * commit:.0f} us",
            flush=True,
        )
    print(f"elastic / plain: median {median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}")
    least, most = 1e6 * min(commits), 1e6 * max(commits)
    print(f"a commit: median {1e6 * median(commits):.0f} us, {least:.0f} to {most:.0f} us")


if __name__ == "__main__":
    main()
