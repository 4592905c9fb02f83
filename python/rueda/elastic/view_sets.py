"""Process sets of an elastic job: they end with a view, and are made again for the next one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rueda import epochs, errors
from rueda.basics import basics
from rueda.elastic.membership import View
from rueda.process_sets import ProcessSet, process_set_table

DROPPED = (
    "The process sets of the ranks {sets} ended with the last view; register them as "
    "hvd.elastic.process_sets(f), and f(rank, size) says those of each view."
)


class ViewSets(Sequence[ProcessSet]):
    """The process sets that a function names; in each view others. Indexes are those of its list."""

    def __init__(self, choose: Callable[[int, int], Any]) -> None:
        self._choose = choose
        self._sets: list[ProcessSet] = []
        self._epoch = epochs.NONE

    def wanted(self) -> list[ProcessSet]:
        """Those of the current epoch, for the first time or again. Not registered yet."""
        chosen = self._choose(basics.rank(), basics.size())
        self._sets = [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in chosen]
        return self._sets

    def register(self) -> None:
        """Collective: registers those of the current epoch, if that has not been done."""
        if self._epoch == epochs.current():
            return
        sets = self.wanted()
        process_set_table.keep([tuple(one.ranks or ()) for one in sets])
        for one in sets:
            ranks = tuple(one.ranks or ())
            process_set_table.adopt_kept(ranks)
            one.process_set_id = process_set_table.kept_id(ranks)
        self._epoch = epochs.current()

    def __len__(self) -> int:
        return len(self._current())

    def __getitem__(self, index: Any) -> Any:
        return self._current()[index]

    def __iter__(self) -> Iterator[ProcessSet]:
        return iter(self._current())

    def _current(self) -> list[ProcessSet]:
        epochs.require()
        if self._epoch != epochs.current():
            raise errors.internal_error(
                "These process sets belong to an earlier view; those of this one are there once "
                "hvd.elastic.run calls the function that trains."
            )
        return self._sets


_registered: list[ViewSets] = []


def process_sets(choose: Callable[[int, int], Any]) -> ViewSets:
    """Process sets that are made anew in each view of an elastic job.

    choose(rank, size) returns a list of process sets, each a ProcessSet or a list of ranks; the same list on
    all ranks. Collective. Returns a sequence whose members are always those of the current view.

    >>> halves = hvd.elastic.process_sets(lambda rank, size: [range(size // 2), range(size // 2, size)])
    >>> hvd.allreduce(x, process_set=halves[0])
    """
    if not callable(choose):
        raise TypeError(
            f"elastic.process_sets takes a function of (rank, size) that returns lists of ranks, not "
            f"{type(choose).__name__}."
        )
    sets = ViewSets(choose)
    if epochs.current() != epochs.NONE:
        sets.register()
    _registered.append(sets)
    return sets


def renew(view: View) -> None:
    """Collective, in a new view: registers its sets, in the order in which the program asked for them."""
    for sets in _registered:
        sets.register()


def note_end() -> None:
    """An epoch is about to end: says which sets will be missed."""
    kept = {tuple(one.ranks or ()) for sets in _registered for one in sets._sets}
    table = process_set_table.ids_and_ranks()
    lost = [ranks for set_id, ranks in table.items() if set_id != 0 and tuple(ranks) not in kept]
    if lost and basics.rank() == 0:
        print(f"rueda: {DROPPED.format(sets=lost)}", file=sys.stderr, flush=True)
