"""What crosses between the kernel and the receiver of requests? The mirror of ebpf/abi/requests.h; tests compare the two."""

from __future__ import annotations

import enum
import ipaddress
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from ...abi import CopyKind
from ...discovery.processes import Process
from .assembly import Seen
from .request import NOT_KNOWN, Ending, Endpoint, GpuTotals, GpuWork, OwnSpan, WorkKind

DIRECTIONS = 3
REQUEST_WORKS = 16
REQUEST_HEAD, RESPONSE_HEAD = 1024, 256
AMBIGUOUS = 1
"""A flag of a request: its connection's requests could not be told apart."""
ENCRYPTED = 8
"""The same: it came over TLS."""
HTTP2 = 16
"""The same: it is a stream, whose header blocks are told apart from it."""

TOTALS = np.dtype(
    [
        ("launches", "<u8"),
        ("graph_launches", "<u8"),
        ("copies", "<u8", (DIRECTIONS,)),
        ("copied_bytes", "<u8", (DIRECTIONS,)),
        ("synchronize_ns", "<u8"),
    ]
)
WORK = np.dtype(
    [
        ("began_ns", "<u8"),
        ("ended_ns", "<u8"),
        ("bytes", "<u8"),
        ("launches", "<u4"),
        ("holder", "<u4"),
        ("function", "<u2"),
        ("kind", "u1"),
        ("direction", "u1"),
        ("graph_launches", "<u4"),
        ("span", "<u8"),
    ]
)
OWN_SPAN = np.dtype(
    [
        ("trace", "<u8", (2,)),
        ("span", "<u8"),
        ("parent", "<u8"),
        ("began_ns", "<u8"),
        ("says", "u1"),
        ("flags", "u1"),
        ("trace_flags", "u1"),
        ("pad", "u1", (5,)),
    ]
)
REQUEST = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        *((name, "<u8") for name in ("id", "connection", "began_ns", "ended_ns", "first_byte_ns")),
        *((name, "<u8") for name in ("body_first_ns", "body_last_ns", "request_body", "response_body", "batch_ns")),
        ("batch_span", "<u8"),
        ("server_span", "<u8"),
        ("own", OWN_SPAN),
        *((name, "<u8") for name in ("own_met", "kind_known_of")),
        ("owned", TOTALS),
        ("held", TOTALS),
        *((name, "<u4") for name in ("batch_launches", "batch_graphs", "batch_holder", "tid", "pieces")),
        ("works_left_out", "<u4"),
        ("stacks", "<u8"),
        *((name, "<u2") for name in ("works", "status", "head_size", "response_size")),
        ("ending", "u1"),
        ("flags", "u1"),
        *((name, "<u2") for name in ("address_family", "local_port", "peer_port")),
        ("local", "u1", (16,)),
        ("peer", "u1", (16,)),
        ("work", WORK, (REQUEST_WORKS,)),
        ("response", "u1", (RESPONSE_HEAD,)),
        ("head", "u1", (REQUEST_HEAD,)),
    ]
)
SPAN_ID = struct.Struct("<Q")
_MAX_ALIKE = 1024
"""Addresses, and what batches did, that are remembered: most come again."""
_CLOCKS_NS = 1_000_000
"""So much may the clock of a program's own spans be behind ours, which is worked out anew for every request."""
HEAD_AT = REQUEST.itemsize - REQUEST_HEAD
_RESPONSE_AT = HEAD_AT - RESPONSE_HEAD


def _offset(record: np.dtype[np.void], name: str) -> int:
    fields = record.fields
    assert fields is not None
    return fields[name][1]


_HELD_AT = _offset(REQUEST, "held")
_HELD_END = _HELD_AT + TOTALS.itemsize
_NOTHING_HELD = bytes(TOTALS.itemsize)
_WORK_AT = _offset(REQUEST, "work")
_SAYS_AT = _offset(REQUEST, "own") + _offset(OWN_SPAN, "says")
_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q"}


def _struct(record: np.dtype[np.void], *names: str) -> struct.Struct:
    """Return what reads some fields of a record, in its order: of a request a tenth of the time that NumPy takes field by field."""
    codes = ["<"]
    for name in record.names or ():
        field = record[name]
        words = field.itemsize // field.base.itemsize if field.base.names is None else field.itemsize // 8
        if name not in names:
            codes.append(f"{field.itemsize}x")
        elif field.base == np.dtype("u1") and words > 1:
            codes.append(f"{words}s")
        else:
            codes.append(f"{words}{_CODES.get(field.base.str[1:], 'Q')}")
    return struct.Struct("".join(codes))


_TIMES_AND_SIZES = (
    "began_ns",
    "ended_ns",
    "first_byte_ns",
    "body_first_ns",
    "body_last_ns",
    "request_body",
    "response_body",
)
_SEEN = _struct(
    REQUEST,
    *("tgid", "exec_id", *_TIMES_AND_SIZES, "owned", "pieces", "works_left_out", "works", "ending", "flags"),
    *("address_family", "local_port", "peer_port", "local", "peer"),
)
_SIZES = _struct(REQUEST, "head_size", "response_size")
_WORK = _struct(WORK, *(WORK.names or ()))
NO_OWNER_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("reason", "<u4"), ("pad", "<u4")])
FOLLOWED = np.dtype(
    [
        ("exec_id", "<u4"),
        ("thread_state", "<u4"),
        ("thread_offset", "<i8"),
        ("thread_module", "<u8"),
        ("runtime", "<u8"),
        ("runtime_end", "<u8"),
        ("context_offset", "<u4"),
        ("threads_have_contexts", "u1"),
        ("has_loops", "u1"),
        ("was_there", "u1"),
        ("pad", "u1"),
        ("since_boot_ns", "<u8"),
        ("trusted_ns", "<u8"),
        ("has_learned", "<u4"),
        ("learns_anew", "<u4"),
        ("worked_ns", "<u8"),
        ("grpc", "<u8"),
        ("grpc_end", "<u8"),
        ("python", "<u8"),
        ("python_end", "<u8"),
        *((name, "<u2") for name in ("state_frame", "state_cframe", "cframe_frame", "frame_previous", "frame_code")),
        *((name, "<u2") for name in ("frame_owner", "frame_generator", "pad_frames")),
    ]
)
SPAN_TYPES = 3
_NAME = np.dtype([("text", "<u8"), ("hash", "<u8")])
_TYPE = np.dtype([("type", "<u8"), ("keys", "<u8"), ("place", "<i8")])
SPAN_SOURCE = np.dtype(
    [
        ("exec_id", "<u4"),
        ("published", "<u4"),
        ("published_offset", "<i8"),
        ("published_module", "<u8"),
        ("minor", "<u4"),
        ("variable_hash", "<u4"),
        ("variable", "<u8"),
        *((name, _NAME) for name in ("key", "context", "kind", "parent", "start")),
        *((name, "<u8") for name in ("server", "true_object", "tuple_items")),
        ("types", _TYPE, (SPAN_TYPES,)),
    ]
)


class SpanSays(enum.IntEnum):
    """Who said which span of a program's own is current."""

    NOBODY = 0
    PUBLISHED = 1
    """The program, by OTEP 4947."""
    PYTHON = 2
    """opentelemetry-python's context variable."""
    OBI = 3


class SpanFlag(enum.IntFlag):
    """What is known of a program's own span."""

    REMOTE = 1
    """It is the caller's."""
    SERVER = 2
    HAS_PARENT = 4
    PARENT_AFAR = 8
    """Its parent is the caller's."""
    KNOWS_FLAGS = 16


class NoOwner(enum.IntEnum):
    """Why work is no request's; the name is the value of `otel_gpu.reason`."""

    NOT_FOLLOWED = 0
    NO_REQUEST = 1
    IDLE = 2
    AMBIGUOUS = 3
    OUTLIVED = 4
    SHARED = 5
    UNKNOWN_CONTEXT = 6
    UNDECIDED = 7
    FULL = 8


class RequestEnding(enum.IntEnum):
    """How a request ended, as the kernel saw it."""

    NONE = 0
    """The agent cut it."""
    COMPLETE = 1
    CLOSED = 2
    LOST = 3
    THROWN = 4
    """An exception left the callback."""


class KernelWork(enum.IntEnum):
    """A piece of work, as the kernel saw it."""

    BATCH = 1
    WAIT = 2


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
    is_known = not flags & AMBIGUOUS
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
        bool(flags & ENCRYPTED),
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
