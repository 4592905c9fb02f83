"""Names of an optimizer's parameters, under which ranks match their gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from rueda.policy import check_name

NOT_PAIRS = (
    "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
    "model.named_parameters()."
)


def default_names(optimizer: torch.optim.Optimizer, first: int = 0) -> dict[torch.Tensor, str]:
    """Names for the parameters of all groups from this one on, made of their places."""
    return {
        parameter: f"allreduce.noname.{i}.{j}"
        for i, group in enumerate(optimizer.param_groups[first:], first)
        for j, parameter in enumerate(group["params"])
    }


def name_parameters(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """A unique name for every parameter of the optimizer; given names are checked, missing ones are made."""
    if named_parameters is None:
        return default_names(optimizer)
    pairs: list[Any] = list(named_parameters) if isinstance(named_parameters, Iterable) else [None]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(NOT_PAIRS)
    for name, _ in pairs:
        check_name(name)
    duplicates = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if duplicates:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}"
        )
    names = {parameter: name for name, parameter in pairs}
    unnamed = [str(id(p)) for group in optimizer.param_groups for p in group["params"] if p not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(unnamed)}"
        )
    return names
