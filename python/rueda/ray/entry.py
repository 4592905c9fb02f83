"""The actor of one rank. This module travels to its node with the actor and is not imported there, so that a
node without rueda, or with another version, is answered in one sentence.
"""

from __future__ import annotations

import importlib
import platform
import sys
from typing import Any, NamedTuple, Optional


class Requirements(NamedTuple):
    """What the driver has, and every node must have too."""

    rueda: str
    python: tuple[int, int]


def problem(wanted: Requirements, host: str) -> Optional[str]:
    """What is wrong with this node, in a sentence; None if nothing is."""
    own = (sys.version_info[0], sys.version_info[1])
    if own != tuple(wanted.python):
        return (
            f"The node {host} runs Python {own[0]}.{own[1]}, but the driver runs Python "
            f"{wanted.python[0]}.{wanted.python[1]}; use the same version on all."
        )
    try:
        found = importlib.import_module("rueda").__version__
    except ImportError:
        return (
            f"rueda {wanted.rueda} is not installed for the Python on {host}, a node of this Ray cluster; "
            "install it there."
        )
    if found != wanted.rueda:
        return (
            f"The node {host} has rueda {found}, but the driver has {wanted.rueda}; install the same version "
            "on all."
        )
    return None


class Rank:
    """One rank: a Ray actor around a `rueda.ray.worker.Worker`."""

    def __init__(self, wanted: Requirements, index: int, token: str) -> None:
        self._name = f"rank {index}"  # Ray puts it before the lines of this process
        self._problem = problem(wanted, platform.node())
        self._worker: Any = None
        if self._problem is None:
            self._worker = importlib.import_module("rueda.ray.worker").Worker(index, token)

    def __repr__(self) -> str:
        return self._name

    def hello(self) -> Any:
        """A sentence about what is wrong here, or the fields of a rueda.placement.Hello."""
        return self._problem or self._worker.hello()

    def prepare(self, environment: dict[str, str], secret: bytes) -> None:
        self._worker.prepare(environment, secret)

    def start_executable(self, made_by: Any) -> Any:
        return self._worker.start_executable(made_by)

    def call(self, call: Any, with_executable: bool, queue: Any) -> Any:
        return self._worker.call(call, with_executable, queue)

    def call_raw(self, call: Any) -> Any:
        return self._worker.call_raw(call)

    def end_epoch(self) -> None:
        importlib.import_module("rueda.ray.worker").end_epoch()


class Slots:
    """The actor of an elastic job on one node: it holds slots there, and runs the agent of the node."""

    def __init__(self, wanted: Requirements) -> None:
        self._problem = problem(wanted, platform.node())

    def __repr__(self) -> str:
        return "slots"

    def hello(self) -> Optional[str]:
        """A sentence about what is wrong here; None if nothing is."""
        return self._problem

    def offer(self, driver: tuple[str, int], key: bytes, slots: int) -> None:
        """Returns when the job is over, or the agent has ended."""
        importlib.import_module("rueda.ray.worker").offer(driver, key, slots)
