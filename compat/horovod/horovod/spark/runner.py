"""Where Horovod keeps `horovod.spark.run`."""

from horovod.spark.common.util import host_hash
from rueda.spark import run, run_elastic

__all__ = ["host_hash", "run", "run_elastic"]
