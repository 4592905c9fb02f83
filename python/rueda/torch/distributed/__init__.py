"""The torch.distributed backend "rueda": DDP, FSDP2, DTensor and plain collectives on rueda's engine.

    import rueda.torch
    torch.distributed.init_process_group("rueda")

`import rueda.torch` registers it. The engine starts with the first group, or is shared with `hvd.init()`. A
group serves CPU tensors and, where the engine takes their memory, GPU tensors in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rueda.torch.distributed.registration import register
from rueda.torch.distributed.sets import prepare_send_recv

if TYPE_CHECKING:
    from rueda.torch.distributed.reconfigurable import ReconfigurableProcessGroup

__all__ = ["ReconfigurableProcessGroup", "prepare_send_recv", "register"]


def __getattr__(name: str) -> Any:
    # A class of groups needs torch.distributed, which some builds of torch lack, and takes long to import.
    if name == "ReconfigurableProcessGroup":
        from rueda.torch.distributed import reconfigurable

        return reconfigurable.ReconfigurableProcessGroup
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
