"""What the SDK of OpenTelemetry collects from a job of one rank."""

import numpy
import pytest

import rueda.numpy as hvd
from rueda.opentelemetry import observe, unit_of

sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="OpenTelemetry is not installed (make setup)")


@pytest.fixture
def reader():
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    found = InMemoryMetricReader()
    provider = sdk.MeterProvider([found])
    hvd.init()
    observe(provider)
    yield found
    hvd.shutdown()
    provider.shutdown()


def _collected(reader):
    (resource,) = reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "rueda"
    return {metric.name: metric for metric in scope.metrics}


def _values(metric):
    return {tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points}


def test_each_collection_reads_what_rueda_has_counted_by_then(reader):
    before = _values(_collected(reader)["rueda_calls"])
    for _ in range(3):
        hvd.allreduce(numpy.ones(10, numpy.float32), name="a")
    after = _values(_collected(reader)["rueda_calls"])
    allreduce = (("collective", "allreduce"), ("rank", 0))
    assert after[allreduce] - before[allreduce] == 3
    assert after[("collective", "broadcast"), ("rank", 0)] == before[("collective", "broadcast"), ("rank", 0)]


def test_all_instruments_of_a_collection_share_one_reading(reader, monkeypatch):
    from rueda import _core

    readings = []
    read = _core.metrics
    monkeypatch.setattr(_core, "metrics", lambda: readings.append(1) or read())
    for collections in range(1, 4):
        _collected(reader)
        assert len(readings) == collections


def test_every_metric_is_there_with_its_type_unit_and_meaning(reader):
    found = _collected(reader)
    expected = set()
    for name, value in hvd.metrics().items():
        is_histogram = isinstance(value, dict) and "buckets" in value
        expected |= {f"{name}_count", f"{name}_sum"} if is_histogram else {name.removesuffix("_total")}
    assert set(found) == expected
    kinds = {name: type(metric.data).__name__ for name, metric in found.items()}
    assert kinds["rueda_up"] == kinds["rueda_resident_bytes"] == "Gauge"
    assert kinds["rueda_steps"] == kinds["rueda_step_seconds_sum"] == "Sum"
    assert found["rueda_steps"].data.is_monotonic
    assert _values(found["rueda_up"]) == {(("rank", 0),): 1}
    assert found["rueda_call_seconds_sum"].unit == "s" and found["rueda_call_seconds_count"].unit == "1"
    assert found["rueda_bytes"].unit == "By" and found["rueda_bytes"].description.startswith("Bytes of ")


def test_units_follow_from_names():
    units = {"rueda_bytes_total": "By", "rueda_link_sent_bytes_per_second": "By/s", "rueda_up": "1"}
    assert {name: unit_of(name) for name in units} == units


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch):
    import importlib

    def refuse(name, *arguments):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ImportError, match=r"pip install 'rueda-train\[opentelemetry\]'"):
        observe()
