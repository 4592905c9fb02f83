"""Ranges of torch.profiler for operations: "rueda:all_reduce", as Gloo has "gloo:all_reduce"."""

from __future__ import annotations

from collections.abc import Callable

from torch._C._autograd import _profiler_enabled as is_on
from torch.autograd.profiler import record_function

from rueda.torch.distributed.work import RuedaWork

__all__ = ["is_on", "ranged"]


def ranged(word: str, start: Callable[[], RuedaWork]) -> RuedaWork:
    """Calls start() in a range that ends with the operation, whatever thread ends it."""
    span = record_function(f"rueda:{word}")
    span.__enter__()
    try:
        work = start()
    except BaseException as error:
        span.__exit__(type(error), error, error.__traceback__)
        raise
    span._call_end_callbacks_on_future(work.get_future())
    return work
