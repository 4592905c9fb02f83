"""Whether an optimizer updates each element by itself, so that ranks may update parts of a parameter."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from contextlib import suppress
from typing import Any

import torch

NOT_ELEMENT_WISE = (
    "{optimizer} cannot be sharded, because its update of an element depends on others ({why}); use "
    "DistributedOptimizer."
)
# Whole words of class names, in lower case.
KNOWN = {
    "lbfgs": "it searches along a line with all of them",
    "adafactor": "it keeps rows and columns of sums",
    "muon": "it makes matrices orthogonal",
    "sparseadam": "it takes sparse gradients",
}


def check_element_wise(optimizer: torch.optim.Optimizer) -> None:
    """ValueError for an optimizer that is recognised: by its name, or by what it does to 16 numbers at once
    and in halves. Optimizers that cannot be tried out are accepted.
    """
    name = type(optimizer).__name__
    for cls in type(optimizer).__mro__:
        if cls.__name__.lower() in KNOWN:
            raise ValueError(NOT_ELEMENT_WISE.format(optimizer=name, why=KNOWN[cls.__name__.lower()]))
    if _gives_other_results_in_halves(optimizer):
        raise ValueError(
            NOT_ELEMENT_WISE.format(optimizer=name, why="a trial with a small matrix and its halves differed")
        )


def _gives_other_results_in_halves(optimizer: torch.optim.Optimizer) -> bool:
    group = optimizer.param_groups[0]
    where = group["params"][0].device if group["params"] else torch.device("cpu")
    numbers = torch.linspace(-1.0, 2.0, 16, device=where).view(4, 4)
    gradients = [numbers.flip(0) * 3 + 0.25, numbers.t() - numbers]
    halves = [numbers.view(-1)[:5].clone(), numbers.view(-1)[5:].clone()]
    whole = numbers.clone()
    with suppress(Exception), torch.no_grad(), torch.random.fork_rng(devices=[]):
        _step(optimizer, [whole], [[gradient.clone()] for gradient in gradients])
        parts = [list(gradient.reshape(-1).split([5, 11])) for gradient in gradients]
        _step(optimizer, halves, [[part.clone() for part in some] for some in parts])
        return not torch.allclose(whole.view(-1), torch.cat(halves), rtol=1e-4, atol=1e-6)
    return False


def _step(
    optimizer: torch.optim.Optimizer, values: list[torch.Tensor], gradients: list[list[torch.Tensor]]
) -> None:
    """Steps of a copy without state, with the options of the first group."""
    cls = type(optimizer)
    trial: Any = cls.__new__(cls)
    trial.__dict__.update(optimizer.__dict__)
    trial.__dict__.pop("step", None)  # what a scheduler of learning rates has put there
    options = {key: _copy(value) for key, value in optimizer.param_groups[0].items() if key != "params"}
    trial.__dict__["state"] = defaultdict(dict)
    trial.__dict__["param_groups"] = []
    for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        trial.__dict__[hooks] = OrderedDict()
    if isinstance(optimizer, torch.optim.Adagrad):  # it keeps state from the beginning
        trial.__init__([{**options, "params": values}])
    trial.__dict__["param_groups"] = [{**options, "params": values}]
    for some in gradients:
        for value, gradient in zip(values, some):
            value.grad = gradient
        cls.step(trial)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
