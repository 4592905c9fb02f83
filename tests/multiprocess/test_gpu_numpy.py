"""rueda.numpy with arrays in the memory of a GPU, in jobs of several processes on the tests' libcuda."""

import fake_gpu
import pytest
from harness import assert_all_succeed, launch

pytestmark = fake_gpu.needed

PREPARE = """
import gc
import time
import warnings

import fake_gpu
import numpy as np
import pytest
import rueda.numpy as hvd
from rueda import _core, device, dlpack, operations
from rueda.numpy.on_device import DeviceArray

driver = fake_gpu.Driver()
hvd.init(process_sets="dynamic")
n, me = hvd.size(), hvd.rank()
total = n * (n + 1) / 2  # of the numbers that the ranks have
stream = driver.stream()
assert device.is_taken(), device.support()


def mine(shape=(5,), dtype="float32", value=None):
    return fake_gpu.array(driver, np.full(shape, me + 1 if value is None else value), stream, dtype)


def see(array):
    return fake_gpu.read(driver, array)
"""


def run(body, ranks=2, backend="staged", **settings):
    assert_all_succeed(fake_gpu.launch(ranks, PREPARE + body, backend, **settings))


@pytest.mark.parametrize("backend", fake_gpu.BACKENDS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_read_after_the_stream_and_their_results_are_on_the_gpu(ranks, backend):
    run(
        """
for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8", "bool"):
    out = hvd.allreduce(mine((3, 4), dtype), op=hvd.Max)
    assert isinstance(out, DeviceArray) and out.shape == (3, 4) and out.dtype == dtype
    assert (see(out) == (True if dtype == "bool" else n)).all(), dtype
x = mine()
assert (see(hvd.allreduce(x, op=hvd.Sum)) == total).all() and (see(x) == me + 1).all()
assert (see(hvd.allreduce(mine())) == total / n).all()
assert see(hvd.allreduce(mine(()), op=hvd.Sum)) == total
assert see(hvd.allreduce(mine((0, 2)), op=hvd.Sum)).shape == (0, 2)
assert (see(hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=2, postscale_factor=0.5)) == total).all()
outs = hvd.grouped_allreduce([mine((i + 1,)) for i in range(20)], op=hvd.Sum)
assert all((see(out) == total).all() for out in outs) and [out.shape[0] for out in outs] == list(range(1, 21))
assert (see(hvd.broadcast(mine(), n - 1)) == n).all()
rows = np.repeat(np.arange(1, n + 1), np.arange(1, n + 1))  # as many rows as the rank has in number
assert (see(hvd.allgather(mine((me + 1, 2)))) == rows[:, None]).all()
first, second = hvd.grouped_allgather([mine((2,)), mine((me, 3))])
assert first.shape == (2 * n,) and second.shape == (n * (n - 1) // 2, 3)
scattered = see(hvd.reducescatter(mine((2 * n + 1, 2)), op=hvd.Sum))
assert scattered.shape == (2 + (me == 0), 2) and (scattered == total).all()
assert (see(hvd.alltoall(mine((n, 2)))) == np.arange(1, n + 1)[:, None]).all()
out, received = hvd.alltoall(mine((n * (n + 1) // 2,)), splits=range(1, n + 1))
assert received.tolist() == [me + 1] * n and (see(out) == np.repeat(np.arange(1, n + 1), me + 1)).all()
""",
        ranks,
        backend,
    )


@pytest.mark.parametrize("backend", fake_gpu.BACKENDS)
def test_the_host_does_not_wait_for_the_device(backend):
    run(
        """
handles = [hvd.allreduce_async(mine(), name=f"late.{i}", op=hvd.Sum) for i in range(4)]
before = driver.calls("cuStreamSynchronize"), driver.calls("cuEventSynchronize")
waits = []
_core.wait, original = lambda *arguments: waits.append(arguments), _core.wait
outs = [hvd.synchronize(handle) for handle in handles]
_core.wait = original
assert not waits
assert before == (driver.calls("cuStreamSynchronize"), driver.calls("cuEventSynchronize"))
assert all((see(out) == total).all() for out in outs)
""",
        backend=backend,
    )


def test_poll_says_when_the_result_is_there():
    run("""
handle = hvd.allreduce_async(mine(), op=hvd.Sum)
deadline = time.monotonic() + 90
while not hvd.poll(handle):
    assert time.monotonic() < deadline
    time.sleep(0.001)
out = hvd.synchronize(handle)
there = np.empty(5, "float32")
import ctypes
ctypes.memmove(there.ctypes.data, out.address, 20)  # without waiting for the stream
assert (there == total).all()
with pytest.raises(ValueError, match="not created or has been cleared"):
    hvd.poll(handle)
""")


def test_memory_in_flight_is_kept_and_freed_afterwards():
    run("""
held = driver.device_bytes
hvd.allreduce(mine((1000,)), op=hvd.Sum)
hvd.allgather(mine((1000,)))
driver.synchronize(stream)
hvd.barrier()
before = held()
for _ in range(20):
    handle = hvd.allreduce_async(mine((1000,)), op=hvd.Sum)  # nobody else has the input
    gathered = hvd.allgather(mine((1000,)))
    assert (see(hvd.synchronize(handle)) == total).all()
    assert (see(gathered) == np.repeat(np.arange(1, n + 1), 1000)).all()
""")


def test_dlpack_gives_and_takes_with_the_stream_of_the_consumer():
    run("""
class Library:
    def __init__(self, values, dtype):
        self.source = fake_gpu.array(driver, values, stream, "uint16" if dtype == "bfloat16" else dtype)
        self.dtype, self.asked = dtype, []

    def __dlpack_device__(self):
        return dlpack.CUDA, 0

    def __dlpack__(self, *, stream):
        self.asked.append(stream)
        device.Stream(0, stream).follow(self.source.stream)
        return dlpack.capsule(self, self.source.address, self.source.shape, self.dtype, (dlpack.CUDA, 0))

x = Library(np.full(6, me + 1), "float32")
out = hvd.allreduce(x, op=hvd.Sum)
assert x.asked == [1] and (see(out) == total).all()
assert out.__dlpack_device__() == (dlpack.CUDA, 0)
consumer = driver.stream()
view = dlpack.view(out.__dlpack__(stream=consumer))
copied = fake_gpu.array(driver, np.zeros(6), consumer)
driver.copy(copied.address, view.address, 24, consumer)
assert (see(copied) == total).all() and view.dtype == "float32" and view.shape == (6,)

halves = hvd.allreduce(Library(np.full(4, 0x3F80), "bfloat16"), op=hvd.Sum)  # 1.0 on each rank
assert halves.dtype == "bfloat16" and not hasattr(halves, "__cuda_array_interface__")
driver.synchronize(1)
words = np.empty(4, "uint16")
import ctypes
ctypes.memmove(words.ctypes.data, halves.address, 8)
assert (words == (0x4000 if n == 2 else 0x4040)).all()
""")


def test_arrays_that_cannot_be_sent_are_refused_here():
    run("""
class Strided(fake_gpu.GpuArray):
    @property
    def __cuda_array_interface__(self):
        return {**super().__cuda_array_interface__, "strides": (4, 8)}

with pytest.raises(ValueError, match="C order, but this Strided is not"):
    hvd.allreduce(Strided(driver, (2, 2), "float32", stream))
with pytest.raises(ValueError, match="complex64 cannot be sent"):
    hvd.allreduce(fake_gpu.GpuArray(driver, (2,), "complex64", stream))
with pytest.raises(ValueError, match="one memory"):
    hvd.grouped_allreduce([mine(), np.ones(3)])
assert (see(hvd.allreduce(mine(), op=hvd.Sum)) == total).all()
""")


def test_where_the_driver_is_too_old_gpu_arrays_are_refused_with_the_reason():
    script = """
import numpy as np, pytest
import rueda.numpy as hvd
hvd.init()
class OnGpu:
    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3}
class Refusing(OnGpu):
    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")
class Copying(OnGpu):
    def __array__(self, *_, **__):
        return np.ones(2, "float32")
for kind in (OnGpu, Refusing):
    with pytest.raises(ValueError, match=f"This {kind.__name__} is in the memory of a GPU.*driver for CUDA"):
        hvd.allreduce(kind())
assert (hvd.allreduce(Copying(), op=hvd.Sum) == hvd.size()).all()
"""
    assert_all_succeed(launch(2, script, fake_gpu.found_by_name(VERSION=11020)))


def test_host_arrays_and_gpu_arrays_in_one_job():
    run("""
for step in range(10):
    host = hvd.allreduce_async(np.full(9, me + 1.0), name="host", op=hvd.Sum)
    gpu = hvd.allreduce_async(mine(), name="gpu", op=hvd.Sum)
    assert (hvd.synchronize(host) == total).all() and (see(hvd.synchronize(gpu)) == total).all()
assert hvd.broadcast_object({"a": me}, 1) == {"a": 1}
""")


def test_ranks_that_disagree_get_a_sentence_and_go_on():
    run("""
with pytest.raises(hvd.HorovodInternalError, match="bad"):
    hvd.allreduce(mine((2 + me,)), name="bad")
with pytest.raises(hvd.HorovodInternalError, match="CPU/GPU device selection"):
    hvd.allreduce(mine() if me else np.ones(5, "float32"), name="where")
assert (see(hvd.allreduce(mine(), op=hvd.Sum)) == total).all()
""")


@pytest.mark.parametrize("backend", fake_gpu.BACKENDS)
def test_no_call_waits_for_other_work_of_the_gpu(backend):
    run(
        """
import ctypes
inputs = [mine((5000,)) for _ in range(4)]
warm = [hvd.allreduce(inputs[0], op=hvd.Sum), hvd.allgather(inputs[0])]
driver.synchronize(stream)
hvd.barrier()
libc = ctypes.CDLL("libc.so.6")
may_end = ctypes.create_string_buffer(64)  # a sem_t
assert libc.sem_init(may_end, 0, 0) == 0
wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p)
driver("cuLaunchHostFunc", ctypes.c_void_p(driver.stream()), wait, ctypes.cast(may_end, ctypes.c_void_p))
warm = hvd.allgather(inputs[1])  # what it replaces is freed, for which CUDA waits until the GPU is idle
warm = hvd.allreduce(inputs[2], op=hvd.Sum)
warm = hvd.allgather(inputs[3])
libc.sem_post(may_end)
""",
        backend=backend,
    )


def test_without_memory_for_a_result_a_rank_says_so_and_goes_on():
    run(
        """
try:
    big = hvd.allreduce(fake_gpu.array(driver, np.ones(3_000_000), stream), name="big")
except MemoryError as error:
    assert "12000000 bytes" in str(error) and "CUDA cannot allocate" in str(error), error
else:
    raise AssertionError("there was memory")
assert (see(hvd.allreduce(mine(), op=hvd.Sum)) == 1).all()
""",
        ranks=1,
        MEMORY=30_000_000,
    )


def test_process_sets_and_a_second_init():
    run("""
half = hvd.add_process_set([0])
if me == 0:
    assert (see(hvd.allreduce(mine(), op=hvd.Sum, process_set=half)) == 1).all()
assert (see(hvd.allreduce(mine(), op=hvd.Sum)) == total).all()
kept = hvd.allreduce(mine(), op=hvd.Sum)
hvd.shutdown()
assert not device.is_taken()
assert (see(kept) == total).all()
hvd.init()
assert (see(hvd.allreduce(mine(), op=hvd.Sum)) == total).all()
""")
