"""Which series are there, what do they add up to, and how did they go? Points of any temporality become totals and rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ..signals.metrics import Attributes
from ..signals.structs import Record
from .histograms import Distribution
from .losses import Losses, Reason
from .resources import ResourceEntry
from .settings import Bounds
from .timelines import LEVELS, NS, RATES, Row, Timelines

Number = int | float
_AHEAD_NS = 60 * NS
"""So far a sender's clock may be ahead before it is expected to be put right."""
_HELD_NS = 90 * NS
"""So long a level is believed when nothing is said of it any more."""
_SILENT_NS = 15 * NS
"""Who said nothing for so long is not waited for."""
_SWEEP_NS = 10 * NS
_LARGEST = 1e37


class Kind(Enum):
    """How the values of a metric add up."""

    COUNTER = "counter"
    LEVEL = "level"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """What is measured."""

    name: str
    unit: str
    kind: Kind


class Times(NamedTuple):
    """Which interval a point is about, and whether it says what was added in it, or since the beginning."""

    start_ns: int
    time_ns: int
    is_delta: bool


class Exemplar(NamedTuple):
    """One value, and the span in which it came about."""

    value: Number
    trace_id: str
    span_id: str
    time_ns: int


class Series(Record):
    """One series. What it says of earlier runs of whoever counts is in `before`."""

    resource: ResourceEntry
    metric: Metric
    attributes: Attributes
    row: Row
    sums: Row | None = None
    """Of a histogram the sums; its counts are in `row`."""
    start_ns: int = 0
    told_ns: int = 0
    """Both as the sender's clock has them: the beginning of what is counted, and the last point."""
    time_ns: int = 0
    """Of the last point, by the view's own clock where the sender's is ahead."""
    interval_ns: int = 0
    """From the last but one point to the last."""
    value: Number = 0
    before: Number = 0
    sum: Number = 0
    sum_before: Number = 0
    spread: Distribution | None = None
    spread_before: Distribution | None = None
    exemplar: Exemplar | None = None

    @property
    def total(self) -> Number:
        """A counter's total, a level's value, how many values a histogram has."""
        return self.before + self.value

    @property
    def total_sum(self) -> Number:
        """Of a histogram's values."""
        return self.sum_before + self.sum

    def distribution(self) -> Distribution:
        """Return how a histogram's values are distributed."""
        all_of_it = Distribution()
        self.add_to(all_of_it)
        return all_of_it

    def add_to(self, distribution: Distribution) -> None:
        """Add how a histogram's values are distributed to what is known of others."""
        for spread in (self.spread_before, self.spread):
            if spread is not None:
                distribution.add(spread)

    def is_live(self, now_ns: int) -> bool:
        """Whether its last value can be believed still."""
        return now_ns - self.time_ns <= max(15 * NS, min(_HELD_NS, 3 * self.interval_ns))


_Key = tuple[int, Metric, Attributes]


@dataclass(slots=True)
class Point:
    """What was said of a series: a number, or a histogram."""

    times: Times
    value: Number
    """Of a histogram how many values."""
    sum: Number = 0
    spread: Distribution | None = None
    exemplar: Exemplar | None = None
    ended: bool = field(default=False)
    """The series has no value any more."""


class SeriesStore:
    """All series. Guarded by whoever owns it."""

    def __init__(self, bounds: Bounds, losses: Losses, keep_s: float, now_ns: int) -> None:
        self.timelines = Timelines(keep_s, now_ns)
        self._bounds, self._losses = bounds, losses
        self._keep_ns = int(keep_s * NS)
        self._began_ns = now_ns
        self._swept_ns = now_ns
        self._series: dict[_Key, Series] = {}
        self._by_name: dict[str, dict[_Key, Series]] = {}
        self.descriptions: dict[str, str] = {}
        """By metric, as whoever sends it describes it."""
        self._told: dict[int, int] = {}
        self._being_told: dict[int, int] = {}
        """By resource the last time that was spoken of: in requests that were read to their end, and in the one that is not."""
        self.points = 0

    def __len__(self) -> int:
        return len(self._series)

    def names(self) -> list[str]:
        """Return which metrics there are."""
        return sorted(self._by_name)

    def of(self, *names: str, resources: frozenset[int] | None = None) -> Iterator[Series]:
        """Yield the series of some metrics, of some resources or all."""
        for name in names:
            for series in self._by_name.get(name, {}).values():
                if resources is None or series.resource.number in resources:
                    yield series

    def add(self, resource: ResourceEntry, metric: Metric, attributes: Attributes, point: Point, now_ns: int) -> bool:
        """Take a point; say whether it was kept."""
        times = point.times
        # Of a clock that is ahead, what it says of now is drawn now, and intervals are as long as they are.
        ahead_ns = max(0, times.time_ns - now_ns)
        end_ns = (times.time_ns or now_ns) - ahead_ns
        if end_ns < now_ns - self._keep_ns:
            self._losses.add(Reason.OLD)
            return False
        key = (resource.number, metric, attributes)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= self._bounds.series:
                self._losses.add(Reason.SERIES)
                return False
            series = self._make(key, resource)
        elif self._is_repeated(series, times.time_ns or now_ns, now_ns):
            self._losses.add(Reason.REPEATED)
            return False
        series.told_ns = times.time_ns or now_ns
        if point.ended:
            series.interval_ns, series.time_ns = 0, min(end_ns, now_ns - _HELD_NS)
            return True
        if metric.kind is Kind.LEVEL:
            self._set_level(series, point, end_ns)
        else:
            self._count(series, point, end_ns, ahead_ns)
        series.interval_ns = end_ns - series.time_ns if series.time_ns else 0
        series.time_ns = resource.seen_ns = end_ns
        number = resource.number
        self._being_told[number] = max(self._being_told.get(number, 0), min(end_ns, now_ns))
        if point.exemplar is not None:
            series.exemplar = point.exemplar
        self.points += 1
        return True

    @staticmethod
    def _is_repeated(series: Series, time_ns: int, now_ns: int) -> bool:
        """Say whether a point is there already; a clock that was far ahead may have been put right since."""
        return time_ns == series.told_ns or (time_ns < series.told_ns <= now_ns + _AHEAD_NS)

    def settle(self) -> None:
        """Note that a request was read to its end."""
        for number, told_ns in self._being_told.items():
            self._told[number] = max(self._told.get(number, 0), told_ns)
        self._being_told.clear()

    def until_ns(self, resources: frozenset[int] | None, now_ns: int) -> int:
        """Return up to when all of some resources have spoken, of those that still do: later sums would lack some."""
        told = [t for number, t in self._told.items() if resources is None or number in resources]
        return min((t for t in told if now_ns - t < _SILENT_NS), default=max(told, default=now_ns))

    def sweep(self, now_ns: int) -> None:
        """Let time pass, and forget what nothing was said of for as long as anything is kept."""
        self.timelines.advance(now_ns)
        if now_ns - self._swept_ns < _SWEEP_NS:
            return
        self._swept_ns = now_ns
        self._told = {number: told for number, told in self._told.items() if told > now_ns - self._keep_ns}
        for key in [k for k, s in self._series.items() if s.time_ns < now_ns - self._keep_ns]:
            series = self._series.pop(key)
            named = self._by_name[key[1].name]
            del named[key]
            if not named:
                del self._by_name[key[1].name]
                self.descriptions.pop(key[1].name, None)
            self.timelines.release(series.row)
            if series.sums is not None:
                self.timelines.release(series.sums)

    def resources(self) -> set[int]:
        """Return the numbers of the resources that have series."""
        return {key[0] for key in self._series}

    def _make(self, key: _Key, resource: ResourceEntry) -> Series:
        metric = key[1]
        row = self.timelines.allocate(LEVELS if metric.kind is Kind.LEVEL else RATES)
        sums = self.timelines.allocate(RATES) if metric.kind is Kind.HISTOGRAM else None
        series = self._series[key] = Series(resource, metric, key[2], row, sums)
        self._by_name.setdefault(metric.name, {})[key] = series
        return series

    def _set_level(self, series: Series, point: Point, end_ns: int) -> None:
        was_ns = series.time_ns
        value = series.value + point.value if point.times.is_delta else point.value
        since_ns = was_ns if was_ns and end_ns - was_ns <= _HELD_NS else end_ns
        # Between two points it is the earlier value that held, and from the later one on the other.
        if was_ns and since_ns == was_ns:
            self.timelines.hold(series.row, was_ns, end_ns, _bounded(series.value))
        self.timelines.hold(series.row, end_ns, end_ns, _bounded(value))
        series.value = value

    def _count(self, series: Series, point: Point, end_ns: int, ahead_ns: int) -> None:
        times, first = point.times, not series.time_ns
        start_ns = min(times.start_ns - ahead_ns, end_ns) if times.start_ns else end_ns
        if times.is_delta:
            added, added_sum = point.value, point.sum
            since_ns = start_ns if times.start_ns else (series.time_ns or end_ns)
            series.before += point.value
            series.sum_before += point.sum
            if point.spread is not None:
                if series.spread_before is None:
                    series.spread_before = Distribution()
                series.spread_before.add(point.spread)
        else:
            restarted = not first and (times.start_ns > series.start_ns or point.value < series.value)
            if restarted:
                self._keep_earlier_run(series)
            added, added_sum = point.value - series.value, point.sum - series.sum
            since_ns = start_ns if first or restarted else series.time_ns
            if first and (not times.start_ns or start_ns < self._began_ns - _AHEAD_NS):
                # It began before anybody looked: what is in its total has no time here.
                added = added_sum = 0
            series.value, series.sum, series.spread = point.value, point.sum, point.spread
            series.start_ns = times.start_ns
        self.timelines.spread(series.row, max(since_ns, series.time_ns), end_ns, _bounded(added))
        if series.sums is not None:
            self.timelines.spread(series.sums, max(since_ns, series.time_ns), end_ns, _bounded(added_sum))

    def _keep_earlier_run(self, series: Series) -> None:
        series.before, series.sum_before = series.total, series.total_sum
        series.spread_before = series.distribution() if series.spread is not None else series.spread_before
        series.value = series.sum = 0
        series.spread = None


def total(series: Iterable[Series]) -> Number:
    """Add up the totals of series."""
    return sum(s.total for s in series)


def _bounded(value: Number) -> float:
    """Return a number that a row has room for."""
    number = float(value)
    return max(-_LARGEST, min(_LARGEST, number)) if math.isfinite(number) else 0.0
