"""Which series were measured a moment ago and are not any more? Each of them falls silent: nothing old is exported as of now."""

from __future__ import annotations

from collections.abc import Iterable

from .metrics import Attributes, Measurement, MetricSpec, Resource


class Standing:
    """The series that somebody measured the last time. Owned by one thread."""

    def __init__(self) -> None:
        self._keys: set[tuple[Resource, MetricSpec, Attributes]] = set()

    def now(self, measured: Iterable[Measurement]) -> list[Measurement]:
        """Return what says so of those that were measured before, and are not among these."""
        keys = {(m.resource, m.metric, m.attributes) for m in measured}
        silent = [Measurement(*key, None) for key in self._keys - keys]
        self._keys = keys
        return silent
