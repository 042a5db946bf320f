"""Requests as the kernel reports them, and what is made of them."""

from __future__ import annotations

import enum
import ipaddress
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from ...bpf.abi.requests import (
    GPU_TOTALS,
    GPU_WORK,
    OWN_SPAN,
    REQUEST,
    REQUEST_AMBIGUOUS,
    REQUEST_ENCRYPTED,
    REQUEST_HEAD,
    REQUEST_WORKS,
    RESPONSE_HEAD,
    SPAN_HAS_PARENT,
    SPAN_KNOWS_FLAGS,
    SPAN_PARENT_AFAR,
    SPAN_REMOTE,
    SPAN_SERVER,
    SpanSays,
)
from ...bpf.abi.requests import Ending as RequestEnding
from ...bpf.abi.requests import WorkKind as KernelWork
from ...bpf.abi.rows import CopyKind
from ...bpf.records import offset_of, struct_of
from ...discovery.processes import Process
from .assembly import Seen
from .request import NOT_KNOWN, Ending, Endpoint, GpuTotals, GpuWork, OwnSpan, WorkKind

SPAN_ID = struct.Struct("<Q")
_MAX_ALIKE = 1024
"""Addresses, and what batches did, that are remembered: most come again."""
_CLOCKS_NS = 1_000_000
"""So much may the clock of a program's own spans be behind ours, which is worked out anew for every request."""
HEAD_AT, _RESPONSE_AT = offset_of(REQUEST, "head"), offset_of(REQUEST, "response")

_HELD_AT = offset_of(REQUEST, "held")
_HELD_END = _HELD_AT + GPU_TOTALS.itemsize
_NOTHING_HELD = bytes(GPU_TOTALS.itemsize)
_WORK_AT = offset_of(REQUEST, "work")
_SAYS_AT = offset_of(REQUEST, "own") + offset_of(OWN_SPAN, "says")
_TIMES_AND_SIZES = (
    "began_ns",
    "ended_ns",
    "first_byte_ns",
    "body_first_ns",
    "body_last_ns",
    "request_body",
    "response_body",
)
_SEEN = struct_of(
    REQUEST,
    *("tgid", "exec_id", *_TIMES_AND_SIZES, "owned", "pieces", "works_left_out", "works", "ending", "flags"),
    *("address_family", "local_port", "peer_port", "local", "peer"),
)
_SIZES = struct_of(REQUEST, "head_size", "response_size")
_WORK = struct_of(GPU_WORK)


class SpanFlag(enum.IntFlag):
    """What is known of a program's own span."""

    REMOTE = SPAN_REMOTE
    """It is the caller's."""
    SERVER = SPAN_SERVER
    HAS_PARENT = SPAN_HAS_PARENT
    PARENT_AFAR = SPAN_PARENT_AFAR
    """Its parent is the caller's."""
    KNOWS_FLAGS = SPAN_KNOWS_FLAGS


class _Family(enum.IntEnum):
    """Of addresses: AF_INET, AF_INET6."""

    INET = 2
    INET6 = 10


_ENDINGS = {
    RequestEnding.NONE: Ending.AGENT_ENDED,
    RequestEnding.COMPLETE: Ending.COMPLETE,
    RequestEnding.CLOSED: Ending.CONNECTION_CLOSED,
    RequestEnding.LOST: Ending.PROTOCOL_LOST,
    RequestEnding.THROWN: Ending.EXCEPTION,
}


# Members of enumerations as they are used for each piece of work: to look one up in its class takes as long as the rest.
_BATCH, _WAIT = int(KernelWork.BATCH), int(KernelWork.WAIT)
_GPU_BATCH, _GPU_WAIT, _GPU_COPY = WorkKind.BATCH, WorkKind.WAIT, WorkKind.COPY
_ENDED = [_ENDINGS[ending] for ending in RequestEnding]


def read_request(record: bytes) -> np.void:
    """Return a request as the kernel told it; of its head only as much is there as was kept."""
    whole = record[: REQUEST.itemsize].ljust(REQUEST.itemsize, b"\0")
    return np.frombuffer(whole, REQUEST)[0]  # type: ignore[no-any-return]


def heads_of(request: np.void) -> tuple[bytes, bytes]:
    """Return what was kept of the heads of a request and of its response."""
    raw = request.tobytes()
    head, response = _SIZES.unpack_from(raw)
    return (
        raw[HEAD_AT : HEAD_AT + min(head, REQUEST_HEAD)],
        raw[_RESPONSE_AT : _RESPONSE_AT + min(response, RESPONSE_HEAD)],
    )


def seen(request: np.void, process: Process, wall_ns: Callable[[int], int], copy_functions: Mapping[int, bool]) -> Seen:
    """Return what the kernel saw of a request. `wall_ns` makes wall-clock times of the kernel's monotonic ones.

    `copy_functions` says of numbers of functions which wait whether they copy.
    """
    raw = request.tobytes()
    found = _SEEN.unpack_from(raw)
    tgid, exec_id, began, ended, first_byte, body_first, body_last, request_body, response_body = found[:9]
    pieces, left_out, works, ending, flags, family, local_port, peer_port, local, peer = found[18:]
    start_ns = wall_ns(began)
    is_known = not flags & REQUEST_AMBIGUOUS
    return Seen(
        (tgid, exec_id),
        process.resource,
        start_ns,
        max(wall_ns(ended), start_ns),
        _ENDED[ending],
        wall_ns(first_byte) if first_byte else None,
        wall_ns(body_first) if body_first else None,
        wall_ns(body_last) if body_last else None,
        pieces,
        request_body,
        response_body,
        Endpoint(address, peer_port) if (address := _address(family, peer)) is not None else None,
        _served_at(family, local, local_port),
        bool(flags & REQUEST_ENCRYPTED),
        totals=GpuTotals(*found[9:18]) if is_known else NOT_KNOWN,
        work=tuple(_works(raw, works, wall_ns, copy_functions)) if is_known and works else (),
        work_left_out=left_out,
        own=_own_span(request, start_ns) if is_known and raw[_SAYS_AT] else None,
    )


def own_span_of(request: np.void) -> OwnSpan | None:
    """Return the span of its own that a program had for a request, as far as the kernel has seen one."""
    own = request["own"]
    if not own["says"] or not own["span"] or not own["trace"].any():
        return None
    flag = SpanFlag(int(own["flags"]))
    server = SPAN_ID.pack(int(request["server_span"])) if request["server_span"] else b""
    return OwnSpan(
        own["trace"].tobytes(),
        SPAN_ID.pack(int(own["span"])),
        int(own["trace_flags"]) if flag & SpanFlag.KNOWS_FLAGS else None,
        server,
        is_entry=int(own["says"]) != SpanSays.PYTHON or bool(flag & SpanFlag.HAS_PARENT),
    )


def _own_span(request: np.void, start_ns: int) -> OwnSpan | None:
    began_ns = int(request["own"]["began_ns"])
    # What had begun before the request is not for it: a server's main span, in whose context all runs.
    return None if began_ns and began_ns + _CLOCKS_NS < start_ns else own_span_of(request)


def totals_of(totals: np.void) -> GpuTotals:
    """Return totals as the kernel added them up."""
    (copies_h2d, copies_d2h, copies_d2d), (h2d, d2h, d2d) = totals["copies"].tolist(), totals["copied_bytes"].tolist()
    return GpuTotals(
        int(totals["launches"]),
        int(totals["graph_launches"]),
        copies_h2d,
        copies_d2h,
        copies_d2d,
        h2d,
        d2h,
        d2d,
        int(totals["synchronize_ns"]),
    )


def _works(raw: bytes, works: int, wall_ns: Callable[[int], int], copy_functions: Mapping[int, bool]) -> list[GpuWork]:
    found = []
    # What nothing is held of any more is decided, whoever held it.
    is_held = raw[_HELD_AT:_HELD_END] != _NOTHING_HELD
    end_at = _WORK_AT + min(works, REQUEST_WORKS) * _WORK.size
    for start, end, size, launches, holder, function, kind, direction, graphs, span in _WORK.iter_unpack(
        raw[_WORK_AT:end_at]
    ):
        if (is_held and holder) or end < start:
            continue  # what it was for is not decided
        if kind == _BATCH:
            what, totals = _GPU_BATCH, _launched(launches, graphs)
        elif kind != _WAIT:
            continue
        elif copy_functions.get(function, False):
            what, totals = _GPU_COPY, _waited(direction, size, end - start)
        else:
            what, totals = _GPU_WAIT, GpuTotals(synchronize_ns=end - start)
        start_ns = wall_ns(start)
        found.append(GpuWork(what, start_ns, max(wall_ns(end), start_ns), totals, SPAN_ID.pack(span) if span else b""))
    return found


@lru_cache(_MAX_ALIKE)
def _launched(launches: int, graph_launches: int) -> GpuTotals:
    return GpuTotals(launches, graph_launches)


def _waited(direction: int, size: int, waited_ns: int) -> GpuTotals:
    match direction:
        case CopyKind.HOST_TO_DEVICE:
            return GpuTotals(copies_h2d=1, bytes_h2d=size, synchronize_ns=waited_ns)
        case CopyKind.DEVICE_TO_HOST:
            return GpuTotals(copies_d2h=1, bytes_d2h=size, synchronize_ns=waited_ns)
        case CopyKind.DEVICE_TO_DEVICE:
            return GpuTotals(copies_d2d=1, bytes_d2d=size, synchronize_ns=waited_ns)
    return GpuTotals(synchronize_ns=waited_ns)


@lru_cache(_MAX_ALIKE)
def _address(family: int, raw: bytes) -> str | None:
    match family:
        case _Family.INET:
            return str(ipaddress.IPv4Address(raw[:4]))
        case _Family.INET6:
            address = ipaddress.IPv6Address(raw)
            return str(address.ipv4_mapped or address)
    return None


@lru_cache(_MAX_ALIKE)
def _served_at(family: int, raw: bytes, port: int) -> Endpoint | None:
    address = _address(family, raw)
    return None if address is None else Endpoint(address, port)
