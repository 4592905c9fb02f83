"""Where Horovod keeps its elastic executor; rueda has none, and says so when it is made."""

from horovod._absent import ELASTIC, absent
from rueda.ray import ElasticRayExecutor

__all__ = ["ElasticRayExecutor", "RayHostDiscovery"]

RayHostDiscovery = absent("horovod.ray.elastic.RayHostDiscovery", ELASTIC)
