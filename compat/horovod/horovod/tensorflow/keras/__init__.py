"""Horovod's front end for tf.keras, served by rueda.keras on TensorFlow."""

from horovod.tensorflow.keras import callbacks, elastic  # noqa: F401
from rueda.tensorflow.keras import *  # noqa: F403
from rueda.tensorflow.keras import __all__, __getattr__  # noqa: F401
