"""The groups of gradients that the caller wants reduced as a whole."""

from __future__ import annotations

import torch

from rueda.policy import split_evenly
from rueda.process_sets import ProcessSet
from rueda.torch.functions import broadcast_object

GroupList = list[list[torch.Tensor]]


def resolve_groups(
    groups: GroupList | int | None,
    parameters: list[torch.Tensor],
    names: dict[torch.Tensor, str],
    process_set: ProcessSet | None,
) -> GroupList:
    """Groups of parameters to reduce as a whole, the same on every rank. A parameter may be in none."""
    if groups is None:
        return []
    if isinstance(groups, list):
        flat = [member for group in groups for member in group]
        if not all(isinstance(member, torch.Tensor) for member in flat):
            raise ValueError("groups must consist of torch.Tensor.")
        if len({id(member) for member in flat}) != len(flat):
            raise ValueError("A parameter can only appear once in groups.")
        trained = {id(parameter) for parameter in parameters}
        return [[member for member in group if id(member) in trained] for group in groups]
    if process_set is None:
        return []
    # Ranks may have built the model in different orders, but must agree on the groups.
    root = (process_set.ranks or [0])[0]
    order = broadcast_object([names[p] for p in parameters], root, "optimizer.parameter_order", process_set)
    by_name = {names[p]: p for p in parameters}
    if sorted(by_name) != sorted(order):
        raise ValueError(
            f"Rank {root} trains other parameters than this rank, so groups={groups} cannot be formed; "
            "build the same model on every rank."
        )
    ordered = [by_name[name] for name in order]
    return [part for part in split_evenly(ordered, min(groups, max(1, len(ordered)))) if part]
