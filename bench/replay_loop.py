"""A training loop in PyTorch between hosts, its computing slept: each gradient is reduced when it appears.

    rueda bench replay -np 4 --rate 1gbit -- python bench/replay_loop.py bench/models/resnet50.json

The loop submits one `hvd.allreduce_async_` for each gradient and synchronizes all of them at the end of the
step, as a script without DistributedOptimizer does. `rueda bench replay` without a command measures the same
from C++, and `bench/compare/gloo_peer.py replay` measures DDP's buckets over Gloo. Rank 0 prints the median
step and the scaling efficiency: the time of computing divided by the time of the step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import torch

import rueda.torch as hvd

WARM_UPS = 4  # steps until the plan is learned


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def sleep_until(when: int) -> None:
    time.sleep(max(0, when - now()) / 1e9)


def ready_times(model: Dict[str, Any], ready: str) -> List[float]:
    """When each gradient is ready, in milliseconds from the beginning of a step."""
    if ready == "model" and "ready_ms" in model:
        return [float(ms) for ms in model["ready_ms"]]
    compute, count = model["compute_ms"], len(model["parameters"])
    return [compute / 3 + compute * 2 / 3 * (i + 1) / count for i in range(count)]


def step(gradients: List[torch.Tensor], ready: List[int], compute: int) -> Tuple[int, int]:
    """Start and end of one step of `compute` nanoseconds of computing."""
    start = now()
    handles = []
    for i, gradient in enumerate(gradients):
        sleep_until(start + ready[i])
        handles.append(hvd.allreduce_async_(gradient, name=f"gradient.{i}", op=hvd.Sum))
    sleep_until(start + compute)
    for handle in handles:
        hvd.synchronize(handle)
    return start, now()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a file of bench/models")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--ready", default="model", choices=["model", "even"], help="as of rueda bench replay"
    )
    parser.add_argument("--dilation", type=float, default=6.25, help="stretches computing")
    options = parser.parse_args()
    model = json.loads(options.model.read_text())
    compute = int(model["compute_ms"] * options.dilation * 1e6)
    ready = [int(ms * options.dilation * 1e6) for ms in ready_times(model, options.ready)]
    torch.set_num_threads(1)
    hvd.init()
    gradients = [torch.empty(count) for _, count in model["parameters"]]
    times = []
    for _ in range(WARM_UPS + options.steps):
        for gradient in gradients:
            gradient.fill_(hvd.rank() + 1)
        hvd.barrier()
        times.append(step(gradients, ready, compute))
        # The check would take the cores from ranks that have not finished. No second barrier meets them,
        # because barriers have one name, and a name that recurs tells learned plans where a step ends.
        hvd.allreduce(torch.zeros(1), name="end", op=hvd.Sum)
        total = hvd.size() * (hvd.size() + 1) // 2
        if not all(bool((gradient == total).all()) for gradient in gradients):
            raise SystemExit(f"replay_loop: rank {hvd.rank()}: a sum is wrong")
    every = hvd.allgather_object(times)  # [rank][step]
    if hvd.rank() == 0:
        steps = [max(end for _, end in one) - max(start for start, _ in one) for one in zip(*every)]
        median = statistics.median(steps[WARM_UPS:])
        low, high = min(steps[WARM_UPS:]) / 1e6, max(steps[WARM_UPS:]) / 1e6
        print(
            f"{model['name']}: {hvd.size()} ranks, step {median / 1e6:.0f} ms ({low:.0f}-{high:.0f}), "
            f"computing {compute / 1e6:.0f} ms, efficiency {100 * compute / median:.1f} %"
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
