"""The torch.distributed backend "rueda": DDP, FSDP2, DTensor and plain collectives on rueda's engine.

    import rueda.torch
    torch.distributed.init_process_group("rueda")

`import rueda.torch` registers it. The engine starts with the first group, or is shared with `hvd.init()`. A
group serves CPU tensors and, where the engine takes their memory, GPU tensors in place.
"""

from __future__ import annotations

from rueda.torch.distributed.registration import register
from rueda.torch.distributed.sets import prepare_send_recv

__all__ = ["prepare_send_recv", "register"]
