"""Does the agent live, and is it ready? For whoever asks over HTTP, as the Collector's extension of this name answers.

A client that is slow, sends much or comes often costs itself: every connection has one deadline and little room, a new
one takes the place of the oldest, and only so many are taken a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from ..config.settings import HealthCheckSettings
from ..errors import OtelGpuError
from ..supervision import Health, Worker

_log = logging.getLogger(__name__)

_ANSWER_S = 5.0
"""How long a client may take for its request and for taking the answer."""
_MAX_REQUEST = 8192
_MAX_OPEN = 64
_MAX_A_SECOND = 100
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Report:
    """How the agent is."""

    is_live: bool
    """Whether the thread that collects goes on: where it does not, a restart helps."""
    is_ready: bool
    """Whether programs are observed: from the end of the start to the beginning of the stop."""
    components: Sequence[Health]

    @property
    def is_good(self) -> bool:
        """Whether everything does its work."""
        return self.is_live and self.is_ready and all(c.is_good for c in self.components)


class HealthCheck:
    """Answers from construction to `close`, in a thread of its own."""

    def __init__(self, settings: HealthCheckSettings, report: Callable[[], Report]) -> None:
        """Listen; OtelGpuError where that cannot be."""
        self._path = settings.path.rstrip("/")
        self._report = report
        self._since = time.time()
        self._listener = _listen(settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._open: dict[asyncio.Task[None], None] = {}
        self._second, self._taken = 0.0, 0
        self.worker = Worker("health_check", self._serve, interrupt=self._interrupt, stuck_after_s=math.inf)
        self.worker.start()
        host, port = self.address
        _log.info("health is told at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, settings.path)

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it listens on."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Listen no longer; idempotent."""
        self.worker.stop(_ANSWER_S)
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
        await loop.sock_sendall(client, self.response(request))

    def response(self, request: bytes) -> bytes:
        """Return the answer to a request, of which the first line counts."""
        method, target, version, *_ = (*request.split(b"\n", 1)[0].split(), b"", b"", b"")
        report = self._report()
        states = {
            self._path: report.is_good,
            f"{self._path}/live": report.is_live,
            f"{self._path}/ready": report.is_ready,
        }
        path = target.decode("ascii", "replace").partition("?")[0].rstrip("/")
        if not version.startswith(b"HTTP/"):
            return _http(400, b"")
        if path not in states:
            return _http(404, b"")
        if method not in {b"GET", b"HEAD"}:
            return _http(405, b"", "Allow: GET, HEAD\r\n")
        body = json.dumps(self._body(report, is_good=states[path])).encode() + b"\n"
        return _http(200 if states[path] else 503, body, has_body=method == b"GET")

    def _body(self, report: Report, *, is_good: bool) -> dict[str, object]:
        since = datetime.fromtimestamp(self._since, timezone.utc)
        components: dict[str, dict[str, object]] = {}
        for health in report.components:
            told = components.setdefault(health.component, {"healthy": True, "failures": 0})
            told["healthy"] = bool(told["healthy"]) and health.is_good
            told["failures"] = int(str(told["failures"])) + health.failures
        return {
            "status": "Server available" if is_good else "Server not available",
            "upSince": since.isoformat(),
            "uptime": f"{time.time() - self._since:.0f}s",
            "live": report.is_live,
            "ready": report.is_ready,
            "components": components,
        }


def _http(status: int, body: bytes, more: str = "", *, has_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n{more}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")


def _listen(settings: HealthCheckSettings) -> socket.socket:
    host, port = settings.address
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Where a name has addresses of both kinds, the older one, as most who ask will.
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.create_server(address[:2], family=family, backlog=_MAX_OPEN)
    except OSError as e:
        why = os.strerror(e.errno) if e.errno and e.errno > 0 else e.strerror
        raise OtelGpuError(
            f"health cannot be told at {settings.endpoint}: {why}; "
            "set extensions.health_check.endpoint to an address of this host and a port that is free"
        ) from e
    listener.setblocking(False)
    return listener
