"""Ranks on a Ray cluster: `rueda.ray.run(fn, num_workers=4)`, `Executor` for ranks that stay, and a backend
for Ray Train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rueda.ray.executor import Executor
from rueda.ray.horovod import ElasticRayExecutor, RayExecutor
from rueda.ray.reports import log
from rueda.ray.running import run

if TYPE_CHECKING:
    from rueda.ray.train import RuedaConfig, RuedaTrainer

__all__ = ["ElasticRayExecutor", "Executor", "RayExecutor", "RuedaConfig", "RuedaTrainer", "log", "run"]


def __getattr__(name: str) -> Any:
    if name in ("RuedaConfig", "RuedaTrainer"):  # Ray Train takes seconds to import
        from rueda.ray import train

        return getattr(train, name)
    raise AttributeError(f"module 'rueda.ray' has no attribute {name!r}")
