"""Where Horovod keeps `horovod.spark.run`."""

from rueda.spark import run, run_elastic

__all__ = ["run", "run_elastic"]
