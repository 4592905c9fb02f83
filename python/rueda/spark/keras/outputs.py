"""The files that a user's callbacks write: by rank 0 only, and copied into the store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from rueda.spark.common.store import FilesystemStore
from rueda.spark.keras.package import keras_of, own

keras = keras_of(own())
_Callback: Any = keras.callbacks.Callback

# The callbacks that only write files, where each is told its path, and the folder of the run for copies.
_WRITERS = (
    (keras.callbacks.TensorBoard, "log_dir", "logs"),
    (keras.callbacks.CSVLogger, "filename", "logs"),
    (keras.callbacks.ModelCheckpoint, "filepath", "checkpoints"),
)


def writes(callback: Any) -> Optional[tuple[str, str]]:
    """The attribute with the path, and the folder of the run; None if it does more than writing files."""
    return next(((path, folder) for kind, path, folder in _WRITERS if isinstance(callback, kind)), None)


def of_rank(callbacks: Iterable[Any], rank: int) -> list[Any]:
    """The callbacks that this rank has: all on rank 0, else those that do not just write files."""
    return [one for one in callbacks if rank == 0 or writes(one) is None]


class Outputs(_Callback):  # type: ignore[misc]
    """Copies what the callbacks of rank 0 write into the store, after each epoch and at the end.

    A relative path is meant below the folder of the run: its files come into being in a folder of their own,
    which is gone after `close`. Files below an absolute path stay there too. URLs are left to the callback.
    """

    def __init__(self, callbacks: Iterable[Any], store: FilesystemStore, run_id: str) -> None:
        super().__init__()
        self._store = store
        self._run = store.get_run_path(run_id)
        self._own = tempfile.TemporaryDirectory(prefix="rueda-spark-")
        self._sources: list[tuple[Path, str]] = []  # a folder or file, and where below the run it is copied
        self._copied: dict[Path, tuple[int, int]] = {}  # time of change and size of each file, as copied
        for callback in callbacks:
            self._redirect(callback, *(writes(callback) or ("", "")))
        for path, _ in self._files():
            self._copied[path] = self._state(path)  # it is older than this run

    def _redirect(self, callback: Any, attribute: str, folder: str) -> None:
        path = str(getattr(callback, attribute)) if attribute else ""
        if not path or "://" in path:
            return
        if not os.path.isabs(path):
            # A path upwards must not leave the folder.
            inside = os.path.normpath(os.path.join("/", path)).lstrip("/")
            path = os.path.join(self._own.name, folder, inside)
            setattr(callback, attribute, path)
        os.makedirs(path if attribute == "log_dir" else os.path.dirname(path), exist_ok=True)
        if path.startswith(self._own.name):
            self._add(Path(self._own.name, folder), folder)
        elif attribute == "log_dir" or "{" not in path:  # numbers in the name of a file are known only later
            self._add(Path(path), folder)

    def _add(self, source: Path, folder: str) -> None:
        if (source, folder) not in self._sources:
            self._sources.append((source, folder))

    @staticmethod
    def _state(path: Path) -> tuple[int, int]:
        facts = path.stat()
        return facts.st_mtime_ns, facts.st_size

    def _files(self) -> Iterable[tuple[Path, str]]:
        """All files, and where each belongs below the run."""
        for source, folder in self._sources:
            if source.is_file():
                yield source, f"{folder}/{source.name}"
            for path in sorted(source.rglob("*")) if source.is_dir() else ():
                if path.is_file():
                    yield path, f"{folder}/{path.relative_to(source).as_posix()}"

    def _copy(self) -> None:
        for path, name in self._files():
            state = self._state(path)
            if self._copied.get(path) != state:
                self._store.write(f"{self._run}/{name}", path.read_bytes())
                self._copied[path] = state

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Copies what has changed."""
        self._copy()

    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Copies what has changed."""
        self._copy()

    def close(self) -> None:
        """Removes the folder of the relative paths."""
        self._own.cleanup()
