"""Which series travel in which request, and what of them is new? The same for every encoding.

What a series looks like when encoded is kept from one export to the next; only values are written anew.
Each resource has requests of its own (shards), so that a change in one touches no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ...signals.metrics import Attributes, Buckets, Instrument, Resource, ResourceSeries, Series, Value
from ..settings import Temporality


class Baseline:
    """What of one series was already sent, for delta temporality."""

    __slots__ = ("_encoded", "_sent", "since_ns")

    def __init__(self, series: Series) -> None:
        self._sent: Value | None = None
        self._encoded: Value | None = None
        self.since_ns = series.start_ns

    def delta(self, value: Value) -> Value:
        """Return what was added since the last commit."""
        if isinstance(value, Buckets):
            self._encoded = value.copy()
            return value.since(self._sent if isinstance(self._sent, Buckets) else None)
        self._encoded = value
        return value if self._sent is None else value - self._sent  # type: ignore[operator]

    def commit(self, now_ns: int) -> None:
        """Take what `delta` last returned as sent."""
        self._sent = self._encoded
        self.since_ns = now_ns


Baselines = dict[Series, Baseline]
"""Of the series that are sent as deltas, and of no others."""


class Shard(Protocol):
    """Some of a resource's series and whatever stands for them in an encoding."""

    series: list[Series]

    def add(self, series: Series) -> None: ...

    def encode(self, now_ns: int) -> bytes:
        """Return the shard with the values of now."""

    def encode_ended(self, at_ns: int) -> bytes:
        """Return the shard with points that report no value any more (`NO_RECORDED_VALUE`)."""


NewShard = Callable[[Resource, Baselines], Shard]
_RISING = (Instrument.COUNTER, Instrument.HISTOGRAM)
NO_RECORDED_VALUE = 1
"""OTLP's `DataPointFlags`."""
_SCRAPED_NS = 90_000_000_000
"""How long what only rises stays after its end: a Collector drops a series when it is marked, and Prometheus asks that Collector
once a minute, unless it is told otherwise. A level ends at once, and has been 0 before."""
_MAX_WAITING = 20_000
"""Series whose end waits for that; beyond, the oldest end at once."""
_AFTER_NS = 1_000_000
"""A millisecond, the unit of Prometheus's time: the end of a series has a time of its own, behind its last value."""


class SeriesRequests:
    """Follows a series store and encodes it in groups of shards that fit into one request.

    With `marks_ended` a series that is there no longer comes once more, without a value and before all others: its place may be
    another's by now. Levels do so at once, what only rises after 90 seconds, and deltas need no end.
    """

    def __init__(
        self, temporality: Temporality, max_bytes: int, new_shard: NewShard, *, marks_ended: bool = False
    ) -> None:
        self._marks_ended = marks_ended
        self._delta = temporality == "delta"
        self._max_bytes = max_bytes
        self._new_shard = new_shard
        self._resources: dict[Resource, _OneResource] = {}
        self._waiting: deque[tuple[int, Resource, list[Series]]] = deque()
        """Ends that are still to be marked, and when: soonest first."""
        self._encoded_ns = 0

    def encode(self, store: Iterable[ResourceSeries], now_ns: int) -> Iterator[tuple[list[bytes], int]]:
        """Yield the encoded shards of each request, and its number of points; every series is in one of them."""
        before_ns, self._encoded_ns = self._encoded_ns, now_ns
        parts: list[bytes] = []
        size = points = 0
        for body, count in self._bodies(store, now_ns, min(before_ns + _AFTER_NS, now_ns)):
            if parts and size + len(body) > self._max_bytes:
                yield parts, points
                parts, size, points = [], 0, 0
            parts.append(body)
            size += len(body)
            points += count
        if parts:
            yield parts, points

    def commit(self) -> None:
        """Let the next delta start where the last `encode` ended; without effect when cumulative."""
        for resource in self._resources.values():
            resource.commit(self._encoded_ns)

    def _bodies(self, store: Iterable[ResourceSeries], now_ns: int, ended_ns: int) -> Iterator[tuple[bytes, int]]:
        owners = {owner.resource: owner for owner in store}
        if self._marks_ended:
            yield from self._ended(owners, now_ns, ended_ns)
        seen: dict[Resource, _OneResource] = {}
        for owner in owners.values():
            resource = self._resources.get(owner.resource) or _OneResource(owner.resource, self._delta, self._new_shard)
            seen[owner.resource] = resource
            resource.follow(list(owner.series.values()))
            yield from resource.encode(now_ns, self._max_bytes)
        self._resources = seen

    def _ended(
        self, owners: Mapping[Resource, ResourceSeries], now_ns: int, ended_ns: int
    ) -> Iterator[tuple[bytes, int]]:
        """Yield the ends of levels that are there no longer, and of what rose until a while ago."""
        for known in self._resources.values():
            ended = known.ended(_series_of(owners.get(known.resource)))
            rising = [one for one in ended if one.metric.instrument in _RISING]
            if rising:
                self._waiting.append((now_ns + _SCRAPED_NS, known.resource, rising))
            levels = [one for one in ended if one.metric.instrument not in _RISING]
            yield from known.encode_ended(levels, ended_ns, self._max_bytes)
        count = sum(len(series) for *_, series in self._waiting)
        while self._waiting and (self._waiting[0][0] <= now_ns or count > _MAX_WAITING):
            _, resource, series = self._waiting.popleft()
            count -= len(series)
            back = _series_of(owners.get(resource))
            gone = [one for one in series if (one.metric.name, one.attributes) not in back]
            yield from _OneResource(resource, self._delta, self._new_shard).encode_ended(
                gone, ended_ns, self._max_bytes
            )


def _series_of(owner: ResourceSeries | None) -> Mapping[tuple[str, Attributes], Series]:
    return {} if owner is None else owner.series


class _OneResource:
    """The shards of one resource, following its series as they come and go."""

    def __init__(self, resource: Resource, delta: bool, new_shard: NewShard) -> None:
        self.resource = resource
        self._delta = delta
        self._new_shard = new_shard
        self._series: list[Series] = []
        self._shards: list[Shard] = []
        self._baselines: Baselines = {}

    def follow(self, series: list[Series]) -> None:
        """Take in what the resource's series are now."""
        # Comparing lists of identical objects is one C loop over pointers: 10,000 series take 0.05 ms.
        if series == self._series:
            return
        known = len(self._series)
        if self._shards and series[:known] == self._series:
            new = series[known:]
            self._track(new)
            for one in new:
                self._shards[-1].add(one)
        else:
            self._baselines = {s: b for s in series if (b := self._baselines.get(s)) is not None}
            self._track(series)
            self._shards = [self._shard(series)] if series else []
        self._series = series

    def encode(self, now_ns: int, max_bytes: int) -> Iterator[tuple[bytes, int]]:
        """Yield each shard and its number of points; one that has outgrown the limit is divided for good."""
        done: list[Shard] = []
        yield from self._encoded(self._shards, lambda shard: shard.encode(now_ns), max_bytes, done)
        self._shards = done

    def ended(self, series: Mapping[tuple[str, Attributes], Series]) -> list[Series]:
        """Return the series that were there and are none of these any more."""
        if list(series.values())[: len(self._series)] == self._series:
            return []
        return [
            one
            for one in self._series
            if (one.metric.name, one.attributes) not in series and one not in self._baselines
        ]

    def encode_ended(self, ended: Sequence[Series], at_ns: int, max_bytes: int) -> Iterator[tuple[bytes, int]]:
        """Yield shards that report the end of series."""
        if ended:
            yield from self._encoded([self._shard(ended)], lambda shard: shard.encode_ended(at_ns), max_bytes, [])

    def _encoded(
        self, shards: list[Shard], encode: Callable[[Shard], bytes], max_bytes: int, done: list[Shard]
    ) -> Iterator[tuple[bytes, int]]:
        waiting = shards[::-1]
        while waiting:
            shard = waiting.pop()
            body = encode(shard)
            points = len(shard.series)
            if len(body) > max_bytes and points > 1:
                step = max(1, points // (len(body) // max_bytes + 1))
                parts = [shard.series[i : i + step] for i in range(0, points, step)]
                waiting.extend(self._shard(part) for part in reversed(parts))
                continue
            done.append(shard)
            yield body, points

    def commit(self, now_ns: int) -> None:
        for baseline in self._baselines.values():
            baseline.commit(now_ns)

    def _track(self, series: Iterable[Series]) -> None:
        if self._delta:
            for one in series:
                # Only what only grows has deltas: the specification keeps updowncounters cumulative.
                if one.metric.instrument in _RISING:
                    self._baselines.setdefault(one, Baseline(one))

    def _shard(self, series: Iterable[Series]) -> Shard:
        shard = self._new_shard(self.resource, self._baselines)
        for one in series:
            shard.add(one)
        return shard
