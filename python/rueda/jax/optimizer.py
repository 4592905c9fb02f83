"""Training with averaged gradients: an optax transformation, and value_and_grad."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rueda.compression_choices import check_wire_op, check_wire_types
from rueda.jax.collectives import reduce_gradients
from rueda.jax.compressed_steps import CompressedSteps, compressed
from rueda.jax.compression import Compression, Compressor
from rueda.jax.passes import average_passes
from rueda.operations import check_compression, set_size
from rueda.policy import (
    Average,
    Sum,
    check_gradient_op,
    check_op,
    check_passes,
    check_predivide,
    predivide_factors,
)
from rueda.process_sets import ProcessSet, global_process_set
from rueda.pure_compressors import PureCompressor

NEEDS_OPTAX = (
    "hvd.{what} wraps optimizers of optax, but importing optax failed ({error}); install it "
    "with `pip install optax`, or reduce gradients with hvd.distributed_value_and_grad."
)

_numbers = itertools.count(1)  # of optimizers and gradient functions, in the order the program makes them
_sources = itertools.count(1)  # of steps: the same, and those that the program has named


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    op: int = Average,
    compression: type[Compressor] | PureCompressor = Compression.none,
    backward_passes_per_step: int = 1,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optax transformation so that update first reduces the gradients over all ranks.

    optimizer: any optax.GradientTransformation. The state is the optimizer's own. update(grads, state,
    params) works inside and outside jit; inside, each gradient is sent while the backward pass still
    computes others. name: prefix of the gradients' names, equal on all ranks; None counts the optimizers
    made. op: Average (default) or Sum. compression: also hvd.PowerSGD(…) and hvd.TopK(…), whose state is
    then part of the optimizer's, so init comes after hvd.init. backward_passes_per_step: k > 1 averages k
    calls locally before one reduction and one step; the calls between change nothing.
    gradient_predivide_factor: divides before the sum and multiplies after it. Raises ImportError without
    optax, ValueError for wrong arguments.

    >>> optimizer = hvd.DistributedOptimizer(optax.adam(1e-3 * hvd.size()))
    >>> updates, state = optimizer.update(grads, state, params)
    """
    optax, inner = transformation_of(optimizer, "DistributedOptimizer")
    check_passes(backward_passes_per_step)
    reduce: Callable[[Any], Any]
    if isinstance(compression, PureCompressor):
        inner = optax.GradientTransformationExtraArgs(
            *compressed(inner, _steps(name, op, compression, gradient_predivide_factor, process_set))
        )
        reduce = _as_it_is
    else:
        reduce = _reducer(
            "DistributedOptimizer", name, op, compression, gradient_predivide_factor, process_set
        )

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        return inner.update(reduce(updates), state, params, **extra)

    init = checking(inner.init, compression)
    if backward_passes_per_step > 1:
        init, update = average_passes(inner, reduce, backward_passes_per_step)
    update.is_distributed = True  # type: ignore[attr-defined]
    return optax.GradientTransformationExtraArgs(init, update)


def transformation_of(optimizer: Any, what: str) -> tuple[Any, Any]:
    """optax, and the optimizer as a transformation with extra arguments. Raises ImportError without optax,
    ValueError for what the wrapper `what` cannot wrap.
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError(NEEDS_OPTAX.format(what=what, error=error)) from error
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            f"{what} wraps an optax.GradientTransformation such as optax.adam(1e-3), but got "
            f"{type(optimizer).__name__}."
        )
    if getattr(optimizer.update, "is_distributed", False):
        raise ValueError(f"{what}: this optimizer is wrapped already; wrap it once.")
    return optax, optax.with_extra_args_support(optimizer)


def check_reduction(what: str, op: int, compression: Any, predivide: float) -> None:
    """Raises ValueError or TypeError for what the wrapper `what` cannot reduce gradients with."""
    check_compression(compression)
    check_gradient_op(op, what)
    check_wire_op(compression, op)
    check_predivide(op, predivide)


def next_prefix() -> str:
    """Of the names of the gradients of an optimizer that has no name."""
    return f"gradients.{next(_numbers)}"


def next_source() -> int:
    """By which the timeline knows the steps of an optimizer."""
    return next(_sources)


def checking(init: Callable[[Any], Any], compression: Any) -> Callable[[Any], Any]:
    """init, which refuses parameters whose gradients the wire type does not encode."""

    def checked(params: Any) -> Any:
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        kinds = ((jax.tree_util.keystr(path), str(jnp.result_type(leaf))) for path, leaf in leaves)
        check_wire_types(compression, kinds)
        return init(params)

    return checked


def _as_it_is(gradients: Any) -> Any:
    return gradients


def _steps(
    name: str | None, op: int, compressor: PureCompressor, predivide: float, process_set: ProcessSet
) -> CompressedSteps:
    check_op(op, (Average, Sum), f"compression={compressor!r}")
    check_predivide(op, predivide)
    prefix = name if name is not None else next_prefix()
    return CompressedSteps(
        compressor, prefix, (op, *predivide_factors(predivide)), process_set, next_source()
    )


def _reducer(
    what: str,
    name: str | None,
    op: int,
    compression: type[Compressor],
    predivide: float,
    process_set: ProcessSet,
) -> Callable[[Any], Any]:
    """Reduces a pytree of gradients, under names that do not depend on the order of traces."""
    check_reduction(what, op, compression, predivide)
    prefix = name if name is not None else next_prefix()
    terms = (op, *predivide_factors(predivide))
    step = next_source()

    def reduce(gradients: Any) -> Any:
        if set_size(process_set, what) == 1:
            return gradients
        return reduce_gradients(gradients, prefix, terms, process_set, compression, step)

    return reduce


def distributed_value_and_grad(
    fun: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    name: str | None = None,
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """jax.value_and_grad whose gradients are reduced over all ranks; the value stays this rank's.

    fun, argnums, has_aux: as for jax.value_and_grad. name, op, compression, process_set: as for
    DistributedOptimizer. The result may be jitted; errors as for allreduce.

    >>> loss, grads = jax.jit(hvd.distributed_value_and_grad(loss_of))(params, batch)
    """
    reduce = _reducer("distributed_value_and_grad", name, op, compression, 1.0, process_set)
    local = jax.value_and_grad(fun, argnums=argnums, has_aux=has_aux)

    def value_and_grad(*arguments: Any, **settings: Any) -> Any:
        value, gradients = local(*arguments, **settings)
        return value, reduce(gradients)

    return value_and_grad
