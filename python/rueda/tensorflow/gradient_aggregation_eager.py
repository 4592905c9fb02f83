"""Summing gradients over several passes in eager execution and tf.function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rueda.tensorflow.arguments import variable_key
from rueda.tensorflow.gradient_aggregation import Aggregation


class LocalGradientAggregationHelperEager(Aggregation):
    """Sums gradients in variables; every `passes`-th call reduces them. Apply them only then.

    One thread at a time.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._sums: dict[int, Any] = {}  # by variable; each is made when it has its first gradient
        with tf.init_scope():
            self.counter = tf.Variable(0, dtype=tf.int32, trainable=False, name="rueda_aggregation_passes")

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced sums in the last pass; in the others the sums so far, which are not to be applied."""
        outputs = [self._dense(gradient) for gradient in gradients]
        self.counter.assign(tf.math.mod(self.counter + 1, self._passes))
        is_first = self._is_first(self.counter)
        sums: dict[int, Any] = {}  # by position in outputs
        for i, (gradient, variable) in enumerate(zip(outputs, variables)):
            if (one := self._sum_of(variable, gradient)) is not None:
                sums[i] = one
                new = tf.zeros_like(one) if gradient is None else gradient
                one.assign(tf.where(is_first, new, one + new))
        totals = [tf.convert_to_tensor(one) for one in sums.values()]

        def reduced() -> list[Any]:
            combined = self._reduce(self._scaled(totals), [variables[i] for i in sums])
            return [tf.identity(gradient) for gradient in combined]

        for i, gradient in zip(sums, self._in_last_pass(tf.equal(self.counter, 0), reduced, totals)):
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
