"""What flows from receivers through processors to exporters.

Receivers emit frozen `Measurement`s: what happened since they were last asked (counters, histograms)
or what is so now (gauges). Processors rewrite or drop them. The `SeriesStore` folds them into `Series`,
the long-lived cells that exporters read: a cell is the same object from one export to the next, so an
exporter may keep whatever it built for it. Deltas are what flows, so that a kernel whose name is learnt
late, or that leaves the top K, goes on in another series and no counter ever falls.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from .exemplars import NO_EXEMPLARS, Exemplar, Exemplars
from .structs import Frozen, Record

AttributeValue = str | int | float | bool
Attributes = tuple[tuple[str, AttributeValue], ...]
"""Attributes, sorted by key, so that equal sets are equal tuples."""


def attributes(mapping: Mapping[str, AttributeValue | None] = {}, /, **more: AttributeValue) -> Attributes:
    """Make an attribute set; values that are None are left out."""
    merged = {**mapping, **more}
    return tuple(sorted((k, v) for k, v in merged.items() if v is not None))


class Instrument(enum.Enum):
    """How the values of a metric add up; OpenTelemetry's instruments, as exported."""

    COUNTER = "counter"
    UPDOWNCOUNTER = "updowncounter"
    GAUGE = "gauge"
    HISTOGRAM = "exponential histogram"


class MetricSpec(Frozen):
    """The declaration of one metric; `otel_gpu.service.telemetry` holds them all."""

    name: str
    unit: str
    instrument: Instrument
    description: str
    attributes: tuple[str, ...] = ()
    stability: str = "development"
    floating: bool = False
    """True when values are floats (seconds, ratios); integers else."""

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Resource:
    """What a series is about: an observed process, a GPU, or the agent itself."""

    attributes: Attributes
    is_selected: bool = field(default=True, compare=False)
    """Whether the operator wants to hear of it; of what is not selected nothing reaches a pipeline."""


class Buckets:
    """A base-2 exponential histogram at scale 0: bucket i counts values in (2**i, 2**(i+1)].

    `counts` maps a bucket's index (-1 holds the value 1) to how many values fell in it.
    """

    __slots__ = ("count", "counts", "exemplars", "sum", "zero_count")

    def __init__(self, counts: Mapping[int, int] | None = None, total: float = 0, zero_count: int = 0) -> None:
        self.counts: dict[int, int] = dict(counts) if counts else {}
        self.sum: float = total
        """Exact: an int when the metric is of integers."""
        self.zero_count = zero_count
        self.count: int = sum(self.counts.values()) + zero_count if counts else zero_count
        self.exemplars: Exemplars = NO_EXEMPLARS
        """Of what was added last; no part of what it is equal to."""

    def add(self, other: Buckets) -> None:
        """Fold another histogram into this one."""
        for index, n in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + n
        self.sum += other.sum
        self.zero_count += other.zero_count
        self.count += other.count
        if other.exemplars:
            self.exemplars = {**self.exemplars, **other.exemplars}

    def note(self, bucket: int | None, exemplar: Exemplar) -> None:
        """Let a bucket have this exemplar, in place of its last one."""
        self.exemplars = {**self.exemplars, bucket: exemplar}

    def since(self, earlier: Buckets | None) -> Buckets:
        """Return what was added since `earlier`, an older copy of this histogram."""
        if earlier is None:
            return self.copy()
        counts = {i: d for i, n in self.counts.items() if (d := n - earlier.counts.get(i, 0))}
        added = Buckets(counts, self.sum - earlier.sum, self.zero_count - earlier.zero_count)
        added.exemplars = self.exemplars
        return added

    def copy(self) -> Buckets:
        new = Buckets.__new__(Buckets)
        new.counts, new.count = self.counts.copy(), self.count
        new.sum, new.zero_count = self.sum, self.zero_count
        new.exemplars = self.exemplars
        return new

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buckets):
            return NotImplemented
        return (self.counts, self.sum, self.zero_count) == (other.counts, other.sum, other.zero_count)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Buckets(count={self.count}, sum={self.sum}, zero={self.zero_count}, counts={self.counts})"


def bucket_index(value: float) -> int:
    """Return the scale-0 bucket of an integer value ≥ 1: the i with 2**i < value ≤ 2**(i+1)."""
    return (int(value) - 1).bit_length() - 1


Value = int | float | Buckets


class SelfReading(NamedTuple):
    """What a part of the agent measured of itself."""

    metric: MetricSpec
    value: Value
    """Of counters and updowncounters the total since the start; of gauges the value now, of histograms what was added."""
    attributes: Mapping[str, AttributeValue] = {}


def added_up(readings: Iterable[SelfReading]) -> Iterator[SelfReading]:
    """Yield readings, totals of the same once: parts of one kind measure themselves each."""
    totals: dict[tuple[str, Attributes], SelfReading] = {}
    for reading in readings:
        if reading.metric.instrument not in (Instrument.COUNTER, Instrument.UPDOWNCOUNTER):
            yield reading
            continue
        key = (reading.metric.name, attributes(reading.attributes))
        if (before := totals.get(key)) is not None:
            assert isinstance(before.value, int | float)
            assert isinstance(reading.value, int | float)
            totals[key] = reading._replace(value=before.value + reading.value)
        else:
            totals[key] = reading
    yield from totals.values()


class Measurement(Frozen):
    """One observation on its way through the pipeline.

    For counters, updowncounters and histograms `value` is what was added since the last one;
    for gauges it is the value now. None says that nothing is known any more: the series is not exported until it is
    measured again, and goes on from where it stood then.
    """

    resource: Resource
    metric: MetricSpec
    attributes: Attributes
    value: Value | None


class Series:
    """One exported series: cumulative since `start_ns` (Unix time), a gauge's last value else."""

    __slots__ = ("attributes", "metric", "start_ns", "value")

    def __init__(self, metric: MetricSpec, attributes: Attributes, start_ns: int, value: Value) -> None:
        self.metric = metric
        self.attributes = attributes
        self.start_ns = start_ns
        self.value = value


class ResourceSeries(Record):
    """Every series of one resource, by metric name and attributes."""

    resource: Resource
    series: dict[tuple[str, Attributes], Series] = msgspec.field(default_factory=dict)
    silent: dict[tuple[str, Attributes], Series] = msgspec.field(default_factory=dict)
    """Those of which nothing is known now: not exported, and where they stood."""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """How many there are of each metric, silent ones too."""
    overflowed: int = 0
    """Measurements that had no series of their own."""
    overflowed_before: int = 0
    """The same when it was last asked for."""
    ended: bool = False
    """True once the resource is gone: exported one last time, then dropped."""


class Limits(Protocol):
    """Says who may have how many series."""

    def allow(self, owner: ResourceSeries, metric: str, size: int) -> bool:
        """Say whether a resource may have one more series of a metric, in a store of so many series."""


OVERFLOW: Attributes = (("otel.metric.overflow", True),)
"""Marks the series of what has none of its own, as OpenTelemetry's SDKs do."""


class SeriesStore:
    """Folds measurements into series. Owned by one thread.

    With `limits`, counters and histograms beyond them are added up in one series for each metric, so that totals stay
    exact, and gauges are left out.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        self._size = 0
        self._resources: dict[Resource, ResourceSeries] = {}
        self._exemplified: list[Buckets] = []
        """Those that have exemplars until the next export."""

    def __iter__(self) -> Iterator[ResourceSeries]:
        return iter(self._resources.values())

    def __len__(self) -> int:
        return self._size

    def fold(self, measurements: Iterable[Measurement], start_ns: int, *, limited: bool = True) -> None:
        """Add measurements to their series; a new series starts at `start_ns`."""
        limits = self._limits if limited else None
        for m in measurements:
            owner = self._resources.get(m.resource)
            key = (m.metric.name, m.attributes)
            value = m.value
            if value is None:
                if owner is not None and (series := owner.series.pop(key, None)) is not None:
                    owner.silent[key] = series
                continue
            if owner is None:
                owner = self._resources[m.resource] = ResourceSeries(m.resource)
            if owner.silent and (series := owner.silent.pop(key, None)) is not None:
                owner.series[key] = series
            series = owner.series.get(key)
            if series is None and limits is not None and not limits.allow(owner, m.metric.name, self._size):
                owner.overflowed += 1
                if m.metric.instrument is Instrument.GAUGE:
                    continue
                key = (m.metric.name, OVERFLOW)
                series = owner.series.get(key)
            if series is None:
                if isinstance(value, Buckets):
                    value = value.copy()
                owner.series[key] = Series(m.metric, key[1], start_ns, value)
                owner.counts[key[0]] = owner.counts.get(key[0], 0) + 1
                self._size += 1
                if isinstance(value, Buckets) and value.exemplars:
                    self._exemplified.append(value)
            elif isinstance(value, Buckets):
                assert isinstance(series.value, Buckets)
                series.value.add(value)
                if value.exemplars:
                    self._exemplified.append(series.value)
            elif m.metric.instrument is Instrument.GAUGE:
                series.value = value
            else:
                series.value += value  # type: ignore[operator]

    def take_overflowed(self) -> list[tuple[Resource, int, bool]]:
        """Return whose measurements had no series of their own since the last call, how many, and if for the first time."""
        found = []
        for owner in self._resources.values():
            if more := owner.overflowed - owner.overflowed_before:
                found.append((owner.resource, more, not owner.overflowed_before))
                owner.overflowed_before = owner.overflowed
        return found

    def restart(self, start_ns: int) -> None:
        """Let counters and histograms begin anew, from nothing; updowncounters and gauges keep their value.

        Series that begin anew are other objects, so that what exporters keep of them goes.
        """
        for owner in self._resources.values():
            for all_series in (owner.series, owner.silent):
                for key, series in all_series.items():
                    value = series.value
                    if series.metric.instrument is Instrument.GAUGE:
                        continue
                    if series.metric.instrument is not Instrument.UPDOWNCOUNTER:
                        value = type(value)()
                    all_series[key] = Series(series.metric, series.attributes, start_ns, value)

    def end(self, resource: Resource) -> None:
        """Mark a resource as gone; `sweep` drops it after one more export, by which it holds nothing."""
        if (owner := self._resources.get(resource)) is not None:
            owner.ended = True
            for series in owner.series.values():
                if series.metric.instrument is Instrument.UPDOWNCOUNTER:
                    series.value = 0

    def sweep(self) -> None:
        """Drop the resources that have ended, and the exemplars, which are those of one export."""
        for histogram in self._exemplified:
            histogram.exemplars = NO_EXEMPLARS
        self._exemplified.clear()
        for resource in [r for r, owner in self._resources.items() if owner.ended]:
            owner = self._resources.pop(resource)
            self._size -= len(owner.series) + len(owner.silent)


class Point(Frozen):
    """One series as it stands, for programs that use the library."""

    resource: Resource
    name: str
    unit: str
    attributes: Attributes
    value: Value
    """Since `start_ns` of counters and histograms, the value now of all others; in the unit."""
    instrument: Instrument = Instrument.GAUGE
    start_ns: int = 0
    """Unix time."""


def points(store: SeriesStore) -> Iterator[Point]:
    """Yield every series of a store as it stands."""
    for owner in store:
        for series in owner.series.values():
            value = series.value.copy() if isinstance(series.value, Buckets) else series.value
            metric = series.metric
            yield Point(
                owner.resource, metric.name, metric.unit, series.attributes, value, metric.instrument, series.start_ns
            )
