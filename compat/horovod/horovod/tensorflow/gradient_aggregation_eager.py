"""Summing gradients over several passes, in eager execution."""

from rueda.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

__all__ = ["LocalGradientAggregationHelperEager"]
