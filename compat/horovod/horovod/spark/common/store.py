"""Stores, served by rueda.spark.common.store."""

from rueda.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]
