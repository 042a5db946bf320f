"""How does the view run? Both listeners beside each other, from `start` to `stop`; what cannot listen is said in one line."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from types import TracebackType

import uvicorn

from ..errors import ConfigError, OtelGpuError
from .access import Access, is_loopback
from .client_deadlines import KEEP_ALIVE_S, MAX_OPEN, ClientDeadlines
from .intake import Intake
from .otlp_grpc import GrpcReceiver
from .settings import ViewSettings
from .store import Store
from .web import Web

_STOP_S = 1.0
_START_S = 30.0


class View:
    """The embedded backend. A context manager."""

    def __init__(self, settings: ViewSettings) -> None:
        """Refuse what would be open to everybody."""
        if not settings.token and not is_loopback(settings.host):
            raise ConfigError(
                f"--host {settings.host} can be reached from elsewhere: give a token by --token-file FILE, or leave --host out"
            )
        self._settings = settings
        self.store = Store(settings)
        intake = Intake(self.store, settings.bounds)
        self._access = Access(settings.token, settings.host)
        self._grpc = GrpcReceiver(intake, self.store.losses, settings.token)
        self.port = self.grpc_port = 0
        web = Web(self.store, intake, self._access, self._endpoints)
        config = uvicorn.Config(
            web.app,
            http=ClientDeadlines,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=16 << 10,
        )
        self._server = uvicorn.Server(config)
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, name="otel-gpu-view-http", daemon=True)

    def __enter__(self) -> View:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{self._shown}:{self.port}/"

    @property
    def _shown(self) -> str:
        host = self._settings.host
        if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - what is said of an address that somebody chose
            return socket.gethostname()
        return f"[{host}]" if ":" in host else host

    def _endpoints(self) -> dict[str, str]:
        return {"http": f"http://{self._shown}:{self.port}", "grpc": f"http://{self._shown}:{self.grpc_port}"}

    def start(self) -> None:
        """Listen; OtelGpuError where that cannot be."""
        settings = self._settings
        self._sockets = _listen(settings.host, settings.port)
        self.port = self._sockets[0].getsockname()[1]
        try:
            self.grpc_port = self._grpc.start(settings.host, settings.grpc_port)
        except OtelGpuError:
            self._close()
            raise
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(_START_S / 0.02)):
            if self._server.started or not self._thread.is_alive():
                break
            waited.wait(0.02)
        if not self._server.started:
            raise OtelGpuError("the view's page could not be served; run again with --debug and report it")

    def stop(self) -> None:
        """Listen no longer; idempotent."""
        self._server.should_exit = True
        self._grpc.stop()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
            self._server.force_exit = True
            self._thread.join(_STOP_S)
        self._close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(self._sockets))

    def _close(self) -> None:
        for one in self._sockets:
            one.close()


def _listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets on every address of a name: `localhost` is one of IPv4 and one of IPv6."""
    found: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in sorted(set(addresses), key=lambda a: a[0] != socket.AF_INET):
            try:
                at = found[0].getsockname()[1] if found else port
                one = socket.create_server((address[0], at), family=family, backlog=MAX_OPEN)
            except OSError as error:
                # A host without IPv6 has its name all the same.
                if found and error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    continue
                raise
            one.setblocking(False)
            found.append(one)
    except OSError as error:
        for one in found:
            one.close()
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise OtelGpuError(
            f"cannot listen at {host}:{port} for the page and OTLP over HTTP: {why}; {_advice(error)}"
        ) from error
    return found


def _advice(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "give an address of this host by --host, 127.0.0.1 for this host alone"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "choose a port above 1023 by --port"
    return "end the program that does (a Collector?), or choose another port by --port"
