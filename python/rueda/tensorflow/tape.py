"""DistributedGradientTape: a tape whose gradients are those of all ranks combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rueda.local_layers import layers_of
from rueda.policy import Average, groups_of
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.arguments import check_groups
from rueda.tensorflow.compression import Compression, Compressor
from rueda.tensorflow.gradients import GradientReducer


class _DistributedTape:
    """The class that is put in front of the tape's own class."""

    _reducer: GradientReducer

    def register_local_source(self, source: Any) -> None:
        """The gradients with respect to this variable stay local."""
        self._reducer.register_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Gradients of target with respect to sources, reduced over the ranks.

        sources: a variable, or a list or a nested structure of variables, gives its like.
        None stays None. use_generic_names: names grad_0, grad_1, … instead of the tensors', for ranks
        whose models name their variables differently.
        """
        flat = tf.nest.flatten(sources)
        local = super().gradient  # type: ignore[misc]
        gradients = local(target, flat, output_gradients, unconnected_gradients)
        reduced = self._reducer.reduce(gradients, flat, use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Like gradient, but in two lists of (source, gradient): the local ones and the reduced ones."""
        flat = tf.nest.flatten(sources)
        gradients = self.gradient(target, flat, output_gradients, use_generic_names)
        local = [(s, g) for s, g in zip(flat, gradients) if self._reducer.is_local(s)]
        return local, [(s, g) for s, g in zip(flat, gradients) if not self._reducer.is_local(s)]


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Sequence[Sequence[Any]] | int | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape like gradtape, of a subclass of its class, whose gradient() is reduced over the ranks.

    compression: Compression.none, fp16 or bf16, for dense gradients. sparse_as_dense: reduce
    tf.IndexedSlices as dense tensors instead of gathering them. gradient_predivide_factor f: multiply by
    1/f before and f after the average. groups: a number of groups, or lists of variables, reduced as a
    whole. scale_local_gradients: divide those of register_local_source by the number of ranks. Without
    other ranks gradients pass unchanged.

    >>> with tf.GradientTape() as tape:
    ...     loss = compute(model, batch)
    >>> tape = hvd.DistributedGradientTape(tape)
    >>> gradients = tape.gradient(loss, model.trainable_variables)
    """
    given = dict(locals())
    if isinstance(gradtape, _DistributedTape):
        raise ValueError(
            "This tape is a DistributedGradientTape already; wrap the tape that it was made from."
        )
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"DistributedGradientTape takes a tf.GradientTape, not {type(gradtape).__name__}.")
    given["groups"] = check_groups(groups_of(groups, num_groups))
    reducer = GradientReducer.of_options("DistributedGradientTape", given)
    cls = type(gradtape)
    wrapped: Any = object.__new__(type(cls.__name__, (_DistributedTape, cls), {}))
    wrapped.__dict__.update(gradtape.__dict__)
    wrapped._reducer = reducer
    return wrapped


def local_variables_of(local_layers: Any, caller: str = "local_variables_of") -> list[Any]:
    """The trainable weights of a built Keras layer or of several; ValueError for anything else."""
    if local_layers is None:
        return []  # without importing Keras
    layers = layers_of(local_layers, tf.keras.layers.Layer, "tf.keras.layers.Layer", caller)
    return [weight for layer in layers for weight in layer.trainable_weights]


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Sequence[Sequence[Any]] | int | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedGradientTape that leaves the weights of local_layers to each rank.

    local_layers: a Keras layer or a collection of layers; ValueError for anything else, and for layers that
    are not built.
    """
    given = {key: value for key, value in locals().items() if key != "local_layers"}
    local = local_variables_of(local_layers, caller="PartialDistributedGradientTape")
    tape = DistributedGradientTape(**given)
    for variable in local:
        tape.register_local_source(variable)
    return tape
