"""Futures of operations: the threads that complete them, and so run their callbacks.

The engine's thread never takes the GIL: it posts a semaphore, on which these threads sleep outside the GIL.

Callbacks run one after the other. A thread takes the turn, looks for one operation that has ended and
completes its future, while a stand-by sleeps on the semaphore. A callback may wait for another operation's
future, as those of PyTorch's powerSGD_hook do. It gives up the turn where it asks for that future, and loses
it `_GRACE_S` after another operation has ended. The stand-by then goes on, and a new one takes its place.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import traceback
from collections.abc import Callable
from ctypes import byref
from dataclasses import dataclass

from rueda import _core, errors
from rueda.basics import basics
from rueda.torch.distributed.flights import Flight

_POLL_S = 1.0  # the longest sleep; a future given meanwhile may have an earlier deadline
_GRACE_S = 0.005  # longer than a callback that only computes on a few tensors
_MOST_IDLE = 4  # threads kept; a step of powerSGD_hook needs three
_JOIN_S = 5.0


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


@dataclass(eq=False)
class _Watch:
    """A flight whose end somebody wants to hear of."""

    flight: Flight
    seconds: float
    deadline: float
    done: Callable[[Exception | None], None]

    def is_due(self) -> bool:
        return self.flight.settle() or time.monotonic() >= self.deadline

    def tell(self) -> None:
        self.done(self.flight.error if self.flight.settle() else self.flight.late(self.seconds))


@dataclass(eq=False)
class _Turn:
    """One look and the callback it leads to."""

    thread: int


class Completions:
    """The threads that complete futures: from the first one to the end of the engine. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn_changed = threading.Condition(self._lock)
        self._semaphore: _Semaphore | None = None  # never freed: the engine may hold its address
        self._watched: list[_Watch] = []
        self._turn: _Turn | None = None
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # threads that are in no callback
        self._is_stopping = False

    def watch(self, flight: Flight, seconds: float, done: Callable[[Exception | None], None]) -> None:
        """Calls done(error or None) on a thread when the flight has ended or seconds have passed."""
        with self._lock:
            if self._semaphore is None:
                self._semaphore = _Semaphore()
            semaphore = self._semaphore
            self._watched.append(_Watch(flight, seconds, time.monotonic() + seconds, done))
            self._need_idle()
            if self._turn is not None and self._turn.thread == threading.get_ident():
                self._end_turn(self._turn)  # this callback may be about to wait
        status = _core.on_done(flight.engine_handle, semaphore.post_address, semaphore.address)
        if status != _core.OK:
            semaphore.post()  # settled and released meanwhile, or the engine has stopped

    def stop(self) -> None:
        """Completes what has ended, with the engine, and ends the threads that no callback keeps."""
        with self._lock:
            threads, semaphore = list(self._threads), self._semaphore
            self._is_stopping = True
        deadline = time.monotonic() + _JOIN_S
        if semaphore is not None:
            semaphore.post()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._is_stopping = False

    # ---- threads ----

    def _need_idle(self) -> None:
        """Has a thread ready for whatever ends next. Under the lock."""
        if self._idle > 0:
            return
        thread = threading.Thread(target=self._serve, name="rueda-futures", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is ending; this thread is the last
        self._threads.add(thread)
        self._idle += 1

    def _serve(self) -> None:
        assert self._semaphore is not None
        while True:
            self._semaphore.wait(self._nap_s())
            while self._complete_one():
                pass
            with self._lock:
                if not self._is_stopping and self._idle <= _MOST_IDLE:
                    continue
                self._idle -= 1
                self._threads.discard(threading.current_thread())
                self._semaphore.post()  # for the next, who may have to end as well
                return

    def _nap_s(self) -> float:
        next_deadline = min((watch.deadline for watch in list(self._watched)), default=float("inf"))
        return max(0.0, min(_POLL_S, next_deadline - time.monotonic()))

    def _complete_one(self) -> bool:
        """Whether a future was due; it is completed then."""
        turn = self._take_turn()
        try:
            watch = self._next_due()
            if watch is None:
                return False
            try:
                watch.tell()
            finally:
                with self._lock:
                    self._idle += 1
        except Exception:
            traceback.print_exc()  # nobody waits for a thread of its own accord
        finally:
            with self._lock:
                self._end_turn(turn)
        return True

    def _next_due(self) -> _Watch | None:
        """Takes the first that is due off the list; the thread is no longer idle then."""
        assert self._semaphore is not None
        while True:
            with self._lock:
                watched = list(self._watched)
            due = (watch for watch in watched if watch.is_due())
            first, second = next(due, None), next(due, None)
            if first is None:
                return None
            with self._lock:
                if first not in self._watched:
                    continue  # a thread that lost its turn came first
                self._watched.remove(first)
                self._idle -= 1
                self._need_idle()
            if second is not None:
                # The first one's callback may wait for it, and its own post may be spent.
                self._semaphore.post()
            return first

    # ---- turns ----

    def _take_turn(self) -> _Turn:
        mine = _Turn(threading.get_ident())
        with self._lock:
            while (theirs := self._turn) is not None:
                if not self._turn_changed.wait(_GRACE_S) and self._turn is theirs:
                    break  # it waits for something, or takes long
            self._turn = mine
        return mine

    def _end_turn(self, turn: _Turn) -> None:
        """Nothing if it was taken away. Under the lock."""
        if self._turn is turn:
            self._turn = None
            self._turn_changed.notify()

    def forget_threads(self) -> None:
        """In a forked child, which has none of them."""
        kept = self._semaphore
        Completions.__init__(self)
        self._semaphore = kept


completions = Completions()
basics.on_shutdown(completions.stop)
os.register_at_fork(after_in_child=completions.forget_threads)
