"""What fusing costs on the GPU: a group of hundreds of tensors, 64 MiB in all, against one such tensor.

Both are timed by two events of the GPU, while the host is ahead of it. So the difference is what packing,
unpacking and, for an average, scaling take there. Packing and unpacking read and write each byte twice. A
copy of the same bytes, timed in the same way, reads and writes them once: at its rate, packing and unpacking
would take twice its time. An average may take no longer: scaling has to be a part of packing or unpacking.
"""

from __future__ import annotations

import os

import torch
import world

import rueda.torch as hvd

hvd.init()
world.require_engine()
total_bytes, count = (64 << 20, 256) if not world.IS_STAND_IN else (1 << 14, 8)
repeat = 2 if world.IS_STAND_IN else 30 if world.SIZE == 1 else 5
# For a single rank an average is a sum, so that a factor stands in for the division.
AVERAGE = {"op": hvd.Average, "postscale_factor": 0.5 if world.SIZE == 1 else 1.0}
WAYS = {
    "sum_float32": (torch.float32, {"op": hvd.Sum}),
    "average_float32": (torch.float32, AVERAGE),
    "average_bfloat16": (torch.bfloat16, AVERAGE),
}


def time_of(work):
    """Seconds on the GPU, or None where the host waits for the GPU in between."""
    return world.seconds_between_events(work, repeat)


def measure(way, copy_s):
    """Says what the group took beyond one tensor, or why that is not known."""
    dtype, terms = WAYS[way]
    elements = total_bytes // dtype.itemsize
    whole = torch.ones(elements, dtype=dtype, device=world.device)
    parts = list(torch.ones(elements, dtype=dtype, device=world.device).split(elements // count))
    whole_s = time_of(lambda: hvd.allreduce_(whole, name=f"whole.{way}", op=hvd.Sum))
    parts_s = time_of(lambda: hvd.grouped_allreduce_(parts, name=f"parts.{way}", **terms))
    if not (copy_s and whole_s and parts_s):
        return world.say(
            **{f"{way}_note": "the host was not ahead of the GPU, so its time cannot be told apart"}
        )
    world.say(**{f"{way}_whole_us": round(whole_s * 1e6, 1), f"{way}_parts_us": round(parts_s * 1e6, 1)})
    packing_s = parts_s - whole_s
    if packing_s <= 0:
        return world.say(**{f"{way}_note": "the group took no longer than one tensor; this is noise"})
    rate = 4 * total_bytes / packing_s / 1e9
    share = round(2 * copy_s / packing_s, 3)
    world.say(**{f"{way}_gigabytes_per_s": round(rate, 1), f"{way}_share_of_copy_rate": share})


def measure_all():
    source = torch.ones(total_bytes // 4, device=world.device)
    target = torch.empty_like(source)
    copy_s = time_of(lambda: target.copy_(source))
    if copy_s:
        rate = 2 * total_bytes / copy_s / 1e9
        world.say(copy_gigabytes_per_s=round(rate, 1), copy_us=round(copy_s * 1e6, 1))
    for way in WAYS:
        measure(way, copy_s)


if os.environ.get("RUEDA_GPU_OPERATIONS") == "staged":
    world.say(note="tensors are staged, so nothing is packed on the GPU")
else:
    measure_all()
