"""Waiting on a stream through the C ABI. In host memory, where there are none, it waits for the operation."""

import ctypes

import numpy as np
import pytest
from harness import on_every_rank

import rueda.numpy as hvd
from rueda import _core, operations
from rueda.process_sets import global_process_set

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")

NO_STREAM = 0xDEAD  # nothing looks at it


def start(array: np.ndarray, name: str) -> int:
    call = operations.Call(
        what=_core.ALLREDUCE,
        dtype=_core.FLOAT32,
        shape=array.shape,
        input=array.ctypes.data,
        output=array.ctypes.data,
    )
    return operations.submit_named([call], ("allreduce", name), global_process_set)[1]


@on_every_rank
def test_an_operation_in_host_memory_has_ended_when_the_wait_returns():
    array = np.full(1000, hvd.rank(), dtype="float32")
    handle = start(array, "stream.host")
    assert _core.wait_on_stream(handle, NO_STREAM, 30.0) == _core.OK, _core.last_error()
    assert (array == sum(range(hvd.size()))).all()
    assert _core.poll(handle) == 1
    assert _core.wait_on_stream(handle, None, -1.0) == _core.OK, "the handle stays valid"
    _core.release(handle)
    assert _core.wait_on_stream(handle, None, 30.0) == _core.INVALID_ARGUMENT
    assert "was not created or has been cleared" in _core.last_error()


@on_every_rank
def test_a_deadline_names_the_operation_and_leaves_it_pending():
    array = np.ones(10, dtype="float32")
    if hvd.rank() == 0:
        handle = start(array, "stream.late")
        assert _core.wait_on_stream(handle, NO_STREAM, 0.0) == _core.TIMEOUT
        assert "allreduce.stream.late is still pending" in _core.last_error()
    hvd.barrier()  # no other rank submits before
    if hvd.rank() != 0:
        handle = start(array, "stream.late")
    operations.wait_on_stream(handle, NO_STREAM)
    assert (array == hvd.size()).all()
    _core.release(handle)


@on_every_rank
def test_the_failure_of_the_operation_is_that_of_the_wait():
    array = np.ones(2 + hvd.rank(), dtype="float32")
    handle = start(array, "stream.unequal")
    with pytest.raises(hvd.HorovodInternalError, match=r"stream\.unequal"):
        operations.wait_on_stream(handle, NO_STREAM)
    assert _core.wait_on_stream(handle, NO_STREAM, 0.0) == _core.MISMATCH
    assert "stream.unequal" in _core.last_error()
    _core.release(handle)


@on_every_rank
def test_a_callback_of_the_engine_may_wait_on_a_stream():
    """As a framework does that hands its result to a stream when the operation is done."""
    array = np.full(1000, hvd.rank(), dtype="float32")
    handle, outcomes = start(array, "stream.callback"), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def done(_argument):
        outcomes.append(_core.wait_on_stream(handle, NO_STREAM, 0.0))

    assert _core.on_done(handle, ctypes.cast(done, ctypes.c_void_p), None) == _core.OK
    operations.wait(handle)
    hvd.barrier()  # the engine has returned from the callback when it serves the next operation
    assert outcomes == [_core.OK]
    _core.release(handle)
