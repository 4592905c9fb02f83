"""Horovod's Keras front end, served by rueda.keras."""

from horovod.keras import callbacks  # noqa: F401
from rueda.keras import *  # noqa: F403 (the interface is rueda.keras's __all__)
from rueda.keras import __all__, __getattr__, retired  # noqa: F401

retired.accept()
