"""Is it known who held the memory when that was the most?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.profiles.held_memory import HeldAllocation, HeldMemory

_STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 100)), max_size=200)
"""(an allocation or a free, the address, the size)."""


@given(_STEPS, _STEPS)
def test_the_peak_is_what_a_copy_made_at_it_would_hold(before: list, during: list) -> None:
    held, model = HeldMemory(), {}
    peak: dict[int, HeldAllocation] = {}
    for number, (is_allocation, address, size) in enumerate([*before, *during]):
        if number == len(before):
            held.begin()
            peak = dict(model)
        if is_allocation:
            one = HeldAllocation((), size, number)
            held.allocated(address, one)
            model[address] = one
        else:
            held.freed(address, number)
            model.pop(address, None)
        if sum(a.size_bytes for a in model.values()) > sum(a.size_bytes for a in peak.values()):
            peak = dict(model)
    if not during:
        held.begin()
        peak = dict(model)

    def key(one: HeldAllocation) -> tuple[int, int]:
        return one.since_ns, one.size_bytes

    assert sorted(held, key=key) == sorted(model.values(), key=key)
    assert sorted(held.at_peak(), key=key) == sorted(peak.values(), key=key)


def test_a_free_that_began_before_is_of_another_allocation() -> None:
    held = HeldMemory()
    held.allocated(1, HeldAllocation((), 5, since_ns=10))

    held.freed(1, when_ns=9)

    assert [a.size_bytes for a in held.at_peak()] == [5]
    assert len(list(held)) == 1
