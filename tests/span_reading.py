"""Which spans are in a request, or in a file of them? As the values that they were made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_gpu.signals.metrics import Attributes, AttributeValue, Resource
from otel_gpu.signals.spans import Link, Span, SpanContext, SpanKind, SpanStatus

_W3C, _IS_REMOTE = 0xFF, 0x200


def spans_of_bytes(body: bytes) -> list[Span]:
    """Read a serialized request."""
    return [
        Span(
            Resource(tuple((a.key, _value(a.value)) for a in of_resource.resource.attributes)),
            span.name,
            SpanContext(span.trace_id, span.span_id, span.trace_state, span.flags & _W3C),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.parent_span_id,
            bool(span.flags & _IS_REMOTE),
            SpanKind(span.kind),
            tuple((a.key, _value(a.value)) for a in span.attributes),
            tuple(
                Link(
                    SpanContext(link.trace_id, link.span_id, link.trace_state, link.flags & _W3C),
                    tuple((a.key, _value(a.value)) for a in link.attributes),
                )
                for link in span.links
            ),
            SpanStatus(span.status.code),
            span.status.message,
        )
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in of_resource.scope_spans
        for span in scope.spans
    ]


def spans_of_lines(lines: bytes) -> list[Span]:
    """Read OTLP/JSON, a request a line."""
    return [span for line in lines.splitlines() for span in _spans_of_tree(json.loads(line))]


def read_spans(path: Path) -> list[Span]:
    """Read a traces.jsonl, or the one in a directory; the last line of a running agent may not be whole yet."""
    path = path / "traces.jsonl" if path.is_dir() else path
    data = path.read_bytes() if path.exists() else b""
    return spans_of_lines(data[: data.rfind(b"\n") + 1])


def _spans_of_tree(request: dict) -> Iterator[Span]:
    for of_resource in request["resourceSpans"]:
        resource = Resource(_attributes(of_resource["resource"]))
        for scope in of_resource["scopeSpans"]:
            for span in scope["spans"]:
                flags = int(span.get("flags", 0))
                status = span.get("status", {})
                yield Span(
                    resource,
                    span.get("name", ""),
                    _context(span),
                    int(span.get("startTimeUnixNano", 0)),
                    int(span.get("endTimeUnixNano", 0)),
                    bytes.fromhex(span.get("parentSpanId", "")),
                    bool(flags & _IS_REMOTE),
                    SpanKind(span["kind"]),
                    _attributes(span),
                    tuple(Link(_context(link), _attributes(link)) for link in span.get("links", ())),
                    SpanStatus(status.get("code", 0)),
                    status.get("message", ""),
                )


def _context(tree: dict) -> SpanContext:
    ids = bytes.fromhex(tree["traceId"]), bytes.fromhex(tree["spanId"])
    return SpanContext(*ids, tree.get("traceState", ""), int(tree.get("flags", 0)) & _W3C)


def _attributes(tree: dict) -> Attributes:
    return tuple((a["key"], _value_of_tree(a["value"])) for a in tree.get("attributes", ()))


def _value(value: AnyValue) -> AttributeValue:
    return getattr(value, value.WhichOneof("value"))


def _value_of_tree(value: dict) -> AttributeValue:
    [(kind, found)] = value.items()
    return {"stringValue": str, "boolValue": bool, "intValue": int, "doubleValue": float}[kind](found)
