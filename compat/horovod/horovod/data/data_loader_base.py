"""Horovod's data loaders, served by rueda.data."""

from rueda.data import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
