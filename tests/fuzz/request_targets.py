"""What clients and servers say to each other: heads, bodies, names of traces."""

from __future__ import annotations

from otel_gpu.bpf.abi.frames import FRAME_PIECE_BYTES
from otel_gpu.receivers.inference import http1
from otel_gpu.receivers.inference.assembly import Assembly, Seen
from otel_gpu.receivers.inference.frames import PIECE, Frames
from otel_gpu.receivers.inference.head_cache import Asked, RequestHeads, ResponseHeads
from otel_gpu.receivers.inference.header_blocks import MAX_FIELDS, HeaderBlocks
from otel_gpu.receivers.inference.http1 import MAX_LINES, final_response, parse_request, parse_response
from otel_gpu.receivers.inference.http1_heads import Framing
from otel_gpu.receivers.inference.request import Endpoint, Request
from otel_gpu.receivers.inference.routes import MAX_PATH, Routes, path_of, template_of
from otel_gpu.receivers.inference.server_spans import spans_of
from otel_gpu.receivers.inference.serving_metrics import ServingMetrics
from otel_gpu.receivers.inference.trace_context import MAX_STATE, parent_of, state_of
from otel_gpu.signals.metrics import Resource

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


def _plain_heads(data: bytes) -> None:
    """Heads that are read at once say what they say line by line."""
    assert parse_request(data) == http1._read_request(data)
    for method in ("GET", "HEAD"):
        assert parse_response(data, method) == http1._read_response(data, method)


_MEMORY = (RequestHeads(), ResponseHeads())


def _remembered_heads(data: bytes) -> None:
    """Heads that were seen before say what they say when they are read."""
    head, answer = parse_request(data), final_response(data, "GET")[0]
    asked, traceparents = _MEMORY[0].read(data)
    answered = _MEMORY[1].read(data, "GET")
    if head is None:
        assert asked == Asked()
    else:
        assert (asked.method, asked.version, asked.host) == (head.method, head.version, head.host)
        assert (asked.path, asked.tracestates) == (path_of(head.target), head.headers.values("tracestate"))
        assert sorted(traceparents) == sorted(head.headers.values("traceparent"))
    status = None if answer is None or answer.is_interim else answer.status
    assert answered.status == status
    assert status is None or answered.is_event_stream == (answer is not None and answer.is_event_stream)


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


def _frames(data: bytes) -> None:
    """Whatever clients and servers put into header blocks, each request is told once, and what is shown of it is safe."""
    frames, numbers = Frames(), [0, 0]
    for part, chunk in enumerate(data.split(b"\xff\xff")):
        if len(chunk) < 3:
            continue
        side, kind, flags, payload = chunk[0] & 1, chunk[1] % 12, chunk[2], chunk[3 : 3 + FRAME_PIECE_BYTES]
        at = (chunk[0] >> 4) * len(payload) if chunk[0] & 8 else 0
        head = (1, 2, chunk[0] >> 6, part % 4, part, numbers[side], 1 + 2 * (part % 4), at + len(payload), at)
        numbers[side] += 1 + (chunk[0] >> 1 & 1)
        frames.take(PIECE.pack(*head, len(payload), side, kind, flags) + payload)
    for number in range(4):
        frames.parent(number)
        seen = Seen(1, Resource(()), 0, 1)
        spans_of(Assembly().of_http2(seen, frames.exchange(number, seen, lambda ns: ns)))


def _header_blocks(data: bytes) -> None:
    for from_start in (True, False):
        blocks = HeaderBlocks(from_start=from_start)
        for part in data.split(b"\xff\xff"):
            found = blocks.read(part)
            assert sum(len(k) + len(v) for k, v in found.fields) <= MAX_FIELDS


def _assembled(data: bytes) -> None:
    """Whatever the kernel captured of a request, its spans show it safely."""
    head, _, response = data.partition(b"\0\0")
    for span in spans_of(Assembly().of_http1(Seen(1, Resource(()), 0, 1), head, response)):
        for value in (span.name, *(value for _, value in span.attributes)):
            assert not isinstance(value, str) or (value.isprintable() and len(value) <= 300)


def _trace_context(data: bytes) -> None:
    parent, _, state = data.decode("latin-1").partition("\n")
    found = parent_of([parent], [state, state[::2]])
    assert found is None or parent[3:52] == f"{found.trace_id.hex()}-{found.span_id.hex()}"
    assert len(state_of([state])) <= MAX_STATE
    assert state_of([state_of([state])]) == state_of([state])


def _routes(data: bytes) -> None:
    target = data.decode("latin-1")
    for is_cut in (False, True):
        for shown in (path_of(target), template_of(target, is_cut=is_cut)):
            assert len(shown) <= MAX_PATH
            assert shown.isascii()
            assert shown.isprintable()
            assert not set(" ?#") & set(shown)


def _served(data: bytes) -> None:
    """What a client says becomes a span and measurements, and nothing in them is as long or as odd as it likes."""
    head = parse_request(data)
    if head is None:
        return
    route = Routes().admit(1, template_of(head.target, is_cut=not head.version), 200)
    parent = parent_of(head.headers.values("traceparent"), head.headers.values("tracestate"))
    request = Request(
        Resource(()), 1, 2, head.method, path_of(head.target), route, head.version, 200, host=head.host,
        peer=Endpoint(head.host, 1), parent=parent,
    )  # fmt: skip
    for span in spans_of(request):
        assert len(span.name) <= MAX_PATH + 8
        for _, value in (("name", span.name), *span.attributes):
            assert not isinstance(value, str) or (value.isprintable() and len(value) <= 300)
    metrics = ServingMetrics()
    metrics.add(request)
    assert len(metrics.collect()) <= 2


_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=1,b@c=2\r\n\r\nhello"
)
_BODY = b'{"messages":[{"role":"user","content":"\\"model\\":\\"x\\""}],"model":"tiny","n":-1.5e3,"stream":true}'
_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
_DATED = b"HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 20:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello"
_SMUGGLED = b"POST / HTTP/1.1\r\nContent-Length: 6\r\nTransfer-Encoding:\x0bchunked\r\nX: y\n z\r\n\r\n0\r\n\r\nG"
_TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nrojo=00f067aa0ba902b7,congo@t=t61rcWkgMzE"
_BLOCK = bytes.fromhex("838684418aa0e41d139d09b8f01e0753032a2f2a408825a849e95ba97d7f8925a849e95bb8e8b4bf")
"""POST, an authority and two headers of its own, by Huffman's code."""
TARGETS = (
    Target("frames", _frames, lambda: [b"\0\1\4" + _BLOCK + b"\xff\xff\1\1\5\x88", b"\0\1\0" + _BLOCK], (), 2048),
    Target("header_blocks", _header_blocks, lambda: [_BLOCK + b"\xff\xff" + _BLOCK, b"\x3f\xe1\x1f\x82\xbe"], (), 1024),
    Target("assembled", _assembled, lambda: [_REQUEST + _BODY + b"\0\0" + _RESPONSE, _SMUGGLED + b"\0\0" + _RESPONSE]),
    Target("http1_heads", _heads, lambda: [_REQUEST, _RESPONSE, _SMUGGLED]),
    Target("http1_plain", _plain_heads, lambda: [_REQUEST, _RESPONSE[25:], _SMUGGLED], (), 512),
    Target("head_cache", _remembered_heads, lambda: [_REQUEST, _RESPONSE, _RESPONSE[25:], _DATED, _SMUGGLED], (), 512),
    Target("http1_cut", _same_cut, lambda: [_REQUEST[:200], _SMUGGLED], (), 512),
    Target(
        "routes",
        _routes,
        lambda: [b"/v1/items/42/0123abcd?x#y", b"http://h/a%20b/\xff;c=d/e.json", b"/r_0123456789"],
        (),
        512,
    ),
    Target("served", _served, lambda: [_REQUEST + _BODY, _SMUGGLED], (), 2048),
    Target("trace_context", _trace_context, lambda: [_TRACE, _TRACE.replace(b"00-", b"cc-", 1)], (), 1024),
)
