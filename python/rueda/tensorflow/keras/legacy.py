"""DistributedOptimizer and load_model for tf_keras, the Keras 2 that TF_USE_LEGACY_KERAS=1 makes tf.keras."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rueda import _core
from rueda.keras import Compression, sessions
from rueda.keras.backends import check_choice
from rueda.keras.optimizer import change_class, check_wrapping, keep_local
from rueda.keras.saving import known_objects, optimizer_of
from rueda.local_layers import layers_of
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.arguments import variable_key
from rueda.tensorflow.compression import Compression as TensorflowCompression
from rueda.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from rueda.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from rueda.tensorflow.gradients import GradientReducer

_NEEDS_TF_KERAS = (
    "rueda.tensorflow.keras needs the package tf_keras, because TF_USE_LEGACY_KERAS is set, but importing "
    "it failed ({error}); install it with `pip install tf_keras`, or unset TF_USE_LEGACY_KERAS."
)

try:
    import tf_keras
except ImportError as _error:
    raise ImportError(_NEEDS_TF_KERAS.format(error=_error)) from _error

_numbers = itertools.count(1)  # of wrapped optimizers, in the order the program makes them


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = _core.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer of tf_keras reduce gradients over all ranks before each step, and returns it.

    optimizer: of tf_keras.optimizers or tf_keras.optimizers.legacy, built or not; the same object is
    returned, except under the policy mixed_float16, where it becomes the inner optimizer of a
    LossScaleOptimizer, so that all ranks skip the same steps. compute_gradients returns reduced gradients;
    apply_gradients takes those as they are, changed by the caller or not, and reduces all others. clipnorm,
    clipvalue and global_clipnorm follow the reduction. The arguments mean what they mean for rueda.keras;
    num_groups and groups are accepted for old scripts, without effect. Raises ValueError for wrong arguments
    and for an optimizer that is wrapped already.

    >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3 * hvd.size()))
    """
    given = dict(locals())
    _check(optimizer, op, backward_passes_per_step, gradient_predivide_factor)
    check_choice(compression)
    scaling = tf_keras.mixed_precision.LossScaleOptimizer
    if tf_keras.mixed_precision.global_policy().name == "mixed_float16" and not _is_loss_scaling(optimizer):
        optimizer = scaling(optimizer)
    if isinstance(compression, str):
        given["compression"] = getattr(TensorflowCompression, compression)
    scope = name or f"Distributed{type(optimizer).__name__}.{next(_numbers)}"
    reducer = GradientReducer.of_options(scope, {**given, "groups": None})
    aggregation = None
    if backward_passes_per_step > 1:
        kinds = (LocalGradientAggregationHelperEager, LocalGradientAggregationHelper)
        aggregation = kinds[sessions.builds_graph()](
            backward_passes_per_step, _by_place(reducer), sparse_as_dense, average_aggregated_gradients
        )
    attributes = {
        "_rueda_reducer": reducer,
        "_rueda_aggregation": aggregation,
        "_rueda_reduced": _Reduced(),
    }
    change_class(optimizer, _Reducing, attributes)
    return optimizer


def DelayedOptimizer(optimizer: Any, *arguments: Any, **settings: Any) -> Any:
    """Refused: it is for optimizers of Keras 3."""
    raise ValueError(
        "DelayedOptimizer wraps optimizers of Keras 3, but tf.keras is tf_keras here; use "
        "DistributedOptimizer, or leave out TF_USE_LEGACY_KERAS=1."
    )


def PartialDistributedOptimizer(
    optimizer: Any, *arguments: Any, local_layers: Any = None, **settings: Any
) -> Any:
    """DistributedOptimizer that leaves the weights of local_layers to each rank.

    local_layers: one layer of tf_keras or several; ValueError if one is not built.
    """
    layers = layers_of(
        local_layers, tf_keras.layers.Layer, "tf_keras.layers.Layer", caller="PartialDistributedOptimizer"
    )
    optimizer = DistributedOptimizer(optimizer, *arguments, **settings)
    return keep_local(optimizer, layers)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """tf_keras.models.load_model whose model has its optimizer wrapped in DistributedOptimizer.

    custom_optimizers: optimizer classes of your own; custom_objects wins where names agree. legacy_opts:
    accepted for old scripts, without effect. Raises ValueError when the file holds no compiled optimizer.
    """
    known = known_objects(custom_optimizers, custom_objects)
    model = tf_keras.models.load_model(filepath, custom_objects=known)
    optimizer = optimizer_of(model, filepath, "tf_keras.models.load_model")
    if not getattr(optimizer, "_rueda_is_distributed", False):  # by custom_objects
        DistributedOptimizer(optimizer, compression=compression)
    return model


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes the optimizer's own variables, which Keras 2 otherwise makes in the first step."""
    if hasattr(optimizer, "inner_optimizer"):
        return build(optimizer.inner_optimizer, variables)
    with tf.init_scope():
        if hasattr(optimizer, "build"):
            optimizer.build(variables)
        else:
            optimizer._create_all_weights(variables)  # of tf_keras.optimizers.legacy


def _check(optimizer: Any, op: int, passes: int, predivide: float) -> None:
    kinds = (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer)
    if not isinstance(optimizer, kinds):
        raise ValueError(
            f"DistributedOptimizer wraps an optimizer of tf_keras, which tf.keras is because "
            f"TF_USE_LEGACY_KERAS is set, but got {type(optimizer).__module__}.{type(optimizer).__name__}."
        )
    if sessions.builds_graph() and not isinstance(optimizer, kinds[1]):
        name = type(optimizer).__name__
        raise ValueError(
            f"In graphs of TensorFlow 1, which disable_v2_behavior() leads to, Keras trains only with the "
            f"optimizers of tf.keras.optimizers.legacy: make tf.keras.optimizers.legacy.{name} instead of "
            f"tf.keras.optimizers.{name}."
        )
    check_wrapping(optimizer, op, passes, predivide)


def _is_loss_scaling(optimizer: Any) -> bool:
    return hasattr(optimizer, "inner_optimizer") and hasattr(optimizer, "get_scaled_loss")


def _by_place(reducer: GradientReducer) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """Reduces the gradients under names such as "3.kernel", because ranks may name layers differently."""

    def reduce(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        own = [variable.name.rpartition("/")[2].partition(":")[0] for variable in variables]
        return reducer.reduce(gradients, variables, parts=[f"{i}.{name}" for i, name in enumerate(own)])

    return reduce


class _Reduced:
    """The variables whose gradients compute_gradients has reduced and apply_gradients has not seen yet.

    The caller may clip the gradients in between, which makes new tensors. They are therefore known by their
    variables, and by the graph or eager execution that computed them: code in a tf.function runs once here,
    and every time there. One thread at a time.
    """

    def __init__(self) -> None:
        # Variables by their keys. They are kept so that no other variable gets the key of one that is gone.
        self._eagerly: dict[int, Any] = {}
        self._in_graphs: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()

    def add(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """compute_gradients returns these."""
        self._here().update({variable_key(pair[1]): pair[1] for pair in pairs if pair[0] is not None})

    def take(self, variables: Sequence[Any]) -> list[bool]:
        """For each variable, whether its gradient, which is now applied, is already reduced."""
        known = set(self._eagerly).union(*self._in_graphs.values())
        keys = [variable_key(variable) for variable in variables]
        for key in keys:  # entries of another graph stay, because it computes them again each time it runs
            self._here().pop(key, None)
        return [key in known for key in keys]

    def _here(self) -> dict[int, Any]:
        if tf.executing_eagerly():
            return self._eagerly
        return self._in_graphs.setdefault(tf.compat.v1.get_default_graph(), {})


class _Reducing:
    """What the classes made here add to the optimizer's own class. It comes first among their bases."""

    _rueda_is_distributed = True
    _rueda_base: type
    _rueda_reducer: GradientReducer
    _rueda_aggregation: LocalGradientAggregationHelperEager | LocalGradientAggregationHelper | None
    _rueda_reduced: _Reduced

    def compute_gradients(
        self: Any, loss: Any, var_list: Any, tape: Any = None, **settings: Any
    ) -> list[tuple[Any, Any]]:
        """Like the plain optimizer's, then reduced; (gradient, variable) pairs. With either name for all."""
        base = self._rueda_base
        compute = getattr(base, "compute_gradients", None) or base._compute_gradients
        reduced: list[tuple[Any, Any]] = self._rueda_reduce_pairs(
            compute(self, loss, var_list, tape=tape, **settings)
        )
        return reduced

    def _compute_gradients(
        self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """The same, as tf_keras.optimizers.legacy calls it."""
        if not hasattr(self._rueda_base, "_compute_gradients"):
            given = {} if grad_loss is None else {"grad_loss": grad_loss}  # its refusal names it
            return self.compute_gradients(loss, var_list, tape, **given)  # type: ignore[no-any-return]
        pairs: Any = self._rueda_base._compute_gradients(self, loss, var_list, grad_loss, tape)
        reduced: list[tuple[Any, Any]] = self._rueda_reduce_pairs(pairs)
        return reduced

    def get_gradients(self: Any, loss: Any, params: Any) -> list[Any]:
        """The same in graphs of TensorFlow 1, without the variables."""
        gradients = self._rueda_base.get_gradients(self, loss, params)
        return [pair[0] for pair in self._rueda_reduce_pairs(list(zip(gradients, tf.nest.flatten(params))))]

    def apply_gradients(self: Any, grads_and_vars: Any, *arguments: Any, **settings: Any) -> Any:
        """Reduces the gradients that are not reduced yet, then applies them as the plain optimizer does."""
        pairs = list(grads_and_vars)
        variables = [pair[1] for pair in pairs]
        are_reduced = self._rueda_reduced.take(variables)
        fresh = [None if is_reduced else pair[0] for pair, is_reduced in zip(pairs, are_reduced)]
        if self._rueda_aggregation is None or not any(are_reduced):
            reduced = self._rueda_reduce(fresh, variables)
            pairs = [(pair[0] if one is None else one, pair[1]) for one, pair in zip(reduced, pairs)]
        if self._rueda_aggregation is None:
            return self._rueda_base.apply_gradients(self, pairs, *arguments, **settings)
        build(self, variables)  # variables cannot be made in a branch

        def apply() -> Any:
            return self._rueda_base.apply_gradients(self, pairs, *arguments, **settings)

        if isinstance(self._rueda_aggregation, LocalGradientAggregationHelper):
            return self._rueda_aggregation.apply_gradients(apply, self.iterations)
        self._rueda_aggregation.apply_gradients(apply, lambda: self.iterations.assign_add(1))
        return self.iterations

    def _rueda_reduce_pairs(self: Any, pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        variables = [pair[1] for pair in pairs]
        reduced = list(zip(self._rueda_reduce([pair[0] for pair in pairs], variables), variables))
        self._rueda_reduced.add(reduced)
        return reduced

    def _rueda_reduce(self: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced gradients; if a step has several passes, what this pass knows of them."""
        aggregation = self._rueda_aggregation
        if aggregation is not None:
            sums: list[Any] = aggregation.compute_gradients(gradients, variables)
            if isinstance(aggregation, LocalGradientAggregationHelper):
                # The session initialises the variables of Keras, and knows nothing of these.
                sessions.session().run([one.initializer for one in aggregation.new_variables])
                aggregation.new_variables.clear()
            return sums
        return _by_place(self._rueda_reducer)(gradients, variables)

    def register_local_var(self: Any, var: Any) -> None:
        """The gradients of this variable are not reduced."""
        self._rueda_reducer.register_local(var)
