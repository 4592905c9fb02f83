"""Casting gradients to fewer bits for the wire."""

from __future__ import annotations

from typing import Any

import torch

from rueda.compression import CastCompressor, Compressor, NoneCompressor


class _Cast(CastCompressor):
    @staticmethod
    def is_floating(tensor: Any) -> bool:
        return bool(tensor.dtype.is_floating_point)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.to(dtype)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16 (5 bits of exponent: values above 65504 become infinite)."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16: the range of float32, 8 bits of precision."""

    dtype = torch.bfloat16


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
