"""A table of DLPack's C functions for a class of the tests' own, as torch has one for its tensors."""

import ctypes
from typing import Any, Callable, NamedTuple, Tuple

CPU, CUDA = 1, 2


class DlTensor(ctypes.Structure):
    """DLTensor of float32."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Table(ctypes.Structure):
    """DLPackExchangeAPI"""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 3),
        ("to_tensor", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


class Numbers(NamedTuple):
    """Where a tensor lies. shape, strides: arrays of c_int64, which the tensor keeps."""

    address: int
    device_type: int
    shape: Any
    strides: Any


ToTensor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlTensor))
CurrentStream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)
_kept = []


def dims(*values: int) -> Any:
    """An array of c_int64."""
    return (ctypes.c_int64 * len(values))(*values)


def make_exchange(numbers_of: Callable[[Any], Numbers], stream_of: Callable[[], int] = lambda: 0) -> Any:
    """The capsule, as torch.Tensor.__dlpack_c_exchange_api__ is one. stream_of: of device 0."""

    def fill(tensor: Any, out: Any) -> int:
        found = numbers_of(tensor)
        places: Tuple[int, int] = ctypes.addressof(found.shape), ctypes.addressof(found.strides)
        out[0] = DlTensor(found.address, found.device_type, 0, len(found.shape), 2, 32, 1, *places, 0)
        return 0

    def tell(device_type: int, index: int, out: Any) -> int:
        assert (device_type, index) == (CUDA, 0)
        out[0] = stream_of()
        return 0

    functions = ToTensor(fill), CurrentStream(tell)
    addresses = [ctypes.cast(function, ctypes.c_void_p) for function in functions]
    table = Table(1, 3, None, (None, None, None), *addresses)
    _kept.append((functions, table))
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule.restype = ctypes.py_object
    return capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
