"""Elastic training for PyTorch."""

from horovod.torch.elastic import sampler, state  # noqa: F401 (as attributes)
from rueda.torch.elastic import *  # noqa: F403
from rueda.torch.elastic import __all__  # noqa: F401
