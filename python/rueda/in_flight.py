"""Operations in flight by their handles: starting, finding, and waiting, for any front end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from rueda import _core, epochs, errors, operations
from rueda.device import Stream
from rueda.errors import HorovodInternalError
from rueda.open_operations import InFlight, Writes, no_result, open_operations
from rueda.operations import Call, Naming
from rueda.process_sets import ProcessSet

# How long operations that were started together may go on after one of them has failed.
LINGER_S = 5.0

UNKNOWN = "Handle {handle} was not created or has been cleared."
OF_EARLIER_EPOCH = (
    "Handle {handle} is from before shutdown() and is no longer valid: its operation has ended, and its "
    "result is lost unless it was taken; start the operation again after init()."
)


class Handle(int):
    """The number that users get for an operation. Because numbers start again with each epoch, it also holds
    the epoch and the engine's handle.
    """

    engine_handle: int
    epoch: int


def start(
    calls: Sequence[Call],
    borrowed: Sequence[Any],
    finish: Callable[[int], Any],
    naming: Naming,
    process_set: ProcessSet,
    stream: Stream | None = None,
    writes: Writes | None = None,
) -> Handle:
    """Submits and returns the handle. stream: of device memory; the calls wait for what is enqueued on it.
    writes: see InFlight.
    """
    if stream is not None:
        stream.mark(calls)
    started = operations.submit_named(calls, naming, process_set)
    return enter(started, borrowed, finish, stream, writes)


def enter(
    started: tuple[int, int],
    borrowed: Any,
    finish: Callable[[int], Any],
    stream: Stream | None = None,
    writes: Writes | None = None,
) -> Handle:
    """Makes the handle of an operation that was submitted. started: as operations.submit() returns it."""
    number, engine_handle = started
    InFlight(engine_handle, borrowed, finish, number, stream, writes)
    handle = Handle(number)
    handle.engine_handle, handle.epoch = engine_handle, epochs.current()
    return handle


def run(start_operation: Callable[..., int], *arguments: Any) -> Any:
    """Starts an operation by a function that returns its handle, and waits for it."""
    with operations.about_to_wait():
        handle = start_operation(*arguments)
    return of_handle(handle).settle()


def run_unnumbered(engine_handle: int, borrowed: Any, stream: Stream | None = None) -> None:
    """Waits for an operation that has no handle and that nobody else knows of, and whose output its caller
    has. stream: see start.
    """
    try:
        if stream is None:
            operations.wait(engine_handle)
        else:
            stream.wait(engine_handle)
    except HorovodInternalError:
        _core.release(engine_handle)
        raise
    except BaseException:  # from a signal handler: the engine goes on with what it borrowed
        InFlight(engine_handle, borrowed, no_result, stream=stream)
        raise
    _core.release(engine_handle)


def find(handle: int) -> InFlight | None:
    """The operation of a handle; None if the handle is unknown, or was synchronized before.

    Raises HorovodInternalError for a handle of an earlier epoch.
    """
    if isinstance(handle, Handle):
        if handle.epoch != epochs.current():
            if epochs.is_forked():
                raise errors.internal_error(errors.FORKED)
            raise errors.internal_error(OF_EARLIER_EPOCH.format(handle=handle))
        operation = open_operations.get(handle.engine_handle)
        return operation if isinstance(operation, InFlight) else None
    for operation in list(open_operations.values()):  # a bare number, for instance taken out of an array
        if isinstance(operation, InFlight) and handle and operation.number == handle:
            return operation
    return None


def of_handle(handle: int) -> InFlight:
    """Like find, but raises ValueError if there is none."""
    operation = find(handle)
    if operation is None:
        raise ValueError(UNKNOWN.format(handle=handle))
    return operation


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return at once; true as well when the operation failed.

    Raises ValueError for a handle that does not exist or was already synchronized,
    HorovodInternalError for one that was given out before a shutdown().
    """
    return of_handle(handle).is_done()


def synchronize_all(handles: Iterable[int]) -> list[Any]:
    """The result of synchronize for each. Raises the first error once all others have ended or been left."""
    return settle_all([of_handle(handle) for handle in handles])


def start_all(starts: Iterable[InFlight]) -> list[InFlight]:
    """The operations that an iterator starts, one after the other. If one cannot be started, the others end
    first; see let_end.
    """
    started: list[InFlight] = []
    try:
        for operation in starts:
            started.append(operation)
    except BaseException:
        let_end(started)
        raise
    return started


def settle_all(started: Sequence[InFlight]) -> list[Any]:
    """The results of operations that were started together. Raises the error of the first that failed once
    the others have ended as well; see let_end.
    """
    results = []
    for place, operation in enumerate(started):
        try:
            results.append(operation.settle())
        except HorovodInternalError:
            let_end(started[place + 1 :])
            raise
    return results


def let_end(started: Iterable[InFlight | int]) -> None:
    """After an error: takes the results of these operations, or handles, from the engine, because a second
    attempt needs their names.

    Operations that have not ended within LINGER_S altogether stay in flight: some rank may never submit them.
    """
    deadline = time.monotonic() + LINGER_S
    for one in started:
        operation = find(one) if isinstance(one, int) else one
        if operation is not None and operation.ends_by(deadline):
            with suppress(HorovodInternalError):
                operation.settle()
