"""Whether NCCL itself lets these ranks share a GPU, and how long it takes without anything around it."""

from __future__ import annotations

import bare_nccl
import torch
import world

library = bare_nccl.load()
world.say(nccl=bare_nccl.version(library))
stream = world.current_stream()
communicator = bare_nccl.Communicator(library, stream)
sums = world.mine(1000)
communicator.all_reduce(sums.data_ptr(), sums.numel())
world.synchronize(stream)
assert (sums == world.total).all(), sums
for size_bytes in (64 << 20, 4) if not world.IS_STAND_IN else (4096, 4):
    tensor = torch.zeros(size_bytes // 4, device=world.device)
    place = tensor.data_ptr(), tensor.numel()
    repeat = 20 if size_bytes > 4096 else 200
    seconds = world.seconds_on_gpu(lambda p=place: communicator.all_reduce(*p), repeat)
    world.synchronize(stream)
    world.say(**{f"allreduce_{size_bytes}_us": round(seconds * 1e6, 1)})
communicator.close()
