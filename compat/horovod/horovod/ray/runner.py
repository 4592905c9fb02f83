"""Where Horovod keeps its executor, served by rueda.ray."""

from horovod._absent import absent
from rueda.ray import RayExecutor
from rueda.ray.horovod import Settings as MiniSettings

__all__ = ["Coordinator", "MiniSettings", "RayExecutor"]

Coordinator = absent("horovod.ray.runner.Coordinator", "use horovod.ray.RayExecutor")
