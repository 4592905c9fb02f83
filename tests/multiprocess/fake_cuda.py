"""CUDA without a GPU, for tests in Python: arrays, streams and events of the tests' own libcuda.

Processes find it by ``environment()``, which goes into their environment before they start (the loader reads
LD_LIBRARY_PATH only then). ``tests/cuda/fake_cuda.h`` lists the other variables that it obeys.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Dict

import numpy as np
from harness import library

# Tests of TensorFlow hide GPUs from every process that this one starts.
ALL_DEVICES = "0,1,2,3"


def path() -> Path:
    """The library, beside the librueda.so under test."""
    return Path(library()).parent / "fake_cuda" / "libcuda.so.1"


def environment() -> Dict[str, str]:
    """What a process needs so that its libcuda.so.1 is that of the tests."""
    others = os.environ.get("LD_LIBRARY_PATH", "")
    found = f"{path().parent}:{others}" if others else str(path().parent)
    return {"LD_LIBRARY_PATH": found, "CUDA_VISIBLE_DEVICES": ALL_DEVICES}


class Cuda:
    """One device of this process, with its primary context current on this thread."""

    def __init__(self, ordinal: int = 0) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.ordinal = ordinal
        self.check("cuInit", 0)
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.check("cuCtxSetCurrent", context)

    def check(self, function: str, *arguments: Any) -> None:
        """Calls a function of the driver. RuntimeError with its result if that is not 0."""
        result = getattr(self.library, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function} answered {result}")

    def array(self, values: np.ndarray) -> DeviceArray:
        """A copy of the values in the memory of the device."""
        return DeviceArray(self, values)

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.check("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def record(self, stream: ctypes.c_void_p) -> ctypes.c_void_p:
        """An event that happens after everything enqueued on the stream so far."""
        event = ctypes.c_void_p()
        self.check("cuEventCreate", ctypes.byref(event), 2)
        self.check("cuEventRecord", event, stream)
        return event

    def synchronize(self, stream: ctypes.c_void_p) -> None:
        self.check("cuStreamSynchronize", stream)


class DeviceArray:
    """An array in the memory of a device, as CuPy and numba have them: ``__cuda_array_interface__``."""

    def __init__(self, cuda: Cuda, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        self.cuda = cuda
        self.shape = values.shape
        self.dtype = values.dtype
        address = ctypes.c_uint64()
        cuda.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, values.nbytes)))
        self.address = address.value
        cuda.check(
            "cuMemcpyHtoD_v2", address, ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        )

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            "stream": 1,  # the legacy default stream
        }

    def numpy(self) -> np.ndarray:
        """The values now, after all work of the device."""
        values = np.empty(self.shape, self.dtype)
        self.cuda.check(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(values.ctypes.data),
            ctypes.c_uint64(self.address),
            ctypes.c_size_t(values.nbytes),
        )
        return values

    def __del__(self) -> None:
        self.cuda.library.cuMemFree_v2(ctypes.c_uint64(self.address))
