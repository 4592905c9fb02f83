"""Elastic training with numpy arrays: `hvd.elastic` of `import rueda.numpy as hvd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rueda.basics import basics
from rueda.elastic import exports
from rueda.elastic.exports import *  # noqa: F403
from rueda.elastic.loop import decorate
from rueda.elastic.state import CopyingState
from rueda.numpy.objects import broadcast_object

__all__ = ["NumpyState", "run", *exports.__all__]


class NumpyState(CopyingState):
    """The state of a training with arrays. Each keyword becomes an attribute; a commit copies its value.

    >>> state = hvd.elastic.NumpyState(weights=np.zeros(10), step=0)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(broadcast_object, basics.rank, **kwargs)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Runs func(state, …) until it returns, through changes of the job.

    When ranks are lost, the others restore the last commit and call func again; when ranks come, all do. In a
    job that is not elastic, func is called once.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     while state.step < 100: ...
    """
    wrapped: Callable[..., Any] = decorate(func)
    return wrapped
