"""DLPack: how libraries hand each other arrays in memory of a device, as capsules around a C struct.

The layout is that of DLPack 0.x and of unversioned capsules in 1.x, which every library produces by default:
https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

CPU, CUDA, CUDA_MANAGED = 1, 2, 13
_NAME = b"dltensor"  # of a capsule that nobody has consumed

# (code, bits) of each type, by the name that numpy and ml_dtypes give it.
_TYPES = {
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "float16": (2, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "bfloat16": (4, 16),
    "bool": (6, 8),
}
_NAMES = {code: name for name, code in _TYPES.items()}


class _Tensor(Structure):
    """DLTensor"""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(Structure):
    """DLManagedTensor"""


_Deleter: Any = ctypes.CFUNCTYPE(None, POINTER(_Managed))
_Destructor: Any = ctypes.CFUNCTYPE(None, c_void_p)
_Managed._fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", _Deleter)]

_python = ctypes.pythonapi
# Function objects of our own: others set the argument types of those that pythonapi hands out to everybody.
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, _Destructor)(("PyCapsule_New", _python))
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", _python))
# In a destructor the capsule has no references left, so it must not become a Python object again.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _python))
_pointer_of_dying = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _python))


@dataclass(frozen=True)
class View:
    """What a capsule describes."""

    address: int
    shape: tuple[int, ...]
    dtype: str  # name of numpy or ml_dtypes
    device_type: int
    device: int
    is_contiguous: bool  # in C order
    capsule: Any  # keeps the memory


def view(capsule: Any) -> View:
    """Reads a capsule of `__dlpack__`, which stays the owner. ValueError for a type unknown here."""
    address = _pointer(capsule, _NAME)
    tensor = _Managed.from_address(address).tensor
    kind = (tensor.code, tensor.bits)
    if tensor.lanes != 1 or kind not in _NAMES:
        raise ValueError(
            f"DLPack type code {tensor.code} with {tensor.bits} bits and {tensor.lanes} lanes cannot be "
            f"sent; convert to one of {', '.join(sorted(_TYPES))}."
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    return View(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        _NAMES[kind],
        tensor.device_type,
        tensor.device_id,
        strides is None or is_contiguous(shape, strides),
        capsule,
    )


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides, in elements, are those of C order. Dimensions with one element do not count."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size not in (0, 1) and stride != expected:
            return False
        expected *= size
    return True


# What the capsules that are given out hold, by the address of their struct.
_given: dict[int, tuple[Any, ...]] = {}


def _delete(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _destroy(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # nobody has consumed it
        _given.pop(_pointer_of_dying(capsule, _NAME), None)


_call_delete, _call_destroy = _Deleter(_delete), _Destructor(_destroy)


def capsule(owner: Any, address: int, shape: tuple[int, ...], dtype: str, device: tuple[int, int]) -> Any:
    """A capsule that keeps the owner alive until its consumer lets it go.

    dtype: name of a type that the engine carries. device: DLPack's type of the device, and its index.
    """
    code, bits = _TYPES[dtype]
    sizes = (c_int64 * max(1, len(shape)))(*shape)
    tensor = _Tensor(address, device[0], device[1], len(shape), code, bits, 1, sizes, None, 0)
    managed = _Managed(tensor, None, _call_delete)
    place = ctypes.addressof(managed)
    _given[place] = (managed, sizes, owner)
    return _new(place, _NAME, _call_destroy)
