"""How long did requests take, and what did the GPU do for them? Requests folded into measurements."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping

from ...signals.exemplars import Exemplar
from ...signals.metrics import (
    OVERFLOW,
    Attributes,
    AttributeValue,
    Buckets,
    Measurement,
    MetricSpec,
    Resource,
    attributes,
    bucket_index,
)
from ...signals.spans import SpanContext
from ...signals.telemetry import OTHER
from . import metrics
from .callbacks import attributes_of
from .conventions import error_of, method_of, model_attributes, rpc_method_of, rpc_status_of
from .gen_ai import operation_of
from .request import Callback, Ending, GpuTotals, Request

MAX_SERIES = 10_000
"""Between two collections; what is beyond is added up without attributes."""

_Shape = tuple[object, ...]
_COMPLETE = (Ending.COMPLETE, Ending.CONNECTION_CLOSED, Ending.EXCEPTION)


class ServingMetrics:
    """Adds requests up. Owned by one thread."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._histograms: dict[tuple[Resource, MetricSpec, Attributes], Buckets] = {}
        self._shapes: dict[_Shape, _Cells] = {}
        """Where requests of one shape are counted: what they have in common is worked out once an interval."""
        self._cut: dict[tuple[Resource, Ending], int] = defaultdict(int)

    def add(self, request: Request, span: SpanContext | None = None) -> None:
        """Add one request, recorded or not. `span` is the one that is sent of it."""
        if request.ending not in _COMPLETE:
            self._cut[request.resource, request.ending] += 1
            return
        if request.callback is not None:
            self._add_callback(request, request.callback, _Adding(request.end_ns, span))
            return
        shape = (
            *(request.resource, request.method, request.route, request.status, request.rpc, request.ending),
            *(request.version, request.scheme, request.attribution),
            operation_of(request.method, request.path) if request.rpc is None else "",
        )
        cells = self._shapes.get(shape)
        if cells is None:
            cells = self._cells(request)
            if len(self._shapes) < self._max_series:
                self._shapes[shape] = cells
        add = _Adding(request.end_ns, span)
        for histogram in cells.durations:
            add(histogram, request.duration_s)
        if cells.first_token is not None:
            self._tokens(cells, request, add)
        self._gpu(cells, request.totals, add)

    def _add_callback(self, request: Request, callback: Callback, add: _Adding) -> None:
        said = attributes_of(callback, request.route)
        failed = {**said, "error.type": error_of(request)}
        add(self._histogram(request, metrics.CALLBACK_DURATION, failed), request.duration_s)
        if request.totals.launches is not None:
            add(self._histogram(request, metrics.CALLBACK_LAUNCHES, said), request.totals.launches)

    def collect(self) -> list[Measurement]:
        """Return what was added since the last call."""
        found = [Measurement(*key, histogram) for key, histogram in self._histograms.items() if histogram.count]
        for (resource, ending), count in self._cut.items():
            found.append(
                Measurement(resource, metrics.REQUESTS_CUT, attributes({"otel_gpu.reason": ending.value}), count)
            )
        self._histograms = {}
        self._shapes = {}
        self._cut.clear()
        return found

    def forget(self, resource: Resource) -> None:
        """Say that a process is gone."""

    def _cells(self, request: Request) -> _Cells:
        """Return where requests like this one are counted."""
        error = error_of(request)
        if request.rpc is not None:
            method = _rpc_method(request)
            duration = self._histogram(
                request,
                metrics.RPC_DURATION,
                {
                    "error.type": error,
                    "rpc.method": method,
                    "rpc.response.status_code": rpc_status_of(request),
                    "rpc.system.name": request.rpc.system,
                },
            )
            return _Cells(request, self._histogram, [duration], {"rpc.method": method})
        method = method_of(request)
        route = request.route or None
        durations = [
            self._histogram(
                request,
                metrics.HTTP_DURATION,
                {
                    "error.type": error,
                    "http.request.method": method,
                    "http.response.status_code": request.status,
                    "network.protocol.version": request.version or None,
                    "url.scheme": request.scheme,
                    "url.template": route,
                },
            )
        ]
        cells = _Cells(request, self._histogram, durations, {"http.request.method": method, "url.template": route})
        if asked := model_attributes(request):
            failed = error or (str(request.status) if (request.status or 0) >= 400 else None)
            durations.append(self._histogram(request, metrics.GEN_AI_DURATION, {**asked, "error.type": failed}))
            if failed is None:
                cells.first_token = self._histogram(request, metrics.GEN_AI_FIRST_TOKEN, asked)
                cells.per_token = self._histogram(request, metrics.GEN_AI_PER_TOKEN, asked)
        return cells

    def _tokens(self, cells: _Cells, request: Request, add: _Adding) -> None:
        stream = request.stream
        if stream is None or not stream.is_event_stream or not stream.chunks:
            return
        assert cells.first_token is not None
        assert cells.per_token is not None
        add(cells.first_token, (stream.first_ns - request.start_ns) / 1e9)
        if stream.chunks > 1:
            add(cells.per_token, (stream.last_ns - stream.first_ns) / 1e9 / (stream.chunks - 1))

    def _gpu(self, cells: _Cells, totals: GpuTotals, add: _Adding) -> None:
        if totals.launches is not None:
            add(cells.get(metrics.LAUNCHES), totals.launches)
        if totals.graph_launches:
            add(cells.get(metrics.GRAPH_LAUNCHES), totals.graph_launches)
        if totals.bytes_h2d:
            add(cells.get(metrics.COPY_BYTES, "MemcpyHostToDevice"), totals.bytes_h2d)
        if totals.bytes_d2h:
            add(cells.get(metrics.COPY_BYTES, "MemcpyDeviceToHost"), totals.bytes_d2h)
        if totals.bytes_d2d:
            add(cells.get(metrics.COPY_BYTES, "MemcpyDeviceToDevice"), totals.bytes_d2d)
        if totals.synchronize_ns:
            add(cells.get(metrics.SYNCHRONIZE_DURATION), totals.synchronize_ns / 1e9)

    def _histogram(self, request: Request, metric: MetricSpec, attrs: Mapping[str, AttributeValue | None]) -> Buckets:
        key = (request.resource, metric, attributes(attrs))
        if key not in self._histograms and len(self._histograms) >= self._max_series:
            key = (request.resource, metric, OVERFLOW)
        return self._histograms.setdefault(key, Buckets())


class _Cells:
    """The histograms of requests that have everything in common but how long they took, and what the GPU did."""

    __slots__ = ("_gpu", "_make", "_request", "_where", "durations", "first_token", "per_token")

    def __init__(
        self,
        request: Request,
        make: Callable[[Request, MetricSpec, Mapping[str, AttributeValue | None]], Buckets],
        durations: list[Buckets],
        where: Mapping[str, AttributeValue | None],
    ) -> None:
        self._request = request
        self._make = make
        self._where = {**where, "otel_gpu.attribution": request.attribution.value}
        self._gpu: dict[tuple[str, str | None], Buckets] = {}
        self.durations = durations
        self.first_token: Buckets | None = None
        self.per_token: Buckets | None = None

    def get(self, metric: MetricSpec, kind: str | None = None) -> Buckets:
        """Return the histogram of something that the GPU did."""
        found = self._gpu.get((metric.name, kind))
        if found is None:
            found = self._make(self._request, metric, {**self._where, "cuda.memcpy.kind": kind})
            self._gpu[metric.name, kind] = found
        return found


def _rpc_method(request: Request) -> str | None:
    """Return the method of a call, where it is one of those that have room."""
    method = rpc_method_of(request)
    return OTHER if method is not None and request.route == OTHER else method


class _Adding:
    """Puts values of one request into histograms."""

    __slots__ = ("_span", "_time_ns")

    def __init__(self, time_ns: int, span: SpanContext | None) -> None:
        self._time_ns = time_ns
        self._span = span

    def __call__(self, histogram: Buckets, value: float) -> None:
        histogram.count += 1
        bucket = None
        if value <= 0:  # of times, where the clock was set back
            histogram.zero_count += 1
        else:
            histogram.sum += value
            bucket = _bucket(value)
            histogram.counts[bucket] = histogram.counts.get(bucket, 0) + 1
        if (span := self._span) is not None:
            histogram.note(bucket, Exemplar(value, self._time_ns, span.trace_id, span.span_id))


def _bucket(value: float) -> int:
    """Return the scale-0 bucket of a positive value: the i with 2**i < value ≤ 2**(i+1)."""
    if isinstance(value, int):
        return bucket_index(value)
    mantissa, exponent = math.frexp(value)
    return exponent - (2 if mantissa == 0.5 else 1)
