"""Elastic training for PyTorch: `hvd.elastic` of `import rueda.torch as hvd`."""

from __future__ import annotations

from rueda.elastic import exports
from rueda.elastic.exports import *  # noqa: F403
from rueda.torch.elastic import sampler, state  # noqa: F401 (as in Horovod)
from rueda.torch.elastic.run import run
from rueda.torch.elastic.sampler import ElasticSampler, LedgerSampler
from rueda.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "LedgerSampler", "TorchState", "run", *exports.__all__]
