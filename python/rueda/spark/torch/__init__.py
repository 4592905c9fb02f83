"""Training PyTorch models on rows of Spark: `TorchEstimator(…).fit(df)` returns a `TorchModel`."""

from rueda.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
