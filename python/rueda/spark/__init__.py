"""Ranks in the tasks of a Spark application: `rueda.spark.run(fn, num_proc=4)`, and estimators beside it."""

from __future__ import annotations

from rueda.spark.elastic import run_elastic
from rueda.spark.launcher import run

__all__ = ["run", "run_elastic"]
