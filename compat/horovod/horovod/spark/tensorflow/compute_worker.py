"""Horovod's command for processes in Spark's tasks that prepare data."""

import sys

from rueda.spark.tensorflow.compute_worker import main
from rueda.tensorflow.data.compute_worker import command

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(command(main))
