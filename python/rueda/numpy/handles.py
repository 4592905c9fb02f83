"""Operations in flight: the arrays the engine reads and writes, and how results become arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rueda import operations
from rueda.basics import basics
from rueda.in_flight import InFlight, InFlightTable
from rueda.numpy.arrays import Array
from rueda.operations import Call
from rueda.process_sets import ProcessSet

_in_flight = InFlightTable()


def start(
    calls: Sequence[Call],
    borrowed: Sequence[Array],
    finish: Callable[[int], Any],
    naming: tuple[str, str | None],
    process_set: ProcessSet,
) -> int:
    """Submits and returns the handle.

    naming: the word the operation's key begins with ("allreduce") and the user's name or None.
    """
    handle, engine_handle = operations.submit_named(calls, naming, process_set)
    _in_flight.add(handle, InFlight(engine_handle, tuple(borrowed), finish))
    return handle


def run(start_operation: Callable[..., int], *arguments: Any) -> Any:
    """Starts an operation by a function that returns its handle, and waits for it."""
    with operations.about_to_wait():
        handle = start_operation(*arguments)
    return synchronize(handle)


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return at once; true as well when the operation failed.

    Raises ValueError for a handle that does not exist or was already synchronized.
    """
    return _in_flight.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation, returns what its blocking form would, and forgets the handle.

    Threads that wait for one handle at the same time get the same result.
    Raises HorovodInternalError when the operation failed, ValueError for an unknown or synchronized handle.

    >>> handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum)
    >>> hvd.synchronize(handle)  # array([n, n, n])
    """
    return _in_flight.settle(handle, _in_flight[handle])


def synchronize_all(handles: Sequence[int]) -> list[Any]:
    """What synchronize gives for each. Raises the first error once all have ended or linger."""
    return _in_flight.settle_all(handles)


def let_end(handles: Iterable[int]) -> None:
    """After an error: waits a while for what was started together with the operation that failed."""
    _in_flight.let_end(handles)


basics.on_shutdown(operations.numbers.clear)
