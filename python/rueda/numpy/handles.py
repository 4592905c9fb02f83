"""Waiting for operations that were started without waiting."""

from __future__ import annotations

from typing import Any

from rueda import in_flight


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation, returns what its blocking form would, and forgets the handle.

    Threads that wait for one handle at the same time get the same result.
    Raises HorovodInternalError when the operation failed or was ended by a shutdown(), ValueError for an
    unknown or synchronized handle.

    >>> handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum)
    >>> hvd.synchronize(handle)  # array([n, n, n])
    """
    return in_flight.of_handle(handle).settle()
