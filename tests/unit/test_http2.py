"""Are the requests of an HTTP/2 connection read, from real gRPC too, and is nothing wrong said where bytes are missing?"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.receivers.inference.header_blocks import MAX_BLOCK, HeaderBlocks
from otel_gpu.receivers.inference.http2 import Connection, Exchange, Side
from otel_gpu.receivers.inference.http2_frames import PREFACE, FrameReader, FrameType
from otel_gpu.receivers.inference.request import Ending, RpcCall

CLIENT, SERVER = Side.CLIENT, Side.SERVER
Sent = list[tuple[Side, bytes]]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/embeddings"), (":authority", "here:8000")]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def headers(stream: int, block: bytes, flags: int = 4) -> bytes:
    return frame(FrameType.HEADERS, flags, stream, block)


def block(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(list(fields))


SETTINGS = frame(FrameType.SETTINGS, 0, 0, b"\0\3\0\0\0\x64")
REQUEST = PREFACE + SETTINGS + headers(1, block(*ASKED, ("traceparent", TRACE)), 5)
RESPONSE = SETTINGS + headers(1, block((":status", "200"))) + frame(FrameType.DATA, 1, 1, b"hello")


def one(exchanges: list[Exchange]) -> Exchange:
    (found,) = exchanges
    return found


def test_a_request_and_its_response() -> None:
    connection = Connection()

    assert connection.take(CLIENT, REQUEST, 10) == []
    assert connection.open_streams == 1
    found = one(connection.take(SERVER, RESPONSE, 20))
    assert (found.method, found.target, found.scheme, found.authority) == (
        "POST",
        "/v1/embeddings",
        "http",
        "here:8000",
    )
    assert (found.status, found.traceparents, found.rpc) == (200, (TRACE,), None)
    assert (found.start_ns, found.first_byte_ns, found.end_ns, found.response_body_bytes) == (10, 20, 20, 5)
    assert found.ending is Ending.COMPLETE
    assert not found.is_lost
    assert not connection.is_lost


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_frames_come_in_pieces(size: int) -> None:
    connection = Connection()
    found = []
    for side, data in ((CLIENT, REQUEST), (SERVER, RESPONSE)):
        for at in range(0, len(data), size):
            found += connection.take(side, data[at : at + size], at)

    assert one(found).target == "/v1/embeddings"
    assert not connection.is_lost


def test_a_header_block_goes_on_in_further_frames_behind_padding_and_priority() -> None:
    data = block(*ASKED)
    padded = b"\3" + b"\0\0\0\0\x10" + data[:5] + b"\0\0\0"
    connection = Connection()
    connection.take(
        CLIENT, PREFACE + headers(1, padded, 0x28) + frame(9, 0, 1, data[5:9]) + frame(9, 4, 1, data[9:]), 1
    )

    assert one(connection.take(SERVER, RESPONSE, 2)).target == "/v1/embeddings"
    assert not connection.is_lost


def test_chunks_of_a_stream_of_events_have_their_times() -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST, 1)
    connection.take(SERVER, headers(1, block((":status", "200"), ("content-type", "text/event-stream; x"))), 2)
    for now in (3, 4, 5):
        connection.take(SERVER, frame(FrameType.DATA, 0, 1, b"data: x\n\n"), now)
    found = one(connection.take(SERVER, frame(FrameType.DATA, 1, 1), 6))

    assert (found.first_byte_ns, found.first_chunk_ns, found.last_chunk_ns, found.end_ns) == (2, 3, 5, 6)
    assert (found.chunks, found.response_body_bytes, found.is_event_stream) == (3, 27, True)


def test_interim_responses_are_passed_over() -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST, 1)
    connection.take(SERVER, headers(1, block((":status", "103"))), 2)
    found = one(connection.take(SERVER, headers(1, block((":status", "404")), 5), 3))

    assert (found.status, found.first_byte_ns) == (404, 3)


@pytest.mark.parametrize("side", Side)
def test_a_stream_that_is_reset_is_cut(side: Side) -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST, 1)

    assert (
        one(connection.take(side, frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\x08"), 2)).ending
        is Ending.CONNECTION_CLOSED
    )


def test_what_goes_on_when_a_connection_closes_is_cut() -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST, 5)

    assert one(connection.close(4)).end_ns == 5
    assert connection.close(5) == []


def test_a_connection_that_begins_otherwise_is_no_http2() -> None:
    connection = Connection()

    assert connection.take(CLIENT, b"GET / HTTP/1.1\r\n\r\n", 1) == []
    assert connection.is_lost


@pytest.mark.parametrize("kind", range(11))
def test_frames_without_a_request_are_nobodys(kind: int) -> None:
    connection = Connection()
    connection.take(CLIENT, PREFACE, 1)
    for side in Side:
        for stream in (0, 2, 8):
            assert connection.take(side, frame(kind, 0xFF, stream, b"\0" * 8), 2) == []
    assert connection.open_streams == 0


def test_streams_are_bounded_and_those_without_room_counted() -> None:
    connection = Connection(max_streams=10)
    connection.take(CLIENT, PREFACE, 1)
    encoder = hpack.Encoder()
    for stream in range(1, 201, 2):
        connection.take(CLIENT, headers(stream, encoder.encode(ASKED), 5), 1)

    assert (connection.open_streams, connection.streams_left_out) == (10, 90)
    assert len(connection.close(2)) == 10


@pytest.mark.parametrize(
    "bad",
    [
        headers(3, b"\x80"),
        headers(3, b"\xff" * 100),
        headers(3, b"\x7f" + b"\xff" * 20),
        headers(3, b"\xfe"),
        headers(3, b"\x00\x7f"),
        headers(3, block(*ASKED), 0x0C),
        headers(3, b"", 0x0C),
        headers(3, b"\x01", 0x24),
        headers(3, b"\x82" * (MAX_BLOCK + 1)),
        headers(3, b"\x82" * MAX_BLOCK),
        headers(3, b"", 0) + frame(FrameType.DATA, 0, 3),
        headers(3, b"", 0) + frame(9, 4, 5),
        headers(3, b"", 0) + frame(9, 0, 3, b"\x82" * 1000) * 17 + frame(9, 4, 3),
        frame(9, 4, 3, b"\x82"),
        frame(FrameType.PUSH_PROMISE, 4, 3, b"\0\0"),
    ],
)
def test_a_malformed_block_is_not_known_and_later_ones_are_read(bad: bytes) -> None:
    connection = Connection()
    encoder = hpack.Encoder()
    connection.take(CLIENT, PREFACE + headers(1, encoder.encode([*ASKED, ("x", "y")]), 5) + bad, 1)
    assert connection.is_lost
    connection.close(1)

    connection.take(CLIENT, headers(5, encoder.encode(ASKED), 5) + headers(7, block(*ASKED), 5), 2)
    before, after = connection.close(3)

    assert (before.method, before.target, before.is_lost) == ("POST", "", True)
    assert (after.method, after.target, after.is_lost) == ("POST", "/v1/embeddings", False)


def test_fields_behind_a_gap_are_right_or_not_known() -> None:
    encoder, blocks = hpack.Encoder(), HeaderBlocks()
    first = [*ASKED, ("traceparent", TRACE)]
    second = [*ASKED[:2], (":path", "/new"), ASKED[3], ("traceparent", TRACE.replace("a", "b"))]
    encoder.encode(first)
    blocks.skip()

    found = blocks.read(encoder.encode(second))
    assert found.value(":path") == "/new"
    assert found.value(":authority") == ""
    # Its name is in the field that was not seen.
    assert found.value("traceparent") == ""
    assert not found.is_whole

    again = blocks.read(encoder.encode(second))
    assert (again.value(":path"), again.value("traceparent")) == ("/new", "")


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 12), st.booleans())
def test_whatever_blocks_are_missing_no_field_is_wrong(seed: int, each: int, small: bool) -> None:
    chance = random.Random(seed)
    encoder, blocks = hpack.Encoder(), HeaderBlocks(from_start=chance.random() < 0.5)
    if small:
        encoder.header_table_size = chance.choice([0, 64, 200, 4096])
    for _ in range(60):
        path = "/" + "p" * chance.randrange(80) + str(chance.randrange(6))
        trace = f"00-{chance.randrange(4)}"
        fields = [(":method", chance.choice(["GET", "POST"])), (":path", path), ("traceparent", trace), ("x", "y" * 70)]
        data = encoder.encode(fields)
        if chance.randrange(each) == 0:
            blocks.skip()
            continue
        found = blocks.read(data)
        assert set(found.fields) <= set(fields)
        assert set(found.fields) == set(fields[:3]) or not found.is_whole


def test_what_is_not_captured_of_data_loses_nothing() -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST, 1)
    head = headers(1, block((":status", "200")))
    data = head + frame(FrameType.DATA, 0, 1, b"x" * 1000)

    connection.take(SERVER, data[: len(head) + 9], 2, len(data))
    assert one(connection.take(SERVER, frame(FrameType.DATA, 1, 1), 3)).response_body_bytes == 1000
    assert not connection.is_lost


def test_where_frames_are_lost_requests_end_and_later_ones_are_seen() -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST, 1)

    lost = one(connection.take(CLIENT, b"", 2, 50))
    assert (lost.ending, lost.target) == (Ending.PROTOCOL_LOST, "/v1/embeddings")
    assert connection.take(CLIENT, b"\0" * 12, 3) == []
    connection.take(CLIENT, headers(3, block(*ASKED), 5), 4)
    assert one(connection.take(SERVER, RESPONSE.replace(b"\0\0\0\1", b"\0\0\0\3"), 5)).target == "/v1/embeddings"
    assert connection.is_lost


def test_a_block_that_was_captured_in_part_is_not_known() -> None:
    connection = Connection()
    connection.take(CLIENT, REQUEST[:-10], 1, len(REQUEST))

    found = one(connection.take(SERVER, RESPONSE, 2))
    assert (found.target, found.status, found.is_lost) == ("", 200, True)


def test_a_connection_that_was_open_before_is_read_from_the_next_frames_on() -> None:
    connection = Connection(from_start=False)
    encoder = hpack.Encoder()
    encoder.encode(ASKED)
    connection.take(SERVER, RESPONSE[5:], 1)
    connection.take(CLIENT, headers(9, encoder.encode([*ASKED[:2], (":path", "/new")]), 5), 2)
    found = one(connection.take(SERVER, headers(9, block((":status", "200")), 5), 3))

    assert (found.method, found.target, found.status, found.authority) == ("POST", "/new", 200, "")
    assert connection.is_lost


def call(*, asked: str = "/pkg.Greeter/Hello", kind: str = "application/grpc", code: str = "0") -> Exchange:
    connection = Connection()
    fields = [(":method", "POST"), (":path", asked), ("content-type", kind)]
    connection.take(CLIENT, PREFACE + headers(1, block(*fields)) + frame(FrameType.DATA, 1, 1, b"\0" * 5), 1)
    connection.take(SERVER, headers(1, block((":status", "200"), ("content-type", kind))), 2)
    return one(connection.take(SERVER, frame(0, 0, 1, b"\0" * 7) + headers(1, block(("grpc-status", code)), 5), 3))


def test_a_call_of_grpc_has_its_method_and_status() -> None:
    assert call().rpc == RpcCall("pkg.Greeter/Hello", 0)
    assert call(kind="application/grpc+proto", code="13").rpc == RpcCall("pkg.Greeter/Hello", 13)
    assert call(kind="application/grpcx").rpc is None
    assert call(kind="application/json").rpc is None


@pytest.mark.parametrize("asked", ["/", "/a", "/a/b/c", "/a b/c", "/a/\x1b", "/" + "a" * 300 + "/b", "a/b"])
def test_a_path_that_is_no_method_names_none(asked: str) -> None:
    assert call(asked=asked).rpc == RpcCall("", 0)


@pytest.mark.parametrize("code", ["", "-1", "0x1", "1.5", "9" * 10, "¹"])
def test_a_status_that_is_no_number_is_none(code: str) -> None:
    assert call(code=code).rpc == RpcCall("pkg.Greeter/Hello", None)


def test_a_response_of_trailers_alone_has_a_status() -> None:
    connection = Connection()
    connection.take(CLIENT, PREFACE + headers(1, block((":method", "POST"), (":path", "/a.B/C"))), 1)
    fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "12")]

    assert one(connection.take(SERVER, headers(1, block(*fields), 5), 2)).rpc == RpcCall("a.B/C", 12)


@given(st.binary(max_size=300), st.booleans(), st.integers(0, 300))
def test_any_bytes_are_taken_within_bounds(data: bytes, from_start: bool, more: int) -> None:
    connection = Connection(from_start=from_start)
    connection.take(CLIENT, REQUEST, 1)
    for side in Side:
        connection.take(side, data, 2, len(data) + more)
    assert connection.open_streams <= 256
    connection.close(3)
    assert sum(1 for _ in FrameReader().take(data)) <= len(data) // 9


class _Recorder:
    """Hands on what two sides say to each other, and keeps it in its order."""

    def __init__(self, port: int) -> None:
        self.sent: Sent = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._server = socket.create_connection(("127.0.0.1", port))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        back = threading.Thread(target=self._hand_on, args=(SERVER, self._server, client))
        back.start()
        self._hand_on(CLIENT, client, self._server)
        back.join()
        client.close()

    def _hand_on(self, side: Side, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the end, when either side resets the connection
            while data := source.recv(65536):
                with self._lock:
                    self.sent.append((side, data))
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> Sent:
        self._threads[0].join()
        self._listener.close()
        self._server.close()
        return self.sent


CALLS = 30


def _answer(request: bytes, context: grpc.ServicerContext) -> bytes:
    if request == b"fail":
        context.abort(grpc.StatusCode.INTERNAL, "as asked")
    return request * 100


def _stream(request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
    yield from (request, request)


@pytest.fixture(scope="module")
def conversation() -> Sent:
    """What a client and a server of gRPC say to each other in a number of calls."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handlers = {
        "Say": grpc.unary_unary_rpc_method_handler(_answer),
        "Stream": grpc.unary_stream_rpc_method_handler(_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    recorder = _Recorder(port)
    with grpc.insecure_channel(f"127.0.0.1:{recorder.port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        for n in range(CALLS):
            metadata = [("traceparent", trace_of(n)), ("tracestate", f"n={n}")]
            if n % 5 == 4:
                list(channel.unary_stream("/test.Echo/Stream")(b"x", metadata=metadata))
            elif n % 5 == 3:
                with pytest.raises(grpc.RpcError):
                    channel.unary_unary("/test.Echo/Say")(b"fail", metadata=metadata)
            elif n % 5 == 2:
                with pytest.raises(grpc.RpcError):
                    channel.unary_unary("/test.Echo/Unheard")(b"", metadata=metadata)
            else:
                channel.unary_unary("/test.Echo/Say")(b"hello" * n, metadata=metadata)
    server.stop(None).wait()
    return recorder.close()


def trace_of(n: int) -> str:
    return f"00-{n + 1:032x}-{n + 1:016x}-01"


def expected(n: int) -> RpcCall:
    return (
        RpcCall("test.Echo/Say", 0),
        RpcCall("test.Echo/Say", 0),
        RpcCall("test.Echo/Unheard", 12),
        RpcCall("test.Echo/Say", 13),
        RpcCall("test.Echo/Stream", 0),
    )[n % 5]


def replay(sent: Sent, connection: Connection, piece: int = 1 << 20) -> list[Exchange]:
    found = []
    for now, (side, data) in enumerate(sent):
        for at in range(0, len(data), piece):
            found += connection.take(side, data[at : at + piece], now)
    return found


@pytest.mark.parametrize("piece", [1 << 20, 100, 1])
def test_every_call_of_a_real_client_is_read(conversation: Sent, piece: int) -> None:
    connection = Connection()
    found = replay(conversation, connection, piece)

    assert [e.rpc for e in found] == [expected(n) for n in range(CALLS)]
    assert [e.traceparents for e in found] == [(trace_of(n),) for n in range(CALLS)]
    assert [e.tracestates for e in found] == [(f"n={n}",) for n in range(CALLS)]
    assert all(e.ending is Ending.COMPLETE and e.status == 200 and not e.is_lost for e in found)
    assert not connection.is_lost


def test_a_connection_that_is_joined_anywhere_is_read_rightly_or_not(conversation: Sent) -> None:
    told = 0
    for begin in range(1, len(conversation)):
        for found in replay(conversation[begin:], Connection(from_start=False)):
            n = (found.stream - 1) // 2
            assert found.traceparents in {(), (trace_of(n),)}
            assert found.rpc is None or found.rpc.method in {"", expected(n).method}
            assert found.rpc is None or found.rpc.status_code in {None, expected(n).status_code}
            assert found.is_lost or (found.rpc, found.traceparents) == (expected(n), (trace_of(n),))
            told += bool(found.traceparents)
    assert told


@pytest.mark.parametrize("captured", [9, 40, 100, 300])
def test_a_connection_that_is_captured_in_part_is_read_rightly_or_not(conversation: Sent, captured: int) -> None:
    connection = Connection()
    for now, (side, data) in enumerate(conversation):
        for found in connection.take(side, data[:captured], now, len(data)):
            n = (found.stream - 1) // 2
            assert found.traceparents in {(), (trace_of(n),)}
            assert found.rpc is None or found.rpc.method in {"", expected(n).method}
            assert found.rpc is None or found.rpc.status_code in {None, expected(n).status_code}
