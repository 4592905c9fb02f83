"""Ranks in the tasks of a Spark application: `rueda.spark.run(fn, num_proc=4)`, and estimators beside it."""

from __future__ import annotations

from typing import Any

from rueda.spark.launcher import run

__all__ = ["run", "run_elastic"]

NO_ELASTIC = (
    "rueda.spark has no elastic training yet: Spark starts all tasks of a barrier stage together and ends it "
    "when one is lost. Use rueda.spark.run, and continue from a checkpoint after a failure."
)


def run_elastic(*args: Any, **kwargs: Any) -> list[Any]:
    """Raises NotImplementedError: there is no elastic training on Spark."""
    raise NotImplementedError(NO_ELASTIC)
