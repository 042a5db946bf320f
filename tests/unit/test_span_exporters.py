"""Every span that is handed over is delivered by each exporter, or counted by it as lost."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from otel_gpu.exporters import Exporter, ExporterStats, PartlyRejected, PipelineExporter
from otel_gpu.exporters.batch import Batch
from otel_gpu.exporters.console.exporter import ConsoleExporter
from otel_gpu.exporters.console.settings import ConsoleSettings
from otel_gpu.exporters.delivery.payload import Encoded
from otel_gpu.exporters.delivery.settings import RetrySettings
from otel_gpu.exporters.fan_out import profiles_to
from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.file.settings import FileSettings, RotationSettings
from otel_gpu.exporters.objects import ObjectExporter
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import OtlpSettings, Protocol
from otel_gpu.runtime.supervision import Component
from otel_gpu.signals.metrics import SeriesStore
from otel_gpu.signals.spans import Span
from tests.faults import failing
from tests.span_reading import read_spans, spans_of_bytes
from tests.spans_to import spans_to
from tests.unit.otlp_sinks import Sink, serve_grpc, serve_http
from tests.unit.profile_examples import training
from tests.unit.span_examples import BEGIN_NS, MS, family, hostile, many, request

ONCE = RetrySettings(enabled=False)
WRONG = replace(request(999), start_ns=-1)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@contextmanager
def receiving(protocol: Protocol) -> Iterator[tuple[Sink, OtlpSettings]]:
    sink = Sink()
    server = serve_grpc(sink) if protocol == "grpc" else serve_http(sink)
    try:
        yield sink, OtlpSettings(endpoint=sink.url, protocol=protocol, retry=ONCE, timeout_s=10)
    finally:
        server.stop(0) if protocol == "grpc" else server.shutdown()  # type: ignore[union-attr, call-arg]
        if protocol != "grpc":
            server.server_close()  # type: ignore[union-attr]


def got(sink: Sink) -> list[Span]:
    return [span for one in sink.traces for span in spans_of_bytes(one.SerializeToString())]


def in_order(spans: Sequence[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.context.trace_id, span.context.span_id))


def accounted_for(stats: ExporterStats) -> int:
    return stats.sent_points + stats.failed_points + stats.rejected_points + stats.dropped_points + stats.queued_points


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
class TestOtlp:
    def test_every_span_arrives_at_the_service_of_traces(self, protocol: Protocol) -> None:
        spans = [*many(2_000), *family()]
        with receiving(protocol) as (sink, settings):
            exporter = OtlpExporter(dataclasses.replace(settings, max_request_bytes=100_000))
            spans_to([exporter]).export(spans)
            exporter.shutdown(20)

        assert in_order(got(sink)) == in_order(spans)
        assert len(sink.paths) > 5
        assert set(sink.paths) == {"ExportTraceServiceRequest" if protocol == "grpc" else "/v1/traces"}
        assert exporter.stats().sent_points == len(spans)

    def test_what_is_rejected_in_part_is_counted_as_spans(self, protocol: Protocol) -> None:
        answer = ExportTraceServiceResponse(
            partial_success=ExportTracePartialSuccess(rejected_spans=3, error_message="too old")
        )
        with receiving(protocol) as (sink, settings):
            sink.answers = [answer if protocol == "grpc" else (200, {}, answer.SerializeToString())]
            exporter = OtlpExporter(settings)
            spans_to([exporter]).export(many(10))
            exporter.shutdown(20)

        stats = exporter.stats()
        assert (stats.sent_points, stats.rejected_points, accounted_for(stats)) == (7, 3, 10)

    def test_a_refused_request_costs_its_own_spans(self, protocol: Protocol) -> None:
        with receiving(protocol) as (sink, settings):
            sink.answers = [(grpc.StatusCode.INVALID_ARGUMENT, None) if protocol == "grpc" else (400, {}, b"")]
            exporter = OtlpExporter(dataclasses.replace(settings, max_request_bytes=5_000))
            spans_to([exporter]).export([*many(60), WRONG])
            exporter.shutdown(20)

        stats = exporter.stats()
        # Of a refused one the stand-in over gRPC notes nothing either.
        assert stats.sent_points == len(got(sink)) < 60
        assert stats.failed_points == 61 - stats.sent_points
        assert accounted_for(stats) == 61


def test_what_a_dead_endpoint_does_not_get_is_counted() -> None:
    exporter = OtlpExporter(OtlpSettings(endpoint="http://127.0.0.1:9", queue_size=2, max_request_bytes=5_000))

    spans_to([exporter]).export(many(100))
    exporter.shutdown(0.2)

    stats = exporter.stats()
    assert stats.sent_points == stats.queued_points == 0
    assert accounted_for(stats) == 100


class Taking(PipelineExporter):
    """Keeps the requests of a size that it was handed."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__("taking")
        self._max_bytes = max_bytes
        self.encoded: list[Encoded] = []

    def export_spans(self, batch: Batch[Span]) -> None:
        self.encoded.append(batch.requests(self._max_bytes))


def test_spans_are_encoded_once_for_all_that_want_requests_of_a_size() -> None:
    small, large, alike = Taking(5_000), Taking(1_000_000), Taking(5_000)

    spans_to([small, large, alike]).export([*many(50), WRONG])

    [of_small], [of_large] = small.encoded, large.encoded
    assert alike.encoded[0] is of_small
    assert len(of_small.payloads) > len(of_large.payloads) == 1
    assert all(payload.size_bytes <= 5_000 for payload in of_small.payloads)
    assert sum(payload.points for payload in of_small.payloads) == of_large.payloads[0].points == 50
    assert of_small.lost == of_large.lost == 1


def test_an_exporter_that_fails_is_noted_and_costs_the_others_nothing(tmp_path: Path) -> None:
    class Failing(PipelineExporter):
        def export_spans(self, batch: Batch[Span]) -> None:
            raise KeyError("gone")

    component = Component("traces")

    spans_to([Failing("failing"), FileExporter(FileSettings(str(tmp_path)))], component).export(family())

    assert len(read_spans(tmp_path)) == 5
    assert component.health().failures == 1


class TestFile:
    def test_spans_are_lines_of_otlp_json(self, tmp_path: Path) -> None:
        exporter = FileExporter(FileSettings(str(tmp_path)))
        sink = spans_to([exporter])

        sink.export(family())
        sink.export([hostile()])
        exporter.shutdown(1)

        assert in_order(read_spans(tmp_path)[:5]) == in_order(family())
        lines = [json.loads(line) for line in (tmp_path / "traces.jsonl").read_text().splitlines()]
        assert len(lines) == 2
        [server] = [
            span
            for of_resource in lines[0]["resourceSpans"]
            for span in of_resource["scopeSpans"][0]["spans"]
            if span["spanId"] == "0000000000000001"
        ]
        assert server == {
            "traceId": "00000000000000010000000000abcdef",
            "spanId": "0000000000000001",
            "traceState": "vendor=a,other=b",
            "parentSpanId": "ff" * 8,
            "flags": 0x301,
            "name": "POST /v1/completions",
            "kind": 2,
            "startTimeUnixNano": str(BEGIN_NS),
            "endTimeUnixNano": str(BEGIN_NS + 12 * MS),
            "attributes": [
                {"key": "gpu.cuda.kernel.launch.calls", "value": {"intValue": "0"}},
                {"key": "gpu.cuda.memory.copy.bytes.h2d", "value": {"intValue": str(2**40)}},
                {"key": "gpu.cuda.synchronize.duration", "value": {"doubleValue": 0.25}},
                {"key": "http.request.method", "value": {"stringValue": "POST"}},
                {"key": "http.response.status_code", "value": {"intValue": "500"}},
                {"key": "otel_gpu.attribution", "value": {"stringValue": "exact"}},
            ],
            "status": {"message": "it broke", "code": 2},
        }
        assert exporter.stats().sent_points == 6

    def test_lines_are_as_short_as_the_collectors_receiver_wants_them(self, tmp_path: Path) -> None:
        spans = [replace(span, attributes=(("text", "\0" * 2_000),)) for span in many(500)]

        spans_to([FileExporter(FileSettings(str(tmp_path)))]).export(spans)

        lines = (tmp_path / "traces.jsonl").read_bytes().splitlines(keepends=True)
        assert len(lines) > 5
        assert max(map(len, lines)) <= 1_000_000
        assert in_order(read_spans(tmp_path)) == in_order(spans)

    def test_files_stay_as_small_as_they_may_be(self, tmp_path: Path) -> None:
        exporter = FileExporter(FileSettings(str(tmp_path), rotation=RotationSettings(max_megabytes=1)))
        sink = spans_to([exporter])
        spans = [replace(span, attributes=(("text", "x" * 2_000),)) for span in many(1_000)]

        for first in range(0, len(spans), 100):
            sink.export(spans[first : first + 100])

        files = list(tmp_path.glob("traces*.jsonl"))
        assert len(files) > 2
        assert max(file.stat().st_size for file in files) <= 1 << 20
        assert in_order([span for file in files for span in read_spans(file)]) == in_order(spans)

    def test_what_cannot_be_written_is_counted(self, tmp_path: Path) -> None:
        exporter = FileExporter(FileSettings(str(tmp_path)))
        sink = spans_to([exporter])

        sink.export([*family(), WRONG])
        with failing(0, calls=("write",)):
            sink.export(many(10))
        sink.export(many(3))

        stats = exporter.stats()
        assert (stats.sent_points, stats.failed_points) == (8, 11)
        assert len(read_spans(tmp_path)) == 8


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestConsole:
    def test_a_span_is_a_line_that_says_what_it_is(self) -> None:
        out = io.StringIO()
        exporter = ConsoleExporter(ConsoleSettings(), stream=out)

        spans_to([exporter]).export(family())

        lines = out.getvalue().splitlines()
        assert len([line for line in lines if line]) == 5
        first = next(line for line in lines if "POST" in line)
        assert "POST /v1/completions" in first
        assert "12 ms" in first
        assert "sträm (pid 7)" in first
        assert "error: it broke" in first
        assert "gpu.cuda.synchronize.duration=0.25" in first
        assert f"trace={family()[1].context.trace_id.hex()}" in first
        assert any("gpu step" in line and "links=2" in line for line in lines)
        assert exporter.stats().sent_points == 5

    @pytest.mark.parametrize("stream", [io.StringIO, Terminal])
    def test_nothing_of_a_program_reaches_a_terminal_unescaped(self, stream: type[io.StringIO]) -> None:
        out = stream()
        wide = replace(hostile(), attributes=tuple((f"k{n}", "v" * 10**6) for n in range(100)))

        spans_to([ConsoleExporter(ConsoleSettings(), stream=out)]).export([hostile(), wide])

        text = out.getvalue()
        assert "\x1b]0" not in text
        assert not {"\0", "\x07", "\u202e", "\ud800"} & set(text)
        assert "[red]" in text
        assert "… 76 more" in text
        assert len([line for line in text.splitlines() if line.strip()]) == 2
        assert len(text) < 10_000

    @pytest.mark.parametrize("stream", [io.StringIO, Terminal])
    def test_the_longest_are_shown_in_the_order_in_which_they_began(self, stream: type[io.StringIO]) -> None:
        out = stream()
        spans = [
            replace(request(n), name=f"n{n}", end_ns=BEGIN_NS + 100 * MS + n * (-1) ** n * 1000) for n in range(40)
        ]
        exporter = ConsoleExporter(ConsoleSettings(spans_per_interval=3), stream=out)

        spans_to([exporter]).export(spans)

        lines = [line for line in out.getvalue().splitlines() if line.strip()]
        assert [next(n for n in (34, 36, 38) if f"n{n}" in line) for line in lines[:3]] == [34, 36, 38]
        assert "37 more spans" in lines[3]
        assert exporter.stats().sent_points == 40

    def test_a_closed_stream_is_counted(self) -> None:
        out = io.StringIO()
        out.close()
        exporter = ConsoleExporter(ConsoleSettings(), stream=out)

        spans_to([exporter]).export(many(4))

        assert exporter.stats().failed_points == 4


class Own(Exporter):
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export_spans(self, spans: Sequence[Span]) -> None:
        self.spans += spans


class TestObjects:
    def test_an_object_gets_the_spans(self) -> None:
        own = Own()
        exporter = ObjectExporter(own, "own")

        spans_to([exporter]).export(family())
        exporter.shutdown(10)

        assert own.spans == family()
        assert exporter.stats().sent_points == 5

    def test_methods_that_an_exporter_does_not_have_cost_nothing(self) -> None:
        exporter = ObjectExporter(Own(), "own")

        profiles_to([exporter], Component("profiles")).export([training()])
        exporter.export_metrics(SeriesStore(), 1)
        exporter.shutdown(10)

        assert exporter.takes == {"traces"}
        assert not ObjectExporter(Exporter(), "nothing").takes
        assert exporter.stats().requests == 0

    @pytest.mark.parametrize(
        ("raised", "counted"),
        [(PartlyRejected(2, "two"), (3, 0, 2)), (KeyError("all"), (0, 5, 0))],
        ids=["some", "all"],
    )
    def test_what_it_does_not_take_is_counted(self, raised: Exception, counted: tuple[int, int, int]) -> None:
        class Refusing(Exporter):
            def export_spans(self, spans: Sequence[Span]) -> None:
                raise raised

        exporter = ObjectExporter(Refusing(), "refusing")
        spans_to([exporter]).export(family())
        exporter.shutdown(10)

        stats = exporter.stats()
        assert (stats.sent_points, stats.failed_points, stats.rejected_points) == counted


def test_no_spans_are_no_export(tmp_path: Path) -> None:
    exporters = [ConsoleExporter(ConsoleSettings(), stream=io.StringIO()), FileExporter(FileSettings(str(tmp_path)))]

    spans_to(exporters).export([])

    assert [exporter.stats().requests for exporter in exporters] == [0, 0]
