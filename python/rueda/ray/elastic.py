"""Elastic jobs on a Ray cluster: nodes and actors come and go, and the ranks that are left go on.

The launcher of `rueda run` runs on the driver. A thread beside it asks Ray for actors, which hold slots on
their nodes; each runs the agent of its node (`rueda.offers`).
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import rueda
from rueda.offers import job
from rueda.offers.news import News
from rueda.offers.switchboard import Switchboard
from rueda.placement import check_variables, forwarded
from rueda.ray import bundles, entry, private, reports
from rueda.ray.executor import DEFAULT_START_SECONDS, by_value, load_ray
from rueda.ray.wishes import Wishes, rooms
from rueda.run import pickle_call

_LOOK_SECONDS = 0.5


class RayHostDiscovery:
    """The nodes of the Ray cluster and how many slots they have, whether others use them or not.

    >>> RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots()
    {'10.0.0.1': 4}
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1) -> None:
        self._needs = bundles.Shape(1, cpus_per_slot, gpus_per_slot if use_gpu else 0).needs

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Slots by address, of nodes that have any."""
        found: dict[str, int] = {}
        for node in rooms(load_ray().nodes(), None, self._needs, None):
            if node.room > 0:
                found[node.address] = found.get(node.address, 0) + node.room
        return found


@dataclass(frozen=True)
class Terms:
    """What an elastic job asks of Ray. allowed: slots by address; None: whatever fits."""

    cpus: float = 1.0
    gpus: int = 0
    env: Optional[Mapping[str, str]] = None
    start_timeout_s: float = DEFAULT_START_SECONDS
    allowed: Optional[Callable[[], Mapping[str, int]]] = None
    verbose: int = 1

    def __post_init__(self) -> None:
        bundles.make_shape(1, None, None, self.cpus, self.gpus, "PACK")
        check_variables(self.env or {})

    @property
    def needs(self) -> dict[str, float]:
        """Of one slot."""
        return bundles.Shape(1, self.cpus, self.gpus).needs


class _Actors:
    """The actors of a job, kept by one thread."""

    def __init__(self, ray: Any, size: job.Size, terms: Terms, board: Switchboard) -> None:
        self._ray = ray
        self._terms = terms
        self._wishes = Wishes(size.slots, may_add=terms.gpus == 0)
        self._driver = (ray.util.get_node_ip_address(), board.port)
        self._key = board.key
        self._actors: dict[int, Any] = {}  # by number of the wish
        self._greetings: dict[Any, tuple[int, float]] = {}  # number and deadline, by reference
        self._offers: dict[Any, int] = {}
        self.problem = ""  # of a node that cannot take part
        self._told: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="rueda-actors")

    def __enter__(self) -> _Actors:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10 * _LOOK_SECONDS)
        if self._ray.is_initialized():  # otherwise Ray has ended them
            for actor in self._actors.values():
                self._ray.kill(actor)

    def _keep(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                self._step()
            except Exception as error:  # of Ray, whose head may be busy or gone; the job goes on
                self._tell(f"Ray does not answer ({str(error).strip()[:200]}); it is asked again")

    def _step(self) -> None:
        now = time.monotonic()
        ray, allowed = self._ray, self._terms.allowed() if self._terms.allowed is not None else None
        nodes = rooms(ray.nodes(), private.available_by_node(ray), self._terms.needs, allowed)
        for number, node, slots in self._wishes.next(nodes, now, allowed):
            self._actors[number] = actor = self._make(node.id, slots)
            self._greetings[actor.hello.remote()] = (number, now + self._terms.start_timeout_s)
            self._offers[actor.offer.remote(self._driver, self._key, slots)] = number
        self._hear(now)

    def _make(self, node: str, slots: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        wanted = entry.Requirements(rueda.__version__, (sys.version_info[0], sys.version_info[1]))
        variables = {**(self._terms.env or {}), "PYTHONUNBUFFERED": "1"}
        with by_value(entry):
            kind = self._ray.remote(
                num_cpus=self._terms.cpus * slots,
                num_gpus=self._terms.gpus * slots,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                runtime_env={"env_vars": variables},
            )(entry.Slots)
            return kind.remote(wanted)

    def _hear(self, now: float) -> None:
        for ref in self._ready(self._greetings):
            number, _ = self._greetings.pop(ref)
            problem = self._answer(ref)
            self._wishes.granted(number)
            if problem:
                self.problem = problem
                self._tell(problem)
                self._lose(number, now)
        for ref, (number, deadline) in [*self._greetings.items()]:
            if now > deadline:
                del self._greetings[ref]
                self._lose(number, now)
        for ref in self._ready(self._offers):
            number = self._offers.pop(ref)
            self._answer(ref)
            self._lose(number, now)

    def _ready(self, pending: Mapping[Any, Any]) -> list[Any]:
        refs = [*pending]
        return [*self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]] if refs else []

    def _answer(self, ref: Any) -> Optional[str]:
        try:
            found: Optional[str] = self._ray.get(ref)
            return found
        except self._ray.exceptions.RayActorError:  # killed, or its node is lost: the launcher says so
            return None
        except self._ray.exceptions.RayError as error:
            return str(error).strip().rpartition("\n")[2]

    def _lose(self, number: int, now: float) -> None:
        actor = self._actors.pop(number, None)
        if actor is None:
            return
        self._ray.kill(actor)
        self._wishes.ended(number, now)

    def _tell(self, line: str) -> None:
        if self._terms.verbose > 0 and line not in self._told:
            self._told.add(line)
            print(f"rueda: {line}", file=sys.stderr, flush=True)


class _Call:
    """The function, whose `rueda.ray.log` reaches the driver."""

    def __init__(self, fn: Callable[..., Any], news: Optional[News]) -> None:
        self._fn = fn
        self._news = news

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from rueda.basics import basics

        reports.configure(self._news, lambda: basics.is_initialized() and basics.rank() == 0)
        return self._fn(*args, **kwargs)


def size_of(num_workers: Optional[int], given: Mapping[str, Any]) -> job.Size:
    """How many ranks, from the arguments of `rueda.ray.run`. Raises ValueError by name."""
    most = given.get("max_workers")
    return job.Size(
        least=given["min_workers"],
        first=num_workers,
        most=job.ALL_SLOTS if most is None else most,
        spares=given.get("spares") or 0,
        reset_limit=given.get("reset_limit"),
        timeout_s=given.get("elastic_timeout", 600.0),
    )


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    size: job.Size,
    terms: Terms,
    callbacks: Iterable[reports.Callback] = (),
) -> list[Any]:
    """Runs `fn(*args, **kwargs)` as an elastic job; the results of its last members, in rank order.

    Raises RuntimeError if the job failed, in the words of the launcher.
    """
    wanted = tuple(callbacks or ())
    for callback in wanted:
        if not callable(callback):
            raise TypeError(f"callbacks are functions of one argument, and {callback!r} is none.")
    ray = load_ray()
    if not ray.is_initialized():
        ray.init()

    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="rueda-ray-")))
        address = ray.util.get_node_ip_address()
        board = undo.enter_context(Switchboard(address, folder, "ray", said.put))
        actors = undo.enter_context(_Actors(ray, size, terms, board))

        def attend() -> None:
            while not said.empty():
                info = said.get()
                for callback in wanted:
                    callback(info)
            if actors.problem and not board.has_had_slots():
                raise RuntimeError(actors.problem)

        news = News((address, board.port), board.key) if wanted else None
        call = pickle_call(_Call(fn, news), args, kwargs)
        variables = {**forwarded(os.environ), **(terms.env or {})}
        results = job.run(call, size, board, job.Surroundings(variables, attend, terms.start_timeout_s))
        attend()
        return results
