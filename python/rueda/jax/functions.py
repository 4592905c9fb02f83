"""Making ranks agree on parameters and Python objects. Outside jit."""

from __future__ import annotations

from typing import Any

from rueda.ahead import finish_all
from rueda.jax.collectives import broadcast
from rueda.numpy import allgather_object, broadcast_object
from rueda.process_sets import ProcessSet, global_process_set


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns root's parameters (or optimizer state) on every rank, for instance before training.

    params: a pytree of arrays, equal in structure, shapes and types on all ranks. Nothing is changed in
    place: use what is returned. What optimizers have sent ahead is dropped first, and sent again if the state
    that is returned needs it. All broadcasts are started before any is awaited. Errors as for allreduce.

    >>> params = hvd.broadcast_parameters(params, root_rank=0)
    >>> opt_state = hvd.broadcast_parameters(opt_state, root_rank=0)
    """
    finish_all()
    return broadcast(params, root_rank, "broadcast_parameters", process_set)


__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]
