"""A sum by rueda, of 64 MiB and of 4 bytes, to be compared with nccl_alone; and the host's share."""

from __future__ import annotations

import time

import torch
import world

import rueda.torch as hvd

hvd.init()
world.require_engine()
for size_bytes in (64 << 20, 4) if not world.IS_STAND_IN else (4096, 4):
    tensor = torch.zeros(size_bytes // 4, device=world.device)
    repeat = 20 if size_bytes > 4096 else 200
    named = {"name": f"one.{size_bytes}", "op": hvd.Sum}
    seconds = world.seconds_on_gpu(lambda t=tensor, more=named: hvd.allreduce_(t, **more), repeat)
    world.say(**{f"allreduce_{size_bytes}_us": round(seconds * 1e6, 1)})

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
