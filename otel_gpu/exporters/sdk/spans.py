"""How do spans reach an OpenTelemetry SDK exporter that another package or a program made? As the SDK's own spans.

They are made in the exporter's thread, in batches as the SDK's own batch processor has them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.status import Status, StatusCode

from ...signals import Signal
from ...signals.metrics import Attributes, AttributeValue, Resource
from ...signals.spans import Span, SpanContext, SpanStatus
from ...version import __version__
from ..batch import Batch
from ..delivery.payload import Payload
from ..delivery.sender import Accepted, Refused
from ..queued import QueuedExporter
from ..wire.identity import SCHEMA_URL, SCOPE_NAME
from ..wire.span_flags import W3C_MASK
from ..wire.utf8 import fitting, utf8
from .installed import installed
from .settings import SdkSettings

BATCH = 512
"""Spans that are exported at once, as by the SDK's BatchSpanProcessor."""
_BATCHES_PER_INTERVAL = 100
_SPAN_BYTES = 1_000
"""Roughly what a span with its attributes takes in memory while it waits."""
_SCOPE = InstrumentationScope(SCOPE_NAME, __version__, SCHEMA_URL)
_KINDS = {kind.name: kind for kind in trace.SpanKind}
_CODES = {SpanStatus.UNSET: StatusCode.UNSET, SpanStatus.OK: StatusCode.OK, SpanStatus.ERROR: StatusCode.ERROR}
_STATE_MEMBER = re.compile(
    r"([a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13})"
    r"=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])"
)
"""W3C Trace Context, 3.3.1.3."""
_MAX_STATE_MEMBERS = 32


class SdkSpanExporter(QueuedExporter[Sequence[Span]]):
    """Hands spans to an SDK exporter, from a thread of its own."""

    takes = frozenset[Signal]({"traces"})

    def __init__(
        self,
        exporter: SpanExporter,
        name: str = "sdk",
        *,
        timeout_s: float = 10.0,
        queue_size: int = 10,
        is_ours: bool = True,
    ) -> None:
        """`is_ours` says that it is shut down at the end; else it is flushed, and ended by whoever made it."""
        super().__init__(
            name,
            _SdkTransport(exporter, is_ours),
            timeout_s=timeout_s,
            queue_size=queue_size * _BATCHES_PER_INTERVAL,
            shown=f"spans to the SDK exporter {name}",
            signal="traces",
        )

    @classmethod
    def installed(cls, settings: SdkSettings, name: str) -> SdkSpanExporter:
        """Find and make an exporter, which takes its settings from its environment; raises ConfigError."""
        exporter = installed(settings.exporter, "traces", SpanExporter, f"exporters.{name}.exporter")
        return cls(exporter, name, timeout_s=settings.timeout_s, queue_size=settings.queue_size)

    def export_spans(self, batch: Batch[Span]) -> None:
        """Queue spans."""
        spans = batch.items
        for first in range(0, len(spans), BATCH):
            some = spans[first : first + BATCH]
            self._sender.submit(Payload(some, len(some), len(some) * _SPAN_BYTES))


class _SdkTransport:
    def __init__(self, exporter: SpanExporter, is_ours: bool) -> None:
        self._exporter = exporter
        self._is_ours = is_ours

    def send(self, body: Sequence[Span], timeout_s: float) -> Accepted | Refused:  # noqa: ARG002 - the SDK takes none
        spans = readable_spans(body)
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return Accepted(len(body) - len(spans), "what the SDK has no form for" if len(spans) < len(body) else "")
        return Refused("the SDK exporter reports failure; its own log says more", retryable=False)

    def close(self) -> None:
        if self._is_ours:
            self._exporter.shutdown()
        else:
            self._exporter.force_flush(timeout_millis=0)


def readable_spans(spans: Iterable[Span]) -> list[ReadableSpan]:
    """Return spans as the SDK has them; those that it cannot have are left out."""
    resources: dict[Resource, SdkResource] = {}
    found = []
    for span in spans:
        with contextlib.suppress(Exception):  # it is counted by who asked for so many
            resource = resources.get(span.resource)
            if resource is None:
                resource = resources[span.resource] = sdk_resource(span.resource)
            found.append(_readable(span, resource))
    return found


def sdk_resource(resource: Resource) -> SdkResource:
    """Return a resource as the SDK has it."""
    return SdkResource(sdk_attributes(resource.attributes), SCHEMA_URL)


def sdk_attributes(attributes: Attributes) -> dict[str, AttributeValue]:
    """Return attributes as the SDK has them, and so that all of its exporters can send them."""
    return {utf8(key): fitting(value) for key, value in attributes}


def sdk_context(context: SpanContext, *, is_remote: bool = False) -> trace.SpanContext:
    """Return what names a span as the SDK has it."""
    return trace.SpanContext(
        int.from_bytes(context.trace_id, "big"),
        int.from_bytes(context.span_id, "big"),
        is_remote,
        trace.TraceFlags(context.flags & W3C_MASK),
        trace_state(context.trace_state),
    )


def parent_context(span: Span) -> trace.SpanContext | None:
    """Return what names the parent of a span: it is of the same trace."""
    if not span.parent_id or not any(span.parent_id):
        return None
    own = span.context
    named = SpanContext(own.trace_id, span.parent_id, own.trace_state, own.flags)
    return sdk_context(named, is_remote=span.is_parent_remote)


def sdk_kind(span: Span) -> trace.SpanKind:
    """Return a span's kind as the SDK has it."""
    return _KINDS[span.kind.name]


def sdk_status(span: Span) -> Status:
    """Return a span's status as the SDK has it: with a description only where it failed."""
    is_error = span.status is SpanStatus.ERROR
    return Status(_CODES[span.status], utf8(span.status_message) if is_error and span.status_message else None)


def sdk_links(span: Span) -> list[trace.Link]:
    """Return a span's links as the SDK has them."""
    return [trace.Link(sdk_context(link.context), sdk_attributes(link.attributes)) for link in span.links]


def trace_state(header: str) -> trace.TraceState:
    """Read W3C's `tracestate`. The SDK would write what is malformed to the log, as it is; here it is nothing."""
    members = [member.strip(" \t") for member in header.split(",")] if header else []
    found = [_STATE_MEMBER.fullmatch(member) for member in members if member]
    pairs = {match[1]: match[2] for match in found if match is not None}
    if len(pairs) != len(found) or len(pairs) > _MAX_STATE_MEMBERS:
        return trace.TraceState()
    return trace.TraceState(list(pairs.items()))


def _readable(span: Span, resource: SdkResource) -> ReadableSpan:
    return ReadableSpan(
        name=utf8(span.name),
        context=sdk_context(span.context),
        parent=parent_context(span),
        resource=resource,
        attributes=sdk_attributes(span.attributes),
        links=sdk_links(span),
        kind=sdk_kind(span),
        status=sdk_status(span),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )
