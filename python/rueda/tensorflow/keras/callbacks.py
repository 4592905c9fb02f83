"""The callbacks of rueda.keras."""

from __future__ import annotations

from rueda.keras.callbacks import *  # noqa: F403
from rueda.keras.callbacks import __all__

__all__ = list(__all__)
