"""How do metrics reach an OpenTelemetry SDK exporter that another package installed? As the SDK's own data.

The price is the SDK's: every export builds its objects anew, for 10,000 series some 60 ms and what the
exporter itself takes. Where the destination speaks OTLP, `otlp` is the cheaper way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .. import __version__
from ..signals.metrics import Buckets, Instrument
from ..supervision import Worker
from . import ExporterStats, Payload
from .identity import SCHEMA_URL, SCOPE_NAME
from .sdk_installed import installed
from .sender import Accepted, Refused, Sender
from .settings import RetrySettings, SdkSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..signals.metrics import MetricSpec, Resource, Series, SeriesStore

_POINT_BYTES = 1_000
"""Roughly what a point with its attributes takes in memory while it waits."""
_CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE


class SdkExporter:
    """Hands cumulative metrics to an SDK exporter, from a thread of its own."""

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
        self._name = name
        self._sender: Sender[sdk.MetricsData] = Sender(
            f"metrics to the SDK exporter {name}",
            _SdkTransport(exporter, is_ours),
            timeout_s=timeout_s,
            retry=RetrySettings(enabled=False),  # SDK exporters retry by themselves
            queue_size=queue_size,
        )

    @classmethod
    def installed(cls, settings: SdkSettings, name: str) -> SdkExporter:
        """Find and make an exporter, which takes its settings from its environment; raises ConfigError."""
        exporter = installed(settings.exporter, "metrics", sdk.MetricExporter)  # type: ignore[type-abstract]
        return cls(exporter, name, timeout_s=settings.timeout_s, queue_size=settings.queue_size)

    @property
    def name(self) -> str:
        return self._name

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Copy the state of every series and queue it."""
        if points := len(store):
            self._sender.submit(Payload(metrics_data(store, now_ns), points, points * _POINT_BYTES))

    def shutdown(self, timeout_s: float) -> None:
        """Deliver what is queued within the time given."""
        self._sender.shutdown(timeout_s)

    def stats(self) -> ExporterStats:
        return self._sender.stats()

    def workers(self) -> list[Worker]:
        return [self._sender.worker]


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


def metrics_data(store: SeriesStore, now_ns: int) -> sdk.MetricsData:
    """Copy a store into the SDK's data model."""
    scope = InstrumentationScope(SCOPE_NAME, __version__, SCHEMA_URL)
    of_resources = []
    for owner in store:
        by_metric: dict[MetricSpec, list[Series]] = {}
        for series in owner.series.values():
            by_metric.setdefault(series.metric, []).append(series)
        if by_metric:
            metrics = [_metric(spec, series, now_ns) for spec, series in by_metric.items()]
            of_resources.append(
                sdk.ResourceMetrics(
                    _resource(owner.resource), [sdk.ScopeMetrics(scope, metrics, SCHEMA_URL)], SCHEMA_URL
                )
            )
    return sdk.MetricsData(of_resources)


def _resource(resource: Resource) -> SdkResource:
    return SdkResource(dict(resource.attributes), SCHEMA_URL)


def _metric(spec: MetricSpec, series: Iterable[Series], now_ns: int) -> sdk.Metric:
    data: sdk.ExponentialHistogram | sdk.Gauge | sdk.Sum
    if spec.instrument is Instrument.HISTOGRAM:
        data = sdk.ExponentialHistogram([_histogram_point(s, now_ns) for s in series], _CUMULATIVE)
    else:
        points = [
            sdk.NumberDataPoint(dict(s.attributes), s.start_ns, now_ns, s.value)
            for s in series
            if not isinstance(s.value, Buckets)
        ]
        if spec.instrument is Instrument.GAUGE:
            data = sdk.Gauge(points)
        else:
            data = sdk.Sum(points, _CUMULATIVE, is_monotonic=spec.instrument is Instrument.COUNTER)
    return sdk.Metric(spec.name, spec.description, spec.unit, data)


def _histogram_point(series: Series, now_ns: int) -> sdk.ExponentialHistogramDataPoint:
    value = series.value
    assert isinstance(value, Buckets)
    first = min(value.counts, default=0)
    counts = [value.counts.get(i, 0) for i in range(first, max(value.counts, default=first - 1) + 1)]
    return sdk.ExponentialHistogramDataPoint(
        attributes=dict(series.attributes),
        start_time_unix_nano=series.start_ns,
        time_unix_nano=now_ns,
        count=value.count,
        sum=value.sum,
        scale=0,
        zero_count=value.zero_count,
        positive=sdk.Buckets(first, counts),
        negative=sdk.Buckets(0, []),
        flags=0,
        # Not known; encoders leave out what is None, though the SDK's type does not say so.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )
