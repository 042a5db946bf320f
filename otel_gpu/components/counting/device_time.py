"""How long did a device work for a process, between which bounds, and in which busy periods?"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...signals.structs import Record

_MAX_PERIODS = 1 << 16
"""Of one device. What is left out is time of which nobody knows whose it was."""


def part_of(subject: int, function: int) -> int:
    """Return what tells submissions of one busy period apart, as PART_OF of ebpf/abi/busy.h: a handle or, without one, the function."""
    return subject or 1 << 63 | function


class BusyPeriod(NamedTuple):
    """Work of one program on one device, between two times at which the device was certainly idle."""

    first: int
    """Its submissions are those after this one,"""
    last: int
    """up to this one. Equal numbers are possible between threads; how many there are is certain."""
    opened_ns: int
    closed_ns: int
    """CLOCK_MONOTONIC; what lies between is the upper bound."""
    lower_ns: int


Parts = tuple[tuple[int, int], ...]
"""What a busy period consists of: pairs of `part_of` and how many submissions there are, in the order of their coming."""


class BusyPeriodSum(NamedTuple):
    """What busy periods of the same parts came to."""

    periods: int
    upper_ns: int
    lower_ns: int

    def plus(self, other: BusyPeriodSum, sign: int = 1) -> BusyPeriodSum:
        """Return both together; or, with the sign -1, this without the other."""
        return BusyPeriodSum(*(a + sign * b for a, b in zip(self, other, strict=True)))


class DeviceTime(Record):
    """Between which bounds one device worked for a process over a stretch of time, and the busy periods that are known."""

    since_ns: int
    lower_ns: int = 0
    upper_ns: int = 0
    periods: dict[int, BusyPeriod] = msgspec.field(default_factory=dict)
    """By `first`: those of which stacks were taken. A busy period that was not over yet may be there, as it was when last read."""
    kinds: dict[Parts, BusyPeriodSum] = msgspec.field(default_factory=dict)
    """Those of which it is known what was done, with stacks or without."""

    def add(self, period: BusyPeriod) -> None:
        """Note a busy period, in place of what was known of it before."""
        if period.first in self.periods or len(self.periods) < _MAX_PERIODS:
            self.periods[period.first] = period
