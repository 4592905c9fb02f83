"""Summing gradients over several passes, in graphs."""

from rueda.tensorflow.gradient_aggregation import LocalGradientAggregationHelper

__all__ = ["LocalGradientAggregationHelper"]
