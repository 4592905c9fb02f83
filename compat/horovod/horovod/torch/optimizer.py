"""DistributedOptimizer."""

from rueda.torch.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
