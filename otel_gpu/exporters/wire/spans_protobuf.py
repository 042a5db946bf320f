"""How do spans look in OTLP? Serialized `ExportTraceServiceRequest`s, split to fit a receiver.

A serialized message is nothing but its fields, one after another. So each span is serialized once, and its size known
before it is decided what goes into which request.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.proto.trace.v1 import trace_pb2 as pb

from ...signals.metrics import Resource
from ...signals.spans import Span
from ...version import __version__
from ..delivery.payload import Payload
from ..settings import MAX_REQUEST_BYTES
from .attribute_values import add_attributes
from .identity import SCHEMA_URL, SCOPE_NAME
from .span_attributes import SpanAttributes, field
from .span_flags import link_flags, span_flags
from .span_requests import Note, SpanRequests
from .utf8 import utf8

_RESOURCE_SPANS = b"\x0a"
"""Field 1 of a request, with a length before it; likewise below."""
_SCOPE_SPANS = b"\x12"
"""Field 2 of ResourceSpans."""
_SPAN = b"\x12"
"""Field 2 of ScopeSpans."""
_MAX_TAG = 6
"""Bytes of a field's number and length."""


def span_encoder(max_request_bytes: int = MAX_REQUEST_BYTES, note: Note = lambda _: None) -> SpanRequests:
    """Return what encodes spans again and again."""
    return SpanRequests(_OtlpForm(), max_request_bytes, note)


def span_payloads(spans: Sequence[Span], max_request_bytes: int = MAX_REQUEST_BYTES) -> list[Payload[bytes]]:
    """Encode spans as serialized requests of at most `max_request_bytes`; what cannot be encoded is left out."""
    return span_encoder(max_request_bytes).encode(spans).payloads


class _OtlpForm:
    request_bytes = 0

    def __init__(self) -> None:
        self._attributes = SpanAttributes()
        scope = pb.ScopeSpans(schema_url=SCHEMA_URL)
        scope.scope.name = SCOPE_NAME
        scope.scope.version = __version__
        self._scope = scope.SerializeToString()
        self.group_bytes = len(self._scope) + 2 * _MAX_TAG

    def owner(self, resource: Resource) -> bytes:
        message = pb.ResourceSpans(schema_url=SCHEMA_URL)
        add_attributes(message.resource.attributes, resource.attributes)
        return message.SerializeToString()

    def span(self, span: Span) -> bytes:
        context = span.context
        message = pb.Span(
            trace_id=context.trace_id,
            span_id=context.span_id,
            trace_state=utf8(context.trace_state),
            parent_span_id=span.parent_id,
            name=utf8(span.name),
            kind=span.kind.value,  # type: ignore[arg-type]
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            flags=span_flags(span),
        )
        for link in span.links:
            added = message.links.add(
                trace_id=link.context.trace_id,
                span_id=link.context.span_id,
                trace_state=utf8(link.context.trace_state),
                flags=link_flags(link),
            )
            add_attributes(added.attributes, link.attributes)
        if span.status.value or span.status_message:
            message.status.code = span.status.value  # type: ignore[assignment]
            message.status.message = utf8(span.status_message)
        return field(_SPAN, message.SerializeToString() + self._attributes.written(span.attributes))

    def group(self, owner: bytes, spans: list[bytes]) -> bytes:
        return field(_RESOURCE_SPANS, owner + field(_SCOPE_SPANS, self._scope + b"".join(spans)))

    def request(self, groups: list[bytes]) -> bytes:
        return b"".join(groups)
