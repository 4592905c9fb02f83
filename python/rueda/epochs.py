"""The epoch of this process: the time from an init to the next shutdown, under a number of the engine's.

Handles, process sets and the numbers of unnamed operations belong to the epoch in which they were made. Code
that must know whether something belongs to an earlier epoch asks here. Nothing else counts inits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from rueda import _core, errors

NONE = -1  # before init, after shutdown, and in a child forked from a process whose engine ran

T = TypeVar("T")

_is_forked = False
_had_engine_at_fork = False


def current() -> int:
    """The number of the epoch, or NONE. Any thread."""
    number: int = NONE if _is_forked else _core.epoch()
    return number


def is_forked() -> bool:
    """Whether this process was forked from one with a running engine and so cannot use it."""
    return _is_forked


def require() -> None:
    """Raises ValueError before init, after shutdown and in a forked child."""
    if current() == NONE:
        raise ValueError(errors.NOT_INITIALIZED)


class PerEpoch(Generic[T]):
    """A value that is made again in each epoch."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._epoch = NONE
        self._value = make()

    def now(self) -> T:
        """The value of the current epoch."""
        epoch = current()
        if epoch != self._epoch:
            self._epoch, self._value = epoch, self._make()
        return self._value


def _before_fork() -> None:
    global _had_engine_at_fork
    _had_engine_at_fork = current() != NONE


def _after_fork_in_child() -> None:
    # The engine's threads and sockets belong to the parent. Its locks may stay locked here forever.
    global _is_forked
    _is_forked |= _had_engine_at_fork


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
