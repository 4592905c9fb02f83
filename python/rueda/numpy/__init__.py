"""rueda for numpy arrays: `import rueda.numpy as hvd`.

Needs no framework. Every function takes what numpy.asarray takes and returns new arrays.
"""

# ruff: noqa: E402 (what is missing must be said before the first import that needs it)

from __future__ import annotations

from rueda.extensions import require as _require

_require("rueda.numpy", "numpy", "numpy")

from rueda import exports, process_sets
from rueda.errors import HorovodInternalError
from rueda.exports import *  # noqa: F403
from rueda.in_flight import poll
from rueda.numpy import elastic, gathers, objects, reductions  # noqa: F401 (elastic: as an attribute)
from rueda.numpy.gathers import *  # noqa: F403
from rueda.numpy.handles import synchronize
from rueda.numpy.objects import *  # noqa: F403
from rueda.numpy.reductions import *  # noqa: F403
from rueda.operations import barrier, join
from rueda.process_sets import *  # noqa: F403

__all__ = ["HorovodInternalError", "barrier", "join", "poll", "synchronize"]
__all__ += exports.__all__
__all__ += gathers.__all__
__all__ += objects.__all__
__all__ += process_sets.__all__
__all__ += reductions.__all__
