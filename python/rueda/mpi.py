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


def world_ranks(comm: Any) -> list[int]:
    """The ranks of a communicator, as MPI.COMM_WORLD numbers them."""
    module = _module()
    group = comm.Get_group()
    world = module.COMM_WORLD.Get_group()
    return list(group.Translate_ranks(list(range(group.Get_size())), world))
