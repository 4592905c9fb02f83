"""`rueda.ray.run`: one function on the ranks of a job of its own, of fixed size or elastic."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

from rueda.placement import seconds
from rueda.ray import elastic
from rueda.ray.executor import DEFAULT_START_SECONDS, Executor
from rueda.ray.reports import Callback

_ELASTIC = {"max_workers", "spares", "reset_limit", "elastic_timeout"}
_OF_BOTH = {"cpus_per_worker", "gpus_per_worker", "env", "start_timeout", "verbose"}


def _refuse_unknown(options: Mapping[str, Any], known: Iterable[str]) -> None:
    if unknown := sorted(options.keys() - {*known}):
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"rueda.ray.run() has no argument {unknown[0]}{hint}")


def _run_elastic(
    call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]],
    num_workers: Optional[int],
    callbacks: Iterable[Callback],
    options: Mapping[str, Any],
) -> list[Any]:
    if without := sorted(options.keys() & (inspect.signature(Executor).parameters.keys() - _OF_BOTH)):
        raise ValueError(f"rueda.ray.run: {without[0]} does not go with min_workers; leave one of them out.")
    _refuse_unknown(options, {"min_workers", *_ELASTIC, *_OF_BOTH})
    size = elastic.size_of(num_workers, options)
    terms = elastic.Terms(
        options.get("cpus_per_worker", 1),
        options.get("gpus_per_worker", 0),
        options.get("env"),
        seconds("start_timeout", options.get("start_timeout", DEFAULT_START_SECONDS)),
        verbose=options.get("verbose", 1),
    )
    return elastic.run_elastic(*call, size, terms, callbacks)


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_workers: Optional[int] = None,
    *,
    callbacks: Optional[Iterable[Callback]] = None,
    **options: Any,
) -> list[Any]:
    """Runs `fn(*args, **kwargs)` on `num_workers` ranks of a Ray cluster, and ends them. Returns the list of
    results in rank order.

    With min_workers the job is elastic: it goes on while so many ranks are left, on nodes that come and
    go, and the results are those of its last members. num_workers: how many begin (default min_workers).
    max_workers: never more (default: whatever the cluster has); spares, reset_limit, elastic_timeout: as of
    `rueda run`; cpus_per_worker, gpus_per_worker, env, start_timeout and verbose as of `Executor`.

    options: those of `Executor`. callbacks and errors: those of `Executor.start` and `Executor.run`. If Ray
    is not initialized, `ray.init()` finds or starts a cluster.

    >>> rueda.ray.run(lambda x: x * int(os.environ["RUEDA_RANK"]), args=(10,), num_workers=2)
    [0, 10]
    """
    if not callable(fn):
        raise TypeError(f"rueda.ray.run: fn must be a function, not {fn!r}.")
    if options.get("min_workers") is not None:
        return _run_elastic((fn, args, kwargs or {}), num_workers, callbacks or (), options)
    if elastic := sorted(options.keys() & _ELASTIC):
        raise ValueError(f"rueda.ray.run: {elastic[0]} belongs to elastic jobs; give min_workers as well.")
    _refuse_unknown(options, inspect.signature(Executor).parameters)
    with Executor(num_workers, **options) as executor:
        return executor.run(fn, args, kwargs, callbacks)
