"""Jobs of several processes on tensors in CUDA memory, through the C ABI and the tests' own libcuda."""

import pytest
from fake_cuda import environment, path
from harness import assert_all_succeed, launch

pytestmark = pytest.mark.skipif(
    not path().exists(), reason=f"{path()} is missing: it is built with the C++ tests"
)

PREAMBLE = """
import ctypes
import json
import numpy as np
import rueda.numpy as hvd
from fake_cuda import Cuda
from rueda import _core

def submit(what, array, name, output=None, ready=None):
    request = _core.Request()
    request.struct_size = ctypes.sizeof(request)
    request.what, request.dtype, request.op = what, _core.FLOAT32, _core.SUM
    request.name = name.encode()
    request.prescale = request.postscale = 1.0
    request.ndim, request.device, request.memory = len(array.shape), array.cuda.ordinal, 2
    shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
    request.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    request.input, request.output, request.ready = array.address, output, ready
    handle = ctypes.c_int64()
    assert _core.submit(ctypes.byref(request), 1, ctypes.byref(handle)) == _core.OK, _core.last_error()
    return handle.value

hvd.init()
cuda = Cuda(hvd.rank() % 2)
"""


def run(body: str, **settings: str) -> None:
    assert_all_succeed(launch(3, PREAMBLE + body, {**environment(), **settings}))


def test_ranks_sum_what_is_on_their_devices():
    run(
        """
assert json.loads(_core.describe())["cuda"] == {"driver": 12040, "operations": "staged", "because": ""}
stream = cuda.stream()
for step in range(20):
    array = cuda.array(np.full(5000, hvd.rank() + step, dtype="float32"))
    ready = cuda.record(stream)
    handle = submit(_core.ALLREDUCE, array, "sum", array.address, ready)
    assert _core.wait_on_stream(handle, stream, 30.0) == _core.OK, _core.last_error()
    cuda.synchronize(stream)
    assert (array.numpy() == 3 + 3 * step).all()
    _core.release(handle)
""",
        RUEDA_STAGING_BYTES="4096",
    )


def test_results_that_the_engine_allocates_are_detached_and_freed():
    run(
        """
array = cuda.array(np.full((1 + hvd.rank(), 2), hvd.rank(), dtype="float32"))
handle = submit(_core.ALLGATHER, array, "rows")
assert _core.wait(handle, 30.0) == _core.OK, _core.last_error()
info = _core.ResultInfo()
info.struct_size = ctypes.sizeof(info)
assert _core.result(handle, 0, ctypes.byref(info)) == _core.OK, _core.last_error()
assert [info.shape[0], info.shape[1]] == [6, 2]
data = _core.detach(handle, 0)
_core.release(handle)
rows = np.empty((6, 2), "float32")
cuda.check("cuMemcpyDtoH_v2", ctypes.c_void_p(rows.ctypes.data), ctypes.c_uint64(data), ctypes.c_size_t(48))
assert rows[:, 0].tolist() == [0, 1, 1, 2, 2, 2]
before = cuda.library.fake_cuda_device_bytes()
_core.free(data)
assert cuda.library.fake_cuda_device_bytes() == before - 48
"""
    )


def test_a_driver_that_is_too_old_is_named_by_every_rank():
    run(
        """
array = cuda.array(np.ones(10, dtype="float32"))
handle = submit(_core.ALLREDUCE, array, "sum", array.address)
assert _core.wait(handle, 30.0) == _core.UNSUPPORTED
why = _core.last_error()
assert "rank 0" in why and "supports CUDA 11.2" in why and "tensor sum" in why, why
""",
        FAKE_CUDA_VERSION="11020",
    )


def test_a_device_that_fails_ends_the_job_with_its_name_on_every_rank():
    run(
        """
array = cuda.array(np.ones(10, dtype="float32"))
if hvd.rank() == 2:
    cuda.library.fake_cuda_fail_device(0, 700)
handle = submit(_core.ALLREDUCE, array, "sum", array.address)
assert _core.wait(handle, 30.0) != _core.OK
assert "CUDA_ERROR_ILLEGAL_ADDRESS" in _core.last_error(), _core.last_error()
"""
    )
