"""The delta form of Adasum for TensorFlow 1 optimizers: ranks step alone, then combine their changes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rueda.policy import Adasum
from rueda.tensorflow.compression import Compressor
from rueda.tensorflow.plugin import mark_step
from rueda.tensorflow.reductions import grouped_allreduce


class Wrapper(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer around another, whose slots and variables it shows."""

    _rueda_is_distributed = True  # what the callbacks of Keras look for

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """That of the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """That of the wrapped optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """That of the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class DistributedAdasumOptimizer(Wrapper):
    """Applies local gradients; every N-th step combines the changes since the last exchange by Adasum.

    The inner optimizer's own scaling (momentum, Adagrad, …) thus acts before the combination. For
    eager execution, tf.function and graphs. Maleki et al., "Scaling Distributed Training with Adaptive
    Summation" (2020), describe the method.
    """

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, compression: type[Compressor], passes: int
    ) -> None:
        super().__init__(optimizer, name or f"DistributedDelta{type(optimizer).__name__}", use_locking)
        self._compression = compression
        self._passes = passes
        self._starts: dict[int, Any] = {}  # weights at the last exchange, by id of the variable
        self._step: Any = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Like the wrapped optimizer's: returns local gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Steps alone; every N-th step sets the weights to start + Adasum of all ranks' changes."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        self._make_state(variables)
        count = self._step.assign_add(1, read_value=True)
        is_first = tf.equal(tf.math.floormod(count - 1, self._passes), 0)
        begun = self._remember(is_first, variables)
        with tf.control_dependencies(begun):
            applied = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([] if applied is None else [applied]):
            is_last = tf.equal(tf.math.floormod(count, self._passes), 0)
            return tf.group(tf.cond(is_last, lambda: self._exchange(variables), lambda: tf.constant(False)))

    def _make_state(self, variables: list[Any]) -> None:
        with tf.init_scope():
            if self._step is None:
                self._step = self._make_variable(0, tf.int64, "step")
            for variable in variables:
                if id(variable) not in self._starts:
                    zeros = tf.zeros(variable.shape, variable.dtype.base_dtype)
                    start = self._make_variable(zeros, zeros.dtype, f"delta_start_{len(self._starts)}")
                    self._starts[id(variable)] = start

    @staticmethod
    def _make_variable(value: Any, dtype: Any, name: str) -> Any:
        return tf.compat.v1.Variable(
            value, dtype=dtype, name=f"rueda_{name}", trainable=False, use_resource=True
        )

    def _remember(self, is_first: Any, variables: list[Any]) -> list[Any]:
        begun = []
        for variable in variables:
            start = self._starts[id(variable)]
            value = tf.where(is_first, tf.convert_to_tensor(variable), tf.convert_to_tensor(start))
            begun.append(start.assign(value, read_value=True))
        return begun

    def _exchange(self, variables: list[Any]) -> Any:
        starts = [tf.convert_to_tensor(self._starts[id(variable)]) for variable in variables]
        changes = [tf.convert_to_tensor(variable) - start for variable, start in zip(variables, starts)]
        combined = grouped_allreduce(
            changes, op=Adasum, compression=self._compression, name=f"{self.get_name()}_delta"
        )
        written = [
            tf.compat.v1.assign(variable, start + change)
            for variable, start, change in zip(variables, starts, combined)
        ]
        with tf.control_dependencies(written):
            return mark_step(id(self), [tf.constant(True)])[0]
