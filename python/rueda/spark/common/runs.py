"""Which runs of estimators are under way in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_under_way: set[str] = set()  # their folders


@contextmanager
def alone(folder: str, run_id: str) -> Iterator[None]:
    """While this block runs, no other fit of this process writes to the same run."""
    with _lock:
        if folder in _under_way:
            raise ValueError(
                f"Another fit with run_id {run_id!r} is under way, and two would mix checkpoints: leave "
                "run_id out in CrossValidator and TrainValidationSplit."
            )
        _under_way.add(folder)
    try:
        yield
    finally:
        with _lock:
            _under_way.discard(folder)
