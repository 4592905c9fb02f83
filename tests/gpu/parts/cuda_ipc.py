"""Ranks that map one another's GPU memory (RUEDA_CUDA_IPC=on): the same bits as through host memory, and how
long both take.
"""

from __future__ import annotations

import os

import torch
import world
from world import IS_STAND_IN, RANK, device

import rueda.torch as hvd

COUNTS = (1, 1000, 100_003) if IS_STAND_IN or world.IS_CHECKED else (1, 1000, 100_003, 16 << 20)
# Where one way begins to pay; the last is that of the report.
TIMED_COUNTS = (
    COUNTS[-1:] if len(COUNTS) < 4 else (16 << 10, *(1 << shift for shift in range(17, 22)), 16 << 20)
)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
found = {}


def values(count, dtype):
    generator = torch.Generator().manual_seed(count + 7 * RANK)
    return (torch.rand(count, generator=generator) * 100).to(dtype).to(device)


def results():
    """Sums, averages and a broadcast of every size and type, on the host."""
    out = []
    for dtype in DTYPES:
        for count in COUNTS:
            x = values(count, dtype)
            for op in (hvd.Sum, hvd.Average):
                out.append(hvd.allreduce(x, op=op, name=f"{dtype}{count}{op}").cpu())
            out.append(hvd.broadcast(x, hvd.size() - 1, name=f"{dtype}{count}").cpu())
    return out


def check_bits():
    for use in ("off", "on"):
        os.environ["RUEDA_CUDA_IPC"] = use
        hvd.init()
        world.require_engine()
        found[use] = results()
        stream = world.current_stream()
        for count in TIMED_COUNTS:
            large = values(count, torch.float32)

            def step(tensor=large, name=f"timed.{count}"):
                hvd.allreduce_(tensor, op=hvd.Sum, name=name)

            seconds = world.seconds_until_result(step, 30, stream)
            world.say(**{f"allreduce_{4 * count}_ipc_{use}_us": round(seconds * 1e6, 1)})
        hvd.shutdown()
    for one, other in zip(found["off"], found["on"]):
        assert torch.equal(one, other), (one, other)


def check_many_tensors_at_once():
    os.environ["RUEDA_CUDA_IPC"] = "on"
    hvd.init()
    for step in range(10):
        tensors = [values(1 + 37 * i, torch.float32) for i in range(100)]
        outs = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="many")
        again = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="many")
        assert all(torch.equal(a, b) for a, b in zip(outs, again)), step
    hvd.shutdown()


world.run_checks(dict(globals()))
