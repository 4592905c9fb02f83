"""Where Horovod keeps its elastic executor, served by rueda.ray."""

from rueda.ray import ElasticRayExecutor
from rueda.ray.elastic import RayHostDiscovery

__all__ = ["ElasticRayExecutor", "RayHostDiscovery"]
