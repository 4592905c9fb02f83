"""Casting arrays to fewer bits for the wire."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from rueda import _core
from rueda.compression import CastCompressor, Compressor, Int8Compressor, NoneCompressor


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
    """Sends floating-point arrays as bfloat16: the range of float32, 8 bits of precision. Sums and averages
    of float32 in host memory are exact inside a host, and their errors are fed back (docs/wire_types.md).
    """

    dtype = jnp.bfloat16
    wire = _core.WIRE_BF16


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor


__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "Int8Compressor",
    "NoneCompressor",
]
