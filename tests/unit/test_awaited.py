"""For which processes does a run with chosen ones go on, and for how long?"""

from __future__ import annotations

import os

import pytest

from otel_gpu.service import awaited
from otel_gpu.service.awaited import AwaitedProcesses


class _Clock:
    """The time, as this file sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(awaited, "time", self)

    def monotonic(self) -> float:
        return self.now


class _Running:
    """Processes that come of chosen ones, and run."""

    def __init__(self, *pids: int) -> None:
        self.pids = list(pids)

    def running(self) -> list[int]:
        return self.pids


_CHOSEN, _CHILD = 41, 42


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    return _Clock(monkeypatch)


def test_who_uses_no_gpu_is_waited_for_half_a_minute_once_the_chosen_ones_have_ended(clock: _Clock) -> None:
    waited_for, running = AwaitedProcesses([_CHOSEN], lambda _: False), _Running(_CHOSEN, _CHILD)
    clock.now += 3600
    assert waited_for.find(running) == [_CHOSEN, _CHILD]

    running.pids = [_CHILD]
    assert waited_for.find(running) == [_CHILD]
    clock.now += 29.9
    assert waited_for.find(running) == [_CHILD]
    clock.now += 0.1
    assert waited_for.find(running) == []


def test_who_uses_a_gpu_is_waited_for_without_an_end_and_its_end_begins_the_wait(clock: _Clock) -> None:
    users, running = {_CHILD}, _Running(_CHILD, 43)
    waited_for = AwaitedProcesses([_CHOSEN], users.__contains__)
    clock.now += 3600
    assert waited_for.find(running) == [_CHILD, 43]

    running.pids = [43]
    assert waited_for.find(running) == [43]
    clock.now += 29
    # Another comes that does.
    users.add(43)
    assert waited_for.find(running) == [43]
    users.clear()
    clock.now += 29
    assert waited_for.find(running) == [43]
    clock.now += 31
    assert waited_for.find(running) == []


def test_without_descendants_the_chosen_ones_alone_are_waited_for() -> None:
    assert AwaitedProcesses([os.getpid(), 1 << 22], lambda _: False).find(None) == [os.getpid()]
