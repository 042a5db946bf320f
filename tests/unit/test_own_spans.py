"""Whose spans does a request get where its program makes some itself?"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.inference.request import GpuTotals, GpuWork, OwnSpan, Request, WorkKind
from otel_gpu.receivers.inference.server_spans import spans_of
from otel_gpu.sandbox.memory import MemoryFault
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.spans import SpanContext, SpanKind
from otel_gpu.stacks.cpython.current_span import current_span
from otel_gpu.stacks.cpython.layout import layout_for
from otel_gpu.stacks.cpython.objects import PythonObjects, PythonSymbols

TRACE, OTHER = b"t" * 16, b"o" * 16
CALLER = SpanContext(TRACE, b"c" * 8)
OWN = b"s" * 8


def request(own: OwnSpan | None, parent: SpanContext | None = None) -> Request:
    work = (GpuWork(WorkKind.BATCH, 1, 2, GpuTotals(launches=3), b"w" * 8),)
    return Request(Resource(()), 0, 9, "GET", "/", parent=parent, own=own, totals=GpuTotals(launches=3), work=work)


@pytest.mark.parametrize(
    ("own", "parent", "is_made"),
    [
        (OwnSpan(TRACE, OWN, 1), CALLER, True),
        (OwnSpan(TRACE, CALLER.span_id, 1), CALLER, False),
        (OwnSpan(OTHER, OWN, 1), CALLER, False),
        (OwnSpan(OTHER, OWN, 1, server_id=OWN), CALLER, True),
        (OwnSpan(OTHER, OWN, 1), None, False),
        (OwnSpan(OTHER, OWN, 1, server_id=b"k" * 8), None, True),
        (OwnSpan(OTHER, OWN, 1, is_entry=True), None, True),
    ],
)
def test_a_program_that_made_the_requests_span_gets_no_second_one(
    own: OwnSpan, parent: SpanContext | None, is_made: bool
) -> None:
    first, batch = spans_of(request(own, parent))

    assert (first.kind, first.name) == ((SpanKind.INTERNAL, "gpu request") if is_made else (SpanKind.SERVER, "GET"))
    assert dict(first.attributes)["gpu.cuda.kernel.launch.calls"] == 3
    assert (batch.context.trace_id, batch.parent_id) == (own.trace_id, b"w" * 8)
    if is_made:
        assert (first.context.trace_id, first.parent_id) == (own.trace_id, own.server_id or own.span_id)
    elif parent is not None:
        assert (first.context.trace_id, first.parent_id) == (TRACE, CALLER.span_id)
    else:
        assert (first.context.trace_id, first.parent_id) == (own.trace_id, b"")


def test_a_trace_that_the_program_does_not_record_gets_no_spans() -> None:
    assert spans_of(request(OwnSpan(TRACE, OWN, 0), CALLER)) == []
    assert spans_of(request(OwnSpan(TRACE, OWN, None), CALLER)) != []


class _Noise:
    """Memory in which every address has something, as a hostile program's may."""

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def read(self, address: int, size: int) -> bytes:
        if address < 4096 or size > 1 << 22:
            raise MemoryFault("nothing is there")
        data = b"".join(
            struct.pack("<Q", self._words[(address // 8 + n) % len(self._words)]) for n in range(size // 8 + 2)
        )
        return data[address % 8 : address % 8 + size]


@given(
    st.lists(st.one_of(st.integers(0, 64), st.integers(4096, 65536).map(lambda n: n * 8)), min_size=3, max_size=40),
    st.sampled_from([8, 10, 11, 12]),
)
def test_memory_that_holds_anything_is_a_fault_at_most(words: list[int], minor: int) -> None:
    symbols = PythonSymbols(*(words[n % len(words)] for n in range(8)))
    objects = PythonObjects(_Noise(words), layout_for((3, minor)), symbols)
    for read in (objects.modules, lambda: current_span(objects, words[0]), lambda: objects.shared_keys(words[1])):
        try:
            read()
        except MemoryFault:
            continue
