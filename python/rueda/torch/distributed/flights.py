"""Operations of process groups between submission and result: what they borrow, how they end, who waits.

The engine reads and writes tensors until an operation has ended, also when the caller drops its Work
(DDP.join does), so this module holds them and not the Work. Results are settled once: by whoever waits, by
the waiter thread when a future was asked for, or by a later submission. The engine's thread never takes the
GIL: it posts a semaphore, and the waiter thread, which sleeps on it outside the GIL, completes futures.
"""

from __future__ import annotations

import ctypes
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
_POLL_S = 1.0  # the longest sleep; a future given meanwhile may have an earlier deadline
_JOIN_S = 5.0


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
            f"The {self.what} has not ended within {seconds:g} s: some rank has not called it, or is far "
            "behind; see what each rank is doing, or give the group a longer timeout."
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


# ---- futures ----


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Semaphore:
    """A POSIX semaphore: what a C thread can post without the GIL."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._timed_wait = libc.sem_timedwait
        self._try_wait = libc.sem_trywait
        self._post = libc.sem_post
        self._memory = (ctypes.c_int64 * 8)()  # sem_t has 32 bytes on 64-bit Linux
        if libc.sem_init(self._memory, 0, 0) != 0:
            raise errors.internal_error("A semaphore could not be made; please report this as a bug.")
        self.address = ctypes.addressof(self._memory)
        post = ctypes.cast(libc.sem_post, ctypes.c_void_p).value
        assert post is not None
        self.post_address = post

    def post(self) -> None:
        self._post(self._memory)

    def wait(self, seconds: float) -> None:
        """Returns when posted, or after so many seconds, or now and then for no reason."""
        until = time.time() + seconds
        limit = _Timespec(int(until), int((until % 1) * 1e9))
        self._timed_wait(self._memory, byref(limit))
        while self._try_wait(self._memory) == 0:
            pass  # one look serves all posts


class _Waiter:
    """The thread that completes futures. It starts with the first one and ends with the engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._semaphore: _Semaphore | None = None  # never freed: the engine may hold its address
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._watched: list[tuple[Flight, float, float, Callable[[Exception | None], None]]] = []

    def watch(self, flight: Flight, seconds: float, done: Callable[[Exception | None], None]) -> None:
        """Calls done(error or None) on the waiter thread when the flight has ended or seconds have passed."""
        with self._lock:
            if self._semaphore is None:
                self._semaphore = _Semaphore()
            self._watched.append((flight, time.monotonic() + seconds, seconds, done))
            if self._thread is None:
                self._is_stopping = False
                self._thread = threading.Thread(target=self._serve, name="rueda-futures", daemon=True)
                self._thread.start()
            semaphore = self._semaphore
        status = _core.on_done(flight.engine_handle, semaphore.post_address, semaphore.address)
        if status != _core.OK:
            semaphore.post()  # settled and released meanwhile, or the engine has stopped

    def stop(self) -> None:
        """Completes what has ended, with the engine, and ends the thread."""
        thread, semaphore = self._thread, self._semaphore
        if thread is None or semaphore is None:
            return
        self._is_stopping = True
        semaphore.post()
        if thread is not threading.current_thread():
            thread.join(_JOIN_S)
        self._thread = None

    def _serve(self) -> None:
        assert self._semaphore is not None
        while not self._is_stopping:
            next_deadline = min((entry[1] for entry in list(self._watched)), default=float("inf"))
            self._semaphore.wait(max(0.0, min(_POLL_S, next_deadline - time.monotonic())))
            self._look()
        self._look()

    def _look(self) -> None:
        with self._lock:
            watched, self._watched = self._watched, []
        now = time.monotonic()
        still_open = []
        for entry in watched:
            flight, deadline, seconds, done = entry
            if flight.settle():
                done(flight.error)
            elif now >= deadline:
                done(flight.late(seconds))
            else:
                still_open.append(entry)
        with self._lock:
            self._watched = still_open + self._watched


waiter = _Waiter()


def _forget() -> None:
    for flight in list(_open):
        flight.settle()
    _open.clear()
    waiter.stop()


basics.on_shutdown(_forget)
