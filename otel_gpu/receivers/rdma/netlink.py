"""Which queue pairs does the kernel know, and whose are they? Also those that were made before anybody looked.

RDMA's netlink (include/uapi/rdma/rdma_netlink.h, NLDEV): devices, then each one's queue pairs. It says the number, the other
side's, type, state and process of each, but no address of the other side. What the kernel does not show, as processes of other
pid namespaces, is not there; a kernel without RDMA has none.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator

from ...signals.structs import Frozen

_NETLINK_RDMA, _NLDEV = 20, 5
_GET, _RES_QP_GET = 1, 10
_REQUEST, _DUMP = 1, 0x300
_ERROR, _DONE = 2, 3
_DEV_INDEX, _DEV_NAME, _PORT_INDEX, _RES_QP, _RES_QP_ENTRY = 1, 2, 3, 19, 20
_LQPN, _RQPN, _TYPE, _STATE, _PID = 21, 22, 26, 27, 28
_TYPE_MASK = 0x3FFF
"""Of an attribute's type; the rest are flags."""
_MOST_DEVICES, _MOST_PAIRS, _MOST_BYTES, _ONE_READ = 256, 131_072, 64 << 20, 1 << 16
_TIMEOUT_S = 1.0
_NO_RDMA = (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EINVAL)
"""What a kernel says that has no RDMA, or only a part of it."""

Dump = Callable[[int, bytes], bytes]
"""Asks the kernel, by a command and its attributes, and returns the messages of its answer."""


class KernelPair(Frozen):
    """A queue pair, as the kernel has it."""

    pid: int
    device: str
    qpn: int
    remote_qpn: int
    """0 where it is not connected."""
    port: int
    """0 where it is not said."""
    type: int
    """enum ibv_qp_type"""
    state: int
    """enum ibv_qp_state"""


def kernel_pairs(dump: Dump | None = None) -> list[KernelPair]:
    """Return the queue pairs of processes; none where the kernel has no RDMA. OSError where it says no."""
    if dump is not None:
        return list(_pairs(dump))
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_RDMA) as asked:
            asked.settimeout(_TIMEOUT_S)
            asked.bind((0, 0))
            return list(_pairs(lambda command, attributes: _ask(asked, command, attributes)))
    except OSError as e:
        if e.errno in _NO_RDMA:
            return []
        raise


def read_devices(messages: bytes) -> dict[int, str]:
    """Return names of devices by their index, from the messages that tell of them."""
    found: dict[int, str] = {}
    for payload in _messages(messages):
        said = dict(_attributes(payload))
        index, name = _number(said.get(_DEV_INDEX)), said.get(_DEV_NAME, b"").split(b"\0", 1)[0]
        if index is not None and name and len(found) < _MOST_DEVICES:
            found[index] = name.decode("ascii", "replace")
    return found


def read_pairs(messages: bytes, device: str) -> Iterator[KernelPair]:
    """Yield the queue pairs of a device from the messages that tell of them; what is not whole is left out."""
    for payload in _messages(messages):
        for kind, entries in _attributes(payload):
            if kind != _RES_QP:
                continue
            for number, entry in _attributes(entries):
                said = dict(_attributes(entry)) if number == _RES_QP_ENTRY else {}
                pid, qpn = _number(said.get(_PID)), _number(said.get(_LQPN))
                kind_of, state = _number(said.get(_TYPE)), _number(said.get(_STATE))
                if pid is None or qpn is None or kind_of is None or state is None:
                    continue  # the kernel's own, or of a process that is not to be seen from here
                remote, port = _number(said.get(_RQPN)) or 0, _number(said.get(_PORT_INDEX)) or 0
                yield KernelPair(pid, device, qpn, remote, port, kind_of, state)


def _pairs(dump: Dump) -> Iterator[KernelPair]:
    left = _MOST_PAIRS
    for index, name in read_devices(dump(_GET, b"")).items():
        for pair in read_pairs(dump(_RES_QP_GET, struct.pack("<HHI", 8, _DEV_INDEX, index)), name):
            if not left:
                return
            left -= 1
            yield pair


def _ask(asked: socket.socket, command: int, attributes: bytes) -> bytes:
    kind = (_NLDEV << 10) + command
    asked.send(struct.pack("<IHHII", 16 + len(attributes), kind, _REQUEST | _DUMP, 1, 0) + attributes)
    answer = bytearray()
    while len(answer) < _MOST_BYTES:
        part = asked.recv(_ONE_READ)
        answer += part
        if _is_last(part):
            break
    return bytes(answer)


def _is_last(part: bytes) -> bool:
    """Tell whether a read has the end of an answer; OSError where that is an error."""
    last = not part
    at = 0
    while at + 16 <= len(part):
        size, kind = struct.unpack_from("<IH", part, at)
        if kind == _ERROR and at + 20 <= len(part):
            (code,) = struct.unpack_from("<i", part, at + 16)
            raise OSError(-code, "the kernel does not tell of queue pairs")
        last = last or kind == _DONE
        at += max((size + 3) & ~3, 16)
    return last


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield what each message of NLDEV carries."""
    at = 0
    while at + 16 <= len(data):
        size, kind = struct.unpack_from("<IH", data, at)
        if size < 16 or at + size > len(data):
            return
        if kind >> 10 == _NLDEV:
            yield data[at + 16 : at + size]
        at += (size + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("<HH", data, at)
        if size < 4 or at + size > len(data):
            return
        yield kind & _TYPE_MASK, data[at + 4 : at + size]
        at += (size + 3) & ~3


def _number(value: bytes | None) -> int | None:
    """Return an attribute of one or four bytes."""
    if value is None or len(value) not in (1, 4):
        return None
    return int.from_bytes(value, "little")
