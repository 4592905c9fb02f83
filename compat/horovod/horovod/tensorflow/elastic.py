"""Elastic training for TensorFlow."""

from rueda.tensorflow.elastic import *  # noqa: F403
from rueda.tensorflow.elastic import __all__  # noqa: F401
