"""Collectives and functions about the job."""

from rueda.torch.mpi_ops import *  # noqa: F403
from rueda.torch.mpi_ops import __all__, _basics  # noqa: F401
