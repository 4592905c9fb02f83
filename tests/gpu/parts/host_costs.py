"""How long the host works for tensors of a GPU, in microseconds: for each kind of call, and for each gradient
of a model of many small parameters, beside a plain loop and DDP over NCCL.

The median of all turns. The loops take turns in one process, so that they meet the same machine.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist
import world

import rueda.torch as hvd
from rueda.torch import gradient_hooks

CALLS, TURNS, PARAMETERS = (300, 40, 200) if not world.IS_STAND_IN else (3, 2, 5)


def us_of(work: Callable[[], Any], calls: int = CALLS) -> float:
    """Median of five rounds: the host's time for one of many calls, without waiting for the GPU."""
    rounds: List[float] = []
    for _ in range(5):
        world.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        rounds.append((time.perf_counter() - began) / calls * 1e6)
    world.synchronize()
    return round(statistics.median(rounds), 2)


def measure_calls() -> None:
    x = torch.ones(16, device=world.device)
    world.say(kernel_of_torch_us=us_of(lambda: x.add_(1)))
    world.say(allreduce_us=us_of(lambda: hvd.allreduce(x, name="one", op=hvd.Sum)))
    world.say(allreduce_in_place_us=us_of(lambda: hvd.allreduce_(x, name="one_", op=hvd.Sum)))
    if not world.IS_STAND_IN:
        measure_launches_beside(x)
    tensors = [torch.ones(1, device=world.device) for _ in range(PARAMETERS)]
    submitted: List[float] = []
    awaited: List[float] = []
    for _ in range(7):
        began = time.perf_counter()
        handle = hvd.grouped_allreduce_async_(tensors, name="group")
        middle = time.perf_counter()
        hvd.synchronize(handle)
        submitted.append(middle - began)
        awaited.append(time.perf_counter() - middle)
        world.synchronize()
    world.say(group_submit_us=round(statistics.median(submitted) * 1e6, 1))
    world.say(group_synchronize_us=round(statistics.median(awaited) * 1e6, 1), group_tensors=PARAMETERS)


def measure_launches_beside(x: torch.Tensor) -> None:
    """What launching a kernel costs while an allreduce waits for a stream that is busy for about a second."""
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1_500_000_000)
        handle = hvd.allreduce_async(torch.ones(1024, device=world.device), name="late", op=hvd.Sum)
    began = time.perf_counter()
    for _ in range(200):
        x.add_(1)
    world.say(kernel_of_torch_beside_a_call_us=round((time.perf_counter() - began) / 200 * 1e6, 2))
    hvd.synchronize(handle)


class Many(torch.nn.Module):
    """Parameters of 64 elements, each used once."""

    def __init__(self) -> None:
        super().__init__()
        each = (torch.nn.Parameter(torch.ones(64)) for _ in range(PARAMETERS))
        self.weights = torch.nn.ParameterList(each)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        for weight in self.weights:
            total = total + (weight * x).sum()
        return total


def make_step(model: torch.nn.Module, optimizer: Any) -> Callable[[], Tuple[float, float]]:
    x = torch.full((64,), 1e-3, device=world.device)

    def step() -> Tuple[float, float]:
        optimizer.zero_grad()
        loss = model(x)
        world.synchronize()
        began = time.perf_counter()
        loss.backward()
        middle = time.perf_counter()
        optimizer.step()
        end = time.perf_counter()
        world.synchronize()
        return middle - began, end - middle

    return step


def measure_gradients() -> None:
    models = [Many().to(world.device) for _ in range(3)]
    optimizers: List[Any] = [torch.optim.SGD(model.parameters(), lr=0.01, foreach=True) for model in models]
    loops = {"plain": make_step(models[0], optimizers[0])}
    names = list(models[1].named_parameters())
    loops["rueda"] = make_step(models[1], hvd.DistributedOptimizer(optimizers[1], names))
    if os.environ.get("RUEDA_GPU_OPERATIONS") == "nccl" and not world.IS_STAND_IN:
        dist.init_process_group("nccl", device_id=world.device)
        ddp = torch.nn.parallel.DistributedDataParallel(models[2], gradient_as_bucket_view=True)
        loops["ddp"] = make_step(ddp, optimizers[2])
    taken: Dict[str, List[Tuple[float, float]]] = {name: [] for name in loops}
    for turn in range(10 + TURNS):
        for name, step in loops.items():
            times = step()
            if turn >= 10 or world.IS_STAND_IN:
                taken[name].append(times)
    for name in loops:
        for place, where in enumerate(("backward", "step")):
            each = [
                (mine[place] - (plain[place] if name != "plain" else 0)) / PARAMETERS * 1e6
                for mine, plain in zip(taken[name], taken["plain"])
            ]
            world.say(**{f"gradient_{where}_{name}_us": round(statistics.median(each), 2)})
    if dist.is_initialized():
        dist.destroy_process_group()


hvd.init()
world.require_engine()
world.say(hook=gradient_hooks.why_not() or "in C")
measure_calls()
measure_gradients()
hvd.shutdown()
