"""Which hosts the launcher of an elastic job is told of, from offers that come and go. Values in, values out.

An *offer* is an actor or a task that holds slots on its machine. One offer of each machine, or of each
executor there, runs the agent: the leader. For the launcher each agent is a host: if it ends, the next one on
that machine is another host, with another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

SETTLE_SECONDS = 0.5  # tasks of one machine come one after the other, and the agent must know their GPUs


@dataclass(frozen=True)
class Offer:
    """What an actor or a task offers."""

    number: int  # counts them in the order of their arrival
    address: str  # of its machine, where the other ranks reach it
    host_key: str  # equal for offers that are lost together and share a kernel and a network namespace
    slots: int = 1
    gpus: tuple[str, ...] = ()


@dataclass
class Host:
    """A machine with an agent, as the launcher sees it."""

    name: str
    leader: int
    gpus: tuple[str, ...]  # of the offers that were there when it was made: its ranks see these


@dataclass
class _Machine:
    offers: list[Offer] = field(default_factory=list)
    changed: float = 0.0
    lives: int = 0
    host: Optional[Host] = None


class Hosts:
    """The offers of a job. One thread at a time."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._machines: dict[str, _Machine] = {}
        self._names: set[str] = set()

    def add(self, offer: Offer, now: float) -> None:
        """Another offer. Its machine is not listed before it has settled."""
        machine = self._machines.setdefault(offer.host_key, _Machine())
        machine.offers.append(offer)
        machine.changed = now

    def remove(self, number: int) -> None:
        """This offer is gone, and with the leader its host."""
        for machine in self._machines.values():
            machine.offers = [one for one in machine.offers if one.number != number]
            if machine.host is not None and machine.host.leader == number:
                machine.host = None

    def listed(self, now: float) -> list[tuple[str, int]]:
        """The names of the hosts, and how many slots each has."""
        found = []
        for machine in self._machines.values():
            if machine.host is None and machine.offers and now >= machine.changed + SETTLE_SECONDS:
                machine.host = self._make(machine)
            if machine.host is not None and (slots := _slots(machine.host, machine.offers)) > 0:
                found.append((machine.host.name, slots))
        return found

    def find(self, name: str) -> Optional[Host]:
        """The host of this name; None if it is gone."""
        hosts = (machine.host for machine in self._machines.values())
        return next((host for host in hosts if host is not None and host.name == name), None)

    def _make(self, machine: _Machine) -> Host:
        leader = machine.offers[0]
        gpus = tuple(dict.fromkeys(gpu for offer in machine.offers for gpu in offer.gpus))
        # The launcher must not take it for a name of its own machine, where it starts agents by itself.
        stem = name = f"{self._prefix}-{leader.address.replace(':', '-')}"
        while name in self._names:
            machine.lives += 1
            name = f"{stem}.{machine.lives}"
        self._names.add(name)
        return Host(name, leader.number, gpus)


def _slots(host: Host, offers: Sequence[Offer]) -> int:
    """Slots whose ranks find their GPUs: those of an agent that runs do not change."""
    return sum(offer.slots for offer in offers if set(offer.gpus) <= set(host.gpus))
