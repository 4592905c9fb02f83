"""rueda for Keras 3, on its backends jax, torch and tensorflow: `import rueda.keras as hvd`."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from rueda.extensions import require as _require

_require("rueda.keras", "Keras 3", "keras>=3")

from typing import NoReturn

from rueda import exports, process_sets
from rueda.errors import HorovodInternalError
from rueda.errors import missing_attribute as _missing_attribute
from rueda.exports import *  # noqa: F403
from rueda.keras import callbacks, elastic, values
from rueda.keras.backends import Compression
from rueda.keras.delayed_optimizer import DelayedOptimizer
from rueda.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from rueda.keras.saving import load_model
from rueda.keras.values import *  # noqa: F403
from rueda.numpy import allgather_object, broadcast_object
from rueda.operations import barrier, join
from rueda.process_sets import *  # noqa: F403
from rueda.pure_compressors import PowerSGD, TopK

__all__ = [
    "Compression",
    "DelayedOptimizer",
    "DistributedOptimizer",
    "HorovodInternalError",
    "PartialDistributedOptimizer",
    "PowerSGD",
    "TopK",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "callbacks",
    "elastic",
    "join",
    "load_model",
]
__all__ += exports.__all__
__all__ += process_sets.__all__
__all__ += values.__all__


def __getattr__(name: str) -> NoReturn:
    raise _missing_attribute("rueda.keras", name)
