"""torch tensors as the engine sees them: types, layout, memory of GPUs, the engine's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rueda import _core, device, errors, operations
from rueda.device import Stream
from rueda.operations import Call
from rueda.torch import devices

# The engine's type of each torch type it can carry.
DTYPES: dict[torch.dtype, int] = {
    torch.uint8: _core.UINT8,
    torch.int8: _core.INT8,
    torch.int16: _core.INT16,
    torch.int32: _core.INT32,
    torch.int64: _core.INT64,
    torch.float16: _core.FLOAT16,
    torch.bfloat16: _core.BFLOAT16,
    torch.float32: _core.FLOAT32,
    torch.float64: _core.FLOAT64,
    torch.bool: _core.BOOL,
}
if hasattr(torch, "uint16"):
    DTYPES[torch.uint16] = _core.UINT16

# Results that the engine allocated are copied up to this size and lent above it. An allgather in a
# single-process job took equally long both ways at 128 kB, and 0.57 times as long when lent at 1 MB.
COPY_UP_TO_BYTES = 128 << 10


def check(tensor: torch.Tensor) -> None:
    """Raises ValueError unless the engine can read this tensor's memory as it is.

    Raises AttributeError, as before, for something that is not a tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise AttributeError(f"A collective takes a torch.Tensor, not {type(tensor).__name__}.")
    if tensor.layout != torch.strided or tensor.dtype not in DTYPES:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


def group(tensors: Iterable[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The tensors of a grouped operation. TypeError for a single tensor, which torch would take apart."""
    return operations.members_of_group(tensors, "tensor", isinstance(tensors, torch.Tensor))


def check_group(tensors: Sequence[torch.Tensor]) -> None:
    """Raises unless the engine can take these tensors as one operation."""
    if not tensors:
        raise ValueError("A grouped operation needs at least one tensor, but the list is empty.")
    for tensor in tensors:
        check(tensor)
    if any(tensor.device != tensors[0].device for tensor in tensors):
        raise errors.internal_error("Tensors in list must be on same device.")


def device_index(tensor: torch.Tensor) -> int:
    """-1 for the CPU, else the index of the GPU. Ranks compare it."""
    return devices.index_of(tensor)


def calls(
    what: int, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] = (), **settings: Any
) -> list[Call]:
    """One call for each input. outputs: none where the engine allocates the results; settings: as in Call."""
    addresses = [output.data_ptr() for output in outputs] or [0] * len(inputs)
    settings["memory"] = memory_of(inputs[0])
    return [
        Call(what, DTYPES[source.dtype], tuple(source.shape), source.data_ptr(), address, **settings)
        for source, address in zip(inputs, addresses)
    ]


def memory_of(tensor: torch.Tensor) -> int:
    """The kind of memory in which a tensor lies that the engine is to use, as requests say it."""
    return _core.DEVICE_MEMORY if stays_on_gpu(tensor) else _core.HOST_MEMORY


def stream_of(tensor: torch.Tensor) -> Stream | None:
    """The stream in whose order the engine uses such a tensor; None for host memory."""
    return devices.stream_at(devices.index_of(tensor)) if stays_on_gpu(tensor) else None


def stays_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the tensor is on a GPU and the engine takes that memory."""
    return devices.is_on_gpu(tensor) and device.is_taken()


def is_direct(tensor: torch.Tensor) -> bool:
    """Whether the engine can work in the tensor's own memory: it takes that of the device, and the tensor is
    not the kind of view whose elements are the negatives of what its memory holds (`z.conj().imag`).
    """
    is_taken = device.is_taken() if devices.is_on_gpu(tensor) else tensor.is_cpu
    return is_taken and not tensor.is_neg()


def _order_of(tensor: torch.Tensor) -> torch.memory_format:
    """In which its memory has the elements: with the channels last, or else taken for row by row."""
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    has_channels_last = (
        order is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=order)
    )
    return order if order is not None and has_channels_last else torch.contiguous_format


def is_in_order_of(like: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a tensor of the same shape has its elements where `like` has them."""
    return tensor.is_contiguous(memory_format=_order_of(like))


def in_order_of(like: torch.Tensor, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A dense tensor with these values, itself if possible, with its elements in the order of `like`; and its
    contiguous view for the engine.

    Views of tensors with the channels last have one more dimension, of length 1. So if another rank has the
    usual order, shapes differ, and the sum fails instead of adding elements that do not belong together.
    """
    # A compressor may have changed the shape.
    order = _order_of(like) if tensor.shape == like.shape else torch.contiguous_format
    dense = tensor.contiguous(memory_format=order)
    return dense, dense if order is torch.contiguous_format else dense.movedim(1, -1).unsqueeze(-1)


def copy_for_engine(tensor: torch.Tensor) -> torch.Tensor:
    """A direct copy of a tensor that is not direct, made after the current stream's work. It is in host
    memory if the engine does not take memory of GPUs.
    """
    detached = tensor.detach()
    if devices.is_on_gpu(detached) and not device.is_taken():
        device.warn_staged("CUDA tensors")
        detached = detached.to("cpu", copy=True)
    elif not devices.is_on_gpu(detached):
        detached = detached.cpu()
    return detached.resolve_neg()


@dataclass(frozen=True)
class Kind:
    """What a result that the engine allocates becomes."""

    dtype: torch.dtype
    device: torch.device
    stream: Stream | None  # None: it is in host memory


def kind_of(tensor: torch.Tensor) -> Kind:
    """That of results which are to be like this tensor."""
    return Kind(tensor.dtype, tensor.device, stream_of(tensor))


class _EngineMemory:
    """Owns one block the engine allocated and gives it back when the last tensor on it is gone."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._free = _core.free  # held here, because module globals may be gone at interpreter exit

    def __del__(self) -> None:
        self._free(self._address)


def take(engine_handle: int, index: int, kind: Kind) -> tuple[torch.Tensor, operations.Result]:
    """One result that the engine allocated, where it belongs, and its description."""
    result = operations.result(engine_handle, index)
    if kind.stream is None:
        return from_engine(engine_handle, index, result, kind.dtype).to(kind.device), result
    # A copy, because torch can reuse only memory of its own in the order of its streams.
    tensor = torch.empty(result.shape, dtype=kind.dtype, device=kind.device)
    device.copy(kind.stream, tensor.data_ptr(), result.address, result.size_bytes)
    return tensor, result


def from_engine(
    engine_handle: int, index: int, result: operations.Result, dtype: torch.dtype
) -> torch.Tensor:
    """A CPU tensor of a result the engine allocated: a copy if it is small, else the engine's own memory."""
    if result.size_bytes == 0:
        return torch.empty(result.shape, dtype=dtype)
    if result.size_bytes <= COPY_UP_TO_BYTES:
        tensor = torch.empty(result.shape, dtype=dtype)
        ctypes.memmove(tensor.data_ptr(), result.address, result.size_bytes)
        return tensor
    address = _core.detach(engine_handle, index)
    if not address:
        raise errors.internal_error("The engine kept no memory for a result; please report this as a bug.")
    block = (ctypes.c_char * result.size_bytes).from_address(address)
    block._owner = _EngineMemory(address)  # type: ignore[attr-defined]  # lives as long as the buffer
    return torch.frombuffer(block, dtype=dtype).view(result.shape)
