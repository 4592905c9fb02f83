"""`RayExecutor` with the arguments that Horovod gave it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from rueda.offers import job
from rueda.ray import elastic
from rueda.ray.executor import DEFAULT_START_SECONDS, Executor, load_ray
from rueda.ray.placing import Refusals
from rueda.ray.reports import Callback


@dataclass
class Settings:
    """What `RayExecutor.create_settings` makes."""

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Optional[Any] = None


class RayExecutor(Executor):
    """Ranks on a Ray cluster, with Horovod's arguments; see `Executor` for what they do.

    settings: from `create_settings`, or None. use_gpu: each rank gets gpus_per_worker GPUs, or one.
    min_workers makes the jobs elastic: `run` and `execute` start one each, whose results are those of its
    last members, and `execute_single` and `run_remote` raise NotImplementedError. Contradictory arguments
    raise ValueError. `start` raises TimeoutError where Ray has no room for the ranks, at once if it never
    will.

    >>> executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    >>> executor.start()
    >>> executor.run(lambda: os.environ["HOROVOD_RANK"])
    ['0', '1']
    >>> executor.shutdown()
    """

    _refusals = Refusals(never=TimeoutError, in_time=TimeoutError)

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        ssh_str: Optional[str] = None,
        placement_group_timeout_s: float = 100,
        nics: Optional[Any] = None,
    ) -> Settings:
        """Seconds until the ranks have started, and until Ray has found room; names of network interfaces.
        The two of ssh change nothing: Ray starts the ranks.
        """
        return Settings(timeout_s, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: Optional[Settings] = None,
        num_workers: Optional[int] = None,
        num_hosts: Optional[int] = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: Optional[int] = None,
        use_current_placement_group: bool = True,
        min_workers: Optional[int] = None,
        max_workers: Optional[int] = None,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[Any] = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        _check_elastic(num_workers, min_workers, max_workers)
        gpus = gpus_of_each(use_gpu, gpus_per_worker, "gpus_per_worker")
        given = settings or Settings()
        self._elastic: Optional[ElasticJobs] = None
        if min_workers is not None:
            # cooldown_range is for hosts that Horovod avoids; Ray's nodes rest for 1 to 60 s here.
            limits = {
                "max_workers": max_workers,
                "reset_limit": reset_limit,
                "elastic_timeout": elastic_timeout,
            }
            allowed = None if override_discovery else allowed_by(getattr(given, "discovery", None))
            terms = elastic.Terms(
                cpus_per_worker,
                gpus,
                interfaces(given.nics),
                max(given.timeout_s, DEFAULT_START_SECONDS),
                allowed,
            )
            self._elastic = ElasticJobs(elastic.size_of(None, {"min_workers": min_workers, **limits}), terms)
            num_workers, num_hosts = min_workers, None
        super().__init__(
            num_workers,
            num_hosts=num_hosts,
            num_workers_per_host=num_workers_per_host if num_hosts is not None else None,
            cpus_per_worker=cpus_per_worker,
            gpus_per_worker=gpus,
            use_current_placement_group=use_current_placement_group,
            env=interfaces(given.nics),
            placement_timeout=given.placement_group_timeout_s,
            # Horovod's default is for ranks whose processes run already.
            start_timeout=max(given.timeout_s, DEFAULT_START_SECONDS),
        )

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, str]] = None,
    ) -> None:
        """As `Executor.start`; elastic jobs start with each call."""
        executable = executable_cls, executable_args, executable_kwargs
        if self._elastic is not None:
            self._elastic.start(executable, extra_env_vars)
        else:
            super().start(*executable, extra_env_vars)

    def shutdown(self) -> None:
        """As `Executor.shutdown`."""
        if self._elastic is not None:
            self._elastic.stop()
        super().shutdown()

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Optional[Iterable[Callback]] = None,
    ) -> list[Any]:
        """As `Executor.run`, or as an elastic job of its own."""
        if self._elastic is not None:
            return self._elastic.run(fn, args, kwargs, callbacks)
        return super().run(fn, args, kwargs, callbacks)

    def execute(self, fn: Callable[[Any], Any], callbacks: Optional[Iterable[Callback]] = None) -> list[Any]:
        """As `Executor.execute`, or as an elastic job of its own, with an executable made in each rank."""
        if self._elastic is not None:
            return self._elastic.execute(fn, callbacks)
        return super().execute(fn, callbacks)

    def _require_ranks(self) -> None:
        if self._elastic is not None:
            raise NotImplementedError(
                "With min_workers, ranks do not stay between calls: use run or execute, and leave out "
                "execute_single and run_remote."
            )
        super()._require_ranks()


class ElasticJobs:
    """The elastic jobs of an executor, one for each call. The ranks do not stay between calls."""

    def __init__(self, size: job.Size, terms: elastic.Terms) -> None:
        self._size = size
        self._terms = terms
        self._is_started = False
        self._make: Callable[[], Any] = _nothing

    def start(self, executable: tuple[Any, Any, Any], extra: Optional[Mapping[str, str]]) -> None:
        """executable: class, arguments and keywords of the object that functions of `execute` get."""
        load_ray()
        kind, args, kwargs = executable
        if kind is not None:
            self._make = functools.partial(kind, *(args or ()), **(kwargs or {}))
        env = {**(self._terms.env or {}), **{name: str(value) for name, value in (extra or {}).items()}}
        self._terms = replace(self._terms, env=env)
        self._is_started = True

    def stop(self) -> None:
        """Nothing runs between calls."""
        self._is_started = False

    def run(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, callbacks: Optional[Iterable[Callback]]
    ) -> list[Any]:
        """One job."""
        if not self._is_started:
            raise RuntimeError("This executor has no ranks: it has not been started: call start().")
        return elastic.run_elastic(fn, args or (), kwargs or {}, self._size, self._terms, callbacks or ())

    def execute(self, fn: Callable[[Any], Any], callbacks: Optional[Iterable[Callback]]) -> list[Any]:
        """One job of fn(executable)."""
        return self.run(_OnExecutable(fn, self._make), (), {}, callbacks)


def _nothing() -> None:
    return None


class _OnExecutable:
    """fn(executable), with an executable made in each rank."""

    def __init__(self, fn: Callable[[Any], Any], make: Callable[[], Any]) -> None:
        self._fn = fn
        self._make = make

    def __call__(self) -> Any:
        return self._fn(self._make())


def allowed_by(discovery: Any) -> Callable[[], Mapping[str, int]]:
    """The slots that a discovery of the caller names. Raises ValueError if there is none."""
    find = getattr(discovery, "find_available_hosts_and_slots", None)
    if find is None:
        raise ValueError(
            "override_discovery is False, but the settings have no discovery: set settings.discovery to an "
            "object with find_available_hosts_and_slots(), or leave override_discovery out."
        )
    found: Callable[[], Mapping[str, int]] = find
    return found


@dataclass
class ElasticSettings(Settings):
    """What `ElasticRayExecutor.create_settings` makes."""

    min_num_proc: int = 1
    max_num_proc: Optional[int] = None
    num_proc: Optional[int] = None
    reset_limit: Optional[int] = None
    elastic_timeout: float = 600
    discovery: Any = None  # names hosts and slots, where override_discovery is False


class ElasticRayExecutor:
    """Elastic jobs on a Ray cluster, with Horovod's arguments.

    settings: from `create_settings`. use_gpu: each rank gets gpus_per_slot GPUs, or one. env_vars: of the
    ranks. override_discovery=False: the hosts and slots are those that settings.discovery names, by the
    addresses of Ray's nodes; else what the cluster has free. Contradictory arguments raise ValueError.

    >>> executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=4))
    >>> executor.start()
    >>> executor.run(train)
    [...]
    """

    @classmethod
    def create_settings(
        cls,
        min_num_proc: int = 1,
        max_num_proc: Optional[int] = None,
        reset_limit: Optional[int] = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        nics: Optional[Any] = None,
        min_np: Optional[int] = None,
        max_np: Optional[int] = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """The limits of the job. min_np and max_np are older names; that of ssh changes nothing. kwargs:
        num_proc, discovery and placement_group_timeout_s. Raises TypeError for what there is not.
        """
        for old, new, value in (("min_np", "min_num_proc", min_np), ("max_np", "max_num_proc", max_np)):
            if value is not None:
                warnings.warn(f"Argument {old} is deprecated; use {new}.", DeprecationWarning, stacklevel=2)
        return ElasticSettings(
            timeout_s=timeout_s,
            nics=nics,
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            **kwargs,
        )

    def __init__(
        self,
        settings: Optional[ElasticSettings] = None,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: Optional[int] = None,
        env_vars: Optional[Mapping[str, str]] = None,
        override_discovery: bool = True,
    ) -> None:
        given = settings or ElasticSettings()
        gpus = gpus_of_each(use_gpu, gpus_per_slot, "gpus_per_slot")
        env = {**interfaces(given.nics), **{name: str(value) for name, value in (env_vars or {}).items()}}
        allowed = None if override_discovery else allowed_by(given.discovery)
        limits = {
            "min_workers": given.min_num_proc,
            "max_workers": given.max_num_proc,
            "reset_limit": given.reset_limit,
            "elastic_timeout": given.elastic_timeout,
        }
        terms = elastic.Terms(cpus_per_slot, gpus, env, max(given.timeout_s, DEFAULT_START_SECONDS), allowed)
        self._jobs = ElasticJobs(elastic.size_of(given.num_proc, limits), terms)

    def start(self) -> None:
        """Raises RuntimeError if there is no Ray. The ranks start with `run`."""
        self._jobs.start((None, None, None), None)

    def run(self, worker_fn: Callable[[], Any], callbacks: Optional[Iterable[Callback]] = None) -> list[Any]:
        """Runs worker_fn() as an elastic job. Returns the results of its last members, in rank order.

        callbacks: functions of one argument, which get what rank 0 passes to `horovod.ray.ray_logger.log`.
        Raises RuntimeError if the job failed.
        """
        return self._jobs.run(worker_fn, (), {}, callbacks)


def _check_elastic(
    num_workers: Optional[int], min_workers: Optional[int], max_workers: Optional[int]
) -> None:
    if min_workers is not None and num_workers is not None:
        raise ValueError("Give either num_workers or min_workers, and not both.")
    if max_workers is not None and (min_workers is None or min_workers <= 0):
        raise ValueError("max_workers needs a min_workers of at least 1.")


def interfaces(nics: Any) -> dict[str, str]:
    """The variable that names network interfaces, given by one name or several."""
    names = [nics] if isinstance(nics, str) else sorted(nics or ())
    return {"RUEDA_INTERFACE": ",".join(names)} if names else {}


def gpus_of_each(use_gpu: bool, count: Optional[int], name: str) -> int:
    """GPUs of a rank. Raises ValueError by name."""
    if count is not None and not use_gpu:
        raise ValueError(f"{name} is set, but use_gpu is False; set use_gpu=True.")
    if count is not None and count < 1:
        raise ValueError(f"{name} must be at least 1, not {count}.")
    return (count or 1) if use_gpu else 0
