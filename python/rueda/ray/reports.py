"""News from a running job: rank 0 calls `log`, and the driver's callbacks get what it passed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Optional

Callback = Callable[[dict[str, Any]], Any]

_queue: Optional[Any] = None


def _is_first() -> bool:
    """Whether this process was started as rank 0."""
    return (os.environ.get("RUEDA_RANK") or os.environ.get("HOROVOD_RANK") or "0") == "0"


_speaks: Callable[[], bool] = _is_first


def configure(queue: Optional[Any], speaks: Callable[[], bool] = _is_first) -> None:
    """In a rank: where `log` puts things; None drops them. speaks: whether this process is rank 0 now."""
    global _queue, _speaks
    _queue, _speaks = queue, speaks


def log(info: dict[str, Any]) -> None:
    """Hands a dict to the callbacks of the call that runs now. Only what rank 0 says counts.

    >>> rueda.ray.log({"loss": 0.5})

    Raises TypeError for anything but a dict.
    """
    if not isinstance(info, dict):
        raise TypeError(f"rueda.ray.log takes a dict, not {type(info).__name__}.")
    if _queue is not None and _speaks():
        _queue.put(info)
