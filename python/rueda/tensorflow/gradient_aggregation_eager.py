"""Summing gradients over several passes in eager execution and tf.function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rueda.tensorflow.arguments import variable_key
from rueda.tensorflow.gradient_aggregation import SLICES


class LocalGradientAggregationHelperEager:
    """Sums gradients in variables; every `passes`-th call reduces them, and only then they are to be
    applied.

    reduce: gradients and variables to reduced gradients. One thread at a time.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        reduce: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._passes = backward_passes_per_step
        self._reduce = reduce
        self._sparse_as_dense = sparse_as_dense
        self._average = average_aggregated_gradients
        self._sums: dict[int, Any] = {}  # by variable; each is made when it has its first gradient
        with tf.init_scope():
            self.counter = tf.Variable(0, dtype=tf.int32, trainable=False, name="rueda_aggregation_passes")

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced sums in the last pass; in the others the sums so far, which are not to be applied."""
        outputs = [self._dense(gradient) for gradient in gradients]
        sums: dict[int, Any] = {}  # by position in outputs
        for i, (gradient, variable) in enumerate(zip(outputs, variables)):
            if (one := self._sum_of(variable, gradient)) is not None:
                sums[i] = one
            if gradient is not None:
                sums[i].assign_add(gradient)
        self.counter.assign(tf.math.mod(self.counter + 1, self._passes))
        totals = [tf.convert_to_tensor(one) for one in sums.values()]

        def reduced() -> list[Any]:
            scaled = [total / self._passes for total in totals] if self._average else totals
            combined = self._reduce(scaled, [variables[i] for i in sums])
            for one in sums.values():
                one.assign(tf.zeros_like(one))
            return [tf.identity(gradient) for gradient in combined]

        def waiting() -> list[Any]:
            return [tf.identity(total) for total in totals]

        chosen = tf.cond(tf.equal(self.counter, 0), reduced, waiting)
        chosen = list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]
        for i, gradient in zip(sums, chosen):
            outputs[i] = gradient
        return outputs

    def apply_gradients(self, apply: Callable[[], Any], wait: Callable[[], Any] = lambda: None) -> Any:
        """Runs apply() in the last pass, wait() in the others; returns whether it was the last."""

        def applied() -> Any:
            apply()
            return tf.constant(True)

        def waiting() -> Any:
            wait()
            return tf.constant(False)

        return tf.cond(tf.equal(self.counter, 0), applied, waiting)

    def _sum_of(self, variable: Any, gradient: Any) -> Any:
        """Where the gradients of this variable are added up; None before it had any."""
        key = variable_key(variable)
        if key not in self._sums and gradient is not None:
            with tf.init_scope():
                self._sums[key] = tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)
        return self._sums.get(key)

    def _dense(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            if not self._sparse_as_dense:
                raise ValueError(SLICES)
            return tf.convert_to_tensor(gradient)
        return gradient
