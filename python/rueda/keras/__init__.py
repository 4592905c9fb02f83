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

from rueda import _core
from rueda.basics import basics as _basics
from rueda.errors import HorovodInternalError
from rueda.errors import no_elastic as _no_elastic
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

Average = _core.AVERAGE
Sum = _core.SUM
Adasum = _core.ADASUM
Min = _core.MIN
Max = _core.MAX
Product = _core.PRODUCT
init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built
sycl_built = _basics.sycl_built

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
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
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "sycl_built",
]


def __getattr__(name: str) -> Any:
    if name == "elastic":
        raise AttributeError(_no_elastic("rueda.keras"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
