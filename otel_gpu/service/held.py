"""Sums that rise and fall, such as memory in use, by the process that holds them.

Processors may add several processes up to one resource: when one of them ends, what it held is taken off, and the series goes
on with what the others hold. When more is learnt of a process, what it holds goes with it to its new resource.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..signals.metrics import Attributes, Instrument, Measurement, MetricSpec, Resource


class Held:
    """What the processes of one pipeline hold, as measured, before any processor. Used by one thread at a time."""

    def __init__(self) -> None:
        self._sums: dict[Resource, dict[tuple[MetricSpec, Attributes], float]] = {}

    def note(self, measurements: Iterable[Measurement]) -> None:
        """Add what was measured."""
        for m in measurements:
            if m.metric.instrument is Instrument.UPDOWNCOUNTER and isinstance(m.value, int | float):
                sums = self._sums.setdefault(m.resource, {})
                sums[m.metric, m.attributes] = sums.get((m.metric, m.attributes), 0) + m.value

    def of(self, resource: Resource) -> list[Measurement]:
        """Return what a process holds."""
        sums = self._sums.get(resource, {})
        return [Measurement(resource, metric, attrs, value) for (metric, attrs), value in sums.items() if value]

    def release(self, resource: Resource) -> list[Measurement]:
        """Return what takes off all that a process held, which is forgotten."""
        held = self.of(resource)
        self._sums.pop(resource, None)
        return given_back(held)


def given_back(held: Iterable[Measurement]) -> list[Measurement]:
    """Return the opposite of what was measured."""
    return [Measurement(m.resource, m.metric, m.attributes, -m.value) for m in held if isinstance(m.value, int | float)]
