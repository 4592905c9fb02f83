"""The loop of elastic training: runs a function of a state until it returns, through changes of the job.

    sync → function ─ returns ────────────────────────────────→ its value
             │ HorovodInternalError: restore the last commit
             │ HostsUpdatedInterrupt: the state is that of the commit
             └→ leave the epoch → next view → init → reset callbacks → sync …

All ranks take the same way through it: what is skipped follows from the view, which all have.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from rueda import epochs
from rueda.basics import basics
from rueda.elastic import membership, view_sets, wire
from rueda.elastic.membership import EXIT_LEFT, NOT_IN_VIEW, View
from rueda.elastic.notices import notification_manager
from rueda.elastic.state import State
from rueda.errors import HorovodInternalError, HostsUpdatedInterrupt, RuedaError

# A job that fails at one commit so often, and loses nobody, would fail there for ever: the program is wrong.
FRUITLESS_LIMIT = 3
FIRST_VIEW = 1
NEVER_COMMITTED = 0  # the commit of members that have only synced

EXCLUDED = "This process was left out of view {view} of the job; it ends with exit code {code}."
LEFT = (
    "This process leaves the job at commit {commit}, because it or its host is to go; it ends with exit "
    "code {code}."
)
ANEW = (
    "rueda: no rank had called state.commit(), so in view {view} training begins anew; call it every few "
    "steps, or all of them are lost with a rank."
)
FRUITLESS = (
    "rueda: {count} attempts failed after commit {commit} although no rank was lost, so the job gives up; "
    "the error of the last one follows."
)


class Engine(Protocol):
    """The life of the engine, as the loop uses it."""

    def is_running(self) -> bool:
        """Whether this process is in an epoch."""

    def start(self) -> None:
        """init(): raises ValueError when the job cannot be formed."""

    def stop(self) -> None:
        """shutdown()."""


@dataclass
class Hooks:
    """What a framework needs at the edges of an epoch."""

    translate: Callable[[Exception], Exception | None] = lambda error: None  # to an error of errors.py
    before_stop: Callable[[], None] = lambda: None
    after_start: Callable[[], None] = lambda: None


@dataclass
class Failures:
    """How often one commit was the last one, with no change of the members. Values in, values out."""

    commit: int = -2
    count: int = 0

    def add(self, commit: int) -> bool:
        """Another failure after this commit. Whether it was one too many."""
        self.count = self.count + 1 if commit == self.commit else 1
        self.commit = commit
        return self.count >= FRUITLESS_LIMIT

    def note(self, view: View) -> None:
        """Another view: with other members the same commit may succeed."""
        if view.joined or view.lost:
            self.commit, self.count = -2, 0


@dataclass
class Loop:
    """Runs functions of one state. One thread."""

    engine: Engine
    hooks: Hooks = field(default_factory=Hooks)
    clock: Callable[[], float] = time.monotonic

    def run(self, func: Callable[..., Any], state: State, *args: Any, **kwargs: Any) -> Any:
        """The value of func(state, *args, **kwargs), once it returns."""
        members = membership.current()
        skips_sync = False
        failures = Failures()
        if not self.engine.is_running() or members.is_joiner():
            if members.is_elastic():
                skips_sync = self._enter(state, failures)
            else:
                self.engine.start()
        elif members.is_elastic():
            # The first sync is that of any view: a process that joins meanwhile takes part in it.
            state._begin_view(View(FIRST_VIEW, state._rank(), wire.engine_wire().size))
        while True:
            leaving = ""  # what this process says if it leaves
            try:
                if not skips_sync:
                    state._sync_in_view()
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                leaving = LEFT.format(commit=state._commit, code=EXIT_LEFT) if interrupt.leave else ""
                skips_sync = interrupt.skip_sync
            except Exception as error:
                failure = self._failure(error)
                if failure is None or not members.is_elastic():
                    raise
                if failures.add(state._commit):
                    print(FRUITLESS.format(count=failures.count, commit=state._commit), file=sys.stderr)
                    raise
                state._give_up()
                skips_sync = False
            if members.is_elastic():
                skips_sync = self._enter(state, failures, leaving)
            else:
                self._restart(state)

    def _failure(self, error: Exception) -> Exception | None:
        """The error as one of a collective; None if it is none."""
        return error if isinstance(error, HorovodInternalError) else self.hooks.translate(error)

    def _enter(self, state: State, failures: Failures, leaving: str = "") -> bool:
        """Comes to the next view of an elastic job. Whether sync is skipped. leaving: what this process says
        if there is a next view without it.
        """
        view = self._next_view(state, leaving)
        failures.note(view)
        if view.rank == 0 and view.commit == NEVER_COMMITTED:
            print(ANEW.format(view=view.number), file=sys.stderr, flush=True)
        self.hooks.after_start()
        view_sets.renew(view)
        state._begin_view(view)
        state.on_reset()
        return view.needs_no_sync

    def _next_view(self, state: State, leaving: str) -> View:
        """Leaves the epoch and comes back with the members of the next view. A process that is to leave waits
        for that view, too: it stays if those that were to go on are lost meanwhile, or the state would be.

        Another member may be lost before all have met; the view after that is then the next one. The last
        error is raised when RUEDA_ELASTIC_TIMEOUT is over.
        """
        limit = membership.timeout_s()
        deadline = self.clock() + limit
        while True:
            self._stop()
            left = max(1.0, deadline - self.clock())
            try:
                view = membership.current().join(state._held, state._layout(), left)
            except RuedaError as error:  # there is no view for this process
                self._leave(leaving or str(error))
            if view.rank == NOT_IN_VIEW:
                self._leave(leaving or EXCLUDED.format(view=view.number, code=EXIT_LEFT))
            try:
                self.engine.start()
            except ValueError:
                if self.clock() >= deadline:
                    raise
                continue
            membership.note(view)
            return view

    def _restart(self, state: State) -> None:
        """A job whose members stay: another epoch with the same ones."""
        self._stop()
        self.engine.start()
        self.hooks.after_start()
        state.on_reset()

    def _stop(self) -> None:
        if self.engine.is_running():
            view_sets.note_end()
            self.hooks.before_stop()
        self.engine.stop()

    def _leave(self, why: str) -> NoReturn:
        self._stop()
        print(f"rueda: {why}", file=sys.stderr, flush=True)
        raise SystemExit(EXIT_LEFT)


class BasicsEngine:
    """The engine of this process."""

    def is_running(self) -> bool:
        """Whether this process is in an epoch."""
        return epochs.current() != epochs.NONE

    def start(self) -> None:
        """init(), of a joiner too."""
        basics.init_admitted()

    def stop(self) -> None:
        """shutdown()."""
        basics.shutdown()


def decorate(func: Callable[..., Any], hooks: Hooks | None = None, engine: Engine | None = None) -> Any:
    """The function, whose first argument is a state, in the loop of elastic training."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise TypeError(
                f"{func.__name__} is run by hvd.elastic.run, so its first argument must be a state, such as "
                f"hvd.elastic.ObjectState, not {type(state).__name__}."
            )
        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            return Loop(engine or BasicsEngine(), hooks or Hooks()).run(func, state, *args, **kwargs)
        finally:
            notification_manager.remove_listener(state)

    return wrapper


class _CallersEngine(BasicsEngine):
    """The engine, begun again by a function of the caller."""

    def __init__(self, reset: Callable[[], Any]) -> None:
        self._reset = reset

    def start(self) -> None:
        """Calls it."""
        self._reset()

    def stop(self) -> None:
        """The function of the caller does it, but in an elastic job the next view comes before it."""
        if membership.current().is_elastic():
            super().stop()


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Any:
    """func(state, …) in the loop of elastic training; reset() ends an epoch and begins the next one."""

    return decorate(func, engine=_CallersEngine(reset))
