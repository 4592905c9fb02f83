"""All collectives and the functions about the job, under the module name that existing code imports."""

from __future__ import annotations

from rueda import exports, process_sets
from rueda.basics import basics
from rueda.errors import HorovodInternalError
from rueda.exports import *  # noqa: F403
from rueda.in_flight import poll
from rueda.operations import barrier
from rueda.policy import handle_average_backwards_compatibility
from rueda.process_sets import *  # noqa: F403
from rueda.torch import gathers, reductions, scatters
from rueda.torch.gathers import *  # noqa: F403
from rueda.torch.handles import synchronize
from rueda.torch.reductions import *  # noqa: F403
from rueda.torch.scatters import *  # noqa: F403
from rueda.torch.sparse import sparse_allreduce_async

_basics = basics  # libraries use it under this name


__all__ = [
    "HorovodInternalError",
    "barrier",
    "handle_average_backwards_compatibility",
    "poll",
    "sparse_allreduce_async",
    "synchronize",
]
__all__ += exports.__all__
__all__ += gathers.__all__
__all__ += process_sets.__all__
__all__ += reductions.__all__
__all__ += scatters.__all__
