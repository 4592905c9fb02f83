"""Casting arrays to fewer bits for the wire."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from rueda.compression import CastCompressor, Compressor, NoneCompressor


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(tensor: Any) -> bool:
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)


class FP16Compressor(_Cast):
    """Sends floating-point arrays as float16 (5 bits of exponent: values above 65504 become infinite)."""

    dtype = jnp.float16


class BF16Compressor(_Cast):
    """Sends floating-point arrays as bfloat16: the range of float32, 8 bits of precision."""

    dtype = jnp.bfloat16


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
