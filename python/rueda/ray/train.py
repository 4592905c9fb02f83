"""A backend for Ray Train: its workers become ranks of one job.

Train starts the workers, places them, restarts them after a failure and keeps checkpoints. The function of
the user calls `hvd.init()` and collectives as under any launcher.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

import rueda
from rueda.basics import basics
from rueda.placement import Hello, environment, forwarded, place
from rueda.ports import host_key
from rueda.ray import private
from rueda.ray.bundles import Shape
from rueda.ray.placing import refuse_too_few
from rueda.ray.worker import become_rank, where

DataParallelTrainer: Any = private.data_parallel_trainer()

from ray.train.backend import Backend, BackendConfig  # noqa: E402 (after the check of Ray's version)

_SHUTDOWN_SECONDS = 5.0
_ports: Any = None  # of a worker; they stay reserved as long as its process lives


@dataclass
class RuedaConfig(BackendConfig):  # type: ignore[misc]
    """Lets the workers of a Ray Train trainer be ranks.

    env: variables for the ranks, besides the RUEDA_* and HOROVOD_* settings of the driver. tf_config: ranks
    find TF_CONFIG, for tf.distribute.

    >>> trainer = TorchTrainer(train, torch_config=RuedaConfig(), scaling_config=ScalingConfig(num_workers=2))
    """

    env: Optional[Mapping[str, str]] = None
    tf_config: bool = False

    def __post_init__(self) -> None:
        settings = {name: str(value) for name, value in (self.env or {}).items()}
        self.env = {**forwarded(os.environ), **settings}

    @property
    def backend_cls(self) -> type:
        return _RuedaBackend


class RuedaTrainer(DataParallelTrainer):  # type: ignore[misc]
    """A Ray Train trainer whose workers are ranks: `DataParallelTrainer` with a `RuedaConfig`.

    Takes what every trainer of Ray Train takes (train_loop_config, scaling_config, run_config, datasets, …).

    >>> RuedaTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().metrics
    """

    def __init__(
        self,
        train_loop_per_worker: Any,
        *,
        rueda_config: Optional[RuedaConfig] = None,
        **arguments: Any,
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=rueda_config or RuedaConfig(), **arguments)
        self._shape = _shape_of(arguments.get("scaling_config"))

    def fit(self) -> Any:
        """Trains; returns Train's result. Raises ValueError at once if this process has started a cluster
        that is too small: Train would wait for ever.
        """
        if self._shape is not None:
            refuse_too_few(self._shape)
        return super().fit()


def _shape_of(scaling: Any) -> Optional[Shape]:
    """What the workers need at least; None if Train decides how many there are."""
    count = getattr(scaling, "num_workers", None)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return None
    needs = scaling.resources_per_worker or ({"GPU": 1} if scaling.use_gpu else {"CPU": 1})
    gpus = int(needs.get("GPU", 0))  # some workers may share one
    return Shape(count, float(needs.get("CPU", 0)), gpus, scaling.placement_strategy)


def _introduce(partition: int, wanted: str) -> dict[str, Any]:
    """On a worker: the fields of its Hello."""
    global _ports
    if rueda.__version__ != wanted:
        raise RuntimeError(
            f"A worker of Ray Train has rueda {rueda.__version__}, but the driver has {wanted}; install the "
            "same version on all nodes."
        )
    host, _ports = where()
    numbers = (_ports[0].number, _ports[1].number, _ports[2].number)
    return asdict(Hello(partition, host, host_key(), os.getpid(), numbers))


def _shut_down() -> None:
    if basics.is_initialized():
        basics.shutdown()


class _RuedaBackend(Backend):  # type: ignore[misc]
    """What Train calls; workers come in the order of their world ranks there, nodes one after the other."""

    share_cuda_visible_devices = True  # so that local rank i finds its GPU as device i

    def on_start(self, worker_group: Any, backend_config: RuedaConfig) -> None:
        import ray

        size = len(worker_group)
        introductions = [
            worker_group.execute_single_async(index, _introduce, index, rueda.__version__)
            for index in range(size)
        ]
        hellos = [
            Hello(**{**fields, "ports": tuple(fields["ports"]), "gpus": tuple(fields["gpus"])})
            for fields in ray.get(introductions)
        ]
        places = place(hellos)
        job, secret = f"ray-train-{secrets.token_hex(8)}", secrets.token_hex(32).encode()
        ready = []
        for hello in hellos:
            variables = environment(hellos, places, hello, job, backend_config.tf_config)
            settings = {**(backend_config.env or {}), **variables}
            ready.append(worker_group.execute_single_async(hello.partition, become_rank, settings, secret))
        ray.get(ready)

    def on_shutdown(self, worker_group: Any, backend_config: RuedaConfig) -> None:
        import ray

        # Some workers may be dead, and others in the middle of a collective that will never end.
        refs = worker_group.execute_async(_shut_down)
        ray.wait(refs, num_returns=len(refs), timeout=_SHUTDOWN_SECONDS)
