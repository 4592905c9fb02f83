"""rueda for JAX: `import rueda.jax as hvd`. One process for each rank; jax.distributed is not needed."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

_NEEDS_JAX = "rueda.jax needs JAX 0.5 or newer, but {found}; install it with `pip install 'jax>=0.5'`."

try:
    import jax as _jax
except ImportError as _error:
    raise ImportError(_NEEDS_JAX.format(found=f"importing jax failed ({_error})")) from _error
if tuple(int(part) for part in _jax.__version__.split(".")[:2]) < (0, 5):
    raise ImportError(_NEEDS_JAX.format(found=f"jax {_jax.__version__} is installed"))

from rueda import exports
from rueda.errors import HorovodInternalError
from rueda.exports import *  # noqa: F403
from rueda.jax import _plugin
from rueda.jax.collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allreduce,
    reducescatter,
)
from rueda.jax.compression import Compression
from rueda.jax.functions import allgather_object, broadcast_object, broadcast_parameters
from rueda.jax.optimizer import DistributedOptimizer, distributed_value_and_grad
from rueda.numpy import barrier, join
from rueda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

_plugin.register()


__all__ = [
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "ProcessSet",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "distributed_value_and_grad",
    "global_process_set",
    "grouped_allreduce",
    "join",
    "reducescatter",
    "remove_process_set",
]
__all__ += exports.__all__
