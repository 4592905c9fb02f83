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

from rueda.diloco import OuterOptimizer, Turns
from rueda.jax.collectives import allreduce, is_traced
from rueda.jax.compression import Compression, Compressor
from rueda.jax.travel import Terms, Travel
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
    """agreed: the parameters after the last exchange; velocity: the outer momentum. Equal on all ranks.
    changes: of this rank, which travel during the next step; None without overlap.
    """

    steps: Any
    agreed: Any
    velocity: Any
    changes: Any = None


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


class _Fragment(NamedTuple):
    """The leaves of a fragment. changes: of this rank, under way; [] without overlap."""

    params: list[Any]
    agreed: list[Any]
    velocity: list[Any]
    changes: list[Any]

    def lost(self) -> list[Any]:
        """What this rank's parameters have lost since the last exchange."""
        return [agreed - mine for agreed, mine in zip(self.agreed, self.params)]

    def after(self, outer: OuterOptimizer, averages: list[Any]) -> _Fragment:
        """The outer step."""
        agreed, velocity = outer.step(self.agreed, self.velocity, averages)
        return _Fragment(agreed, agreed, velocity, self.changes)


class _DiLoCo:
    """DiLoCo as functions of pytrees."""

    def __init__(self, turns: Turns, outer: OuterOptimizer, travel: Travel) -> None:
        self._turns, self._outer, self._travel = turns, outer, travel

    def init(self, params: Any) -> DiLoCoState:
        """The first state."""
        self._turns.split(jax.tree.leaves(params))  # refuses too few
        agreed, zeros = jax.tree.map(jnp.array, params), jax.tree.map(jnp.zeros_like, params)
        return DiLoCoState(jnp.zeros((), jnp.int32), agreed, zeros, zeros if self._turns.overlap else None)

    def update(self, params: Any, state: DiLoCoState) -> tuple[Any, DiLoCoState]:
        """The next parameters and the next state."""
        steps = state.steps + 1
        structure: Any = jax.tree.structure(params)
        trees = [jax.tree.leaves(one) for one in (params, state.agreed, state.velocity, state.changes)]
        is_concrete = not is_traced([steps, *trees[0]])
        number = int(steps) if is_concrete else steps  # does not wait for the step
        for place, places in enumerate(self._turns.split(range(structure.num_leaves))):
            fragment = _Fragment(*([leaves[at] for at in places] if leaves else [] for leaves in trees))
            for leaves, part in zip(trees, self._exchange(place, number, fragment, (structure, places))):
                for at, leaf in zip(places, part):
                    leaves[at] = leaf
        params, agreed, velocity = (structure.unflatten(leaves) for leaves in trees[:3])
        changes = structure.unflatten(trees[3]) if self._turns.overlap else None
        return params, DiLoCoState(steps, agreed, velocity, changes)

    def _exchange(self, place: int, step: Any, fragment: _Fragment, where: tuple[Any, list[int]]) -> Any:
        def average(changes: list[Any]) -> list[Any]:
            return self._travel.combine(*where, changes)

        def meet(one: _Fragment) -> _Fragment:
            return one.after(self._outer, average(one.lost()))

        def arrive(one: _Fragment) -> _Fragment:
            return one.after(self._outer, average(one.changes))

        def leave(one: _Fragment) -> _Fragment:
            changes = one.lost()
            self._travel.start(*where, changes)
            return one._replace(changes=changes)

        if not self._turns.overlap:
            return _when(self._turns.is_due(place, step), meet, fragment)
        fragment = _when(self._turns.is_due(place, step - 1), arrive, fragment)
        return _when(self._turns.is_due(place, step), leave, fragment)


def _when(condition: Any, change: Callable[[_Fragment], _Fragment], fragment: _Fragment) -> _Fragment:
    """The fragment, changed if the condition holds: a bool, or a value of a program that is traced."""
    if isinstance(condition, bool):
        return change(fragment) if condition else fragment
    changed: _Fragment = jax.lax.cond(condition, change, lambda same: same, fragment)
    return changed


def DiLoCo(
    every: int,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    nesterov: bool = True,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
    *,
    fragments: int = 1,
    overlap: bool = False,
) -> Exchange:
    """After each `every` steps, SGD with momentum makes a step with the average of how far ranks have come.

    Arguments as for LocalSGD. outer_lr, outer_momentum, nesterov: of the outer optimizer. compression: of
    what travels. fragments: the leaves are exchanged in so many parts, which take turns. overlap: a part
    travels during one more step, which is then lost for this part; call update outside jit, because inside
    the results are the same, but nothing travels before the next call. init must see equal parameters on all
    ranks.

    >>> exchange = hvd.DiLoCo(every=50, compression=hvd.Compression.fp16)
    >>> state = exchange.init(params)
    >>> params, state = exchange.update(params, state)
    """
    check_every("DiLoCo", every)
    check_compression(compression)
    outer = OuterOptimizer(*check_outer(outer_lr, outer_momentum), nesterov)
    turns = Turns("DiLoCo", every, fragments, bool(overlap))
    prefix = name if name is not None else f"diloco.{next(_numbers)}"
    travel = Travel("DiLoCo", prefix, Terms(process_set, compression, (Average, 1.0, 1.0)))
    parts = _DiLoCo(turns, outer, travel)
    return Exchange(parts.init, parts.update)
