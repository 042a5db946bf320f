"""What does a program's own TracerProvider make of our spans?"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace.status import StatusCode

from otel_gpu import __version__, tracers
from otel_gpu.errors import ConfigError
from otel_gpu.exporters.objects import ObjectExporter
from otel_gpu.signals.spans import Span, SpanContext
from tests.spans_to import spans_to
from tests.unit.span_examples import batch, family, many, process, request


def given(
    spans: Sequence[Span], sampler: Sampler = ALWAYS_ON, limits: SpanLimits | None = None
) -> dict[int, ReadableSpan]:
    """Hand spans to a provider; returns what it exported, by span id."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(sampler, SdkResource({"service.name": "mine"}), span_limits=limits)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracers.provider_exporter(provider).export_spans(spans)
    return {span.context.span_id: span for span in memory.get_finished_spans()}


def test_spans_are_exported_as_the_agent_made_them() -> None:
    found = given(family())

    assert sorted(found) == [1, 2, 11, 12, 21]
    server, child, step = found[1], found[2], found[21]
    span = family()[1]
    assert (server.name, server.kind) == ("POST /v1/completions", trace.SpanKind.SERVER)
    assert server.context.trace_id == int.from_bytes(span.context.trace_id, "big")
    assert server.parent is not None
    assert (server.parent.span_id, server.parent.is_remote) == (2**64 - 1, True)
    assert (server.start_time, server.end_time) == (span.start_ns, span.end_ns)
    assert server.attributes == dict(span.attributes)
    assert (server.status.status_code, server.status.description) == (StatusCode.ERROR, "it broke")
    assert server.context.trace_state.to_header() == "vendor=a,other=b"
    assert child.parent == server.context
    assert [link.context.span_id for link in step.links] == [1, 11]
    assert step.parent is None
    for one in found.values():
        assert one.instrumentation_scope is not None
        assert (one.instrumentation_scope.name, one.instrumentation_scope.version) == ("otel_gpu", __version__)


def test_spans_of_this_process_have_its_resource_and_others_their_own() -> None:
    own = replace(request(0), resource=process(os.getpid()))

    found = given([own, request(1, pid=1)])

    assert dict(found[1].resource.attributes) == {"service.name": "mine"}
    assert dict(found[2].resource.attributes) == dict(process(1).attributes)


def test_other_tracers_of_the_provider_are_as_they_were() -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=SdkResource({"service.name": "mine"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter = tracers.provider_exporter(provider)

    exporter.export_spans(family())
    provider.get_tracer("otel_gpu", __version__, "https://opentelemetry.io/schemas/1.44.0").start_span("theirs").end()

    [theirs] = [span for span in memory.get_finished_spans() if span.name == "theirs"]
    assert theirs.context.trace_id not in {int.from_bytes(s.context.trace_id, "big") for s in family()}
    assert dict(theirs.resource.attributes) == {"service.name": "mine"}


def traces(count: int) -> list[Span]:
    """A request and its child in each of so many traces, the child first, without a parent elsewhere."""
    found = []
    for number in range(count):
        ids = SpanContext(number.to_bytes(8, "big") + os.urandom(8), (1000 + number).to_bytes(8, "big"))
        root = replace(request(number), context=ids, parent_id=b"", is_parent_remote=False)
        found += [batch(5000 + number, root), root]
    return found


@pytest.mark.parametrize("together", [True, False], ids=["at once", "parents before"])
def test_a_sampler_decides_on_whole_traces(together: bool) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(ParentBased(TraceIdRatioBased(0.5)))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter = tracers.provider_exporter(provider)
    spans = traces(200)

    for some in (spans,) if together else (spans[1::2], spans[::2]):
        exporter.export_spans(some)

    kept = memory.get_finished_spans()
    roots = {span.context.trace_id for span in kept if span.parent is None}
    assert 40 < len(roots) < 160
    assert len(kept) == 2 * len(roots)
    assert {span.context.trace_id for span in kept} == roots


@pytest.mark.parametrize(("flags", "exported"), [(1, 1), (0, 0)])
def test_what_the_caller_decided_is_respected(flags: int, exported: int) -> None:
    span = replace(request(), context=replace(request().context, flags=flags))

    assert len(given([span], ParentBased(ALWAYS_ON))) == exported
    assert len(given([span], ParentBased(ALWAYS_ON, remote_parent_not_sampled=ALWAYS_ON))) == 1


def test_the_sampler_sees_what_a_span_is() -> None:
    class Seeing(Sampler):
        def __init__(self) -> None:
            self.seen: list[tuple[object, ...]] = []

        def should_sample(
            self, parent_context, trace_id, name, kind=None, attributes=None, links=None
        ) -> SamplingResult:
            self.seen.append((trace_id, name, kind, attributes, len(links or ())))
            return ALWAYS_OFF.should_sample(parent_context, trace_id, name)

        def get_description(self) -> str:
            return "seeing"

    seeing = Seeing()

    assert given([family()[3]], seeing) == {}
    assert seeing.seen == [(99 << 64 | 0xABCDEF, "gpu step", trace.SpanKind.INTERNAL, {"otel_gpu.linked": "exact"}, 2)]


def test_limits_of_the_provider_hold() -> None:
    found = given([request()], limits=SpanLimits(max_attributes=2, max_attribute_length=3))

    assert len(found[1].attributes or {}) == 2
    assert found[1].dropped_attributes == 4


def test_what_is_around_in_the_thread_is_no_part_of_it() -> None:
    token = contexts.attach(
        trace.set_span_in_context(trace.NonRecordingSpan(trace.SpanContext(5, 5, False, trace.TraceFlags(1))))
    )
    try:
        found = given([replace(request(), parent_id=b"")])
    finally:
        contexts.detach(token)

    assert found[1].parent is None


class Broken(SpanProcessor):
    """Fails for every second span."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span.context.span_id)
        if len(self.ended) % 2:
            raise RuntimeError("broken")


def test_what_a_processor_fails_for_is_counted_and_costs_the_others_nothing() -> None:
    provider, broken = TracerProvider(ALWAYS_ON), Broken()
    provider.add_span_processor(broken)
    exporter = ObjectExporter(tracers.provider_exporter(provider), "provider")  # type: ignore[arg-type]

    spans_to([exporter]).export(many(10))
    exporter.shutdown(10)

    assert sorted(broken.ended) == list(range(1, 11))
    assert (exporter.stats().sent_points, exporter.stats().rejected_points) == (5, 5)


def test_thousands_go_through_a_batch_processor() -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(ALWAYS_ON)
    provider.add_span_processor(BatchSpanProcessor(memory, max_queue_size=10_000))

    tracers.provider_exporter(provider).export_spans(many(3_000))

    provider.shutdown()
    assert sorted(s.context.span_id for s in memory.get_finished_spans()) == list(range(1, 3_001))


@pytest.mark.parametrize(
    "spans",
    [
        lambda one: [replace(one, parent_id=one.context.span_id)],
        lambda one: [one, replace(one, name="again")],
        lambda one: [
            replace(one, parent_id=(2).to_bytes(8, "big")),
            replace(request(1), parent_id=one.context.span_id),
        ],
    ],
    ids=["its own parent", "two of one name", "each other's parent"],
)
def test_no_span_is_lost_to_forged_ids(spans: Callable[[Span], list[Span]]) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(ALWAYS_ON)
    provider.add_span_processor(SimpleSpanProcessor(memory))

    tracers.provider_exporter(provider).export_spans(spans(request(0)))

    assert len(memory.get_finished_spans()) == len(spans(request(0)))


def test_a_program_that_has_turned_its_sdk_off_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    assert given(family()) == {}


def test_a_provider_that_cannot_take_them_is_refused() -> None:
    with pytest.raises(ConfigError, match="a NoOpTracerProvider takes no spans that are over; give the TracerProvider"):
        tracers.provider_exporter(trace.NoOpTracerProvider())
