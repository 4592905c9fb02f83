"""Which samples of an epoch have been used: each is used once, however often the ranks of the job change.

There is one order of the samples for each (seed, epoch), and a cursor in it. A step takes the samples from
the cursor on, as many as all ranks together need, and divides them evenly. The cursor is a part of the state:
what was used after the last commit is used again, because those steps are undone, and what was used before is
not.

The last step of an epoch has fewer samples than the others. It is not padded with samples that were used
already: each rank's loss is weighted by its number of samples, so that the average over ranks is the average
over samples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rueda.policy import check_count, even_share

World = Callable[[], "tuple[int, int]"]  # (rank, size)


@dataclass(frozen=True)
class Share:
    """What one rank has of a step: positions from start to stop of `total` samples, which count by weight."""

    start: int
    stop: int
    total: int
    weight: float  # what the mean of this rank's losses is multiplied by


def share_of(total: int, rank: int, size: int) -> Share:
    """This rank's part of a step of so many samples. The mean over ranks of weight · (mean of the rank's
    samples) is the mean over all samples.
    """
    start = (
        sum(even_share(total, size, one) for one in range(rank)) if total % size else rank * (total // size)
    )
    count = even_share(total, size, rank)
    return Share(start, start + count, total, size * count / total if total else 0.0)


def rank_and_size() -> tuple[int, int]:
    """Of the current view."""
    from rueda.basics import basics

    return basics.rank(), basics.size()


class BaseLedger:
    """What ledgers have in common: batch size, epoch, cursor, and how they are saved."""

    def __init__(self, batch_size: int, world: World) -> None:
        check_count(
            type(self).__name__, "batch_size", batch_size, 1, "a rank takes so many samples in a step"
        )
        self.batch_size = batch_size
        self.epoch = 0
        self.cursor = 0  # samples of this epoch that all ranks together have used
        self._world = world
        self._start = 0  # the cursor at which the current iteration began
        self._step_samples = 0  # of all ranks, in its full steps
        self._weights: dict[int, float] = {}  # by the number of the step in the current iteration

    def weight(self, batch_idx: int) -> float:
        """What to multiply the mean loss of this batch by; 1.0 but for the last one of an epoch.

        batch_idx: as in enumerate(loader), from where the iteration began.
        """
        return self._weights.get(batch_idx, 1.0)

    def record_batch(self, batch_idx: int) -> None:
        """All ranks have used their parts of this batch. Before the commit of the step."""
        used = self._start + (batch_idx + 1) * self._step_samples
        self.cursor = used if self._length() is None else min(used, self._length() or 0)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, with an order of its own. At the end of the one before."""
        self.epoch, self.cursor = epoch, 0
        self.reset()

    def reset(self) -> None:
        """The ranks have changed: iterations begin at the cursor."""
        self._begin()

    def state_dict(self) -> dict[str, Any]:
        """What a commit keeps."""
        return {"epoch": self.epoch, "cursor": self.cursor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes back to a commit."""
        self.epoch, self.cursor = int(state_dict["epoch"]), int(state_dict["cursor"])
        self.reset()

    def _begin(self) -> None:
        self._start = self.cursor
        self._step_samples = 0
        self._weights = {}

    def _begin_iteration(self) -> tuple[int, int]:
        rank, size = self._world()
        self._begin()
        self._step_samples = self.batch_size * size
        return rank, size

    def _length(self) -> int | None:
        """The number of samples of an epoch, where it is known."""
        return None


class Ledger(BaseLedger):
    """The samples of data with an index, such as arrays and files of known size.

    length: number of samples. batch_size: of one rank. Iterating yields the indices of each batch of this
    rank, from the cursor to the end of the epoch. A rank for which the last step has no sample gets one with
    the weight 0, because all ranks take part in the step.

    >>> ledger = hvd.elastic.Ledger(len(x), batch_size=32)
    >>> for i, batch in enumerate(ledger):
    ...     step(x[batch], y[batch], ledger.weight(i))
    ...     ledger.record_batch(i)
    ...     state.commit()
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        world: World = rank_and_size,
    ) -> None:
        super().__init__(batch_size, world)
        check_count(type(self).__name__, "length", length, 0, "it is a number of samples")
        self.length, self.shuffle, self.seed = length, shuffle, seed

    def order(self) -> list[int]:
        """The samples of this epoch in the order in which they are used."""
        indices = list(range(self.length))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        return indices

    def __len__(self) -> int:
        """Steps from where an iteration would begin to the end of the epoch; the same on all ranks."""
        _, size = self._world()
        return -(-(self.length - self.cursor) // (self.batch_size * size))

    def __iter__(self) -> Iterator[list[int]]:
        rank, size = self._begin_iteration()
        order = self.order()
        for step, at in enumerate(range(self._start, self.length, self._step_samples)):
            total = min(self._step_samples, self.length - at)
            share = share_of(total, rank, size)
            if share.weight != 1.0:
                self._weights[step] = share.weight
            yield order[at + share.start : at + share.stop] or [order[at]]

    def _length(self) -> int | None:
        return self.length


class BlockLedger(BaseLedger):
    """Data that come one after the other, and whose number is known only at the end. Subclasses say what the
    block of a step is.
    """

    def __init__(self, batch_size: int, world: World) -> None:
        super().__init__(batch_size, world)
        self._end: int | None = None  # known once a rank has come there

    def _blocks(self, start: int) -> Iterable[Any]:
        """The samples from there on, in blocks of a step of all ranks; the last may be shorter."""
        raise NotImplementedError

    def _count(self, block: Any) -> int:
        """How many samples it has."""
        raise NotImplementedError

    def _part(self, block: Any, start: int, stop: int) -> Any:
        """These of its samples."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        rank, size = self._begin_iteration()
        at = self._start
        for step, block in enumerate(self._blocks(at)):
            count = self._count(block)
            share = share_of(count, rank, size)
            self._weights[step] = share.weight
            at += count
            if count < self._step_samples:
                self._end = at
            start, stop = (share.start, share.stop) if share.start < share.stop else (0, 1)
            yield self._part(block, start, stop), share.weight
        self._end = at

    def _begin(self) -> None:
        super()._begin()
        self._end = None

    def _length(self) -> int | None:
        return self._end


class StreamLedger(BlockLedger):
    """The samples of data without an index: anything that can be iterated again from its beginning.

    source(epoch) returns an iterable, the same on all ranks. Iterating yields (items of this rank, weight).
    The positions of a stream are lent to ranks in steps: rank r has the r-th part of each. All ranks read the
    whole stream, so each knows what the others have used in a step, those that were lost in it as well. Where
    the data are in several files, a Ledger of the samples reads less.

    >>> lines = hvd.elastic.StreamLedger(lambda epoch: open("corpus.txt"), batch_size=32)
    >>> for i, (batch, weight) in enumerate(lines):
    ...     step(batch, weight)
    ...     lines.record_batch(i)
    """

    def __init__(
        self, source: Callable[[int], Iterable[Any]], batch_size: int, world: World = rank_and_size
    ) -> None:
        super().__init__(batch_size, world)
        self._source = source

    def _blocks(self, start: int) -> Iterator[list[Any]]:
        stream = islice(iter(self._source(self.epoch)), start, None)
        while block := list(islice(stream, self._step_samples)):
            yield block

    def _count(self, block: list[Any]) -> int:
        return len(block)

    def _part(self, block: list[Any], start: int, stop: int) -> list[Any]:
        return block[start:stop]
