"""What wire types have left to be sent later (docs/wire_types.md), as bytes of this rank: for checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import c_char, c_char_p

from rueda import _core
from rueda.operations import raise_refused

RESIDUALS = "residuals"  # the key under which the state of an optimizer has them


def save(names: Sequence[str] | None = None, process_set: int = 0) -> bytes:
    """Those of tensors with these full names, or of all tensors.

    Raises ValueError while operations are in flight, and before init.
    """
    count = len(names or ())
    array = None if names is None else (c_char_p * max(1, count))(*(name.encode() for name in names))
    size = _core.save_residuals(process_set, array, count, None, 0)
    buffer = (c_char * max(0, size))()
    if size < 0 or _core.save_residuals(process_set, array, count, buffer, size) < 0:
        raise_refused(_core.INVALID_ARGUMENT)
    return bytes(buffer.raw)


def load(saved: bytes) -> None:
    """Puts them back, to the bit; where ranks or hosts are others now, they are dropped, as the log says.

    Raises ValueError while operations are in flight, before init, and for other bytes; TypeError for what is
    no bytes.
    """
    if not isinstance(saved, bytes):
        raise TypeError(f"residuals.load: saved is {type(saved).__name__}, but it must be bytes of save().")
    status = _core.load_residuals(saved, len(saved))
    if status != _core.OK:
        raise_refused(status)


def may_be_kept(compression: object) -> bool:
    """Whether sums with this compression may leave residuals."""
    return hasattr(compression, "wire") or bool(os.environ.get("RUEDA_WIRE"))
