"""Which spans does a request get? One of kind SERVER with what the GPU did for it, and children for the pieces of that.

Names, attributes and status are the semantic conventions' for servers of HTTP and gRPC. A span is named by its method and
the path without ids, since the framework's route is not known; the path itself is in `url.path`, without its query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ...printable import escaped
from ...signals.metrics import AttributeValue
from ...signals.spans import Span, SpanContext, SpanKind, SpanStatus
from .conventions import OTHER_METHOD, error_of, method_of, model_attributes, rpc_method_of, rpc_status_of
from .request import Attribution, GpuTotals, GpuWork, Request, RpcCall
from .routes import OTHER
from .trace_context import child_of

_Attribute = tuple[str, AttributeValue | None]
_NO_ROUTE = frozenset({"", OTHER})
_MAX_HOST = 270
_MAX_HOSTS = 256
"""That are remembered, since most come again."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,64}\]|[A-Za-z0-9_.\-]{1,255})(?::([0-9]{1,5}))?\Z")


@dataclass(frozen=True, slots=True)
class SpanLimits:
    """How much a request may get."""

    max_children: int = 32
    """The longest ones; what the others did is in the request's totals."""


def spans_of(request: Request, limits: SpanLimits = SpanLimits()) -> list[Span]:
    """Return a request's span and its children; none where its caller does not record the trace."""
    if not request.is_sampled:
        return []
    context = request.context or child_of(request.parent)
    work = request.work
    if len(work) > limits.max_children:
        longest = sorted(work, key=lambda w: w.start_ns - w.end_ns)[: limits.max_children]
        work = tuple(sorted(longest, key=lambda w: w.start_ns))
    left_out = request.work_left_out + len(request.work) - len(work)
    return [_server(request, context, left_out), *(_child(request, context, w) for w in work)]


def _server(request: Request, context: SpanContext, left_out: int) -> Span:
    error = error_of(request)
    return Span(
        request.resource,
        _name(request),
        context,
        request.start_ns,
        request.end_ns,
        request.parent.span_id if request.parent else b"",
        request.parent is not None,
        SpanKind.SERVER,
        tuple(sorted(_known(_server_attributes(request, error, left_out)))),
        status=SpanStatus.UNSET if error is None else SpanStatus.ERROR,
    )


def _child(request: Request, parent: SpanContext, work: GpuWork) -> Span:
    return Span(
        request.resource,
        work.kind.value,
        child_of(parent),
        work.start_ns,
        work.end_ns,
        parent.span_id,
        attributes=tuple(_known(_totals(work.totals, request.attribution))),
    )


def _name(request: Request) -> str:
    if request.rpc is not None:
        return rpc_method_of(request) or request.rpc.system
    method = method_of(request)
    # A method that is not known might be anything.
    name = "HTTP" if method in {None, OTHER_METHOD} else str(method)
    return name if request.route in _NO_ROUTE else f"{name} {request.route}"


def _server_attributes(request: Request, error: str | None, left_out: int) -> list[_Attribute]:
    return [
        *(_http(request) if request.rpc is None else _rpc(request, request.rpc)),
        *_ends(request),
        *_totals(request.totals, request.attribution),
        ("error.type", error),
        ("otel_gpu.cut", request.ending.value or None),
        ("otel_gpu.spans.left_out", left_out or None),
    ]


def _http(request: Request) -> list[_Attribute]:
    method = method_of(request)
    stream = request.stream
    model = model_attributes(request, request.model)
    return [
        ("http.request.method", method),
        ("http.request.method_original", escaped(request.method) if method == OTHER_METHOD else None),
        ("http.response.status_code", request.status),
        ("http.request.body.size", request.request_body_bytes),
        ("http.response.body.size", request.response_body_bytes),
        ("url.path", request.path or None),
        ("url.scheme", request.scheme),
        ("url.template", request.route if request.route not in _NO_ROUTE else None),
        *model.items(),
        ("gen_ai.request.stream", True if model and stream and stream.is_event_stream else None),
    ]


def _rpc(request: Request, rpc: RpcCall) -> list[_Attribute]:
    method = rpc_method_of(request)
    return [
        ("rpc.system.name", rpc.system),
        ("rpc.method", method),
        ("rpc.method_original", escaped(rpc.method) if method == OTHER_METHOD else None),
        ("rpc.response.status_code", rpc_status_of(request)),
    ]


def _ends(request: Request) -> list[_Attribute]:
    """Return between whom it was."""
    server, port = _host(request.host) if 0 < len(request.host) <= _MAX_HOST else ("", None)
    if not server and request.local is not None:
        server, port = escaped(request.local.address), request.local.port
    peer = request.peer
    address = escaped(peer.address) if peer is not None and peer.address else None
    return [
        ("server.address", server or None),
        ("server.port", port),
        ("client.address", address),
        ("network.peer.address", address),
        ("network.peer.port", peer.port if peer is not None else None),
        ("network.protocol.version", request.version or None),
    ]


@lru_cache(_MAX_HOSTS)
def _host(host: str) -> tuple[str, int | None]:
    """Return the name and the port that a client asked for."""
    if (match := _HOST.match(host)) is None:
        return "", None
    port = int(match[2]) if match[2] else None
    return match[1].strip("[]"), port if port is not None and 0 < port < 1 << 16 else None


def _totals(totals: GpuTotals, attribution: Attribution) -> list[_Attribute]:
    """Return what the GPU did, sorted: what is not known is left out, and zeros too, but for launches."""
    waited = totals.synchronize_ns
    return [
        ("gpu.cuda.graph.launch.calls", totals.graph_launches or None),
        ("gpu.cuda.kernel.launch.calls", totals.launches),
        ("gpu.cuda.memory.copy.bytes.d2d", totals.bytes_d2d or None),
        ("gpu.cuda.memory.copy.bytes.d2h", totals.bytes_d2h or None),
        ("gpu.cuda.memory.copy.bytes.h2d", totals.bytes_h2d or None),
        ("gpu.cuda.memory.copy.calls.d2d", totals.copies_d2d or None),
        ("gpu.cuda.memory.copy.calls.d2h", totals.copies_d2h or None),
        ("gpu.cuda.memory.copy.calls.h2d", totals.copies_h2d or None),
        ("gpu.cuda.synchronize.duration", waited / 1e9 if waited else None),
        ("otel_gpu.attribution", attribution.value),
    ]


def _known(found: list[_Attribute]) -> list[tuple[str, AttributeValue]]:
    return [(key, value) for key, value in found if value is not None]
