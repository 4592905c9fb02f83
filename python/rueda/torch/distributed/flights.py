"""Operations of process groups between submission and result: what they borrow, how they end, who waits.

The engine reads and writes tensors until an operation has ended, also when the caller drops its Work
(DDP.join does), so this module holds them and not the Work. Results are settled once: by whoever waits, by
a thread of completions.py when a future was asked for, or by a later submission.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import byref, c_int64
from typing import Any

import torch

from rueda import _core, errors, operations
from rueda.basics import basics
from rueda.errors import HorovodInternalError
from rueda.operations import Call

_REAP_AT_ONCE = 16  # how many ended operations one submission settles at most


class Flight:
    """One operation. Any thread."""

    def __init__(self, what: str, held: Sequence[Any], finish: Callable[[int], None] | None) -> None:
        self.what = what  # for error texts: "all_reduce of 12 elements in group 0"
        self.engine_handle = 0
        self._held: Sequence[Any] = held
        self._finish = finish
        self._lock = threading.Lock()
        self._is_settled = False
        self._error: Exception | None = None

    def settle(self) -> bool:
        """Whether the operation has ended. The first call that finds so puts the results in place."""
        if self._is_settled:
            return True
        with self._lock:
            if self._is_settled:
                return True
            state = _core.poll(self.engine_handle)
            if state == 0:
                return False
            try:
                self._end(state)
            except Exception as error:
                self._error = error
            _core.release(self.engine_handle)
            self._held, self._finish = (), None
            self._is_settled = True
        return True

    def _end(self, state: int) -> None:
        if state < 0:
            raise errors.internal_error(errors.SHUTTING_DOWN)
        if _core.wait(self.engine_handle, 0.0) != _core.OK:
            text = _core.last_error()
            raise errors.internal_error(_core.error(self.engine_handle) or text or errors.SHUTTING_DOWN)
        if self._finish is not None:
            with torch.no_grad():
                self._finish(self.engine_handle)

    @property
    def error(self) -> Exception | None:
        """Why a settled operation failed; None if it succeeded."""
        return self._error

    def wait(self, seconds: float) -> None:
        """Returns once the operation has succeeded; raises HorovodInternalError if it failed or is late."""
        deadline = time.monotonic() + seconds
        while not self.settle():
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.late(seconds)
            _core.wait(self.engine_handle, min(operations.WAIT_SLICE_S, left))
        if self._error is not None:
            raise self._error

    def late(self, seconds: float) -> HorovodInternalError:
        """The error of a wait that took too long; the operation itself stays open."""
        return errors.internal_error(
            f"The {self.what} timed out: it has not ended within {seconds:g} s, because some rank has not "
            "called it, or is far behind; see what each rank is doing, or give the group a longer timeout."
        )


_open: deque[Flight] = deque()


def launch(flight: Flight, calls: Sequence[Call], target: tuple[int, str], will_wait: bool) -> None:
    """Submits the calls as one operation. ValueError or HorovodInternalError if refused.

    target: the process set and the name. will_wait: this thread waits for it next, and so does the engine's
    work meanwhile.
    """
    set_id, name = target
    operations.check_usable()
    handle = c_int64(0)
    requests = (_core.Request * len(calls))()
    for index, call in enumerate(calls):
        operations.fill(requests[index], call, set_id, name if index == 0 else f"{name}/{index}")
    _reap()
    start = _core.submit_for_wait if will_wait else _core.submit
    status = start(byref(requests), len(calls), byref(handle))
    if status != _core.OK:
        operations.raise_refused(status, _core.last_error())
    flight.engine_handle = handle.value
    _open.append(flight)


def _reap() -> None:
    for _ in range(_REAP_AT_ONCE):
        try:
            flight = _open.popleft()
        except IndexError:
            return
        if not flight.settle():
            _open.appendleft(flight)  # another thread may have come between; the order is of no importance
            return


def _forget() -> None:
    for flight in list(_open):
        flight.settle()
    _open.clear()


basics.on_shutdown(_forget)
