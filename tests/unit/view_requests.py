"""Requests of OTLP, as agents send them, for tests of the view."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

NS = 1_000_000_000
CUMULATIVE, DELTA = 2, 1


def attributes(message: Any, said: dict[str, Any]) -> None:
    for key, value in said.items():
        kind = "bool_value" if isinstance(value, bool) else {int: "int_value", float: "double_value"}.get(type(value))
        setattr(message.attributes.add(key=key).value, kind or "string_value", value)


class Metrics:
    """One request of metrics, of one process."""

    def __init__(self, service: str = "server", pid: int = 7, **more: Any) -> None:
        self.request = ExportMetricsServiceRequest()
        of_resource = self.request.resource_metrics.add()
        attributes(of_resource.resource, {"service.name": service, "process.pid": pid, **more})
        self._metrics = of_resource.scope_metrics.add().metrics

    def counter(
        self, name: str, value: float, start: int, end: int, temporality: int = CUMULATIVE, **said: Any
    ) -> Metrics:
        metric = self._metrics.add(name=name, unit="1", description=f"What {name} says.")
        metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, temporality
        self._number(metric.sum, value, start, end, said)
        return self

    def level(self, name: str, value: float, end: int, *, gauge: bool = True, **said: Any) -> Metrics:
        metric = self._metrics.add(name=name, unit="By")
        if not gauge:
            metric.sum.aggregation_temporality = CUMULATIVE
        self._number(metric.gauge if gauge else metric.sum, value, 0, end, said)
        return self

    def exponential(self, name: str, buckets: dict[int, int], total: float, start: int, end: int, temporality: int = CUMULATIVE,
                    scale: int = 0, zero: int = 0, **said: Any) -> Metrics:  # fmt: skip
        metric = self._metrics.add(name=name, unit="By")
        metric.exponential_histogram.aggregation_temporality = temporality
        point = metric.exponential_histogram.data_points.add(
            start_time_unix_nano=start, time_unix_nano=end, scale=scale, sum=total, zero_count=zero,
            count=sum(buckets.values()) + zero,
        )  # fmt: skip
        if buckets:
            point.positive.offset = min(buckets)
            point.positive.bucket_counts.extend(buckets.get(i, 0) for i in range(min(buckets), max(buckets) + 1))
        attributes(point, _dotted(said))
        return self

    def explicit(
        self, name: str, bounds: list[float], counts: list[int], total: float, start: int, end: int, **said: Any
    ) -> Metrics:
        metric = self._metrics.add(name=name, unit="s")
        metric.histogram.aggregation_temporality = CUMULATIVE
        point = metric.histogram.data_points.add(
            start_time_unix_nano=start, time_unix_nano=end, count=sum(counts), sum=total
        )
        point.explicit_bounds.extend(bounds)
        point.bucket_counts.extend(counts)
        attributes(point, _dotted(said))
        return self

    @staticmethod
    def _number(data: Any, value: float, start: int, end: int, said: dict[str, Any]) -> None:
        point = data.data_points.add(start_time_unix_nano=start, time_unix_nano=end)
        setattr(point, "as_int" if isinstance(value, int) else "as_double", value)
        attributes(point, _dotted(said))


class Spans:
    """One request of spans, of one process."""

    def __init__(self, service: str = "server", pid: int = 7) -> None:
        self.request = ExportTraceServiceRequest()
        of_resource = self.request.resource_spans.add()
        attributes(of_resource.resource, {"service.name": service, "process.pid": pid})
        self._spans = of_resource.scope_spans.add().spans

    def add(self, trace: int, span: int, name: str, start: int, duration: int, parent: int = 0, links: tuple[tuple[int, int], ...] = (),
            **said: Any) -> Spans:  # fmt: skip
        message = self._spans.add(
            trace_id=trace.to_bytes(16, "big"), span_id=span.to_bytes(8, "big"), name=name, kind=1 if parent else 2,
            parent_span_id=parent.to_bytes(8, "big") if parent else b"", start_time_unix_nano=start,
            end_time_unix_nano=start + duration,
        )  # fmt: skip
        attributes(message, _dotted(said))
        for to_trace, to_span in links:
            message.links.add(trace_id=to_trace.to_bytes(16, "big"), span_id=to_span.to_bytes(8, "big"))
        return self


def _dotted(said: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in said.items()}
