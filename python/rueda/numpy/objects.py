"""Python objects between ranks, as cloudpickles (plain pickles where cloudpickle is not installed)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rueda import pickles
from rueda.basics import basics
from rueda.numpy import handles
from rueda.numpy.arrays import Array
from rueda.numpy.gathers import allgather, allgather_async, broadcast_async
from rueda.process_sets import ProcessSet, global_process_set


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns root's object on every rank; root gets its own back.

    root_rank: a world rank. Raises what pickling raises, and HorovodInternalError on the other ranks then.

    >>> config = hvd.broadcast_object(read_config() if hvd.rank() == 0 else None)
    """
    basics.require_initialized()
    key = name if name is not None else pickles.DEFAULT_NAME
    is_root = basics.rank() == root_rank
    payload, error = _pickled(obj) if is_root else (np.empty(0, np.uint8), None)
    size = handles.synchronize(broadcast_async(np.array([len(payload)]), root_rank, f"{key}.sz", process_set))
    data = payload if is_root else np.empty(int(size[0]), np.uint8)
    received = handles.synchronize(broadcast_async(data, root_rank, f"{key}.t", process_set))
    if error is not None:
        raise error
    return obj if is_root else pickles.loads(received.tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order of the process set.

    >>> hosts = hvd.allgather_object(socket.gethostname())
    """
    key = name if name is not None else pickles.DEFAULT_NAME
    payload, error = _pickled(obj)
    sizes = allgather(np.array([len(payload)]), f"{key}.sz", process_set)
    gathered = handles.synchronize(allgather_async(payload, f"{key}.t", process_set))
    if error is not None:
        raise error
    parts = np.split(gathered, np.cumsum(sizes)[:-1])
    return [pickles.loads(part.tobytes()) for part in parts]


def _pickled(obj: Any) -> tuple[Array, Exception | None]:
    payload, error = pickles.attempt(obj)
    return np.frombuffer(payload, np.uint8), error
