"""Elastic training for JAX: `hvd.elastic` of `import rueda.jax as hvd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rueda.basics import basics
from rueda.elastic import exports
from rueda.elastic.exports import *  # noqa: F403
from rueda.elastic.loop import Hooks, decorate
from rueda.elastic.lost import is_lost
from rueda.elastic.state import CopyingState
from rueda.errors import internal_error
from rueda.numpy import broadcast_object

__all__ = ["JaxState", "run", *exports.__all__]


class JaxState(CopyingState):
    """The state of a training with JAX: pytrees and plain values. Each keyword becomes an attribute.

    A commit copies the arrays to the host, because a compiled step may have been given their memory
    (donate_argnums). What is restored or received are arrays of JAX again, on the default device.

    >>> state = hvd.elastic.JaxState(params=params, opt_state=opt_state, step=0)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(broadcast_object, basics.rank, **kwargs)

    def _as_saved(self, value: Any) -> Any:
        return super()._as_saved(jax.tree.map(_to_host, value))

    def _kept(self, value: Any) -> Any:
        return value  # as_saved has copied

    def _set_attrs(self) -> None:
        super()._set_attrs()
        for name in self._saved_state:
            setattr(self, name, jax.tree.map(_to_device, getattr(self, name)))


class _FromDevice(np.ndarray):
    """A copy of an array of JAX, so that it becomes one again."""


def _to_host(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return np.array(leaf, copy=True).view(_FromDevice)
    return np.array(leaf, copy=True) if isinstance(leaf, np.ndarray) else leaf


def _to_device(leaf: Any) -> Any:
    if isinstance(leaf, _FromDevice):
        return jax.numpy.array(leaf.view(np.ndarray), copy=True)
    return np.array(leaf, copy=True) if isinstance(leaf, np.ndarray) else leaf


def translate(error: Exception) -> Exception | None:
    """A compiled program fails with an error of JAX's, or ValueError; that of a lost rank is ours."""
    if isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) and is_lost():
        return internal_error(str(error))
    return None


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Runs func(state, …) until it returns, through changes of the job.

    When ranks are lost, the others restore the last commit and call func again; when ranks come, all do.
    Compiled programs are forgotten then, because the number of ranks is part of some of them. In a job that
    is not elastic, func is called once.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     while state.step < 100: ...
    """
    wrapped: Callable[..., Any] = decorate(func, Hooks(translate, after_start=jax.clear_caches))
    return wrapped
