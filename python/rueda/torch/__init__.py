"""rueda for PyTorch: `import rueda.torch as hvd`."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from typing import NoReturn

_NEEDS_TORCH = (
    "rueda.torch needs PyTorch 2.1 or newer, but {found}; install it with `pip install 'torch>=2.1'`."
)

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError(_NEEDS_TORCH.format(found=f"importing torch failed ({_error})")) from _error
if not hasattr(_torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(_NEEDS_TORCH.format(found=f"torch {_torch.__version__} is installed"))

from rueda import exports
from rueda.errors import HorovodInternalError
from rueda.errors import no_elastic as _no_elastic
from rueda.exports import *  # noqa: F403
from rueda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from rueda.torch.compression import Compression
from rueda.torch.distributed.registration import register as _register_backend
from rueda.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from rueda.torch.mpi_ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from rueda.torch.optimizer import DistributedOptimizer
from rueda.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "ProcessSet",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
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
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "sparse_allreduce_async",
    "synchronize",
]
__all__ += exports.__all__


_register_backend()


def __getattr__(name: str) -> NoReturn:
    if name == "elastic":
        raise AttributeError(_no_elastic("rueda.torch"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
