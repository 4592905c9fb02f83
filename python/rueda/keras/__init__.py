"""rueda for Keras 3, on its backends jax, torch and tensorflow: `import rueda.keras as hvd`."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

_NEEDS_KERAS = "rueda.keras needs Keras 3, but {found}; install it with `pip install 'keras>=3'`."

try:
    import keras as _keras
except ImportError as _error:
    raise ImportError(_NEEDS_KERAS.format(found=f"importing keras failed ({_error})")) from _error
if int(_keras.__version__.split(".")[0]) < 3:
    raise ImportError(_NEEDS_KERAS.format(found=f"keras {_keras.__version__} is installed"))

from typing import Any

from rueda import exports
from rueda.errors import HorovodInternalError
from rueda.errors import no_elastic as _no_elastic
from rueda.exports import *  # noqa: F403
from rueda.keras import callbacks
from rueda.keras.backends import Compression
from rueda.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from rueda.keras.saving import load_model
from rueda.keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    reducescatter,
)
from rueda.numpy import allgather_object, barrier, broadcast_object, join
from rueda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "global_process_set",
    "join",
    "load_model",
    "reducescatter",
    "remove_process_set",
]
__all__ += exports.__all__


def __getattr__(name: str) -> Any:
    if name == "elastic":
        raise AttributeError(_no_elastic("rueda.keras"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
