"""How is one thing asked of Kubernetes? By one connection to one host, of which nothing is believed that is too long.

Python's own client of HTTP knows no proxies and follows no redirections: the token goes to nobody else.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import msgspec

from ...errors import OtelGpuError
from ...runtime.deadline import Deadline
from ...text import one_line
from ...version import __version__
from .access import Access
from .objects import UNREADABLE, Refusal

_CONNECT_S = 10.0
_ANSWER_S = 30.0
"""For the whole of an answer that has an end."""
_MAX_ANSWER = 128 << 20
"""A list of as many pods as are kept, of the largest size that pods have as a rule."""
_MAX_LINE = 8 << 20
"""etcd keeps no object of more than 1.5 MB by default; JSON may be longer than what it keeps."""
_MAX_REFUSAL = 64 << 10
_CHUNK = 256 << 10
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A peer that is gone without a word is noticed within a minute."""


class RefusedError(OtelGpuError):
    """An answer that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(OtelGpuError):
    """No answer, or none that can be read."""


class Connections:
    """Asks, one thing at a time, in one thread; `interrupt` may be called by any."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._open: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        """A connection that ends with its answer lets go of it at once."""
        self._is_closed = False

    @property
    def access(self) -> Access:
        """Whom it asks."""
        return self._access

    @property
    def is_closed(self) -> bool:
        """Whether it was interrupted: what fails then is nobody's fault."""
        return self._is_closed

    def interrupt(self) -> None:
        """Have what waits for an answer fail, now and from now on."""
        with self._lock:
            self._is_closed = True
            sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was not connected any more

    def get(self, path: str) -> bytes:
        """Return an answer; RefusedError, or UnreachableError where there is none in time."""
        deadline = Deadline(_ANSWER_S)
        parts, size = [], 0
        try:
            response = self._ask(path, _ANSWER_S)
            while chunk := response.read1(_CHUNK):
                size += len(chunk)
                if size > _MAX_ANSWER:
                    raise UnreachableError(f"an answer of more than {_MAX_ANSWER >> 20} MB is not believed")
                if deadline.is_over:
                    raise UnreachableError(f"the answer is not complete after {_ANSWER_S:.0f} s")
                parts.append(chunk)
        except (OSError, http.client.HTTPException) as e:
            raise self._unreachable(e) from e
        finally:
            self._close()
        return b"".join(parts)

    def lines(self, path: str, silent_s: float, answered: Callable[[], None]) -> Iterator[bytes]:
        """Yield the lines of an answer as they come, until its end or until none has come for so long; errors as in `get`.

        `answered` is called when it begins, with or without a first line.
        """
        try:
            response = self._ask(path, silent_s)
            answered()
            while line := response.readline(_MAX_LINE):
                if len(line) >= _MAX_LINE:
                    raise UnreachableError(f"a line of more than {_MAX_LINE >> 20} MB is not believed")
                yield line
        except (OSError, http.client.HTTPException) as e:
            raise self._unreachable(e) from e
        finally:
            self._close()

    def _ask(self, path: str, timeout_s: float) -> http.client.HTTPResponse:
        access = self._access
        headers = {"Accept": "application/json", "User-Agent": f"otel-gpu/{__version__}"}
        if authorization := access.authorization():
            headers["Authorization"] = authorization
        connection: http.client.HTTPConnection
        if access.tls is not None:
            connection = http.client.HTTPSConnection(access.host, access.port, timeout=_CONNECT_S, context=access.tls())
        else:
            connection = http.client.HTTPConnection(access.host, access.port, timeout=_CONNECT_S)
        with self._lock:
            if self._is_closed:
                raise UnreachableError("nothing is asked any more")
            self._open = connection
        connection.connect()
        with self._lock:
            self._socket = connection.sock
            if self._is_closed:
                # While it was being made, there was nothing to be interrupted.
                raise UnreachableError("nothing is asked any more")
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.request("GET", path, headers=headers)
        connection.sock.settimeout(timeout_s)
        response = self._response = connection.getresponse()
        if response.status != http.client.OK:
            raise RefusedError(response.status, _said(response))
        return response

    def _close(self) -> None:
        with self._lock:
            connection, self._open, self._socket = self._open, None, None
        response, self._response = self._response, None
        for one in (response, connection):
            if one is not None:
                one.close()

    def _unreachable(self, error: OSError | http.client.HTTPException) -> UnreachableError:
        address = self._access.address
        if isinstance(error, ssl.SSLCertVerificationError):
            return UnreachableError(
                f"{address} shows a certificate that is not believed: {error.verify_message}; set ca_file"
            )
        if isinstance(error, ssl.SSLError):
            return UnreachableError(f"no secure connection to {address}: {error.reason or error}")
        if isinstance(error, TimeoutError):
            return UnreachableError(f"{address} does not answer in time")
        why = getattr(error, "strerror", None) or one_line(f"{type(error).__name__} {error}")
        return UnreachableError(f"{address} cannot be reached: {why}")


def _said(response: http.client.HTTPResponse) -> str:
    """Return why something is refused, as the API says it."""
    if 300 <= response.status < 400:
        return "it wants to send us elsewhere, where the token does not go"
    try:
        return msgspec.json.decode(response.read(_MAX_REFUSAL), type=Refusal).message or response.reason
    except UNREADABLE:
        return response.reason
