"""TorchState and the handlers behind it."""

from rueda.torch.elastic.state import *  # noqa: F403
from rueda.torch.elastic.state import __all__  # noqa: F401
