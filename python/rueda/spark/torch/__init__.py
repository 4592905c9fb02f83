"""Training PyTorch models on rows of Spark: `TorchEstimator(…).fit(df)` returns a `TorchModel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rueda.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Only in the driver: it takes pyspark, which ranks, who import this package too, do without.
    from rueda.spark.torch import estimator

    return getattr(estimator, name)
