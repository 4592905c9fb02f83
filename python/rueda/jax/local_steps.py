"""Steps without communication: what ranks exchange after so many of them, as functions of pytrees.

LocalSGD: Stich, "Local SGD converges fast and communicates little" (2019). DiLoCo: Douillard et al., "DiLoCo:
Distributed low-communication training of language models" (2023).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rueda.jax.collectives import allreduce
from rueda.jax.compression import Compression, Compressor
from rueda.operations import check_compression, set_size
from rueda.policy import Average, check_every, check_outer
from rueda.process_sets import ProcessSet, global_process_set

_numbers = itertools.count(1)  # of exchanges, in the order the program makes them


class Exchange(NamedTuple):
    """init(params) gives the first state; update(params, state) the next parameters and the next state, after
    each step. Both are pure and may be jitted.
    """

    init: Callable[[Any], Any]
    update: Callable[[Any, Any], Any]


class LocalSGDState(NamedTuple):
    """steps: taken until now."""

    steps: Any


class DiLoCoState(NamedTuple):
    """agreed: the parameters after the last exchange; velocity: the outer momentum. Equal on all ranks."""

    steps: Any
    agreed: Any
    velocity: Any


def LocalSGD(every: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Exchange:
    """Averages the parameters of all ranks after each `every` steps, to the same bits on every rank.

    name: prefix of the parameters' names, equal on all ranks; None counts the exchanges made. All ranks must
    call update equally often. Raises ValueError for wrong arguments.

    >>> exchange = hvd.LocalSGD(every=8)
    >>> state = exchange.init(params)
    >>> params, state = exchange.update(params, state)  # after each step, inside jit or outside
    """
    check_every("LocalSGD", every)
    prefix = name if name is not None else f"local_sgd.{next(_numbers)}"

    def init(params: Any) -> LocalSGDState:
        return LocalSGDState(jnp.zeros((), jnp.int32))

    def update(params: Any, state: LocalSGDState) -> tuple[Any, LocalSGDState]:
        steps = state.steps + 1
        if set_size(process_set, "LocalSGD") == 1:
            return params, LocalSGDState(steps)

        def average(tree: Any) -> Any:
            return allreduce(tree, prefix, Average, process_set=process_set)

        return jax.lax.cond(steps % every == 0, average, lambda tree: tree, params), LocalSGDState(steps)

    return Exchange(init, update)


def DiLoCo(
    every: int,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    nesterov: bool = True,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Exchange:
    """After each `every` steps, SGD with momentum makes a step with the average of how far ranks have come.

    Arguments as for LocalSGD. outer_lr, outer_momentum, nesterov: of the outer optimizer. compression: of
    what travels. init must see equal parameters on all ranks.

    >>> exchange = hvd.DiLoCo(every=50, compression=hvd.Compression.fp16)
    >>> state = exchange.init(params)
    >>> params, state = exchange.update(params, state)
    """
    check_every("DiLoCo", every)
    check_compression(compression)
    lr, momentum = check_outer(outer_lr, outer_momentum)
    prefix = name if name is not None else f"diloco.{next(_numbers)}"

    def init(params: Any) -> DiLoCoState:
        agreed = jax.tree.map(jnp.array, params)
        return DiLoCoState(jnp.zeros((), jnp.int32), agreed, jax.tree.map(jnp.zeros_like, params))

    def meet(params: Any, agreed: Any, velocity: Any) -> Any:
        change = jax.tree.map(jnp.subtract, agreed, params)
        if set_size(process_set, "DiLoCo") > 1:
            change = allreduce(change, prefix, Average, process_set=process_set, compression=compression)
        velocity = jax.tree.map(lambda v, c: momentum * v + c, velocity, change)
        ahead = jax.tree.map(lambda v, c: c + momentum * v, velocity, change) if nesterov else velocity
        agreed = jax.tree.map(lambda a, s: a - lr * s, agreed, ahead)
        return agreed, agreed, velocity

    def update(params: Any, state: DiLoCoState) -> tuple[Any, DiLoCoState]:
        steps = state.steps + 1
        parts = (params, state.agreed, state.velocity)
        params, agreed, velocity = jax.lax.cond(
            steps % every == 0, lambda one: meet(*one), lambda one: one, parts
        )
        return params, DiLoCoState(steps, agreed, velocity)

    return Exchange(init, update)
