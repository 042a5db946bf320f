"""Are heads read as RFC 9112 has it, whole or not, and is what servers may disagree on said instead of guessed?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.inference import http1
from otel_gpu.receivers.inference.http1 import (
    MAX_HEAD,
    MAX_LINES,
    final_response,
    parse_request,
    parse_response,
)
from otel_gpu.receivers.inference.http1_heads import Doubt, Framing, Missing, RequestHead, ResponseHead

GET = b"GET /v1/models?x=1 HTTP/1.1\r\nHost: here:8000\r\nAccept: */*\r\nTraceParent: \t00-a \r\n\r\n"


def request(data: bytes) -> RequestHead:
    head = parse_request(data)
    assert head is not None
    return head


def response(data: bytes, method: str = "GET") -> ResponseHead:
    head = parse_response(data, method)
    assert head is not None
    return head


def post(*headers: bytes, version: bytes = b"1.1") -> RequestHead:
    return request(b"POST / HTTP/" + version + b"\r\n" + b"".join(h + b"\r\n" for h in headers) + b"\r\nrest")


def answer(*headers: bytes, status: bytes = b"200 OK", method: str = "GET") -> ResponseHead:
    return response(b"HTTP/1.1 " + status + b"\r\n" + b"".join(h + b"\r\n" for h in headers) + b"\r\n", method)


def test_a_request_tells_its_line_and_its_named_headers_alone() -> None:
    head = request(GET + b"next")

    assert (head.method, head.target, head.version) == ("GET", "/v1/models?x=1", "1.1")
    assert head.headers.items == (("host", "here:8000"), ("traceparent", "00-a"))
    assert (head.host, head.size_bytes, head.framing) == ("here:8000", len(GET), Framing.NONE)
    assert head.is_whole
    assert not head.is_ambiguous


def test_empty_lines_before_a_request_are_passed_over() -> None:
    head = request(b"\r\n\r\n" + GET)

    assert (head.method, head.size_bytes) == ("GET", len(GET) + 4)
    assert parse_request(b"\r\n" * 10 + GET) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1x\r\n\r\n",
        b"GET / http/1.1\r\n\r\n",
        b"G@T / HTTP/1.1\r\n\r\n",
        b" GET / HTTP/1.1\r\n\r\n",
        b"M" * 33 + b" / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\xff\xfe",
        b"a" * 33,
    ],
)
def test_what_is_no_request_is_none(data: bytes) -> None:
    assert parse_request(data) is None


@pytest.mark.parametrize(
    ("data", "method", "target"),
    [
        (b"P", "", ""),
        (b"POST", "", ""),
        (b"POST ", "POST", ""),
        (b"POST /v1/chat", "POST", "/v1/chat"),
        (b"POST /v1 HTT", "POST", "/v1"),
        (b"POST /v1 HTTP/1.1\r", "POST", "/v1"),
    ],
)
def test_of_a_first_line_that_is_not_whole_what_is_there_is_told(data: bytes, method: str, target: str) -> None:
    head = request(data)

    assert (head.method, head.target, head.version) == (method, target, "")
    assert head.missing is Missing.START_LINE
    assert head.framing is Framing.UNKNOWN


@pytest.mark.parametrize("cut", range(len(GET)))
def test_a_head_that_is_cut_anywhere_says_what_is_missing_and_nothing_wrong(cut: int) -> None:
    head = parse_request(GET[:cut])

    if head is None:
        assert cut == 0
        return
    assert not head.is_whole
    assert head.framing is Framing.UNKNOWN
    assert "GET /v1/models?x=1 ".startswith(head.method)
    assert "/v1/models?x=1".startswith(head.target)
    assert head.headers.items == request(GET).headers.items[: len(head.headers.items)]
    assert head.size_bytes == cut


def test_a_value_that_may_go_on_in_a_line_that_was_not_captured_is_left_out() -> None:
    line = b"GET / HTTP/1.1\r\ntraceparent: 00\r\n"

    assert request(line).headers.values("traceparent") == ()
    assert request(line + b" ").headers.values("traceparent") == ()
    assert request(line + b"A").headers.values("traceparent") == ("00",)


@pytest.mark.parametrize(
    ("headers", "framing", "length"),
    [
        ((), Framing.NONE, None),
        ((b"Content-Length: 0",), Framing.NONE, None),
        ((b"Content-Length: 5",), Framing.LENGTH, 5),
        ((b"content-length:007",), Framing.LENGTH, 7),
        ((b"Transfer-Encoding: chunked",), Framing.CHUNKED, None),
        ((b"Transfer-Encoding: gzip, Chunked",), Framing.CHUNKED, None),
        ((b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"), Framing.CHUNKED, None),
    ],
)
def test_a_request_says_how_its_body_ends(headers: tuple[bytes, ...], framing: Framing, length: int | None) -> None:
    head = post(*headers)

    assert (head.framing, head.body_bytes, head.doubts) == (framing, length, ())


@pytest.mark.parametrize(
    ("headers", "doubt"),
    [
        ((b"Content-Length: 5", b"Transfer-Encoding: chunked"), Doubt.BOTH_LENGTHS),
        ((b"Content-Length: 5", b"Content-Length: 6"), Doubt.SEVERAL_LENGTHS),
        ((b"Content-Length: 5", b"Content-Length: 5"), Doubt.SEVERAL_LENGTHS),
        ((b"Content-Length: 5, 5",), Doubt.SEVERAL_LENGTHS),
        ((b"Content-Length: +5",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length: -5",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length: 0x5",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length: 5 5",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length: 1_0",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length: \xb2",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length:",), Doubt.MALFORMED_LENGTH),
        ((b"Content-Length: " + b"9" * 19,), Doubt.MALFORMED_LENGTH),
        ((b"Transfer-Encoding: chunked, gzip",), Doubt.CODING),
        ((b"Transfer-Encoding: chunked, chunked",), Doubt.CODING),
        ((b"Transfer-Encoding: identity",), Doubt.CODING),
        ((b"Transfer-Encoding: xchunked",), Doubt.CODING),
        ((b"Transfer-Encoding: chunked;q=1",), Doubt.CODING),
        ((b"Transfer-Encoding: \x0bchunked",), Doubt.CONTROL_CHARACTER),
        ((b"Transfer-Encoding:",), Doubt.CODING),
        ((b"Transfer-Encoding : chunked",), Doubt.MALFORMED_LINE),
        ((b"Transfer\0Encoding: chunked",), Doubt.MALFORMED_LINE),
        ((b"no colon",), Doubt.MALFORMED_LINE),
        ((b": nameless",), Doubt.MALFORMED_LINE),
        ((b" Transfer-Encoding: chunked",), Doubt.FOLDED_LINE),
        ((b"X: y", b"\tTransfer-Encoding: chunked"), Doubt.FOLDED_LINE),
        ((b"X: y\rTransfer-Encoding: chunked",), Doubt.BARE_CARRIAGE_RETURN),
        ((b"X: y\nTransfer-Encoding: chunked",), Doubt.BARE_LINE_FEED),
        ((b"X: \0",), Doubt.CONTROL_CHARACTER),
        ((b"X: y",) * (MAX_LINES + 1), Doubt.TOO_LONG),
    ],
)
def test_where_servers_may_disagree_the_body_is_not_known(headers: tuple[bytes, ...], doubt: Doubt) -> None:
    head = post(*headers)

    assert head.is_ambiguous
    assert doubt in head.doubts
    assert (head.framing, head.body_bytes) == (Framing.UNKNOWN, None)


@pytest.mark.parametrize(
    "line", [b"GET /a b HTTP/1.1", b"GET  / HTTP/1.1", b"GET /\t HTTP/1.1", b"GET /\0 HTTP/1.1", b"GET /\x7f HTTP/1.1"]
)
def test_a_first_line_with_other_parts_is_doubtful(line: bytes) -> None:
    assert request(line + b"\r\n\r\n").doubts == (Doubt.START_LINE,)


def test_chunks_in_http_1_0_are_doubtful() -> None:
    assert post(b"Transfer-Encoding: chunked", version=b"1.0").doubts == (Doubt.CODING,)


def test_a_value_that_is_folded_is_joined_by_a_blank() -> None:
    head = post(b"Host: a", b"\t b", b"X: y", b" z")

    assert head.headers.items == (("host", "a b"),)


def test_a_head_that_is_too_long_says_so() -> None:
    line = b"GET / HTTP/1.1\r\n"
    endless = request(line + b"X: " + b"y" * MAX_HEAD)
    lines = request(line + b"X: y\r\n" * MAX_HEAD)

    assert (endless.missing, endless.doubts) == (Missing.HEADERS, (Doubt.TOO_LONG,))
    assert Doubt.TOO_LONG in lines.doubts
    assert endless.size_bytes <= MAX_HEAD
    assert parse_request(b"GET /" + b"a" * MAX_HEAD) is None


def test_of_several_hosts_none_is_believed() -> None:
    assert post(b"Host: a", b"Host: b").host == ""


@pytest.mark.parametrize(
    ("status", "method", "headers", "framing", "length"),
    [
        (b"200 OK", "GET", (b"Content-Length: 5",), Framing.LENGTH, 5),
        (b"200 ", "GET", (b"Content-Length: 0",), Framing.NONE, None),
        (b"200", "GET", (b"Transfer-Encoding: chunked",), Framing.CHUNKED, None),
        (b"200 OK", "GET", (), Framing.UNTIL_CLOSE, None),
        (b"200 OK", "GET", (b"Transfer-Encoding: gzip",), Framing.UNTIL_CLOSE, None),
        (b"200 OK", "HEAD", (b"Content-Length: 5",), Framing.NONE, None),
        (b"200 OK", "HEAD", (b"Transfer-Encoding: chunked",), Framing.NONE, None),
        (b"204 No Content", "GET", (b"Content-Length: 5",), Framing.NONE, None),
        (b"304 Not Modified", "GET", (b"Content-Length: 5",), Framing.NONE, None),
        (b"100 Continue", "POST", (), Framing.NONE, None),
        (b"101 Switching Protocols", "GET", (), Framing.TUNNEL, None),
        (b"200 OK", "CONNECT", (b"Content-Length: 5",), Framing.TUNNEL, None),
        (b"404 Not Found", "CONNECT", (b"Content-Length: 5",), Framing.LENGTH, 5),
    ],
)
def test_a_response_says_how_its_body_ends(
    status: bytes, method: str, headers: tuple[bytes, ...], framing: Framing, length: int | None
) -> None:
    head = answer(*headers, status=status, method=method)

    assert (head.status, head.framing, head.body_bytes, head.doubts) == (int(status[:3]), framing, length, ())


@pytest.mark.parametrize(
    ("headers", "doubt"),
    [
        ((b"Content-Length: 5", b"Transfer-Encoding: chunked"), Doubt.BOTH_LENGTHS),
        ((b"Transfer-Encoding: chunked, chunked",), Doubt.CODING),
        ((b"Content-Length: 5", b"Content-Length: 6"), Doubt.SEVERAL_LENGTHS),
        ((b"Content-Length: five",), Doubt.MALFORMED_LENGTH),
    ],
)
def test_where_clients_may_disagree_the_body_is_not_known(headers: tuple[bytes, ...], doubt: Doubt) -> None:
    head = answer(*headers)

    assert doubt in head.doubts
    assert head.framing is Framing.UNKNOWN


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20\r\n\r\n", b"HTTP/1.1 2000\r\n\r\n", b"ICY 200 OK\r\n\r\n", b"data: x", b"HTTP/1.1 099 \r\n\r\n"]
)  # fmt: skip
def test_what_is_no_response_is_none(data: bytes) -> None:
    assert parse_response(data, "GET") is None


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_response_that_is_cut_anywhere_says_what_is_missing(cut: int) -> None:
    head = response(WHOLE[:cut])

    assert not head.is_whole
    assert head.status == (200 if cut >= len("HTTP/1.1 200") else None)
    assert head.framing is Framing.UNKNOWN
    assert not head.is_event_stream or cut > WHOLE.index(b"\r\n\r\n")


def test_a_stream_of_events_says_so() -> None:
    assert response(WHOLE).is_event_stream
    assert not answer(b"Content-Type: text/html").is_event_stream


def test_interim_responses_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"

    head, at = final_response(interim + WHOLE, "GET")
    assert head is not None
    assert (head.status, at) == (200, len(interim))

    head, at = final_response(interim, "GET")
    assert head is not None
    assert head.status == 103

    assert final_response(interim + b"garbage", "GET") == (None, len(interim))


def test_interim_responses_without_end_are_not_followed() -> None:
    head, at = final_response(b"HTTP/1.1 100 \r\n\r\n" * 1000, "GET")

    assert head is not None
    assert head.is_interim
    assert at < 1000


def test_an_upgrade_is_no_interim_response() -> None:
    head, at = final_response(b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "GET")

    assert head is not None
    assert (head.status, at) == (101, 0)


def test_the_beginning_of_http2_is_no_request() -> None:
    assert parse_request(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") is None


_name = st.from_regex(r"[A-Za-z][A-Za-z-]{0,20}", fullmatch=True)
_value = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30)


@given(st.sampled_from(["GET", "POST", "QUERY"]), _value, st.lists(st.tuples(_name, _value)), st.binary(max_size=50))
def test_what_is_well_formed_is_read_back(
    method: str, target: str, headers: list[tuple[str, str]], rest: bytes
) -> None:
    named = {"connection", "content-type", "host", "traceparent", "tracestate", "upgrade"}
    headers = [(k, v) for k, v in headers if k.lower() not in {"content-length", "transfer-encoding", "expect"}]
    headers.append(("Host", "h"))
    lines = [f"{method} /{target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers), "", ""]
    data = "\r\n".join(lines).encode()

    head = request(data + rest)

    assert (head.method, head.target, head.size_bytes, head.doubts) == (method, "/" + target, len(data), ())
    assert head.headers.items == tuple((k.lower(), v) for k, v in headers if k.lower() in named)


_line = st.sampled_from(
    b"Host: a|host:b |HOST: c|X: y|| folded|Content-Length: 5|Transfer-Encoding: chunked|Connection: close|x|A b: c|"
    b"X:\x0b|X:\xff|TraceParent: \t t \t|Expect:100-continue".split(b"|")
)


@given(
    st.lists(_line, max_size=6),
    st.sampled_from([b"\r\n", b"\n", b"\r"]),
    st.sampled_from([b"GET / HTTP/1.1", b"HTTP/1.0 200 OK"]),
)
def test_heads_that_are_read_at_once_say_what_they_say_line_by_line(
    lines: list[bytes], end: bytes, first: bytes
) -> None:
    for data in (b"\r\n".join([first, *lines, b"", b""]), end.join([first, *lines, b""]) + b"\r\n"):
        assert parse_request(data) == http1._read_request(data)
        assert parse_response(data, "GET") == http1._read_response(data, "GET")


@given(st.binary(max_size=400), st.sampled_from([b"", b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"]))
def test_any_bytes_are_read_within_bounds(data: bytes, begin: bytes) -> None:
    for head in (parse_request(begin + data), parse_response(begin + data, "GET"), final_response(begin + data, "")[0]):
        if head is not None:
            assert head.size_bytes <= len(begin + data)
            assert (head.framing is Framing.UNKNOWN) >= (bool(head.doubts) or not head.is_whole)
