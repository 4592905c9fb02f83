"""Horovod's TensorFlow front end, served by rueda.tensorflow."""

from rueda.tensorflow import *  # noqa: F403 (the interface is rueda.tensorflow's __all__)
from rueda.tensorflow import __all__, __getattr__  # noqa: F401
