"""Where the ranks of an estimator run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from rueda.run import run as run_here
from rueda.spark.common.checks import check_whole
from rueda.spark.launcher import active_context
from rueda.spark.launcher import run as run_on_spark

__all__ = ["Backend", "LocalBackend", "SparkBackend"]


class Backend:
    """The interface."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        """The results of fn on all ranks, in rank order."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """How many ranks there are."""
        raise NotImplementedError


class _RankBackend(Backend):
    """What both backends share: their number of ranks, variables and other arguments."""

    def __init__(
        self, num_proc: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **kwargs: Any
    ) -> None:
        if num_proc is not None:
            check_whole("num_proc", num_proc, 1)
        self._num_proc = num_proc
        self._env = dict(env or {})
        self._options = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        return self._start((fn, args, kwargs), {**self._env, **(env or {})})

    def _start(self, call: tuple[Any, Any, Any], env: Mapping[str, str]) -> list[Any]:
        raise NotImplementedError


class SparkBackend(_RankBackend):
    """Ranks in tasks of the active Spark application. num_proc: default `spark.default.parallelism`; env:
    variables for the ranks; other arguments as for `rueda.spark.run`.
    """

    def _start(self, call: tuple[Any, Any, Any], env: Mapping[str, str]) -> list[Any]:
        return run_on_spark(*call, num_proc=self.num_processes(), env=env, **self._options)

    def num_processes(self) -> int:
        return self._num_proc or int(active_context().defaultParallelism)


class LocalBackend(_RankBackend):
    """Ranks on the machine of the driver, without Spark's executors. num_proc: default 1; env: variables
    for the ranks; other arguments as for `rueda.run`.
    """

    def _start(self, call: tuple[Any, Any, Any], env: Mapping[str, str]) -> list[Any]:
        return run_here(*call, num_proc=self.num_processes(), env=env, **self._options)

    def num_processes(self) -> int:
        return self._num_proc or 1
