"""Training Keras models on rows of Spark: `KerasEstimator(…).fit(df)` returns a `KerasModel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rueda.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Only in the driver: it takes pyspark, which ranks, who import this package too, do without.
    from rueda.spark.keras import estimator

    return getattr(estimator, name)
