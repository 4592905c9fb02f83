"""Averaging gradients over several passes before one step (backward_passes_per_step).

optax.MultiSteps is not used: that of 0.2.8 computes its step in every pass and then drops it, which would
communicate in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class PassesState(NamedTuple):
    """The state of an optimizer that steps in every N-th pass."""

    passes: Any  # int32 scalar: since the last step
    means: Any  # of the gradients of these passes, as the parameters; at least float32
    inner: Any  # the wrapped optimizer's


def _wide(value: Any) -> Any:
    return jnp.promote_types(jnp.result_type(value), jnp.float32)


def with_types_of(old: Any, new: Any) -> Any:
    """The new value with the type of the old one, as branches of a program need it."""
    return new if jnp.result_type(new) == jnp.result_type(old) else jnp.asarray(new, jnp.result_type(old))


def average_passes(
    optimizer: Any, reduce: Callable[[Any], Any], passes: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(init, update): every N-th update reduces the mean of N gradients and lets the optimizer step.

    The other updates are zeros. Inside jit the step is a branch of lax.cond. All ranks count alike.
    """

    def init(params: Any) -> PassesState:
        means = jax.tree.map(lambda one: jnp.zeros(jnp.shape(one), _wide(one)), params)
        return PassesState(jnp.zeros([], jnp.int32), means, optimizer.init(params))

    def update(updates: Any, state: PassesState, params: Any = None, **extra: Any) -> Any:
        first = state.passes == 0

        def add(new: Any, mean: Any) -> Any:
            added = jnp.where(first, new, mean + (new - mean) / (state.passes + 1))
            return added.astype(mean.dtype)

        means = jax.tree.map(add, updates, state.means)
        is_last = state.passes + 1 == passes

        def apply(gradients: Any) -> Any:
            made, inner = optimizer.update(gradients, state.inner, params, **extra)
            return made, jax.tree.map(with_types_of, state.inner, inner)

        def step() -> Any:
            return apply(reduce(jax.tree.map(with_types_of, updates, means)))

        def wait() -> Any:
            shapes, _ = jax.eval_shape(apply, updates)
            return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes), state.inner

        if isinstance(is_last, jax.core.Tracer):
            made, inner = lax.cond(is_last, step, wait)
        else:
            made, inner = step() if is_last else wait()
        return made, PassesState(jnp.where(is_last, 0, state.passes + 1), means, inner)

    return init, update
