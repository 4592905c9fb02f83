"""What is in flight: the one record of operations between submission and result, for any front end.

An operation is entered when it has been submitted, with all that the engine reads or writes for it, and
removed when its result has been taken. Callers may drop their handles meanwhile. The record holds only
operations of the current epoch: a shutdown ends them all, and the results of those still in it are lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from rueda import _core, epochs, errors, operations
from rueda.basics import basics
from rueda.device import Stream
from rueda.errors import HorovodInternalError
from rueda.operations import Call, Naming
from rueda.process_sets import ProcessSet

# How long operations that were started together may go on after one of them has failed.
LINGER_S = 5.0

UNKNOWN = "Handle {handle} was not created or has been cleared."
OF_EARLIER_EPOCH = (
    "Handle {handle} is from before shutdown() and is no longer valid: its operation has ended, and its "
    "result is lost unless it was taken; start the operation again after init()."
)
LOST = (
    "The operation was under way when Horovod was shut down, so its result is lost; start it again after "
    "init()."
)


class Handle(int):
    """The number that users get for an operation. Because numbers start again with each epoch, it also holds
    the epoch and the engine's handle.
    """

    engine_handle: int
    epoch: int


class Reduction(Protocol):
    """What an optimizer has to know about an operation, or about several that end together."""

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended it before its result was taken."""

    def settle(self) -> Any:
        """Waits and returns the result. Raises HorovodInternalError if the operation failed or is lost."""


class InFlight:
    """One operation. Any thread: the first that finds it ended takes its result and frees it, and all others
    that wait for it get the same.
    """

    __slots__ = (
        "_borrowed",
        "_failure",
        "_finish",
        "_is_ending",
        "_is_settled",
        "_lock",
        "_result",
        "_settled_on",
        "_stream",
        "engine_handle",
        "number",
    )

    def __init__(
        self,
        engine_handle: int,
        borrowed: Any,
        finish: Callable[[int], Any],
        number: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """Enters the operation. borrowed: all that the engine reads or writes. finish(engine_handle) makes
        the result of an operation that succeeded. number: the one of its handle, if it has one. stream: of an
        operation in device memory.
        """
        self.engine_handle = engine_handle
        self.number = number
        self._borrowed = borrowed
        self._finish = finish
        self._lock = threading.RLock()
        self._stream = stream
        self._settled_on = 0  # the stream of the thread that took the result
        self._result: Any = None
        self._failure: str | None = None
        self._is_ending = False  # a thread takes its result
        self._is_settled = False  # the engine does not know the handle any more
        open_operations[engine_handle] = self

    def then(self, change: Callable[[Any], Any]) -> InFlight:
        """Makes change(result) the result. Only its starter may call this, before other code knows it."""
        finish = self._finish
        self._finish = lambda engine_handle: change(finish(engine_handle))
        return self

    def settle(self) -> Any:
        """Waits and returns the result. Raises HorovodInternalError when the operation failed.

        In device memory, the host waits until the operation was launched, and the stream of the caller until
        it has ended. Whatever else is raised came from a signal handler and left the operation as it was:
        call again.
        """
        if not self._is_settled:
            self._settle()
        elif self._stream is not None:
            self._stream.follow(self._settled_on)
        if self._failure is not None:
            raise errors.internal_error(self._failure)
        return self._result

    def _settle(self) -> None:
        failure = None
        try:
            if self._stream is None:
                operations.wait(self.engine_handle)
            else:
                self._stream.wait(self.engine_handle)
        except HorovodInternalError as error:
            failure = str(error)  # not the error itself, which would keep this frame and its tensors alive
        with self._lock:
            if not self._is_settled:
                self._end(failure)

    def try_settle(self) -> bool:
        """Whether it has ended, successfully or not, or was launched; if so, its result is taken. Does not
        wait or raise.
        """
        if not self._is_settled and self._is_ready():
            with suppress(Exception):
                self._settle()
        return self._is_settled

    def _is_ready(self) -> bool:
        if self._stream is None:
            return operations.is_done(self.engine_handle)
        return self._stream.has_launched(self.engine_handle)

    @property
    def error(self) -> HorovodInternalError | None:
        """Why a settled operation failed; None if it succeeded."""
        return None if self._failure is None else errors.internal_error(self._failure)

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended it before its result was taken."""
        return self._failure is LOST

    def ends_by(self, deadline: float) -> bool:
        """Whether it has ended, successfully or not, or was launched, by this time.monotonic(). Serves
        signals meanwhile.
        """
        while not (self._is_settled or self._is_ready()):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            limit_s = min(operations.WAIT_SLICE_S, left)
            if self._stream is None:
                _core.wait(self.engine_handle, limit_s)
            else:
                self._stream.has_launched(self.engine_handle, limit_s)
        return True

    def lose(self) -> None:
        """The engine has stopped; by a handler of a signal perhaps, while this thread was in _end()."""
        with self._lock:
            if not self._is_settled and not self._is_ending:
                self._end(LOST)

    def _end(self, failure: str | None) -> None:
        self._is_ending = True
        self._failure = failure
        try:
            if failure is None:
                self._result = self._finish(self.engine_handle)
        except BaseException as error:
            is_told = isinstance(error, HorovodInternalError)
            self._failure = str(error) if is_told else f"The result could not be taken: {error!r}"
            raise
        finally:
            if self._stream is not None:
                self._settled_on = self._stream.leave()
            self._borrowed, self._finish, self._is_settled = None, _no_result, True
            open_operations.pop(self.engine_handle, None)
            if self._stream is None:
                _core.release(self.engine_handle)
            else:
                self._stream.release(self.engine_handle)


class Repeated:
    """An operation in place that is started again and again, each time with other memory and after the last
    run was settled. One thread at a time.

    The hook in torch/slots.py does what `send` does without calling it, to save a call for each gradient.
    """

    __slots__ = ("borrowed", "engine_handle", "start", "stream")

    def __init__(self, start: Callable[[int], int], stream: Stream | None = None) -> None:
        """start: see repeats.prepare. stream: see InFlight."""
        self.start = start
        self.stream = stream
        self.engine_handle = 0
        self.borrowed: Any = None

    def send(self, address: int, borrowed: Any) -> None:
        """Starts it on the memory at this address, which `borrowed` keeps alive, and enters it."""
        self.engine_handle = engine_handle = self.start(address)
        self.borrowed = borrowed
        open_operations[engine_handle] = self

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended it before it was settled."""
        return open_operations.get(self.engine_handle) is not self

    def settle(self) -> None:
        """Waits. Raises HorovodInternalError when it failed or is lost.

        Whatever else is raised came from a signal handler and left the operation as it was: call again.
        """
        if self.is_lost:
            raise errors.internal_error(LOST)
        try:
            if self.stream is None:
                operations.wait(self.engine_handle)
            else:
                self.stream.wait(self.engine_handle)
        except HorovodInternalError:
            self._end()
            raise
        self._end()

    def lose(self) -> None:
        """The engine has stopped."""
        self.borrowed = None

    def _end(self) -> None:
        self.borrowed = None
        if open_operations.pop(self.engine_handle, None) is not None:
            _core.release(self.engine_handle)


def _no_result(_: int) -> None:
    """Replaces a `finish` that has run, or that nobody needs."""


# The record, by the handle of the engine. The engine never gives a handle twice in a process.
open_operations: dict[int, InFlight | Repeated] = {}


def _forget_all() -> None:
    """After shutdown: the engine has ended every operation and lends no memory any more."""
    while open_operations:
        _, operation = open_operations.popitem()
        operation.lose()


basics.on_shutdown(_forget_all)


# ---- by handle ----


def start(
    calls: Sequence[Call],
    borrowed: Sequence[Any],
    finish: Callable[[int], Any],
    naming: Naming,
    process_set: ProcessSet,
    stream: Stream | None = None,
) -> Handle:
    """Submits and returns the handle. stream: of device memory; the calls wait for what is enqueued on it."""
    if stream is not None:
        borrowed = [*borrowed, stream.mark(calls)]
    number, engine_handle = operations.submit_named(calls, naming, process_set)
    InFlight(engine_handle, borrowed, finish, number, stream)
    handle = Handle(number)
    handle.engine_handle, handle.epoch = engine_handle, epochs.current()
    return handle


def run(start_operation: Callable[..., int], *arguments: Any) -> Any:
    """Starts an operation by a function that returns its handle, and waits for it."""
    with operations.about_to_wait():
        handle = start_operation(*arguments)
    return of_handle(handle).settle()


def run_unnumbered(engine_handle: int, borrowed: Any) -> None:
    """Waits for an operation in place that has no handle and that nobody else knows of."""
    try:
        operations.wait(engine_handle)
    except HorovodInternalError:
        _core.release(engine_handle)
        raise
    except BaseException:  # from a signal handler: the engine goes on with what it borrowed
        InFlight(engine_handle, borrowed, _no_result)
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
    return operations.is_done(of_handle(handle).engine_handle)


def synchronize_all(handles: Iterable[int]) -> list[Any]:
    """The result of synchronize for each. Raises the first error once all others have ended or been left."""
    return settle_all([of_handle(handle) for handle in handles])


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
