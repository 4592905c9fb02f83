"""Casting arrays to fewer bits for the wire."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


class Compressor:
    """Base of compressors: subclass it and pass the class as `compression`. Both methods may be traced."""

    @staticmethod
    def compress(array: Any) -> tuple[Any, Any]:
        """The array to reduce in place of `array`, and what decompress needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(array: Any, context: Any) -> Any:
        """The reduced array in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays as they are."""

    @staticmethod
    def compress(array: Any) -> tuple[Any, Any]:
        """The array itself."""
        return array, None

    @staticmethod
    def decompress(array: Any, context: Any) -> Any:
        """The array itself."""
        return array


def _cast(array: Any, dtype: Any) -> tuple[Any, Any]:
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array, None
    return array.astype(dtype), array.dtype


class FP16Compressor(Compressor):
    """Sends floating-point arrays as float16 (5 bits of exponent: values above 65504 become infinite)."""

    @staticmethod
    def compress(array: Any) -> tuple[Any, Any]:
        """The array in float16; arrays that are not floating point unchanged."""
        return _cast(array, jnp.float16)

    @staticmethod
    def decompress(array: Any, context: Any) -> Any:
        """The array in its original type."""
        return array if context is None else array.astype(context)


class BF16Compressor(Compressor):
    """Sends floating-point arrays as bfloat16: the range of float32, 8 bits of precision."""

    @staticmethod
    def compress(array: Any) -> tuple[Any, Any]:
        """The array in bfloat16; arrays that are not floating point unchanged."""
        return _cast(array, jnp.bfloat16)

    @staticmethod
    def decompress(array: Any, context: Any) -> Any:
        """The array in its original type."""
        return array if context is None else array.astype(context)


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
