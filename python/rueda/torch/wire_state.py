"""What wire types have left to be sent of an optimizer's gradients, as a part of its state."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch

from rueda import epochs, residuals
from rueda.policy import Average, Sum
from rueda.torch.pending_gradients import Settings


def of(settings: Settings, names: Iterable[str]) -> torch.Tensor | None:
    """As bytes [n], uint8, which only this rank can take back; None if gradients travel exactly.

    names: of the gradients. Raises ValueError while operations are in flight.
    """
    may_be_kept = residuals.may_be_kept(settings.compression) and settings.op in (Average, Sum)
    set_id = settings.process_set.process_set_id
    if not may_be_kept or set_id is None or epochs.current() == epochs.NONE:
        return None
    if settings.part_bytes:  # gradients travel in parts with names of their own
        saved = residuals.save()
    else:
        saved = residuals.save([f"allreduce.{name}" for name in names], set_id)
    return torch.frombuffer(bytearray(saved), dtype=torch.uint8)


def put_back(saved: torch.Tensor) -> None:
    """Where ranks or hosts are others now, they are dropped, as the log says."""
    if epochs.current() != epochs.NONE:
        whole = saved.detach().cpu().contiguous()
        residuals.load(ctypes.string_at(whole.data_ptr(), whole.numel()))
