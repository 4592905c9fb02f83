"""Futures of operations: the threads that complete them, and so run their callbacks.

The engine's thread never takes the GIL. It posts a semaphore, and one of these threads, the server, sleeps on
it outside the GIL. The server looks for operations that have ended and completes their futures, so callbacks
run one after the other. A callback may wait for another operation's future, as those of PyTorch's
powerSGD_hook do. The server gives up its service when a callback asks for such a future, and loses it if the
callback lasts longer than `_GRACE_S`. The stand-by then becomes the server, and a new stand-by takes its
place. Ended operations do not wake the stand-by; it looks at the server every `_GRACE_S` seconds.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import byref
from dataclasses import dataclass

from rueda import _core, errors
from rueda.basics import basics
from rueda.torch import devices
from rueda.torch.distributed.group_operations import GroupOperation

_POLL_S = 1.0  # the longest sleep; a future given meanwhile may have an earlier deadline
_GRACE_S = 0.02  # longer than a callback that only computes on a few tensors; the wait may be twice as long
_MOST_IDLE = 4  # stand-bys kept; a step of powerSGD_hook needs three threads
_JOIN_S = 5.0


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Semaphore:
    """A POSIX semaphore, which a C thread can post without the GIL."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._timed_wait = libc.sem_timedwait
        self._try_wait = ctypes.PyDLL(None).sem_trywait  # too short to give up the GIL
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
        """Returns when posted, after this many seconds, or sometimes for no reason."""
        until = time.time() + seconds
        limit = _Timespec(int(until), int((until % 1) * 1e9))
        self._timed_wait(self._memory, byref(limit))

    def clear(self) -> None:
        """Forgets the posts so far, because one look serves them all."""
        while self._try_wait(self._memory) == 0:
            pass


@dataclass(eq=False)
class _Watch:
    """An operation whose end somebody wants to know."""

    operation: GroupOperation
    seconds: float
    deadline: float
    done: Callable[[Exception | None], None]

    def is_due(self) -> bool:
        with self._apart():
            return self.operation.try_settle() or time.monotonic() >= self.deadline

    def tell(self) -> None:
        operation = self.operation
        with self._apart():
            self.done(operation.error if operation.try_settle() else operation.late(self.seconds))

    def _apart(self) -> AbstractContextManager[object]:
        """A result on a GPU must not come after what other threads enqueue, as on the default stream."""
        return nullcontext() if self.operation.gpu < 0 else devices.side_stream(self.operation.gpu)


class Completions:
    """The threads that complete futures: from the first one to the end of the engine. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._service = threading.Condition(self._lock)
        self._first_in_line = threading.Lock()  # held by the one stand-by that looks at the server
        self._semaphore: _Semaphore | None = None  # never freed: the engine may hold its address
        self._watched: list[_Watch] = []
        self._threads: set[threading.Thread] = set()
        self._server: int | None = None
        self._callback = 0  # the number of the callback that the server runs or ran last
        self._is_in_callback = False
        self._standing_by = 0
        self._is_stopping = False

    def watch(
        self, operation: GroupOperation, seconds: float, done: Callable[[Exception | None], None]
    ) -> None:
        """Calls done(error or None) on a thread when the operation has ended or seconds have passed."""
        with self._lock:
            if self._semaphore is None:
                self._semaphore = _Semaphore()
            semaphore = self._semaphore
            self._watched.append(_Watch(operation, seconds, time.monotonic() + seconds, done))
            if not self._threads:
                self._start_thread()
            if self._server == threading.get_ident():
                self._end_service()  # this callback may be about to wait
        status = _core.on_done(operation.engine_handle, semaphore.post_address, semaphore.address)
        if status != _core.OK:
            semaphore.post()  # it was settled and released meanwhile, or the engine has stopped

    def stop(self) -> None:
        """The engine has stopped: completes what ended with it, and ends threads that no callback keeps.

        So callbacks of these futures have run when this returns, if none of them lasts longer than _JOIN_S.
        """
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
            if self._watched and not self._threads:
                self._start_thread()  # was watched after the last thread looked

    # ---- threads ----

    def _start_thread(self) -> None:
        """Starts another stand-by. Under the lock."""
        thread = threading.Thread(target=self._run, name="rueda-futures", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is ending, so no more threads can start
        self._threads.add(thread)
        self._standing_by += 1

    def _run(self) -> None:
        while True:
            self._stand_by()
            self._serve()
            with self._lock:
                if self._is_stopping or self._standing_by >= _MOST_IDLE:
                    self._threads.discard(threading.current_thread())
                    return
                self._standing_by += 1

    def _stand_by(self) -> None:
        """Returns as the server: once the service was given up, or its callback has lasted too long."""
        with self._first_in_line, self._lock:
            seen = None
            while self._server is not None:
                callback = self._callback if self._is_in_callback else None
                if callback is not None and callback == seen:
                    break
                seen = callback
                self._service.wait(_GRACE_S)
            self._server = threading.get_ident()
            self._is_in_callback = False
            self._standing_by -= 1

    def _serve(self) -> None:
        """Completes what ends, until another thread is the server or the engine stops."""
        assert self._semaphore is not None
        while True:
            self._semaphore.clear()
            is_last_look = self._is_stopping  # asked before the look: the engine may stop during it
            watch = self._next_due()
            if watch is None:
                if is_last_look:
                    with self._lock:
                        self._end_service()
                    return
                self._semaphore.wait(self._nap_s())
                continue
            try:
                watch.tell()
            except Exception:
                traceback.print_exc()  # nobody waits for this thread
            with self._lock:
                if self._server != threading.get_ident():
                    return
                self._is_in_callback = False

    def _nap_s(self) -> float:
        next_deadline = min((watch.deadline for watch in list(self._watched)), default=float("inf"))
        return max(0.0, min(_POLL_S, next_deadline - time.monotonic()))

    def _next_due(self) -> _Watch | None:
        """Takes the first that is due off the list; a stand-by watches while its callbacks run."""
        due = next((watch for watch in list(self._watched) if watch.is_due()), None)
        if due is not None:
            with self._lock:
                self._watched.remove(due)
                self._callback += 1
                self._is_in_callback = True
                if self._standing_by == 0:
                    self._start_thread()
        return due

    def _end_service(self) -> None:
        """Under the lock."""
        self._server = None
        self._service.notify()

    def forget_threads(self) -> None:
        """In a forked child, which has none of them."""
        kept = self._semaphore
        Completions.__init__(self)
        self._semaphore = kept


completions = Completions()
basics.on_shutdown(completions.stop)
os.register_at_fork(after_in_child=completions.forget_threads)
