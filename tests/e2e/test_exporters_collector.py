"""Is what we write the same as what a real Collector writes of what we send?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import Compression, OtlpSettings, Protocol
from otel_gpu.exporters.settings import Histograms, Temporality
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from tests.e2e.collector import Collector

_NOW_NS = 1_800_000_000_000_000_000
_CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
_BUSY = MetricSpec("busy", "s", Instrument.COUNTER, "Busy time.", floating=True)
_USAGE = MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use.")
_POWER = MetricSpec("power", "W", Instrument.GAUGE, "Power.", floating=True)
_COPIES = MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies.")


def _store(series: int) -> SeriesStore:
    store = SeriesStore()
    for pid in (7, 8):
        process = Resource(attributes({"service.name": "träin", "process.pid": pid, "ratio": 0.5, "late": True}))
        store.fold(
            [
                *(Measurement(process, _CALLS, attributes(k=f"kernel<{i}>\t"), i) for i in range(series)),
                Measurement(process, _BUSY, attributes({"otel_gpu.bound": "lower"}), 1e-9),
                Measurement(process, _USAGE, attributes(device=0), -(2**40)),
                Measurement(process, _POWER, (), 250.25),
                Measurement(process, _COPIES, (), Buckets({-1: 1, 40: 2**35}, 2**75, 3)),
                Measurement(process, _COPIES, attributes(k="zeros"), Buckets(zero_count=2)),
            ],
            _NOW_NS - 10**10,
        )
    return store


def _points(path: Path) -> dict[str, object]:
    """Every point of a file by everything that identifies it."""
    found: dict[str, object] = {}
    for line in path.read_text().splitlines():
        for of_resource in json.loads(line)["resourceMetrics"]:
            for scope in of_resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    kind = next(k for k in ("sum", "gauge", "histogram", "exponentialHistogram") if k in metric)
                    data = metric.pop(kind)
                    for point in data.pop("dataPoints"):
                        identity = [
                            of_resource["resource"],
                            of_resource["schemaUrl"],
                            scope["scope"],
                            scope["schemaUrl"],
                            metric,
                            kind,
                            data,
                            point.get("attributes", []),
                        ]
                        key = json.dumps(identity, sort_keys=True)
                        assert key not in found
                        found[key] = point
    return found


def _simplified(point: object) -> object:
    """Drop what is empty: writers differ in whether they spell out zeros and empty objects."""
    if isinstance(point, dict):
        return {k: s for k, v in point.items() if (s := _simplified(v)) not in ({}, [], 0, "0")}
    return [_simplified(v) for v in point] if isinstance(point, list) else point


@pytest.mark.parametrize(("temporality", "histograms"), (("cumulative", "exponential"), ("delta", "explicit")))
@pytest.mark.parametrize(
    ("protocol", "compression"),
    (
        ("grpc", "none"),
        ("grpc", "gzip"),
        ("http/protobuf", "none"),
        ("http/protobuf", "gzip"),
        ("http/protobuf", "zstd"),
        ("http/json", "zstd"),
    ),
)
def test_collectors_file_equals_ours(
    protocol: Protocol,
    compression: Compression,
    temporality: Temporality,
    histograms: Histograms,
    collector: Collector,
    tmp_path: Path,
) -> None:
    store = _store(300)
    ours = FileExporter(FileSettings(str(tmp_path), temporality, histograms))
    ours.export_metrics(store, _NOW_NS)
    ours.shutdown(1)
    sent = OtlpExporter(
        OtlpSettings(
            endpoint=collector.endpoint(protocol),
            protocol=protocol,
            compression=compression,
            temporality=temporality,
            histograms=histograms,
            max_request_bytes=20_000,
        )
    )
    sent.export_metrics(store, _NOW_NS)
    sent.shutdown(10)

    theirs, mine = _points(collector.received("metrics", protocol)), _points(tmp_path / "metrics.jsonl")

    assert sent.stats().sent_points == len(store) == len(mine) == 610
    assert theirs.keys() == mine.keys()
    for key, point in mine.items():
        assert _simplified(theirs[key]) == _simplified(point)
