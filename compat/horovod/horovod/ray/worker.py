"""An actor class for scripts that start ranks on Ray by themselves."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.ray import ray_logger

__all__ = ["BaseHorovodWorker"]


class BaseHorovodWorker:
    """Calls functions beside an object that it keeps, and sets variables in its process. rueda's executors
    use an actor of their own.

    The place of the rank is that of world_rank and world_size; whoever starts it sets the other variables,
    such as where ranks meet, with `update_env_vars` before a function calls `hvd.init()`.

    >>> worker = ray.remote(BaseHorovodWorker).remote(world_rank=0, world_size=2)
    """

    executable: Any = None  # what start_executable has made

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        place = {"HOSTNAME": self.hostname(), "RANK": world_rank, "SIZE": world_size}
        self.update_env_vars({f"HOROVOD_{name}": value for name, value in place.items()})

    def hostname(self) -> str:
        """The name of this host."""
        return socket.gethostname()

    def get_gpu_ids(self) -> list[Any]:
        """The GPUs that Ray gave to this actor."""
        import ray

        found: list[Any] = ray.get_gpu_ids()
        return found

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Sets variables of this process; values become text."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """The variables of this process."""
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes the object that functions of `execute` get; without a class there is none."""
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """func(executable)."""
        return func(self.executable)

    def set_queue(self, queue: Any) -> None:
        """Where `ray_logger.log` puts things."""
        ray_logger.configure(queue)
