"""Horovod's command for processes that prepare data: `python -m horovod.tensorflow.data.compute_worker`."""

import sys

from rueda.tensorflow.data.compute_worker import main

if __name__ == "__main__":
    sys.exit(main())
