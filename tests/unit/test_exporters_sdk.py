from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import Counter, Histogram, UpDownCounter
from opentelemetry.sdk.metrics import export as sdk

from otel_gpu.errors import ConfigError
from otel_gpu.exporters.sdk.exporter import SdkExporters
from otel_gpu.exporters.sdk.metrics import Deltas, SdkExporter, metrics_data
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.exporters.settings import Temporality
from otel_gpu.exporters.wire.metrics_protobuf import MetricsEncoder
from otel_gpu.signals.exemplars import Exemplar
from otel_gpu.signals.metrics import (
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SeriesStore,
    Value,
    attributes,
)

GROWING = frozenset({Instrument.COUNTER, Instrument.HISTOGRAM})

SPECS = {
    "calls": MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls."),
    "usage": MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use."),
    "power": MetricSpec("power", "W", Instrument.GAUGE, "Power.", floating=True),
    "copies": MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies."),
}


def with_exemplar(buckets: Buckets, value: int) -> Buckets:
    buckets.note(2, Exemplar(value, 1_500, bytes([value]) * 16, bytes([value]) * 8))
    return buckets


def store() -> SeriesStore:
    filled = SeriesStore()
    for pid in (7, 8):
        process = Resource(attributes({"process.pid": pid}))
        filled.fold(
            [
                Measurement(process, SPECS["calls"], attributes(k="a"), 5),
                Measurement(process, SPECS["calls"], attributes(k="b"), 6),
                Measurement(process, SPECS["usage"], (), -3),
                Measurement(process, SPECS["power"], (), 250.5),
                Measurement(process, SPECS["copies"], (), with_exemplar(Buckets({1: 2, 4: 1}, 40, 1), pid)),
            ],
            1_000,
        )
    return filled


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_sdk_encodes_our_data_to_what_we_encode_ourselves(temporality: Temporality) -> None:
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.metrics_encoder")
    filled, ours = store(), MetricsEncoder(temporality)
    deltas = Deltas(GROWING if temporality == "delta" else frozenset())

    for now_ns in (2_000, 3_000, 4_000):
        theirs = encoder.encode_metrics(metrics_data(filled, now_ns, deltas))

        (encoded,) = ours.encode(filled, now_ns)
        ours.commit()
        expected = ExportMetricsServiceRequest.FromString(encoded.body)
        assert [m.resource for m in theirs.resource_metrics] == [m.resource for m in expected.resource_metrics]
        for their_resource, our_resource in zip(theirs.resource_metrics, expected.resource_metrics, strict=True):
            assert their_resource.scope_metrics[0].metrics == our_resource.scope_metrics[0].metrics
            assert their_resource.scope_metrics[0].scope.name == "otel_gpu"
        for pid in (7, 8, 9):
            process = Resource(attributes({"process.pid": pid}))
            filled.fold([Measurement(process, SPECS["calls"], attributes(k="a"), 2)], now_ns)
            filled.fold(
                [Measurement(process, SPECS["copies"], (), with_exemplar(Buckets({4: 1}, 20, 1), pid + 1))], now_ns
            )


class Preferring(sdk.MetricExporter):
    def __init__(self, *of: type) -> None:
        super().__init__(preferred_temporality=dict.fromkeys(of, sdk.AggregationTemporality.DELTA))
        self.got: list[dict[str, Any]] = []

    def export(self, metrics_data: sdk.MetricsData, timeout_millis: float = 0, **_: object) -> sdk.MetricExportResult:
        """Keep the data of each metric; of each the first point alone is looked at."""
        scopes = [scope for resource in metrics_data.resource_metrics for scope in resource.scope_metrics]
        self.got.append({metric.name: metric.data for scope in scopes for metric in scope.metrics})
        return sdk.MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: object) -> None:
        pass


def exported(to: Preferring, *filled: SeriesStore, change: Callable[[SeriesStore], None]) -> list[dict[str, Any]]:
    exporter = SdkExporter(to)
    for one in filled:
        exporter.export_metrics(one, 2_000)
    for one in filled:
        change(one)
        exporter.export_metrics(one, 3_000)
    exporter.shutdown(5)
    return to.got


def one_of_each() -> SeriesStore:
    filled = SeriesStore()
    values: list[tuple[str, Value]] = [("calls", 5), ("usage", 7), ("power", 250.5), ("copies", Buckets({4: 1}, 20))]
    filled.fold([Measurement(Resource(()), SPECS[name], (), value) for name, value in values], 1_000)
    return filled


def grow(filled: SeriesStore) -> None:
    values: list[tuple[str, Value]] = [("calls", 2), ("usage", -3), ("power", 200.5), ("copies", Buckets({4: 2}, 50))]
    filled.fold([Measurement(Resource(()), SPECS[name], (), value) for name, value in values], 2_000)


def number(data: Any) -> tuple[int, float]:
    return data.data_points[0].start_time_unix_nano, data.data_points[0].value


@pytest.mark.parametrize("preferred", [(), (Counter,), (Histogram,), (Counter, UpDownCounter, Histogram)])
def test_an_exporter_gets_the_temporality_that_it_prefers_of_each_instrument(preferred: tuple[type, ...]) -> None:
    _, later = exported(Preferring(*preferred), one_of_each(), change=grow)

    assert number(later["calls"]) == ((2_000, 2) if Counter in preferred else (1_000, 7))
    assert number(later["usage"]) == ((2_000, -3) if UpDownCounter in preferred else (1_000, 4))
    assert number(later["power"])[1] == 200.5
    copies = later["copies"].data_points[0]
    assert (copies.start_time_unix_nano, copies.count, copies.sum) == (
        (2_000, 2, 50) if Histogram in preferred else (1_000, 3, 70)
    )
    for name, instrument in (("calls", Counter), ("usage", UpDownCounter), ("copies", Histogram)):
        is_delta = later[name].aggregation_temporality is sdk.AggregationTemporality.DELTA
        assert is_delta == (instrument in preferred)


def test_deltas_of_pipelines_are_told_apart() -> None:
    got = exported(Preferring(Counter), one_of_each(), one_of_each(), change=grow)

    assert [number(data["calls"]) for data in got] == [(1_000, 5), (1_000, 5), (2_000, 2), (2_000, 2)]


def test_deltas_add_up_where_everything_begins_anew_as_the_clock_is_set_back() -> None:
    def restart_and_grow(filled: SeriesStore) -> None:
        filled.restart(1_500)
        grow(filled)

    got = exported(Preferring(Counter, UpDownCounter, Histogram), one_of_each(), change=restart_and_grow)

    assert [number(data["calls"]) for data in got] == [(1_000, 5), (1_500, 2)]
    assert [number(data["usage"]) for data in got] == [(1_000, 7), (1_500, -3)]
    assert [data["copies"].data_points[0].sum for data in got] == [20, 50]


def test_a_resource_that_comes_again_after_its_end_has_no_deltas_to_what_it_was() -> None:
    filled, deltas = one_of_each(), Deltas(GROWING)
    metrics_data(filled, 2_000, deltas)
    filled.end(Resource(()))
    filled.sweep()
    metrics_data(filled, 2_500, deltas)
    grow(filled)

    (resource,) = metrics_data(filled, 3_000, deltas).resource_metrics
    assert number(resource.scope_metrics[0].metrics[0].data) == (2_000, 2)


PACKAGE = """
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

class Exporter(MetricExporter):
    got = []
    closed = 0

    def export(self, metrics_data, timeout_millis=0, **kwargs):
        self.got.append(metrics_data)
        return MetricExportResult.SUCCESS if len(self.got) == 1 else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis=0): return True

    def shutdown(self, timeout_millis=0, **kwargs):
        Exporter.closed += 1

def broken():
    raise RuntimeError("no endpoint")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package with an SDK exporter, as pip leaves it."""
    (tmp_path / "vendor_sdk.py").write_text(PACKAGE)
    info = tmp_path / "vendor_sdk-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-sdk\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[opentelemetry_metrics_exporter]\nvendor = vendor_sdk:Exporter\nbroken = vendor_sdk:broken\nodd = builtins:dict\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("vendor_sdk")
    del sys.modules["vendor_sdk"]


def test_installed_sdk_exporter_gets_the_metrics_and_its_failures_are_counted(installed: ModuleType) -> None:
    exporter = SdkExporter.installed(SdkSettings("vendor"), "sdk")

    exporter.export_metrics(store(), 2_000)
    exporter.export_metrics(store(), 3_000)
    exporter.shutdown(5)

    assert [len(data.resource_metrics) for data in installed.Exporter.got] == [2, 2]
    assert installed.Exporter.closed == 1
    assert (exporter.stats().sent_points, exporter.stats().failed_points) == (10, 10)


@pytest.mark.parametrize("name", ["broken", "odd"])
def test_sdk_exporter_that_cannot_be_made_is_a_configuration_error(installed: ModuleType, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^exporters\.sdk/a\.exporter: .*'{name}'"):
        SdkExporter.installed(SdkSettings(name), "sdk/a")


def test_empty_store_is_not_handed_over() -> None:
    exporter = SdkExporter.installed(SdkSettings("console"), "sdk")

    exporter.export_metrics(SeriesStore(), 2_000)
    exporter.shutdown(5)

    assert exporter.stats().requests == 0


@pytest.mark.parametrize(
    ("name", "package"),
    [("zipkin_json", "opentelemetry-exporter-zipkin-json"), ("nope", "PACKAGE, the one that has it")],
)
@pytest.mark.parametrize(("signal", "usual"), [("metrics", "console"), ("traces", "otlp")])
def test_exporter_that_is_not_installed_is_an_error_with_its_key_and_what_to_do(
    signal: str, usual: str, name: str, package: str
) -> None:
    with pytest.raises(ConfigError) as failure:
        SdkExporters(SdkSettings(name), "sdk/a", [signal])

    said = str(failure.value)
    assert said.startswith(f"exporters.sdk/a.exporter: no installed package has a {signal} exporter named {name!r}; ")
    assert f": pip install {package}; " in said
    assert usual in said.partition("installed: ")[2]
    assert "\n" not in said
