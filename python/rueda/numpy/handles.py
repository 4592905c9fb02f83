"""Operations in flight: the arrays the engine reads and writes, and how results become arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rueda import _core, operations
from rueda.basics import basics
from rueda.numpy.arrays import Array
from rueda.operations import Call
from rueda.process_sets import ProcessSet


@dataclass
class _InFlight:
    engine_handle: int
    borrowed: tuple[Array, ...]  # what the engine reads or writes, kept also when the caller drops the handle
    finish: Callable[[int], Any]  # engine handle -> what synchronize returns


_in_flight: dict[int, _InFlight] = {}


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
    _in_flight[handle] = _InFlight(engine_handle, tuple(borrowed), finish)
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
    record = _in_flight.get(handle)
    if record is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return operations.is_done(record.engine_handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation, returns what its blocking form would, and forgets the handle.

    Raises HorovodInternalError when the operation failed, ValueError for an unknown or synchronized handle.

    >>> handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum)
    >>> hvd.synchronize(handle)  # array([n, n, n])
    """
    record = _in_flight.get(handle)
    if record is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    try:
        operations.wait(record.engine_handle)
    except KeyboardInterrupt:
        raise  # still in flight: the record keeps its memory alive
    except BaseException:
        _forget(handle, record)
        raise
    try:
        return record.finish(record.engine_handle)
    finally:
        _forget(handle, record)


def _forget(handle: int, record: _InFlight) -> None:
    if _in_flight.pop(handle, None) is not None:
        _core.release(record.engine_handle)


def _forget_all() -> None:
    """After shutdown: the engine has ended every operation."""
    _in_flight.clear()
    operations.numbers.clear()


basics.on_shutdown(_forget_all)
