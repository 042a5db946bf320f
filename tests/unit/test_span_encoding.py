"""Requests and lines hold the spans that they were made of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from otel_gpu import __version__
from otel_gpu.exporters.wire.attribute_values import add_attributes
from otel_gpu.exporters.wire.identity import SCHEMA_URL
from otel_gpu.exporters.wire.request_json import to_json
from otel_gpu.exporters.wire.span_attributes import SpanAttributes
from otel_gpu.exporters.wire.span_requests import MAX_SHORTENED, SpanRequests
from otel_gpu.exporters.wire.spans_json import span_line_encoder
from otel_gpu.exporters.wire.spans_protobuf import span_encoder, span_payloads
from otel_gpu.signals.metrics import Attributes, Resource
from otel_gpu.signals.spans import Link, Span, SpanContext, SpanKind, SpanStatus
from tests.span_reading import spans_of_bytes, spans_of_lines
from tests.unit.span_examples import family, hostile, many, request


@dataclass(frozen=True)
class Encoding:
    make: Callable[..., SpanRequests]
    read: Callable[[bytes], list[Span]]

    def around(self, spans: list[Span], max_bytes: int = 10**7) -> list[Span]:
        encoded = self.make(max_bytes).encode(spans)
        assert encoded.lost == 0
        return [span for payload in encoded.payloads for span in self.read(payload.body)]


OTLP, JSON = Encoding(span_encoder, spans_of_bytes), Encoding(span_line_encoder, spans_of_lines)


@pytest.fixture(params=[OTLP, JSON], ids=["otlp", "json"])
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return request.param


def in_order(spans: list[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.context.trace_id, span.context.span_id, span.start_ns))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
attribute_sets = st.lists(st.tuples(texts, values), max_size=4).map(tuple)
contexts = st.builds(
    SpanContext,
    st.binary(min_size=16, max_size=16).filter(any),
    st.binary(min_size=8, max_size=8).filter(any),
    texts,
    st.integers(0, 255),
)


@st.composite
def any_span(draw: st.DrawFn) -> Span:
    start, end = sorted(draw(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))))
    parent = draw(st.sampled_from([b"", b"p" * 8]))
    return Span(
        Resource(draw(attribute_sets)),
        draw(texts),
        draw(contexts),
        start,
        end,
        parent,
        draw(st.booleans()) if parent else False,
        draw(st.sampled_from(SpanKind)),
        draw(attribute_sets),
        tuple(draw(st.lists(st.builds(Link, contexts, attribute_sets), max_size=2))),
        draw(st.sampled_from(SpanStatus)),
        draw(texts),
    )


@given(st.lists(any_span(), max_size=6), st.integers(8_000, 20_000))
def test_what_is_read_back_is_what_was_encoded(spans: list[Span], max_bytes: int) -> None:
    for encoding in (OTLP, JSON):
        # Equal resources may differ in type (1, 1.0 and True): they are one here, as in a dict.
        assert in_order(encoding.around(spans, max_bytes)) == in_order(spans)


@given(st.lists(attribute_sets, max_size=4))
def test_attributes_are_written_as_messages_of_them_are(some: list[Attributes]) -> None:
    writer = SpanAttributes()
    odd: Attributes = (("k", 1), ("k", True), ("k", 1.0), ("k", "1"), ("k", 2**64), ("k", -(2**63)), ("k", 2**63 - 1))

    for attributes in [*some, odd, *some, odd[::-1]]:
        message = SpanMessage()
        add_attributes(message.attributes, attributes)
        assert SpanMessage.FromString(writer.written(attributes)) == message


def test_little_is_kept_of_what_programs_say() -> None:
    writer = SpanAttributes()

    for number in range(20_000):
        writer.written(
            ((f"k{number}", f"v{number}"), (f"k{number}", number), (f"k{number}", 0.5), ("large", "x" * number))
        )

    kept = [writer._texts, writer._integers, writer._before_doubles]
    assert max(map(len, kept)) <= 4_096
    assert max(len(one) for known in kept for one in known.values()) <= 256


def test_resource_and_scope_say_whose_spans_they_are_and_by_what_conventions() -> None:
    [payload] = span_payloads(family())
    [line] = span_line_encoder().encode(family()).payloads
    sent = ExportTraceServiceRequest.FromString(payload.body)

    assert len(sent.resource_spans) == 3
    for of_resource in sent.resource_spans:
        [scope] = of_resource.scope_spans
        assert (of_resource.schema_url, scope.schema_url) == (SCHEMA_URL, SCHEMA_URL)
        assert (scope.scope.name, scope.scope.version) == ("otel_gpu", __version__)
    assert payload.points == line.points == 5
    assert json.loads(line.body) == without_defaults(json.loads(to_json(sent)), json.loads(line.body))


def without_defaults(theirs: object, ours: object) -> object:
    """What protobuf's mapping leaves out, OTLP/JSON may have: `status: {}`."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {
            k: without_defaults(theirs.get(k, v), v) for k, v in {**theirs, **ours}.items() if k in theirs or v == {}
        }
    if isinstance(theirs, list) and isinstance(ours, list):
        return [without_defaults(a, b) for a, b in zip(theirs, ours, strict=True)]
    return theirs


@pytest.mark.parametrize(
    ("span", "flags"),
    [
        (request(), 0x301),
        (replace(request(), is_parent_remote=False), 0x101),
        (replace(request(), parent_id=b""), 0x101),
        (replace(request(), context=replace(request().context, flags=0)), 0x300),
        (replace(request(), context=replace(request().context, flags=0x7F03)), 0x303),
    ],
    ids=["remote parent", "local parent", "no parent", "not sampled", "random, and bits that are not W3C's"],
)
def test_flags_are_w3cs_and_say_where_the_parent_is(span: Span, flags: int) -> None:
    [payload] = span_payloads([span])
    [line] = span_line_encoder().encode([span]).payloads

    [sent] = ExportTraceServiceRequest.FromString(payload.body).resource_spans[0].scope_spans[0].spans
    assert sent.flags == flags
    assert json.loads(line.body)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["flags"] == flags


def test_links_do_not_say_what_is_not_known_of_them() -> None:
    [payload] = span_payloads(family())
    flags = [
        link.flags
        for of_resource in ExportTraceServiceRequest.FromString(payload.body).resource_spans
        for span in of_resource.scope_spans[0].spans
        for link in span.links
    ]

    assert flags == [1, 1]


@pytest.mark.parametrize("max_bytes", [2_000, 10_000, 100_000])
def test_no_request_is_larger_than_it_may_be(encoding: Encoding, max_bytes: int) -> None:
    spans = many(1_000)

    encoded = encoding.make(max_bytes).encode(spans)

    assert all(payload.size_bytes == len(payload.body) <= max_bytes for payload in encoded.payloads)
    # Nor much smaller: but for the last, another span would not have fitted.
    assert sum(p.size_bytes for p in encoded.payloads) > 0.3 * max_bytes * (len(encoded.payloads) - 1)
    assert encoded.lost == 0
    assert sum(payload.points for payload in encoded.payloads) == len(spans)
    assert in_order([s for p in encoded.payloads for s in encoding.read(p.body)]) == in_order(spans)


def test_a_text_that_is_too_large_is_shortened_and_costs_nobody_else(encoding: Encoding) -> None:
    noted: list[Exception] = []
    huge = replace(request(1), attributes=(("kept", 5), ("text", "ä" * 10**6)), name="n" * 10**6)

    encoded = encoding.make(100_000, noted.append).encode([request(0), huge, request(2)])

    found = [s for p in encoded.payloads for s in encoding.read(p.body)]
    assert all(p.size_bytes <= 100_000 for p in encoded.payloads)
    assert [s.context for s in found] == [request(n).context for n in range(3)]
    assert dict(found[1].attributes) == {"kept": 5, "text": "ä" * (MAX_SHORTENED - 1) + "…"}
    assert encoded.lost == 0
    assert ["shortened" in str(error) for error in noted] == [True]


def test_a_megabyte_is_sent_whole_where_it_fits() -> None:
    span = replace(request(), attributes=(("text", "\0" * 2**20),))

    assert OTLP.around([span], 3_500_000) == [span]


def broken() -> list[Span]:
    """Each is wrong in another way."""
    return [
        replace(request(), start_ns=-1),
        replace(request(), end_ns=2**64),
        replace(request(), name=7),  # type: ignore[arg-type]
        replace(request(), kind=None),  # type: ignore[arg-type]
        replace(request(), attributes=((3, "x"),)),  # type: ignore[arg-type]
        replace(request(), attributes=tuple((f"k{n}", n) for n in range(20_000))),
        replace(request(), resource=Resource((("k", []),))),  # type: ignore[arg-type]
        replace(request(), resource=Resource(((5, "k"),))),  # type: ignore[arg-type]
        replace(request(), resource=Resource((("k", "x" * 200_000),))),
    ]


@pytest.mark.parametrize("wrong", broken(), ids=range(9))
def test_what_cannot_be_encoded_is_counted_and_costs_itself_alone(encoding: Encoding, wrong: Span) -> None:
    noted: list[Exception] = []
    good = many(20)

    encoded = encoding.make(100_000, noted.append).encode([*good[:7], wrong, *good[7:]])

    assert in_order([s for p in encoded.payloads for s in encoding.read(p.body)]) == in_order(good)
    assert (encoded.lost, len(noted)) == (1, 1)


def test_hostile_texts_arrive_as_far_as_utf8_can_carry_them(encoding: Encoding) -> None:
    [found] = encoding.around([hostile()])

    shown = "\0\x1b]0;\x07[red]??\n\u202e"
    values = dict(found.attributes)
    assert found.name == found.status_message == found.context.trace_state == shown
    assert found.resource.attributes == (("service.name", shown), (shown, shown))
    assert found.links[0].attributes == ((shown, shown),)
    assert values[shown] == shown
    assert (values["large"], values["small"]) == (str(2**64), -(2**63))
    assert math.isnan(values["nan"])
    assert values["infinite"] == -math.inf


def test_nothing_is_no_request(encoding: Encoding) -> None:
    assert encoding.make(1_000).encode([]).payloads == []
