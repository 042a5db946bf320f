"""How long did requests take, and what did the GPU do for them? Requests folded into measurements."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

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
from . import metrics
from .conventions import error_of, method_of, model_attributes, rpc_method_of, rpc_status_of
from .request import Ending, GpuTotals, Request
from .routes import OTHER

MAX_SERIES = 10_000
"""Between two collections; what is beyond is added up without attributes."""
MAX_MODELS = 32
"""Of one process, since a client may ask for any."""

_Key = tuple[Resource, MetricSpec, Attributes]
_COMPLETE = frozenset({Ending.COMPLETE, Ending.CONNECTION_CLOSED})


class ServingMetrics:
    """Adds requests up. Owned by one thread."""

    def __init__(self, max_series: int = MAX_SERIES, max_models: int = MAX_MODELS) -> None:
        self._max_series = max_series
        self._max_models = max_models
        self._histograms: dict[_Key, Buckets] = {}
        self._cut: dict[tuple[Resource, Ending], int] = defaultdict(int)
        self._models: dict[Resource, set[str]] = {}

    def add(self, request: Request) -> None:
        """Add one request, recorded or not."""
        if request.ending not in _COMPLETE:
            self._cut[request.resource, request.ending] += 1
            return
        if request.rpc is None:
            self._http(request)
            self._model(request)
        else:
            self._rpc(request)
        self._gpu(request, request.totals)

    def collect(self) -> list[Measurement]:
        """Return what was added since the last call."""
        found = [Measurement(*key, histogram) for key, histogram in self._histograms.items()]
        for (resource, ending), count in self._cut.items():
            found.append(
                Measurement(resource, metrics.REQUESTS_CUT, attributes({"otel_gpu.reason": ending.value}), count)
            )
        self._histograms = {}
        self._cut.clear()
        return found

    def forget(self, resource: Resource) -> None:
        """Say that a process is gone."""
        self._models.pop(resource, None)

    def _http(self, request: Request) -> None:
        self._seconds(
            request,
            metrics.HTTP_DURATION,
            request.duration_s,
            {
                "error.type": error_of(request),
                "http.request.method": method_of(request),
                "http.response.status_code": request.status,
                "network.protocol.version": request.version or None,
                "url.scheme": request.scheme,
                "url.template": request.route or None,
            },
        )

    def _rpc(self, request: Request) -> None:
        assert request.rpc is not None
        self._seconds(
            request,
            metrics.RPC_DURATION,
            request.duration_s,
            {
                "error.type": error_of(request),
                "rpc.method": _rpc_method(request),
                "rpc.response.status_code": rpc_status_of(request),
                "rpc.system.name": request.rpc.system,
            },
        )

    def _model(self, request: Request) -> None:
        asked = model_attributes(request, self._bounded(request))
        if not asked:
            return
        error = error_of(request) or (str(request.status) if (request.status or 0) >= 400 else None)
        self._seconds(request, metrics.GEN_AI_DURATION, request.duration_s, {**asked, "error.type": error})
        stream = request.stream
        if error is not None or stream is None or not stream.is_event_stream or not stream.chunks:
            return
        self._seconds(request, metrics.GEN_AI_FIRST_TOKEN, (stream.first_ns - request.start_ns) / 1e9, asked)
        if stream.chunks > 1:
            each = (stream.last_ns - stream.first_ns) / 1e9 / (stream.chunks - 1)
            self._seconds(request, metrics.GEN_AI_PER_TOKEN, each, asked)

    def _gpu(self, request: Request, totals: GpuTotals) -> None:
        where = {
            "http.request.method": method_of(request) if request.rpc is None else None,
            "otel_gpu.attribution": request.attribution.value,
            "rpc.method": _rpc_method(request),
            "url.template": request.route or None if request.rpc is None else None,
        }
        if totals.launches is not None:
            self._number(request, metrics.LAUNCHES, totals.launches, where)
        if totals.graph_launches:
            self._number(request, metrics.GRAPH_LAUNCHES, totals.graph_launches, where)
        for kind, size in (
            ("MemcpyHostToDevice", totals.bytes_h2d),
            ("MemcpyDeviceToHost", totals.bytes_d2h),
            ("MemcpyDeviceToDevice", totals.bytes_d2d),
        ):
            if size:
                self._number(request, metrics.COPY_BYTES, size, {**where, "cuda.memcpy.kind": kind})
        if totals.synchronize_ns:
            self._seconds(request, metrics.SYNCHRONIZE_DURATION, totals.synchronize_ns / 1e9, where)

    def _bounded(self, request: Request) -> str:
        """Return the model, if it is one of few, and the server has it."""
        if not request.model:
            return ""
        known = self._models.setdefault(request.resource, set())
        if request.model in known:
            return request.model
        if request.status is None or request.status >= 400 or len(known) >= self._max_models:
            return OTHER
        known.add(request.model)
        return request.model

    def _number(
        self, request: Request, metric: MetricSpec, value: int, attrs: Mapping[str, AttributeValue | None]
    ) -> None:
        self._add(request.resource, metric, attrs, value, bucket_index(value) if value > 0 else None)

    def _seconds(
        self, request: Request, metric: MetricSpec, value: float, attrs: Mapping[str, AttributeValue | None]
    ) -> None:
        value = max(value, 0.0)
        self._add(request.resource, metric, attrs, value, _bucket(value) if value > 0 else None)

    def _add(
        self,
        resource: Resource,
        metric: MetricSpec,
        attrs: Mapping[str, AttributeValue | None],
        value: float,
        bucket: int | None,
    ) -> None:
        key = (resource, metric, attributes(attrs))
        if key not in self._histograms and len(self._histograms) >= self._max_series:
            key = (resource, metric, OVERFLOW)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Buckets()
        histogram.count += 1
        histogram.sum += value
        if bucket is None:
            histogram.zero_count += 1
        else:
            histogram.counts[bucket] = histogram.counts.get(bucket, 0) + 1


def _rpc_method(request: Request) -> str | None:
    """Return the method of a call, where it is one of those that have room."""
    method = rpc_method_of(request)
    return OTHER if method is not None and request.route == OTHER else method


def _bucket(value: float) -> int:
    """Return the scale-0 bucket of a positive value: the i with 2**i < value ≤ 2**(i+1)."""
    mantissa, exponent = math.frexp(value)
    return exponent - (2 if mantissa == 0.5 else 1)
