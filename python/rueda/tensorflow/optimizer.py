"""DistributedOptimizer for tf.compat.v1.train optimizers; those of Keras go to rueda.keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rueda import front_ends
from rueda.policy import ALREADY_DISTRIBUTED, Adasum, Average, check_passes, groups_of
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.adasum_optimizer import DistributedAdasumOptimizer, Wrapper
from rueda.tensorflow.arguments import check_groups
from rueda.tensorflow.compression import Compression, Compressor
from rueda.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from rueda.tensorflow.gradients import GradientReducer
from rueda.tensorflow.tape import local_variables_of


class DistributedLegacyOptimizer(Wrapper):
    """Wraps a TensorFlow 1 optimizer: compute_gradients, and so minimize, gives the gradients of all ranks.

    Everything else is the wrapped optimizer's: slots, variables, how gradients are applied.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str | None,
        use_locking: bool,
        reducer: GradientReducer,
        aggregation: LocalGradientAggregationHelper | None,
    ) -> None:
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}", use_locking)
        self._rueda_reducer = reducer  # the callbacks of Keras ask it for its process set
        self._aggregation = aggregation

    def register_local_var(self, var: Any) -> None:
        """The gradients of this variable stay local."""
        self._rueda_reducer.register_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Like the wrapped optimizer's, then reduced over the ranks; (gradient, variable) pairs."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        if self._aggregation is not None:
            reduced = self._aggregation.compute_gradients(gradients, variables)
        else:
            reduced = self._rueda_reducer.reduce(gradients, variables)
        return list(zip(reduced, variables))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Like the wrapped optimizer's; with backward_passes_per_step > 1 only in every N-th step."""
        if self._aggregation is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        global_step = kwargs.get("global_step", args[1] if len(args) > 1 else None)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs), global_step
        )


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Sequence[Sequence[Any]] | int | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer so that every rank steps with the gradients of all ranks combined.

    optimizer: a tf.compat.v1.train.Optimizer, or one of Keras, which rueda.keras wraps. compression:
    Compression.none, fp16 or bf16, for dense gradients. sparse_as_dense: reduce tf.IndexedSlices as dense
    tensors. backward_passes_per_step N: sum the gradients of N steps, reduce and apply in the last (graphs
    only). average_aggregated_gradients: divide these sums by N. op: Average, Sum, Min, Max, Product, or
    Adasum, which reduces the changes of the weights instead of gradients. gradient_predivide_factor f:
    multiply by 1/f before and f after the average. groups: a number of groups, or lists of variables,
    reduced as a whole. process_set: the ranks that train together. ValueError for arguments that do not fit.

    >>> optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(0.001 * hvd.size()))
    """
    own = {key: value for key, value in locals().items() if key not in ("optimizer", "num_groups")}
    own["groups"] = check_groups(groups_of(groups, num_groups))
    check_passes(backward_passes_per_step)
    if isinstance(optimizer, (DistributedLegacyOptimizer, DistributedAdasumOptimizer)):
        raise ValueError(ALREADY_DISTRIBUTED)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _wrap_for_keras(optimizer, own)
    if op == Adasum:
        return _wrap_for_adasum(optimizer, own)
    return _wrap_for_tensorflow_1(optimizer, own)


def _wrap_for_tensorflow_1(optimizer: Any, options: dict[str, Any]) -> Any:
    scope = options["name"] or f"Distributed{type(optimizer).__name__}"
    reducer = GradientReducer.of_options(scope, options)
    passes = options["backward_passes_per_step"]
    aggregation = None
    if passes > 1:
        if tf.executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager execution."
            )
        aggregation = LocalGradientAggregationHelper(
            passes, reducer.reduce, options["sparse_as_dense"], options["average_aggregated_gradients"]
        )
    return DistributedLegacyOptimizer(
        optimizer, options["name"], options["use_locking"], reducer, aggregation
    )


def _wrap_for_adasum(optimizer: Any, options: dict[str, Any]) -> Any:
    if options["average_aggregated_gradients"]:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if options["process_set"].process_set_id != 0:
        raise NotImplementedError("Adasum does not support process sets yet")
    return DistributedAdasumOptimizer(
        optimizer,
        options["name"],
        options["use_locking"],
        options["compression"],
        options["backward_passes_per_step"],
    )


def _wrap_for_keras(optimizer: Any, options: dict[str, Any]) -> Any:
    """Hands a Keras optimizer over to the Keras front end, which takes the same options but use_locking."""
    front_end = front_ends.of_keras_optimizer(optimizer)
    if front_end is None:
        raise ValueError(
            f"DistributedOptimizer got a {type(optimizer).__name__}; pass a tf.compat.v1.train.Optimizer or "
            f"a Keras optimizer."
        )
    if options["op"] == Adasum:
        raise ValueError("op == Adasum is not supported yet with Keras")
    given = {key: value for key, value in options.items() if key != "use_locking"}
    return front_end.DistributedOptimizer(optimizer, **given)


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    groups: Sequence[Sequence[Any]] | int | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedOptimizer that leaves the weights of local_layers, one Keras layer or several, alone."""
    given = {key: value for key, value in locals().items() if key != "local_layers"}
    local = local_variables_of(local_layers, caller="PartialDistributedOptimizer")
    wrapped = DistributedOptimizer(**given)
    for variable in local:
        wrapped.register_local_var(variable)
    return wrapped
