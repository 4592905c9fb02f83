"""Small helpers."""

from rueda.tensorflow.util import *  # noqa: F403
from rueda.tensorflow.util import __all__  # noqa: F401
