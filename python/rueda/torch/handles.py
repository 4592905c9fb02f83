"""Waiting for operations by handle, and how their results become tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rueda import in_flight
from rueda.open_operations import Writes
from rueda.operations import Naming, is_group
from rueda.process_sets import ProcessSet
from rueda.torch import overlaps
from rueda.torch import tensors as memory


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation, returns its output and forgets the handle.

    Groups return a tuple, alltoall `(output, received_splits)`. None for a handle that is unknown or was
    synchronized before; threads that wait for one handle at the same time get the same output. Raises
    HorovodInternalError when the operation failed, or was ended by a shutdown().
    """
    operation = in_flight.find(handle)
    return None if operation is None else operation.settle()


def copy_back(host: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Copies results from their host stages to the tensors to which they belong."""
    with torch.no_grad():
        for stage, output in zip(host, outputs):
            if stage.data_ptr() != output.data_ptr() or stage.device != output.device:
                output.detach().copy_(stage)


def start_gathering(
    what: int,
    tensors: Sequence[torch.Tensor],
    naming: Naming,
    process_set: ProcessSet,
    **settings: Any,
) -> int:
    """Submits operations whose results the engine allocates; they are moved to the devices of `tensors`.

    settings: as in Call.
    """
    inputs = overlaps.for_engine(tensors, False, naming[0])
    calls = memory.calls(what, inputs, device=memory.device_index(tensors[0]), **settings)
    kinds = [memory.kind_of(tensor) for tensor in tensors]

    def finish(engine_handle: int) -> Any:
        outputs = tuple(memory.take(engine_handle, index, kind)[0] for index, kind in enumerate(kinds))
        return outputs if is_group(naming) else outputs[0]

    borrowed = [*inputs, *tensors]
    return in_flight.start(calls, borrowed, finish, naming, process_set, kinds[0].stream, Writes(()))
