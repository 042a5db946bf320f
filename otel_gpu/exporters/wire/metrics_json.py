"""How do series become lines of OTLP/JSON, cheaply? The text of each is kept, and only values are put in.

Field names, integers as strings and enums as numbers are the OTLP specification's JSON encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...signals.exemplars import Exemplar
from ...signals.metrics import (
    Attributes,
    Buckets,
    Instrument,
    MetricSpec,
    Resource,
    ResourceSeries,
    Series,
    Value,
)
from ...version import __version__
from ..delivery.payload import Payload
from ..settings import Histograms, Temporality
from .explicit_bounds import ExplicitBounds, explicit_bounds
from .identity import SCHEMA_URL, SCOPE_NAME
from .json_values import attribute, double, json_text
from .series_requests import NO_RECORDED_VALUE, Baseline, Baselines, SeriesRequests
from .utf8 import INT64, utf8

_MAX_LINE_BYTES = 1_000_000
"""The Collector's file receivers cut lines at 1 MiB unless told otherwise (`max_log_size`)."""
_HEAD, _TAIL = b'{"resourceMetrics":[', b"]}\n"
_CUMULATIVE, _DELTA = 2, 1
_DATA = {Instrument.GAUGE: "gauge", Instrument.HISTOGRAM: "exponentialHistogram"}


class JsonMetricsEncoder:
    """Encodes a series store into lines, one export request each; `commit` is as in `MetricsEncoder`."""

    def __init__(
        self,
        temporality: Temporality = "cumulative",
        max_bytes: int = _MAX_LINE_BYTES,
        histograms: Histograms = "exponential",
        *,
        marks_ended: bool = False,
    ) -> None:
        def new_shard(resource: Resource, baselines: Baselines) -> _ResourceText:
            return _ResourceText(resource, baselines, explicit=histograms == "explicit")

        self._requests = SeriesRequests(temporality, max_bytes, new_shard, marks_ended=marks_ended)

    def encode(self, store: Iterable[ResourceSeries], now_ns: int) -> list[Payload[bytes]]:
        """Return lines, each with its newline, that together hold every series once."""
        payloads = []
        for parts, points in self._requests.encode(store, now_ns):
            line = _HEAD + b",".join(parts) + _TAIL
            payloads.append(Payload(line, points, len(line)))
        return payloads

    def commit(self) -> None:
        """Let the next delta start where the last `encode` ended; without effect when cumulative."""
        self._requests.commit()


class _ResourceText:
    """A ResourceMetrics object: some of a resource's series, by metric."""

    def __init__(self, resource: Resource, baselines: Baselines, *, explicit: bool) -> None:
        self._explicit = explicit
        self.series: list[Series] = []
        self._baselines = baselines
        scope = {"name": SCOPE_NAME, "version": __version__}
        self._head = (
            f'{{"resource":{{{_attributes(resource.attributes)}}},"schemaUrl":"{SCHEMA_URL}",'
            f'"scopeMetrics":[{{"scope":{json_text(scope)},"schemaUrl":"{SCHEMA_URL}","metrics":['
        )
        self._metrics: dict[MetricSpec, _MetricText] = {}

    def add(self, series: Series) -> None:
        metric = self._metrics.get(series.metric)
        baseline = self._baselines.get(series)
        if metric is None:
            metric = self._metrics[series.metric] = _MetricText(
                series.metric, delta=baseline is not None, explicit=self._explicit
            )
        metric.add(series, baseline)
        self.series.append(series)

    def encode(self, now_ns: int) -> bytes:
        """Return the object with the values of now."""
        return self._whole(metric.encode(now_ns) for metric in self._metrics.values())

    def encode_ended(self, at_ns: int) -> bytes:
        return self._whole(metric.encode_ended(at_ns) for metric in self._metrics.values())

    def _whole(self, metrics: Iterable[str]) -> bytes:
        return f"{self._head}{','.join(metrics)}]}}]}}".encode()


class _MetricText:
    """A Metric object and the beginnings of its points."""

    def __init__(self, spec: MetricSpec, *, delta: bool, explicit: bool) -> None:
        self._bounds = explicit_bounds(spec) if explicit and spec.instrument is Instrument.HISTOGRAM else None
        declared = {"name": utf8(spec.name), "description": spec.description, "unit": spec.unit}
        about = json_text({key: text for key, text in declared.items() if text})
        qualities: dict[str, Any] = {}
        if spec.instrument is not Instrument.GAUGE:
            qualities["aggregationTemporality"] = _DELTA if delta else _CUMULATIVE
        if spec.instrument is Instrument.COUNTER:
            qualities["isMonotonic"] = True
        kept = json_text(qualities)[1:-1]
        data = "histogram" if self._bounds is not None else _DATA.get(spec.instrument, "sum")
        self._head = f'{about[:-1]},"{data}":{{{kept}{"," if kept else ""}"dataPoints":['
        self._gauge = spec.instrument is Instrument.GAUGE
        self._integers = not spec.floating
        self._points: list[tuple[Series, str]] = []
        self._deltas: list[tuple[Series, str, Baseline]] = []

    def add(self, series: Series, baseline: Baseline | None) -> None:
        begin = _attributes(series.attributes)
        begin = "{" + begin + ("," if begin else "")
        if baseline is not None:
            self._deltas.append((series, begin, baseline))
        elif self._gauge:
            self._points.append((series, begin))
        else:
            self._points.append((series, f'{begin}"startTimeUnixNano":"{series.start_ns}",'))

    def encode(self, now_ns: int) -> str:
        time, number = f'"timeUnixNano":"{now_ns}",', self._number
        points = [f"{begin}{time}{number(series.value)}}}" for series, begin in self._points]
        for series, begin, baseline in self._deltas:
            since = f'"startTimeUnixNano":"{baseline.since_ns}",'
            points.append(f"{begin}{since}{time}{number(baseline.delta(series.value))}}}")
        return f"{self._head}{','.join(points)}]}}}}"

    def encode_ended(self, at_ns: int) -> str:
        points = [f'{begin}"timeUnixNano":"{at_ns}","flags":{NO_RECORDED_VALUE}}}' for _, begin in self._points]
        return f"{self._head}{','.join(points)}]}}}}"

    def _number(self, value: Value) -> str:
        if isinstance(value, Buckets):
            if self._bounds is not None:
                return _explicit(value, self._bounds, integers=self._integers)
            return _histogram(value, integers=self._integers)
        return _number(value, integers=self._integers)


def _histogram(value: Buckets, *, integers: bool) -> str:
    counts = value.counts
    text = f'"count":"{value.count}","sum":{double(value.sum)}'
    if value.zero_count:
        text += f',"zeroCount":"{value.zero_count}"'
    if counts:
        first = min(counts)
        dense = '","'.join([str(counts.get(i, 0)) for i in range(first, max(counts) + 1)])
        text += f',"positive":{{"offset":{first},"bucketCounts":["{dense}"]}}'
    return text + _exemplars(value, integers=integers)


def _exemplars(value: Buckets, *, integers: bool) -> str:
    """Return a member with what comes before it, or nothing when there are none."""
    shown = [_exemplar(exemplar, _number(exemplar.value, integers=integers)) for exemplar in value.exemplars.values()]
    return f',"exemplars":[{",".join(shown)}]' if shown else ""


def _exemplar(exemplar: Exemplar, number: str) -> str:
    return (
        f'{{"timeUnixNano":"{exemplar.time_ns}",{number},'
        f'"spanId":"{exemplar.span_id.hex()}","traceId":"{exemplar.trace_id.hex()}"}}'
    )


def _number(value: float, *, integers: bool) -> str:
    if integers and type(value) is int and value in INT64:
        return f'"asInt":"{value}"'
    return f'"asDouble":{double(value)}'  # a fraction, or beyond 64 bits: a rounded number rather than none


def _explicit(value: Buckets, bounds: ExplicitBounds, *, integers: bool) -> str:
    counts = '","'.join(map(str, bounds.counts(value)))
    edges = ",".join(map(repr, bounds.values))
    text = f'"count":"{value.count}","sum":{double(value.sum)},"bucketCounts":["{counts}"],"explicitBounds":[{edges}]'
    return text + _exemplars(value, integers=integers)


def _attributes(attributes: Attributes) -> str:
    """Return the `attributes` member of an object, or nothing when there are none."""
    return f'"attributes":[{",".join([attribute(k, v) for k, v in attributes])}]' if attributes else ""
