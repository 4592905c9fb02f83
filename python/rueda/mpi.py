"""Communicators of mpi4py: what the engine and process sets need of them. mpi4py is never imported here; a
program that has a communicator has imported it.
"""

from __future__ import annotations

import sys
from ctypes import c_char
from typing import Any


def _module() -> Any:
    return sys.modules.get("mpi4py.MPI")


def is_communicator(value: Any) -> bool:
    """Whether value is a communicator of mpi4py."""
    module = _module()
    return module is not None and isinstance(value, module.Comm)


def handle(comm: Any) -> int:
    """The MPI_Comm of a communicator as a number: an int or a pointer, whichever its MPI uses.

    Raises ValueError for MPI.COMM_NULL, which a rank gets that is not a member.
    """
    module = _module()
    if comm == module.COMM_NULL:
        raise ValueError(
            "init was given MPI.COMM_NULL: this process is not a member of the communicator; "
            "call init(comm) on its members only."
        )
    raw = (c_char * module._sizeof(comm)).from_address(module._addressof(comm))
    return int.from_bytes(bytes(raw), sys.byteorder)


def group_of(comm: Any) -> Any:
    """The group of a communicator, which outlives it; None for None. ValueError for MPI.COMM_NULL."""
    if comm is None:
        return None
    if comm == _module().COMM_NULL:
        raise ValueError(
            "ProcessSet was given MPI.COMM_NULL: this process is not a member of the communicator; leave the "
            "set out of init(process_sets=[…]) on this rank, or pass a list of ranks."
        )
    return comm.Get_group()


def world_size() -> int:
    """The number of ranks of MPI.COMM_WORLD."""
    return int(_module().COMM_WORLD.Get_size())


def ranks_in(comm: Any, job: Any = None) -> list[int]:
    """The ranks of a communicator, in ascending order, as the group `job` numbers them; None: as
    MPI.COMM_WORLD does. Raises ValueError if the job lacks one of them.
    """
    module = _module()
    group = group_of(comm)
    within = module.COMM_WORLD.Get_group() if job is None else job
    ranks = sorted(group.Translate_ranks(list(range(group.Get_size())), within))
    if module.UNDEFINED in ranks:
        raise ValueError(
            "ProcessSet was given a communicator with processes that are not ranks of this job; all members "
            "must be members of the communicator that init was given."
        )
    return ranks
