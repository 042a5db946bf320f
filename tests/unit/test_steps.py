"""Links are never too few, and shares add up to the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from otel_gpu.receivers.inference.request import NOT_KNOWN, GpuTotals
from otel_gpu.receivers.inference.step_spans import step_span
from otel_gpu.receivers.inference.steps import Flights, Linked, Step, added, split
from otel_gpu.receivers.inference.trace_context import child_of

ENGINE, OTHER = (4711, 1), (4712, 1)
NUMBERS = st.integers(0, 1 << 62)
TOTALS = st.builds(GpuTotals, *[st.none() | NUMBERS] * 9)


def step(began_ns: int, last_ns: int, program: tuple[int, int] = ENGINE, launches: int = 7) -> Step:
    return Step(program, program[0], began_ns, last_ns, last_ns + 5, GpuTotals(launches, 0, 1, 1, 0, 4, 4, 0, 9))


@given(TOTALS, st.integers(1, 400))
def test_parts_are_even_and_add_up(totals: GpuTotals, count: int) -> None:
    parts = split(totals, count)

    whole = parts[0]
    for part in parts[1:]:
        whole = added(whole, part)
    assert len(parts) == count
    assert whole == totals
    for column in zip(*map(astuple, parts), strict=True):
        known = [value for value in column if value is not None]
        assert not known or max(known) - min(known) <= 1


def test_what_is_not_known_stays_unknown() -> None:
    assert added(NOT_KNOWN, GpuTotals(1)) == NOT_KNOWN


def test_one_in_flight_is_the_batch() -> None:
    flights = Flights()
    flights.deliver(ENGINE, 1, 50)

    assert flights.served_by(step(100, 200)) == ([1], Linked.EXACT)


def test_one_that_came_while_the_step_went_on_may_not_be_in_it() -> None:
    flights = Flights()
    flights.deliver(ENGINE, 1, 150)

    assert flights.served_by(step(100, 200)) == ([1], Linked.SUPERSET)
    assert flights.served_by(step(100, 149)) == ([], Linked.SUPERSET)


def test_requests_are_in_flight_from_delivery_to_the_responses_end() -> None:
    flights = Flights()
    for request, delivered_ns, ended_ns in ((1, 10, 99), (2, 20, 100), (3, 30, None), (4, 201, None)):
        flights.deliver(ENGINE, request, delivered_ns)
        if ended_ns is not None:
            flights.end(request, ended_ns)
    flights.deliver(OTHER, 5, 40)

    assert flights.served_by(step(100, 200)) == ([2, 3], Linked.SUPERSET)
    assert flights.served_by(step(100, 200, OTHER)) == ([5], Linked.EXACT)
    assert sorted(flights.going_on()) == [3, 4, 5]


def test_a_message_that_is_delivered_again_changes_nothing() -> None:
    flights = Flights()
    flights.deliver(ENGINE, 1, 50)
    flights.deliver(ENGINE, 1, 150)

    assert flights.served_by(step(100, 200)) == ([1], Linked.EXACT)


def test_a_request_may_go_to_several_engines() -> None:
    flights = Flights()
    flights.deliver(ENGINE, 1, 50)
    flights.deliver(OTHER, 1, 60)

    assert flights.engines_of(1) == {ENGINE, OTHER}
    flights.end(1, 70)
    assert list(flights.ends_of(1)) == [70, 70]
    flights.forget(1)
    assert not len(flights)
    assert flights.served_by(step(65, 200)) == ([], Linked.SUPERSET)


def test_a_request_that_went_nobody_knows_where_may_be_in_any_step() -> None:
    flights = Flights()
    flights.deliver(ENGINE, 1, 50)
    flights.lose(2)

    assert flights.served_by(step(100, 200)) == ([1], Linked.PARTIAL)
    flights.end(2, 250)
    assert flights.served_by(step(250, 260)) == ([1], Linked.PARTIAL)
    assert flights.served_by(step(251, 260)) == ([1], Linked.EXACT)
    flights.forget(2)
    assert flights.served_by(step(100, 200)) == ([1], Linked.EXACT)


_TIMES = st.tuples(st.integers(0, 100), st.none() | st.integers(0, 100), st.booleans())


def test_a_step_that_may_be_a_strangers_serves_those_in_flight_in_part() -> None:
    flights = Flights()
    flights.deliver(ENGINE, 1, 50)

    assert flights.served_by(Step(ENGINE, 1, 100, 110, 120, GpuTotals(1), is_unclear=True)) == ([1], Linked.PARTIAL)
    assert flights.served_by(Step(ENGINE, 1, 100, 110, 120, GpuTotals(1))) == ([1], Linked.EXACT)


@given(st.lists(_TIMES, max_size=20), st.integers(0, 100), st.integers(0, 50))
def test_no_request_that_may_have_been_served_is_missing(
    times: list[tuple[int, int | None, bool]], began_ns: int, lasted_ns: int
) -> None:
    flights = Flights()
    for request, (delivered_ns, lasts_ns, _) in enumerate(times):
        flights.deliver(ENGINE, request, delivered_ns)
        if lasts_ns is not None:
            flights.end(request, delivered_ns + lasts_ns)
    batch = {
        request
        for request, (delivered_ns, lasts_ns, is_served) in enumerate(times)
        if is_served
        and delivered_ns <= began_ns
        and (lasts_ns is None or delivered_ns + lasts_ns >= began_ns + lasted_ns)
    }

    served, linked = flights.served_by(step(began_ns, began_ns + lasted_ns))

    assert set(served) >= batch
    assert linked is not Linked.EXACT or not batch or set(served) == batch


def test_a_step_becomes_a_span_with_links() -> None:
    served = [child_of(None) for _ in range(130)]

    span = step_span(step(1_000, 2_000), (("service.name", "engine"),), served[:2], Linked.SUPERSET, lambda ns: ns + 10)

    assert (span.name, span.start_ns, span.end_ns) == ("gpu step", 1_010, 2_015)
    assert [link.context for link in span.links] == served[:2]
    values = dict(span.attributes)
    assert values["otel_gpu.linked"] == "superset"
    assert values["gpu.cuda.kernel.launch.calls"] == 7
    assert values["gpu.cuda.memory.copy.bytes.h2d"] == 4
    assert "otel_gpu.links.left_out" not in values

    many = step_span(step(1_000, 2_000), (), served, Linked.SUPERSET, lambda ns: ns)
    assert len(many.links) == 128
    assert dict(many.attributes)["otel_gpu.links.left_out"] == 2
