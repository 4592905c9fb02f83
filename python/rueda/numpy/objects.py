"""Python objects between ranks, as cloudpickles (plain pickles where cloudpickle is not installed)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rueda import epochs, pickles
from rueda.basics import basics
from rueda.numpy import handles
from rueda.numpy.arrays import Array
from rueda.numpy.gathers import allgather, broadcast_async
from rueda.process_sets import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns root's object on every rank; root gets its own back.

    root_rank: a world rank. Raises what pickling raises, and HorovodInternalError on the other ranks then.

    >>> config = hvd.broadcast_object(read_config() if hvd.rank() == 0 else None)
    """
    epochs.require()
    key = pickles.key_of(name)

    def send(array: Array, part: str) -> Array:
        sent = broadcast_async(array, root_rank, f"{key}.{part}", process_set)
        received: Array = handles.synchronize(sent)
        return received

    def content(payload: bytes | None, size: int) -> Array:
        return send(np.empty(size, np.uint8) if payload is None else np.frombuffer(payload, np.uint8), "t")

    is_root = basics.rank() == root_rank
    return pickles.broadcast(obj, is_root, lambda size: int(send(np.array([size]), "sz")[0]), content)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order of the process set.

    >>> hosts = hvd.allgather_object(socket.gethostname())
    """
    key = pickles.key_of(name)
    return pickles.allgather(
        obj,
        lambda size: allgather(np.array([size]), f"{key}.sz", process_set),
        lambda payload: allgather(np.frombuffer(payload, np.uint8), f"{key}.t", process_set),
    )
