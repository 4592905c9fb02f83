"""Horovod's estimator for PyTorch on Spark, served by rueda.spark.torch."""

from rueda.spark.torch import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
