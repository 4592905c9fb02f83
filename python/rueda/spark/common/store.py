"""Where estimators keep training data, checkpoints and logs: a folder of any file system of fsspec."""

from __future__ import annotations

import json
import os
import posixpath
import uuid
from collections.abc import Mapping
from typing import Any, Optional

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]

_NEXT = ".next"  # of a checkpoint that replaces the one before


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise RuntimeError("Stores need fsspec: pip install 'rueda-train[spark]'.") from None
    return fsspec


class FilesystemStore:
    """A folder that the driver and all executors reach under the same URL.

    prefix_path: a path, or a URL of fsspec such as "hdfs://…", "s3://…" or "file:///…"; its scheme must
    also be known to Spark if a DataFrame is fitted. train_path, val_path: where `fit_on_parquet` finds its
    data. runs_path: the folder of all runs, default PREFIX/runs. storage_options: what fsspec needs to open
    the file system. save_runs: whether runs leave checkpoints and logs.

    A run has a folder RUNS/RUN_ID with the last checkpoint, "checkpoints/checkpoint", and "logs". A file
    appears under its name only when it is complete.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        *,
        save_runs: bool = True,
        storage_options: Optional[Mapping[str, Any]] = None,
    ) -> None:
        if not str(prefix_path):
            raise ValueError("The path of a store is empty; name a folder.")
        self.prefix_path = self._url(str(prefix_path))
        self.save_runs = save_runs
        self._train_path = self._url(train_path) if train_path else self.join("train_data")
        self._val_path = self._url(val_path) if val_path else self.join("val_data")
        self._runs_path = self._url(runs_path) if runs_path else self.join("runs")
        self._options = dict(storage_options or {})

    @staticmethod
    def _url(path: str) -> str:
        """Plain paths as file:// URLs, which Spark would otherwise look for in its default file system."""
        return path.rstrip("/") if "://" in path else "file://" + os.path.abspath(path)

    def join(self, *names: str) -> str:
        """The URL of something below the prefix."""
        return posixpath.join(self.prefix_path, *names)

    # ---- places ----

    def get_train_data_path(self) -> str:
        """Where `fit_on_parquet` finds training data."""
        return self._train_path

    def get_val_data_path(self) -> str:
        """Where `fit_on_parquet` finds validation data."""
        return self._val_path

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """The folder of one run. ValueError if the id is no plain name."""
        return posixpath.join(self._runs_path, self._plain(run_id))

    @staticmethod
    def _plain(run_id: str) -> str:
        # Folders with this name are deleted, so it must not lead anywhere else.
        if not run_id or "/" in run_id or run_id.startswith("."):
            raise ValueError(f"The run id {run_id!r} is no plain file name.")
        return run_id

    def get_logs_path(self, run_id: str) -> str:
        """The folder of the logs of one run."""
        return posixpath.join(self.get_run_path(run_id), "logs")

    def get_checkpoints_path(self, run_id: str) -> str:
        """The folder of the checkpoints of one run."""
        return posixpath.join(self.get_run_path(run_id), "checkpoints")

    def get_checkpoint_path(self, run_id: str) -> str:
        """The last checkpoint of one run, a file that is there after its first epoch."""
        return posixpath.join(self.get_checkpoints_path(run_id), self.get_checkpoint_filename())

    def get_checkpoint_filename(self) -> str:
        """The name of the last checkpoint in its folder."""
        return "checkpoint"

    def saving_runs(self) -> bool:
        """Whether runs leave checkpoints and logs."""
        return self.save_runs

    def get_intermediate_path(self, run_id: str) -> str:
        """Where the rows of a DataFrame wait while it is fitted. ValueError as for `get_run_path`."""
        return self.join("intermediate", self._plain(run_id))

    # ---- files ----

    def filesystem(self) -> Any:
        """The file system, as fsspec has it."""
        return _fsspec().core.url_to_fs(self.prefix_path, **self._options)[0]

    def path(self, url: str) -> str:
        """The URL as the file system wants it."""
        return str(self.filesystem()._strip_protocol(url))

    def exists(self, url: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self.filesystem().exists(url))

    def read(self, url: str) -> bytes:
        """The content of a file."""
        return bytes(self.filesystem().cat_file(self.path(url)))

    def write(self, url: str, data: bytes) -> None:
        """Writes a file that appears only when it is complete."""
        files = self.filesystem()
        files.makedirs(posixpath.dirname(self.path(url)), exist_ok=True)
        draft = f"{self.path(url)}.{uuid.uuid4().hex}.part"
        try:
            files.pipe_file(draft, data)
            if "file" not in files.protocol and files.exists(url):
                files.rm_file(self.path(url))  # others than the local one may not replace by moving
            files.mv(draft, self.path(url))
        except BaseException:
            if files.exists(draft):
                files.rm_file(draft)
            raise

    def delete(self, url: str) -> None:
        """Removes a file or a folder, if it is there."""
        files = self.filesystem()
        if files.exists(url):
            files.rm(self.path(url), recursive=True)

    # ---- runs ----

    def save_checkpoint(self, run_id: str, data: bytes) -> None:
        """Keeps what is needed to continue, and forgets what was kept before."""
        if not self.save_runs:
            return
        url, files = self.get_checkpoint_path(run_id), self.filesystem()
        if "file" in files.protocol:
            self.write(url, data)  # one replaces the other at once
            return
        # Other file systems may not replace by moving, so for a moment only the next one is there.
        self.write(url + _NEXT, data)
        if files.exists(url):
            files.rm_file(self.path(url))
        files.mv(self.path(url + _NEXT), self.path(url))

    def last_checkpoint(self, run_id: str) -> Optional[bytes]:
        """What `save_checkpoint` kept last; None if there is nothing."""
        url = self.get_checkpoint_path(run_id)
        return next((self.read(one) for one in (url, url + _NEXT) if self.exists(one)), None)

    def save_logs(self, run_id: str, history: Mapping[str, list[float]]) -> None:
        """Writes logs/history.json: a list per number, one entry per epoch."""
        if self.save_runs:
            path = posixpath.join(self.get_logs_path(run_id), "history.json")
            self.write(path, json.dumps(dict(history), indent=1).encode())


class LocalStore(FilesystemStore):
    """A folder of this machine, or of a network file system that all machines mount there."""


class HDFSStore(FilesystemStore):
    """A folder of HDFS. A prefix without a scheme is a path of Spark's default file system."""

    @staticmethod
    def _url(path: str) -> str:
        return path.rstrip("/") if "://" in path else "hdfs://" + os.path.join("/", path)


class DBFSLocalStore(FilesystemStore):
    """A folder of Databricks, as "dbfs:/…" or "/dbfs/…"."""

    @staticmethod
    def _url(path: str) -> str:
        if path.startswith("dbfs:"):
            path = "/dbfs/" + path.removeprefix("dbfs:").lstrip("/")
        return FilesystemStore._url(path)


class Store(FilesystemStore):
    """Chooses the kind of a store: `Store.create("/shared-by-all/folder")`."""

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> FilesystemStore:
        """The store for this path or URL; arguments as for `FilesystemStore`."""
        prefix = os.fspath(prefix_path)
        kind: type[FilesystemStore] = LocalStore
        if prefix.startswith(("dbfs:", "/dbfs/")):
            kind = DBFSLocalStore
        elif prefix.startswith("hdfs://"):
            kind = HDFSStore
        elif "://" in prefix and not prefix.startswith(("file://", "local://")):
            kind = FilesystemStore
        return kind(prefix, *args, **kwargs)
