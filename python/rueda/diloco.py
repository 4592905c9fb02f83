"""What DiLoCo is in every front end: fragments that are exchanged in turns, and the outer optimizer. Pure.

PyTorch uses its own SGD as the outer optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rueda.policy import check_count, split_evenly

TOO_MANY = (
    "{what}: fragments is {fragments}, but there are {count} parameters that are trained and {every} steps "
    "from one exchange to the next; each fragment needs a parameter and a step of its own."
)
TOO_OFTEN = (
    "{what}: overlap needs every to be at least 2, because the step during which changes travel is lost; "
    "with every=1 all would be."
)


@dataclass(frozen=True)
class Turns:
    """When fragments are exchanged. what: the name of the wrapper. every: steps from one exchange of a
    fragment to its next. overlap: changes travel during one more step. Raises ValueError for what cannot be.
    """

    what: str
    every: int
    fragments: int = 1
    overlap: bool = False

    def __post_init__(self) -> None:
        why = "the parameters are exchanged in so many parts"
        check_count(self.what, "fragments", self.fragments, 1, why)
        if self.overlap and self.every < 2:
            raise ValueError(TOO_OFTEN.format(what=self.what))

    def split(self, parameters: Sequence[Any]) -> list[list[Any]]:
        """The fragments of these parameters, in order. Raises ValueError if there are too few."""
        count = len(parameters)
        if self.fragments > min(self.every, max(1, count)):
            sentence = TOO_MANY.format(
                what=self.what, fragments=self.fragments, count=count, every=self.every
            )
            raise ValueError(sentence)
        return split_evenly(parameters, self.fragments)

    def is_due(self, place: int, step: Any) -> Any:
        """Whether a fragment is exchanged after a step. step: 1 for the first, an int or an integer of JAX.

        The fragments share the steps evenly; the last is exchanged after `every` steps.
        """
        return (step > 0) & (step % self.every == (place + 1) * self.every // self.fragments % self.every)


class OuterOptimizer(NamedTuple):
    """SGD with momentum on lists of arrays, of numpy or of JAX. See policy.check_outer."""

    lr: float
    momentum: float
    nesterov: bool

    def step(
        self, agreed: Sequence[Any], velocity: Sequence[Any], changes: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The next parameters and the next momentum, in new arrays. changes: averaged over ranks."""
        moved = [self.momentum * v + c for v, c in zip(velocity, changes)]
        ahead = [c + self.momentum * v for v, c in zip(moved, changes)] if self.nesterov else moved
        return [a - self.lr * s for a, s in zip(agreed, ahead)], moved
