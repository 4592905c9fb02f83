"""CPU tensors that stand in for tensors on a GPU, so that torch's front end runs its paths for GPUs here.

To rueda they are on GPU 0: their memory passes for that of the tests' libcuda (FAKE_CUDA_UNIFIED), and what
the engine does with them happens later, on streams. torch itself computes at once. So everything that torch
has enqueued has run when the engine is told to wait for it, and where torch's stream waits for a result, the
process waits as well. What this cannot show is what torch does with its own streams.
"""

from __future__ import annotations

from contextlib import nullcontext

import fake_gpu
import torch

from rueda import device, open_operations
from rueda.torch import devices, reducer


def install() -> fake_gpu.Driver:
    """From now on CPU tensors of floating-point numbers are on GPU 0. Scripts keep the others on the CPU."""
    driver = fake_gpu.Driver()
    stream = driver.stream()
    devices.is_on_gpu = _is_on_gpu
    devices.index_of = lambda tensor: 0 if _is_on_gpu(tensor) else -1
    devices.current_stream = lambda index: stream
    devices.side_stream = lambda index: nullcontext()
    devices.future = lambda index: torch.futures.Future()
    wait = device.Stream.wait
    follow = device.Stream.follow
    copy = device.copy

    def wait_with_torch(self: device.Stream, engine_handle: int) -> None:
        wait(self, engine_handle)
        driver.synchronize(self.current())

    def follow_with_torch(self: device.Stream, other: int) -> None:
        follow(self, other)
        driver.synchronize(self.current())

    def copy_with_torch(on: device.Stream, *place: int) -> None:
        copy(on, *place)
        driver.synchronize(on.current())

    device.Stream.wait = wait_with_torch  # type: ignore[method-assign]
    device.Stream.follow = follow_with_torch  # type: ignore[method-assign]
    device.copy = copy_with_torch
    reducer.await_all = lambda gradients, passes: False  # in C it asks torch itself for its streams
    assert open_operations.Stream is device.Stream
    return driver


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()
