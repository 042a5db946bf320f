"""How is a connection to a receiver made, and cut when its time is over?

The timeout of a socket is one of each operation: a receiver that sends a byte a second, one interim answer after the
other or an endless header never exceeds it, and a name is looked up for as long as the system likes. Here all of an
attempt, from the name to the last byte of the answer, has one deadline.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec

from ...signals.structs import Record

_MAX_ADDRESSES = 8
"""Of one name; each gets its part of the time."""

Address = tuple[Any, ...]
"""As `socket.getaddrinfo` returns it."""


class Connections:
    """What one transport has open, for one attempt at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._deadline = math.inf
        self._attempt = 0
        self._is_cut = False
        self._running = False
        self._released: list[socket.socket] = []
        self._lookups: dict[tuple[str, int], _Lookup] = {}

    @contextlib.contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """Cut what is open when the block has taken longer."""
        with self._lock:
            self._deadline = time.monotonic() + timeout_s
            self._is_cut = False
            self._running = True
            self._attempt += 1
        timer = threading.Timer(timeout_s, self._cut, (self._attempt,))
        timer.name, timer.daemon = "otel-gpu-deadline", True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._running = False
                while self._released:
                    self._released.pop().close()

    @property
    def left_s(self) -> float:
        """The seconds until the deadline; none are left once everything was cut."""
        return 0.0 if self._is_cut else max(0.0, self._deadline - time.monotonic())

    def cut(self) -> None:
        """End every operation on what is open, in whatever thread."""
        self._cut(self._attempt)

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to a host; OSError where there is none in time."""
        deadline = time.monotonic() + timeout_s
        addresses = self._resolve(host, port, timeout_s)[:_MAX_ADDRESSES]
        failure = OSError("its name has no address")
        for position, (family, kind, protocol, _, address) in enumerate(addresses):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(left_s / (len(addresses) - position))
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                connection.close()
                failure = error
            else:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                return connection
        raise failure if time.monotonic() < deadline else TimeoutError("no connection in time")

    def handle(self, connection: socket.socket) -> socket.socket:
        """Return a second descriptor of a connection, by which it is cut; the caller closes or releases it.

        The first one may become another object when TLS begins on it, and is then in use by another thread.
        """
        handle = connection.dup()
        with self._lock:
            self._handles.add(handle)
            if self._is_cut:
                _shut(handle)
        return handle

    def release(self, handle: socket.socket) -> None:
        """Close a handle at the end of the attempt: an answer may still be read from a connection that was closed."""
        with self._lock:
            if self._running:
                self._released.append(handle)
            else:
                handle.close()

    def _cut(self, attempt: int) -> None:
        with self._lock:
            if attempt != self._attempt:
                return  # a timer that was late
            self._is_cut = True
            for handle in self._handles:
                _shut(handle)

    def _resolve(self, host: str, port: int, timeout_s: float) -> list[Address]:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # no number
        except UnicodeError:
            raise OSError("its name cannot be looked up") from None
        # Nobody can tell the system's resolver to hurry. One that hangs is asked once, and waited for again.
        with self._lock:
            lookup = self._lookups.get((host, port))
            if lookup is None:
                lookup = self._lookups[host, port] = _Lookup(host, port)
                threading.Thread(target=lookup.run, name="otel-gpu-lookup", daemon=True).start()
        if not lookup.done.wait(timeout_s):
            raise TimeoutError("its name was not looked up in time")
        with self._lock:
            self._lookups.pop((host, port), None)
        if lookup.failure is not None:
            raise lookup.failure
        return lookup.addresses


class _Lookup(Record, eq=False):
    """A name that is being looked up in a thread of its own."""

    host: str
    port: int
    done: threading.Event = msgspec.field(default_factory=threading.Event)
    addresses: list[Address] = msgspec.field(default_factory=list)
    failure: OSError | None = None

    def run(self) -> None:
        try:
            self.addresses = list(socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        except OSError as error:
            self.failure = error
        finally:
            self.done.set()


def _shut(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        handle.shutdown(socket.SHUT_RDWR)
