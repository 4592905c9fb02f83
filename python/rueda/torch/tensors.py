"""torch tensors as the engine sees them: types, layout, host staging for GPUs, the engine's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rueda import _core, errors, operations
from rueda.operations import Call

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
    if tensor.device.type == "cpu":
        return -1
    return tensor.device.index or 0


def calls(
    what: int, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor] = (), **settings: Any
) -> list[Call]:
    """One call for each input. outputs: none where the engine allocates the results; settings: as in Call."""
    addresses = [output.data_ptr() for output in outputs] or [0] * len(inputs)
    return [
        Call(what, DTYPES[source.dtype], tuple(source.shape), source.data_ptr(), address, **settings)
        for source, address in zip(inputs, addresses)
    ]


def is_direct(tensor: torch.Tensor) -> bool:
    """Whether the engine can work in the tensor's own memory: it is on the CPU, and not the kind of view
    whose elements are the negatives of what its memory holds (`z.conj().imag`).
    """
    return tensor.is_cpu and not tensor.is_neg()


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if it is direct; else a host copy, made after the current stream's work."""
    detached = tensor.detach()
    return detached if is_direct(detached) else detached.cpu().resolve_neg()


class _EngineMemory:
    """Owns one block the engine allocated and gives it back when the last tensor on it is gone."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._free = _core.free  # held here, because module globals may be gone at interpreter exit

    def __del__(self) -> None:
        self._free(self._address)


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
