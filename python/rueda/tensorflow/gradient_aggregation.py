"""Summing gradients over several passes before they are reduced and applied (backward_passes_per_step)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rueda.policy import check_passes

SLICES = (
    "IndexedSlices are not supported when `backward_passes_per_step` > 1; pass sparse_as_dense=True to "
    "DistributedOptimizer."
)


class Aggregation:
    """The base of sums over several passes, in graphs and elsewhere.

    reduce: makes reduced gradients of gradients and variables.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        reduce: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
    ) -> None:
        check_passes(backward_passes_per_step)
        self._passes = backward_passes_per_step
        self._reduce = reduce
        self._sparse_as_dense = sparse_as_dense
        self._average = average_aggregated_gradients

    def _dense(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            if not self._sparse_as_dense:
                raise ValueError(SLICES)
            return tf.convert_to_tensor(gradient)
        return gradient

    def _is_first(self, count: Any) -> Any:
        """Whether this pass starts new sums. count: the passes since the last reduction, with this one. Old
        sums are dropped here, not after the reduction, so that those of a reduction that failed go as well.
        """
        return tf.equal(count, 1 % self._passes)

    def _scaled(self, totals: list[Any]) -> list[Any]:
        """The sums of all passes, in the form in which they are reduced."""
        return [total / self._passes for total in totals] if self._average else totals

    def _in_last_pass(self, is_last: Any, reduced: Callable[[], list[Any]], totals: list[Any]) -> list[Any]:
        """reduced() in the last pass, the sums so far in the others."""
        chosen = tf.cond(is_last, reduced, lambda: [tf.identity(total) for total in totals])
        return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]  # a single one has no list


class LocalGradientAggregationHelper(Aggregation):
    """Sums gradients in local variables of the graph; every `passes`-th step they are reduced and applied.

    Not thread-safe; for graphs of sessions.
    """

    _is_last: Any = None  # bool scalar: whether this step reduces and applies

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.new_variables: list[Any] = []  # for whoever initialises them; local ones of the graph

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced sums in the last pass; in the others the sums so far, which are not to be applied."""
        outputs = [self._dense(gradient) for gradient in gradients]
        present = [i for i, gradient in enumerate(outputs) if gradient is not None]
        pass_number = self._local_variable("passes", [], tf.int32)
        count = pass_number.assign(tf.math.mod(pass_number + 1, self._passes), read_value=True)
        self._is_last = tf.equal(count, 0)
        sums = [self._local_variable(f"sum_{i}", variables[i].shape, outputs[i].dtype) for i in present]
        is_first = self._is_first(count)
        totals = [
            one.assign(tf.where(is_first, outputs[i], one + outputs[i]), read_value=True)
            for one, i in zip(sums, present)
        ]

        def reduced() -> list[Any]:
            combined = self._reduce(self._scaled(totals), [variables[i] for i in present])
            return [tf.identity(gradient) for gradient in combined]

        for i, gradient in zip(present, self._in_last_pass(self._is_last, reduced, totals)):
            outputs[i] = gradient
        return outputs

    def apply_gradients(self, apply: Callable[[], Any], global_step: Any = None) -> Any:
        """Runs apply() in the last pass; in the others only global_step advances."""

        def applied() -> Any:
            with tf.control_dependencies([apply()]):
                return tf.constant(True)

        def waiting() -> Any:
            advanced = [] if global_step is None else [tf.compat.v1.assign_add(global_step, 1)]
            with tf.control_dependencies(advanced):
                return tf.constant(False)

        return tf.group(tf.cond(self._is_last, applied, waiting))

    def _local_variable(self, name: str, shape: Any, dtype: Any) -> Any:
        made = tf.compat.v1.Variable(
            initial_value=lambda: tf.zeros(shape, dtype),
            name=f"rueda_aggregation_{name}",
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        )
        self.new_variables.append(made)
        return made
