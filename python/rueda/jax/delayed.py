"""DelayedOptimizer: an optax transformation whose gradients travel while the next step computes.

The method is that of rueda/torch/delayed.py, where its sources are named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rueda.jax.collectives import is_traced
from rueda.jax.compression import Compression, Compressor
from rueda.jax.optimizer import check_reduction, checking, next_prefix, next_source, transformation_of
from rueda.jax.passes import with_types_of
from rueda.jax.travel import Terms, Travel
from rueda.policy import Average, Sum, predivide_factors
from rueda.process_sets import ProcessSet, global_process_set

WHAT = "DelayedOptimizer"
NO_PARAMS = "DelayedOptimizer: update needs the parameters; call optimizer.update(grads, state, params)."


class DelayedState(NamedTuple):
    """The state of an optimizer whose gradients arrive one step late. steps: taken until now, int32. agreed:
    the parameters that all ranks have. gradients: of this rank in the last step, which are on their way.
    inner: the wrapped optimizer's, the same on all ranks.
    """

    steps: Any
    agreed: Any
    gradients: Any
    inner: Any


@dataclass(frozen=True)
class _Delayed:
    """An optimizer whose gradients arrive one step late, as functions of pytrees."""

    optimizer: Any
    apply_updates: Callable[[Any, Any], Any]
    travel: Travel
    is_sum: bool

    def init(self, params: Any) -> DelayedState:
        """The first state."""
        agreed, zeros = jax.tree.map(jnp.array, params), jax.tree.map(jnp.zeros_like, params)
        return DelayedState(jnp.zeros((), jnp.int32), agreed, zeros, self.optimizer.init(params))

    def update(self, updates: Any, state: DelayedState, params: Any, **extra: Any) -> Any:
        """What leads from params to the next ones, and the next state, with the types of the last one."""
        updates = jax.tree.map(with_types_of, state.gradients, updates)
        agreed, inner = self._agree(updates, state, extra)
        own = updates
        if self.is_sum:  # as much as the ranks together
            own = jax.tree.map(lambda one: one * self.travel.size, updates)
        made, _ = self.optimizer.update(own, inner, agreed, **extra)
        following = self.apply_updates(agreed, made)
        change = jax.tree.map(lambda new, old: new - old, following, params)
        return change, DelayedState(state.steps + 1, agreed, updates, inner)

    def _agree(self, updates: Any, state: DelayedState, extra: Any) -> tuple[Any, Any]:
        """The parameters and the inner state after a step with the gradients that were on their way."""
        leaves = jax.tree.leaves(updates)
        structure: Any = jax.tree.structure(updates)
        places = list(range(len(leaves)))
        waiting = jax.tree.leaves(state.gradients)
        is_first = state.steps == 0
        if is_traced([is_first, *leaves, *waiting]) or not is_first:
            waiting = self.travel.combine(structure, places, waiting)
        self.travel.start(structure, places, leaves)

        def step() -> Any:
            made, inner = self.optimizer.update(
                structure.unflatten(waiting), state.inner, state.agreed, **extra
            )
            following = self.apply_updates(state.agreed, made)
            return jax.tree.map(with_types_of, (state.agreed, state.inner), (following, inner))

        def wait() -> Any:
            return state.agreed, state.inner

        if is_traced([is_first]):
            agreed, inner = jax.lax.cond(is_first, wait, step)
        else:
            agreed, inner = wait() if is_first else step()
        return agreed, inner


def DelayedOptimizer(
    optimizer: Any,
    name: str | None = None,
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optax transformation so that the gradients of a step travel while the next one computes.

    A step takes the longer of computing and communicating. Until the combined gradients arrive, one step
    later, this rank's own stand for them: an update undoes what these did, steps with the combined ones, and
    then steps with the new own ones. The parameters differ between ranks by that last step. state.agreed has
    those that all ranks have, with the same bits, to be evaluated and saved; they lack the last gradients.

    Arguments as for DistributedOptimizer, without compressors that keep a state. The state is a DelayedState;
    init must see equal parameters on all ranks, and is called again where parameters were changed by hand.
    update needs params. Raises ImportError without optax, ValueError for wrong arguments.

    >>> optimizer = hvd.DelayedOptimizer(optax.sgd(0.1, momentum=0.9))
    >>> updates, state = optimizer.update(grads, state, params)  # inside jit or outside
    """
    optax, inner = transformation_of(optimizer, WHAT)
    check_reduction(WHAT, op, compression, gradient_predivide_factor)
    prefix = name if name is not None else next_prefix()
    factors = (op, *predivide_factors(gradient_predivide_factor))
    travel = Travel(WHAT, prefix, Terms(process_set, compression, factors, next_source()))
    delayed = _Delayed(inner, optax.apply_updates, travel, op == Sum)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        if params is None:
            raise ValueError(NO_PARAMS)
        return delayed.update(updates, state, params, **extra)

    update.is_distributed = True  # type: ignore[attr-defined]
    return optax.GradientTransformationExtraArgs(checking(delayed.init, compression), update)
