"""All collectives and the functions about the job, under the module name that existing code imports."""

from __future__ import annotations

from rueda import exports
from rueda.basics import basics
from rueda.errors import HorovodInternalError
from rueda.exports import *  # noqa: F403
from rueda.in_flight import poll
from rueda.policy import handle_average_backwards_compatibility
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch.gathers import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    join,
)
from rueda.torch.handles import synchronize
from rueda.torch.reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from rueda.torch.reductions import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from rueda.torch.sparse import sparse_allreduce_async

_basics = basics  # libraries use it under this name


__all__ = [
    "HorovodInternalError",
    "ProcessSet",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "handle_average_backwards_compatibility",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]
__all__ += exports.__all__
