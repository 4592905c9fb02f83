"""Tensors of process groups as the engine takes them: flat, contiguous, of a type and in memory it knows.

Tensors that are so already travel in their own memory. All others go through a stage, which is copied back
when the operation has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rueda import _core, device
from rueda.open_operations import writing_back
from rueda.torch import tensors as memory
from rueda.torch.overlaps import Use, share_memory


class Stage:
    """The memory the engine uses for one tensor that it reads, writes, or both."""

    def __init__(self, tensor: torch.Tensor, is_input: bool = True, is_output: bool = False) -> None:
        if tensor.layout != torch.strided:
            raise ValueError(
                f"Backend rueda takes dense tensors, but got {tensor.layout}; use to_dense(), or "
                "sparse=False in the embedding."
            )
        self.tensor = tensor.detach()
        self._is_input, self._is_output = is_input, is_output
        is_direct = (
            memory.is_direct(self.tensor) and self.tensor.is_contiguous() and not self.tensor.is_conj()
        )
        if writing_back or not is_direct:
            self._use(is_copied=not is_direct).wait_for_others()
        if is_direct:
            self.buffer = self.tensor
        elif is_input:
            self.buffer = self.tensor.to(place_of(tensor)).contiguous().resolve_conj().resolve_neg()
        else:
            self.buffer = torch.empty(self.tensor.shape, dtype=tensor.dtype, device=place_of(tensor))

    def _use(self, is_copied: bool) -> Use:
        here = [self.tensor]
        return Use(here if self._is_input else (), here if self._is_output else (), is_copied)

    @property
    def use(self) -> Use:
        """What an operation does with the tensor."""
        return self._use(not self.is_direct)

    @property
    def is_direct(self) -> bool:
        """Whether the engine works in the tensor's own memory."""
        return self.buffer.data_ptr() == self.tensor.data_ptr() and self.buffer.device == self.tensor.device

    @property
    def address(self) -> int:
        return self.buffer.data_ptr()

    @property
    def place(self) -> dict[str, Any]:
        """The fields of a Call that say where the tensor is, and the memory that the engine uses."""
        return {"device": memory.device_index(self.tensor), "memory": memory.memory_of(self.buffer)}

    @property
    def finish(self) -> Callable[[int, int], None] | None:
        """What a request does when it has succeeded; None if the engine wrote to the tensor itself."""
        return None if self.is_direct else lambda handle, index: self.bring_back()

    def bring_back(self) -> None:
        """Copies what the engine wrote to the tensor, if it wrote elsewhere."""
        if not self.is_direct:
            self.tensor.copy_(self.buffer)

    def keep_apart_from(self, output: Stage) -> None:
        """Has the engine read a copy if writing the output would change this input."""
        if share_memory(output.buffer, self.buffer):
            self._use(is_copied=True).wait_for_others()
            self.buffer = self.buffer.clone()


def place_of(tensor: torch.Tensor) -> torch.device:
    """Where the engine can work for a tensor: on its device, or on the CPU if the engine does not take that
    device's memory.
    """
    if tensor.is_cpu or memory.stays_on_gpu(tensor):
        return tensor.device
    device.warn_staged("CUDA tensors")
    return torch.device("cpu")


def moved(dtype: torch.dtype, count: int) -> tuple[int, int]:
    """(type, number) of elements that are only moved, as the engine has them; unknown types go as bytes."""
    known = memory.DTYPES.get(dtype)
    return (known, count) if known is not None else (_core.UINT8, count * dtype.itemsize)


def reduced(like: torch.Tensor, count: int, op: int) -> tuple[int, tuple[int, ...]]:
    """(type, shape) of `count` elements that are computed with, as the engine has them: a complex number is
    its real and its imaginary part, [count, 2], so that it is told from two real numbers. ValueError for what
    it cannot compute.
    """
    dtype = like.dtype
    if dtype.is_complex:
        if op not in (_core.SUM, _core.AVERAGE):
            raise ValueError(
                f"Backend rueda does not reduce {dtype} with PRODUCT, MIN or MAX, as the other backends of "
                "torch.distributed; use SUM or AVG, or reduce torch.view_as_real(tensor)."
            )
        return memory.DTYPES[dtype.to_real()], (count, 2)
    known = memory.DTYPES.get(dtype)
    if known is None:
        raise ValueError(
            f"Backend rueda cannot reduce {dtype}; convert the tensor to one of "
            f"{', '.join(str(one).removeprefix('torch.') for one in memory.DTYPES)}."
        )
    is_even = count % 2 == 0  # a part of its rows may be odd
    return known, (count // 2, 2) if is_even and _shows_complex(like) else (count,)


def _shows_complex(tensor: torch.Tensor) -> bool:
    """Whether it is torch.view_as_real() of a complex tensor: all_reduce of torch.distributed makes one."""
    base = tensor._base
    return base is not None and base.is_complex() and tensor.shape[-1:] == (2,) and tensor.stride(-1) == 1


def same_type(tensors: Sequence[torch.Tensor], what: str) -> None:
    """Raises ValueError unless all tensors have one dtype."""
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1:
        raise ValueError(
            f"{what} takes tensors of one dtype, but got {', '.join(sorted(map(str, kinds)))}; convert them."
        )
