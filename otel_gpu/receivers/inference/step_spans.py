"""Which span does a step of an engine get? One of the engine's process, with its own totals, linked to the requests' spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...signals.metrics import Resource
from ...signals.spans import Link, Span, SpanContext
from .server_spans import totals_of
from .steps import Linked, Step
from .trace_context import child_of

MAX_LINKS = 128
"""Of one span, as OpenTelemetry's SDKs have it; to how many more it would lead stands in an attribute."""


def step_span(
    step: Step,
    resource: Resource,
    served: Sequence[SpanContext],
    linked: Linked,
    wall_ns: Callable[[int], int],
    max_links: int = MAX_LINKS,
) -> Span:
    """Return a step's span; `wall_ns` makes wall-clock times of the kernel's monotonic ones."""
    start_ns = wall_ns(step.began_ns)
    found = [*totals_of(step.totals), ("otel_gpu.linked", linked.value)]
    if len(served) > max_links:
        found.append(("otel_gpu.links.left_out", len(served) - max_links))
    return Span(
        resource,
        "gpu step",
        child_of(None),
        start_ns,
        max(wall_ns(step.ended_ns), start_ns),
        attributes=tuple(found),
        links=tuple(Link(context) for context in served[:max_links]),
    )
