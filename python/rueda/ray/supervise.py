"""The driver's end of a call: waits for what all ranks return, and finds the first cause if one fails."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

from rueda.failures import Failure, Progress
from rueda.placement import Hello
from rueda.run import RemoteTraceback

_LOOK_SECONDS = 0.25  # how often callbacks and deadlines get their turn


class RankFailed(RuntimeError):
    """A rank failed; what users catch is RuntimeError."""


def last_line(text: str) -> str:
    """What a traceback ends with, as the end of a sentence."""
    return text.rstrip().rpartition("\n")[2].rstrip(".")


def describe_loss(error: BaseException) -> str:
    """Why Ray says that an actor is gone, in the words of a failure."""
    import ray

    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "was lost: Ray cannot reach its node"
    text = str(error)
    for mark, words in (
        ("NODE_DIED", "its node was lost"),
        ("node has died", "its node was lost"),
        ("OUT_OF_MEMORY", "Ray killed it because its node was out of memory"),
        ("INTENDED_USER_EXIT", "its process has exited"),
        ("exit_actor", "its process has exited"),
        ("ray.kill", "its actor was killed with ray.kill"),
    ):
        if mark in text:
            return f"was lost: {words}"
    return "was lost: its process was killed, has crashed or has called os._exit()"


def rank_failure(cause: Failure, error: Optional[bytes]) -> RankFailed:
    """What to raise when a rank failed; its cause is what the rank raised, if that could be brought here."""
    failure = RankFailed(cause.sentence())
    if cause.traceback:
        original: Any = None
        if error is not None:
            with contextlib.suppress(Exception):  # its class may not exist here, so the text has to do
                original = pickle.loads(error)
        remote = RemoteTraceback(cause.rank, cause.traceback)
        if isinstance(original, BaseException):
            original.__cause__ = remote
        failure.__cause__ = original if isinstance(original, BaseException) else remote
    return failure


class Gathering:
    """One call on the first ranks. refs: by rank; hellos: of all ranks."""

    def __init__(self, refs: Sequence[Any], hellos: Sequence[Hello]) -> None:
        self.progress = Progress(len(refs))
        self.is_broken = False  # whether a rank is gone, or does not end by itself
        self._rank_of = {ref: rank for rank, ref in enumerate(refs)}
        self._hellos = hellos
        self._values: dict[int, Any] = {}
        self._errors: dict[int, Optional[bytes]] = {}

    def wait(self, attend: Callable[[], None]) -> list[Any]:
        """The results in rank order. attend() is called again and again meanwhile.

        Raises RuntimeError if a rank failed. The other ranks then have some time to end by themselves;
        `is_broken` says whether they have.
        """
        import ray

        pending = list(self._rank_of)
        while pending and not self.progress.must_stop(time.monotonic()):
            ready, _ = ray.wait(pending, num_returns=1, timeout=_LOOK_SECONDS)
            if ready:
                ready, pending = ray.wait(pending, num_returns=len(pending), timeout=0)
            for ref in ready:
                self._take(ref)
            if pending:
                attend()
        attend()
        self.is_broken = self.is_broken or bool(pending)
        cause = self.progress.first_cause()
        if cause is not None:
            raise rank_failure(cause, self._errors.get(cause.rank))
        return [self._values[rank] for rank in sorted(self._values)]

    def _take(self, ref: Any) -> None:
        import ray

        rank = self._rank_of[ref]
        try:
            value, error, text = ray.get(ref)
        except ray.exceptions.RayTaskError as failed:  # the function or its result could not be sent
            self._errors[rank] = None
            found = str(failed)
            self._fail(rank, f"failed: {last_line(found)}", found)
        except ray.exceptions.RayError as lost:
            self.is_broken = True
            self._fail(rank, describe_loss(lost))
        else:
            if not text:
                self._values[rank] = value
                return
            self._errors[rank] = error
            self._fail(rank, f"failed: {last_line(text)}", text)

    def _fail(self, rank: int, what: str, text: str = "") -> None:
        hello = self._hellos[rank]
        self.progress.fail(Failure(rank, hello.host, hello.pid, what, text), time.monotonic())
