"""Sums by rueda, of 64 MiB and of 4 bytes, timed as nccl_alone times them; and the host's share.

One: the call is submitted, the stream of torch waits for it, and the host waits for the stream. Series: many
calls are submitted, then the stream waits for each, and the host for the stream.
"""

from __future__ import annotations

import time

import torch
import world

import rueda.torch as hvd

hvd.init()
world.require_engine()
stream = world.current_stream()
for size_bytes in world.TIMED_BYTES:
    tensor = torch.zeros(size_bytes // 4, device=world.device)
    names = [f"series.{size_bytes}.{i}" for i in range(world.series_length(size_bytes))]

    def one(x=tensor, name=f"one.{size_bytes}"):
        return hvd.allreduce(x, name=name, op=hvd.Sum)

    def series(x=tensor, names=names):
        handles = [hvd.allreduce_async(x, name=name, op=hvd.Sum) for name in names]
        return [hvd.synchronize(handle) for handle in handles]

    world.time_sums(size_bytes, one, series, stream)

# The host's time for each tensor that is submitted, and for each that is awaited.
steps, count = (1, 10) if world.IS_STAND_IN else (20, 200)
tensors = [torch.ones(1, device=world.device) for _ in range(count)]
submitted = awaited = 0.0
for step in range(2 + steps):
    began = time.perf_counter()
    handles = [hvd.allreduce_async_(tensor, name=f"small.{i}") for i, tensor in enumerate(tensors)]
    middle = time.perf_counter()
    for handle in handles:
        hvd.synchronize(handle)
    if step >= 2:
        submitted += middle - began
        awaited += time.perf_counter() - middle
world.synchronize()
world.say(submit_us=round(submitted / steps / len(tensors) * 1e6, 2))
world.say(synchronize_us=round(awaited / steps / len(tensors) * 1e6, 2))
