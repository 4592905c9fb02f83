"""Tensors that share memory, and the order of operations that work on copies of them.

The engine runs operations in flight that share memory one after the other, but it sees only the memory in
which it works. Where a tensor is copied for it, the copy is taken when the operation starts, and the result
may be brought back when it ends. Therefore such an operation starts only when earlier ones that it would
disturb have ended, and later ones start only when its result is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd
from typing import Any

import torch

from rueda.open_operations import InFlight, Repeated, open_operations, writing_back
from rueda.torch import tensors as memory


@dataclass(frozen=True)
class Use:
    """The tensors of its caller that an operation reads and writes."""

    reads: Sequence[torch.Tensor] = ()
    writes: Sequence[torch.Tensor] = ()
    is_copied: bool = False  # the engine gets a copy of some of them, or writes a result that is copied back

    def conflicts_with(self, other: Use) -> bool:
        """Whether the two give another result if they change places, or run at the same time."""
        return (
            _any_shared(self.writes, other.writes)
            or _any_shared(self.writes, other.reads)
            or _any_shared(self.reads, other.writes)
        )

    def wait_for_others(self) -> None:
        """To be called before such an operation takes copies and starts: waits for those in flight that must
        end first. One that fails is told to whoever waits for it.
        """
        if self.is_copied:
            earlier: dict[int, Any] = open_operations
        elif writing_back:
            earlier = writing_back
        else:
            return
        for operation in list(earlier.values()):
            if self.conflicts_with(_use_of(operation)):
                operation.end_early()


def check_apart(word: str, uses: Sequence[Use]) -> None:
    """For what starts together: ValueError if two of them conflict and the engine does not see it."""
    if not any(use.is_copied for use in uses):
        return
    for (one, use), (other, its_use) in combinations(enumerate(uses), 2):
        if (use.is_copied or its_use.is_copied) and use.conflicts_with(its_use):
            raise ValueError(
                f"{word} got tensors {one} and {other} that share memory, and rueda works on a copy of at "
                "least one of them, because it is a list of outputs, conjugated, negated, not contiguous or "
                "on a device that rueda does not use directly; start an operation for each of them instead."
            )


def for_engine(tensors: Sequence[torch.Tensor], is_in_place: bool, word: str) -> list[torch.Tensor]:
    """The tensors of an operation, or copies of those in whose memory the engine cannot work, taken when they
    can be. word: names the operation in the error of check_apart.
    """
    are_direct = [memory.is_direct(one) for one in tensors]
    if writing_back or not all(are_direct):
        uses = [
            Use([one], [one] if is_in_place else (), is_copied=not is_direct)
            for one, is_direct in zip(tensors, are_direct)
        ]
        check_apart(word, uses)
        for use in uses:
            use.wait_for_others()
    return [
        one.detach() if is_direct else memory.copy_for_engine(one)
        for one, is_direct in zip(tensors, are_direct)
    ]


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether writing one may change the other. Never false if so; true for a few that lie between one
    another, such as diagonals, without an element in common. Columns and blocks of a matrix are told apart.
    """
    if one.device != other.device or one.numel() == 0 or other.numel() == 0:
        return False
    ours, theirs = _Place(one), _Place(other)
    return all(_may_meet(ours, theirs, level) for level in {0, *ours.steps, *theirs.steps})


class _Place:
    """The bytes of a strided tensor: runs of equal width, at sums of multiples of some steps."""

    def __init__(self, tensor: torch.Tensor) -> None:
        item = tensor.element_size()
        dimensions = sorted((step * item, size) for step, size in zip(tensor.stride(), tensor.shape))
        self.start = tensor.data_ptr()
        self.run = item
        self.steps: dict[int, int] = {}  # and the distance of its last multiple
        for step, size in dimensions:
            if step <= self.run:  # the runs touch one another
                self.run += step * (size - 1)
            elif size > 1:
                self.steps[step] = self.steps.get(step, 0) + step * (size - 1)

    def width(self, level: int) -> int:
        """Of the runs, with all that steps up to this level reach taken for one run."""
        return self.run + sum(last for step, last in self.steps.items() if step <= level)


def _may_meet(one: _Place, other: _Place, level: int) -> bool:
    """Whether their runs of this level may have a byte in common. They repeat with a period that divides all
    longer steps.
    """
    period = gcd(*(step for step in {*one.steps, *other.steps} if step > level))
    if period == 0:  # one run each
        return one.start < other.start + other.width(level) and other.start < one.start + one.width(level)
    distance = (other.start - one.start) % period
    return distance < one.width(level) or distance + other.width(level) > period


def _any_shared(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return any(share_memory(one, other) for one in some for other in others)


def _use_of(operation: InFlight | Repeated) -> Use:
    used = _tensors_in(operation.used())
    written = operation.written()
    return Use(used, used if written is None else _tensors_in(written))


def _tensors_in(memory: Any) -> list[torch.Tensor]:
    if isinstance(memory, torch.Tensor):
        return [memory]
    if isinstance(memory, (list, tuple)):
        return [tensor for one in memory for tensor in _tensors_in(one)]
    return []
