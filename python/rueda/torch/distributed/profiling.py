"""Ranges of torch.profiler for operations: "rueda:all_reduce", as Gloo has "gloo:all_reduce"."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torch._C._autograd import _profiler_enabled as is_on
from torch.autograd.profiler import record_function

from rueda.torch.distributed.work import RuedaWork

__all__ = ["is_on", "ranged"]


class _Range:
    """Begins now, on a thread that is profiled.

    Only a thread that is profiled may end it: the profiler keeps events per thread, and frees them when it is
    stopped. So the thread that waits for the operation ends the range, and not the one that completes it. If
    nobody waits, the range lasts until the Work is dropped.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._span: record_function | None = record_function(name)
        self._span.__enter__()

    def end(self) -> None:
        with self._lock:
            span, self._span = self._span, None
        if span is not None:
            span.__exit__(None, None, None)


def ranged(word: str, start: Callable[[], RuedaWork]) -> RuedaWork:
    """Calls start() in a range that ends when somebody has waited for the operation."""
    span = _Range(f"rueda:{word}")
    try:
        work = start()
    except BaseException:
        span.end()
        raise
    work.after_wait = span.end
    return work
