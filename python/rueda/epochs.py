"""The epoch of this process: the time from an init to the next shutdown, under a number of the engine's.

Handles, process sets and the numbers of unnamed operations belong to the epoch in which they were made. Code
that must know whether something belongs to an earlier epoch asks here. Nothing else counts inits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from rueda import _core, errors

NONE = -1  # before init and after shutdown

T = TypeVar("T")

_is_forked = False
_awaits_view = False


def current() -> int:
    """The number of the epoch whose engine runs here; NONE also in a forked child. Any thread."""
    return NONE if _is_forked else known()


def known() -> int:
    """Like current(), but a child of fork() knows the epoch of its parent at the fork. Any thread."""
    number: int = _core.epoch()
    return number


def is_forked() -> bool:
    """Whether this process was forked from one with a running engine and so cannot use it."""
    return _is_forked


def awaits_view() -> bool:
    """Whether init() of a process that is to join an elastic job was called, and no view has it yet."""
    return _awaits_view


def await_view(does_wait: bool) -> None:
    """Begins or ends the time between init() of such a process and the view that has it. By basics."""
    global _awaits_view
    _awaits_view = does_wait


def not_running() -> str:
    """Why there is no engine, for messages."""
    return errors.AWAITS_VIEW if _awaits_view else errors.NOT_INITIALIZED


def require() -> None:
    """Raises ValueError before init and after shutdown, and HorovodInternalError in a forked child."""
    if _is_forked:
        raise errors.internal_error(errors.FORKED)
    require_known()


def require_known() -> None:
    """Raises ValueError before init and after shutdown, for what a forked child knows from its parent."""
    if known() == NONE:
        raise ValueError(not_running())


class PerEpoch(Generic[T]):
    """A value that is made again in each epoch."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._epoch = NONE
        self._value = make()

    def now(self) -> T:
        """The value of the current epoch, or in a forked child of its parent's."""
        epoch = known()
        if epoch != self._epoch:
            self._epoch, self._value = epoch, self._make()
        return self._value


def _after_fork_in_child() -> None:
    # The engine's threads and sockets belong to the parent. Its locks may stay locked here forever.
    global _is_forked
    _is_forked |= known() != NONE  # a child knows an epoch only from its parent


os.register_at_fork(after_in_child=_after_fork_in_child)
