"""Horovod on Spark, served by rueda.spark."""

from rueda.spark import run, run_elastic

__all__ = ["run", "run_elastic"]
