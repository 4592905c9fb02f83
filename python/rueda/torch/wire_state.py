"""What wire types have left to be sent of an optimizer's gradients, as a part of its state."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterable

import torch

from rueda import epochs, residuals
from rueda.policy import Average, Sum
from rueda.torch.pending_gradients import Settings

DROPPED = (
    "The checkpoint holds what a wire type had left to be sent of this rank's gradients, but they travel as "
    "they are now, so it is dropped; give the compression with which it was saved, as Compression.int8, to "
    "send it."
)
NOT_SAVED = (
    "The checkpoint's key 'residuals' holds {found}, but it must hold the bytes that state_dict() put there; "
    "load the checkpoint as it was saved, or delete the key 'residuals' to start without residuals."
)


def _may_be_kept(settings: Settings) -> bool:
    return residuals.may_be_kept(settings.compression) and settings.op in (Average, Sum)


def of(settings: Settings, names: Iterable[str]) -> torch.Tensor | None:
    """As bytes [n], uint8, which only this rank can take back; None if gradients travel exactly.

    names: of the gradients. Raises ValueError while operations are in flight.
    """
    set_id = settings.process_set.process_set_id
    if not _may_be_kept(settings) or set_id is None or epochs.current() == epochs.NONE:
        return None
    if settings.part_bytes:  # gradients travel in parts with names of their own
        saved = residuals.save()
    else:
        saved = residuals.save([f"allreduce.{name}" for name in names], set_id)
    return torch.frombuffer(bytearray(saved), dtype=torch.uint8)


def put_back(saved: torch.Tensor, settings: Settings) -> None:
    """Where ranks or hosts are others now, they are dropped, as the log says; with a warning, where gradients
    travel exactly now. Raises ValueError for what state_dict() has not put there.
    """
    if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
        raise ValueError(NOT_SAVED.format(found=repr(saved)[:60]))
    if not _may_be_kept(settings):
        warnings.warn(DROPPED, stacklevel=3)
    elif epochs.current() != epochs.NONE:
        whole = saved.detach().cpu().contiguous()
        residuals.load(ctypes.string_at(whole.data_ptr(), whole.numel()))
