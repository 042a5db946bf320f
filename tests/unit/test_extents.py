"""Are slots handed out once, and found again when they are free?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.stacks.eh_frame.extents import Extents


def test_a_run_that_is_given_back_can_be_taken_again() -> None:
    extents = Extents(100)

    first, second = extents.take(40), extents.take(60)
    assert (first, second) == (0, 40)
    assert extents.take(1) is None

    extents.give_back(0, 40)
    assert extents.take(40) == 0


def test_neighbours_become_one_run() -> None:
    extents = Extents(30)
    for _ in range(3):
        extents.take(10)

    for start in (0, 20, 10):
        extents.give_back(start, 10)

    assert extents.take(30) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_no_slot_is_ever_taken_twice_or_lost(orders: list[tuple[bool, int]]) -> None:
    extents, taken = Extents(200), []
    for give_back, length in orders:
        if give_back and taken:
            extents.give_back(*taken.pop(length % len(taken)))
        elif (start := extents.take(length)) is not None:
            taken.append((start, length))

        slots = [slot for start, length in taken for slot in range(start, start + length)]
        assert len(slots) == len(set(slots))
        assert extents.free == 200 - len(slots)
