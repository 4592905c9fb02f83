"""rueda for TensorFlow: `import rueda.tensorflow as hvd`."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from typing import Any

_NEEDS_TENSORFLOW = (
    "rueda.tensorflow needs TensorFlow 2.16 or newer, but {found}; install it with "
    "`pip install 'tensorflow>=2.16'`."
)

try:
    import tensorflow as _tensorflow
except ImportError as _error:
    raise ImportError(_NEEDS_TENSORFLOW.format(found=f"importing tensorflow failed ({_error})")) from _error
if tuple(int(part) for part in _tensorflow.__version__.split(".")[:2]) < (2, 16):
    raise ImportError(_NEEDS_TENSORFLOW.format(found=f"TensorFlow {_tensorflow.__version__} is installed"))

from rueda.errors import HorovodInternalError
from rueda.errors import no_elastic as _no_elastic
from rueda.extensions import gpu_available
from rueda.process_sets import add_process_set, remove_process_set
from rueda.tensorflow import mpi_ops
from rueda.tensorflow import op_gradients as _op_gradients  # noqa: F401 (registers them)
from rueda.tensorflow.compression import Compression
from rueda.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from rueda.tensorflow.mpi_ops import *  # noqa: F403
from rueda.tensorflow.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from rueda.tensorflow.reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from rueda.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from rueda.tensorflow.util import _executing_eagerly, refs_to_vars, vars_to_refs  # noqa: F401

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "SyncBatchNormalization",  # noqa: F405 (on demand)
    "add_process_set",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "gpu_available",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
    "refs_to_vars",
    "remove_process_set",
    "vars_to_refs",
]
__all__ += mpi_ops.__all__


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # on demand: it imports Keras
        from rueda.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "elastic":
        raise AttributeError(_no_elastic("rueda.tensorflow"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
