"""Which requests took long, and what did the GPU do for one? Rows of first spans, and a trace as a tree with its links."""

from __future__ import annotations

from typing import Any

from ..signals.telemetry_spans import TOTALS
from .resources import Resources
from .spans import SpanStore, StoredSpan

PAGE = 100
_TOTALS = [spec.name for spec in TOTALS]
_ERROR = 2


def requests(
    store: SpanStore, resources: Resources, chosen: frozenset[int] | None, text: str, order: str, offset: int
) -> dict[str, Any]:
    """Return a page of requests, and how many there are."""
    count, found = store.firsts(chosen, text, order, PAGE, offset)
    return {
        "count": count,
        "offset": offset,
        "totals": _TOTALS,
        "rows": [
            {
                "trace": span.trace,
                "name": span.name,
                "process": _name(resources, span.resource),
                "start": span.start_ns / 1e9,
                "duration": span.duration_ns / 1e9,
                "is_error": span.status == _ERROR,
                "status": span.attributes.get("http.response.status_code", span.attributes.get("error.type")),
                "attribution": span.attributes.get("otel_gpu.attribution"),
                "totals": [span.attributes.get(name) for name in _TOTALS],
            }
            for span in found
        ],
    }


def trace(store: SpanStore, resources: Resources, trace_id: str) -> dict[str, Any] | None:
    """Return the spans of a trace, parents before their children, and those of others that link to it; None of none."""
    spans, is_whole = store.trace(trace_id)
    if not spans:
        return None
    start_ns = min(span.start_ns for span in spans)
    return {
        "trace": trace_id,
        "start": start_ns / 1e9,
        "duration": (max(span.start_ns + span.duration_ns for span in spans) - start_ns) / 1e9,
        "whole": is_whole,
        "spans": [
            {
                "span": span.span,
                "depth": depth,
                "name": span.name,
                "process": _name(resources, span.resource),
                "kind": span.kind,
                "offset": (span.start_ns - start_ns) / 1e9,
                "duration": span.duration_ns / 1e9,
                "is_error": span.status == _ERROR,
                "linked": span.trace != trace_id,
                "links": len(span.links),
                "link_trace": span.trace if span.trace != trace_id else None,
                "attributes": [[key, value] for key, value in span.attributes.items()],
            }
            for span, depth in _ordered(spans, trace_id)
        ],
    }


def _ordered(spans: list[StoredSpan], trace_id: str) -> list[tuple[StoredSpan, int]]:
    """Return spans as a tree is read, each with its depth; what has no parent here, or is its own ancestor, begins one."""
    own = {span.span: span for span in spans if span.trace == trace_id}
    children: dict[str, list[StoredSpan]] = {}
    roots = []
    for span in own.values():
        if span.parent in own and span.parent != span.span:
            children.setdefault(span.parent, []).append(span)
        else:
            roots.append(span)
    found: list[tuple[StoredSpan, int]] = []
    seen: set[str] = set()
    for start in [*roots, *own.values()]:
        ahead = [(start, 0)]
        while ahead:
            span, depth = ahead.pop()
            if span.span in seen:
                continue
            seen.add(span.span)
            found.append((span, depth))
            below = sorted(children.get(span.span, ()), key=lambda s: -s.start_ns)
            ahead.extend((child, min(depth + 1, 50)) for child in below)
    linked = {(span.trace, span.span): span for span in spans if span.trace != trace_id}
    return found + [(span, 1) for span in sorted(linked.values(), key=lambda s: s.start_ns)]


def _name(resources: Resources, number: int) -> str:
    entry = resources.get(number)
    return entry.name if entry is not None else ""
