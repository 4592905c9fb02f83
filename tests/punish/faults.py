"""What is done to a job: kinds of faults, and a program of them from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """How often a fault is drawn beside others, and what it needs."""

    weight: int
    says: str
    members: int = 1  # so many members beyond the least are needed, because it may cost them
    needs_hosts: bool = False  # the ranks run on several hosts
    needs_disk: bool = False  # a file system of the job's own
    ends_somebody: bool = False
    lasts: tuple[float, float] = (0.0, 0.0)  # seconds
    needs_launcher: bool = False  # there is a launcher, which starts others and takes away slots
    needs_members: bool = False  # there is none: the members decide the views
    whole_host: bool = False  # it costs all members of rank 0's host
    ends_job: bool = False  # it is done once, after all others


KINDS = {
    "kill": Kind(10, "SIGKILL of a rank", ends_somebody=True),
    "root": Kind(5, "SIGKILL of rank 0", ends_somebody=True),
    "double": Kind(5, "SIGKILL of two ranks within 0.4 s", members=2, ends_somebody=True, lasts=(0.0, 0.4)),
    "joiner": Kind(
        3, "SIGKILL of a rank, then of the process that takes its place", ends_somebody=True, lasts=(0.0, 1.5)
    ),
    "pause": Kind(4, "SIGSTOP of a rank for 0.2 to 3 s", lasts=(0.2, 3.0)),
    "stop": Kind(1, "SIGSTOP of a rank for 8 s, where 5 are allowed", ends_somebody=True, lasts=(8.0, 8.0)),
    "reset": Kind(4, "reset of all TCP connections of a rank"),
    "leave": Kind(3, "the host or slot of a rank is taken from the job", needs_launcher=True),
    "disk": Kind(2, "the disk of checkpoints and logs is full", needs_disk=True, lasts=(0.5, 2.0)),
    "cut": Kind(2, "the link of a host is down for 0.2 to 2 s", needs_hosts=True, lasts=(0.2, 2.0)),
    "outage": Kind(
        1, "the link of a host is down for 7 to 9 s, where 5 are allowed", needs_hosts=True, lasts=(7.0, 9.0)
    ),
    "slow": Kind(2, "the link of a host has 2 Mbit/s for 1 to 3 s", needs_hosts=True, lasts=(1.0, 3.0)),
    "crash": Kind(
        2,
        "SIGKILL of all processes of rank 0's host",
        needs_hosts=True,
        ends_somebody=True,
        needs_members=True,
        whole_host=True,
    ),
    "host": Kind(
        1,
        "rank 0's host dies without a word: its link, then its processes",
        needs_hosts=True,
        ends_somebody=True,
        lasts=(7.0, 9.0),
        needs_members=True,
        whole_host=True,
    ),
    "join": Kind(2, "another process joins", needs_members=True),
    "spawn": Kind(0, "another slot is offered to the job", needs_launcher=True),
    "launcher": Kind(
        0, "SIGKILL of the launcher, after all other faults", needs_launcher=True, ends_job=True
    ),
}


@dataclass(frozen=True)
class Fault:
    """One of the program. choice: which of those that it can strike, as a share; the job decides how many."""

    number: int
    kind: str
    pause: float  # after the one before
    choice: float
    lasts: float


@dataclass(frozen=True)
class Profile:
    """From which faults the program draws, and how far apart they are."""

    weights: dict[str, int]
    pause: tuple[float, float]
    awaits_recovery: bool = True  # the next fault comes when the job has got over this one


def profile_of(name: str, pause: tuple[float, float] | None, kinds: list[str]) -> Profile:
    """mixed: all kinds. churn: ranks come and go all the time, 60 % and 40 %, as in PCCL's stress test."""
    if name == "churn":
        return Profile({"spawn": 60, "kill": 40}, pause or (0.5, 2.0), awaits_recovery=False)
    weights = {kind: max(1, KINDS[kind].weight) for kind in kinds} or {
        kind: what.weight for kind, what in KINDS.items() if what.weight > 0
    }
    return Profile(weights, pause or (0.2, 2.0))


def usable(kinds: dict[str, int], has_hosts: bool, has_disk: bool, has_launcher: bool) -> dict[str, int]:
    """Those of the kinds that can be done here."""
    return {
        name: weight
        for name, weight in kinds.items()
        if has_hosts >= KINDS[name].needs_hosts
        and has_disk >= KINDS[name].needs_disk
        and not (KINDS[name].needs_launcher and not has_launcher)
        and not (KINDS[name].needs_members and has_launcher)
    }


def ends_of(kinds: list[str]) -> tuple[list[str], bool]:
    """The kinds that a job survives, and whether its launcher is to be killed after all of them."""
    return [kind for kind in kinds if not KINDS[kind].ends_job], any(KINDS[kind].ends_job for kind in kinds)


def program(seed: int, count: int, profile: Profile) -> Iterator[Fault]:
    """The same faults for the same seed. When they strike depends on the job as well."""
    drawn = random.Random(seed)
    names, weights = list(profile.weights), list(profile.weights.values())
    for number in range(1, count + 1):
        kind = drawn.choices(names, weights)[0]
        lasts = drawn.uniform(*KINDS[kind].lasts)
        yield Fault(number, kind, drawn.uniform(*profile.pause), drawn.random(), lasts)
