"""allgather, broadcast and alltoall with their gradients, and join."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any

import torch

from rueda import _core, epochs, errors, in_flight, operations
from rueda.basics import basics
from rueda.open_operations import Writes
from rueda.operations import Naming
from rueda.policy import Average
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch import handles, overlaps
from rueda.torch import tensors as memory
from rueda.torch.reductions import allreduce_async, gradient_name

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "join",
]

# ---- allgather ----


def _start_allgather(tensors: Sequence[torch.Tensor], naming: Naming, process_set: ProcessSet) -> int:
    memory.check_group(tensors)
    return handles.start_gathering(_core.ALLGATHER, tensors, naming, process_set)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts an allgather and returns its handle; see allgather. Leave the input unchanged meanwhile."""
    return _start_allgather([tensor], ("allgather", name), process_set)


def _allgather_gradients(
    grads: Sequence[torch.Tensor], rows: Sequence[int], name: str | None, process_set: ProcessSet
) -> list[torch.Tensor]:
    """Averages each gradient over the ranks and cuts out the rows this rank contributed."""
    me = process_set.rank()
    base = gradient_name(name)
    all_rows = allgather_async(torch.tensor([rows]), None if base is None else f"{base}.rows", process_set)
    reductions = [
        allreduce_async(
            grad.contiguous(), None, None if base is None else f"{base}.{i}", Average, 1.0, 1.0, process_set
        )
        for i, grad in enumerate(grads)
    ]
    rows_of_all, *reduced = in_flight.synchronize_all([all_rows, *reductions])
    starts = rows_of_all[:me].sum(dim=0).tolist()
    return [grad.narrow(0, start, count) for grad, start, count in zip(reduced, starts, rows)]


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        ctx.name, ctx.process_set = name, process_set
        handle = allgather_async(tensor, name, process_set)
        try:
            output: torch.Tensor = handles.synchronize(handle)
        except errors.HorovodInternalError as error:
            if tensor.dim() == 0:  # every rank was told; here it is a programming error
                raise IndexError(str(error)) from error
            raise
        ctx.rows = [tensor.shape[0]]
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _allgather_gradients(grads, ctx.rows, ctx.name, ctx.process_set)[0], None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the tensors of all ranks along dimension 0, in rank order of the process set.

    tensor: [rows, …]; rows may differ between ranks and be 0, the other dimensions may not. Differentiable:
    the gradient is the averaged gradient of this rank's rows. Raises IndexError for a 0-dimensional tensor.
    """
    output: torch.Tensor = _Allgather.apply(tensor, name, process_set)
    return output


def grouped_allgather_async(
    tensors: Iterable[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts one allgather of several tensors and returns its handle."""
    return _start_allgather(memory.group(tensors), ("grouped_allgather", name), process_set)


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        ctx.name, ctx.process_set = name, process_set
        outputs = in_flight.run(grouped_allgather_async, tensors, name, process_set)
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return (None, None, *_allgather_gradients(grads, ctx.rows, ctx.name, ctx.process_set))


def grouped_allgather(
    tensors: Iterable[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> tuple[torch.Tensor, ...]:
    """Gathers several tensors as one operation; a tuple in the same order. See allgather."""
    tensors = memory.group(tensors)
    if not tensors:
        return ()
    outputs: tuple[torch.Tensor, ...] = _GroupedAllgather.apply(name, process_set, *tensors)
    return outputs


# ---- broadcast ----


def _start_broadcast(
    tensor: torch.Tensor, output: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> int:
    memory.check(tensor)
    device = memory.device_index(tensor)
    [source] = overlaps.for_engine([tensor], output is tensor, "broadcast")
    is_staged = not memory.is_direct(output)
    stage = source if is_staged else output.detach()
    calls = memory.calls(_core.BROADCAST, [source], [stage], root_rank=root_rank, device=device)

    def finish(engine_handle: int) -> Any:
        if is_staged:
            handles.copy_back([stage], [output])
        return output

    writes = Writes([output], at_end=is_staged) if output is tensor else Writes(())
    borrowed, stream = [source, stage, tensor], memory.stream_of(source)
    return in_flight.start(calls, borrowed, finish, ("broadcast", name), process_set, stream, writes)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast into a new tensor and returns its handle; see broadcast."""
    memory.check(tensor)
    output = torch.empty_like(tensor, requires_grad=False)
    return _start_broadcast(tensor, output, root_rank, name, process_set)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: Any
    ) -> torch.Tensor:
        ctx.arguments = (root_rank, name, process_set)
        output: torch.Tensor = in_flight.run(broadcast_async, tensor, root_rank, name, process_set)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        root_rank, name, process_set = ctx.arguments
        handle = allreduce_async(
            grads[0].contiguous(), None, gradient_name(name), Average, 1.0, 1.0, process_set
        )
        grad = handles.synchronize(handle)
        return (grad if basics.rank() == root_rank else grad * 0), None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns root's tensor on every rank.

    tensor: equal shape and type on all ranks, left unmodified. root_rank: a world rank, also within a process
    set. Differentiable: root receives the averaged gradient, the others zeros.
    """
    output: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)
    return output


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast in place and returns its handle. Works on leaf parameters that require grad."""
    return _start_broadcast(tensor, tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites the tensor with root's and returns it; see broadcast. Not differentiable."""
    output: torch.Tensor = in_flight.run(broadcast_async_, tensor, root_rank, name, process_set)
    return output


# ---- alltoall ----


NO_SPLITS = "alltoall: splits must be a list with one whole number for each rank, but got {!r}."


def _check_splits(splits: Any) -> tuple[list[int] | None, torch.device]:
    """Rows for each rank as integers, and where the received splits belong."""
    cpu = torch.device("cpu")
    if splits is None:
        return None, cpu
    if not isinstance(splits, torch.Tensor):
        if not isinstance(splits, Sized) or not isinstance(splits, Iterable):
            raise ValueError(NO_SPLITS.format(splits))
        if all(isinstance(rows, int) for rows in splits):
            operations.check_splits(list(splits))
            splits = torch.tensor(list(splits), dtype=torch.int32)
        else:
            try:
                splits = torch.tensor(splits)
            except (TypeError, ValueError, RuntimeError):
                raise ValueError(NO_SPLITS.format(splits)) from None
    if splits.dim() != 1:
        raise ValueError("alltoall expects a 1D splits tensor")
    if splits.dtype != torch.int32:
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    rows = [int(count) for count in splits.tolist()]
    if not rows:  # to the engine, an empty list is no list
        raise ValueError("Number of entries in splits does not equal number of workers.")
    operations.check_splits(rows)
    return rows, splits.device


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall; synchronize on its handle returns (output, received splits). See alltoall."""
    if splits is None:
        epochs.require()  # even splits need the number of ranks
    memory.check(tensor)
    rows, splits_device = _check_splits(splits)
    [source] = overlaps.for_engine([tensor], False, "alltoall")
    calls = memory.calls(_core.ALLTOALL, [source], device=memory.device_index(tensor), splits=rows)
    kind = memory.kind_of(tensor)

    def finish(engine_handle: int) -> Any:
        output, result = memory.take(engine_handle, 0, kind)
        received = torch.tensor(result.received_splits, dtype=torch.int32, device=splits_device)
        return output, received

    borrowed, naming = [source, tensor], ("alltoall", name)
    return in_flight.start(calls, borrowed, finish, naming, process_set, kind.stream, Writes(()))


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> Any:
        output, received = in_flight.run(alltoall_async, tensor, splits, name, process_set)
        ctx.arguments = (received.cpu(), gradient_name(name), process_set)
        ctx.rows = tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        received, name, process_set = ctx.arguments
        handle = alltoall_async(grads[0].contiguous(), received, name, process_set)
        grad, _ = handles.synchronize(handle)
        if grad.shape[0] < ctx.rows:  # rows that were not sent
            unsent = grad.new_zeros((ctx.rows - grad.shape[0], *grad.shape[1:]))
            grad = torch.cat([grad, unsent])
        return grad, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends slices of a tensor to all ranks and returns what they sent here, in rank order.

    tensor: [rows, …]. splits: rows for each rank of the set, a list or a 1-D int32 tensor; rows beyond their
    sum are not sent. Without splits every rank gets rows / n, and the output alone is returned; with splits
    the result is (output, received_splits int32). Differentiable with respect to tensor.
    """
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


# ---- join ----


def join(device: int = -1) -> int:
    """Blocks until every rank has joined, adding nothing to the allreduces of the others meanwhile.

    For uneven amounts of data: call it when this rank has no more batches. device: ignored, kept for old
    scripts. Returns the world rank that joined last. Average still divides by the number of all ranks.
    """
    return operations.join()
