"""How is something told over HTTP to whoever asks, at no cost to others?

A client that is slow, sends much or comes often costs itself: every connection has one deadline and little room, a new
one takes the place of the oldest, and only so many are taken a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import Callable

from ..components.values import parse_endpoint
from ..errors import OtelGpuError
from ..runtime.supervision import Worker
from ..signals.structs import Frozen

_ANSWER_S = 5.0
"""How long a client may take for its request and for taking the answer."""
_MAX_REQUEST = 8192
_MAX_OPEN = 64
_MAX_A_SECOND = 100
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Request(Frozen):
    """What of a request counts."""

    method: str
    path: str
    """Without a query, nor a slash at the end."""
    accept: str
    """The header of this name."""


class Answer(Frozen):
    """What is told."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    """Further ones; neither names nor values are a stranger's."""


class HttpListener:
    """Answers GET and HEAD from construction to `close`, in a thread of its own."""

    def __init__(
        self, name: str, endpoint: str, answer: Callable[[Request], Answer], *, trouble: str, setting: str
    ) -> None:
        """Listen; OtelGpuError, which says the trouble and which setting to change, where that cannot be.

        The thread is called `name`.
        """
        self._answer_to = answer
        self._listener = _listen(endpoint, trouble, setting)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._open: dict[asyncio.Task[None], None] = {}
        self._second, self._taken = 0.0, 0
        self.worker = Worker(name, self._serve, interrupt=self._interrupt, stuck_after_s=math.inf)
        self.worker.start()

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it listens on."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def close(self, timeout_s: float = _ANSWER_S) -> None:
        """Listen no longer; idempotent."""
        self.worker.stop(timeout_s)
        self._listener.close()

    def _interrupt(self) -> None:
        if self._loop is not None and self._stopped is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    def _serve(self) -> float:
        asyncio.run(self._take_connections())
        return 0.0

    async def _take_connections(self) -> None:
        loop = asyncio.get_running_loop()
        self._stopped, self._loop = asyncio.Event(), loop
        if self.worker.is_stopping:
            return
        loop.add_reader(self._listener, self._take)
        await self._stopped.wait()
        loop.remove_reader(self._listener)

    def _take(self) -> None:
        loop, now = asyncio.get_running_loop(), time.monotonic()
        if now - self._second >= 1:
            self._second, self._taken = now, 0
        if self._taken >= _MAX_A_SECOND:
            # The others wait in the kernel, or are refused there.
            loop.remove_reader(self._listener)
            loop.call_at(self._second + 1, loop.add_reader, self._listener, self._take)
            return
        self._taken += 1
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        task = loop.create_task(self._answer_in_time(client))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))
        if len(self._open) > _MAX_OPEN:
            next(iter(self._open)).cancel()

    async def _answer_in_time(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._answer(client), _ANSWER_S)

    async def _answer(self, client: socket.socket) -> None:
        loop, request = asyncio.get_running_loop(), b""
        while b"\r\n\r\n" not in request and b"\n\n" not in request:
            part = await loop.sock_recv(client, _MAX_REQUEST)
            request += part
            if not part or len(request) > _MAX_REQUEST:
                break
        await loop.sock_sendall(client, self._response(request))

    def _response(self, request: bytes) -> bytes:
        """Return the answer to a request, of which the first line and one header count."""
        first, *lines = request.split(b"\n")
        method, target, version, *_ = (*first.split(), b"", b"", b"")
        if not version.startswith(b"HTTP/"):
            return _http(Answer(400))
        headers = (line.decode("ascii", "replace").partition(":") for line in lines)
        accept = next((value.strip() for name, _, value in headers if name.strip().lower() == "accept"), "")
        path = target.decode("ascii", "replace").partition("?")[0].rstrip("/")
        answer = self._answer_to(Request(method.decode("ascii", "replace"), path, accept))
        if answer.status != 404 and method not in {b"GET", b"HEAD"}:
            return _http(Answer(405), "Allow: GET, HEAD\r\n")
        return _http(answer, has_body=method == b"GET")


def _http(answer: Answer, more: str = "", *, has_body: bool = True) -> bytes:
    more += "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n{more}Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if has_body else b"")


def _listen(endpoint: str, trouble: str, setting: str) -> socket.socket:
    host, port = parse_endpoint(endpoint, endpoint)
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Where a name has addresses of both kinds, the older one, as most who ask will.
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.create_server(address[:2], family=family, backlog=_MAX_OPEN)
    except OSError as e:
        why = os.strerror(e.errno) if e.errno and e.errno > 0 else e.strerror
        raise OtelGpuError(
            f"{trouble} at {endpoint}: {why}; set {setting} to an address of this host and a port that is free"
        ) from e
    listener.setblocking(False)
    return listener
