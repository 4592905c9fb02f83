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

from rueda.errors import no_elastic as _no_elastic
from rueda.process_sets import add_process_set, remove_process_set
from rueda.torch import mpi_ops
from rueda.torch.compression import Compression
from rueda.torch.distributed.registration import register as _register_backend
from rueda.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from rueda.torch.mpi_ops import *  # noqa: F403
from rueda.torch.optimizer import DistributedOptimizer
from rueda.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "add_process_set",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "remove_process_set",
]
__all__ += mpi_ops.__all__
__all__.remove("handle_average_backwards_compatibility")  # of mpi_ops alone, as in Horovod


_register_backend()


def __getattr__(name: str) -> NoReturn:
    if name == "elastic":
        raise AttributeError(_no_elastic("rueda.torch"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
