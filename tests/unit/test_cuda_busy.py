"""What do the bounds say of a device at a moment?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.components.counting.device_time import BusyPeriod, BusyPeriodSum
from otel_gpu.discovery.processes import Process
from otel_gpu.receivers.cuda.busy import BusyDelta, BusyTimes, bounds, present_period
from otel_gpu.signals.metrics import Resource

FIRST, NOW = 1_000, 10_000


@pytest.mark.parametrize(
    ("idle_since", "idle_submissions", "submissions", "upper"),
    [
        pytest.param(0, 0, 5, 8_700, id="work goes on until now"),
        pytest.param(7_000, 5, 5, 5_700, id="idle since the last work was done"),
        pytest.param(7_000, 4, 5, 8_700, id="a submission has ended the gap"),
    ],
)
def test_all_time_but_certain_gaps_may_be_busy(
    idle_since: int, idle_submissions: int, submissions: int, upper: int
) -> None:
    assert bounds(NOW, FIRST, 300, 200, idle_since, idle_submissions, submissions) == (200, upper)


def test_nothing_is_busy_before_the_first_submission() -> None:
    assert bounds(NOW, 0, 0, 0, 0, 0, 0) == (0, 0)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1))
def test_busy_periods_and_gaps_add_up(spans: list[tuple[int, int]]) -> None:
    busy, idle = sum(b for b, _ in spans), sum(i for _, i in spans[:-1])
    end = FIRST + busy + idle
    submissions = len(spans)

    assert bounds(end, FIRST, idle, 0, 0, 0, submissions) == (0, busy)
    assert bounds(end + spans[-1][1], FIRST, idle, 0, end, submissions, submissions) == (0, busy)


@pytest.mark.parametrize(
    ("idle_since", "sampled", "period"),
    [
        pytest.param(0, 7, BusyPeriod(5, 9, 6_000, NOW, 70), id="it goes on"),
        pytest.param(8_000, 7, BusyPeriod(5, 9, 6_000, 8_000, 70), id="the device is idle behind it"),
        pytest.param(0, 5, None, id="no stack was taken of it"),
        pytest.param(0, 10, None, id="it has grown while it was read"),
    ],
)
def test_the_present_busy_period_is_told_when_somebody_looked(
    idle_since: int, sampled: int, period: BusyPeriod | None
) -> None:
    assert present_period(NOW, 100, idle_since, 9, 9, 5, 6_000, 30, sampled) == period


def test_times_and_busy_periods_come_together_until_they_are_taken() -> None:
    times, process = BusyTimes(), Process(7, Resource(()), start_ticks=1)
    seen, over = BusyPeriod(0, 3, 10, 50, 5), BusyPeriod(0, 4, 10, 60, 8)
    parts = ((0xA, 2),)
    times.ended(process, 0, over)  # nothing is known of the device's time yet
    times.grown(process, BusyDelta((7, 1), 0, 5, 40, 10, seen, {parts: BusyPeriodSum(1, 30, 3)}))
    times.grown(process, BusyDelta((7, 1), 0, 3, 10, 50, None, {parts: BusyPeriodSum(2, 60, 6)}))
    times.ended(process, 0, over)

    (time,) = times.take()[process].values()

    assert (time.since_ns, time.lower_ns, time.upper_ns) == (10, 8, 50)
    assert time.periods == {0: over}
    assert time.kinds == {parts: BusyPeriodSum(3, 90, 9)}
    assert times.take() == {}
