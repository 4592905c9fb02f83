"""hvd.elastic.run for PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from rueda.elastic.loop import Hooks, decorate
from rueda.torch.distributed.names import NAME


class _DefaultGroup:
    """The default group of torch.distributed, which belongs to a view as all groups do."""

    def __init__(self) -> None:
        self._was_there = False

    def destroy(self) -> None:
        """Before an epoch ends."""
        self._was_there = dist.is_available() and dist.is_initialized() and dist.get_backend() == NAME
        if self._was_there:
            dist.destroy_process_group()

    def make_again(self) -> None:
        """When another has begun: with its ranks."""
        if self._was_there:
            from rueda.torch.distributed.registration import init_in_epoch

            init_in_epoch()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Runs func(state, …) until it returns, through changes of the job.

    When ranks are lost, the others restore the last commit and call func again; when ranks come, all do. A
    default group of torch.distributed with the backend "rueda" is made again with the ranks of each view;
    wrap models in DistributedDataParallel within func. In a job that is not elastic, func is called once.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     for state.epoch in range(state.epoch, 10): ...
    >>> train(hvd.elastic.TorchState(model, optimizer, epoch=0))
    """
    group = _DefaultGroup()
    hooks = Hooks(before_stop=group.destroy, after_start=group.make_again)
    wrapped: Callable[..., Any] = decorate(func, hooks)
    return wrapped
