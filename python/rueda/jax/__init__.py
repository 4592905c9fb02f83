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

from rueda.basics import basics as _basics
from rueda.errors import HorovodInternalError
from rueda.jax import _plugin
from rueda.jax.collectives import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
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
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "distributed_value_and_grad",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
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
