"""Which frameworks this machine has, and what they see. Imports each only when it is asked about."""

from __future__ import annotations

import importlib


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the front end ("torch", …) can be imported."""
    try:
        importlib.import_module(f"rueda.{ext_base_name}")
    except Exception as error:
        if verbose:
            print(f"The front end {ext_base_name} is not available: {error}")
        return False
    return True


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework ("torch", "tensorflow") sees a GPU; False for others."""
    if ext_base_name not in ("torch", "tensorflow") or not extension_available(ext_base_name, verbose):
        return False
    framework = importlib.import_module(ext_base_name)
    if ext_base_name == "torch":
        return bool(framework.cuda.is_available())
    return bool(framework.config.list_physical_devices("GPU"))
