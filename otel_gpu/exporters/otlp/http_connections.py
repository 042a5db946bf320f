"""How do requests' connections keep to the deadline of an attempt? They are made by, and known to, `Connections`."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING, Any

import requests.adapters
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError

if TYPE_CHECKING:
    from .connections import Connections

_MAX_INTERIM = 8
"""Answers such as `100 Continue` before the final one."""


class _Response(http.client.HTTPResponse):
    """Ends where a receiver has one interim answer after the other, of which the library would skip any number."""

    _answers = 0

    def _read_status(self) -> Any:
        self._answers += 1
        if self._answers > _MAX_INTERIM:
            raise http.client.HTTPException(f"more than {_MAX_INTERIM} interim answers")
        return super()._read_status()  # type: ignore[misc]


class Adapter(requests.adapters.HTTPAdapter):
    """Carries requests over the connections of one transport."""

    def __init__(self, connections: Connections) -> None:
        self._pools = _pools(connections)
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **more)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(connections: Connections) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's classes, with another way to connect."""

    class Kept(HTTPConnection):
        """Known to `connections` while it is open."""

        response_class = _Response
        _handle: socket.socket | None = None

        def _new_conn(self) -> socket.socket:
            try:
                connection = connections.connect(self._dns_host, self.port, connections.left_s)
            except OSError as error:
                raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error
            self._handle = connections.handle(connection)
            return connection

        def close(self) -> None:
            handle, self._handle = self._handle, None
            if handle is not None:
                connections.release(handle)
            super().close()

    class KeptByTls(Kept, HTTPSConnection):
        """The same, with TLS on it."""

    class Pool(HTTPConnectionPool):
        ConnectionCls = Kept

    class PoolOfTls(HTTPSConnectionPool):
        ConnectionCls = KeptByTls

    return {"http": Pool, "https": PoolOfTls}
