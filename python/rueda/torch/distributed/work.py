"""`Work`, the handle that torch.distributed gives for one operation of a process group, or for several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Union

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from rueda.torch import devices
from rueda.torch.distributed import owners
from rueda.torch.distributed.completions import completions
from rueda.torch.distributed.group_operations import GroupOperation

if TYPE_CHECKING:
    _Ended = torch.futures.Future[Union[list[torch.Tensor], Exception]]


class RuedaWork(_TorchWork):
    """One operation of a process group, or several that end together. Any thread.

    It may be dropped at any time. What the engine reads and writes is held elsewhere until the operation has
    ended, and so is the Work itself while C++ has it.
    """

    def __init__(
        self, operations: Sequence[GroupOperation], outputs: Sequence[torch.Tensor], seconds: float
    ) -> None:
        super().__init__()
        owners.release_unshared()
        self._operations = list(operations)
        self._outputs = list(outputs)
        self._seconds = seconds
        self._source = -1
        self.after_wait: Callable[[], None] | None = None  # runs when wait() has ended, each time
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def __del__(self) -> None:
        owners.keep_if_shared(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns True once the results are in the output tensors. On a GPU the calling thread's stream waits
        for them, and the host waits until the operation was launched.

        timeout: the limit of this call; None or 0 means that of the operation or its group. Raises
        HorovodInternalError (a RuntimeError) if the operation failed or has not ended in time.
        """
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        try:
            for operation in self._operations:
                operation.wait(seconds if seconds > 0 else self._seconds)
        finally:
            if self.after_wait is not None:
                self.after_wait()
        return True

    def synchronize(self) -> None:
        """The same as wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether wait() would return, or raise, at once."""
        return all(operation.try_settle() for operation in self._operations)

    def is_success(self) -> bool:
        """Whether the operation has succeeded."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Why the operation failed; None while it runs and when it succeeded."""
        return next((operation.error for operation in self._operations if operation.error is not None), None)

    def result(self) -> list[torch.Tensor]:
        """The output tensors."""
        return self._outputs

    def source_rank(self) -> int:
        """The rank within the group that a received tensor came from."""
        return self._source

    _source_rank = source_rank

    def came_from(self, group_rank: int) -> RuedaWork:
        """Names the sender of a received tensor; returns the work itself."""
        self._source = group_rank
        return self

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the output tensors, with the error of a failed or late operation as a RuntimeError."""
        if self._future is None:
            ended = _future_for(self._operations)

            def result(done: _Ended) -> list[torch.Tensor]:
                outcome = done.value()
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            # Only a callback can give a future an error that C++ sees. set_exception makes the error a value,
            # which DDP's reducer would take for tensors.
            self._future = ended.then(result)
            _complete(ended, self._operations, self._outputs, self._seconds)
        return self._future


def _future_for(operations: Sequence[GroupOperation]) -> _Ended:
    gpu = next((operation.gpu for operation in operations if operation.gpu >= 0), -1)
    return devices.future(gpu) if gpu >= 0 else torch.futures.Future()


def _complete(
    ended: _Ended,
    operations: Sequence[GroupOperation],
    outputs: list[torch.Tensor],
    seconds: float,
) -> None:
    """Sets `ended` once all operations have ended or one is late: to the outputs, or to the first error.

    A future for a GPU looks for tensors in its value, and marks the streams on which they are then.
    """
    left = [operation for operation in operations if not operation.try_settle()]
    if not left:
        errors = [operation.error for operation in operations if operation.error is not None]
        for operation in operations if not errors else ():
            operation.settle()  # another thread may have taken the result, on its stream
        _set(ended, errors[0] if errors else outputs)
        return

    def go_on(error: Exception | None) -> None:
        if error is None:
            _complete(ended, operations, outputs, seconds)
        else:
            _set(ended, error)

    completions.watch(left[0], seconds, go_on)


def _set(ended: _Ended, outcome: list[torch.Tensor] | Exception) -> None:
    if not ended.done():
        ended.set_result(outcome)
