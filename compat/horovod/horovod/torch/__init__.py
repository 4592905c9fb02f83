"""Horovod's PyTorch front end, served by rueda.torch."""

from rueda.torch import *  # noqa: F403 (the interface is rueda.torch's __all__)
from rueda.torch import __all__, __getattr__  # noqa: F401
