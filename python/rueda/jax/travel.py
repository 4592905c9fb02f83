"""How arrays of one step are combined while the next computes: concrete ones are started ahead."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from rueda.ahead import Ahead
from rueda.jax.collectives import is_traced, reduce_gradients, start_reducing
from rueda.jax.compression import Compressor
from rueda.operations import set_size
from rueda.process_sets import ProcessSet


def _is_same(one: Any, other: Any) -> bool:
    """Whether an array is the other one, or a copy of it, as from a checkpoint of one rank alone."""
    return one is other or np.asarray(one).tobytes() == np.asarray(other).tobytes()


class Terms(NamedTuple):
    """How arrays are combined over all ranks of a set."""

    process_set: ProcessSet
    compression: type[Compressor]
    factors: tuple[int, float, float]  # op, prescale, postscale
    step: int = 0  # what steps by them, for the timeline; 0: nothing does


class Travel:
    """Combines arrays of a tree. Trees keep the paths of all leaves, after which they are named."""

    def __init__(self, what: str, name: str, terms: Terms) -> None:
        """what: the name of the wrapper. name: the prefix of all names."""
        self._what, self._name, self._terms = what, name, terms
        self._ahead: dict[int, Ahead] = {}  # by the first place

    @property
    def size(self) -> int:
        """Number of ranks that combine."""
        return set_size(self._terms.process_set, self._what)

    @property
    def _is_alone(self) -> bool:
        return self.size == 1

    def combine(self, structure: Any, places: list[int], arrays: list[Any]) -> list[Any]:
        """The arrays at these places of a tree, combined; that of concrete ones may have been started."""
        if not is_traced(arrays):
            taken = self._ahead_of(places).take()
            if taken is not None and all(_is_same(mine, one) for mine, one in zip(arrays, taken[0])):
                return taken[1]
        if self._is_alone or not places:
            return arrays
        terms, tree = self._terms, self._tree(structure, places, arrays)
        return jax.tree.leaves(
            reduce_gradients(
                tree, self._name, terms.factors, terms.process_set, terms.compression, terms.step
            )
        )

    def _ahead_of(self, places: list[int]) -> Ahead:
        return self._ahead.setdefault(places[0] if places else -1, Ahead())

    def start(self, structure: Any, places: list[int], arrays: list[Any]) -> None:
        """Starts combining, if the arrays are concrete."""
        if is_traced(arrays):
            return
        ahead = self._ahead_of(places)
        ahead.take()  # of a training that was left there
        if not places or self._is_alone:
            return
        terms, tree = self._terms, self._tree(structure, places, arrays)
        name = f"{self._name}.ahead"  # a program that is traced may combine others before these are awaited
        finish = start_reducing(tree, name, terms.factors, terms.process_set, terms.compression, terms.step)
        ahead.start(arrays, lambda: jax.tree.leaves(finish()))

    @staticmethod
    def _tree(structure: Any, places: list[int], arrays: list[Any]) -> Any:
        leaves: list[Any] = [None] * structure.num_leaves  # None is no leaf: the others keep their paths
        for place, array in zip(places, arrays):
            leaves[place] = array
        return structure.unflatten(leaves)
