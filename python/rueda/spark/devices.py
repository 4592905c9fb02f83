"""The devices that Spark has given to the task of this rank."""

from __future__ import annotations

import os


def get_available_devices() -> list[str]:
    """The addresses of the task's resource "gpu", as Spark has them; empty without GPUs or ranks."""
    return [address for address in os.environ.get("RUEDA_SPARK_GPUS", "").split(",") if address]
