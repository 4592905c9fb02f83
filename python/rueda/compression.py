"""The interface of gradient compression, for the tensors of any framework."""

from __future__ import annotations

from typing import Any, ClassVar


class Compressor:
    """Base of compressors: subclass it and pass the class as `compression`. On JAX both may be traced."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to reduce instead of `tensor`, and the context that decompress needs."""
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


class CastCompressor(Compressor):
    """Base of compressors that send floating-point tensors in fewer bits, and others as they are."""

    dtype: ClassVar[Any]  # on the wire

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Whether the tensor holds floating-point numbers."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor in another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor in the type in which it travels, and its own type."""
        return (cls.cast(tensor, cls.dtype), tensor.dtype) if cls.is_floating(tensor) else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else cls.cast(tensor, ctx)
