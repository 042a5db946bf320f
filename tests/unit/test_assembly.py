"""Does what was captured of a request become the request that it was?"""

from __future__ import annotations

import pytest

from otel_gpu.receivers.inference.assembly import Assembly, Seen
from otel_gpu.receivers.inference.http2 import Exchange
from otel_gpu.receivers.inference.request import Ending, Endpoint, GpuTotals, Request, RpcCall, Stream
from otel_gpu.receivers.inference.server_spans import spans_of
from otel_gpu.signals.metrics import Resource

HERE = Resource((("service.name", "server"),))
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEAD = (
    b"POST /v1/chat/completions?key=secret HTTP/1.1\r\nHost: here:8000\r\nContent-Type: application/json\r\n"
    b"traceparent: " + TRACE.encode() + b"\r\ntracestate: a=1\r\nContent-Length: 31\r\n\r\n"
)
BODY = b'{"model":"tiny","stream":true}\n'
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SEEN = Seen(
    1, HERE, 1_000, 9_000, Ending.COMPLETE, 2_000, 3_000, 8_000, 5, 31, 400, Endpoint("::1", 5), Endpoint("::1", 8000),
    totals=GpuTotals(3),
)  # fmt: skip


def made(head: bytes = HEAD + BODY, response: bytes = RESPONSE) -> Request:
    return Assembly().of_http1(SEEN, head, response)


def test_a_request_is_what_its_heads_say() -> None:
    request = made()

    assert (request.method, request.path, request.route) == ("POST", "/v1/chat/completions", "/v1/chat/completions")
    assert (request.version, request.status, request.host, request.scheme) == ("1.1", 200, "here:8000", "http")
    assert request.stream == Stream(5, 3_000, 8_000, is_event_stream=True)
    assert request.parent is not None
    assert (request.parent.trace_id.hex(), request.parent.trace_state) == (TRACE[3:35], "a=1")
    assert (request.totals, request.first_byte_ns) == (GpuTotals(3), 2_000)


def test_nothing_of_a_query_or_a_body_is_in_a_span() -> None:
    (span,) = spans_of(made(HEAD + b'{"model":"tiny","prompt":"secret"}'))

    assert "secret" not in repr(span)
    assert "tiny" not in repr(span)


@pytest.mark.parametrize("cut", range(0, len(HEAD), 7))
def test_of_a_head_that_is_cut_what_is_there_is_told(cut: int) -> None:
    request = made(HEAD[:cut], RESPONSE[:cut])

    assert "/v1/chat/completions".startswith(request.path)
    assert request.route in {"", "/*", "/v1/*", "/v1/chat/*", "/v1/chat/completions"}
    assert request.parent is None or request.parent.trace_id.hex() == TRACE[3:35]
    assert request.status in {None, 200}


@pytest.mark.parametrize("garbage", [b"", b"\x16\x03\x01", b"\0" * 1024])
def test_garbage_is_a_request_of_which_nothing_is_known(garbage: bytes) -> None:
    request = made(garbage, garbage)

    assert (request.method, request.path, request.route, request.status, request.parent) == ("", "", "", None, None)
    assert spans_of(request)[0].name == "HTTP"


def test_an_interim_response_is_no_status() -> None:
    assert made(response=b"HTTP/1.1 100 Continue\r\n\r\n").status is None
    assert made(response=b"HTTP/1.1 100 Continue\r\n\r\n" + RESPONSE).status == 200


def test_a_response_with_a_length_is_no_stream_in_however_many_pieces() -> None:
    assert made(response=b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n").stream is None
    assert made(response=b"HTTP/1.1 200 OK\r\n\r\n").stream == Stream(5, 3_000, 8_000)


def test_routes_are_the_programs_own() -> None:
    assembly = Assembly()
    response = RESPONSE.replace(b"200", b"404")
    routes = {assembly.of_http1(SEEN, b"GET /x/a%db HTTP/1.1\r\n\r\n" % n, response).route for n in range(50)}

    assert len(routes) == 21
    assembly.forget(1)
    assert assembly.of_http1(SEEN, b"GET /y HTTP/1.1\r\n\r\n", response).route == "/y"


STREAM = Exchange(
    1, 10, 90, Ending.COMPLETE, "POST", "/pkg.Greeter/Hello", "http", "here:8000", (TRACE,), (), 200,
    RpcCall("pkg.Greeter/Hello", 0), 5, 7, 1, False, 40, 50, 60,
)  # fmt: skip


def test_a_stream_of_http2_is_a_request() -> None:
    request = Assembly().of_http2(SEEN, STREAM)

    assert (request.start_ns, request.end_ns, request.version) == (10, 90, "2")
    assert (request.route, request.rpc) == ("pkg.Greeter/Hello", RpcCall("pkg.Greeter/Hello", 0))
    assert request.parent is not None
    assert spans_of(request)[0].name == "pkg.Greeter/Hello"


def test_methods_that_a_server_does_not_have_take_no_room() -> None:
    assembly = Assembly()
    for n in range(1000):
        assembly.of_http2(SEEN, _called(f"no.Such/Method{n}", 12))

    assert assembly.of_http2(SEEN, _called("no.Such/Method1000", 12)).route == "other"
    assert assembly.of_http2(SEEN, _called("pkg.Greeter/Hello", 0)).route == "pkg.Greeter/Hello"


def _called(method: str, code: int) -> Exchange:
    return Exchange(1, 1, 2, Ending.COMPLETE, "POST", "/" + method, status=200, rpc=RpcCall(method, code))


def test_how_the_agent_cut_a_request_goes_before_how_its_stream_ended() -> None:
    cut = Seen(1, HERE, 0, 0, Ending.AGENT_ENDED)
    lost = Exchange(1, 1, 2, Ending.PROTOCOL_LOST)

    assert Assembly().of_http2(cut, STREAM).ending is Ending.AGENT_ENDED
    assert Assembly().of_http2(SEEN, lost).ending is Ending.PROTOCOL_LOST
