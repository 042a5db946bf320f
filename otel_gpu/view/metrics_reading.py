"""What does an export request of metrics say? Points, read from protobuf, for the store of series."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .attributes import AttributeReader
from .histograms import explicit, exponential
from .losses import Losses, Reason
from .resources import Resources
from .series import Exemplar, Kind, Metric, Number, Point, SeriesStore, Times

_DELTA = 1
"""AggregationTemporality"""
_NO_VALUE = 1
"""DataPointFlags"""
_MAX_VALUE = 1e300


def take_metrics(
    request: Any, store: SeriesStore, resources: Resources, reader: AttributeReader, losses: Losses, now_ns: int
) -> Iterator[int]:
    """Put a request's points into the store; yields, after each metric, how many were not kept."""
    for of_resource in request.resource_metrics:
        entry = None
        for scope in of_resource.scope_metrics:
            for message in scope.metrics:
                metric, points, read = _of_metric(message, reader)
                if metric is None:
                    losses.add(Reason.POINT_KIND, len(points))
                    yield len(points)
                    continue
                entry = entry or resources.entry(reader.read(of_resource.resource.attributes), now_ns, len(points))
                if entry is None:
                    yield len(points)
                    continue
                rejected = 0
                for one in points:
                    try:
                        point = read(one)
                    except ValueError:
                        point = None
                    if point is None:
                        losses.add(Reason.POINT_KIND)
                        rejected += 1
                    else:
                        rejected += not store.add(entry, metric, reader.read(one.attributes), point, now_ns)
                if message.description and metric.name not in store.descriptions and any(store.of(metric.name)):
                    store.descriptions[metric.name] = reader.text(message.description)
                yield rejected


_Read = Callable[[Any], Point | None]


def _of_metric(message: Any, reader: AttributeReader) -> tuple[Metric | None, Any, _Read]:
    """Return what a metric measures, None where nothing here draws it, its points, and how one is read."""
    which = message.WhichOneof("data")
    data = getattr(message, which) if which else None
    points = data.data_points if data is not None else ()
    name, unit = reader.text(message.name), reader.text(message.unit)
    if which == "gauge":
        return Metric(name, unit, Kind.LEVEL), points, lambda p: _number(p, is_delta=False)
    if data is None:
        return None, points, lambda _: None
    is_delta = getattr(data, "aggregation_temporality", 0) == _DELTA
    if which == "sum":
        kind = Kind.COUNTER if data.is_monotonic else Kind.LEVEL
        return Metric(name, unit, kind), points, lambda p: _number(p, is_delta=is_delta)
    if which == "exponential_histogram":
        return Metric(name, unit, Kind.HISTOGRAM), points, lambda p: _exponential(p, is_delta=is_delta)
    if which == "histogram":
        return Metric(name, unit, Kind.HISTOGRAM), points, lambda p: _explicit(p, is_delta=is_delta)
    return None, points, lambda _: None


def _times(point: Any, *, is_delta: bool) -> Times:
    return Times(point.start_time_unix_nano, point.time_unix_nano, is_delta)


def _number(point: Any, *, is_delta: bool) -> Point | None:
    if point.flags & _NO_VALUE:
        return Point(_times(point, is_delta=is_delta), 0, ended=True)
    which = point.WhichOneof("value")
    if which is None:
        return None
    value: Number = point.as_int if which == "as_int" else point.as_double
    if not _is_sound(value):
        return None
    return Point(_times(point, is_delta=is_delta), value, exemplar=_exemplar(point.exemplars))


def _exponential(point: Any, *, is_delta: bool) -> Point | None:
    if point.flags & _NO_VALUE:
        return Point(_times(point, is_delta=is_delta), 0, ended=True)
    zero = point.zero_count + sum(point.negative.bucket_counts)
    spread = exponential(point.scale, zero, point.positive.offset, list(point.positive.bucket_counts))
    return _histogram(point, spread, is_delta=is_delta)


def _explicit(point: Any, *, is_delta: bool) -> Point | None:
    if point.flags & _NO_VALUE:
        return Point(_times(point, is_delta=is_delta), 0, ended=True)
    return _histogram(point, explicit(list(point.explicit_bounds), list(point.bucket_counts)), is_delta=is_delta)


def _histogram(point: Any, spread: Any, *, is_delta: bool) -> Point | None:
    if not _is_sound(point.sum):
        return None
    # A sum of integers travels as a double; it is shown as what it is.
    total = int(point.sum) if point.sum == int(point.sum) else point.sum
    return Point(_times(point, is_delta=is_delta), point.count, total, spread, _exemplar(point.exemplars))


def _is_sound(value: Number) -> bool:
    return math.isfinite(value) and abs(value) < _MAX_VALUE


def _exemplar(exemplars: Iterable[Any]) -> Exemplar | None:
    latest = max((e for e in exemplars if len(e.trace_id) == 16), key=lambda e: e.time_unix_nano, default=None)
    if latest is None:
        return None
    which = latest.WhichOneof("value")
    value = 0 if which is None else getattr(latest, which)
    if not _is_sound(value):
        return None
    return Exemplar(value, latest.trace_id.hex(), latest.span_id.hex()[:16], latest.time_unix_nano)
