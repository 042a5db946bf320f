"""Which spans does a request get? One of kind SERVER with what the GPU did for it, and children for the pieces of that.

Names, attributes and status are the semantic conventions' for servers of HTTP and gRPC. A span is named by its method and
the path without ids, since the framework's route is not known; the path itself is in `url.path`, without its query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ...signals.metrics import Attributes, AttributeValue, Resource, attributes
from ...signals.spans import Span, SpanContext, SpanKind, SpanStatus
from ...signals.structs import Frozen
from ...signals.telemetry import OTHER
from ...text import escaped
from .callbacks import attributes_of, span_attributes_of, span_kind_of, span_name_of
from .conventions import OTHER_METHOD, error_of, method_of, model_attributes, rpc_method_of, rpc_status_of
from .request import Attribution, Callback, Ending, Endpoint, GpuTotals, GpuWork, Request, RpcCall, WorkKind
from .trace_context import child_of

_Attributes = Mapping[str, AttributeValue | None]
GPU_REQUEST = "gpu request"
_NOBODY = Resource(())
_NO_ROUTE = frozenset({"", OTHER})
_MAX_HOST = 270
_MAX_COMMON = 1024
"""Kinds of requests that are remembered, since most come again."""
# Looked up here once: in their classes, members of enumerations and their values take as long as the rest of a small span.
_SERVER = SpanKind.SERVER
_CHILDREN = {kind: kind.value for kind in WorkKind}
_ATTRIBUTIONS = {attribution: ("otel_gpu.attribution", attribution.value) for attribution in Attribution}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,64}\]|[A-Za-z0-9_.\-]{1,255})(?::([0-9]{1,5}))?\Z")


class SpanLimits(Frozen):
    """How much a request may get."""

    max_children: int = 32
    """The longest ones; what the others did is in the request's totals."""


def spans_of(request: Request, limits: SpanLimits = SpanLimits()) -> list[Span]:
    """Return a request's span and its children; none where its caller does not record the trace."""
    if not request.is_sampled:
        return []
    work = request.work
    if len(work) > limits.max_children:
        longest = sorted(work, key=lambda w: w.start_ns - w.end_ns)[: limits.max_children]
        work = tuple(sorted(longest, key=lambda w: w.start_ns))
    left_out = request.work_left_out + len(request.work) - len(work)
    own = request.own
    if own is not None and own.stands_for(request.parent):
        context = own.context(request.parent)
        first = _stand_in(request, context, left_out)
    else:
        context = request.context or _context(request)
        if request.callback is not None:
            first = _of_callback(request, request.callback, context, left_out)
        else:
            first = _server(request, context, left_out)
    return [first, *(_child(request, context, w) for w in work)]


def span_for_work(request: Request, spans: Sequence[Span]) -> SpanContext:
    """Return the span that stands for a request of which these were made: the program's own, where it has one."""
    own = request.own
    return own.context(request.parent) if own is not None and own.stands_for(request.parent) else spans[0].context


def _context(request: Request) -> SpanContext:
    """Return the name of a request's span: in its caller's trace, or in the one that the program has for it, or in a new one."""
    made = child_of(request.parent)
    if request.parent is not None or request.own is None:
        return made
    own = request.own.context(None)
    return SpanContext(own.trace_id, made.span_id, flags=own.flags)


def _stand_in(request: Request, parent: SpanContext, left_out: int) -> Span:
    """Return what carries the totals where the request's span is the program's own."""
    found = _totals(request.totals, request.attribution)
    if left_out:
        found.append(("otel_gpu.spans.left_out", left_out))
    found.sort()
    return Span(
        request.resource,
        GPU_REQUEST,
        child_of(parent),
        request.start_ns,
        request.end_ns,
        parent.span_id,
        attributes=tuple(found),
    )


def _server(request: Request, context: SpanContext, left_out: int) -> Span:
    stream, peer = request.stream, request.peer
    common = _common(
        request.method,
        request.path,
        request.route,
        request.version,
        request.status,
        request.scheme,
        request.host if len(request.host) <= _MAX_HOST else "",
        request.local,
        request.rpc,
        request.ending,
        stream is not None and stream.is_event_stream,
    )
    found = [*common.attributes, *_totals(request.totals, request.attribution)]
    if peer is not None:
        if peer.address:
            address = escaped(peer.address)
            found += (("client.address", address), ("network.peer.address", address))
        if peer.port is not None:
            found.append(("network.peer.port", peer.port))
    if request.rpc is None:
        if request.request_body_bytes is not None:
            found.append(("http.request.body.size", request.request_body_bytes))
        if request.response_body_bytes is not None:
            found.append(("http.response.body.size", request.response_body_bytes))
    if left_out:
        found.append(("otel_gpu.spans.left_out", left_out))
    found.sort()
    return Span(
        request.resource,
        common.name,
        context,
        request.start_ns,
        request.end_ns,
        request.parent.span_id if request.parent else b"",
        request.parent is not None,
        _SERVER,
        tuple(found),
        status=common.status,
    )


def _of_callback(request: Request, callback: Callback, context: SpanContext, left_out: int) -> Span:
    error = error_of(request)
    found = attributes(
        {
            **attributes_of(callback, callback.name),
            **span_attributes_of(callback),
            **dict(_totals(request.totals, request.attribution)),
            "error.type": error,
            "otel_gpu.cut": request.ending.value or None if error is None else None,
            "otel_gpu.spans.left_out": left_out or None,
        }
    )
    return Span(
        request.resource,
        span_name_of(request, callback),
        context,
        request.start_ns,
        request.end_ns,
        kind=span_kind_of(callback),
        attributes=found,
        status=SpanStatus.UNSET if error is None else SpanStatus.ERROR,
    )


def _child(request: Request, parent: SpanContext, work: GpuWork) -> Span:
    if work.own_parent and request.own is not None:
        own = request.own.context(request.parent)
        parent = SpanContext(own.trace_id, work.own_parent, flags=own.flags)
    return Span(
        request.resource,
        _CHILDREN[work.kind],
        child_of(parent),
        work.start_ns,
        work.end_ns,
        parent.span_id,
        attributes=tuple(_totals(work.totals, request.attribution)),
    )


def _name(request: Request) -> str:
    if request.rpc is not None:
        return rpc_method_of(request) or request.rpc.system
    method = method_of(request)
    # A method that is not known might be anything.
    name = "HTTP" if method in {None, OTHER_METHOD} else str(method)
    return name if request.route in _NO_ROUTE else f"{name} {request.route}"


class _Common(Frozen):
    """What requests have in common that ask the same of the same server, and are answered in the same way."""

    name: str
    attributes: Attributes
    status: SpanStatus


@lru_cache(_MAX_COMMON)
def _common(
    method: str,
    path: str,
    route: str,
    version: str,
    status: int | None,
    scheme: str,
    host: str,
    local: Endpoint | None,
    rpc: RpcCall | None,
    ending: Ending,
    is_event_stream: bool,
) -> _Common:
    request = Request(_NOBODY, 0, 0, method, path, route, version, status, scheme=scheme, rpc=rpc, ending=ending)
    error = error_of(request)
    found = attributes(
        {
            **(_http(request, is_event_stream=is_event_stream) if rpc is None else _rpc(request, rpc)),
            **_server_address(host, local),
            "network.protocol.version": version or None,
            "error.type": error,
            "otel_gpu.cut": ending.value or None,
        }
    )
    return _Common(_name(request), found, SpanStatus.UNSET if error is None else SpanStatus.ERROR)


def _http(request: Request, *, is_event_stream: bool) -> _Attributes:
    method = method_of(request)
    model = model_attributes(request)
    return {
        "http.request.method": method,
        "http.request.method_original": escaped(request.method) if method == OTHER_METHOD else None,
        "http.response.status_code": request.status,
        "url.path": request.path or None,
        "url.scheme": request.scheme,
        "url.template": request.route if request.route not in _NO_ROUTE else None,
        **model,
        "gen_ai.request.stream": True if model and is_event_stream else None,
    }


def _rpc(request: Request, rpc: RpcCall) -> _Attributes:
    method = rpc_method_of(request)
    return {
        "rpc.system.name": rpc.system,
        "rpc.method": method,
        "rpc.method_original": escaped(rpc.method) if method == OTHER_METHOD else None,
        "rpc.response.status_code": rpc_status_of(request),
    }


def _server_address(host: str, local: Endpoint | None) -> _Attributes:
    """Return what the client asked for, or else where the server listens."""
    server, port = _host(host)
    if not server and local is not None:
        server, port = escaped(local.address), local.port
    return {"server.address": server or None, "server.port": port}


def _host(host: str) -> tuple[str, int | None]:
    """Return the name and the port that a client asked for."""
    if (match := _HOST.match(host)) is None:
        return "", None
    port = int(match[2]) if match[2] else None
    return match[1].strip("[]"), port if port is not None and 0 < port < 1 << 16 else None


def _totals(totals: GpuTotals, attribution: Attribution) -> list[tuple[str, AttributeValue]]:
    found = totals_of(totals)
    found.append(_ATTRIBUTIONS[attribution])
    return found


def totals_of(totals: GpuTotals) -> list[tuple[str, AttributeValue]]:
    """Return what the GPU did, sorted: what is not known is left out, and zeros too, but for launches."""
    found: list[tuple[str, AttributeValue]] = []
    if totals.graph_launches:
        found.append(("gpu.cuda.graph.launch.calls", totals.graph_launches))
    if totals.launches is not None:
        found.append(("gpu.cuda.kernel.launch.calls", totals.launches))
    if totals.bytes_d2d:
        found.append(("gpu.cuda.memory.copy.bytes.d2d", totals.bytes_d2d))
    if totals.bytes_d2h:
        found.append(("gpu.cuda.memory.copy.bytes.d2h", totals.bytes_d2h))
    if totals.bytes_h2d:
        found.append(("gpu.cuda.memory.copy.bytes.h2d", totals.bytes_h2d))
    if totals.copies_d2d:
        found.append(("gpu.cuda.memory.copy.calls.d2d", totals.copies_d2d))
    if totals.copies_d2h:
        found.append(("gpu.cuda.memory.copy.calls.d2h", totals.copies_d2h))
    if totals.copies_h2d:
        found.append(("gpu.cuda.memory.copy.calls.h2d", totals.copies_h2d))
    if totals.synchronize_ns:
        found.append(("gpu.cuda.synchronize.duration", totals.synchronize_ns / 1e9))
    return found
