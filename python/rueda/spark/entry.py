"""The first thing that a Spark task does. This module travels with the task and is not imported on the
executor, so that an executor without rueda, or with another version, is answered in one sentence.
"""

from __future__ import annotations

import importlib
import importlib.util
import socket
import sys
from typing import Any, Callable, Iterable, Iterator, NamedTuple

MARK = "rueda-refuses:"  # before a sentence that is meant for the user


class Requirements(NamedTuple):
    """What the driver has, and every executor must have too."""

    rueda: str
    modules: tuple[str, ...] = ("cloudpickle",)


def problem(wanted: Requirements, host: str) -> str | None:
    """What is wrong with this executor, in a sentence; None if nothing is."""
    try:
        found = importlib.import_module("rueda").__version__
    except ImportError:
        return _not_installed(f"rueda {wanted.rueda}", host)
    if found != wanted.rueda:
        return (
            f"The executor on {host} has rueda {found}, but the driver has {wanted.rueda}; "
            "install the same version on all."
        )
    for module in wanted.modules:
        if importlib.util.find_spec(module) is None:
            return _not_installed(module, host)
    return None


def _not_installed(what: str, host: str) -> str:
    return (
        f"{what} is not installed for {sys.executable}, the Python of the executor on {host}; "
        "install it there, or name another Python by PYSPARK_PYTHON or spark.pyspark.python."
    )


def make_task(
    wanted: Requirements, job: dict[str, Any], call: Any, is_barrier: bool
) -> Callable[..., Iterator[Any]]:
    """The function for mapPartitions. job: the arguments of rueda.spark.task.Job, by name; call: the
    broadcast of the pickled function.
    """

    def task(_: Iterable[Any]) -> Iterator[Any]:
        sentence = problem(wanted, socket.gethostname())
        if sentence is not None:
            raise RuntimeError(f"{MARK} {sentence}")
        from pyspark import BarrierTaskContext, TaskContext

        context = BarrierTaskContext.get() if is_barrier else TaskContext.get()
        runner = importlib.import_module("rueda.spark.task")
        yield runner.run_task(context, runner.Job(**job), lambda: call.value)

    return task


def make_offer(wanted: Requirements, driver: tuple[str, int], key: bytes) -> Callable[..., Iterator[Any]]:
    """The function for mapPartitions of a task that offers a slot of an elastic job. It yields a sentence if
    this executor cannot take part.
    """

    def task(_: Iterable[Any]) -> Iterator[Any]:
        sentence = problem(wanted, socket.gethostname())
        if sentence is not None:
            yield sentence
            return
        from pyspark import TaskContext

        importlib.import_module("rueda.spark.offering").offer(TaskContext.get(), driver, key)

    return task
