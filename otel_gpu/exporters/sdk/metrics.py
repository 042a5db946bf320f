"""How do metrics reach an OpenTelemetry SDK exporter that another package installed? As the SDK's own data.

Sums and histograms have the temporality that the exporter prefers, as the SDK's own reader would give them. The price is the SDK's: every export builds its objects anew, for 10,000 series some 60 ms and what the
exporter itself takes. Where the destination speaks OTLP, `otlp` is the cheaper way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from opentelemetry.sdk import metrics as sdk_instruments
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ...signals import Signal
from ...signals.metrics import Buckets, Instrument
from ...signals.structs import Frozen
from ...version import __version__
from ..delivery.payload import Payload
from ..delivery.sender import Accepted, Refused
from ..queued import QueuedExporter
from ..wire.identity import SCHEMA_URL, SCOPE_NAME
from .installed import installed
from .settings import SdkSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...signals.exemplars import Exemplar
    from ...signals.metrics import Attributes, MetricSpec, Resource, ResourceSeries, Series, SeriesStore, Value

_POINT_BYTES = 1_000
"""Roughly what a point with its attributes takes in memory while it waits."""
_CUMULATIVE, _DELTA = sdk.AggregationTemporality.CUMULATIVE, sdk.AggregationTemporality.DELTA
_OF_SDK: dict[type, Instrument] = {
    sdk_instruments.Counter: Instrument.COUNTER,
    sdk_instruments.UpDownCounter: Instrument.UPDOWNCOUNTER,
    sdk_instruments.Histogram: Instrument.HISTOGRAM,
}
"""Our instruments by those for which an SDK exporter says which temporality it prefers."""


class SdkExporter(QueuedExporter[sdk.MetricsData]):
    """Hands metrics to an SDK exporter, from a thread of its own."""

    takes = frozenset[Signal]({"metrics"})

    def __init__(
        self,
        exporter: sdk.MetricExporter,
        name: str = "sdk",
        *,
        timeout_s: float = 10.0,
        queue_size: int = 10,
        is_ours: bool = True,
    ) -> None:
        """`is_ours` says that it is shut down at the end; else it is flushed, and ended by whoever made it."""
        self._sent_as_deltas = _preferred_as_deltas(exporter)
        self._deltas: WeakKeyDictionary[SeriesStore, Deltas] = WeakKeyDictionary()
        """By pipeline."""
        super().__init__(
            name,
            _SdkTransport(exporter, is_ours),
            timeout_s=timeout_s,
            queue_size=queue_size,
            shown=f"metrics to the SDK exporter {name}",
        )

    @classmethod
    def installed(cls, settings: SdkSettings, name: str) -> SdkExporter:
        """Find and make an exporter, which takes its settings from its environment; raises ConfigError."""
        where = f"exporters.{name}.exporter"
        exporter = installed(settings.exporter, "metrics", sdk.MetricExporter, where)  # type: ignore[type-abstract]
        return cls(exporter, name, timeout_s=settings.timeout_s, queue_size=settings.queue_size)

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Copy the state of every series and queue it."""
        if points := len(store):
            deltas = self._deltas.get(store)
            if deltas is None:
                deltas = self._deltas[store] = Deltas(self._sent_as_deltas)
            # In the queue, so that it is delivered or counted as lost: the next delta begins where this one ends.
            self._sender.submit(Payload(metrics_data(store, now_ns, deltas), points, points * _POINT_BYTES))


class _SdkTransport:
    def __init__(self, exporter: sdk.MetricExporter, is_ours: bool) -> None:
        self._exporter = exporter
        self._is_ours = is_ours

    def send(self, body: sdk.MetricsData, timeout_s: float) -> Accepted | Refused:
        if self._exporter.export(body, timeout_millis=timeout_s * 1e3) is sdk.MetricExportResult.SUCCESS:
            return Accepted()
        return Refused("the SDK exporter reports failure; its own log says more", retryable=False)

    def close(self) -> None:
        if self._is_ours:
            self._exporter.shutdown(timeout_millis=0)
        else:
            self._exporter.force_flush(timeout_millis=0)


def _preferred_as_deltas(exporter: sdk.MetricExporter) -> frozenset[Instrument]:
    """Return the instruments of which an exporter prefers deltas; what it says nothing of is cumulative."""
    # The SDK's own reader takes it from there.
    preferred = getattr(exporter, "_preferred_temporality", None) or {}
    return frozenset(
        _OF_SDK[kind] for kind, temporality in preferred.items() if kind in _OF_SDK and temporality is _DELTA
    )


class _Exported(Frozen):
    """A series as it was at one export."""

    series: Series
    value: Value
    time_ns: int


class Deltas:
    """What was added to the series of a store from one export to the next, for the instruments given; of others, all.

    Owned by one thread.
    """

    def __init__(self, instruments: frozenset[Instrument] = frozenset()) -> None:
        self.instruments = instruments
        self._exported: dict[Resource, dict[tuple[str, Attributes], _Exported]] = {}

    def take(self, owner: ResourceSeries, now_ns: int) -> dict[Series, tuple[int, Value]]:
        """Return since when and how much was added to each series of a resource that is exported as deltas."""
        if not self.instruments:
            return {}
        before, now = self._exported.get(owner.resource, {}), {}
        added = {}
        for key, series in owner.series.items():
            if series.metric.instrument in self.instruments:
                value = series.value.copy() if isinstance(series.value, Buckets) else series.value
                now[key] = _Exported(series, value, now_ns)
                added[series] = _added(before.get(key), series)
        self._exported[owner.resource] = now
        return added

    def keep(self, store: SeriesStore) -> None:
        """Forget the resources that a store has no more."""
        if self._exported:
            there = {owner.resource for owner in store}
            self._exported = {resource: of for resource, of in self._exported.items() if resource in there}


def _added(before: _Exported | None, series: Series) -> tuple[int, Value]:
    value = series.value
    if before is None:
        return series.start_ns, value
    since_ns = before.time_ns
    if before.series is not series:  # it began anew, from nothing, but for what rises and falls
        since_ns = series.start_ns
        if series.metric.instrument is not Instrument.UPDOWNCOUNTER:
            return since_ns, value
    if isinstance(value, Buckets):
        return since_ns, value.since(before.value if isinstance(before.value, Buckets) else None)
    return since_ns, value if isinstance(before.value, Buckets) else value - before.value


def metrics_data(store: SeriesStore, now_ns: int, deltas: Deltas | None = None) -> sdk.MetricsData:
    """Copy a store into the SDK's data model: all that was counted, or what was added since `deltas` was last given."""
    deltas = deltas or Deltas()
    scope = InstrumentationScope(SCOPE_NAME, __version__, SCHEMA_URL)
    of_resources = []
    for owner in store:
        by_metric: dict[MetricSpec, list[_Point]] = {}
        added = deltas.take(owner, now_ns)
        for series in owner.series.values():
            since_ns, value = added.get(series) or (series.start_ns, series.value)
            by_metric.setdefault(series.metric, []).append(_Point(series.attributes, since_ns, now_ns, value))
        if by_metric:
            metrics = [
                _metric(spec, points, _DELTA if spec.instrument in deltas.instruments else _CUMULATIVE)
                for spec, points in by_metric.items()
            ]
            of_resources.append(
                sdk.ResourceMetrics(
                    _resource(owner.resource), [sdk.ScopeMetrics(scope, metrics, SCHEMA_URL)], SCHEMA_URL
                )
            )
    deltas.keep(store)
    return sdk.MetricsData(of_resources)


class _Point(Frozen):
    attributes: Attributes
    start_ns: int
    time_ns: int
    value: Value


def _resource(resource: Resource) -> SdkResource:
    return SdkResource(dict(resource.attributes), SCHEMA_URL)


def _metric(spec: MetricSpec, points: Sequence[_Point], temporality: sdk.AggregationTemporality) -> sdk.Metric:
    data: sdk.ExponentialHistogram | sdk.Gauge | sdk.Sum
    if spec.instrument is Instrument.HISTOGRAM:
        data = sdk.ExponentialHistogram([_histogram_point(p) for p in points], temporality)
    else:
        numbers = [
            sdk.NumberDataPoint(dict(p.attributes), p.start_ns, p.time_ns, p.value)
            for p in points
            if not isinstance(p.value, Buckets)
        ]
        if spec.instrument is Instrument.GAUGE:
            data = sdk.Gauge(numbers)
        else:
            data = sdk.Sum(numbers, temporality, is_monotonic=spec.instrument is Instrument.COUNTER)
    return sdk.Metric(spec.name, spec.description, spec.unit, data)


def _histogram_point(point: _Point) -> sdk.ExponentialHistogramDataPoint:
    value = point.value
    assert isinstance(value, Buckets)
    first = min(value.counts, default=0)
    counts = [value.counts.get(i, 0) for i in range(first, max(value.counts, default=first - 1) + 1)]
    return sdk.ExponentialHistogramDataPoint(
        attributes=dict(point.attributes),
        start_time_unix_nano=point.start_ns,
        time_unix_nano=point.time_ns,
        count=value.count,
        sum=value.sum,
        scale=0,
        zero_count=value.zero_count,
        positive=sdk.Buckets(first, counts),
        negative=sdk.Buckets(0, []),
        flags=0,
        exemplars=[_exemplar(exemplar) for exemplar in value.exemplars.values()],
        # Not known; encoders leave out what is None, though the SDK's type does not say so.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )


def _exemplar(exemplar: Exemplar) -> sdk_instruments.Exemplar:
    return sdk_instruments.Exemplar(
        filtered_attributes={},
        value=exemplar.value,
        time_unix_nano=exemplar.time_ns,
        span_id=int.from_bytes(exemplar.span_id, "big"),
        trace_id=int.from_bytes(exemplar.trace_id, "big"),
    )
