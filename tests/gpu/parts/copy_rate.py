"""What fusing costs on the GPU: a group of hundreds of tensors, 64 MiB in all, against one such tensor.

Both sums are timed by two events of the GPU, while the host is ahead of it. So the difference is what packing
and unpacking take there. Together they read and write each byte twice. A copy of the same bytes, timed in the
same way, reads and writes them once: at its rate, packing and unpacking would take twice its time.
"""

from __future__ import annotations

import os

import torch
import world

import rueda.torch as hvd

hvd.init()
world.require_engine()
total_bytes, count = (64 << 20, 256) if not world.IS_STAND_IN else (1 << 14, 8)
repeat = 30 if not world.IS_STAND_IN else 2

whole = torch.ones(total_bytes // 4, device=world.device)
parts = [torch.ones(total_bytes // 4 // count, device=world.device) for _ in range(count)]
target = torch.empty_like(whole)


def time_of(what, work):
    """Seconds on the GPU, or None where the host waits for the GPU in between."""
    seconds = world.seconds_between_events(work, repeat)
    if seconds is None:
        world.say(note=f"the host was not ahead of the GPU ({what}), so its time cannot be told apart")
    return seconds


if os.environ.get("RUEDA_GPU_OPERATIONS") == "staged":
    world.say(note="tensors are staged, so nothing is packed on the GPU")
else:
    copy_s = time_of("copy", lambda: target.copy_(whole))
    whole_s = time_of("one tensor", lambda: hvd.allreduce_(whole, name="whole", op=hvd.Sum))
    parts_s = time_of("the group", lambda: hvd.grouped_allreduce_(parts, name="parts", op=hvd.Sum))
    if copy_s and whole_s and parts_s:
        world.say(
            copy_gigabytes_per_s=round(2 * total_bytes / copy_s / 1e9, 1),
            copy_us=round(copy_s * 1e6, 1),
            whole_us=round(whole_s * 1e6, 1),
            parts_us=round(parts_s * 1e6, 1),
        )
        packing_s = parts_s - whole_s
        if packing_s > 0:
            rate = 4 * total_bytes / packing_s / 1e9
            share = round(2 * copy_s / packing_s, 3)
            world.say(packing_gigabytes_per_s=round(rate, 1), share_of_copy_rate=share)
        else:
            world.say(note="the group took no longer than one tensor; packing cannot be told from noise")
