"""Horovod's command for processes that prepare data: `python -m horovod.tensorflow.data.compute_worker`."""

import sys

from rueda.tensorflow.data.compute_worker import command, main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(command(main))
