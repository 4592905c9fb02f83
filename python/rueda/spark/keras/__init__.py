"""Training Keras models on rows of Spark: `KerasEstimator(…).fit(df)` returns a `KerasModel`."""

from rueda.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
