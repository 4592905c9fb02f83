"""Whether NCCL itself lets these ranks share a GPU, and how long it takes alone."""

from __future__ import annotations

import torch
import torch.distributed as dist
import world

if not dist.is_nccl_available():
    world.skip("this torch has no NCCL")
dist.init_process_group("nccl", device_id=world.device)
for size_bytes in (64 << 20, 4):
    tensor = torch.ones(size_bytes // 4, device=world.device)
    repeat = 20 if size_bytes > 4096 else 200
    seconds = world.seconds_on_gpu(lambda t=tensor: dist.all_reduce(t), repeat)
    world.say(**{f"allreduce_{size_bytes}_us": round(seconds * 1e6, 1)})
world.say(nccl=".".join(map(str, torch.cuda.nccl.version())))
dist.destroy_process_group()
