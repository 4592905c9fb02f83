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

    The default name is the class name of this rank's own object: give a name when classes differ between
    ranks, for instance None on all but root. root_rank: a world rank.

    >>> config = hvd.broadcast_object(read_config() if hvd.rank() == 0 else None, name="config")
    """
    basics.require_initialized()
    key = name if name is not None else type(obj).__name__
    is_root = basics.rank() == root_rank
    payload = _pickled(obj) if is_root else np.empty(0, np.uint8)
    size = handles.synchronize(broadcast_async(np.array([len(payload)]), root_rank, f"{key}.sz", process_set))
    data = payload if is_root else np.empty(int(size[0]), np.uint8)
    received = handles.synchronize(broadcast_async(data, root_rank, f"{key}.t", process_set))
    return obj if is_root else pickles.loads(received.tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order of the process set.

    >>> hosts = hvd.allgather_object(socket.gethostname())
    """
    key = name if name is not None else type(obj).__name__
    payload = _pickled(obj)
    sizes = allgather(np.array([len(payload)]), f"{key}.sz", process_set)
    gathered = handles.synchronize(allgather_async(payload, f"{key}.t", process_set))
    parts = np.split(gathered, np.cumsum(sizes)[:-1])
    return [pickles.loads(part.tobytes()) for part in parts]


def _pickled(obj: Any) -> Array:
    return np.frombuffer(pickles.dumps(obj), np.uint8)
