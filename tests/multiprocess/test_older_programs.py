"""Programs that were built against an older rueda.h."""

import ctypes

import pytest
import torch
from harness import on_every_rank

import rueda.torch as hvd
from rueda import _core

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")

FIELDS = _core.Request._fields_


class OlderRequest(ctypes.Structure):
    """rueda_request as programs know it that were built before it had a priority and what follows."""

    _fields_ = FIELDS[: [name for name, _ in FIELDS].index("priority")]


@on_every_rank
def test_programs_built_against_the_shorter_request_go_on_working():
    assert ctypes.sizeof(OlderRequest) == _core.Request.priority.offset
    tensors = [torch.full((4,), float(index)) for index in range(2)]
    shape = (ctypes.c_int64 * 1)(4)
    requests = (OlderRequest * 2)()
    for index, (request, tensor) in enumerate(zip(requests, tensors)):
        request.struct_size = ctypes.sizeof(OlderRequest)
        request.what, request.dtype, request.op = _core.ALLREDUCE, _core.FLOAT32, _core.SUM
        request.name = f"older.{index}".encode()
        request.prescale = request.postscale = 1.0
        request.ndim, request.device, request.shape = 1, -1, shape
        request.input = request.output = tensor.data_ptr()
    handle = ctypes.c_int64(0)
    assert _core.submit(ctypes.byref(requests), 2, ctypes.byref(handle)) == _core.OK, _core.last_error()
    assert _core.wait(handle.value, 30.0) == _core.OK
    _core.release(handle.value)
    assert torch.equal(tensors[1], torch.full((4,), float(hvd.size())))
    requests[1].struct_size = 8
    assert _core.submit(ctypes.byref(requests), 2, ctypes.byref(handle)) == _core.INVALID_ARGUMENT
    assert "differ in struct_size" in _core.last_error()
