"""What a DistributedOptimizer of PyTorch costs per gradient, in microseconds.

    rueda run -np 2 python bench/front_ends/hook_cost.py

Three copies of one model of 200 small parameters take turns in each process: a plain loop, one with rueda's
DistributedOptimizer, and one in DistributedDataParallel over Gloo. The cost is the time that a loop takes
beyond the plain one, in ``backward()`` and in ``optimizer.step()``, divided by 200: by the clock (it counts
what the other rank and the engine do meanwhile on the same cores), and in time of the thread's own core. The
median of all turns, with the 10th and the 90th percentile. RUEDA_TORCH_C_HOOK=0 measures the hook in Python.
With one rank nothing is reduced, unless HOROVOD_ELASTIC=1.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any, Callable, Dict, List, Tuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from percentile import at

import rueda.torch as hvd
from rueda.torch import gradient_hooks

PARAMETERS, WARM_UP = 200, 20

# Seconds that a step took: in backward and in step() by the clock, and the same in time of this thread.
Times = Tuple[float, float, float, float]


class Many(torch.nn.Module):
    """Parameters of 64 elements, each used once."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(64)) for _ in range(PARAMETERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        for weight in self.weights:
            total = total + (weight * x).sum()
        return total


def make_step(model: torch.nn.Module, optimizer: Any) -> Callable[[], Times]:
    x = torch.full((64,), 1e-3)

    def step() -> Times:
        optimizer.zero_grad()
        loss = model(x)
        clock, own = time.perf_counter(), time.thread_time()
        loss.backward()
        middle_clock, middle_own = time.perf_counter(), time.thread_time()
        optimizer.step()
        end_clock, end_own = time.perf_counter(), time.thread_time()
        return middle_clock - clock, end_clock - middle_clock, middle_own - own, end_own - middle_own

    return step


def make_loops() -> Dict[str, Callable[[], Times]]:
    models = [Many() for _ in range(3)]
    optimizers: List[Any] = [torch.optim.SGD(model.parameters(), lr=0.01, foreach=True) for model in models]
    loops = {"plain": make_step(models[0], optimizers[0])}
    names = list(models[1].named_parameters())
    loops["rueda"] = make_step(models[1], hvd.DistributedOptimizer(optimizers[1], names))
    if hvd.size() > 1:
        torch.distributed.init_process_group("gloo", rank=hvd.rank(), world_size=hvd.size())
        ddp = torch.nn.parallel.DistributedDataParallel(models[2], gradient_as_bucket_view=True)
        loops["DDP"] = make_step(ddp, optimizers[2])
    return loops


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a gradient")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    loops = make_loops()
    taken: Dict[str, List[Times]] = {name: [] for name in loops}
    for turn in range(WARM_UP + arguments.turns):
        for name, step in loops.items():
            times = step()
            if turn >= WARM_UP:
                taken[name].append(times)
    if hvd.rank() == 0:
        hook = "in C" if gradient_hooks.why_not() == "" else f"in Python: {gradient_hooks.why_not()}"
        rows = []
        for name in loops:
            for at_which, where in enumerate(
                ("backward, clock", "step, clock", "backward, own core", "step, own core")
            ):
                cost = [
                    1e6 * (a[at_which] - b[at_which]) / PARAMETERS
                    for a, b in zip(taken[name], taken["plain"])
                ]
                if name == "plain":
                    cost = [1e6 * a[at_which] / PARAMETERS for a in taken[name]]
                rows.append([name, where, *(at(cost, share) for share in (0.5, 0.1, 0.9))])
        if arguments.json:
            print(json.dumps({"hook": hook, "rows": rows}), flush=True)
        else:
            print(f"hook {hook}; us per gradient, beyond the plain loop")
            for name, where, *values in rows:
                print(f"{name:<8}{where:<20}" + "{:>8.2f}   {:.2f} .. {:.2f}".format(*values), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
