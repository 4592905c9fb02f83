"""Arrays in the memory of a GPU, from any library that has `__cuda_array_interface__` or DLPack.

https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html (version 3 names the stream)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from rueda import device, dlpack
from rueda.device import Memory, Stream

# CUDA's names for the legacy default stream and for that of the calling thread, as both protocols use them.
LEGACY, PER_THREAD = 1, 2
_ON_GPU = (dlpack.CUDA, dlpack.CUDA_MANAGED)


def bytes_of(shape: Sequence[int], dtype: str) -> int:
    """Size of an array. dtype: a name."""
    return math.prod(shape) * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


class DeviceArray:
    """An array in C order, in memory of a GPU that rueda allocated. Other libraries take it without a copy:
    `cupy.asarray(x)`, `numba.cuda.as_cuda_array(x)`, `torch.as_tensor(x)`, `jax.dlpack.from_dlpack(x)`.

    shape: tuple; dtype: the name of the type; device: index of the GPU.
    """

    def __init__(self, shape: Sequence[int], dtype: str, stream: Stream) -> None:
        """stream: what its contents are written on. The contents are unspecified."""
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = stream.device
        self._stream = stream.handle or LEGACY
        self._memory = Memory(stream.device, bytes_of(shape, dtype))

    @property
    def address(self) -> int:
        """Of the first element."""
        return self._memory.address

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("__cuda_array_interface__ has no bfloat16; use DLPack.")
        return {
            "shape": self.shape,
            "typestr": np.dtype(self.dtype).str,
            "data": (self.address if math.prod(self.shape) else 0, False),
            "version": 3,
            "stream": self._stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """A capsule. stream: of the consumer, which then waits for the contents; -1: it does not wait."""
        if stream != -1:
            consumer = Stream(self.device, LEGACY if stream is None else stream)
            consumer.follow(self._stream)
        return dlpack.capsule(self, self.address, self.shape, self.dtype, self.__dlpack_device__())

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


class DeviceInput:
    """An array of the user's in the memory of a GPU: an argument of a collective."""

    def __init__(self, owner: Any, place: tuple[int, tuple[int, ...], str], stream: Stream) -> None:
        """owner: keeps the memory. place: address, shape, name of the type."""
        self.owner = owner
        self.address, self.shape, self.dtype = place
        self.stream = stream
        # What CuPy allocates belongs to its pool, in the order of its stream.
        self._cupy = sys.modules.get("cupy") if type(owner).__module__.partition(".")[0] == "cupy" else None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def empty(self, shape: Sequence[int]) -> tuple[Any, int]:
        """A new array of this type on this device, of the kind that the user gets, and its address."""
        if self._cupy is not None:
            array = self._cupy.empty(tuple(shape), self.dtype)
            return array, int(array.data.ptr)
        made = DeviceArray(shape, self.dtype, self.stream)
        return made, made.address


def find(value: Any) -> DeviceInput | None:
    """The value as an argument, if it is in the memory of a GPU and the engine takes that; else None.

    Raises ValueError for arrays that are not in C order.
    """
    if isinstance(value, (np.ndarray, np.generic, int, float, list, tuple)) or not device.is_taken():
        return None
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None and (interface.get("version", 0) >= 3 or not hasattr(value, "__dlpack__")):
        return _by_interface(value, interface)
    if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in _ON_GPU:
        return _by_dlpack(value)
    return None


def _by_interface(value: Any, interface: dict[str, Any]) -> DeviceInput | None:
    if interface.get("mask") is not None:
        raise ValueError("Masked arrays cannot be sent, because the mask would be lost.")
    dtype = np.dtype(interface["typestr"])
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is not None and not dlpack.is_contiguous(shape, tuple(s // dtype.itemsize for s in strides)):
        raise ValueError(_not_contiguous(value))
    if not dtype.isnative:
        raise ValueError(f"Arrays of type {dtype} cannot be sent; convert to native byte order.")
    address = int(interface["data"][0] or 0)
    index = _device_of(value, address)
    if index < 0:
        return None
    stream = interface.get("stream")
    handle = LEGACY if stream is None else int(stream)
    return DeviceInput(value, (address, shape, dtype.name), Stream(index, handle, _current_stream_of(value)))


def _device_of(value: Any, address: int) -> int:
    """The interface does not say it. An empty array has no address; CuPy's arrays have an attribute."""
    if address:
        return device.device_of(address)
    named = getattr(getattr(value, "device", None), "id", None)
    return named if isinstance(named, int) else 0


def _current_stream_of(value: Any) -> Any:
    """For CuPy, whose streams are current ones: gives that of the calling thread. Otherwise None."""
    cupy = sys.modules.get("cupy") if type(value).__module__.partition(".")[0] == "cupy" else None
    return None if cupy is None else lambda: int(cupy.cuda.get_current_stream().ptr) or LEGACY


def _by_dlpack(value: Any) -> DeviceInput:
    view = dlpack.view(value.__dlpack__(stream=LEGACY))
    if not view.is_contiguous:
        raise ValueError(_not_contiguous(value))
    place = (view.address, view.shape, view.dtype)
    return DeviceInput((view.capsule, value), place, Stream(view.device, LEGACY))


def _not_contiguous(value: Any) -> str:
    return f"Arrays on a GPU have to be in C order, but this {type(value).__name__} is not; copy it first."
