"""Makes the handlers of librueda_jax.so known to XLA."""

from __future__ import annotations

import ctypes
import os

import jax

from rueda import _core

BEGIN = "rueda_begin"
START = "rueda_start"
DONE = "rueda_done"


def register() -> None:
    """Loads librueda_jax.so, which lies beside librueda.so, and registers its handlers for the CPU."""
    # Loaded after _core, so that it finds the librueda.so which this process already uses.
    path = _core.library_path().with_name("librueda_jax.so")
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(
            f"The library {path} for JAX cannot be loaded ({error}); reinstall rueda, or build the target "
            f"rueda_jax beside librueda.so."
        ) from None
    for target in (BEGIN, START, DONE):
        symbol = target.replace("rueda_", "rueda_jax_")
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, symbol)), platform="cpu")
