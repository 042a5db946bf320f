from __future__ import annotations

import json
import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_gpu.errors import OtelGpuError
from otel_gpu.exporters import Payload
from otel_gpu.exporters.file import FileExporter
from otel_gpu.exporters.settings import FileSettings
from otel_gpu.model import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes

CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
WAIT = MetricSpec("wait", "s", Instrument.COUNTER, "Waits.", floating=True)
COPIES = MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies.")
PROCESS = Resource(attributes({"service.name": "trän", "process.pid": 7}))


def store_of(n: int = 1) -> SeriesStore:
    store = SeriesStore()
    store.fold([Measurement(PROCESS, CALLS, attributes(k=f"k{i}"), i + 1) for i in range(n)], 1_000)
    return store


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def disk_full_at(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as a full disk would."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


def test_metrics_are_written_as_the_collector_writes_them(tmp_path: Path) -> None:
    store = store_of()
    store.fold(
        [Measurement(PROCESS, WAIT, (), 0.5), Measurement(PROCESS, COPIES, (), Buckets({2: 1, 4: 2}, 40))], 1_000
    )
    exporter = FileExporter(FileSettings(str(tmp_path / "new" / "dir")))

    exporter.export_metrics(store, 2_000)
    exporter.shutdown(1)

    (request,) = lines(tmp_path / "new" / "dir" / "metrics.jsonl")
    (of_resource,) = request["resourceMetrics"]
    assert of_resource["resource"]["attributes"] == [
        {"key": "process.pid", "value": {"intValue": "7"}},
        {"key": "service.name", "value": {"stringValue": "trän"}},
    ]
    calls, wait, copies = of_resource["scopeMetrics"][0]["metrics"]
    assert calls["sum"] == {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [
            {
                "attributes": [{"key": "k", "value": {"stringValue": "k0"}}],
                "startTimeUnixNano": "1000",
                "timeUnixNano": "2000",
                "asInt": "1",
            }
        ],
    }
    assert wait["sum"]["dataPoints"][0]["asDouble"] == 0.5
    (point,) = copies["exponentialHistogram"]["dataPoints"]
    assert (point["count"], point["sum"]) == ("3", 40.0)
    assert point["positive"] == {"offset": 2, "bucketCounts": ["1", "0", "2"]}


def test_each_export_appends_a_line(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path)))
    exporter.export_metrics(store_of(), 2_000)
    exporter.shutdown(1)

    later = FileExporter(FileSettings(str(tmp_path)))
    later.export_metrics(store_of(), 3_000)

    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    assert later.stats().sent_points == 1


def test_ids_are_hexadecimal_and_enums_are_integers(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path)))
    traces = ExportTraceServiceRequest()
    span = traces.resource_spans.add().scope_spans.add().spans.add(kind=2, name="s")
    span.trace_id, span.span_id, span.parent_span_id = bytes(range(16)), bytes(range(8)), b"\xff" * 8
    span.links.add(trace_id=b"\xaa" * 16, span_id=b"\xbb" * 8)
    span.attributes.add(key="traceId").value.string_value = "not an id"
    profiles = ExportProfilesServiceRequest()
    profiles.resource_profiles.add().scope_profiles.add().profiles.add(profile_id=b"\x01" * 16)

    exporter.submit("traces", Payload(traces.SerializeToString(), 1, 0))
    exporter.submit("profiles", Payload(profiles.SerializeToString(), 1, 0))

    (request,) = lines(tmp_path / "traces.jsonl")
    written = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert (written["traceId"], written["spanId"]) == (bytes(range(16)).hex(), bytes(range(8)).hex())
    assert (written["parentSpanId"], written["kind"]) == ("ff" * 8, 2)
    assert written["links"] == [{"traceId": "aa" * 16, "spanId": "bb" * 8}]
    assert written["attributes"] == [{"key": "traceId", "value": {"stringValue": "not an id"}}]
    (request,) = lines(tmp_path / "profiles.jsonl")
    assert request["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0]["profileId"] == "01" * 16


def test_directory_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OtelGpuError, match="output directory"):
        FileExporter(FileSettings(str(tmp_path / "file" / "dir")))


def test_full_disk_is_counted_and_said_once_and_leaves_whole_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    exporter = FileExporter(FileSettings(str(tmp_path)))
    exporter.export_metrics(store_of(), 2_000)
    size = os.path.getsize(tmp_path / "metrics.jsonl")

    with disk_full_at(size + 100):
        exporter.export_metrics(store_of(), 3_000)
        exporter.export_metrics(store_of(), 4_000)
    failed = exporter.stats()
    exporter.export_metrics(store_of(), 5_000)

    assert (failed.failed_points, failed.sent_points) == (2, 1)
    assert "File too large" in str(failed.last_error)
    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    assert len(caplog.records) == 2
    assert caplog.records[1].getMessage().endswith("works again")


def test_delta_that_could_not_be_written_comes_with_the_next_line(tmp_path: Path) -> None:
    exporter = FileExporter(FileSettings(str(tmp_path), "delta"))
    store = store_of()
    with disk_full_at(10):
        exporter.export_metrics(store, 2_000)

    exporter.export_metrics(store, 3_000)

    (request,) = lines(tmp_path / "metrics.jsonl")
    (metric,) = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert metric["sum"]["aggregationTemporality"] == 1
    assert metric["sum"]["dataPoints"][0]["asInt"] == "1"
