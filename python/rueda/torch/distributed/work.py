"""`Work`, the handle that torch.distributed gives for one operation of a process group, or for several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from rueda.torch.distributed import owners
from rueda.torch.distributed.completions import completions
from rueda.torch.distributed.group_operations import GroupOperation


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
        """Returns True once the results are in the output tensors.

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
        """The same as wait(): results of GPU tensors are in place when it returns."""
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
            outputs = self._outputs
            ended: torch.futures.Future[Exception | None] = torch.futures.Future()

            def result(done: torch.futures.Future[Exception | None]) -> list[torch.Tensor]:
                error = done.value()
                if error is not None:
                    raise error
                return outputs

            # Only a callback can give a future an error that C++ sees. set_exception makes the error a value,
            # which DDP's reducer would take for tensors.
            self._future = ended.then(result)
            _complete(ended, self._operations, self._seconds)
        return self._future


def _complete(
    ended: torch.futures.Future[Exception | None], operations: Sequence[GroupOperation], seconds: float
) -> None:
    """Sets `ended` to None or the first error once all operations have ended or one is late."""
    left = [operation for operation in operations if not operation.try_settle()]
    if not left:
        failed = (operation.error for operation in operations if operation.error is not None)
        _set(ended, next(failed, None))
        return

    def go_on(error: Exception | None) -> None:
        if error is None:
            _complete(ended, operations, seconds)
        else:
            _set(ended, error)

    completions.watch(left[0], seconds, go_on)


def _set(ended: torch.futures.Future[Exception | None], error: Exception | None) -> None:
    if not ended.done():
        ended.set_result(error)
