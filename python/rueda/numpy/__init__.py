"""rueda for numpy arrays: `import rueda.numpy as hvd`.

Needs no framework. Every function takes what numpy.asarray takes and returns new arrays.
"""

from __future__ import annotations

try:
    import numpy as _numpy  # noqa: F401
except ImportError as _error:
    raise ImportError(
        f"rueda.numpy needs numpy, but importing it failed ({_error}); install it with `pip install numpy`."
    ) from _error

from rueda import exports
from rueda.errors import HorovodInternalError
from rueda.exports import *  # noqa: F403
from rueda.in_flight import poll
from rueda.numpy.gathers import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_async,
    grouped_allgather,
    join,
)
from rueda.numpy.handles import synchronize
from rueda.numpy.objects import allgather_object, broadcast_object
from rueda.numpy.reductions import (
    allreduce,
    allreduce_async,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_reducescatter,
    reducescatter,
    reducescatter_async,
)
from rueda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "HorovodInternalError",
    "ProcessSet",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "synchronize",
]
__all__ += exports.__all__
