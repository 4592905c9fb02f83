"""rueda for TensorFlow: `import rueda.tensorflow as hvd`."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from typing import Any

from rueda.extensions import require as _require

_require("rueda.tensorflow", "TensorFlow 2.16 or newer", "tensorflow>=2.16")

from rueda.errors import HorovodInternalError
from rueda.errors import missing_attribute as _missing_attribute
from rueda.extensions import gpu_available
from rueda.tensorflow import elastic, functions, mpi_ops, reductions  # noqa: F401 (elastic: as an attribute)
from rueda.tensorflow import op_gradients as _op_gradients  # noqa: F401 (registers them)
from rueda.tensorflow.compression import Compression
from rueda.tensorflow.functions import *  # noqa: F403
from rueda.tensorflow.mpi_ops import *  # noqa: F403
from rueda.tensorflow.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from rueda.tensorflow.reductions import *  # noqa: F403
from rueda.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from rueda.tensorflow.util import _executing_eagerly, refs_to_vars, vars_to_refs  # noqa: F401

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "SyncBatchNormalization",  # noqa: F405 (on demand)
    "gpu_available",
    "refs_to_vars",
    "vars_to_refs",
]
__all__ += functions.__all__
__all__ += mpi_ops.__all__
__all__ += reductions.__all__


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # on demand: it imports Keras
        from rueda.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise _missing_attribute("rueda.tensorflow", name)
