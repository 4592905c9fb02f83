"""Casting gradients to fewer bits for the wire."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """Base of compressors: subclass it and pass the class as `compression`."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to reduce in place of `tensor`, and what decompress needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The reduced tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


def _cast(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    if not tensor.dtype.is_floating:
        return tensor, None
    return tf.cast(tensor, dtype), tensor.dtype


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16 (5 bits of exponent: values above 65504 become infinite)."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor in float16; tensors that are not floating point unchanged."""
        return _cast(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating-point tensors as bfloat16: the range of float32, 8 bits of precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor in bfloat16; tensors that are not floating point unchanged."""
        return _cast(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
