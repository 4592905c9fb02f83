"""What is in flight: the one record of operations between submission and result, for any front end.

An operation is entered when it has been submitted, with all that the engine reads or writes for it, and
removed when its result has been taken. Callers may drop their handles meanwhile. The record holds only
operations of the current epoch: a shutdown ends them all, and the results of those still in it are lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rueda import _core, epochs, errors, operations
from rueda.basics import basics
from rueda.device import Stream
from rueda.errors import HorovodInternalError
from rueda.repeats import Recurring

LOST = (
    "The operation was under way when Horovod was shut down, so its result is lost; start it again after "
    "init()."
)


class Reduction(Protocol):
    """What an optimizer has to know about an operation, or about several that end together."""

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended it before its result was taken."""

    def settle(self) -> Any:
        """Waits and returns the result. Raises HorovodInternalError if the operation failed or is lost."""


@dataclass(frozen=True)
class Writes:
    """What an operation changes in memory of its caller; at_end: when its result is taken, not before."""

    memory: Sequence[Any]
    at_end: bool = False


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
        "_stays_known",
        "_stream",
        "_writes",
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
        writes: Writes | None = None,
    ) -> None:
        """Enters the operation. borrowed: all that the engine reads or writes. finish(engine_handle) makes
        the result of an operation that succeeded. number: the one of its handle, if it has one. stream: of an
        operation in device memory. writes: None: some of what it borrowed.
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
        self._stays_known = False  # settled before its caller asked for the result, which stays here for it
        self._writes = writes
        open_operations[engine_handle] = self
        if writes is not None and writes.at_end:
            writing_back[engine_handle] = self

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
        if self._stays_known:
            open_operations.pop(self.engine_handle, None)
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

    def end_early(self) -> None:
        """Waits, and takes the result for its caller, who still finds it by the handle and is told if it
        failed. Raises only what came from a signal handler.
        """
        self._stays_known = self.number != 0
        if not self._is_settled:
            with suppress(Exception):
                self._settle()
        elif self._stream is not None:
            self._stream.follow(self._settled_on)

    def used(self) -> Any:
        """The memory that it may read or write until it is settled."""
        return [self._borrowed, self.written()]

    def written(self) -> Any:
        """That of its caller which it may change; None: any that it uses."""
        return None if self._writes is None else self._writes.memory

    def try_settle(self) -> bool:
        """Whether it has ended, successfully or not, or was launched; if so, its result is taken. Does not
        wait or raise.
        """
        if not self._is_settled and self._is_ready():
            with suppress(Exception):
                self._settle()
        return self._is_settled

    def is_done(self) -> bool:
        """Whether it has ended, successfully or not, on a device too."""
        return self._is_settled or operations.is_done(self.engine_handle)

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
            self._borrowed, self._finish, self._is_settled = None, no_result, True
            writing_back.pop(self.engine_handle, None)
            if not self._stays_known:
                open_operations.pop(self.engine_handle, None)
            if self._stream is None:
                _core.release(self.engine_handle)
            else:
                self._stream.release(self.engine_handle)


class Repeated:
    """An operation in place that is started again and again, each time with other memory and after the last
    run was settled. One thread at a time.

    The hooks in torch/pending_gradients.py and plugins/torch/gradient_hook.cc do what `send` does, and save a
    call for each gradient.
    """

    __slots__ = ("borrowed", "engine_handle", "recurring", "start", "stream")

    def __init__(self, recurring: Recurring, stream: Stream | None = None) -> None:
        """stream: see InFlight."""
        self.recurring = recurring
        self.start = recurring.start
        self.stream = stream
        self.engine_handle = 0
        self.borrowed: Any = None

    def send(self, address: int, borrowed: Any) -> None:
        """Starts it on the memory at this address, which `borrowed` keeps alive, and enters it."""
        self.engine_handle = engine_handle = self.start(address)
        self.recurring.checked_in = epochs.current()
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
            self._wait()
        except HorovodInternalError:
            self._end()
            raise
        self._end()

    def _wait(self) -> None:
        if self.stream is None:
            operations.wait(self.engine_handle)
        else:
            self.stream.wait(self.engine_handle)

    def end_early(self) -> None:
        """Waits, and leaves the result, or the error, to its owner."""
        with suppress(HorovodInternalError):
            self._wait()

    def used(self) -> Any:
        """The memory that it may read or write until it is settled."""
        return self.borrowed

    def written(self) -> Any:
        """That which it may change."""
        return self.borrowed

    def lose(self) -> None:
        """The engine has stopped."""
        self.borrowed = None

    def _end(self) -> None:
        self.borrowed = None
        if open_operations.pop(self.engine_handle, None) is not None:
            _core.release(self.engine_handle)


def no_result(_: int) -> None:
    """Replaces a `finish` that has run, or that nobody needs."""


# The record, by the handle of the engine. The engine never gives a handle twice in a process.
open_operations: dict[int, InFlight | Repeated] = {}
# Those of them that change memory of their callers only when their results are taken.
writing_back: dict[int, InFlight] = {}


def _forget_all() -> None:
    """After shutdown: the engine has ended every operation and lends no memory any more."""
    while open_operations:
        _, operation = open_operations.popitem()
        operation.lose()


basics.on_shutdown(_forget_all)
