"""What rank 0 says to the callbacks of a call."""

from rueda.ray.reports import configure, log

__all__ = ["configure", "log"]
