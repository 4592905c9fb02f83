"""Elastic training for tf.keras."""

from rueda.tensorflow.keras.elastic import *  # noqa: F403
from rueda.tensorflow.keras.elastic import __all__  # noqa: F401
