"""The arguments of init: what it refuses before the engine is asked."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from rueda import errors, mpi
from rueda.process_sets import ProcessSet, beyond_int32

NO_MPI = (
    "Horovod has not been built with MPI support for a comm of type {type}: pass a communicator of mpi4py, "
    "or start the job with any launcher (mpirun included) and call init() without comm."
)


def handle_of(comm: Any) -> int:
    """The handle of a communicator, 0 if there is none."""
    if comm is None:
        return 0
    if mpi.is_communicator(comm):
        return mpi.handle(comm)
    if isinstance(comm, (str, bytes)):
        raise TypeError(
            f"Invalid type of argument comm: {type(comm).__name__}; pass None or a list of ranks."
        )
    if not isinstance(comm, Iterable):
        raise ValueError(NO_MPI.format(type=type(comm).__name__))
    if not all(isinstance(rank, int) for rank in comm):
        raise ValueError("Invalid type of argument comm: a list must hold ranks as integers.")
    warnings.warn(
        "init(comm=[…]) does not restrict the job: every launched process takes part; "
        "use process sets instead.",
        RuntimeWarning,
        stacklevel=3,
    )
    return 0


def sets_of(process_sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    """The sets to register at once; "dynamic" switches on that sets may be added later."""
    if process_sets is None:
        return []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(
                f'process_sets is {process_sets!r}; pass "dynamic" or a list of ProcessSet objects.'
            )
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        return []
    if not isinstance(process_sets, Iterable):
        raise TypeError(f'process_sets is {process_sets!r}; pass "dynamic" or a list of ProcessSet objects.')
    sets = list(process_sets)
    for process_set in sets:
        if not isinstance(process_set, ProcessSet):
            raise ValueError(
                f"process_sets holds a {type(process_set).__name__}; pass a list of ProcessSet objects."
            )
    for index, process_set in enumerate(sets):
        beyond = beyond_int32(process_set.ranks or ())
        if beyond is not None:
            where = f"in process_sets entry number {index + 1}; ranks are below the number of processes."
            raise ValueError(errors.INIT_FAILED.format(cause=f"invalid rank: {beyond} {where}"))
    return sets


def repeated_in(sets: Sequence[ProcessSet]) -> list[int]:
    """The places in the list of those that equal an earlier one."""
    given = [process_set.ranks for process_set in sets]
    return [place for place, ranks in enumerate(given) if ranks in given[:place]]
