"""Horovod on Ray, served by rueda.ray."""

from horovod.ray import ray_logger
from horovod.ray.worker import BaseHorovodWorker
from rueda.ray import ElasticRayExecutor, RayExecutor

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor", "ray_logger"]
