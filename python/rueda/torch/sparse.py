"""Sparse gradients as two allgathers: indices and values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from rueda.in_flight import of_handle, settle_all
from rueda.policy import Average
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch.gathers import allgather_async


def empty_like(tensor: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """A sparse tensor without entries, of the shape, type and device of a dense one."""
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=tensor.device)
    values = torch.empty((0, *tensor.shape[sparse_dim:]), dtype=tensor.dtype, device=tensor.device)
    return torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=True)


class SparseReduction:
    """The sum or average of sparse COO tensors whose indices and values are under way. Any thread."""

    def __init__(
        self,
        tensor: torch.Tensor,
        name: str,
        op: int,
        process_set: ProcessSet,
        use: Callable[[torch.Tensor], Any] | None = None,
    ) -> None:
        """Like sparse_allreduce_async. use: called once with the result."""
        if tensor.layout != torch.sparse_coo:
            raise ValueError(f"Tensor type {tensor.type()} is not sparse; use allreduce for dense tensors.")
        # Indices are [dimensions, entries]. Ranks differ in entries, so that dimension must come first.
        indices = tensor._indices().transpose(0, 1).contiguous()
        indices_handle = allgather_async(indices, f"{name}.indices", process_set)
        values_handle = allgather_async(tensor._values().contiguous(), f"{name}.values", process_set)
        self._gathers = [of_handle(indices_handle), of_handle(values_handle)]
        self._shape = tensor.shape
        self._divisor = (process_set.size() or 1) if op == Average else 1
        self._use = use
        self._lock = threading.Lock()
        self._result: torch.Tensor | None = None

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended it before its result was taken."""
        return any(gather.is_lost for gather in self._gathers)

    def settle(self) -> torch.Tensor:
        """Waits and returns the result. Raises HorovodInternalError when it failed or is lost."""
        with self._lock:
            if self._result is None:
                indices, values = settle_all(self._gathers)
                if self._divisor != 1:
                    values = values / self._divisor
                self._result = torch.sparse_coo_tensor(
                    indices.transpose(0, 1), values, self._shape, check_invariants=True
                )
                if self._use is not None:
                    self._use(self._result)
            return self._result


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum or average of sparse COO tensors; returns a function that waits for the result.

    The result is uncoalesced: it holds every rank's entries, values divided by the number of ranks for
    Average. Any other op means sum. The dense shape must agree on all ranks, but not the number of entries.
    """
    return SparseReduction(tensor, name, op, process_set).settle
