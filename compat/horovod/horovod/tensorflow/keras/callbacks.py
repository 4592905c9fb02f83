"""The callbacks for model.fit."""

from rueda.tensorflow.keras.callbacks import *  # noqa: F403
from rueda.tensorflow.keras.callbacks import __all__  # noqa: F401
