"""Horovod's estimator for Keras on Spark, served by rueda.spark.keras."""

from rueda.spark.keras import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
