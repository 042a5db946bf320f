"""How do spans look in OTLP? Serialized `ExportTraceServiceRequest`s, split to fit a receiver.

A serialized message is nothing but its fields, one after another. So each span is serialized once, and its size known
before it is decided what goes into which request.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from opentelemetry.proto.trace.v1 import trace_pb2 as pb

from ...signals.metrics import Resource
from ...signals.protobuf_fields import field
from ...signals.spans import Span, SpanKind, SpanStatus
from ...version import __version__
from ..delivery.payload import Payload
from ..settings import MAX_REQUEST_BYTES
from .attribute_values import add_attributes
from .identity import SCHEMA_URL, SCOPE_NAME
from .span_attributes import SpanAttributes
from .span_flags import link_flags, span_flags
from .span_requests import Note, SpanRequests
from .utf8 import utf8

_RESOURCE_SPANS = b"\x0a"
"""Field 1 of a request, with a length before it; likewise below."""
_SCOPE_SPANS = b"\x12"
"""Field 2 of ResourceSpans."""
_SPAN = b"\x12"
"""Field 2 of ScopeSpans."""
_PARENT = b"\x22\x08"
"""Field 4 of Span and its length; the ids before it are fields 1 and 2."""
_IDS = struct.Struct("2s16s2s8s")
_TIMES = struct.Struct("<BQBQ2sI")
"""Fields 7 and 8, of eight bytes, and 16, of four."""
_MAX_NAMES = 1_024
_UNSET = SpanStatus.UNSET
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
        self._named: dict[tuple[str, SpanKind], bytes] = {}
        """Names and kinds, as they were written before."""
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
        key = (span.name, span.kind)
        named = self._named.get(key)
        if named is None:
            named = self._name(span)
            if len(self._named) >= _MAX_NAMES:
                self._named.clear()
            self._named[key] = named
        parts = [
            _IDS.pack(b"\x0a\x10", context.trace_id, b"\x12\x08", context.span_id),
            _PARENT + span.parent_id if span.parent_id else b"",
            named,
            _TIMES.pack(0x39, span.start_ns, 0x41, span.end_ns, b"\x85\x01", span_flags(span)),
            self._attributes.written(span.attributes),
        ]
        if context.trace_state or span.links or span.status is not _UNSET or span.status_message:
            parts.append(_rest(span))
        return field(_SPAN, b"".join(parts))

    def _name(self, span: Span) -> bytes:
        message = pb.Span(name=utf8(span.name), kind=span.kind.value)  # type: ignore[arg-type]
        return message.SerializeToString()

    def group(self, owner: bytes, spans: list[bytes]) -> bytes:
        return field(_RESOURCE_SPANS, owner + field(_SCOPE_SPANS, self._scope + b"".join(spans)))

    def request(self, groups: list[bytes]) -> bytes:
        return b"".join(groups)


def _rest(span: Span) -> bytes:
    """Return the fields that few spans have."""
    message = pb.Span(trace_state=utf8(span.context.trace_state))
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
    return message.SerializeToString()
