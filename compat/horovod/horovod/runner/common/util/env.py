"""Which variables a launcher passes on, and which rank this process is."""

from __future__ import annotations

import os
import re

IGNORE_REGEXES = {r"BASH_FUNC_.*", r"OLDPWD", r".*CUDA_VISIBLE_DEVICES", r"_HOROVOD_SECRET_KEY"}
KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"
LOCAL_RANK_ENV_VARS = [
    "HOROVOD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
]

_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(name: str) -> bool:
    """Whether a launcher passes this variable to ranks."""
    return not any(re.fullmatch(pattern, name) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """(rank, size) from the first launcher whose variables are set; (0, 1) without one.

    Raises RuntimeError if only one variable of a pair is set.
    """
    for pair in _PAIRS:
        values = [os.environ.get(name) for name in pair]
        if values[0] is not None and values[1] is not None:
            return int(values[0]), int(values[1])
        if values != [None, None]:
            there, missing = pair if values[1] is None else pair[::-1]
            raise RuntimeError(f"{there} is set but {missing} is not; set both or neither.")
    return 0, 1
