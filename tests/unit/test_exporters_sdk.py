from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_gpu.errors import ConfigError
from otel_gpu.exporters.encode import MetricsEncoder
from otel_gpu.exporters.sdk import SdkExporter, metrics_data
from otel_gpu.exporters.settings import SdkSettings
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes

SPECS = {
    "calls": MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls."),
    "usage": MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use."),
    "power": MetricSpec("power", "W", Instrument.GAUGE, "Power.", floating=True),
    "copies": MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies."),
}


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
                Measurement(process, SPECS["copies"], (), Buckets({1: 2, 4: 1}, 40, 1)),
            ],
            1_000,
        )
    return filled


def test_sdk_encodes_our_data_to_what_we_encode_ourselves() -> None:
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.metrics_encoder")

    theirs = encoder.encode_metrics(metrics_data(store(), 2_000))

    (ours,) = MetricsEncoder().encode(store(), 2_000)
    expected = ExportMetricsServiceRequest.FromString(ours.body)
    assert [m.resource for m in theirs.resource_metrics] == [m.resource for m in expected.resource_metrics]
    for their_resource, our_resource in zip(theirs.resource_metrics, expected.resource_metrics, strict=True):
        assert their_resource.scope_metrics[0].metrics == our_resource.scope_metrics[0].metrics
        assert their_resource.scope_metrics[0].scope.name == "otel_gpu"


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
    with pytest.raises(ConfigError, match=name):
        SdkExporter.installed(SdkSettings(name), "sdk")


def test_empty_store_is_not_handed_over() -> None:
    exporter = SdkExporter.installed(SdkSettings("console"), "sdk")

    exporter.export_metrics(SeriesStore(), 2_000)
    exporter.shutdown(5)

    assert exporter.stats().requests == 0


def test_exporter_that_is_not_installed_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'nope'; installed are: .*console"):
        SdkExporter.installed(SdkSettings("nope"), "sdk")
