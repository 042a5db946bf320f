"""How does what was seen of a request become a `Request`? Heads and streams are read, and the path gets its route."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from msgspec import Struct

from ...signals.metrics import Resource
from ...signals.spans import SpanContext
from .head_cache import Answered, RequestHeads, ResponseHeads
from .request import NOT_KNOWN, Attribution, Callback, Ending, Endpoint, GpuTotals, GpuWork, OwnSpan, Request, Stream
from .routes import Routes, path_of, template_of
from .trace_context import parent_of

if TYPE_CHECKING:
    from .http2 import Exchange  # which takes a table of Huffman's codes, and not all servers speak HTTP/2

_THERE, _NOT_FOUND = 200, 404
_UNIMPLEMENTED = 12
"""What gRPC has for 404."""


class Seen(Struct, frozen=True, gc=False):
    """What the kernel saw of a request, beside the bytes of its heads. Times are nanoseconds since the epoch."""

    process: Hashable
    """By which its program is known."""
    resource: Resource
    start_ns: int
    end_ns: int
    ending: Ending = Ending.COMPLETE
    first_byte_ns: int | None = None
    first_piece_ns: int | None = None
    """Of the response's body."""
    last_piece_ns: int | None = None
    pieces: int = 0
    request_body_bytes: int | None = None
    response_body_bytes: int | None = None
    peer: Endpoint | None = None
    local: Endpoint | None = None
    is_encrypted: bool = False
    totals: GpuTotals = NOT_KNOWN
    attribution: Attribution = Attribution.EXACT
    work: tuple[GpuWork, ...] = ()
    work_left_out: int = 0
    context: SpanContext | None = None
    own: OwnSpan | None = None


class Assembly:
    """Makes requests of what was seen. Owned by one thread."""

    def __init__(self) -> None:
        self._routes = Routes()
        self._names = Routes()
        """Of topics and services."""
        self._asked = RequestHeads()
        self._answered = ResponseHeads()

    def of_http1(self, seen: Seen, head: bytes, response: bytes) -> Request:
        """Return a request by the bytes that were captured from its first one on, and from the response's first one on."""
        asked, traceparents = self._asked.read(head)
        answered = self._answered.read(response, asked.method)
        path, status = asked.path, answered.status
        return Request(
            seen.resource,
            seen.start_ns,
            seen.end_ns,
            asked.method,
            path,
            self._routes.admit(seen.process, asked.template, status),
            asked.version,
            status,
            seen.request_body_bytes,
            seen.response_body_bytes,
            seen.first_byte_ns,
            _stream(seen, answered),
            seen.peer,
            seen.local,
            asked.host,
            _scheme(seen),
            parent_of(traceparents, asked.tracestates),
            seen.context,
            None,
            seen.totals,
            seen.attribution,
            seen.work,
            seen.work_left_out,
            seen.ending,
            seen.own,
        )

    def of_http2(self, seen: Seen, exchange: Exchange) -> Request:
        """Return a request by the stream that it was; times and sizes are the stream's."""
        rpc, status = exchange.rpc, exchange.status
        if rpc is not None:
            route = self._routes.admit(
                seen.process, rpc.method, _NOT_FOUND if rpc.status_code == _UNIMPLEMENTED else status
            )
        else:
            route = self._routes.admit(seen.process, template_of(exchange.target), status)
        stream = None
        first, last = exchange.first_chunk_ns, exchange.last_chunk_ns
        if first is not None and last is not None and (exchange.is_event_stream or exchange.chunks > 1):
            stream = Stream(exchange.chunks, first, last, exchange.is_event_stream)
        return Request(
            seen.resource,
            exchange.start_ns,
            exchange.end_ns,
            exchange.method,
            path_of(exchange.target),
            route,
            "2",
            status,
            exchange.request_body_bytes,
            exchange.response_body_bytes,
            exchange.first_byte_ns,
            stream,
            seen.peer,
            seen.local,
            exchange.authority,
            _scheme(seen),
            parent_of(exchange.traceparents, exchange.tracestates),
            seen.context,
            rpc,
            seen.totals,
            seen.attribution,
            seen.work,
            seen.work_left_out,
            exchange.ending if seen.ending is Ending.COMPLETE else seen.ending,
            seen.own,
        )

    def of_callback(self, seen: Seen, callback: Callback) -> Request:
        """Return a callback that an executor ran."""
        return Request(
            seen.resource,
            seen.start_ns,
            seen.end_ns,
            route=self._names.admit(seen.process, callback.name, _THERE),
            context=seen.context,
            totals=seen.totals,
            attribution=seen.attribution,
            work=seen.work,
            work_left_out=seen.work_left_out,
            ending=seen.ending,
            own=seen.own,
            callback=callback,
        )

    def forget(self, process: Hashable) -> None:
        """Say that a program has ended."""
        self._routes.forget(process)
        self._names.forget(process)


def _stream(seen: Seen, answered: Answered) -> Stream | None:
    """Return how a response was streamed: as events, or in several pieces without a length."""
    if seen.first_piece_ns is None or seen.last_piece_ns is None:
        return None
    if answered.is_event_stream or (answered.has_no_length and seen.pieces > 1):
        return Stream(seen.pieces, seen.first_piece_ns, seen.last_piece_ns, answered.is_event_stream)
    return None


def _scheme(seen: Seen) -> str:
    return "https" if seen.is_encrypted else "http"
