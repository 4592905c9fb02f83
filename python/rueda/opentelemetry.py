"""What rueda counts (docs/metrics.md), as instruments of OpenTelemetry beside those of the program."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from rueda import _core
from rueda.basics import basics

NO_API = "rueda.opentelemetry: OpenTelemetry is not installed; pip install 'rueda-train[opentelemetry]'."
# An instrument that is not asked in every collection gets no older values.
LONGEST_COLLECTION_S = 1.0
UNITS = {"seconds": "s", "bytes": "By"}


def observe(meter_provider: Any = None) -> None:
    """Makes the counters of this process instruments, which are read whenever the program's readers collect.

    meter_provider: a MeterProvider; None: the one that the program has set with set_meter_provider. Each
    value has the attribute "rank" besides the labels of docs/metrics.md. A counter has its name there without
    "_total", which exporters to Prometheus add. OpenTelemetry takes no finished histogram: of one there are
    the counters "..._count" and "..._sum". After init, once in a process. ImportError without OpenTelemetry.

    Example::

        provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
        hvd.init()
        rueda.opentelemetry.observe(provider)
    """
    try:
        api = importlib.import_module("opentelemetry.metrics")
    except ImportError as error:
        raise ImportError(NO_API) from error
    meter = (meter_provider or api.get_meter_provider()).get_meter("rueda", _core.version())
    rank = basics.rank()
    reading = _Reading()
    for name, family in _families().items():
        for suffix in ("_count", "_sum") if family["type"] == "histogram" else ("",):
            is_gauge = family["type"] == "gauge"
            create = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
            create(
                name.removesuffix("_total") + suffix,
                callbacks=[_reader(reading, name, suffix, rank, api.Observation)],
                unit="1" if suffix == "_count" else unit_of(name),
                description=family["help"],
            )


def unit_of(name: str) -> str:
    """The unit, as UCUM writes it, of a metric that is named as Prometheus advises. Pure."""
    words = name.removesuffix("_total").split("_")
    if words[-2:] == ["per", "second"]:
        return f"{UNITS.get(words[-3], '1')}/s"
    return UNITS.get(words[-1], "1")


def _families() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_core.metrics())
    return found


class _Reading:
    """All metrics, read once for all instruments of a collection. Any thread.

    OpenTelemetry asks each instrument once in a collection and does not say when one begins. It has begun
    when an instrument asks again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, Any] = {}
        self._asked: set[tuple[str, str]] = set()
        self._read_at = -LONGEST_COLLECTION_S

    def samples(self, name: str, suffix: str) -> list[Any]:
        with self._lock:
            is_old = time.monotonic() - self._read_at >= LONGEST_COLLECTION_S
            if is_old or (name, suffix) in self._asked:
                self._families = _families()
                self._asked.clear()
                self._read_at = time.monotonic()
            self._asked.add((name, suffix))
            return [each for each in self._families[name]["samples"] if each["suffix"] == suffix]


def _reader(
    reading: _Reading, name: str, suffix: str, rank: int, observation: Any
) -> Callable[[Any], Iterable[Any]]:
    def read(_options: Any) -> Iterable[Any]:
        for sample in reading.samples(name, suffix):
            yield observation(sample["value"], {"rank": rank, **sample["labels"]})

    return read
