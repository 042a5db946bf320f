"""What do exporters of the OpenTelemetry SDK get of our spans?"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.status import StatusCode

from otel_gpu import __version__
from otel_gpu.errors import ConfigError
from otel_gpu.exporters.objects import wrapped, wrapped_one
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.exporters.sdk.spans import BATCH, SdkSpanExporter, readable_spans, trace_state
from otel_gpu.exporters.wire.identity import SCHEMA_URL
from otel_gpu.exporters.wire.spans_protobuf import span_payloads
from tests.span_reading import spans_of_bytes
from tests.spans_to import spans_to
from tests.unit.span_examples import family, hostile, many, request


def test_a_span_says_the_same_to_the_sdk() -> None:
    span, step = family()[1], family()[3]

    found, linking = readable_spans([span, step])

    assert found.name == "POST /v1/completions"
    assert found.kind is trace.SpanKind.SERVER
    assert found.context == trace.SpanContext(
        0x10000000000ABCDEF, 1, False, trace.TraceFlags(1), trace.TraceState([("vendor", "a"), ("other", "b")])
    )
    assert found.parent is not None
    assert (found.parent.trace_id, found.parent.span_id) == (found.context.trace_id, 2**64 - 1)
    assert found.parent.is_remote
    assert found.attributes == dict(span.attributes)
    assert (found.start_time, found.end_time) == (span.start_ns, span.end_ns)
    assert (found.status.status_code, found.status.description) == (StatusCode.ERROR, "it broke")
    assert found.resource.attributes == dict(span.resource.attributes)
    assert found.resource.schema_url == SCHEMA_URL
    scope = found.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.version, scope.schema_url) == ("otel_gpu", __version__, SCHEMA_URL)
    assert linking.parent is None
    assert [link.context.span_id for link in linking.links] == [1, 11]
    assert [dict(link.attributes or {}) for link in linking.links] == [{"share": 0.5}] * 2
    assert json.loads(found.to_json())["kind"] == "SpanKind.SERVER"


def test_the_sdk_encodes_our_spans_to_what_we_encode_ourselves() -> None:
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    spans = [*family(), *many(50)]

    theirs = encoder.encode_spans(readable_spans(spans))

    ours = [span for payload in span_payloads(spans) for span in spans_of_bytes(payload.body)]
    for of_resource in theirs.resource_spans:
        of_resource.scope_spans[0].spans.sort(key=lambda span: span.span_id)
        span: SpanMessage
        for span in of_resource.scope_spans[0].spans:
            span.flags |= 1  # which the SDK does not write
            for link in span.links:
                # It says that they are near, of which nothing is known; and leaves out their state.
                link.flags, link.trace_state = 1, "vendor=a,other=b"

    assert sorted(map(repr, spans_of_bytes(theirs.SerializeToString()))) == sorted(map(repr, ours))


def test_hostile_spans_can_be_sent_by_the_sdk(caplog: pytest.LogCaptureFixture) -> None:
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    caplog.set_level(logging.DEBUG)

    [found] = readable_spans([hostile()])

    encoder.encode_spans([found]).SerializeToString()
    assert found.name == "\0\x1b]0;\x07[red]??\n\u202e"
    assert (found.attributes or {})["large"] == str(2**64)
    assert found.context.trace_state == trace.TraceState()
    assert found.status.description is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("header", "pairs"),
    [
        ("", []),
        ("a=1", [("a", "1")]),
        (" a=1 ,\tb@c= x,,", [("a", "1"), ("b@c", " x")]),
        ("a=1,A=2", []),
        ("a=1,b", []),
        ("a=\n", []),
        ("a=1,a=2", []),
        (",".join(f"k{n}=1" for n in range(32)), [(f"k{n}", "1") for n in range(32)]),
        (",".join(f"k{n}=1" for n in range(33)), []),
    ],
)
def test_a_trace_state_is_read_whole_or_not_at_all(
    header: str, pairs: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    assert list(trace_state(header).items()) == pairs
    assert caplog.text == ""


class Refusing(SpanExporter):
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.flushed = self.shut_down = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.sizes.append(len(spans))
        if len(self.sizes) == 2:
            return SpanExportResult.FAILURE
        if len(self.sizes) == 3:
            raise RuntimeError("broken")
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.flushed += 1
        return True

    def shutdown(self) -> None:
        self.shut_down += 1


@pytest.mark.parametrize("is_ours", [False, True])
def test_batches_are_exported_in_its_own_thread_and_their_results_counted(is_ours: bool) -> None:
    refusing = Refusing()
    exporter = wrapped_one(refusing, "refusing", is_ours=is_ours)
    assert isinstance(exporter, SdkSpanExporter)

    spans_to([exporter]).export(many(4 * BATCH + 10))
    exporter.shutdown(20)

    assert refusing.sizes == [BATCH] * 4 + [10]
    assert (refusing.flushed, refusing.shut_down) == ((0, 1) if is_ours else (1, 0))
    stats = exporter.stats()
    assert (stats.sent_points, stats.failed_points) == (2 * BATCH + 10, 2 * BATCH)


def test_a_span_that_the_sdk_cannot_have_costs_itself_alone() -> None:
    memory = InMemorySpanExporter()
    [exporter] = wrapped([memory])
    assert isinstance(exporter, SdkSpanExporter)
    wrong = replace(request(9), name=None)  # type: ignore[arg-type]

    spans_to([exporter]).export([request(0), wrong, request(1)])
    exporter.shutdown(20)

    assert [span.context.span_id for span in memory.get_finished_spans()] == [1, 2]
    assert (exporter.stats().sent_points, exporter.stats().rejected_points) == (2, 1)


PACKAGE = """
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

class Exporter(InMemorySpanExporter):
    made = []

    def __init__(self):
        super().__init__()
        self.made.append(self)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package with an SDK exporter, as pip leaves it."""
    (tmp_path / "vendor_spans.py").write_text(PACKAGE)
    info = tmp_path / "vendor_spans-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-spans\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[opentelemetry_traces_exporter]\nvendor = vendor_spans:Exporter\nodd = builtins:dict\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("vendor_spans")
    del sys.modules["vendor_spans"]


def test_an_installed_exporter_gets_the_spans(installed: ModuleType) -> None:
    exporter = SdkSpanExporter.installed(SdkSettings("vendor"), "sdk")

    spans_to([exporter]).export(family())
    exporter.shutdown(10)

    [made] = installed.Exporter.made
    assert len(made.get_finished_spans()) == exporter.stats().sent_points == 5


@pytest.mark.parametrize(("name", "said"), [("odd", "no traces exporter"), ("nope", "those installed: .*vendor")])
def test_what_cannot_be_made_is_a_configuration_error(installed: ModuleType, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SdkSpanExporter.installed(SdkSettings(name), "sdk")
