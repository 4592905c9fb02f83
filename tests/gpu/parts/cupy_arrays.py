"""rueda.numpy with arrays of CuPy and, where it is installed, numba."""

from __future__ import annotations

import world
from world import RANK, SIZE, total

if world.IS_STAND_IN:
    world.skip("tests/multiprocess/test_gpu_numpy.py does this without a GPU")
try:
    import cupy
except ImportError as error:
    world.skip(f"CuPy cannot be imported: {error}")

import numpy as np

import rueda.numpy as hvd

cupy.cuda.Device(world.index).use()
hvd.init()
world.require_engine()
n, me = SIZE, RANK


def mine(*shape, dtype="float32"):
    return cupy.full(shape or (5,), me + 1, dtype)


def check_collectives():
    for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8"):
        out = hvd.allreduce(mine(3, 4, dtype=dtype), op=hvd.Sum)
        assert isinstance(out, cupy.ndarray) and out.dtype == dtype and bool((out == total).all())
    assert bool((hvd.broadcast(mine(), n - 1) == n).all())
    rows = np.repeat(np.arange(1, n + 1), np.arange(1, n + 1))
    assert (hvd.allgather(mine(me + 1)).get() == rows).all()
    assert (hvd.alltoall(mine(n)).get() == np.arange(1, n + 1)).all()
    assert bool((hvd.reducescatter(mine(2 * n), op=hvd.Sum) == total).all())


def check_streams():
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            x = cupy.zeros(1 << 20, "float32")
            for _ in range(20):
                x += 1
            assert bool((hvd.allreduce(x) == 20).all())


def check_numba():
    try:
        from numba import cuda
    except ImportError:
        return
    if not cuda.is_available():  # numba finds its own parts of CUDA, or not
        world.say(note="numba is installed, and finds no CUDA")
        return
    given = cuda.to_device(np.full(8, me + 1, "float32"))
    out = hvd.allreduce(given, op=hvd.Sum)
    assert (cuda.as_cuda_array(out).copy_to_host() == total).all()


def check_torch_by_dlpack():
    out = hvd.allreduce(world.mine(6), op=hvd.Sum)
    assert bool((world.torch.from_dlpack(out) == total).all())


world.run_checks(dict(globals()))
