"""How long a step of PyTorch takes when gradients travel during backward, the next forward, or a whole step.

    sudo rueda bench replay -np 2 --rate 1gbit -- python bench/delayed_steps.py
    sudo rueda bench replay -np 4 --rate 1gbit -- python bench/delayed_steps.py --compute-ms 600

Each rank is a host of its own. The model has equal layers. Computing them is slept, so that ranks that share
a processor do not slow each other down; forward takes a third of it. DistributedOptimizer, the same with
cross_step=True, and DelayedOptimizer take turns in one job: a round is some steps of each, and a ratio is one
of medians of the same round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Dict, List

import torch
from torch import nn

import rueda.torch as hvd


class _Slept(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        context.save_for_backward(weight)
        context.seconds = seconds
        time.sleep(seconds / 3)
        return x + 0.0

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        (weight,) = context.saved_tensors
        time.sleep(2 * context.seconds / 3)
        return gradient, torch.zeros_like(weight), None


class Layer(nn.Module):
    """Takes a time to compute, and has a weight of so many elements."""

    def __init__(self, elements: int, seconds: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(elements))
        self._seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Slept.apply(x, self.weight, self._seconds)
        return result


def wrapped(kind: str, model: nn.Module) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    names = [(f"{kind}.{name}", parameter) for name, parameter in model.named_parameters()]
    if kind == "delayed":
        return hvd.DelayedOptimizer(sgd, names)
    if kind == "cross_step":
        return hvd.DistributedOptimizer(sgd, names, cross_step=True, model=model)
    return hvd.DistributedOptimizer(sgd, names)


def times(model: nn.Module, optimizer: Any, steps: int) -> List[float]:
    """Milliseconds of each step, of the slowest rank."""
    took = []
    for _ in range(steps):
        began = time.perf_counter()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        took.append(1000 * (time.perf_counter() - began))
    if hasattr(optimizer, "finish"):
        optimizer.finish()
    slowest: List[float] = hvd.allreduce(torch.tensor(took), op=hvd.Max, name="times").tolist()
    return slowest


def spread(values: List[float], digits: int) -> str:
    return " ".join(f"{v:.{digits}f}" for v in (statistics.median(values), min(values), max(values)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=50, help="of float32 gradients")
    parser.add_argument("--layers", type=int, default=25)
    parser.add_argument("--compute-ms", type=float, default=450, help="forward and backward of a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--steps", type=int, default=8, help="of each optimizer in a round; three are left out"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    elements = int(arguments.megabytes * 250_000 / arguments.layers)
    seconds = arguments.compute_ms / 1000 / arguments.layers
    kinds = ["waiting", "cross_step", "delayed"]
    models = {
        kind: nn.Sequential(*(Layer(elements, seconds) for _ in range(arguments.layers))) for kind in kinds
    }
    optimizers = {kind: wrapped(kind, models[kind]) for kind in kinds}
    medians: Dict[str, List[float]] = {kind: [] for kind in kinds}
    for turn in range(arguments.rounds + 1):  # the first warms up
        for kind in kinds if turn % 2 else reversed(kinds):
            took = times(models[kind], optimizers[kind], arguments.steps)
            if turn:
                medians[kind].append(statistics.median(took[2:-1]))
    if hvd.rank() == 0:
        print(
            f"{hvd.size()} ranks, {arguments.megabytes} MB of gradients in {arguments.layers} layers, "
            f"{arguments.compute_ms} ms of computing; median, smallest, largest of {arguments.rounds} rounds"
        )
        for kind in kinds:
            ratios = [plain / one for plain, one in zip(medians["waiting"], medians[kind])]
            print(f"{kind:10} {spread(medians[kind], 0)} ms a step, {spread(ratios, 2)} times as fast")
    hvd.shutdown()


if __name__ == "__main__":
    main()
