"""What fusing costs: one group of hundreds of tensors, 64 MiB in all, against one tensor of that size.

The difference is the time of packing and unpacking. Together they read and write each byte twice; their rate
is compared with that of a copy on the device.
"""

from __future__ import annotations

import os

import torch
import world

import rueda.torch as hvd

hvd.init()
world.require_engine()
total_bytes, count = (64 << 20, 256) if not world.IS_STAND_IN else (1 << 14, 8)
repeat = 20 if not world.IS_STAND_IN else 2

whole = torch.ones(total_bytes // 4, device=world.device)
parts = [torch.ones(total_bytes // 4 // count, device=world.device) for _ in range(count)]
target = torch.empty_like(whole)
copy_s = world.seconds_on_gpu(lambda: target.copy_(whole), repeat * 5)
whole_s = world.seconds_on_gpu(lambda: hvd.allreduce_(whole, name="whole", op=hvd.Sum), repeat)
parts_s = world.seconds_on_gpu(lambda: hvd.grouped_allreduce_(parts, name="parts", op=hvd.Sum), repeat)

copy_rate = 2 * total_bytes / copy_s / 1e9  # read and written
packing_s = parts_s - whole_s
world.say(
    copy_gigabytes_per_s=round(copy_rate, 1),
    whole_us=round(whole_s * 1e6, 1),
    parts_us=round(parts_s * 1e6, 1),
)
if os.environ.get("RUEDA_GPU_OPERATIONS") == "staged":
    world.say(note="tensors are staged, so the difference is not that of packing on the GPU")
elif packing_s > 0:
    rate = 4 * total_bytes / packing_s / 1e9
    world.say(packing_gigabytes_per_s=round(rate, 1), share_of_copy_rate=round(rate / copy_rate, 3))
else:
    world.say(note="the group took no longer than one tensor; packing cannot be told from noise")
