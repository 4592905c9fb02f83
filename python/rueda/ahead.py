"""Operations that were started a step before their results are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rueda import epochs
from rueda.basics import basics

# What has been started and not been taken. It stays alive, because other ranks need it.
_busy: set[Ahead] = set()


def finish_all() -> None:
    """Waits for everything that has been started, and forgets its results."""
    for ahead in list(_busy):
        ahead.take()


basics.before_shutdown(finish_all)


class Ahead:
    """Values that were given to be combined, and what becomes of them. One thread."""

    def __init__(self) -> None:
        self._given: Sequence[Any] = []
        self._finish: Callable[[], list[Any]] | None = None
        self._epoch = epochs.NONE

    def start(self, given: Sequence[Any], finish: Callable[[], list[Any]]) -> None:
        """finish: waits for what was started with the given values, and returns their combinations."""
        self._given, self._finish, self._epoch = given, finish, epochs.current()
        _busy.add(self)

    def take(self) -> tuple[Sequence[Any], list[Any]] | None:
        """Waits, and returns what was given and its combinations; None if nothing was started in this epoch.
        Names of operations are free then. Raises HorovodInternalError.
        """
        given, finish = self._given, self._finish
        self._given, self._finish = [], None
        _busy.discard(self)
        if finish is None or self._epoch != epochs.current():
            return None
        return given, finish()
