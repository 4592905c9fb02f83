"""What the program tells the timeline: where its steps end, and how long it waited for input.

Front ends call `mark_step` after each update of the parameters, so most programs need nothing of this.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rueda import _core

Batch = TypeVar("Batch")


def mark_step(source: object = None) -> None:
    """A step of training has ended. Does nothing before `init`; takes less than a microsecond.

    source: what ended it, such as the optimizer. Of several in use at the same time, the first
    counts; one that follows when another has gone goes on with the count.
    """
    _core.mark_step(id(source))


def timed_input(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches. `rueda timeline summary` shows as input how long the program waits for them.

    A rank that keeps the others waiting meanwhile is said to be late in input (docs/verdicts.md).

    Example::

        for features, labels in hvd.timed_input(loader):
            ...
    """
    iterator = iter(batches)
    while True:
        began = time.monotonic_ns()
        _core.begin_input()
        try:
            batch = next(iterator)
        except BaseException as ended:
            _core.mark_input(-1)
            if isinstance(ended, StopIteration):
                return
            raise
        _core.mark_input(time.monotonic_ns() - began)
        yield batch
