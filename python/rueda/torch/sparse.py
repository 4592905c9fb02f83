"""Sparse gradients as two allgathers: indices and values."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from rueda.errors import HorovodInternalError
from rueda.policy import Average
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch.gathers import allgather_async
from rueda.torch.handles import let_end, synchronize


def empty_like(tensor: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """A sparse tensor without entries, of the shape, type and device of a dense one."""
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=tensor.device)
    values = torch.empty((0, *tensor.shape[sparse_dim:]), dtype=tensor.dtype, device=tensor.device)
    return torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=True)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum or average of sparse COO tensors; returns a function that waits for the result.

    The result is uncoalesced: it holds every rank's entries, values divided by the number of ranks for
    Average. Any other op means sum. The tensor's dense shape must agree on all ranks, the number of entries
    need not.
    """
    if tensor.layout != torch.sparse_coo:
        raise ValueError(f"Tensor type {tensor.type()} is not sparse; use allreduce for dense tensors.")
    # Indices are [dimensions, entries]; ranks differ in entries, so these must come first.
    indices = tensor._indices().transpose(0, 1).contiguous()
    indices_handle = allgather_async(indices, f"{name}.indices", process_set)
    values_handle = allgather_async(tensor._values().contiguous(), f"{name}.values", process_set)
    shape = tensor.shape
    lock = threading.Lock()
    gathered: list[torch.Tensor] = []  # indices, then values; kept when a wait is interrupted between them
    result: torch.Tensor | None = None

    def wait() -> torch.Tensor:
        nonlocal result
        with lock:
            if result is None:
                for handle in (indices_handle, values_handle)[len(gathered) :]:
                    try:
                        gathered.append(synchronize(handle))
                    except HorovodInternalError:
                        let_end([values_handle])
                        raise
                indices, values = gathered
                if op == Average:
                    values = values / (process_set.size() or 1)
                result = torch.sparse_coo_tensor(
                    indices.transpose(0, 1), values, shape, check_invariants=True
                )
            return result

    return wait
