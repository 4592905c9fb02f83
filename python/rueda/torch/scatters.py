"""reducescatter, single and grouped, synchronous and not, with its gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rueda import _core, errors, in_flight
from rueda.operations import Naming, check_compression
from rueda.policy import Average, Sum
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch import handles
from rueda.torch import tensors as memory
from rueda.torch.compression import Compression, Compressor
from rueda.torch.gathers import allgather, grouped_allgather
from rueda.torch.reductions import gradient_name

__all__ = [
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
]


def _start_reducescatter(
    tensors: Sequence[torch.Tensor],
    naming: Naming,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    if op not in (Average, Sum):
        raise errors.internal_error("Reducescatter currently only supports AVERAGE and SUM.")
    memory.check_group(tensors)
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError("Reducescatter does not support scalar inputs")
    settings = {"op": op, "prescale": factors[0], "postscale": factors[1]}
    return handles.start_gathering(_core.REDUCESCATTER, tensors, naming, process_set, **settings)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter and returns its handle; see reducescatter."""
    factors = (prescale_factor, postscale_factor)
    return _start_reducescatter([tensor], ("reducescatter", name), op, factors, process_set)


def _reducescatter_gradient_scale(op: int, process_set: ProcessSet, pre: float, post: float) -> float:
    return pre * post * ((process_set.size() or 1) if op == Sum else 1)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: str | None, op: int, process_set: Any, *factors: float
    ) -> Any:
        ctx.name, ctx.process_set = gradient_name(name), process_set
        output = in_flight.run(reducescatter_async, tensor, name, op, process_set, *factors)
        ctx.scale = _reducescatter_gradient_scale(op, process_set, *factors)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        grad = grads[0] if ctx.scale == 1.0 else grads[0] * ctx.scale
        return allgather(grad.contiguous(), ctx.name, ctx.process_set), None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor over all ranks and returns this rank's slice along dimension 0.

    tensor: [rows, …], at least one dimension, equal on all ranks. Rank r of n receives rows // n rows, one
    more if r < rows % n, consecutive in rank order. op: Average (default) or Sum. Differentiable.
    """
    check_compression(compression)
    compressed, context = compression.compress(tensor)
    output = _Reducescatter.apply(compressed, name, op, process_set, prescale_factor, postscale_factor)
    restored: torch.Tensor = compression.decompress(output, context)
    return restored


def grouped_reducescatter_async(
    tensors: Iterable[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts one reducescatter of several tensors and returns its handle."""
    factors = (prescale_factor, postscale_factor)
    return _start_reducescatter(
        memory.group(tensors), ("grouped_reducescatter", name), op, factors, process_set
    )


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, op: int, process_set: Any, pre: float, post: float, *tensors: Any
    ) -> Any:
        ctx.name, ctx.process_set = gradient_name(name), process_set
        outputs = in_flight.run(grouped_reducescatter_async, tensors, name, op, process_set, pre, post)
        ctx.scale = _reducescatter_gradient_scale(op, process_set, pre, post)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        scaled = [(grad if ctx.scale == 1.0 else grad * ctx.scale).contiguous() for grad in grads]
        return (None, None, None, None, None, *grouped_allgather(scaled, ctx.name, ctx.process_set))


def grouped_reducescatter(
    tensors: Iterable[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces and scatters several tensors as one operation; a list in the same order. See reducescatter."""
    tensors = memory.group(tensors)
    if not tensors:
        return []
    check_compression(compression)
    compressed, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    outputs = _GroupedReducescatter.apply(
        name, op, process_set, prescale_factor, postscale_factor, *compressed
    )
    return [compression.decompress(t, context) for t, context in zip(outputs, contexts)]
