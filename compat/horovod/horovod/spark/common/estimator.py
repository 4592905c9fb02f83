"""The bases of estimators and of the models that they return, served by rueda.spark.common."""

from rueda.spark.common.estimator import SharedEstimator as HorovodEstimator
from rueda.spark.common.prediction import SharedModel as HorovodModel

__all__ = ["HorovodEstimator", "HorovodModel"]
