"""Spans as the agent makes them, and as programs would like to have them."""

from __future__ import annotations

import random

from otel_gpu.signals.metrics import Resource, attributes
from otel_gpu.signals.spans import Link, Span, SpanContext, SpanKind, SpanStatus

BEGIN_NS = 1_800_000_000_000_000_000
MS = 1_000_000


def process(pid: int = 7) -> Resource:
    return Resource(attributes({"service.name": "sträm", "process.pid": pid, "late": True, "ratio": 0.5}))


def context(number: int, trace: int = 1, state: str = "", flags: int = 1) -> SpanContext:
    return SpanContext((trace << 64 | 0xABCDEF).to_bytes(16, "big"), (number + 1).to_bytes(8, "big"), state, flags)


def request(number: int = 0, pid: int = 7, **more: object) -> Span:
    """A SERVER span whose parent is in another process."""
    return Span(
        process(pid),
        "POST /v1/completions",
        context(number, state="vendor=a,other=b"),
        BEGIN_NS + number,
        BEGIN_NS + number + 12 * MS,
        b"\xff" * 8,
        is_parent_remote=True,
        kind=SpanKind.SERVER,
        attributes=attributes(
            {
                "http.request.method": "POST",
                "http.response.status_code": 500,
                "gpu.cuda.kernel.launch.calls": number,
                "gpu.cuda.memory.copy.bytes.h2d": 2**40,
                "gpu.cuda.synchronize.duration": 0.25,
                "otel_gpu.attribution": "exact",
                **more,
            }
        ),
        status=SpanStatus.ERROR,
        status_message="it broke",
    )


def batch(number: int, parent: Span) -> Span:
    """A child of a request."""
    return Span(
        parent.resource,
        "gpu batch",
        SpanContext(parent.context.trace_id, (number + 1).to_bytes(8, "big")),
        parent.start_ns + MS,
        parent.start_ns + 2 * MS,
        parent.context.span_id,
        attributes=attributes({"gpu.cuda.kernel.launch.calls": 3}),
    )


def step(number: int, served: list[Span], pid: int = 8) -> Span:
    """A step of an engine, which links to the requests that it served."""
    return Span(
        process(pid),
        "gpu step",
        context(number, trace=99),
        BEGIN_NS,
        BEGIN_NS + 5 * MS,
        attributes=attributes({"otel_gpu.linked": "exact"}),
        links=tuple(Link(span.context, attributes({"share": 0.5})) for span in served),
    )


def family() -> list[Span]:
    """Of two processes, all kinds; children before their parents."""
    first, second = request(0), request(10, pid=9)
    return [batch(1, first), first, batch(11, second), step(20, [first, second]), second]


def many(count: int, seed: int = 1) -> list[Span]:
    """Of several processes, in turn."""
    chance = random.Random(seed)
    return [request(n, pid=chance.randrange(5), text="x" * chance.randrange(300)) for n in range(count)]


def hostile() -> Span:
    """What a program might have said of itself."""
    text = "\0\x1b]0;\x07[red]\ud800\udcff\n\u202e"
    return Span(
        Resource((("service.name", text), (text, text))),
        text,
        context(66, state=text),
        0,
        2**64 - 1,
        attributes=(
            (text, text),
            ("large", 2**64),
            ("small", -(2**63)),
            ("nan", float("nan")),
            ("infinite", float("-inf")),
        ),
        links=(Link(context(67, state=text), ((text, text),)),),
        status=SpanStatus.OK,
        status_message=text,
    )
