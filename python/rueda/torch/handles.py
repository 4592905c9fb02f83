"""Operations in flight: what must stay alive until they end, and how their results become tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from rueda import _core, operations
from rueda.basics import basics
from rueda.errors import HorovodInternalError
from rueda.in_flight import InFlight, InFlightTable
from rueda.operations import Call
from rueda.process_sets import ProcessSet
from rueda.torch import tensors as memory

_in_flight = InFlightTable()
_shutdowns = 0


def start(
    calls: Sequence[Call],
    borrowed: Sequence[torch.Tensor],
    finish: Callable[[int], Any],
    naming: tuple[str, str | None],
    process_set: ProcessSet,
) -> int:
    """Submits and returns the handle.

    naming: the word the operation's key begins with ("allreduce") and the user's name or None.
    """
    handle, engine_handle = operations.submit_named(calls, naming, process_set)
    _in_flight.add(handle, InFlight(engine_handle, tuple(borrowed), finish))
    return handle


def run(start_operation: Callable[..., int], *arguments: Any) -> Any:
    """Starts an operation by a function that returns its handle, and waits for it."""
    with operations.about_to_wait():
        handle = start_operation(*arguments)
    return synchronize(handle)


# Engine handle -> memory of an operation that operations.prepare or repeat started and that is not finished.
lent: dict[int, torch.Tensor | tuple[torch.Tensor, ...]] = {}


def finish_prepared(engine_handle: int) -> None:
    """Waits for an operation whose memory is in lent. Raises HorovodInternalError when it failed."""
    try:
        operations.wait(engine_handle)
    except HorovodInternalError:  # else a signal handler's: still in flight, what it borrows stays alive
        _return(engine_handle)
        raise
    _return(engine_handle)


def _return(engine_handle: int) -> None:
    if lent.pop(engine_handle, None) is not None:
        _core.release(engine_handle)


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return at once; true as well when the operation failed.

    Raises ValueError for a handle that does not exist or was already synchronized.
    """
    return _in_flight.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation, returns its output and forgets the handle.

    Groups return a tuple, alltoall `(output, received_splits)`. None for a handle that is unknown or was
    synchronized before; threads that wait for one handle at the same time get the same output. Raises
    HorovodInternalError when the operation failed.
    """
    operation = _in_flight.get(handle)
    return None if operation is None else _in_flight.settle(handle, operation)


def synchronize_all(handles: Sequence[int]) -> list[Any]:
    """What synchronize gives for each. Raises the first error once all have ended or linger."""
    return _in_flight.settle_all(handles)


def let_end(handles: Iterable[int]) -> None:
    """After an error: waits a while for what was started together with the operation that failed."""
    _in_flight.let_end(handles)


def shutdowns() -> int:
    """How often the engine has been shut down: handles count from 1 again after each time."""
    return _shutdowns


def _forget_all() -> None:
    """After shutdown: the engine has ended every operation and lends no memory any more."""
    global _shutdowns
    _shutdowns += 1
    lent.clear()
    operations.numbers.clear()


basics.on_shutdown(_forget_all)


def copy_back(host: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Brings results from their host stages to the tensors they belong to."""
    with torch.no_grad():
        for stage, output in zip(host, outputs):
            if stage.data_ptr() != output.data_ptr() or stage.device != output.device:
                output.detach().copy_(stage)


def start_gathering(
    calls: Sequence[Call],
    inputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    naming: tuple[str, str | None],
    process_set: ProcessSet,
) -> int:
    """Submits operations whose results the engine allocates; results come back on the devices of
    `tensors`.
    """
    is_group = naming[0].startswith("grouped_")
    kinds = [(tensor.dtype, tensor.device) for tensor in tensors]

    def finish(engine_handle: int) -> Any:
        outputs = tuple(take(engine_handle, index, *kind)[0] for index, kind in enumerate(kinds))
        return outputs if is_group else outputs[0]

    return start(calls, [*inputs, *tensors], finish, naming, process_set)


def take(
    engine_handle: int, index: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, operations.Result]:
    """One result the engine allocated, on the device, and its description."""
    result = operations.result(engine_handle, index)
    return memory.from_engine(engine_handle, index, result, dtype).to(device), result
