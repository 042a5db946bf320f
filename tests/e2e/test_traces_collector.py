"""Does a real Collector take our spans and write what we meant?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import Compression, OtlpSettings, Protocol
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.exporters.sdk.spans import SdkSpanExporter
from otel_gpu.signals.spans import Span
from tests.e2e.collector import Collector
from tests.span_reading import read_spans
from tests.spans_to import spans_to
from tests.unit.span_examples import family, hostile, many, request


def sent_through(
    collector: Collector,
    spans: Sequence[Span],
    protocol: Protocol,
    compression: Compression = "gzip",
    size: int = 3_500_000,
) -> Path:
    """Return the file of a Collector that we sent these spans to."""
    endpoint = collector.endpoint(protocol)
    settings = OtlpSettings(endpoint, protocol, compression=compression, max_request_bytes=size)
    exporter = OtlpExporter(settings)
    spans_to([exporter]).export(spans)
    exporter.shutdown(30)
    stats = exporter.stats()
    assert (stats.sent_points, stats.failed_points) == (len(spans), 0), stats
    return collector.received("traces", protocol)


def in_order(spans: Sequence[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.context.trace_id, span.context.span_id))


@pytest.mark.parametrize("size", [3_500_000, 20_000], ids=["one request", "many requests"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf", "http/json"])
def test_the_collectors_file_holds_the_spans_that_were_sent(
    protocol: Protocol, compression: Compression, size: int, collector: Collector
) -> None:
    spans = [*many(3_000), *(replace(span, context=replace(span.context, trace_id=b"f" * 16)) for span in family())]

    received = read_spans(sent_through(collector, spans, protocol, compression, size))

    assert in_order(received) == in_order(spans)


def simplified(tree: object) -> object:
    """Drop what is empty: writers differ in whether they spell it out."""
    if isinstance(tree, dict):
        return {k: s for k, v in tree.items() if (s := simplified(v)) not in ({}, [], "")}
    return [simplified(v) for v in tree] if isinstance(tree, list) else tree


def test_the_collectors_file_equals_our_own(collector: Collector, tmp_path: Path) -> None:
    spans = [*family(), replace(request(30), attributes=(("odd", float("inf")), ("whole", 3.0), ("yes", True)))]
    ours = FileExporter(FileSettings(str(tmp_path)))
    spans_to([ours]).export(spans)
    ours.shutdown(1)

    received = sent_through(collector, spans, "grpc")

    [mine], [theirs] = (
        [json.loads(line) for line in path.read_text().splitlines()] for path in (tmp_path / "traces.jsonl", received)
    )
    assert simplified(mine) == simplified(theirs)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_takes_hostile_spans(protocol: Protocol, collector: Collector) -> None:
    large = replace(request(1), attributes=(("text", "\0" * 2**20),))

    received = read_spans(sent_through(collector, [hostile(), large, request(2)], protocol))

    assert len(received) == 3
    assert in_order(received)[:2] == in_order([large, request(2)])


@pytest.mark.parametrize(("protocol", "name"), [("grpc", "otlp_proto_grpc"), ("http/protobuf", "otlp_proto_http")])
def test_the_sdks_exporter_sends_what_ours_sends(
    protocol: Protocol, name: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint(protocol))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    exporter = SdkSpanExporter.installed(SdkSettings(name), "sdk")
    spans_to([exporter]).export(many(1_200))
    exporter.shutdown(30)
    assert exporter.stats().sent_points == 1_200
    received = read_spans(collector.received("traces", protocol))

    # The SDK does not write the trace's flags.
    sampled = [replace(span, context=replace(span.context, flags=1)) for span in received]
    assert in_order(sampled) == in_order(many(1_200))
