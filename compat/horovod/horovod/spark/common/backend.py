"""Backends, served by rueda.spark.common.backend."""

from rueda.spark.common.backend import Backend, LocalBackend, SparkBackend

__all__ = ["Backend", "LocalBackend", "SparkBackend"]
