"""Receivers that do anything but answer: an attempt ends in time all the same, and so does shutdown."""

from __future__ import annotations

import gzip
import itertools
import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from otel_gpu.exporters.delivery.payload import Payload
from otel_gpu.exporters.delivery.sender import Accepted, Sender
from otel_gpu.exporters.delivery.settings import RetrySettings
from otel_gpu.exporters.otlp.connections import Connections
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.grpc_relay import Relay
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.exporters.otlp.tls import shown_certificate
from otel_gpu.service.exporting import Exporters

TIMEOUT_S = 0.25
ENOUGH_S = 15.0
"""Within which an attempt is over, on a busy machine too: half of what a hostile receiver would make of it."""
DEADLINE_S = 30.0
"""How long a hostile receiver goes on."""
BODY = bytes(16 << 20)
"""More than sockets buffer."""

Behaviour = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


class Receiver:
    """A server that treats every connection in its own way."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._stop = threading.Event()
        self.connections = 0
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self.socket.accept()
            except OSError:
                self._stop.wait(0.05)  # closed, or no descriptor is left for a while
                continue
            self.connections += 1
            threading.Thread(target=self._treat, args=(connection,), daemon=True).start()

    def _treat(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(DEADLINE_S)
            try:
                self._behaviour(connection)
            except OSError:
                pass  # the client has hung up, as it should

    def close(self) -> None:
        self._stop.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@pytest.fixture
def receive() -> Iterator[Callable[[Behaviour], Receiver]]:
    receivers: list[Receiver] = []

    def start(behaviour: Behaviour) -> Receiver:
        receivers.append(Receiver(behaviour))
        return receivers[-1]

    yield start
    for receiver in receivers:
        receiver.close()


def slowly(connection: socket.socket, text: bytes, pause_s: float = 0.05) -> None:
    for byte in itertools.islice(itertools.cycle(text), int(DEADLINE_S / pause_s)):
        connection.sendall(bytes([byte]))
        time.sleep(pause_s)


def quickly(connection: socket.socket, text: bytes) -> None:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        connection.sendall(text)


def read_some(connection: socket.socket) -> bytes:
    """Receive something; the client's end is an error, for it would be received again and again."""
    if not (received := connection.recv(1 << 20)):
        raise ConnectionResetError("the client has hung up")
    return received


def read_request(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += read_some(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")]
    length = lengths[0] if lengths else 0
    while len(body) < length:
        body += read_some(connection)


def answering(answer: Behaviour) -> Behaviour:
    def behave(connection: socket.socket) -> None:
        read_request(connection)
        answer(connection)

    return behave


def saying(text: bytes) -> Behaviour:
    return answering(lambda c: c.sendall(text))


OK = b"HTTP/1.1 200 OK\r\n"
OVER_HTTP: dict[str, Behaviour] = {
    "says nothing": answering(lambda _: time.sleep(DEADLINE_S)),
    "a slow status line": answering(lambda c: slowly(c, b"HTTP/1.1 200 OK" + b" " * 1000)),
    "a slow header": answering(lambda c: (c.sendall(OK + b"X-Header: "), slowly(c, b"x"))),
    "slow headers": answering(lambda c: (c.sendall(OK), slowly(c, b"a: b\r\n"))),
    "a slow body": answering(lambda c: (c.sendall(OK + b"Content-Length: 60000\r\n\r\n"), slowly(c, b"x"))),
    "a slow body without end": answering(lambda c: (c.sendall(OK + b"\r\n"), slowly(c, b"x"))),
    "slow chunks": answering(
        lambda c: (c.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n"), slowly(c, b"1\r\nx\r\n"))
    ),
    "slow trailers": answering(
        lambda c: (c.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"), slowly(c, b"a: b\r\n"))
    ),
    "quick trailers": answering(
        lambda c: (c.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"), quickly(c, b"a: b\r\n" * 1000))
    ),
    "slow interim answers": answering(lambda c: slowly(c, b"HTTP/1.1 100 Continue\r\n\r\n", 0.01)),
    "interim answers with slow headers": answering(
        lambda c: (c.sendall(b"HTTP/1.1 103 Early Hints\r\n"), slowly(c, b"a: b\r\n"))
    ),
    "does not read": lambda _: time.sleep(DEADLINE_S),
    "reads slowly": lambda c: [(c.recv(1), time.sleep(0.05)) for _ in range(int(DEADLINE_S / 0.05))],
}
AT_ONCE: dict[str, Behaviour] = {
    "quick interim answers": answering(lambda c: quickly(c, b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)),
    "quick headers": answering(lambda c: (c.sendall(OK), quickly(c, b"a: b\r\n" * 1000))),
    "a quick header": answering(lambda c: (c.sendall(OK + b"a: "), quickly(c, b"b" * 10_000))),
    "noise": lambda c: quickly(c, random.Random(2).randbytes(10_000)),
    "hangs up": lambda _: None,
}


def attempt(
    port: int,
    protocol: str,
    body: bytes = BODY,
    scheme: str = "http",
    timeout_s: float = TIMEOUT_S,
    host: str = "127.0.0.1",
    **more: object,
) -> tuple[float, str]:
    """Return how long one attempt took, and how it failed."""
    settings = OtlpSettings(
        endpoint=f"{scheme}://{host}:{port}",
        protocol=protocol,  # type: ignore[arg-type]
        timeout_s=timeout_s,
        compression="none",
        retry=RetrySettings(enabled=False),
        **more,  # type: ignore[arg-type]
    )
    exporter = OtlpExporter(settings)
    began = time.monotonic()
    exporter.submit("metrics", Payload(body, 1, len(body)))
    while not (stats := exporter.stats()).failed_points and time.monotonic() < began + DEADLINE_S:
        time.sleep(0.01)
    took_s = time.monotonic() - began
    exporter.shutdown(1)
    assert stats.failed_points == 1, stats
    return took_s, str(stats.last_error)


@pytest.mark.parametrize("name", OVER_HTTP)
def test_an_attempt_over_http_has_one_deadline(name: str, receive: Callable[[Behaviour], Receiver]) -> None:
    took_s, reason = attempt(receive(OVER_HTTP[name]).port, "http/protobuf")

    assert took_s < ENOUGH_S
    assert reason == f"no answer within {TIMEOUT_S} s"


@pytest.mark.parametrize("name", ["says nothing", "a slow status line", "slow interim answers", "does not read"])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_is_part_of_the_attempt(
    name: str, protocol: str, scheme: str, receive: Callable[[Behaviour], Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{receive(OVER_HTTP[name]).port}")

    took_s, reason = attempt(4318, protocol, b"x", scheme, host="192.0.2.1")

    assert took_s < ENOUGH_S
    # To Python's own client the first interim answer of a proxy is a refusal.
    assert reason.startswith(("gRPC ", "ProxyError: ")) or reason == f"no answer within {TIMEOUT_S} s"


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_is_no_answer_ends_an_attempt_at_once(name: str, receive: Callable[[Behaviour], Receiver]) -> None:
    took_s, reason = attempt(receive(AT_ONCE[name]).port, "http/protobuf", b"x", timeout_s=DEADLINE_S)

    assert took_s < ENOUGH_S
    assert reason.isprintable()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: /v1/metrics\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 999999999999\r\n\r\n" + b"x" * 1_000_000,
        b"HTTP/1.1 400 Bad Request\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
        % (len(bomb := gzip.compress(bytes(64 << 20))), bomb),
        b"HTTP/1.1 400 Bad Request\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz",
        b"HTTP/1.1 400 Bad Request\r\nContent-Encoding: br, gzip\r\nContent-Length: 3\r\n\r\nxyz",
    ],
)
def test_redirections_and_large_answers_are_not_followed(
    answer: bytes, receive: Callable[[Behaviour], Receiver]
) -> None:
    receiver = receive(saying(answer))

    took_s, reason = attempt(receiver.port, "http/protobuf", b"x", timeout_s=DEADLINE_S)

    assert took_s < ENOUGH_S
    assert reason.startswith(("HTTP 302", "HTTP 400"))
    assert len(reason) < 500
    assert receiver.connections == 1


def test_a_connection_is_kept_for_the_next_request(receive: Callable[[Behaviour], Receiver]) -> None:
    def answer_all(connection: socket.socket) -> None:
        while True:
            read_request(connection)
            connection.sendall(OK + b"Content-Length: 0\r\n\r\n")

    receiver = receive(answer_all)
    exporter = OtlpExporter(OtlpSettings(endpoint=f"http://127.0.0.1:{receiver.port}", protocol="http/protobuf"))
    for _ in range(5):
        exporter.submit("metrics", Payload(b"x", 1, 1))
    exporter.shutdown(10)

    assert exporter.stats().sent_points == 5
    assert receiver.connections == 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Make an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


SETTINGS, PING, HEADERS, CONTINUATION, DATA, WINDOW = 4, 6, 1, 9, 0, 8
STATUS_OK = b"\x88"  # `:status: 200`, from the static table
GRPC_TYPE = b"\x40\x0ccontent-type\x10application/grpc"


def speaking_http2(rest: Behaviour) -> Behaviour:
    def behave(connection: socket.socket) -> None:
        connection.sendall(frame(SETTINGS, 0, 0))
        received = b""
        while b"Export" not in received and b"\x00\x00\x00\x01\x05" not in received:
            received += read_some(connection)
            if len(received) > 400:
                break
        connection.sendall(frame(SETTINGS, 1, 0))
        rest(connection)

    return behave


HEAD = frame(HEADERS, 4, 1, STATUS_OK + GRPC_TYPE)
OVER_GRPC: dict[str, Behaviour] = {
    "says nothing": lambda _: time.sleep(DEADLINE_S),
    "slow bytes": lambda c: slowly(c, frame(SETTINGS, 0, 0)),
    "only settings": speaking_http2(lambda _: time.sleep(DEADLINE_S)),
    "slow settings": speaking_http2(lambda c: slowly(c, frame(SETTINGS, 0, 0))),
    "slow pings": speaking_http2(lambda c: slowly(c, frame(PING, 0, 0, bytes(8)), 0.02)),
    "a slow header block": speaking_http2(
        lambda c: (c.sendall(frame(HEADERS, 0, 1, STATUS_OK)), slowly(c, frame(CONTINUATION, 0, 1, b"\x40\x01a\x01b")))
    ),
    "a slow body": speaking_http2(
        lambda c: (c.sendall(HEAD + struct.pack(">I", 60_000)[1:] + bytes([DATA, 0, 0, 0, 0, 1])), slowly(c, b"\0"))
    ),
    "slow trailers": speaking_http2(
        lambda c: (
            c.sendall(HEAD + frame(DATA, 0, 1, bytes(5)) + frame(HEADERS, 0, 1)),
            slowly(c, frame(CONTINUATION, 0, 1, b"\x40\x01a\x01b")),
        )
    ),
    "does not read": lambda c: (c.sendall(frame(SETTINGS, 0, 0)), time.sleep(DEADLINE_S)),
}
OVER_GRPC_QUICKLY: dict[str, Behaviour] = {
    "noise": lambda c: quickly(c, random.Random(3).randbytes(10_000)),
    "HTTP/1.1": lambda c: c.sendall(OK + b"Content-Length: 0\r\n\r\n"),
    "quick pings": speaking_http2(lambda c: quickly(c, frame(PING, 0, 0, bytes(8)) * 1000)),
    "quick headers": speaking_http2(
        lambda c: (
            c.sendall(frame(HEADERS, 0, 1, STATUS_OK)),
            quickly(c, frame(CONTINUATION, 0, 1, b"\x40\x01a\x01b" * 1000)),
        )
    ),
    "large trailers": speaking_http2(
        lambda c: (
            c.sendall(HEAD + frame(HEADERS, 5, 1, b"\x40\x01a\x7f\x81\x7e" + b"x" * 16_000)),
            time.sleep(DEADLINE_S),
        )
    ),
}


@pytest.mark.parametrize("name", [*OVER_GRPC, *OVER_GRPC_QUICKLY])
def test_an_attempt_over_grpc_has_one_deadline(name: str, receive: Callable[[Behaviour], Receiver]) -> None:
    receiver = receive({**OVER_GRPC, **OVER_GRPC_QUICKLY}[name])

    took_s, reason = attempt(receiver.port, "grpc", BODY[: 3 << 20])

    assert took_s < ENOUGH_S
    assert reason.startswith("gRPC ") or reason == f"no answer within {TIMEOUT_S} s"


SLOW_TLS: dict[str, Behaviour] = {
    "says nothing": lambda _: time.sleep(DEADLINE_S),
    "a slow record": lambda c: (c.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xf0"), slowly(c, b"\x03")),
    "slow alerts": lambda c: slowly(c, b"\x15\x03\x03\x00\x02\x01\x5a", 0.02),
    "does not read": lambda _: time.sleep(DEADLINE_S),
}


@pytest.mark.parametrize("name", SLOW_TLS)
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_handshake_is_part_of_the_attempt(
    name: str, protocol: str, verify: bool, receive: Callable[[Behaviour], Receiver]
) -> None:
    receiver = receive(SLOW_TLS[name])

    took_s, reason = attempt(receiver.port, protocol, b"x", "https", insecure_skip_verify=not verify)

    assert took_s < ENOUGH_S
    # OpenSSL ends some of them sooner.
    assert f"no answer within {TIMEOUT_S} s" in reason or "SSL" in reason or reason.startswith("gRPC ")


def test_a_certificate_is_asked_for_within_the_time_of_the_attempt(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=test", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"),
        ],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("the openssl command cannot make a certificate")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    turns = itertools.count()

    def shake_hands_once(connection: socket.socket) -> None:
        if next(turns):
            slowly(connection, b"\x16\x03\x03\x40\x00")
        else:
            with context.wrap_socket(connection, server_side=True) as secure:
                secure.recv(1)

    receiver = Receiver(shake_hands_once)
    began = time.monotonic()

    with pytest.raises(OSError, match=r"."):
        shown_certificate(f"127.0.0.1:{receiver.port}", TIMEOUT_S)

    assert time.monotonic() - began < ENOUGH_S
    assert receiver.connections == 2
    receiver.close()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("name", ["a slow status line", "quick interim answers", "does not read", "slow pings"])
def test_shutdown_keeps_its_deadline_whatever_the_receiver_does(
    protocol: str, name: str, receive: Callable[[Behaviour], Receiver]
) -> None:
    receiver = receive({**OVER_HTTP, **AT_ONCE, **OVER_GRPC}[name])
    exporter = OtlpExporter(
        OtlpSettings(endpoint=f"http://127.0.0.1:{receiver.port}", protocol=protocol, timeout_s=DEADLINE_S)  # type: ignore[arg-type]
    )
    for signal in ("metrics", "traces", "profiles"):
        for _ in range(3):
            exporter.submit(signal, Payload(BODY[: 1 << 20], 1, 1 << 20))
    while not receiver.connections:
        time.sleep(0.01)

    began = time.monotonic()
    exporter.shutdown(0.5)

    assert time.monotonic() - began < ENOUGH_S
    assert exporter.stats().failed_points + exporter.stats().dropped_points == 9


def test_a_name_that_is_looked_up_for_ever_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer = threading.Event()
    real = socket.getaddrinfo

    def hanging(host: str, *arguments: object, **more: object) -> object:
        if host != "slow.example":
            return real(host, *arguments, **more)
        if more.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        asked.append(host)
        answer.wait(DEADLINE_S)
        return real("127.0.0.1", *arguments[:1], type=socket.SOCK_STREAM)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    connections = Connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for _ in range(3):
            began = time.monotonic()
            with connections.within(0.1), pytest.raises(TimeoutError, match="not looked up in time"):
                connections.connect("slow.example", port, connections.left_s)
            assert time.monotonic() - began < ENOUGH_S
        answer.set()
        with connections.within(DEADLINE_S):
            connections.connect("slow.example", port, connections.left_s).close()

    assert asked == ["slow.example"]


def test_each_address_of_a_name_gets_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.2", 0), backlog=0) as full,
    ):
        # Two more connections than wait to be accepted: the next one is answered by nobody.
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in (full.getsockname(), server.getsockname())
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        connections = Connections()

        with (
            connections.within(DEADLINE_S / 10),
            connections.connect("two.example", 1, connections.left_s) as connection,
        ):
            assert connection.getpeername() == server.getsockname()

        for one in waiting:
            one.close()


def test_a_name_of_many_addresses_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = itertools.count()

    def addresses(*_: object, **__: object) -> Iterator[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", next(tried) and 1)) for _ in range(1000)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    connects = itertools.count()
    real = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda s, a: (next(connects), real(s, a))[1])
    connections = Connections()

    with connections.within(TIMEOUT_S), pytest.raises(OSError, match="refused"):
        connections.connect("many.example", 1, connections.left_s)

    assert next(connects) <= 8


class Stuck:
    """An exporter that takes its time, as one of another package may."""

    name = "stuck"

    def __init__(self) -> None:
        self.told = threading.Event()

    def shutdown(self, timeout_s: float) -> None:
        self.told.set()
        time.sleep(DEADLINE_S)


class Quick(Stuck):
    def shutdown(self, timeout_s: float) -> None:
        assert timeout_s == 0.2
        self.told.set()


class Failing(Stuck):
    def shutdown(self, timeout_s: float) -> None:
        self.told.set()
        raise ValueError(timeout_s)


def test_an_exporter_that_never_ends_takes_nobody_elses_time() -> None:
    exporters = [Failing(), Stuck(), Quick(), Stuck(), Quick()]
    began = time.monotonic()

    Exporters({"metrics": {str(n): e for n, e in enumerate(exporters)}}).shutdown(0.2)  # type: ignore[misc]

    assert time.monotonic() - began < ENOUGH_S
    assert all(exporter.told.is_set() for exporter in exporters)


def test_a_transport_that_never_closes_does_not_hold_up_its_sender() -> None:
    class Endless:
        def send(self, body: bytes, timeout_s: float) -> Accepted:
            return Accepted()

        def close(self) -> None:
            time.sleep(DEADLINE_S)

    sender = Sender("endless", Endless(), timeout_s=1, retry=RetrySettings(), queue_size=1)
    sender.submit(Payload(b"", 1, 0))
    began = time.monotonic()

    sender.shutdown(0.5)

    assert time.monotonic() - began < ENOUGH_S
    assert sender.stats().sent_points == 1


def test_only_this_process_may_use_the_way_to_the_receiver(receive: Callable[[Behaviour], Receiver]) -> None:
    receiver = receive(lambda c: c.sendall(b"hello"))
    relay = Relay("127.0.0.1", receiver.port, DEADLINE_S)
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + sys.argv[1]); print(s.recv(100))"
    )
    name = relay.address.removeprefix("unix-abstract:")

    stranger = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=True)
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(f"\0{name}")
        heard = own.recv(100)
    relay.close()

    assert (stranger.stdout, heard) == ("b''\n", b"hello")
    assert receiver.connections == 1
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(f"\0{name}")


def test_a_way_without_a_descriptor_left_is_open_again_later(receive: Callable[[Behaviour], Receiver]) -> None:
    relay = Relay("127.0.0.1", receive(lambda c: c.sendall(b"hello")).port, DEADLINE_S)
    name = relay.address.removeprefix("unix-abstract:")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        socket.socket(socket.AF_UNIX) as first,
        socket.socket(socket.AF_UNIX) as early,
        socket.socket(socket.AF_UNIX) as late,
    ):
        first.connect(f"\0{name}")
        assert first.recv(100) == b"hello"
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            early.connect(f"\0{name}")
            with pytest.raises(OSError, match="Too many open files"):
                socket.socket()
            time.sleep(0.3)  # long enough for it to fail; it has to go on whether or not it did
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        late.connect(f"\0{name}")
        late.settimeout(DEADLINE_S)

        assert late.recv(100) == b"hello"
    relay.close()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("host", ["a..b", f"{'x' * 70}.example"])
def test_a_name_that_is_none_is_a_failure_like_others(protocol: str, host: str) -> None:
    settings = OtlpSettings(
        endpoint=f"http://{host}:1",
        protocol=protocol,  # type: ignore[arg-type]
        retry=RetrySettings(enabled=False),
    )
    exporter = OtlpExporter(settings)
    exporter.submit("metrics", Payload(b"", 1, 0))
    exporter.shutdown(DEADLINE_S)

    assert exporter.stats().failed_points == 1
    assert str(exporter.stats().last_error).endswith("its name cannot be looked up")


def test_a_channel_that_was_cut_connects_again(receive: Callable[[Behaviour], Receiver]) -> None:
    """A receiver that floods the first connection and serves the second."""
    real = grpc.server(futures.ThreadPoolExecutor(1), handlers=[AnyMethod()])
    port = real.add_insecure_port("127.0.0.1:0")
    real.start()
    turns = itertools.count()

    def flood_first(connection: socket.socket) -> None:
        if not next(turns):
            OVER_GRPC_QUICKLY["quick pings"](connection)
            return
        with socket.create_connection(("127.0.0.1", port)) as onward:
            pumps = [threading.Thread(target=pump, args=pair) for pair in ((connection, onward), (onward, connection))]
            for thread in pumps:
                thread.start()
            for thread in pumps:
                thread.join()

    receiver = receive(flood_first)
    exporter = OtlpExporter(
        OtlpSettings(
            endpoint=f"http://127.0.0.1:{receiver.port}",
            retry=RetrySettings(initial_interval_s=0.1, max_interval_s=0.2),
        )
    )
    exporter.submit("metrics", Payload(b"", 1, 0))
    deadline = time.monotonic() + DEADLINE_S
    while not exporter.stats().sent_points and time.monotonic() < deadline:
        time.sleep(0.02)
    exporter.shutdown(1)
    real.stop(0)

    assert exporter.stats().sent_points == 1
    assert exporter.stats().retries > 0


class AnyMethod(grpc.GenericRpcHandler):
    def service(self, _call: object) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda _body, _context: b"")


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while block := source.recv(65_536):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_flood_over_grpc_costs_neither_memory_nor_time(receive: Callable[[Behaviour], Receiver]) -> None:
    receiver = receive(OVER_GRPC_QUICKLY["quick pings"])
    before = resident_bytes()

    for _ in range(10):
        took_s, reason = attempt(receiver.port, "grpc", b"x" * 100_000, timeout_s=DEADLINE_S)
        assert took_s < ENOUGH_S
        assert "more than 1 MiB" in reason

    assert resident_bytes() - before < 30 << 20
