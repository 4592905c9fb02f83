"""On which nodes of a Ray cluster an elastic job asks for how many slots. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rueda.ray import bundles

MOST_REST_SECONDS = 60.0


class Node(NamedTuple):
    """A node that is alive."""

    id: str
    address: str
    room: int  # so many slots fit besides what runs there


def rooms(
    nodes: Sequence[Mapping[str, object]],
    available: Mapping[str, Mapping[str, float]] | None,
    needs: Mapping[str, float],
    allowed: Mapping[str, int] | None,
) -> list[Node]:
    """The living nodes. nodes: as ray.nodes() tells; available: what is free of each, by its id, if Ray
    tells it; allowed: slots by address, where somebody else decides; all of a node, used or not.
    """
    found = []
    for node in nodes:
        if not node.get("Alive"):
            continue
        id_, address = str(node["NodeID"]), str(node["NodeManagerAddress"])
        total = node["Resources"]
        assert isinstance(total, Mapping)
        room = bundles.fits(total if available is None else available.get(id_, {}), needs)
        if allowed is not None:
            room = min(room, allowed.get(address, 0))
        found.append(Node(id_, address, room))
    return found


@dataclass
class Wishes:
    """What was asked of which node. most: slots that the job can use."""

    most: int
    may_add: bool = True  # to a node that gives some already
    _held: dict[int, tuple[str, int]] = field(default_factory=dict)  # node and slots, by number of the wish
    _pending: set[int] = field(default_factory=set)
    _failures: dict[str, int] = field(default_factory=dict)
    _rests_until: dict[str, float] = field(default_factory=dict)
    _count: int = 0

    def next(
        self, nodes: Sequence[Node], now: float, allowed: Mapping[str, int] | None = None
    ) -> list[tuple[int, Node, int]]:
        """The wishes that are due: (number, node, slots)."""
        wanted = self.most - sum(slots for _, slots in self._held.values())
        due = []
        for node in nodes:
            own = [number for number, (id_, _) in self._held.items() if id_ == node.id]
            slots = min(node.room, wanted)
            if allowed is not None:
                slots = min(slots, allowed.get(node.address, 0) - sum(self._held[one][1] for one in own))
            is_busy = any(one in self._pending for one in own) or (own and not self.may_add)
            if slots < 1 or is_busy or now < self._rests_until.get(node.id, 0.0):
                continue
            self._count += 1
            self._held[self._count] = (node.id, slots)
            self._pending.add(self._count)
            wanted -= slots
            due.append((self._count, node, slots))
        return due

    def granted(self, number: int) -> None:
        """The actor is there."""
        self._pending.discard(number)

    def ended(self, number: int, now: float) -> None:
        """The actor is gone, or did not come: its node rests for 1, 2, 4 and at last 60 s."""
        id_, _ = self._held.pop(number)
        self._pending.discard(number)
        count = self._failures[id_] = self._failures.get(id_, 0) + 1
        self._rests_until[id_] = now + min(MOST_REST_SECONDS, 2.0 ** min(count - 1, 10))
