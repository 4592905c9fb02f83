"""Jobs of several processes on tensors in CUDA memory, through the C ABI and the tests' own libcuda."""

import fake_gpu
from harness import assert_all_succeed, launch

pytestmark = fake_gpu.needed

# Rank r has device r % devices.
PREAMBLE = """
import ctypes
import json
import time
import numpy as np
import fake_gpu
import rueda.numpy as hvd
from rueda import _core

def submit(what, array, name, output=None):
    request = _core.Request()
    request.struct_size = ctypes.sizeof(request)
    request.what, request.dtype, request.op = what, _core.FLOAT32, _core.SUM
    request.name = name.encode()
    request.prescale = request.postscale = 1.0
    request.ndim, request.device, request.memory = len(array.shape), array.driver.device, 2
    shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
    request.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    request.input, request.output = array.address, output
    request.ready = driver.record(array.stream)
    handle = ctypes.c_int64()
    assert _core.submit(ctypes.byref(request), 1, ctypes.byref(handle)) == _core.OK, _core.last_error()
    return handle.value

hvd.init()
driver = fake_gpu.Driver(hvd.rank() % {devices})
stream = driver.stream()

def filled(value, shape):
    return fake_gpu.array(driver, np.full(shape, value), stream)

def see(array):
    return fake_gpu.read(driver, array)
"""


def run(body: str, **settings: str) -> None:
    variables = {**fake_gpu.found_by_name(DELAY_US=200), "RUEDA_GPU_OPERATIONS": "", **settings}
    assert_all_succeed(launch(3, PREAMBLE.format(devices=2) + body, variables))


def test_ranks_sum_what_is_on_their_devices():
    run(
        """
facts = json.loads(_core.describe())
assert facts["cuda"] == {"driver": 12040} and facts["device"] == {"backend": "staged"}, facts
for step in range(20):
    array = filled(hvd.rank() + step, 5000)
    handle = submit(_core.ALLREDUCE, array, "sum", array.address)
    assert _core.wait_on_stream(handle, stream, 30.0) == _core.OK, _core.last_error()
    assert (see(array) == 3 + 3 * step).all()
    _core.release(handle)
""",
        RUEDA_STAGING_BYTES="4096",
    )


def test_results_that_the_engine_allocates_are_detached_and_freed():
    run(
        """
array = filled(hvd.rank(), (1 + hvd.rank(), 2))
handle = submit(_core.ALLGATHER, array, "rows")
assert _core.wait(handle, 30.0) == _core.OK, _core.last_error()
info = _core.ResultInfo()
info.struct_size = ctypes.sizeof(info)
assert _core.result(handle, 0, ctypes.byref(info)) == _core.OK, _core.last_error()
assert [info.shape[0], info.shape[1]] == [6, 2]
data = _core.detach(handle, 0)
_core.release(handle)
rows = np.empty((6, 2), "float32")
driver("cuMemcpyDtoH_v2", ctypes.c_void_p(rows.ctypes.data), ctypes.c_uint64(data), ctypes.c_size_t(48))
assert rows[:, 0].tolist() == [0, 1, 1, 2, 2, 2]
before = driver.device_bytes()
_core.free(data)  # by a thread of rueda, because CUDA may wait for the whole device
deadline = time.monotonic() + 90
while driver.device_bytes() != before - 48:
    assert time.monotonic() < deadline, driver.device_bytes()
"""
    )


def test_a_driver_that_is_too_old_is_named_by_every_rank():
    run(
        """
array = filled(1, 10)
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
array = filled(1, 10)
if hvd.rank() == 2:
    driver.synchronize(stream)  # the work that fails is then the tensor's event, not the write above
    driver.fail_device(700)
handle = submit(_core.ALLREDUCE, array, "sum", array.address)
assert _core.wait(handle, 30.0) != _core.OK
assert "CUDA_ERROR_ILLEGAL_ADDRESS" in _core.last_error(), _core.last_error()
"""
    )
