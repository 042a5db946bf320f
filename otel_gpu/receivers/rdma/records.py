"""What crosses between the kernel and this receiver? The mirror of ebpf/abi/rdma.h."""

from __future__ import annotations

import enum
import struct

import numpy as np


class Operation(enum.IntEnum):
    """What a work request asks for."""

    WRITE = 0
    WRITE_IMM = 1
    SEND = 2
    SEND_IMM = 3
    READ = 4
    COMPARE_SWAP = 5
    FETCH_ADD = 6
    OTHER = 7


class RowKind(enum.IntEnum):
    """What a row counts."""

    LATENCY = 0
    SERVICE = 1
    RECEIVED = 2
    ERROR = 3
    UNMATCHED = 4
    STATE = 5
    ASYNC = 6
    REGISTERED = 7
    DEREGISTERED = 8
    REGISTRATION = 9
    REFUSED = 10


class Unmatched(enum.IntEnum):
    """Why a completion has no latency."""

    BEFORE = 0
    AMBIGUOUS = 1
    DEEP = 2
    UNREAD = 3


class EventKind(enum.IntEnum):
    """What the kernel tells at once."""

    OPENED = 1
    EXTENDED = 2
    QUEUE = 3
    POLLED = 4


QPN_NONE = 0xFFFFFFFF
"""Of the queue pairs that found no room."""
STATE_UNKNOWN = 0xFF
DEVICE_NAME = 64
FUNCTIONS = 24
RTS = 3

PAIR_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("context", "<u8"), ("qpn", "<u4"), ("pad", "<u4")])
OWNED_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("id", "<u8")])
PAIR = np.dtype(
    [
        ("key", PAIR_KEY),
        ("id", "<u8"),
        ("posted", "<u8"),
        ("awaited", "<u8"),
        ("operations", "<u8", (len(Operation),)),
        ("bytes", "<u8", (len(Operation),)),
        ("last_done_ns", "<u8"),
        ("send_queue", "<u8"),
        ("receive_queue", "<u8"),
        ("comm", "<u8"),
        ("base", "<u8"),
        ("tail", "<u8"),
        ("window", "<u4"),
        ("unread", "<u4"),
        ("matches", "<u4"),
        ("depth", "<u4"),
        ("remote_qpn", "<u4"),
        ("destination", "<u4"),
        ("gid", "u1", (16,)),
        ("type", "u1"),
        ("state", "u1"),
        ("port", "u1"),
        ("mtu", "u1"),
        ("gid_index", "u1"),
        ("has_gid", "u1"),
        ("from_start", "u1"),
        ("all_signal", "u1"),
        ("is_followed", "u1"),
        ("reuses", "u1"),
        ("is_lost", "u1"),
        ("pad", "u1", (5,)),
        ("device", f"S{DEVICE_NAME}"),
    ]
)
ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("id", "<u8"),
        ("kind", "u1"),
        ("operation", "u1"),
        ("bucket", "u1"),
        ("pad", "u1", (5,)),
    ]
)
ROW = np.dtype([("count", "<u8"), ("sum", "<u8")])
VERBS_PROGRAM = np.dtype(
    [
        ("second_ns", "<u8"),
        ("polls", "<u8"),
        ("extended", "<u8"),
        ("queues", "<u8"),
        ("in_second", "<u4"),
        ("window", "<u4"),
        ("told", "<u4"),
        ("unread", "<u4"),
        ("direct", "<u8"),
    ]
)
WINDOW = struct.Struct("<IIII")
"""number, is_open, most polls a second."""
EVENT = struct.Struct(f"<IIII{FUNCTIONS}Q")
"""kind, tgid, exec_id, -; functions."""
