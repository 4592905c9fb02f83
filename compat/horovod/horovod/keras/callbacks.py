"""The callbacks for model.fit."""

from rueda.keras.callbacks import *  # noqa: F403
from rueda.keras.callbacks import __all__  # noqa: F401
