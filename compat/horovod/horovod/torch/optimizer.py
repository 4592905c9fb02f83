"""DistributedOptimizer, and the names of the classes behind it, for annotations and isinstance."""

from rueda.torch import optimizer as _optimizer
from rueda.torch.adasum_optimizer import AdasumMixin as _DistributedAdasumOptimizer
from rueda.torch.optimizer import DistributedMixin as _DistributedOptimizer
from rueda.torch.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "_DistributedAdasumOptimizer", "_DistributedOptimizer"]

_optimizer.class_module = __name__
