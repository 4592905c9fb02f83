"""Where Horovod keeps its estimator, served by rueda.spark.keras."""

from rueda.spark.keras import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
