"""Batch normalisation over the batches of all ranks. Importing this module imports Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rueda.basics import basics, may_grow
from rueda.policy import Average
from rueda.tensorflow.reductions import allreduce


@tf.keras.utils.register_keras_serializable(package="rueda")
class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalisation with the statistics of all ranks' batches, each rank with equal weight.

    Input and arguments as tf.keras.layers.BatchNormalization. In training mean and mean of squares per
    channel are averaged over the ranks; in evaluation, and in a single-process job, it is the ordinary layer.
    fused=True (or None) is a ValueError. Keras must run on TensorFlow.
    Ioffe & Szegedy, "Batch Normalization" (2015).
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        kwargs.setdefault("name", None)
        super().__init__(**kwargs)

    def _moments(self, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        """Mean and variance over the ranks, shaped as the layer has them for its own batch.

        Keras 3 calls it with (inputs, mask), tf_keras with (inputs, reduction_axes, keep_dims, mask).
        """
        mean, variance = super()._moments(*arguments, **options)
        if basics.size() == 1 and not may_grow():
            return mean, variance
        local = tf.stack([mean, variance + tf.square(mean)])  # E[x], E[x²]
        name = f"{self.name}_moments" if tf.executing_eagerly() else None
        means = allreduce(local, op=Average, name=name)
        return means[0], tf.maximum(means[1] - tf.square(means[0]), 0.0)
