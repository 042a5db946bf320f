"""Runs a command in a network of its own, whose name server takes questions and never answers."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
import tempfile

_NEW_MOUNTS, _NEW_NETWORK = 0x00020000, 0x40000000
_BIND, _PRIVATE = 4096, 1 << 18 | 1 << 14
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


def _must(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _must(libc.unshare(_NEW_MOUNTS | _NEW_NETWORK))
    _must(libc.mount(None, b"/", None, _PRIVATE, None))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh", b"lo", 0).ljust(40, b"\0")
        flags = struct.unpack("16sh", fcntl.ioctl(any_socket, _GET_FLAGS, request)[:18])[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", flags | _UP).ljust(40, b"\0"))
    with tempfile.NamedTemporaryFile("w") as servers:
        servers.write("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
        servers.flush()
        _must(libc.mount(servers.name.encode(), b"/etc/resolv.conf", None, _BIND, None))
    for family, address in ((socket.AF_INET, "127.0.0.1"),):
        server = socket.socket(family, socket.SOCK_DGRAM)
        server.bind((address, 53))
        server.set_inheritable(True)
    os.execvp(sys.argv[1], sys.argv[1:])


main()
