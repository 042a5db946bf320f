"""How do series become OTLP export requests, cheaply? Their messages are kept, and only values overwritten.

A serialized request with one resource, followed by another, is a serialized request with both: a repeated
field simply goes on. So requests of the size a receiver accepts are made by joining bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2

from ...signals.exemplars import Exemplars
from ...signals.metrics import Buckets, Instrument, MetricSpec, Resource, ResourceSeries, Series
from ...version import __version__
from ..delivery.payload import Payload
from ..settings import MAX_REQUEST_BYTES, Histograms, Temporality
from .attribute_values import add_attributes
from .explicit_bounds import explicit_bounds
from .identity import SCHEMA_URL, SCOPE_NAME
from .series_requests import NO_RECORDED_VALUE, Baseline, Baselines, SeriesRequests
from .utf8 import utf8

_CUMULATIVE = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
_DELTA = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA


class MetricsEncoder:
    """Encodes a series store again and again, for one destination.

    With delta temporality counters and histograms are sent as what was added since the last export that
    was committed: `encode` alone moves nothing, so that what could not be handed over comes with the
    next export. Call `commit` as soon as the requests are somebody else's to deliver or to count as lost.
    """

    def __init__(
        self,
        temporality: Temporality = "cumulative",
        scope_version: str = __version__,
        max_bytes: int = MAX_REQUEST_BYTES,
        histograms: Histograms = "exponential",
        *,
        marks_ended: bool = False,
    ) -> None:
        """With `marks_ended` the requests say too which series have ended since the last `encode`."""

        def new_shard(resource: Resource, baselines: Baselines) -> _Request:
            return _Request(resource, scope_version, baselines, explicit=histograms == "explicit")

        self._requests = SeriesRequests(temporality, max_bytes, new_shard, marks_ended=marks_ended)

    def encode(self, store: Iterable[ResourceSeries], now_ns: int) -> list[Payload[bytes]]:
        """Return requests that together hold every series once, none over the limit if its points allow.

        A single point larger than the limit makes a request of its own: the receiver decides.
        """
        payloads = []
        for parts, points in self._requests.encode(store, now_ns):
            body = b"".join(parts)
            payloads.append(Payload(body, points, len(body)))
        return payloads

    def commit(self) -> None:
        """Let the next delta start where the last `encode` ended; without effect when cumulative."""
        self._requests.commit()


class _Request:
    """One request: some of a resource's series and the messages that stand for them."""

    def __init__(self, resource: Resource, scope_version: str, baselines: Baselines, *, explicit: bool) -> None:
        self._explicit = explicit
        self.series: list[Series] = []
        self._baselines = baselines
        self._request = ExportMetricsServiceRequest()
        of_resource = self._request.resource_metrics.add(schema_url=SCHEMA_URL)
        add_attributes(of_resource.resource.attributes, resource.attributes)
        self._metrics = of_resource.scope_metrics.add(schema_url=SCHEMA_URL)
        self._metrics.scope.name = SCOPE_NAME
        self._metrics.scope.version = scope_version
        self._points: dict[MetricSpec, Any] = {}
        # Three lists instead of one with a test in the loop, which would cost as much as the assignment.
        self._integers: list[tuple[Series, metrics_pb2.NumberDataPoint]] = []
        self._floats: list[tuple[Series, metrics_pb2.NumberDataPoint]] = []
        self._deltas: list[tuple[Series, metrics_pb2.NumberDataPoint, Baseline]] = []
        self._histograms: list[_HistogramPoint] = []

    def add(self, series: Series) -> None:
        """Make the message of a series."""
        spec = series.metric
        points = self._points.get(spec)
        if points is None:
            points = self._points[spec] = _add_metric(self._metrics, spec, series in self._baselines, self._explicit)
        point = points.add(start_time_unix_nano=series.start_ns)
        if spec.instrument is Instrument.GAUGE:
            point.ClearField("start_time_unix_nano")
        add_attributes(point.attributes, series.attributes)
        self.series.append(series)
        baseline = self._baselines.get(series)
        if spec.instrument is Instrument.HISTOGRAM:
            kind = _ExplicitPoint if self._explicit else _ExponentialPoint
            self._histograms.append(kind(series, point, baseline))
        elif baseline is not None:
            self._deltas.append((series, point, baseline))
        elif spec.floating:
            self._floats.append((series, point))
        else:
            self._integers.append((series, point))

    def encode(self, now_ns: int) -> bytes:
        """Write the values of now into the messages and serialize them."""
        value: Any
        for series, point in self._integers:
            value = series.value
            try:
                point.as_int = value
            except (TypeError, ValueError):
                point.as_double = value  # a fraction, or beyond 64 bits: a rounded number rather than none
            point.time_unix_nano = now_ns
        for series, point in self._floats:
            value = series.value
            point.as_double = value
            point.time_unix_nano = now_ns
        for series, point, baseline in self._deltas:
            value = baseline.delta(series.value)
            try:
                if series.metric.floating:
                    point.as_double = value
                else:
                    point.as_int = value
            except (TypeError, ValueError):
                point.as_double = value
            point.start_time_unix_nano = baseline.since_ns
            point.time_unix_nano = now_ns
        for histogram in self._histograms:
            histogram.update(now_ns)
        return self._request.SerializeToString()

    def encode_ended(self, at_ns: int) -> bytes:
        for spec, points in self._points.items():
            for point in points:
                point.flags = NO_RECORDED_VALUE
                point.time_unix_nano = at_ns
                if spec.instrument is Instrument.HISTOGRAM and self._explicit:
                    del point.explicit_bounds[:]  # there are as many as counts, but for one
        return self._request.SerializeToString()


class _HistogramPoint:
    """The message of one histogram series."""

    __slots__ = ("_baseline", "_point", "_series")

    def __init__(self, series: Series, point: Any, baseline: Baseline | None) -> None:
        self._series = series
        self._point = point
        self._baseline = baseline

    def update(self, now_ns: int) -> None:
        """Write the value of now into the message."""
        value = self._series.value
        assert isinstance(value, Buckets)
        point = self._point
        point.time_unix_nano = now_ns
        if self._baseline is not None:
            point.start_time_unix_nano = self._baseline.since_ns
            value = self._baseline.delta(value)
            assert isinstance(value, Buckets)
        if value.exemplars or point.exemplars:
            _show(point, value.exemplars, self._series.metric)
        self._fill(value)

    def _fill(self, value: Buckets) -> None:
        raise NotImplementedError


class _ExponentialPoint(_HistogramPoint):
    """With exponential buckets, as they were counted."""

    __slots__ = ("_counts", "_indexes", "_shown")

    def __init__(
        self, series: Series, point: metrics_pb2.ExponentialHistogramDataPoint, baseline: Baseline | None
    ) -> None:
        super().__init__(series, point, baseline)
        self._counts = point.positive.bucket_counts
        self._indexes = range(0)
        self._shown: tuple[int, int] | None = None
        """The count and the number of buckets that the message shows, when what it shows only grows."""

    def _fill(self, value: Buckets) -> None:
        point = self._point
        counts = value.counts
        shown, self._shown = self._shown, (value.count, len(counts))
        if self._baseline is not None:
            shown = None
        if shown == self._shown:
            return
        if shown is None or shown[1] != len(counts):
            self._indexes = range(min(counts), max(counts) + 1) if counts else range(0)
            point.positive.offset = self._indexes.start
        point.count = value.count
        point.sum = value.sum
        point.zero_count = value.zero_count
        self._counts[:] = list(map(counts.get, self._indexes, repeat(0)))


class _ExplicitPoint(_HistogramPoint):
    """With explicit bounds."""

    __slots__ = ("_bounds", "_shown")

    def __init__(self, series: Series, point: metrics_pb2.HistogramDataPoint, baseline: Baseline | None) -> None:
        super().__init__(series, point, baseline)
        self._bounds = explicit_bounds(series.metric)
        self._shown: int | None = None
        """The count that the message shows, when what it shows only grows."""
        point.explicit_bounds[:] = self._bounds.values

    def _fill(self, value: Buckets) -> None:
        if self._baseline is None and value.count == self._shown:
            return
        self._shown = self._point.count = value.count
        self._point.sum = value.sum
        self._point.bucket_counts[:] = self._bounds.counts(value)


def _show(
    point: metrics_pb2.ExponentialHistogramDataPoint | metrics_pb2.HistogramDataPoint,
    exemplars: Exemplars,
    spec: MetricSpec,
) -> None:
    del point.exemplars[:]
    for exemplar in exemplars.values():
        shown = point.exemplars.add(
            time_unix_nano=exemplar.time_ns, trace_id=exemplar.trace_id, span_id=exemplar.span_id
        )
        if spec.floating:
            shown.as_double = exemplar.value
            continue
        try:
            shown.as_int = exemplar.value  # type: ignore[assignment]
        except (TypeError, ValueError):
            shown.as_double = exemplar.value


def _add_metric(scope: metrics_pb2.ScopeMetrics, spec: MetricSpec, delta: bool, explicit: bool) -> Any:
    """Append a metric without points and return its field of points."""
    metric = scope.metrics.add(name=utf8(spec.name), unit=spec.unit, description=spec.description)
    temporality = _DELTA if delta else _CUMULATIVE
    match spec.instrument:
        case Instrument.GAUGE:
            metric.gauge.SetInParent()
            return metric.gauge.data_points
        case Instrument.HISTOGRAM if explicit:
            metric.histogram.aggregation_temporality = temporality
            return metric.histogram.data_points
        case Instrument.HISTOGRAM:
            metric.exponential_histogram.aggregation_temporality = temporality
            return metric.exponential_histogram.data_points
        case _:
            metric.sum.aggregation_temporality = temporality
            metric.sum.is_monotonic = spec.instrument is Instrument.COUNTER
            return metric.sum.data_points
