"""What a DelayedOptimizer of Keras keeps from step to step: variables of the optimizer.

The method is that of rueda/torch/delayed.py, where its sources are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from rueda import _core
from rueda.ahead import Ahead
from rueda.keras.backends import Reduction, reduce_ahead, scaled
from rueda.keras.compressed import Compressing, name_of, variable_of

NO_SCALE = (
    "DelayedOptimizer: gradients that wait for the next step would not follow the changes of a loss scale; "
    "use the dtype policy mixed_bfloat16, or DistributedOptimizer."
)
NO_PASSES = (
    "DelayedOptimizer: gradient_accumulation_steps is {passes}, but each batch must make a step; use larger "
    "batches."
)


def check(is_loss_scaling: bool, passes: int | None) -> None:
    """Raises ValueError for what does not go with gradients that wait."""
    if is_loss_scaling:
        raise ValueError(NO_SCALE)
    if passes not in (None, 1):
        raise ValueError(NO_PASSES.format(passes=passes))


class Waiting:
    """What a step leaves for the next one, as variables of the optimizer, by the weight that it is for."""

    def __init__(self, reduction: Reduction, weights: Sequence[Any]) -> None:
        self._reduction = reduction
        self._ahead_of_step = Ahead()
        self._names = [name_of(i, weight) for i, weight in enumerate(weights)]
        self._gradients = _like(weights, "waiting")  # of this rank
        self._agreed = _like(weights, "agreed")  # the weights that all ranks have
        self._ahead = _like(weights, "ahead")  # those that a step with own gradients has left in the model

    def variables(self) -> list[Any]:
        return [*self._gradients, *self._agreed, *self._ahead]

    def reduce(self, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """The waiting gradients combined over all ranks; then these wait."""
        variables = [self._gradients[self._names.index(name)] for name in names]
        waiting = [ops.convert_to_tensor(variable) for variable in variables]
        following = [ops.convert_to_tensor(gradient, sparse=False) for gradient in gradients]
        reduced = reduce_ahead(self._reduction, self._ahead_of_step, waiting, following, names)
        for variable, gradient in zip(variables, following):
            variable.assign(gradient)
        return reduced

    def return_to_agreed(self, weights: Sequence[tuple[int, Any]]) -> None:
        """Undoes the step with own gradients. What was changed since is what all ranks have. weights: with
        their places among those for which the optimizer was built.
        """
        for place, weight in weights:
            agreed, ahead = self._agreed[place], self._ahead[place]
            now = ops.convert_to_tensor(weight)
            is_unchanged = ops.all(ops.equal(now, ops.convert_to_tensor(ahead)))
            weight.assign(ops.where(is_unchanged, ops.convert_to_tensor(agreed), now))

    def keep_agreed(self, weights: Sequence[tuple[int, Any]]) -> None:
        _assign(self._agreed, weights)

    def keep_ahead(self, weights: Sequence[tuple[int, Any]]) -> None:
        _assign(self._ahead, weights)

    def put_agreed(self, weights: Sequence[tuple[int, Any]]) -> None:
        """Gives the model the weights that all ranks have, unless it has been changed."""
        self.return_to_agreed(weights)
        self.keep_agreed(weights)
        self.keep_ahead(weights)


def _like(weights: Sequence[Any], what: str) -> list[Any]:
    return [
        variable_of(np.full(tuple(one.shape), 0, np.dtype(_kind(one))), f"{what}_{i}")
        for i, one in enumerate(weights)
    ]


def _assign(variables: Sequence[Any], values: Sequence[tuple[int, Any]]) -> None:
    for place, value in values:
        variables[place].assign(ops.copy(ops.convert_to_tensor(value)))


def _kind(variable: Any) -> Any:
    return keras.backend.standardize_dtype(variable.dtype)


class Delaying(Compressing):
    """What the class of a delayed optimizer adds to that of a distributed one. Files have none of it."""

    _rueda_reduction: Reduction

    def _rueda_keep(self: Any, variables: Sequence[Any]) -> Waiting:
        return Waiting(self._rueda_reduction, variables)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        """A step with the gradients of the step before, and one with own gradients, which the next undoes."""
        weights = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if self._rueda_reduction.size() == 1:
            return self._rueda_base.apply(self, list(grads), weights)
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(weights)
        grads, waiting = list(grads), self._rueda_kept
        placed = [(self._rueda_place(weight), weight) for weight in weights]
        waiting.return_to_agreed(placed)
        super().apply(list(grads), weights)
        waiting.keep_agreed(placed)
        state = self._rueda_plain_variables()
        before = [ops.copy(ops.convert_to_tensor(variable)) for variable in state]
        self._rueda_base.apply(self, self._rueda_as_combined(grads), weights)
        for variable, value in zip(state, before):
            variable.assign(value)
        waiting.keep_ahead(placed)
        return None

    def _rueda_as_combined(self: Any, grads: list[Any]) -> list[Any]:
        """Own gradients as large as those of all ranks together."""
        factor = self._rueda_reduction.size() if self._rueda_reduction.op == _core.SUM else 1
        return [None if one is None else scaled(one, factor) for one in grads]

    def _rueda_plain_variables(self: Any) -> list[Any]:
        object.__setattr__(self, "_rueda_saves", True)
        try:
            return list(self.variables)
        finally:
            object.__setattr__(self, "_rueda_saves", False)

    def save_assets(self: Any, folder: Any) -> None:
        """Nothing: training begins anew from the weights in the file."""

    def load_assets(self: Any, folder: Any) -> None:
        """Nothing, as save_assets."""


def use_agreed_weights(optimizer: Any, weights: Sequence[Any]) -> None:
    """Gives the model the weights that all ranks have, if such an optimizer trains it."""
    kept = getattr(optimizer, "_rueda_kept", None)
    if isinstance(kept, Waiting):
        places = optimizer._rueda_places
        kept.put_agreed([(places[id(one)], one) for one in weights if id(one) in places])
