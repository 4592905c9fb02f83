"""Collectives and functions about the job."""

from rueda.tensorflow.mpi_ops import *  # noqa: F403
from rueda.tensorflow.mpi_ops import (  # noqa: F401 (used by libraries)
    __all__,
    _allreduce,
    _basics,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
)
