"""allgather, broadcast and alltoall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rueda import _core, epochs, in_flight, operations
from rueda.numpy import arrays
from rueda.numpy.arrays import Array
from rueda.operations import Naming
from rueda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_async",
    "grouped_allgather",
]

# ---- allgather ----


def _start_allgather(values: Sequence[Any], naming: Naming, process_set: ProcessSet) -> int:
    inputs = arrays.as_inputs(values)
    return arrays.start_gathering(_core.ALLGATHER, inputs, naming, process_set)


def allgather_async(array: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an allgather and returns its handle; see allgather. Leave the input unchanged meanwhile."""
    return _start_allgather([array], ("allgather", name), process_set)


def allgather(array: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """Concatenates the arrays of all ranks along dimension 0, in rank order of the process set.

    array: [rows, …]; rows may differ between ranks and be 0, the other dimensions and the type may not.
    Errors as for allreduce.

    >>> hvd.allgather(np.array([hvd.rank()]))  # array([0, 1, …, n - 1])
    """
    output: Array = in_flight.run(allgather_async, array, name, process_set)
    return output


def grouped_allgather(
    values: Iterable[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """Gathers several arrays as one operation; a list in the same order. See allgather.

    >>> images, labels = hvd.grouped_allgather([images, labels])
    """
    values = arrays.group(values)
    if not values:
        return []
    outputs: list[Array] = in_flight.run(_start_allgather, values, ("grouped_allgather", name), process_set)
    return outputs


# ---- broadcast ----


def broadcast_async(
    array: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a broadcast into a new array and returns its handle; see broadcast."""
    source = arrays.as_input(array)
    output, address = arrays.empty(source, source.shape)
    calls = arrays.calls(_core.BROADCAST, [source], [address], root_rank=root_rank)
    borrowed, stream = [source, output], arrays.stream_of([source])
    return in_flight.start(calls, borrowed, lambda _: output, ("broadcast", name), process_set, stream)


def broadcast(
    array: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Returns root's array on every rank.

    array: equal in shape and type on all ranks, left unmodified. root_rank: a world rank, also within a
    process set. Errors as for allreduce.

    >>> seeds = hvd.broadcast(np.random.randint(0, 1000, 4), root_rank=0)  # alike on all ranks
    """
    output: Array = in_flight.run(broadcast_async, array, root_rank, name, process_set)
    return output


# ---- alltoall ----


def _check_splits(splits: Any) -> list[int] | None:
    if splits is None:
        return None
    counts = np.asarray(splits)
    if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iu":
        raise ValueError(
            f"alltoall: splits must be a list with one whole number for each rank, but got {splits!r}."
        )
    rows = [int(count) for count in counts]
    operations.check_splits(rows)
    return rows


def alltoall_async(
    array: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts an alltoall; synchronize on its handle returns (output, received splits). See alltoall."""
    epochs.require()
    source = arrays.as_input(array)
    calls = arrays.calls(_core.ALLTOALL, [source], splits=_check_splits(splits))

    def finish(engine_handle: int) -> Any:
        output, result = arrays.from_engine(engine_handle, 0, source)
        return output, np.array(result.received_splits, np.int32)

    stream = arrays.stream_of([source])
    return in_flight.start(calls, [source], finish, ("alltoall", name), process_set, stream)


def alltoall(
    array: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends slices of an array to all ranks and returns what they sent here, in rank order.

    array: [rows, …]. splits: rows for each rank of the set; rows beyond their sum are not sent. Without
    splits every rank gets rows / n, and the output alone is returned; with splits the result is
    (output, received splits int32 [n]). Errors as for allreduce.

    >>> output, received = hvd.alltoall(np.arange(3), splits=[1, 2])  # 2 ranks
    """
    output, received = in_flight.run(alltoall_async, array, splits, name, process_set)
    return output if splits is None else (output, received)
