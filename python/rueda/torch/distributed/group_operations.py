"""Operations of process groups between submission and result: how they are entered, and who waits.

The engine reads and writes tensors until an operation has ended, even if the caller drops its Work (DDP.join
does). Therefore the record of what is in flight holds them, and not the Work. Results are taken once: by the
thread that waits, by a thread of completions.py if a future was asked for, or by a later submission.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rueda import _core, errors, operations
from rueda.device import Stream
from rueda.errors import HorovodInternalError
from rueda.open_operations import LOST, InFlight, Writes, open_operations
from rueda.operations import Call
from rueda.torch import devices
from rueda.torch.distributed.names import Place

_REAP_AT_ONCE = 16  # how many ended operations one submission settles at most


class GroupOperation(InFlight):
    """One operation of a process group. Any thread."""

    __slots__ = ("what",)

    def __init__(
        self,
        engine_handle: int,
        held: Sequence[Any],
        finish: Callable[[int], None] | None,
        what: str,
        stream: Stream | None = None,
        writes: Writes | None = None,
    ) -> None:
        """what: for error texts: "all_reduce (call 12 of process group 0)". stream, writes: see InFlight."""

        def put_in_place(engine_handle: int) -> None:
            if finish is not None:
                with torch.no_grad():
                    finish(engine_handle)

        super().__init__(engine_handle, held, put_in_place, 0, stream, writes)
        self.what = what
        _to_reap.append(engine_handle)

    def wait(self, seconds: float) -> None:
        """Returns once the operation has succeeded, or was launched on a device, for which the calling
        thread's stream then waits. Raises HorovodInternalError if it failed or is late.
        """
        if not self.ends_by(time.monotonic() + seconds):
            raise self.late(seconds)
        self.settle()

    @property
    def gpu(self) -> int:
        """The index of the GPU whose streams wait for it; -1 if it is in host memory."""
        return -1 if self._stream is None else self._stream.device

    def _end(self, failure: str | None) -> None:
        # The engine's texts know the name alone.
        is_told = failure is not None and failure is not LOST
        super()._end(f"{failure} This rank called {self.what}." if is_told else failure)

    def late(self, seconds: float) -> HorovodInternalError:
        """The error of a wait that took too long; the operation itself stays open."""
        return errors.internal_error(
            f"The {self.what} timed out: it has not ended within {seconds:g} s, because some rank has not "
            "called it, or is far behind; see what each rank is doing, or give the group a longer timeout."
        )


# The order in which submissions look for ended operations that nobody waits for; by the engine's handle.
_to_reap: deque[int] = deque()


def stream_for(calls: Sequence[Call]) -> Stream | None:
    """The stream on which the calling thread enqueues for the GPU of these calls; None for host memory."""
    on_gpu = [call.device for call in calls if call.memory == _core.DEVICE_MEMORY]
    return devices.stream_at(on_gpu[0]) if on_gpu else None


def submit(calls: Sequence[Call], target: tuple[int, str, Place], will_wait: bool) -> int:
    """Submits the calls as one operation and returns the engine's handle, of which the caller makes a
    GroupOperation at once. ValueError or HorovodInternalError if refused.

    target: the process set, the name of the group, and which of its operations it is. will_wait: this
    thread waits for it next, and does the engine's work meanwhile.
    """
    set_id, prefix, place = target
    name = f"{prefix}/{place}"
    numbered_at = len(f"{prefix}/{place.word} ".encode())
    operations.check_usable()
    requests = (_core.Request * len(calls))()
    for index, call in enumerate(calls):
        operations.fill(requests[index], call, set_id, name if index == 0 else f"{name}/{index}", numbered_at)
    _reap()
    return operations.start(requests, len(calls), will_wait)


def _reap() -> None:
    for _ in range(_REAP_AT_ONCE):
        try:
            engine_handle = _to_reap.popleft()
        except IndexError:
            return
        operation = open_operations.get(engine_handle)
        if isinstance(operation, GroupOperation) and not operation.try_settle():
            _to_reap.appendleft(engine_handle)  # another thread may have come between; any order will do
            return
