"""rueda for JAX: `import rueda.jax as hvd`. One process for each rank; jax.distributed is not needed."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from rueda.extensions import require as _require

_require("rueda.jax", "JAX 0.5 or newer", "jax>=0.5")

from rueda import exports, process_sets
from rueda.errors import HorovodInternalError
from rueda.exports import *  # noqa: F403
from rueda.jax import _plugin, collectives, elastic, functions  # noqa: F401 (elastic: as an attribute)
from rueda.jax.collectives import *  # noqa: F403
from rueda.jax.compression import Compression
from rueda.jax.delayed import DelayedOptimizer
from rueda.jax.functions import *  # noqa: F403
from rueda.jax.local_steps import DiLoCo, LocalSGD
from rueda.jax.optimizer import DistributedOptimizer, distributed_value_and_grad
from rueda.operations import barrier, join
from rueda.process_sets import *  # noqa: F403
from rueda.pure_compressors import PowerSGD, TopK

_plugin.register()


__all__ = [
    "Compression",
    "DelayedOptimizer",
    "DiLoCo",
    "DistributedOptimizer",
    "HorovodInternalError",
    "LocalSGD",
    "PowerSGD",
    "TopK",
    "barrier",
    "distributed_value_and_grad",
    "join",
]
__all__ += collectives.__all__
__all__ += exports.__all__
__all__ += functions.__all__
__all__ += process_sets.__all__
