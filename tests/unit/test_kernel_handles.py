"""A handle is one kernel after another: counts go to the one that it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.kernel_handles import KernelHandles, handle_of, slot_of

PROGRAM = (4711, 1)
HANDLE, OTHER = 0x7F00_1234_5670, 0x7F00_1234_5680
SHARING = HANDLE + (1 << 36)
"""Another handle of the same slot."""


class Driver:
    """Names handles, and tells of it as the kernel's programs do."""

    def __init__(self, generation: int = 0) -> None:
        self.handles = KernelHandles()
        self.generation = generation
        self.handles._latest[slot_of(HANDLE)] = generation

    def rename(self, handle: int = HANDLE, *, told: bool = True) -> int:
        """Give a handle to another kernel and return its key."""
        self.generation = (self.generation + 1) % (1 << 16)
        return self.handles.named(PROGRAM, handle, self.generation | 1 << 16) if told else 0

    def ask_again(self) -> int:
        """Name the kernel that the handle is."""
        return self.handles.named(PROGRAM, HANDLE, self.generation)

    def key(self, generation: int | None = None) -> int:
        return self.handles.key(PROGRAM, HANDLE, generation)


def test_the_handles_of_the_tests_share_their_generations_or_not() -> None:
    assert slot_of(HANDLE) == slot_of(SHARING) != slot_of(OTHER)


def test_a_handle_that_was_never_another_kernel_is_its_own_key() -> None:
    driver = Driver()
    assert driver.ask_again() == driver.key() == driver.key(0) == HANDLE
    driver.rename(SHARING)
    assert driver.ask_again() == driver.key() == driver.key(0) == driver.key(1) == HANDLE


def test_each_kernel_of_a_handle_has_a_key() -> None:
    driver = Driver()
    first = driver.ask_again()
    driver.rename(SHARING)
    second = driver.rename()
    assert driver.ask_again() == second
    third = driver.rename()
    driver.rename(SHARING)

    assert [driver.key(g) for g in range(5)] == [first, first, second, third, third]
    assert len({first, second, third}) == 3
    assert {handle_of(key) for key in (first, second, third)} == {HANDLE}
    assert driver.key() == third
    assert driver.handles.key(PROGRAM, OTHER, 0) == OTHER
    assert driver.handles.key((1, 2), HANDLE, 3) == HANDLE


def test_what_was_counted_twice_ago_is_forgotten() -> None:
    driver = Driver()
    second, third = driver.rename(), driver.rename()
    driver.handles.settle()
    assert driver.key(1) == second
    driver.handles.settle()
    assert driver.key(1) == driver.key(2) == third


@given(st.integers(65_000, 65_535), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_generations_may_pass_their_end(first: int, steps: list[int]) -> None:
    driver = Driver(first)
    expected = [(first, HANDLE)]
    for step in steps:
        for _ in range(step):
            driver.rename(SHARING)
        key = driver.rename()
        expected.append((driver.generation, key))

    assert [driver.key(g) for g, _ in expected] == [key for _, key in expected]
    assert len({key for _, key in expected}) == len(expected)


def test_what_follows_a_record_that_was_dropped_has_no_name() -> None:
    driver = Driver()
    first = driver.rename()
    driver.rename(told=False)
    assert driver.key(1) == driver.key() == first
    assert driver.key(2) not in (HANDLE, first)

    # It was another handle that became another kernel, or this one.
    driver.rename(SHARING)
    assert driver.key(1) == first
    unknown = [driver.key(2), driver.key(3), driver.key()]
    assert not {HANDLE, first} & set(unknown)
    assert {handle_of(key) for key in unknown} == {HANDLE}

    named = driver.ask_again()
    assert driver.key(3) == driver.key() == named
    assert named not in (HANDLE, first)
