"""Where older releases of Horovod keep `host_hash`."""

from horovod.spark.common.util import host_hash

__all__ = ["host_hash"]
