"""Who belongs to the job: the seam between the loop of training and the engine.

A *view* is a numbered list of members; a *commit* a numbered state. Only this module asks the engine about
them, so a test can put a `Membership` of its own in its place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from rueda import _core

NO_COMMIT = -1
NOT_IN_VIEW = -1  # the rank of a process that the next view leaves out
DEFAULT_TIMEOUT_S = 600.0  # as Horovod's --elastic-timeout
EXIT_LEFT = 75  # EX_TEMPFAIL of sysexits.h: the launcher may start the process again


@dataclass(frozen=True)
class View:
    """The members of the job from one init to the next, as this process sees them."""

    number: int
    rank: int
    size: int
    commit: int = NO_COMMIT  # the newest that a member holds
    holders: tuple[int, ...] = ()  # ranks that hold it, in ascending order
    joined: tuple[int, ...] = ()  # ranks that were not in the view before
    lost: tuple[str, ...] = ()  # what the members before were called that are no longer there

    @property
    def needs_no_sync(self) -> bool:
        """Whether all members hold one commit already. Follows from the view alone, so it is the same answer
        on all ranks, whatever each of them went through.
        """
        return self.commit != NO_COMMIT and not self.joined and self.holders == tuple(range(self.size))


@dataclass(frozen=True)
class News:
    """What the launcher has said about the hosts."""

    hosts_added: bool = False
    hosts_removed: bool = False
    at_commit: int = NO_COMMIT  # all members raise HostsUpdatedInterrupt there
    leave: bool = False  # this process leaves the job there


class Membership(Protocol):
    """What the loop of training needs of the engine."""

    def is_elastic(self) -> bool:
        """Whether members may come and go."""

    def is_joiner(self) -> bool:
        """Whether this process was started for a job that runs already, and is not in a view yet."""

    def join(self, commit: int, digest: bytes, timeout_s: float) -> View:
        """Waits for the next view; to be called outside of an epoch. commit: the newest that this process
        holds. digest: of what its state is made of; a process with another one is not let in.
        """

    def committed(self, commit: int) -> None:
        """This process holds a new commit. Waits only where the members may be about to leave the view."""

    def news(self) -> News:
        """What has been heard. Never blocks."""


class CoreMembership:
    """The engine's membership. Any thread."""

    def is_elastic(self) -> bool:
        """Whether `rueda run` started this job with --min-np, or with a script that finds hosts, or its
        processes decide who belongs to it (RUEDA_ELASTIC=members).
        """
        return _core.is_elastic()

    def is_joiner(self) -> bool:
        """The launcher says so in the environment of those that it starts later; without one, the user."""
        return os.environ.get("RUEDA_JOINER") == "1" and self.is_elastic()

    def join(self, commit: int, digest: bytes, timeout_s: float) -> View:
        """Waits for the next view. Raises RuedaError with one sentence if there is none for this process."""
        found = _core.elastic_join(commit, digest, timeout_s)
        return View(
            found.number,
            found.rank,
            found.size,
            found.commit,
            tuple(sorted(found.holders)),
            tuple(sorted(found.joined)),
            tuple(str(one) for one in found.lost),
        )

    def committed(self, commit: int) -> None:
        """Tells the engine, which names the commit of an interrupt by it."""
        _core.elastic_committed(commit)

    def news(self) -> News:
        """What has been heard; nothing in a job that is not elastic."""
        if not self.is_elastic():
            return News()
        found = _core.elastic_news()
        return News(
            bool(found.hosts_added), bool(found.hosts_removed), int(found.at_commit), bool(found.leave)
        )


class _Current:
    """The membership of this process."""

    def __init__(self) -> None:
        self.membership: Membership = CoreMembership()
        self.view: View | None = None


_current = _Current()


def current() -> Membership:
    """The membership of this process."""
    return _current.membership


def note(view: View) -> None:
    """This process has become a member of a view after the first one."""
    _current.view = view


def last_view() -> View | None:
    """The last in which this process has been a member; None: the first one, or none."""
    return _current.view


def use(membership: Membership) -> Membership:
    """Puts another one in its place, for tests. Returns the one before."""
    before, _current.membership = _current.membership, membership
    return before


def timeout_s() -> float:
    """How long members wait for enough others, RUEDA_ELASTIC_TIMEOUT or HOROVOD_ELASTIC_TIMEOUT."""
    names = ("RUEDA_ELASTIC_TIMEOUT", "HOROVOD_ELASTIC_TIMEOUT")
    text = next((os.environ[name] for name in names if os.environ.get(name)), "")
    try:
        return float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        raise ValueError(f"RUEDA_ELASTIC_TIMEOUT is {text!r}, but it must be a number of seconds.") from None
