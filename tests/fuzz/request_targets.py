"""What clients and servers say to each other: heads, bodies, names of traces."""

from __future__ import annotations

from otel_gpu.receivers.inference.http1 import MAX_LINES, Framing, final_response, parse_request, parse_response
from otel_gpu.receivers.inference.http1_body import Body
from otel_gpu.receivers.inference.trace_context import MAX_STATE, parent_of, state_of

from .target import Target


def _heads(data: bytes) -> None:
    for head in (parse_request(data), parse_response(data, "GET"), final_response(data, "HEAD")[0]):
        if head is None:
            continue
        assert 0 < head.size_bytes <= len(data)
        assert len(head.headers.items) <= MAX_LINES
        if head.doubts or not head.is_whole:
            assert head.framing is Framing.UNKNOWN
        elif head.framing is Framing.LENGTH:
            assert head.body_bytes


def _same_cut(data: bytes) -> None:
    """Whatever of a head is not there yet, what was told of it stays true."""
    head = parse_request(data)
    for cut in range(min(len(data), 64)):
        part = parse_request(data[:-cut]) if cut else head
        if head is None or part is None:
            continue
        assert head.headers.items[: len(part.headers.items)] == part.headers.items
        assert head.method.startswith(part.method)
        assert set(part.doubts) <= set(head.doubts) or not part.is_whole


def _body(data: bytes) -> None:
    """A body ends at the same byte however it is cut, and what was not captured never moves its end."""
    whole = Body(Framing.CHUNKED)
    taken = whole.take(data)
    pieces = Body(Framing.CHUNKED)
    total = sum(pieces.take(data[at : at + 7]) for at in range(0, len(data), 7))
    assert (pieces.is_complete, pieces.is_lost) == (whole.is_complete, whole.is_lost)
    assert total == taken or whole.is_lost
    for captured in range(0, len(data), 5):
        part = Body(Framing.CHUNKED)
        taken_too = part.take(data[:captured], len(data))
        assert part.is_lost or taken_too == taken


def _trace_context(data: bytes) -> None:
    parent, _, state = data.decode("latin-1").partition("\n")
    found = parent_of([parent], [state, state[::2]])
    assert found is None or parent[3:52] == f"{found.trace_id.hex()}-{found.span_id.hex()}"
    assert len(state_of([state])) <= MAX_STATE
    assert state_of([state_of([state])]) == state_of([state])


_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=1,b@c=2\r\n\r\nhello"
)
_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
_SMUGGLED = b"POST / HTTP/1.1\r\nContent-Length: 6\r\nTransfer-Encoding:\x0bchunked\r\nX: y\n z\r\n\r\n0\r\n\r\nG"
_CHUNKS = b'5;ext="x"\r\nhello\r\n0000A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET'
_TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nrojo=00f067aa0ba902b7,congo@t=t61rcWkgMzE"

TARGETS = (
    Target("http1_heads", _heads, lambda: [_REQUEST, _RESPONSE, _SMUGGLED]),
    Target("http1_cut", _same_cut, lambda: [_REQUEST[:200], _SMUGGLED], (), 512),
    Target("http1_body", _body, lambda: [_CHUNKS, b"0\r\n\r\n"], (), 512),
    Target("trace_context", _trace_context, lambda: [_TRACE, _TRACE.replace(b"00-", b"cc-", 1)], (), 1024),
)
