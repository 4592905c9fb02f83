"""News from a running job: rank 0 calls `log`, and the driver's callbacks get what it passed."""

from __future__ import annotations

import os
from typing import Any, Optional

_queue: Optional[Any] = None


def configure(queue: Optional[Any]) -> None:
    """In a rank: where `log` puts things; None drops them."""
    global _queue
    _queue = queue


def log(info: dict[str, Any]) -> None:
    """Hands a dict to the callbacks of the call that runs now. Only what rank 0 says counts.

    >>> rueda.ray.log({"loss": 0.5})

    Raises TypeError for anything but a dict.
    """
    if not isinstance(info, dict):
        raise TypeError(f"rueda.ray.log takes a dict, not {type(info).__name__}.")
    rank = os.environ.get("RUEDA_RANK") or os.environ.get("HOROVOD_RANK") or "0"
    if _queue is not None and rank == "0":
        _queue.put(info)
