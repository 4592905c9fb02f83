"""rueda for PyTorch: `import rueda.torch as hvd`."""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from typing import NoReturn

from rueda.extensions import require as _require

_HOOK = "Tensor.register_post_accumulate_grad_hook"
_require("rueda.torch", "PyTorch 2.1 or newer", "torch>=2.1", feature=_HOOK)

from rueda.errors import missing_attribute as _missing_attribute
from rueda.torch import elastic, functions, mpi_ops  # noqa: F401 (elastic: as an attribute)
from rueda.torch.compression import Compression
from rueda.torch.delayed import DelayedOptimizer
from rueda.torch.diloco import DiLoCo
from rueda.torch.distributed.registration import register as _register_backend
from rueda.torch.functions import *  # noqa: F403
from rueda.torch.local_steps import LocalSGD
from rueda.torch.mpi_ops import *  # noqa: F403
from rueda.torch.optimizer import DistributedOptimizer
from rueda.torch.powersgd import PowerSGD
from rueda.torch.sharded_optimizer import ShardedOptimizer
from rueda.torch.sync_batch_norm import SyncBatchNorm
from rueda.torch.topk import TopK

__all__ = ["Compression", "DelayedOptimizer", "DiLoCo", "DistributedOptimizer", "LocalSGD", "PowerSGD"]
__all__ += ["ShardedOptimizer", "SyncBatchNorm", "TopK"]
__all__ += functions.__all__
__all__ += mpi_ops.__all__
__all__.remove("handle_average_backwards_compatibility")  # of mpi_ops alone, as in Horovod


_register_backend()


def __getattr__(name: str) -> NoReturn:
    raise _missing_attribute("rueda.torch", name)
