"""Horovod's TensorFlow front end, served by rueda.tensorflow."""

# Scripts reach for these modules as attributes, which Horovod's own __init__ leaves behind.
from horovod.tensorflow import compression, elastic, functions, mpi_ops, sync_batch_norm, util  # noqa: F401
from rueda.tensorflow import *  # noqa: F403 (the interface is rueda.tensorflow's __all__)
from rueda.tensorflow import __all__, __getattr__, _executing_eagerly  # noqa: F401
