"""Where Horovod keeps its estimator, served by rueda.spark.torch."""

from rueda.spark.torch import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
