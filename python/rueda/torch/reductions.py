"""allreduce, single and grouped, synchronous and not, with its gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, Tuple

import torch

from rueda import _core, in_flight, operations, policy, repeats
from rueda.device import Stream
from rueda.open_operations import Repeated, Writes, writing_back
from rueda.operations import Call, Naming, is_group
from rueda.policy import handle_average_backwards_compatibility
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch import handles, overlaps
from rueda.torch import tensors as memory
from rueda.torch.compression import Compression, Compressor, NoneCompressor, wire_type
from rueda.torch.overlaps import Use

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
]


def _start_allreduce(
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    naming: Naming,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    priority: int = 0,
) -> int:
    """Outputs are new tensors, or `tensors` itself."""
    memory.check_group(tensors)
    device = memory.device_index(tensors[0])
    is_in_place = outputs is tensors
    inputs = overlaps.for_engine(tensors, is_in_place, naming[0])
    # The copy of a tensor that is not direct is ours, so it is reduced in place.
    direct = [memory.is_direct(output) for output in outputs]
    stages = [output.detach() if ok else source for output, source, ok in zip(outputs, inputs, direct)]
    is_staged = not all(direct)
    settings = {"op": op, "prescale": factors[0], "postscale": factors[1], "priority": priority}
    calls = memory.calls(_core.ALLREDUCE, inputs, stages, device=device, **settings)

    def finish(engine_handle: int) -> Any:
        if is_staged:
            handles.copy_back(stages, outputs)
        return tuple(outputs) if is_group(naming) else outputs[0]

    writes = Writes(outputs, at_end=is_staged) if is_in_place else Writes(())
    borrowed, stream = [*inputs, *stages, *tensors], memory.stream_of(inputs[0])
    return in_flight.start(calls, borrowed, finish, naming, process_set, stream, writes)


def _call_like(tensor: torch.Tensor, op: int, factors: tuple[float, float]) -> Call:
    """The allreduce of tensors like this one, whose addresses follow later."""
    call = Call(_core.ALLREDUCE, memory.DTYPES[tensor.dtype], tuple(tensor.shape), input=0, op=op)
    call.prescale, call.postscale = factors
    call.device, call.memory = memory.device_index(tensor), memory.memory_of(tensor)
    return call


# Prepared operations of tensors that were reduced before: each step reduces the same tensors.
_repeats: dict[tuple[Any, ...], repeats.Start] = {}
_MOST_REPEATS = 4096


# The name, the operation, the factors before and after, and the process set.
_Terms = Tuple[Optional[str], int, Tuple[float, float], ProcessSet]


def _submit_direct(
    tensor: torch.Tensor, output: torch.Tensor, terms: _Terms, will_wait: bool
) -> tuple[tuple[int, int], Stream | None]:
    """Starts the allreduce of one direct tensor into another. Returns what operations.submit() does, and the
    stream.
    """
    name, op, factors, process_set = terms
    stream = memory.stream_of(tensor)
    key = (name, tensor.dtype, tensor.shape, tensor.device, op, factors, operations.current_wire())
    try:
        start = _repeats.get(key)
    except TypeError:  # something that cannot be a key
        policy.check_name(name)
        policy.check_factors(*factors)
        raise
    if start is None:
        call = _call_like(tensor, op, factors)
        if stream is not None:
            stream.mark([call])
        start = repeats.repeat(call, "allreduce", name)
        if len(_repeats) >= _MOST_REPEATS:
            _repeats.clear()
        _repeats[key] = start
    if writing_back:
        Use([tensor], [output]).wait_for_others()
    on = 0 if stream is None else stream.handle
    return start(process_set, tensor.data_ptr(), output.data_ptr(), on, will_wait), stream


def _reduce_now(tensor: torch.Tensor, output: torch.Tensor, terms: _Terms) -> None:
    """allreduce_async and synchronize of one direct tensor, without the work that only handles need."""
    (_, engine_handle), stream = _submit_direct(tensor, output, terms, True)
    in_flight.run_unnumbered(engine_handle, (tensor, output), stream)


def _start_direct(tensor: torch.Tensor, output: torch.Tensor, terms: _Terms) -> int:
    """The same with a handle."""
    started, stream = _submit_direct(tensor, output, terms, operations.will_wait())
    writes = Writes([output] if output is tensor else ())
    return in_flight.enter(started, (tensor, output), lambda _: output, stream, writes)


def _reduce(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> torch.Tensor:
    """allreduce without gradients."""
    memory.check(tensor)
    factors = (prescale_factor, postscale_factor)
    if memory.is_direct(tensor):
        output = torch.empty_like(tensor, requires_grad=False)
        _reduce_now(tensor, output, (name, op, factors, process_set))
    else:
        output = in_flight.run(allreduce_async, tensor, None, name, op, *factors, process_set)
    return output


def _is_watched(tensor: torch.Tensor) -> bool:
    """Whether autograd, or one of torch.func's transformations, must know what happens to this tensor."""
    return (
        (getattr(tensor, "requires_grad", False) and torch.is_grad_enabled())
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce into a new tensor and returns its handle; see allreduce.

    Leave the input unchanged meanwhile.
    """
    op = handle_average_backwards_compatibility(op, average)
    memory.check(tensor)
    output = torch.empty_like(tensor, requires_grad=False)
    factors = (prescale_factor, postscale_factor)
    if memory.is_direct(tensor):
        return _start_direct(tensor, output, (name, op, factors, process_set))
    return _start_allreduce([tensor], [output], ("allreduce", name), op, factors, process_set)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, op: int, *rest: Any) -> torch.Tensor:
        ctx.arguments = (name, op, *rest)
        return _reduce(tensor, name, op, *rest)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        name, op, *rest = ctx.arguments
        reduced = _Allreduce.apply(grads[0].contiguous(), gradient_name(name), op, *rest)
        return reduced, None, None, None, None, None


def gradient_name(name: str | None) -> str | None:
    """Name of the collective that is the gradient of a named one; unnamed ones stay unnamed."""
    return None if name is None else f"{name}.grad"


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over all ranks of a process set and returns the result, the same bits on every rank.

    tensor: any shape, contiguous, equal shape and type on all ranks; left unmodified. op: Average (default),
    Sum, Adasum, Min, Max or Product; the result is postscale · op(prescale · tensor). Ring and tree
    algorithms as in Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms" (2009); Adasum as in Maleki
    et al. (2020). Differentiable: the gradient is the same allreduce of the output's gradient.
    Raises ValueError for arguments this rank can judge, HorovodInternalError when ranks disagree or are lost.

    >>> hvd.allreduce(torch.ones(3), op=hvd.Sum)  # tensor([n, n, n])
    """
    op = handle_average_backwards_compatibility(op, average)
    operations.check_compression(compression)
    wire = wire_type(compression, [tensor], op)
    compression = NoneCompressor if wire else compression
    compressed, context = compression.compress(tensor)
    reduce = _Allreduce.apply if _is_watched(compressed) else _reduce
    with operations.sent_as(wire):
        reduced = reduce(compressed, name, op, prescale_factor, postscale_factor, process_set)
    restored: torch.Tensor = compression.decompress(reduced, context)
    return restored


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce in place and returns its handle. Works on leaf parameters that require grad."""
    op = handle_average_backwards_compatibility(op, average)
    factors = (prescale_factor, postscale_factor)
    memory.check(tensor)
    if memory.is_direct(tensor):
        return _start_direct(tensor, tensor, (name, op, factors, process_set))
    tensors = [tensor]
    return _start_allreduce(tensors, tensors, ("allreduce", name), op, factors, process_set)


def start_allreduce_(
    tensor: torch.Tensor,
    name: str,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    priority: int,
) -> int:
    """allreduce_async_ with a priority as in rueda.h."""
    tensors = [tensor]
    return _start_allreduce(tensors, tensors, ("allreduce", name), op, factors, process_set, priority)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor in place and returns it; see allreduce. Not differentiable."""
    op = handle_average_backwards_compatibility(op, average)
    factors = (prescale_factor, postscale_factor)
    memory.check(tensor)
    if memory.is_direct(tensor):
        _reduce_now(tensor, tensor, (name, op, factors, process_set))
    else:
        in_flight.run(allreduce_async_, tensor, None, name, op, *factors, process_set)
    return tensor


def prepare_allreduce_(
    like: torch.Tensor,
    name: str,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    urgency: tuple[int, int] = (0, 0),
) -> Repeated:
    """allreduce_async_ for direct tensors like this one that are reduced again and again.

    urgency: a priority as in rueda.h, and the bytes of the parts that others may overtake; 0: no parts.
    """
    priority, part_bytes = urgency
    count, name = like.numel(), f"allreduce.{name}"
    part = max(1, part_bytes // like.element_size()) if part_bytes else max(1, count)
    total = max(1, -(-count // part))
    parts = []
    for index in range(total):
        call = _call_like(like, op, factors)
        call.priority = priority
        if total > 1:
            call.shape = (min(part, count - index * part), *(1,) * (like.dim() - 1))
        part_name = name if total == 1 else f"{name}_{index + 1}of{total}"
        parts.append((part_name, index * part * like.element_size(), call))
    stream = memory.stream_of(like)
    return Repeated(repeats.prepare(parts, process_set, "Allreduce", stream), stream)


def grouped_allreduce_async(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts one allreduce of several tensors, which completes as a whole, and returns its handle."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = memory.group(tensors)
    memory.check_group(tensors)
    outputs = [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]
    factors = (prescale_factor, postscale_factor)
    return _start_allreduce(tensors, outputs, ("grouped_allreduce", name), op, factors, process_set)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, op: int, pre: float, post: float, process_set: Any, *tensors: Any
    ) -> Any:
        ctx.arguments = (name, op, pre, post, process_set)
        return in_flight.run(grouped_allreduce_async, tensors, None, name, op, pre, post, process_set)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        name, *rest = ctx.arguments
        dense = [grad.contiguous() for grad in grads]
        return (None, None, None, None, None, *_GroupedAllreduce.apply(gradient_name(name), *rest, *dense))


def grouped_allreduce(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors, of any types and shapes, as one operation; a list in the same order.

    Every rank must give as many tensors, on one device; none give an empty list. Otherwise as allreduce.
    """
    op = handle_average_backwards_compatibility(op, average)
    tensors = memory.group(tensors)
    if not tensors:
        return []
    operations.check_compression(compression)
    wire = wire_type(compression, tensors, op)
    compression = NoneCompressor if wire else compression
    compressed, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    with operations.sent_as(wire):
        reduced = _GroupedAllreduce.apply(
            name, op, prescale_factor, postscale_factor, process_set, *compressed
        )
    return [compression.decompress(t, context) for t, context in zip(reduced, contexts)]


def grouped_allreduce_async_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts one in-place allreduce of several tensors and returns its handle."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = memory.group(tensors)
    factors = (prescale_factor, postscale_factor)
    return _start_allreduce(tensors, tensors, ("grouped_allreduce", name), op, factors, process_set)


def grouped_allreduce_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Reduces several tensors in place as one operation and returns them; see grouped_allreduce."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = memory.group(tensors)
    if not tensors:
        return ()
    handle = grouped_allreduce_async_(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
    outputs: tuple[torch.Tensor, ...] = handles.synchronize(handle)
    return outputs
