"""The class of the actor of a rank."""

from rueda.ray.entry import Rank as BaseHorovodWorker

__all__ = ["BaseHorovodWorker"]
