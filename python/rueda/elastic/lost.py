"""Whether the epoch is lost, for frameworks whose compiled programs raise errors of their own."""

from __future__ import annotations

from rueda import _core, epochs


def is_lost() -> bool:
    """Whether operations can no longer succeed, because a rank was lost or has shut down."""
    return epochs.current() != epochs.NONE and _core.health() != _core.OK
