"""What do the bounds say of a device at a moment?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda_busy import bounds

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
def test_batches_and_gaps_add_up(spans: list[tuple[int, int]]) -> None:
    busy, idle = sum(b for b, _ in spans), sum(i for _, i in spans[:-1])
    end = FIRST + busy + idle
    submissions = len(spans)

    assert bounds(end, FIRST, idle, 0, 0, 0, submissions) == (0, busy)
    assert bounds(end + spans[-1][1], FIRST, idle, 0, end, submissions, submissions) == (0, busy)
