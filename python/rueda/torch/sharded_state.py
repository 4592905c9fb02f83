"""The state of a sharded optimizer as one whole: gathered from all ranks, and cut again for any number."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from rueda.basics import basics
from rueda.torch.functions import allgather_object
from rueda.torch.gathers import allgather
from rueda.torch.sharding import Sharding
from rueda.torch.shards import Shard, flat

OF_OTHER_SHAPE = (
    "{optimizer} keeps {key} of shape {shape} for a shard of {count} elements of parameter {name}, so it "
    "does not update elements one by one and cannot be sharded; use DistributedOptimizer."
)
DOES_NOT_FIT = (
    "The loaded state has {key} of shape {shape} for parameter {name} of shape {wanted}; load what "
    "state_dict() of an optimizer of the same model gave."
)
NO_STATE = (
    "load_state_dict got {kind} instead of a state; give every rank the whole one, for instance by "
    "hvd.broadcast_object(state, root_rank=0)."
)
DISAGREE = (
    "state_dict: ranks have state of other parameters or of other kinds; rank {rank} of the process set "
    "differs from the first. Let all ranks take the same steps and load the same state."
)

# What torch's optimizers keep for a parameter as a whole. It has no dimensions, as the state of a parameter
# without dimensions has none.
COUNTERS = ("step", "eta", "mu", "mu_product")


def gather_state(
    packed: dict[str, Any], shards: list[Shard], sharding: Sharding, where: int | None
) -> dict[str, Any] | None:
    """packed: what the wrapped optimizer's state_dict() gives for the shards. shards: in the order of the
    parameters. where: the world rank that gets the state, or None: all. Collective.
    """
    _check_agreement(packed, sharding)
    is_kept = where is None or basics.rank() == where
    state: dict[int, dict[str, Any]] = {}
    for index in sorted(packed["state"]):
        entry = {
            key: _gather(value, key, shards[index], sharding)
            for key, value in sorted(packed["state"][index].items())
        }
        if is_kept:
            state[index] = entry
    return {**packed, "state": state} if is_kept else None


def _check_agreement(packed: dict[str, Any], sharding: Sharding) -> None:
    if sharding.is_alone:
        return
    layout = [
        (index, key, isinstance(value, torch.Tensor) and value.dim() > 0)
        for index in sorted(packed["state"])
        for key, value in sorted(packed["state"][index].items())
    ]
    layouts = allgather_object(layout, "sharded_state.layout", sharding.settings.process_set)
    for rank, other in enumerate(layouts):
        if other != layouts[0]:
            raise ValueError(DISAGREE.format(rank=rank))


def _gather(value: Any, key: str, shard: Shard, sharding: Sharding) -> Any:
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    whole = torch.empty_like(shard.parameter, dtype=value.dtype, requires_grad=False)
    if shard.is_whole:
        part = value
    else:
        name = f"sharded_state.{shard.name}.{key}"
        part = allgather(value.contiguous(), name, sharding.settings.process_set)
    flat(whole).copy_(part)
    return whole


def cut_state(state_dict: dict[str, Any], shards: list[Shard]) -> dict[str, Any]:
    """The part of a whole state that belongs to these shards."""
    if not isinstance(state_dict, dict):
        raise ValueError(NO_STATE.format(kind=type(state_dict).__name__))
    ids = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
    shard_of = dict(zip(ids, shards))
    state = {}
    for index, entry in state_dict["state"].items():
        if index not in shard_of:
            state[index] = entry
            continue
        state[index] = {key: _cut(value, key, shard_of[index]) for key, value in entry.items()}
    return {**state_dict, "state": state}


def _cut(value: Any, key: str, shard: Shard) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() == 0 and (shard.parameter.dim() > 0 or key in COUNTERS):
        return value.clone()
    if value.shape != shard.parameter.shape:
        shape, wanted = tuple(value.shape), tuple(shard.parameter.shape)
        raise ValueError(DOES_NOT_FIT.format(key=key, shape=shape, name=shard.name, wanted=wanted))
    return shard.part_of(value).clone()


def check_shapes(optimizer: Any, shards: list[Shard]) -> None:
    """ValueError if the optimizer keeps something for a shard that is not of the shard's shape."""
    for shard in shards:
        for key, value in optimizer.state.get(shard.value, {}).items():
            if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape != shard.value.shape:
                raise ValueError(
                    OF_OTHER_SHAPE.format(
                        optimizer=type(optimizer).__name__,
                        key=key,
                        shape=tuple(value.shape),
                        count=shard.end - shard.start,
                        name=shard.name,
                    )
                )
