"""Ranks in the actors of a Ray cluster.

`Executor.start` makes a placement group and one actor per rank; each call runs a function on all of them.
The actors and whatever they have started end with the executor, with the driver, or one by one with their
own processes (`rueda reap beside`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import rueda
from rueda.placement import Hello, check_variables, environment, forwarded, place, seconds
from rueda.ray import bundles, entry, placing, private
from rueda.ray.reports import Callback
from rueda.ray.supervise import Gathering, RankFailed
from rueda.ray.worker import END_SECONDS, MARK

DEFAULT_START_SECONDS = 120.0  # a node may have to make a runtime environment first

_ENDED = "it was shut down: call start() again"


def load_ray() -> Any:
    """The module. Raises RuntimeError in one sentence if there is none."""
    try:
        import ray
    except ImportError:
        raise RuntimeError("rueda.ray needs Ray: pip install 'rueda-train[ray]'.") from None
    if problem := private.version_problem(ray.__version__):
        raise RuntimeError(problem)
    return ray


@contextlib.contextmanager
def by_value(module: Any) -> Any:
    """Classes of this module are pickled with their code: nodes may lack it, or have another version."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _get(ray: Any, refs: Sequence[Any], seconds: float) -> list[Any]:
    """What actors answer while the ranks start. Raises RuntimeError if Ray could not run them."""
    try:
        found: list[Any] = ray.get(refs, timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        raise RuntimeError(f"Ranks that Ray has started did not answer within {seconds:g} s.") from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Ray could not start the ranks: {str(error).strip()}") from error
    return found


class Executor:
    """Ranks that stay between calls. Use it in a `with` statement, or call `start` and `shutdown`.

    num_workers: how many ranks; or num_hosts nodes with num_workers_per_host ranks each. cpus_per_worker,
    gpus_per_worker: what Ray reserves for each. strategy: how Ray spreads num_workers ranks over nodes:
    "PACK", "SPREAD", "STRICT_PACK" (one node) or "STRICT_SPREAD" (a node each).
    use_current_placement_group: ranks use the placement group in which the caller runs, if there is one.
    env: variables for the ranks, besides the RUEDA_* and HOROVOD_* settings of the driver.
    placement_timeout, start_timeout: seconds until Ray has found room, and then until all ranks are there.
    tf_config: ranks find TF_CONFIG, for tf.distribute. verbose=0: no news while the ranks start.

    Raises ValueError for arguments that contradict one another.

    >>> with rueda.ray.Executor(num_workers=2) as executor:
    ...     executor.run(lambda x: x * int(os.environ["RUEDA_RANK"]), args=(10,))
    [0, 10]
    """

    def __init__(
        self,
        num_workers: Optional[int] = None,
        *,
        num_hosts: Optional[int] = None,
        num_workers_per_host: Optional[int] = None,
        cpus_per_worker: float = 1,
        gpus_per_worker: float = 0,
        strategy: str = "PACK",
        use_current_placement_group: bool = True,
        env: Optional[Mapping[str, str]] = None,
        placement_timeout: float = placing.DEFAULT_SECONDS,
        start_timeout: float = DEFAULT_START_SECONDS,
        tf_config: bool = False,
        verbose: int = 1,
    ) -> None:
        self._shape = bundles.make_shape(
            num_workers, num_hosts, num_workers_per_host, cpus_per_worker, gpus_per_worker, strategy
        )
        check_variables(env or {})
        self._env = {**forwarded(os.environ), **(env or {})}
        self._may_share_group = use_current_placement_group
        self._placement_timeout = seconds("placement_timeout", placement_timeout)
        self._start_timeout = seconds("start_timeout", start_timeout)
        self._with_tf_config = tf_config
        self._verbose = verbose
        self._actors: list[Any] = []  # by rank
        self._hellos: list[Hello] = []  # by rank
        self._placing: Optional[placing.Placing] = None
        self._queue: Any = None  # what rank 0 logs, since callbacks were first given
        self._end = "it has not been started: call start()"

    @property
    def num_workers(self) -> int:
        """How many ranks there are when it has started."""
        return self._shape.num_workers

    def __enter__(self) -> Executor:
        if not self._actors:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # ---- start and end ----

    _refusals = placing.Refusals()

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Starts the ranks. executable_cls: each rank makes one object of it, for `execute`.

        Raises ValueError if the cluster is too small, and RuntimeError if it gives no room or the ranks do
        not start in time, a node lacks this version of rueda, or executable_cls raises.
        """
        ray = load_ray()
        if self._actors:
            raise RuntimeError("This executor has started already; call shutdown() first.")
        if not ray.is_initialized():
            ray.init()
        try:
            self._start(ray, {name: str(value) for name, value in (extra_env_vars or {}).items()})
            if executable_cls is not None:
                made_by = (executable_cls, tuple(executable_args or ()), dict(executable_kwargs or {}))
                self._gather([actor.start_executable.remote(made_by) for actor in self._actors])
        except BaseException:
            self._stop(_ENDED)
            raise

    def shutdown(self) -> None:
        """Ends all ranks, with whatever they have started. Repeating it does nothing.

        Engines that run are shut down on all ranks first; ranks that are still in a call get 5 s for it.
        """
        self._end_epochs()
        self._stop(_ENDED)

    def _end_epochs(self) -> None:
        """Ray kills one actor after the other, and a rank that lives on would report the others as lost."""
        if not self._hellos:
            return
        import ray

        if ray.is_initialized():
            refs = [actor.end_epoch.remote() for actor in self._actors]
            ray.wait(refs, num_returns=len(refs), timeout=END_SECONDS)

    def _stop(self, why: str) -> None:
        self._end = why
        actors, self._actors, self._hellos = self._actors, [], []
        group, self._placing = self._placing, None
        queue, self._queue = self._queue, None
        if group is None:
            return
        import ray

        if ray.is_initialized():  # otherwise Ray has ended them
            for actor in actors:
                ray.kill(actor)
            if queue is not None:
                queue.shutdown(force=True)
            group.remove()

    def _start(self, ray: Any, extra: Mapping[str, str]) -> None:
        self._placing = placing.Placing(self._shape, self._tell, self._refusals)
        order = self._placing.make(self._may_share_group, self._placement_timeout)
        job = f"ray-{secrets.token_hex(8)}"
        requirements = entry.Requirements(rueda.__version__, (sys.version_info[0], sys.version_info[1]))
        with by_value(entry):
            for index, bundle in enumerate(order):
                self._actors.append(self._actor(ray, requirements, (job, index, bundle), extra))
        self._hellos = self._greet(ray)
        places = place(self._hellos)
        by_rank = sorted(range(len(order)), key=lambda index: places[index].rank)
        secret = secrets.token_hex(32).encode()
        preparations = []
        for index in by_rank:
            hello = self._hellos[index]
            variables = environment(self._hellos, places, hello, job, self._with_tf_config)
            peers = [one for one in by_rank if self._hellos[one].host_key == hello.host_key]
            variables["RUEDA_RAY_GPUS"] = bundles.visible_gpus([self._hellos[one].gpus for one in peers])
            preparations.append(self._actors[index].prepare.remote(variables, secret))
        _get(ray, preparations, self._start_timeout)
        self._actors = [self._actors[index] for index in by_rank]
        self._hellos = [self._hellos[index] for index in by_rank]

    def _actor(
        self, ray: Any, wanted: entry.Requirements, where: tuple[str, int, int], extra: Mapping[str, str]
    ) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        job, index, bundle = where
        token = f"{job}.{index}"
        group = self._placing.group if self._placing is not None else None
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        kind = ray.remote(
            num_cpus=self._shape.cpus,
            num_gpus=self._shape.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=strategy,
            runtime_env={"env_vars": {**self._env, **extra, MARK: token, "PYTHONUNBUFFERED": "1"}},
        )(entry.Rank)
        return kind.remote(wanted, index, token)

    def _greet(self, ray: Any) -> list[Hello]:
        """What all actors say about themselves, once they are there."""
        refs = [actor.hello.remote() for actor in self._actors]
        deadline = time.monotonic() + self._start_timeout
        pending = refs
        while pending:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RuntimeError(
                    f"Only {len(refs) - len(pending)} of {len(refs)} ranks had started after "
                    f"{self._start_timeout:g} s: other actors may occupy the bundles, or a node makes its "
                    "runtime environment; raise start_timeout."
                )
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=min(left, placing.NEWS_SECONDS))
            if pending:
                self._tell(f"{len(refs) - len(pending)} of {len(refs)} ranks have started")
        said = _get(ray, refs, placing.NEWS_SECONDS)
        for one in said:
            if isinstance(one, str):
                raise RuntimeError(one)
        return [
            Hello(**{**fields, "ports": tuple(fields["ports"]), "gpus": tuple(fields["gpus"])})
            for fields in said
        ]

    def _tell(self, line: str) -> None:
        if self._verbose > 0:
            print(f"rueda: {line}", file=sys.stderr, flush=True)

    # ---- calls ----

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Optional[Iterable[Callback]] = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on all ranks. Returns the list of results in rank order.

        callbacks: functions of one argument, which get what rank 0 passes to `rueda.ray.log` meanwhile.

        Raises RuntimeError if a rank failed: the text names the rank, its node and its traceback, and the
        cause is what it raised. If the other ranks end within 2 s, the executor stays usable, with the
        engine shut down on the rank that raised; else all ranks are killed and it must be started again.
        """
        return self._call_all((fn, tuple(args or ()), dict(kwargs or {})), False, callbacks)

    def execute(self, fn: Callable[[Any], Any], callbacks: Optional[Iterable[Callback]] = None) -> list[Any]:
        """Calls `fn(executable)` on all ranks; the executable is None without an executable_cls. As `run`."""
        return self._call_all((fn, (), {}), True, callbacks)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls `fn(executable)` on rank 0 and returns its result; `fn` must not call collectives."""
        self._require_ranks()
        return self._gather([self._actors[0].call.remote((fn, (), {}), True, None)])[0]

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on all ranks without waiting. Returns Ray's object references, in rank
        order; `ray.get` gives the results, and raises what a rank raised.
        """
        self._require_ranks()
        import ray

        call = ray.put((fn, tuple(args or ()), dict(kwargs or {})))
        return [actor.call_raw.remote(call) for actor in self._actors]

    def _require_ranks(self) -> None:
        if not self._actors:
            raise RuntimeError(f"This executor has no ranks: {self._end}.")

    def _call_all(
        self, call: tuple[Any, ...], with_executable: bool, callbacks: Optional[Iterable[Callback]]
    ) -> list[Any]:
        self._require_ranks()
        import ray
        from ray.util.queue import Queue

        wanted = tuple(callbacks or ())
        for callback in wanted:
            if not callable(callback):
                raise TypeError(f"callbacks are functions of one argument, and {callback!r} is none.")
        if wanted and self._queue is None:
            self._queue = Queue(actor_options={"num_cpus": 0})
        queue = self._queue if wanted else None
        sent = ray.put(call)
        refs = [
            actor.call.remote(sent, with_executable, queue if rank == 0 else None)
            for rank, actor in enumerate(self._actors)
        ]
        return self._gather(refs, queue, wanted)

    def _gather(
        self, refs: Sequence[Any], queue: Any = None, callbacks: Sequence[Callback] = ()
    ) -> list[Any]:
        def deliver() -> None:
            for info in queue.get_nowait_batch(queue.qsize()) if queue is not None else ():
                for callback in callbacks:
                    callback(info)

        gathering = Gathering(refs, self._hellos)
        is_complete = False
        try:
            results = gathering.wait(deliver)
            is_complete = True
            return results
        except RankFailed as error:
            is_complete = not gathering.is_broken
            if gathering.is_broken:
                first = str(error).split("\n", 1)[0].rstrip(".")
                self._stop(f"they were ended because of a failure ({first}); call start() again")
            raise
        finally:
            if not is_complete and self._actors:  # Ctrl-C, or a callback that raised, in the middle of a call
                self._stop("they were ended because a call was interrupted; call start() again")
