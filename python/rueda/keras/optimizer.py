"""DistributedOptimizer: the user's Keras optimizer, which reduces gradients before it applies them.

The optimizer object stays. Only its class changes, to a subclass that is made for it and has the same name.
Its state, its place in a compiled model and its saved form are therefore those of the plain optimizer.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from rueda import _core
from rueda.compression_choices import check_wire_op
from rueda.keras.backends import (
    Compression,
    Reduction,
    backend_name,
    check_choice,
    check_types,
    exchange_in_trace,
    reduce_gradients,
    scaled,
)
from rueda.keras.compressed import Compressing, check, name_of
from rueda.keras.delayed import Delaying
from rueda.keras.delayed import check as check_delayed
from rueda.local_layers import layers_of
from rueda.policy import check_gradient_op, check_passes, check_predivide
from rueda.process_sets import ProcessSet, global_process_set
from rueda.pure_compressors import PureCompressor

LATE = (
    "{what}: this optimizer has taken {steps} steps already; if a model was fit with it, that "
    "model still runs its compiled step without communication, so call model.compile again after wrapping."
)
INNER = (
    "A LossScaleOptimizer around a DistributedOptimizer would skip steps on some ranks only; wrap it as a "
    "whole, DistributedOptimizer(LossScaleOptimizer(…)), or set the dtype policy mixed_float16 before "
    "DistributedOptimizer is called."
)

_numbers = itertools.count(1)  # of wrapped optimizers, in the order the program makes them


def next_prefix(optimizer: Any) -> str:
    """Of the names of the gradients of an optimizer that has no name."""
    return f"Distributed{type(optimizer).__name__}.{next(_numbers)}"


def is_distributed(optimizer: Any) -> bool:
    """Whether DistributedOptimizer has wrapped this optimizer."""
    return getattr(type(optimizer), "_rueda_is_distributed", False)


def reduces(optimizer: Any) -> bool:
    """Whether steps with this optimizer reduce gradients: it is distributed, or one of tf.compat.v1.train
    that is, which tf_keras puts inside one of its own.
    """
    return is_distributed(optimizer) or is_distributed(getattr(optimizer, "optimizer", None))


def process_set_of(optimizer: Any) -> ProcessSet:
    """The ranks that train with this optimizer: all, unless it is distributed over some of them."""
    for one in (optimizer, *(getattr(optimizer, name, None) for name in ("inner_optimizer", "optimizer"))):
        if is_distributed(one):
            settings: Any = getattr(one, "_rueda_reduction", None) or getattr(one, "_rueda_reducer", None)
            return settings.process_set if settings is not None else global_process_set  # none with Adasum
    return global_process_set


def marks_steps(optimizer: Any) -> bool:
    """Whether this optimizer itself tells the timeline when a step ends: where it has gradients to reduce."""
    return reduces(optimizer) and process_set_of(optimizer).size() != 1


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
    warn_if_late: bool = True,
) -> Any:
    """Makes a Keras optimizer reduce gradients over all ranks before each step, and returns it.

    optimizer: a keras.optimizers.Optimizer, built or not; the same object is returned. It works in model.fit,
    compiled or not, and in loops that call apply or apply_gradients. Clipping, weight decay and averages
    follow the reduction. Under the dtype policy mixed_float16 it becomes the inner optimizer of a
    LossScaleOptimizer, which is returned, so that all ranks skip the same steps. op: Average (default) or
    Sum. backward_passes_per_step: N > 1 sums gradients (average_aggregated_gradients: averages) over N
    batches before one step. compression: also
    hvd.PowerSGD(…) and hvd.TopK(…). gradient_predivide_factor, process_set: as elsewhere.
    sparse_as_dense: send sparse gradients of TensorFlow as dense ones.
    scale_local_gradients: divide gradients of register_local_var variables by the number of ranks.
    warn_if_late: warn when the optimizer has taken steps before.
    device_dense, device_sparse, num_groups, groups: accepted for old scripts, without effect. Saved models
    load without rueda. Raises ValueError for wrong arguments and for an optimizer that is wrapped already.

    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
    >>> model.compile(optimizer=optimizer, loss="mse")
    """
    backend_name()
    check_optimizer(optimizer, op, gradient_predivide_factor, backward_passes_per_step)
    if not isinstance(compression, PureCompressor):
        check_choice(compression)
    check_wire_op(compression, op)
    check_types(compression, getattr(optimizer, "_trainable_variables", ()))
    if keras.config.dtype_policy().name == "mixed_float16" and not is_loss_scaling(optimizer):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    if warn_if_late:
        warn_late(optimizer, "DistributedOptimizer")
    if backward_passes_per_step > 1:
        _accumulate(optimizer, backward_passes_per_step)
    reduction = Reduction(
        prefix=name or next_prefix(optimizer),
        op=op,
        compression=compression,
        predivide=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    sums = backward_passes_per_step > 1 and not average_aggregated_gradients
    distribute(optimizer, reduction, float(backward_passes_per_step) if sums else 1.0, scale_local_gradients)
    return optimizer


def PartialDistributedOptimizer(
    optimizer: Any, *arguments: Any, local_layers: Any = None, **settings: Any
) -> Any:
    """DistributedOptimizer that leaves the weights of local_layers to each rank.

    local_layers: one keras layer or several; ValueError if one is not built.

    >>> optimizer = hvd.PartialDistributedOptimizer(optimizer, local_layers=model.layers[-1])
    """
    layers = layers_of(
        local_layers, keras.layers.Layer, "keras.layers.Layer", caller="PartialDistributedOptimizer"
    )
    optimizer = DistributedOptimizer(optimizer, *arguments, **settings)
    return keep_local(optimizer, layers)


def keep_local(optimizer: Any, layers: Sequence[Any]) -> Any:
    """Leaves the weights of these built layers to each rank; returns the optimizer."""
    for layer in layers:
        for variable in layer.trainable_variables:
            optimizer.register_local_var(variable)
    return optimizer


def check_optimizer(
    optimizer: Any, op: int, predivide: float, passes: int, what: str = "DistributedOptimizer"
) -> None:
    if type(optimizer).__module__.split(".")[0] == "tf_keras":
        raise ValueError(
            f"{what} of rueda.keras wraps optimizers of Keras 3, but got one of tf_keras; set "
            "TF_USE_LEGACY_KERAS=1 before tensorflow is imported, and import rueda.tensorflow.keras."
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"{what} wraps a keras.optimizers.Optimizer such as keras.optimizers.Adam(1e-3), "
            f"but got {type(optimizer).__name__}."
        )
    check_wrapping(optimizer, op, passes, predivide, what)


def check_wrapping(
    optimizer: Any, op: int, passes: int, predivide: float, what: str = "DistributedOptimizer"
) -> None:
    """Raises ValueError for an optimizer that is wrapped already and for settings that do not go together."""
    inner = getattr(optimizer, "inner_optimizer", None)
    if is_distributed(optimizer):
        raise ValueError(f"{what}: this optimizer is wrapped already; wrap it once.")
    if inner is not None and is_distributed(inner):
        raise ValueError(INNER)
    check_gradient_op(op, what)
    check_predivide(op, predivide)
    check_passes(passes)


def is_loss_scaling(optimizer: Any) -> bool:
    """Whether it is a LossScaleOptimizer."""
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def warn_late(optimizer: Any, what: str) -> None:
    """For the wrapper `what`, which called this: warns if the optimizer has taken steps already."""
    steps = int(keras.ops.convert_to_numpy(optimizer.iterations))
    if steps > 0:
        warnings.warn(LATE.format(what=what, steps=steps), RuntimeWarning, stacklevel=3)


def _accumulate(optimizer: Any, passes: int) -> None:
    """Lets Keras add up the gradients of several batches."""
    target = optimizer.inner_optimizer if is_loss_scaling(optimizer) else optimizer
    if target.gradient_accumulation_steps not in (None, passes):
        raise ValueError(
            f"backward_passes_per_step is {passes}, but the optimizer was made with "
            f"gradient_accumulation_steps={target.gradient_accumulation_steps}; give one of the two."
        )
    if target.built and target.gradient_accumulation_steps is None:
        raise ValueError(
            "backward_passes_per_step needs memory that an optimizer gets when it is built, and this one is "
            "built already; make it with gradient_accumulation_steps instead."
        )
    target.gradient_accumulation_steps = passes


# ---- the class an optimizer gets ----


class _Variables(list[Any]):
    """A list that may be called as well: variables() was a method in Keras 2."""

    def __call__(self) -> _Variables:
        return self


class _Reducing:
    """What the classes made here add to the optimizer's own class. It comes first among their bases."""

    _rueda_is_distributed = True
    _rueda_reduction: Reduction
    _rueda_base: type
    _rueda_factor: float  # on every gradient: N where N batches are to be summed, which Keras averages
    _rueda_scales_local: bool
    _rueda_local: set[int]
    _rueda_is_reduced: bool  # while the base class works on gradients that are reduced already

    def build(self: Any, variables: Any) -> None:
        """Refuses variables whose gradients the wire type does not encode."""
        check_types(self._rueda_reduction.compression, variables)
        self._rueda_base.build(self, variables)

    @property
    def variables(self: Any) -> _Variables:
        """Those of the plain optimizer."""
        return _Variables(super().variables)  # type: ignore[misc]

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        """Reduces the gradients, then applies them as the plain optimizer does."""
        if self._rueda_is_reduced or self._rueda_reduces_late():
            return self._rueda_base.apply(self, grads, trainable_variables)
        _refuse_loss_scaling_outside()
        variables = None if trainable_variables is None else list(trainable_variables)
        if variables is None and self.built:
            variables = self._trainable_variables
        return self._rueda_base.apply(self, self._rueda_reduce(list(grads), variables), trainable_variables)

    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Like apply, without side effects. LossScaleOptimizer tests gradients here, before any apply."""
        if not is_loss_scaling(self):
            return self._rueda_base.stateless_apply(self, optimizer_variables, grads, trainable_variables)
        reduced = self._rueda_reduce(list(grads), self._trainable_variables)
        self._rueda_is_reduced = True
        try:
            return self._rueda_base.stateless_apply(self, optimizer_variables, reduced, trainable_variables)
        finally:
            self._rueda_is_reduced = False

    def _clip_gradients(self: Any, grads: Any) -> Any:
        """If Keras adds up gradients over several batches, it passes the sum through here."""
        if self._rueda_reduces_late():
            _refuse_loss_scaling_outside()
            grads = self._rueda_reduce_sum(list(grads))
        return self._rueda_base._clip_gradients(self, grads)

    def register_local_var(self: Any, var: Any) -> None:
        """The gradients of this variable are not reduced. Before the first step."""
        object.__setattr__(self, "_rueda_local", self._rueda_local | {id(var)})

    # ---- helpers ----

    def _rueda_reduces_late(self: Any) -> bool:
        return bool(self.gradient_accumulation_steps) and not self._rueda_local

    def _rueda_reduce_sum(self: Any, grads: list[Any]) -> Any:
        if backend_name() != "jax":
            return self._rueda_reduce(grads, None)  # Keras calls only when the sum is complete
        steps = self.gradient_accumulation_steps
        is_last = (self._iterations + 1) % steps == 0
        return exchange_in_trace(is_last, lambda mine: self._rueda_reduce(list(mine), None), grads)

    def _rueda_name(self: Any, place: int, variable: Any) -> str:
        """Of the gradient of a variable at this place of a step."""
        return name_of(place, variable)

    def _rueda_exchange(self: Any, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
        return reduce_gradients(self._rueda_reduction, gradients, names)

    def _rueda_reduce(self: Any, grads: list[Any], variables: Sequence[Any] | None) -> list[Any]:
        """The gradients reduced, in the same order; None and local ones stay."""
        reduction = self._rueda_reduction
        chosen, names = [], []
        for i, grad in enumerate(grads):
            variable: Any = None
            if variables is not None and len(variables) == len(grads):
                variable = variables[i]
            if grad is None:
                continue
            if variable is not None and id(variable) in self._rueda_local:
                share = reduction.size() if self._rueda_scales_local else 1
                grads[i] = scaled(grad, self._rueda_factor / share)
                continue
            chosen.append(i)
            names.append(self._rueda_name(i, variable))
        reduced = self._rueda_exchange([grads[i] for i in chosen], names)
        factor = self._rueda_factor
        for i, grad in zip(chosen, reduced):
            grads[i] = scaled(grad, factor)
        return grads


class _ReducingCompressed(Compressing, _Reducing):
    """With a compressor that keeps something of each gradient."""


class _ReducingDelayed(Delaying, _Reducing):
    """With gradients that arrive one step late."""


def _subclass(first: type, base: type) -> type:
    """Makes a class for one optimizer: `first` before its own class, with the name and metaclass of that."""
    members = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_rueda_base": base,
    }
    metaclass: Any = type(base)  # LossScaleOptimizer of tf_keras has one of its own
    made: type = metaclass(base.__name__, (first, base), members)
    return made


def change_class(optimizer: Any, first: type, attributes: Mapping[str, Any]) -> type:
    """Gives the optimizer such a class, and these attributes; returns the class. The object stays: its state,
    its place in a compiled model and its saved form.
    """
    made = _subclass(first, type(optimizer))
    for key, value in attributes.items():
        # Bypasses the optimizer's own __setattr__, which would track them as state.
        object.__setattr__(optimizer, key, value)
        setattr(made, key, value)  # for copies that the class makes from a configuration
    optimizer.__class__ = made
    return made


def distribute(optimizer: Any, reduction: Reduction, factor: float, scales_local: bool) -> None:
    """Gives an optimizer the class of those that reduce gradients in this way."""
    base, first = type(optimizer), _Reducing
    if reduction.is_delayed:
        check_delayed(is_loss_scaling(optimizer), getattr(optimizer, "gradient_accumulation_steps", None))
        first = _ReducingDelayed
    elif isinstance(reduction.compression, PureCompressor):
        check(
            reduction.compression,
            reduction.op,
            is_loss_scaling(optimizer),
            getattr(optimizer, "gradient_accumulation_steps", None),
        )
        first = _ReducingCompressed
    attributes: dict[str, Any] = {
        "_rueda_kept": None,
        "_rueda_saves": False,
        "_rueda_reduction": reduction,
        "_rueda_factor": factor,
        "_rueda_scales_local": scales_local,
        "_rueda_local": set(),
        "_rueda_is_reduced": False,
    }
    _save_as(base, change_class(optimizer, first, attributes))
    if first is not _Reducing and optimizer.built:
        optimizer._rueda_begin(optimizer._trainable_variables)


def _save_as(base: type, made: type) -> None:
    """Makes the saved form name the base class, by its public name if it has one."""
    try:
        from keras.src.api_export import REGISTERED_OBJS_TO_NAMES as names
    except ImportError:
        return  # it is saved under its module and name, which are those of the base
    if base in names:
        names[made] = names[base]


def unwrap(optimizer: Any) -> Any:
    """Gives a wrapped optimizer its own class back. Returns its (reduction, factor, scales_local)."""
    state = (optimizer._rueda_reduction, optimizer._rueda_factor, optimizer._rueda_scales_local)
    optimizer.__class__ = type(optimizer)._rueda_base
    return state


def wrap_loss_scaling(optimizer: Any) -> None:
    """Makes a LossScaleOptimizer that Keras put around a distributed optimizer the distributed one."""
    distribute(optimizer, *unwrap(optimizer.inner_optimizer))


def _refuse_loss_scaling_outside() -> None:
    """Raises when the caller is a LossScaleOptimizer that judges local gradients."""
    frame = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return
        owner = frame.f_locals.get("self")
        if is_loss_scaling(owner) and not is_distributed(owner):
            raise ValueError(INNER)
        back = frame.f_back
        if back is None:
            return
        frame = back
