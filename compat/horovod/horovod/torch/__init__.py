"""Horovod's PyTorch front end, served by rueda.torch."""

# Scripts reach for these modules as attributes, which Horovod's own __init__ leaves behind.
from horovod.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm  # noqa: F401
from rueda.torch import *  # noqa: F403 (the interface is rueda.torch's __all__)
from rueda.torch import __all__, __getattr__  # noqa: F401
