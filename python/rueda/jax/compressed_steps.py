"""Optimizers whose gradients travel through PowerSGD or TopK, whose state is part of the optimizer's."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rueda import _core, basics
from rueda.compression import Exchange, Team
from rueda.compression_choices import OTHER_KIND, OTHER_SHAPE
from rueda.jax.collectives import describe, exchange
from rueda.operations import set_size
from rueda.process_sets import ProcessSet
from rueda.pure_compressors import Arrays, PureCompressor, exchange_all

ANEW = "call init for a new state"

ARRAYS = Arrays(
    np=jnp,
    cast=lambda array, kind: array.astype(kind),
    largest=lambda vector, count: lax.top_k(vector, count)[1],
    scatter=lambda indices, values, length: jnp.zeros(length, values.dtype).at[indices].add(values),
    kind=lambda array: str(array.dtype),
)


class CompressedState(NamedTuple):
    """The state of an optimizer whose gradients are compressed. rank: whose residuals these are, int32.
    kept: arrays by compressor, path of the gradient, and what they are. inner: the wrapped optimizer's state.
    """

    rank: Any
    kept: dict[str, dict[str, dict[str, Any]]]
    inner: Any


@dataclass(frozen=True)
class CompressedSteps:
    """How the gradients of one optimizer are reduced by a compressor with state."""

    compressor: PureCompressor
    prefix: str  # of the names of gradients
    terms: tuple[int, float, float]  # op, prescale, postscale
    process_set: ProcessSet
    step: int  # what the timeline knows its steps by

    def init(self, params: Any) -> tuple[Any, dict[str, Any]]:
        """(rank, kept) at first. params: a pytree of arrays; what does not pay has no state."""
        ranks = set_size(self.process_set, "DistributedOptimizer")
        kept: dict[str, Any] = {}
        warning = ""
        for name, leaf in _named(params):
            shape = jnp.shape(leaf)
            state = self.compressor.begin(name, shape, str(jnp.result_type(leaf)), ranks)
            if state is not None:
                kept[name] = {key: jnp.asarray(value) for key, value in state.items()}
            warning = warning or self.compressor.warning(name, shape, ranks)
        if warning and _rank() == 0:
            warnings.warn(warning, stacklevel=4)
        return jnp.asarray(_rank(), jnp.int32), {self.compressor.label: kept}

    def reduce(self, gradients: Any, state: CompressedState) -> tuple[Any, dict[str, Any]]:
        """The combined gradients, and what is kept next."""
        kept = self._kept_of(state)
        named = _named(gradients)
        self._check_shapes(named, kept)
        members = max(1, set_size(self.process_set, "DistributedOptimizer"))
        divisor = members if self.terms[0] == _core.AVERAGE else 1
        team = Team(self.process_set.rank() or 0, members, divisor)
        work = {}
        for name, gradient in named:
            if name in kept:
                own = _of_this_rank(kept[name], state.rank)
                work[name] = self.compressor.reduce(name, gradient, own, team, ARRAYS)
        reduced, following = self._run(work, {name: one for name, one in named if name not in kept})
        structure: Any = jax.tree_util.tree_structure(gradients)
        combined = structure.unflatten([reduced[name] for name, _ in named])
        return combined, {self.compressor.label: {**kept, **following}}

    def _run(self, work: dict[str, Any], plain: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results by name, and the next states."""

        def travel(wanted: dict[str, Exchange], exact: dict[str, Any], is_last: bool) -> Any:
            return self._travel(wanted, exact, self.step if is_last else 0)

        return exchange_all(work, plain, self.compressor.turns, travel)

    def _travel(
        self, wanted: dict[str, Exchange], plain: dict[str, Any], step: int
    ) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        op, prescale, postscale = self.terms
        factors = {"prescale": prescale, "postscale": postscale, "step": step}
        rows, sums = _parts(wanted)
        sums += [(name, name, array) for name, array in plain.items()]
        back: dict[str, list[Any]] = {name: [] for name in [*wanted, *plain]}
        for some, spec in (
            # Sums first: outside jit, ranks that disagree are told so by them.
            (sums, describe(_core.ALLREDUCE, self.process_set, op=op, **factors)),
            (rows, describe(_core.ALLGATHER, self.process_set)),
        ):
            arrays = exchange([(full, array) for _, full, array in some], self.prefix, spec)
            for (name, _, _), array in zip(some, arrays):
                back[name].append(array)
        exact = {name: back.pop(name)[0] for name in plain}
        return back, exact

    def _kept_of(self, state: Any) -> dict[str, Any]:
        label = self.compressor.label
        if not isinstance(state, CompressedState):
            saved = "none"
        elif label in state.kept:
            return state.kept[label]
        else:
            saved = ", ".join(state.kept)
        raise ValueError(OTHER_KIND.format(saved=saved, mine=repr(self.compressor), instead=ANEW))

    def _check_shapes(self, named: list[tuple[str, Any]], kept: dict[str, Any]) -> None:
        for name, gradient in named:
            residual = kept.get(name, {}).get("residual")
            if residual is not None and residual.shape != gradient.shape:
                shapes = {"saved": list(residual.shape), "shape": list(gradient.shape)}
                mine = repr(self.compressor)
                raise ValueError(OTHER_SHAPE.format(mine=mine, name=name, instead=ANEW, **shapes))


def compressed(optimizer: Any, steps: CompressedSteps) -> tuple[Any, Any]:
    """(init, update) of the optimizer with compressed gradients."""

    def init(params: Any) -> CompressedState:
        rank, kept = steps.init(params)
        return CompressedState(rank, kept, optimizer.init(params))

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        kept = steps._kept_of(state)
        if set_size(steps.process_set, "DistributedOptimizer") == 1:
            following = {steps.compressor.label: kept}
        else:
            updates, following = steps.reduce(updates, state)
        made, inner = optimizer.update(updates, state.inner, params, **extra)
        return made, CompressedState(jnp.asarray(_rank(), jnp.int32), following, inner)

    return init, update


def _parts(wanted: dict[str, Exchange]) -> tuple[list[Any], list[Any]]:
    """What is gathered, and what is combined: (gradient, full name, array) each."""
    rows: list[tuple[str, str, Any]] = []
    sums: list[tuple[str, str, Any]] = []
    for name, one in wanted.items():
        sums += [(name, f"{name}.{ending}" if ending else name, array) for ending, array in one.beside]
        for ending, array in one.tensors:
            (rows if one.is_gathered else sums).append((name, f"{name}.{ending}" if ending else name, array))
    return rows, sums


def _rank() -> int:
    return basics.basics.rank()


def _of_this_rank(kept: dict[str, Any], rank: Any) -> dict[str, Any]:
    """What another rank has not sent must not be sent by this one too, which may have loaded it."""
    if "residual" not in kept:
        return kept
    residual = kept["residual"]
    return {**kept, "residual": jnp.where(rank == _rank(), residual, jnp.zeros_like(residual))}


def _named(tree: Any) -> list[tuple[str, Any]]:
    with_paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in with_paths]
