"""Reduces the gradients of a step, for DistributedGradientTape and the optimizers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import tensorflow as tf

from rueda import epochs
from rueda.basics import may_grow
from rueda.compression_choices import check_wire_op
from rueda.operations import check_compression, set_size
from rueda.policy import OPS, Adasum, Average, check_op, check_predivide, predivide_factors, split_evenly
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.arguments import is_variable, variable_key
from rueda.tensorflow.compression import Compression, Compressor
from rueda.tensorflow.plugin import is_async, mark_step
from rueda.tensorflow.reductions import NO_SPARSE_ADASUM, allreduce, grouped_allreduce

_NOT_IN_NODES = re.compile("[^A-Za-z0-9_.]")
_STEPS_OF_TENSORS = 1  # the source of steps whose first gradient is not of a variable


@dataclass
class GradientReducer:
    """How the gradients of one optimizer or tape are reduced over all ranks."""

    scope: str
    device_dense: str = ""
    device_sparse: str = ""
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: list[list[Any]] | int | None = None
    process_set: ProcessSet = field(default_factory=lambda: global_process_set)
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        if self.op is not None:  # allreduce takes None for Average
            check_op(self.op, OPS, self.scope)
        check_predivide(self.op, self.gradient_predivide_factor)
        check_compression(self.compression)
        check_wire_op(self.compression, Average if self.op is None else self.op)
        self._local: set[int] = set()

    @classmethod
    def of_options(cls, scope: str, options: Mapping[str, Any]) -> GradientReducer:
        """With those arguments of a function that have the names of fields."""
        own = {one.name: options[one.name] for one in fields(cls) if one.name in options}
        return cls(scope, **own)

    # ---- variables that stay local ----

    def register_local(self, variable: Any) -> None:
        """The gradients of this variable are not reduced."""
        self._local.add(variable_key(variable))

    def is_local(self, variable: Any) -> bool:
        """Whether register_local named this variable."""
        return variable_key(variable) in self._local

    def scale_local(self, gradient: Any) -> Any:
        """The local gradient divided by the number of ranks, if so configured."""
        count = set_size(self.process_set, self.scope)
        if gradient is None or not self.scale_local_gradients or count == 1:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / count, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(count, gradient.dtype)

    # ---- the reduction ----

    @property
    def is_needed(self) -> bool:
        """Whether there is anybody to reduce with. In elastic jobs the number of ranks may still change."""
        size = set_size(self.process_set, self.scope)
        if self.process_set.included() is False:
            return False
        return size > 1 or may_grow()

    def reduce(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any] | None = None,
        use_generic_names: bool = False,
        parts: Sequence[str] | None = None,
    ) -> list[Any]:
        """The gradients combined over the ranks, in the same order; None stays None.

        variables: whose gradients these are, needed for groups given as lists and for local variables. Marks
        a step in the timeline. Graphs match gradients by the tensors' names; with use_generic_names by
        grad_0, grad_1, …; with parts, one for each gradient, by these under the reducer's scope.
        """
        epochs.require()
        outputs = list(gradients)
        present = [i for i, gradient in enumerate(outputs) if gradient is not None]
        if variables is not None:
            for i in [i for i in present if self.is_local(variables[i])]:
                outputs[i] = self.scale_local(outputs[i])
                present.remove(i)
        if not self.is_needed or not present:
            return outputs
        for i in present:
            outputs[i] = self._prepared(outputs[i])
        source = self._source(None if variables is None else variables[present[0]])
        if use_generic_names:
            names = {i: f"grad_{i}" for i in present}
            return mark_step(source, self._reduce_all(outputs, present, variables, names))
        names = {}
        if parts is not None and not tf.executing_eagerly():
            names = {i: _NOT_IN_NODES.sub("_", parts[i]) for i in present}
        with tf.name_scope(f"{self.scope}_Allreduce"):
            return mark_step(source, self._reduce_all(outputs, present, variables, names))

    def _source(self, first: Any) -> int:
        """What the timeline knows the steps of these variables by. Tapes live only for one step."""
        return variable_key(first) if is_variable(first) else _STEPS_OF_TENSORS

    def _prepared(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            if self.sparse_as_dense:
                return tf.convert_to_tensor(gradient)
            if self.op == Adasum:
                raise NotImplementedError(NO_SPARSE_ADASUM)
        return gradient

    def _reduce_all(
        self,
        outputs: list[Any],
        present: list[int],
        variables: Sequence[Any] | None,
        names: dict[int, str],
    ) -> list[Any]:
        dense = [i for i in present if not isinstance(outputs[i], tf.IndexedSlices)]
        before: list[Any] = []
        for number, members in enumerate(self._parts(dense, variables)):
            # Operations that block must come in the same order on all ranks.
            with tf.control_dependencies([] if is_async() or tf.executing_eagerly() else before):
                if len(members) == 1 and self.groups is None:
                    name = names.get(members[0]) or self._eager_name(str(number))
                    reduced = [allreduce(outputs[members[0]], name=name, **self._settings())]
                else:
                    reduced = self._reduce_group([outputs[i] for i in members], number, bool(names))
            before = reduced
            for i, one in zip(members, reduced):
                outputs[i] = one
        for i in sorted(set(present) - set(dense)):
            outputs[i] = self._reduce_slices(outputs[i], names.get(i) or self._eager_name(f"slices_{i}"))
        return outputs

    def _parts(self, dense: list[int], variables: Sequence[Any] | None) -> Iterable[list[int]]:
        """Positions of the dense gradients that are reduced as one operation."""
        if isinstance(self.groups, int):
            return [part for part in split_evenly(dense, self.groups) if part]
        if self.groups is not None and variables is not None:
            return self._given_parts(dense, variables)
        if tf.executing_eagerly() or not is_async():
            return [dense] if dense else []  # one after the other, each would cost a full exchange
        return [[i] for i in dense]  # each starts as soon as the backward pass has it

    def _given_parts(self, dense: list[int], variables: Sequence[Any]) -> list[list[int]]:
        assert isinstance(self.groups, list)
        by_key = {variable_key(variables[i]): i for i in dense}
        parts = [[by_key.pop(k) for k in map(variable_key, g) if k in by_key] for g in self.groups]
        return [part for part in parts if part] + [[i] for i in by_key.values()]

    def _settings(self) -> dict[str, Any]:
        """The arguments with which dense gradients are reduced."""
        before, after = predivide_factors(self.gradient_predivide_factor)
        return {
            "op": self.op,
            "prescale_factor": before,
            "postscale_factor": after,
            "device_dense": self.device_dense,
            "compression": self.compression,
            "process_set": self.process_set,
        }

    def _eager_name(self, part: str) -> str | None:
        """The name for errors in eager execution, in which tensors have no names; None in graphs."""
        return f"{self.scope}_Allreduce_{part}" if tf.executing_eagerly() else None

    def _reduce_group(self, gradients: list[Any], number: int, has_generic_names: bool) -> list[Any]:
        name = f"grads_{number}" if has_generic_names else self._eager_name(str(number))
        return grouped_allreduce(gradients, name=name, **self._settings())

    def _reduce_slices(self, gradient: Any, name: str | None) -> Any:
        return allreduce(
            gradient, device_sparse=self.device_sparse, name=name, op=self.op, process_set=self.process_set
        )
