"""Makes the handlers of librueda_jax.so known to XLA."""

from __future__ import annotations

import ctypes
import functools
import os

import jax

from rueda import _core

BEGIN = "rueda_begin"
START = "rueda_start"
DONE = "rueda_done"


def register() -> None:
    """Registers the handlers for the CPU."""
    for target in (BEGIN, START, DONE):
        _register(target, target.replace("rueda_", "rueda_jax_"), "cpu")


@functools.cache
def register_for_gpu() -> None:
    """Registers the handlers for CUDA: for programs that are lowered for it."""
    for target in (START, DONE):
        _register(target, target.replace("rueda_", "rueda_jax_gpu_"), "CUDA")


def _register(target: str, symbol: str, platform: str) -> None:
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(_library(), symbol)), platform=platform)


@functools.cache
def _library() -> ctypes.CDLL:
    """librueda_jax.so, which lies beside librueda.so."""
    # Loaded after _core, so that it finds the librueda.so which this process already uses.
    path = _core.library_path().with_name("librueda_jax.so")
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(
            f"The library {path} for JAX cannot be loaded ({error}); reinstall rueda, or build the target "
            f"rueda_jax beside librueda.so."
        ) from None
