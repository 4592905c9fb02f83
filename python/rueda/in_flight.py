"""Operations between submission and result, for front ends that count handles: what must stay alive until
they end, and who takes the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from rueda import _core, errors, operations
from rueda.basics import basics
from rueda.errors import HorovodInternalError

# How long operations that were started together may outlast the failure of one of them.
LINGER_S = 5.0


class InFlight:
    """One operation. Any thread: the first that finds it ended takes its result and frees it, and whoever
    waits meanwhile gets the same.
    """

    __slots__ = ("_borrowed", "_failure", "_finish", "_lock", "_result", "engine_handle", "is_settled")

    def __init__(self, engine_handle: int, borrowed: Sequence[Any], finish: Callable[[int], Any]) -> None:
        """borrowed: everything the engine reads or writes; kept until the operation has ended, also when the
        caller drops the handle. finish(engine_handle) makes what synchronize returns.
        """
        self.engine_handle = engine_handle
        self._borrowed = borrowed
        self._finish = finish
        self._lock = threading.Lock()
        self._result: Any = None
        self._failure: str | None = None
        self.is_settled = False  # the engine knows the handle no more

    def settle(self) -> Any:
        """Waits and returns the result. Raises HorovodInternalError when the operation failed.

        Whatever else is raised came from a signal handler and left the operation as it was: call again.
        """
        failure = None
        try:
            operations.wait(self.engine_handle)
        except HorovodInternalError as error:
            failure = str(error)  # not the error, which would keep this frame and with it the tensors
        with self._lock:
            if not self.is_settled:
                self._end(failure)
        if self._failure is not None:
            raise errors.internal_error(self._failure)
        return self._result

    def ends_by(self, deadline: float) -> bool:
        """Whether it has ended, well or not, by this time.monotonic(). Signals are served meanwhile."""
        while not operations.is_done(self.engine_handle):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            _core.wait(self.engine_handle, min(operations.WAIT_SLICE_S, left))
        return True

    def _end(self, failure: str | None) -> None:
        self._failure = failure
        try:
            if failure is None:
                self._result = self._finish(self.engine_handle)
        except BaseException as error:
            self._failure = f"The result could not be taken: {error!r}"
            raise
        finally:
            self._borrowed, self.is_settled = (), True
            _core.release(self.engine_handle)


class InFlightTable:
    """The operations of one front end that nobody has synchronized yet, by handle. Any thread."""

    def __init__(self) -> None:
        self._open: dict[int, InFlight] = {}
        # After shutdown the engine has ended every operation and lends no memory any more.
        basics.on_shutdown(self._open.clear)

    def __getitem__(self, handle: int) -> InFlight:
        """ValueError for a handle that is not here."""
        operation = self._open.get(handle)
        if operation is None:
            raise ValueError(f"Handle {handle} was not created or has been cleared.")
        return operation

    def get(self, handle: int) -> InFlight | None:
        """None for a handle that is not here."""
        return self._open.get(handle)

    def add(self, handle: int, operation: InFlight) -> None:
        """Enters an operation that was just submitted."""
        self._open[handle] = operation

    def poll(self, handle: int) -> bool:
        """Whether settle would return at once; true as well when the operation failed. ValueError for a
        handle that is not here.
        """
        return operations.is_done(self[handle].engine_handle)

    def settle(self, handle: int, operation: InFlight) -> Any:
        """Waits, forgets the operation's handle and returns its result; see InFlight."""
        try:
            return operation.settle()
        finally:
            # Numbers start again after a shutdown: by now the handle may be another operation's.
            if operation.is_settled and self._open.get(handle) is operation:
                self._open.pop(handle, None)

    def settle_all(self, handles: Sequence[int]) -> list[Any]:
        """The results of operations that were started together. Raises the error of the first that failed
        once the others have ended as well; see let_end.
        """
        results = []
        for place, handle in enumerate(handles):
            try:
                results.append(self.settle(handle, self[handle]))
            except HorovodInternalError:
                self.let_end(handles[place + 1 :])
                raise
        return results

    def let_end(self, handles: Iterable[int]) -> None:
        """Takes the results of these from the engine, for whoever tries again needs their names.

        Those that have not ended within LINGER_S in all stay in flight: some rank may never submit them.
        """
        deadline = time.monotonic() + LINGER_S
        for handle in handles:
            operation = self._open.get(handle)
            if operation is not None and operation.ends_by(deadline):
                with suppress(HorovodInternalError):
                    self.settle(handle, operation)
