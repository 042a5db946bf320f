"""Are the messages of a real client and a real server told from each other on one connection?"""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from otel_gpu.receivers.inference.http1 import final_response, parse_request
from otel_gpu.receivers.inference.http1_body import Body
from otel_gpu.receivers.inference.http1_heads import Framing

SIZES = (0, 1, 17, 4096, 70_000)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    received: ClassVar[list[bytes]] = []
    sent: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        rfile, wfile = self.rfile, self.wfile
        self.rfile, self.wfile = _Copy(rfile, self.received), _Copy(wfile, self.sent)  # type: ignore[assignment]
        super().handle()
        self.rfile, self.wfile = rfile, wfile

    def _answer(self) -> None:
        size = int(self.path.rpartition("/")[2])
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while length := int(self.rfile.readline(), 16):
                self.rfile.read(length + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200 if size != 1 else 204)
        if "/chunked/" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command != "HEAD":
                for part in (b"x" * size, b"y" * 300):
                    if part:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")
        elif size == 1:
            self.end_headers()
        else:
            self.send_header("Content-Length", str(size))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(b"x" * size)

    do_GET = do_POST = do_HEAD = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class _Copy:
    """A file that keeps what goes through it."""

    def __init__(self, file: object, kept: list[bytes]) -> None:
        self._file, self._kept = file, kept

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read(self, size: int) -> bytes:
        return self._keep(self._file.read(size))  # type: ignore[attr-defined]

    def readline(self, limit: int = -1) -> bytes:
        return self._keep(self._file.readline(limit))  # type: ignore[attr-defined]

    def write(self, data: bytes) -> int:
        self._keep(data)
        return self._file.write(data)  # type: ignore[attr-defined, no-any-return]

    def _keep(self, data: bytes) -> bytes:
        self._kept.append(data)
        return data


Asked = list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def conversation() -> tuple[Asked, bytes, bytes]:
    """What was asked on one connection, and the bytes of its two directions."""
    asked: Asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        client = http.client.HTTPConnection("127.0.0.1", server.server_port)
        for size in SIZES:
            for method, kind in (("GET", "length"), ("GET", "chunked"), ("HEAD", "length"), ("POST", "chunked")):
                if size == 1 and kind == "chunked":
                    continue
                body = b"z" * size
                if method == "POST":
                    chunks = [body, b"end"] if body else [b"end"]
                    client.request(method, f"/{kind}/{size}", iter(chunks), encode_chunked=True)
                    asked.append((method, f"/{kind}/{size}", size + 3))
                else:
                    client.request(method, f"/{kind}/{size}", body if method == "GET" else None)
                    asked.append((method, f"/{kind}/{size}", size if method == "GET" else 0))
                client.getresponse().read()
        assert isinstance(client.sock, socket.socket)
        client.close()
        server.shutdown()
        thread.join()
    return asked, b"".join(_Handler.received), b"".join(_Handler.sent)


def requests(data: bytes, captured: int) -> Iterator[tuple[str, str, int]]:
    """Yield the requests of a direction of which only so much is captured behind each head."""
    while data:
        head = parse_request(data[:2048])
        assert head is not None
        assert head.is_whole
        assert not head.doubts
        body = Body(head.framing, head.body_bytes)
        rest = data[head.size_bytes :]
        is_chunked = head.framing is Framing.CHUNKED
        taken = body.take(rest if is_chunked else rest[:captured], len(rest))
        assert body.is_complete
        yield head.method, head.target, body.body_bytes
        data = rest[taken:]


@pytest.mark.parametrize("captured", [0, 100, 1 << 20])
def test_requests_on_one_connection_are_told_apart(conversation: tuple[Asked, bytes, bytes], captured: int) -> None:
    asked, received, _ = conversation

    assert list(requests(received, captured)) == asked


def test_responses_on_one_connection_are_told_apart(conversation: tuple[Asked, bytes, bytes]) -> None:
    asked, _, data = conversation
    for method, path, _ in asked:
        size = int(path.rpartition("/")[2])
        head, at = final_response(data[:2048], method)
        assert head is not None
        assert head.status == (204 if size == 1 else 200)
        body = Body(head.framing, head.body_bytes)
        rest = data[at + head.size_bytes :]
        taken = body.take(rest)
        assert body.is_complete
        if method == "HEAD" or size == 1:
            assert body.body_bytes == 0
        else:
            assert body.body_bytes == size + (300 if "/chunked/" in path else 0)
        data = rest[taken:]
    assert data == b""
