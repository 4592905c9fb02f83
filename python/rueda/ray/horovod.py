"""`RayExecutor` with the arguments that Horovod gave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rueda.ray.executor import DEFAULT_START_SECONDS, Executor
from rueda.ray.placing import Refusals

NO_ELASTIC = (
    "rueda.ray has no elastic training yet: leave out min_workers, max_workers and ElasticRayExecutor, use "
    "RayExecutor(num_workers=...), and continue from a checkpoint after a failure (Ray Train does so with "
    "RuedaConfig and FailureConfig)."
)


@dataclass
class Settings:
    """What `RayExecutor.create_settings` makes."""

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Optional[Any] = None


class RayExecutor(Executor):
    """Ranks on a Ray cluster, with Horovod's arguments; see `Executor` for what they do.

    settings: from `create_settings`, or None. use_gpu: each rank gets gpus_per_worker GPUs, or one.
    min_workers and the arguments after it are for elastic training, which does not exist: they raise
    NotImplementedError. Contradictory arguments raise ValueError. `start` raises TimeoutError where Ray has
    no room for the ranks, at once if it never will.

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
        _refuse_elastic(num_workers, min_workers, max_workers)
        if gpus_per_worker is not None and not use_gpu:
            raise ValueError("gpus_per_worker is set, but use_gpu is False; set use_gpu=True.")
        if gpus_per_worker is not None and gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be at least 1, not {gpus_per_worker}.")
        given = settings or Settings()
        nics = [given.nics] if isinstance(given.nics, str) else sorted(given.nics or ())
        super().__init__(
            num_workers,
            num_hosts=num_hosts,
            num_workers_per_host=num_workers_per_host if num_hosts is not None else None,
            cpus_per_worker=cpus_per_worker,
            gpus_per_worker=(gpus_per_worker or 1) if use_gpu else 0,
            use_current_placement_group=use_current_placement_group,
            env={"RUEDA_INTERFACE": ",".join(nics)} if nics else None,
            placement_timeout=given.placement_group_timeout_s,
            # Horovod's default is for ranks whose processes run already.
            start_timeout=max(given.timeout_s, DEFAULT_START_SECONDS),
        )


def _refuse_elastic(
    num_workers: Optional[int], min_workers: Optional[int], max_workers: Optional[int]
) -> None:
    if min_workers is not None and num_workers is not None:
        raise ValueError("Give either num_workers or min_workers, and not both.")
    if max_workers is not None and (min_workers is None or min_workers <= 0):
        raise ValueError("max_workers needs a min_workers of at least 1.")
    if min_workers is not None:
        raise NotImplementedError(NO_ELASTIC)


class ElasticRayExecutor:
    """Raises NotImplementedError: there is no elastic training on Ray."""

    @classmethod
    def create_settings(cls, **_: Any) -> Settings:
        """Settings, so that the refusal comes from the constructor."""
        return Settings()

    def __init__(self, settings: Any = None, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(NO_ELASTIC)

    def start(self) -> None:
        raise NotImplementedError(NO_ELASTIC)

    def run(self, worker_fn: Callable[..., Any], callbacks: Optional[Mapping[str, Any]] = None) -> Any:
        raise NotImplementedError(NO_ELASTIC)
