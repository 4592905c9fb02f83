"""Where the ranks of an estimator run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from rueda.basics import environment
from rueda.run import run as run_here
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


class SparkBackend(Backend):
    """Ranks in tasks of the active Spark application. num_proc: default `spark.default.parallelism`; env:
    variables for the ranks; other arguments as for `rueda.spark.run`.
    """

    def __init__(
        self, num_proc: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **kwargs: Any
    ) -> None:
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
        variables = {**self._env, **(env or {})}
        count = self.num_processes()
        return run_on_spark(fn, args, kwargs, num_proc=count, env=variables, **self._options)

    def num_processes(self) -> int:
        return self._num_proc or int(active_context().defaultParallelism)


class LocalBackend(Backend):
    """Ranks on the machine of the driver, without Spark's executors. Other arguments as for `rueda.run`."""

    def __init__(
        self, num_proc: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **kwargs: Any
    ) -> None:
        self._num_proc = num_proc or 1
        self._env = dict(env or {})
        self._options = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        with environment({**self._env, **(env or {})}):  # which the ranks inherit
            return run_here(fn, args, kwargs, num_proc=self._num_proc, **self._options)

    def num_processes(self) -> int:
        return self._num_proc
