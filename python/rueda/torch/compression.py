"""Casting gradients to fewer bits for the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from rueda import _core
from rueda.compression import CastCompressor, Compressor, Int8Compressor, NoneCompressor, wire_of
from rueda.torch import devices


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
    """Sends floating-point tensors as bfloat16: the range of float32, 8 bits of precision. Sums and averages
    of float32 in host memory are exact inside a host, and their errors are fed back (docs/wire_types.md).
    """

    dtype = torch.bfloat16
    wire = _core.WIRE_BF16


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor


def wire_type(compression: Any, tensors: Iterable[torch.Tensor], op: int) -> int:
    """How the engine sends an allreduce of these tensors in the place of compression.compress()."""
    if not hasattr(compression, "wire"):  # most calls, which need not look at their tensors
        return _core.WIRE_DEFAULT
    return wire_of(compression, op, all(map(_is_plain, tensors)))


def _is_plain(tensor: Any) -> bool:
    """Whether it has float32 in host memory. What is no tensor is refused later."""
    is_tensor = isinstance(tensor, torch.Tensor)
    return is_tensor and tensor.dtype is torch.float32 and not devices.is_on_gpu(tensor)


__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "Int8Compressor",
    "NoneCompressor",
]
