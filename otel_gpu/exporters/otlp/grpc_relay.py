"""How does a connection of gRPC's end when it must? It leads through here, where it can be counted and cut.

gRPC's core lets nobody near its sockets, and neither its memory nor its deadlines hold against a receiver that sends
without end or reads nothing: pings alone grew it by 30 MB a second, and kept calls waiting after their time. So it
connects to a socket of this process, and its bytes are carried from there to the receiver.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading

from .connections import Connections

_MAX_RECEIVED = 1 << 20
"""Bytes from one attempt to the next; an answer has at most 64 KiB, and a few hundred bytes frame it."""
_BLOCK = 65_536
_PAUSE_S = 0.1
"""How soon a connection is taken after one that could not be, as where no descriptor was left."""
_PEER = struct.Struct("3i")  # pid, uid, gid


class Relay:
    """A way to one receiver, for a channel of gRPC."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Listen for gRPC; a connection to the receiver is given up after `timeout_s`."""
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._connections = Connections()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._left = _MAX_RECEIVED
        self.failure: str | None = None
        """Why there is no connection, or is none any more; gRPC only sees that it ended."""
        name = f"otel-gpu-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{name}")
        self._listener.listen()
        self._closed = threading.Event()
        self.address = f"unix-abstract:{name}"
        threading.Thread(target=self._listen, name="otel-gpu-relay", daemon=True).start()

    def begin(self) -> None:
        """Note that an attempt begins."""
        self._left = _MAX_RECEIVED
        self.failure = None

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):  # it has ended by itself
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End every connection, and take no other."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                self._closed.wait(_PAUSE_S)
                continue
            try:
                threading.Thread(target=self._connect, args=(near,), name="otel-gpu-relay", daemon=True).start()
            except RuntimeError as error:  # gRPC connects again
                self.failure = str(error)
                near.close()

    def _connect(self, near: socket.socket) -> None:
        with near:
            peer = near.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            if _PEER.unpack(peer)[0] != os.getpid():
                return  # any process of the host may find the socket
            try:
                far = self._connections.connect(self._host, self._port, self._timeout_s)
            except OSError as error:
                self.failure = error.strerror or str(error)
                return
            with far:
                far.settimeout(None)  # what is too slow is cut
                with self._lock:
                    self._open |= {near, far}
                try:
                    self._carry_both(near, far)
                finally:
                    with self._lock:
                        self._open -= {near, far}

    def _carry_both(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=self._carry, args=(far, near, True), name="otel-gpu-relay", daemon=True)
        try:
            back.start()
        except RuntimeError as error:
            self.failure = str(error)
            return
        self._carry(near, far, False)
        back.join()

    def _carry(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        """Carry bytes one way until that way ends, and let the other one end with it."""
        with contextlib.suppress(OSError):
            while block := source.recv(_BLOCK):
                if counted:
                    self._left -= len(block)
                    if self._left < 0:
                        self.failure = f"it sent more than {_MAX_RECEIVED >> 20} MiB for one answer"
                        break
                sink.sendall(block)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
