"""Small helpers."""

from rueda.tensorflow.util import *  # noqa: F403
from rueda.tensorflow.util import (  # noqa: F401
    __all__,
    _executing_eagerly,
    _make_subgraph,
    _normalize_name,
)
