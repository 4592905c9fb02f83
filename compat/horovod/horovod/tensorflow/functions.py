"""Making ranks agree on variables and objects."""

from rueda.tensorflow.functions import *  # noqa: F403
from rueda.tensorflow.functions import __all__  # noqa: F401
