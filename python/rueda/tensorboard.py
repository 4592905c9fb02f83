"""What rueda knows of a training, as scalars of TensorBoard beside those of the training itself."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from rueda.basics import basics

NO_WRITER = (
    "rueda.tensorboard: nothing here writes files for TensorBoard; pip install tensorboard, or pass writer=, "
    "an object with add_scalar(tag, value, step)."
)


class Writer(Protocol):
    """SummaryWriter of torch.utils.tensorboard or of tensorboardX, or what has these methods."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keeps the value."""

    def flush(self) -> None:
        """Writes what it has kept."""

    def close(self) -> None:
        """Writes the rest."""


class _OfTensorFlow:
    """tf.summary as a Writer."""

    def __init__(self, log_dir: str) -> None:
        self._summary: Any = importlib.import_module("tensorflow").summary
        importlib.import_module("tensorboard")  # tf.summary.scalar needs it
        self._file = self._summary.create_file_writer(log_dir)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        with self._file.as_default():
            self._summary.scalar(tag, scalar_value, step=global_step)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _summary_writer(module: str) -> Callable[[str], Writer]:
    return lambda log_dir: importlib.import_module(module).SummaryWriter(log_dir)


def open_writer(log_dir: str) -> Writer:
    """The writer of the framework that this program uses, if it is installed; else any. ImportError: none."""
    ways: list[Callable[[str], Writer]] = []
    if "torch" in sys.modules:
        ways.append(_summary_writer("torch.utils.tensorboard"))
    if "tensorflow" in sys.modules:
        ways.append(_OfTensorFlow)
    ways.append(_summary_writer("tensorboardX"))
    for way in ways:
        try:
            return way(log_dir)
        except ImportError:
            continue
    raise ImportError(NO_WRITER)


def scalars_between(before: dict[str, Any], after: dict[str, Any], seconds: float) -> dict[str, float]:
    """What happened between two results of hvd.metrics() that are some seconds apart. Pure.

    A scalar is left out if nothing happened that it could describe.
    """

    def total(found: dict[str, Any], name: str, key: str | None = None) -> float:
        value = found.get(name, 0)
        if not isinstance(value, dict):
            return float(value)
        return float(value.get(key, 0)) if key else float(sum(value.values()))

    def more(name: str, key: str | None = None) -> float:
        return total(after, name, key) - total(before, name, key)

    scalars = {}
    if seconds > 0:
        scalars["rueda/bytes_per_second"] = more("rueda_bytes_total") / seconds
        scalars["rueda/waiting_share"] = more("rueda_waiting_seconds_total", "operation") / seconds
    if steps := more("rueda_step_seconds", "count"):
        scalars["rueda/step_seconds"] = more("rueda_step_seconds", "sum") / steps
    if calls := more("rueda_calls_total"):
        scalars["rueda/planned_share"] = more("rueda_planned_calls_total") / calls
    return scalars


class MetricsWriter:
    """Writes step time, waiting share, bytes per second and the share of planned collectives, on rank 0.

    Other ranks may use it too: there it does nothing. log_dir: a folder for a writer of its own, which is
    that of the framework in use (torch.utils.tensorboard, tf.summary) or tensorboardX; writer: the program's
    own SummaryWriter, which stays open. After init. ImportError if there is no writer.

    Example::

        with MetricsWriter("runs/rueda") as metrics:
            for step, batch in enumerate(loader):
                ...
                if step % 100 == 0:
                    metrics.write(step)
    """

    def __init__(self, log_dir: str | None = None, writer: Writer | None = None) -> None:
        if (log_dir is None) == (writer is None):
            raise ValueError("MetricsWriter takes either log_dir or writer.")
        self._is_first = basics.rank() == 0
        self._is_own = writer is None
        self._writer = writer
        if self._is_first and log_dir is not None:
            self._writer = open_writer(log_dir)
        self._before, self._at = basics.metrics(), time.monotonic()

    def write(self, step: int) -> None:
        """Writes what has happened since the last call, or since this object was made, at this step."""
        if not self._is_first or self._writer is None:
            return
        now, at = basics.metrics(), time.monotonic()
        for tag, value in scalars_between(self._before, now, at - self._at).items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()
        self._before, self._at = now, at

    def close(self) -> None:
        """Closes the writer if it is this object's own. Nothing is written after that."""
        if self._is_own and self._writer is not None:
            self._writer.close()
        self._writer = None

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
