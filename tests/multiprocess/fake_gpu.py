"""GPUs without a GPU: the tests' own libcuda, in whose streams work really happens later.

`environment()` gives it to a process. In that process this module has memory, streams and arrays of the
pretended GPUs, as a library with `__cuda_array_interface__` would. What is enqueued on a stream runs after
seeded delays, so a test that forgets to wait reads old values.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import harness
import numpy as np
import nursery
import pytest

# Tests of TensorFlow hide GPUs from every process that this one starts.
ALL_DEVICES = "0,1,2,3"
FOLDER = Path(harness.library()).parent / "fake_cuda"
IS_BUILT = (FOLDER / "libcuda.so.1").exists()
needed = pytest.mark.skipif(not IS_BUILT, reason="the tests' libcuda is not built: RUEDA_BUILD_TESTS=ON")


NCCL = FOLDER.parent / "fake_nccl" / "libnccl.so.2"
# The ways in which a job can use its GPUs here, for pytest.mark.parametrize.
BACKENDS = ["staged", *(["nccl"] if NCCL.exists() else [])]


def environment(**settings: object) -> Dict[str, str]:
    """Variables for a process that is to have GPUs. settings: of fake_cuda.h, without the prefix."""
    chosen = {"DELAY_US": 3000, **settings}
    return {
        "CUDA_VISIBLE_DEVICES": ALL_DEVICES,
        "RUEDA_CUDA_LIBRARY": str(FOLDER / "libcuda.so.1"),
        "RUEDA_GPU_OPERATIONS": "staged",
        **{f"FAKE_CUDA_{name}": str(value) for name, value in chosen.items()},
    }


def found_by_name(**settings: object) -> Dict[str, str]:
    """The same for processes of their own, which are to find the library as they would find CUDA's."""
    variables = environment(**settings)
    del variables["RUEDA_CUDA_LIBRARY"]
    paths = [str(FOLDER), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    return {**variables, "LD_LIBRARY_PATH": os.pathsep.join(path for path in paths if path)}


def launch(
    ranks: int, script: str, backend: str, imports_torch: bool = False, **settings: object
) -> List[harness.Finished]:
    """Runs a script on ranks that have GPUs and use them by this backend. All of them have device 0.

    imports_torch: whether ranks that use NCCL come from a nursery, too.
    """
    if backend == "staged":
        return nursery.launch(ranks, script, environment(**settings), limit_s=120)
    # The tests' libnccl looks for libcuda by name, in a path that the loader reads when a process begins.
    variables = found_by_name(**settings)
    nccl = {
        "RUEDA_GPU_OPERATIONS": "nccl",
        "RUEDA_NCCL_LIBRARY": str(NCCL),
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }
    start = harness.start_fresh
    if imports_torch:
        path = "LD_LIBRARY_PATH"
        imports = dataclasses.replace(nursery.torch_imports(), environment=((path, variables[path]),))
        start = functools.partial(nursery.fork, imports=imports)
    return harness.launch(ranks, script, {**variables, **nccl}, limit_s=120, start=start)


class Driver:
    """The functions that the tests call themselves, on one device."""

    def __init__(self, device: int = 0) -> None:
        self._library = ctypes.CDLL(str(FOLDER / "libcuda.so.1"))
        self.device = device
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context

    def __call__(self, name: str, *arguments: Any) -> None:
        if name not in ("cuInit", "cuDevicePrimaryCtxRetain"):
            self._library.cuCtxPushCurrent_v2(self._context)
        status = getattr(self._library, name)(*arguments)
        assert status == 0, f"{name} answered {status}"

    def calls(self, name: str) -> int:
        """How often the process has called the function."""
        count = self._library.fake_cuda_calls
        count.restype = ctypes.c_size_t
        return int(count(name.encode()))

    def stream(self) -> int:
        """A new stream."""
        made = ctypes.c_void_p()
        self("cuStreamCreateWithPriority", ctypes.byref(made), 1, 0)
        return int(made.value or 0)

    def record(self, stream: int) -> int:
        """An event that happens after everything enqueued on the stream so far."""
        event = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(event), 2)
        self("cuEventRecord", event, ctypes.c_void_p(stream))
        return int(event.value or 0)

    def device_bytes(self) -> int:
        """Bytes in the memory of devices that this process has allocated and not freed."""
        count = self._library.fake_cuda_device_bytes
        count.restype = ctypes.c_size_t
        return int(count())

    def fail_device(self, result: int) -> None:
        """The work that the device does next fails with this CUresult, and everything later there."""
        self._library.fake_cuda_fail_device(self.device, result)

    def synchronize(self, stream: int) -> None:
        """Waits until what is enqueued on the stream has run."""
        self("cuStreamSynchronize", ctypes.c_void_p(stream))

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Enqueues a copy."""
        place = [ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size_bytes)]
        self("cuMemcpyAsync", *place, ctypes.c_void_p(stream))


class GpuArray:
    """An array of the tests' own on a GPU, with version 3 of the interface."""

    def __init__(self, driver: Driver, shape: Tuple[int, ...], dtype: str, stream: Optional[int]) -> None:
        self.driver, self.shape, self.dtype, self.stream = driver, shape, np.dtype(dtype), stream
        self.size_bytes = int(np.prod(shape, dtype=int)) * self.dtype.itemsize
        address = ctypes.c_uint64()
        driver("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, self.size_bytes)))
        self.address = int(address.value)
        self._kept: Any = None

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "stream": self.stream,
        }

    def set_later(self, values: np.ndarray) -> GpuArray:
        """Enqueues the write of these values."""
        source = GpuArray(self.driver, self.shape, self.dtype.name, self.stream)
        host = np.ascontiguousarray(values, self.dtype)
        ctypes.memmove(source.address, host.ctypes.data, self.size_bytes)
        if self.size_bytes:
            self.driver.copy(self.address, source.address, self.size_bytes, self.stream or 1)
        self._kept = source
        return self


def array(driver: Driver, values: Any, stream: Optional[int], dtype: str = "float32") -> GpuArray:
    """An array that has the values once what is enqueued on the stream has run, and NaN or -1 before."""
    host = np.asarray(values, dtype)
    made = GpuArray(driver, host.shape, dtype, stream)
    ctypes.memset(made.address, 0xFF, made.size_bytes)
    return made.set_later(host)


def read(driver: Driver, value: Any) -> np.ndarray:
    """What an array has, after the stream that its interface names."""
    interface = value.__cuda_array_interface__
    driver.synchronize(interface["stream"] or 1)
    host = np.empty(interface["shape"], interface["typestr"])
    if host.nbytes:
        ctypes.memmove(host.ctypes.data, interface["data"][0], host.nbytes)
    return host
