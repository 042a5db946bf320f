"""How are spans written as OTLP/JSON? Line by line, without protobuf's mapping, which takes ten times as long.

Field names, ids in hexadecimal, enums as numbers and 64-bit integers as strings are the OTLP specification's JSON encoding.
"""

from __future__ import annotations

from ...signals.metrics import Attributes, Resource
from ...signals.spans import Link, Span
from ...version import __version__
from .identity import SCHEMA_URL, SCOPE_NAME
from .json_values import attribute, json_text
from .span_flags import link_flags, span_flags
from .span_requests import Note, SpanRequests
from .utf8 import utf8

MAX_LINE_BYTES = 1_000_000
"""The Collector's file receivers cut lines at 1 MiB unless told otherwise (`max_log_size`)."""
_UINT64 = range(2**64)


def span_line_encoder(max_line_bytes: int = MAX_LINE_BYTES, note: Note = lambda _: None) -> SpanRequests:
    """Return what encodes spans as lines, each an export request with its newline."""
    return SpanRequests(_JsonForm(), max_line_bytes, note)


class _JsonForm:
    group_bytes = 5
    request_bytes = 24

    def __init__(self) -> None:
        scope = json_text({"name": SCOPE_NAME, "version": __version__})
        self._scope = f'"schemaUrl":"{SCHEMA_URL}","scopeSpans":[{{"scope":{scope},"schemaUrl":"{SCHEMA_URL}","spans":['

    def owner(self, resource: Resource) -> bytes:
        return f'{{"resource":{{{_attributes(resource.attributes)[:-1]}}},{self._scope}'.encode()

    def span(self, span: Span) -> bytes:
        context = span.context
        state = f'"traceState":{json_text(utf8(context.trace_state))},' if context.trace_state else ""
        parent = f'"parentSpanId":"{span.parent_id.hex()}",' if span.parent_id else ""
        links = f'"links":[{",".join(map(_link, span.links))}],' if span.links else ""
        text = (
            f',{{"traceId":"{context.trace_id.hex()}","spanId":"{context.span_id.hex()}",{state}{parent}'
            f'"flags":{span_flags(span)},"name":{json_text(utf8(span.name))},"kind":{span.kind.value:d},'
            f'"startTimeUnixNano":"{_time(span.start_ns)}","endTimeUnixNano":"{_time(span.end_ns)}",'
            f'{_attributes(span.attributes)}{links}"status":{_status(span)}}}'
        )
        return text.encode()

    def group(self, owner: bytes, spans: list[bytes]) -> bytes:
        return b"," + owner + b"".join(spans)[1:] + b"]}]}"

    def request(self, groups: list[bytes]) -> bytes:
        return b'{"resourceSpans":[' + b"".join(groups)[1:] + b"]}\n"


def _attributes(attributes: Attributes) -> str:
    """Return the `attributes` member of an object and a comma, or nothing when there are none."""
    return f'"attributes":[{",".join([attribute(k, v) for k, v in attributes])}],' if attributes else ""


def _link(link: Link) -> str:
    context = link.context
    state = f'"traceState":{json_text(utf8(context.trace_state))},' if context.trace_state else ""
    return (
        f'{{"traceId":"{context.trace_id.hex()}","spanId":"{context.span_id.hex()}",{state}'
        f'{_attributes(link.attributes)}"flags":{link_flags(link)}}}'
    )


def _time(ns: int) -> int:
    if ns not in _UINT64:
        raise ValueError("a time before 1970, or after what 64 bits can say")
    return ns


def _status(span: Span) -> str:
    message = f'"message":{json_text(utf8(span.status_message))}' if span.status_message else ""
    code = f'"code":{span.status.value:d}' if span.status.value else ""
    return f"{{{message}{',' if message and code else ''}{code}}}"
