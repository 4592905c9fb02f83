"""Operations in the memory of a device: whether the engine takes it, and the streams in whose order it does.

A front end names the stream in whose order its framework writes, reads and frees the memory of an operation.
The input is read after what was enqueued there before the start. Whoever takes the result makes a stream wait
for it; the host does not wait for the device. Where the engine has no backend for such memory, front ends
copy through host memory. All ranks of a job decide alike.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass

from rueda import _core, errors, operations
from rueda.epochs import NONE, PerEpoch, current
from rueda.operations import Call

STAGED = (
    "{what} are copied through host memory: {why}. Results are the same; the copies take time, and the host "
    "waits for them."
)
NOT_STARTED = "rueda is not initialized"


@dataclass(frozen=True)
class Support:
    """What the engine does with memory of devices in this epoch. Equal on all ranks."""

    backend: str  # its name; "" if there is none
    why: str  # why there is none, as a clause

    @property
    def is_taken(self) -> bool:
        """Whether tensors may stay where they are."""
        return bool(self.backend)


def _find_support() -> Support:
    if current() == NONE:
        return Support("", NOT_STARTED)
    facts = json.loads(_core.describe()).get("device", {})
    reason = str(facts.get("reason", "")).rstrip(".")
    return Support(facts.get("backend", ""), reason or "this job has no backend for their memory")


_support = PerEpoch(_find_support)
_warned_in = NONE  # the epoch of the last warning


def support() -> Support:
    """What the engine does with memory of devices in the current epoch. Any thread."""
    return _support.now()


def is_taken() -> bool:
    """Whether the engine takes memory of devices. Any thread."""
    return _support.now().is_taken


def warn_staged(what: str) -> None:
    """Says once per epoch, on the first rank of each host, that memory of devices is copied.

    what: the word for it ("CUDA tensors").
    """
    global _warned_in
    epoch = current()
    if epoch in (NONE, _warned_in):
        return
    _warned_in = epoch
    if _core.local_rank() == 0:
        text = STAGED.format(what=what, why=support().why)
        warnings.warn(text, RuntimeWarning, stacklevel=4)


class Stream:
    """The stream in whose order a framework writes, reads and frees the memory of an operation."""

    __slots__ = ("_find_current", "device", "handle")

    def __init__(self, device: int, handle: int, find_current: Callable[[], int] | None = None) -> None:
        """handle: of the driver; 0 is the default stream. find_current: gives the stream on which the calling
        thread enqueues; without it, that is always this stream.
        """
        self.device = device
        self.handle = handle
        self._find_current = find_current

    def mark(self, calls: Sequence[Call]) -> None:
        """Has the calls wait for what is enqueued here so far, and perhaps for some of what follows."""
        for call in calls:
            call.stream = self.handle

    def move(self) -> int:
        """For an operation that starts again: takes the calling thread's stream."""
        self.handle = self.current()
        return self.handle

    def current(self) -> int:
        """The stream on which the calling thread enqueues."""
        return self.handle if self._find_current is None else self._find_current()

    def wait(self, engine_handle: int) -> None:
        """What is enqueued afterwards, here or on the calling thread's stream, comes after the operation.

        The host waits only until the operation was launched. Raises HorovodInternalError when it failed.
        """
        # Both: the memory was allocated for this stream, and may be used again in its order.
        operations.wait_on_stream(engine_handle, self.handle)
        now = self.current()
        if now != self.handle:
            operations.wait_on_stream(engine_handle, now)

    def follow(self, other: int) -> None:
        """What the calling thread enqueues comes after what is enqueued on the other stream of the device."""
        now = self.current()
        if now != other:
            check(_core.order_streams(self.device, other, now))

    def has_launched(self, engine_handle: int, timeout_s: float = 0.0) -> bool:
        """Whether wait() would return, or raise, at once; waits for that at most this long."""
        if timeout_s > 0 and _core.wait_on_stream(engine_handle, self.handle, timeout_s) != _core.TIMEOUT:
            return True
        return operations.is_done(engine_handle) or operations.has_result(engine_handle)

    def leave(self) -> int:
        """The result was taken on the calling thread's stream, which is returned. What the operation borrowed
        may be used again in the order of this stream, so this stream waits for that one.
        """
        now = self.current()
        if now != self.handle:
            _core.order_streams(self.device, now, self.handle)  # fails only if the device is lost
        return now

    def release(self, engine_handle: int) -> None:
        """Gives the operation up. What the calling thread has enqueued may still read its results."""
        if _core.release_on_stream(engine_handle, self.device, self.current()) != _core.OK:
            _core.release(engine_handle)


class Memory:
    """A block of a device's memory that the driver allocated for rueda. Freed with the last reference, after
    the work that uses it.
    """

    __slots__ = ("_release", "address", "device", "size_bytes")

    def __init__(self, device: int, size_bytes: int) -> None:
        made = c_void_p()
        self.address: int = 0
        status = _core.alloc_on_device(device, size_bytes, byref(made))
        if status == _core.UNAVAILABLE and "CUDA_ERROR_OUT_OF_MEMORY" in (text := _core.last_error()):
            raise MemoryError(f"A result of {size_bytes} bytes: {text}")
        check(status)
        self.address = made.value or 0
        self.device = device
        self.size_bytes = size_bytes
        self._release = _core.release_on_device

    def __del__(self) -> None:
        if self.address:
            self._release(self.device, self.address)


def device_of(address: int) -> int:
    """The index of the device whose memory this is; -1 for memory of the host."""
    found: int = _core.device_of(address)
    return found


def copy(stream: Stream, target: int, source: int, size_bytes: int) -> None:
    """Enqueues a copy within the device's memory on the stream of the calling thread."""
    if size_bytes:
        check(_core.copy_on_stream(stream.device, stream.current(), target, source, size_bytes))


def check(status: int) -> None:
    """Raises unless the call of the engine that returned this succeeded: ValueError for what this rank gave
    (a stream of another device, or one that is being captured), else HorovodInternalError.
    """
    if status == _core.OK:
        return
    text = _core.last_error()
    if status == _core.INVALID_ARGUMENT:
        raise ValueError(text)
    raise errors.internal_error(text)
