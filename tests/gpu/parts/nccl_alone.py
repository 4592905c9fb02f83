"""Whether NCCL itself lets these ranks share a GPU, and how long it takes without anything around it: what
over_nccl times with rueda, in the same way.
"""

from __future__ import annotations

import bare_nccl
import torch
import world

library = bare_nccl.load()
world.say(nccl=bare_nccl.version(library))
stream = world.current_stream()
communicator = bare_nccl.Communicator(library, stream)


def sum_into(source, target):
    """Enqueues one sum."""
    communicator.all_reduce(source.data_ptr(), target.data_ptr(), source.numel())


numbers, sums = world.mine(1000), world.mine(1000)
sum_into(numbers, sums)
world.synchronize(stream)
assert (sums == world.total).all(), sums
world.say(is_right=True)
for size_bytes in world.TIMED_BYTES if world.SIZE <= 2 else ():
    tensor = torch.zeros(size_bytes // 4, device=world.device)
    outs = [torch.empty_like(tensor) for _ in range(world.series_length(size_bytes))]

    def one(x=tensor, out=outs[0]):
        sum_into(x, out)

    def series(x=tensor, outs=outs):
        for out in outs:
            sum_into(x, out)

    world.time_sums(size_bytes, one, series, stream)
    del outs, one, series
communicator.close()
