"""What crosses between the kernel and the receiver of requests? The mirror of ebpf/abi/requests.h; tests compare the two."""

from __future__ import annotations

import enum
import ipaddress
import struct
from collections.abc import Callable, Mapping

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
_CLOCKS_NS = 1_000_000
"""So much may the clock of a program's own spans be behind ours, which is worked out anew for every request."""
HEAD_AT = REQUEST.itemsize - REQUEST_HEAD
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
        ("pad", "u1", (2,)),
        ("since_boot_ns", "<u8"),
        ("trusted_ns", "<u8"),
        ("has_learned", "<u4"),
        ("learns_anew", "<u4"),
        ("grpc", "<u8"),
        ("grpc_end", "<u8"),
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
}


def read_request(record: bytes) -> np.void:
    """Return a request as the kernel told it; of its head only as much is there as was kept."""
    whole = np.zeros(1, REQUEST)
    whole.view(np.uint8)[: len(record)] = np.frombuffer(record[: REQUEST.itemsize], np.uint8)
    return whole[0]  # type: ignore[no-any-return]


def heads_of(request: np.void) -> tuple[bytes, bytes]:
    """Return what was kept of the heads of a request and of its response."""
    head, response = int(request["head_size"]), int(request["response_size"])
    return request["head"].tobytes()[:head], request["response"].tobytes()[:response]


def seen(request: np.void, process: Process, wall_ns: Callable[[int], int], copy_functions: Mapping[int, bool]) -> Seen:
    """Return what the kernel saw of a request. `wall_ns` makes wall-clock times of the kernel's monotonic ones.

    `copy_functions` says of numbers of functions which wait whether they copy.
    """
    start_ns = wall_ns(int(request["began_ns"]))
    end_ns = max(wall_ns(int(request["ended_ns"])), start_ns)
    is_known = not request["flags"] & AMBIGUOUS

    def time_of(field: str) -> int | None:
        value = int(request[field])
        return wall_ns(value) if value else None

    own = _own_span(request, start_ns) if is_known else None

    return Seen(
        (int(request["tgid"]), int(request["exec_id"])),
        process.resource,
        start_ns,
        end_ns,
        _ENDINGS[RequestEnding(int(request["ending"]))],
        time_of("first_byte_ns"),
        time_of("body_first_ns"),
        time_of("body_last_ns"),
        int(request["pieces"]),
        int(request["request_body"]),
        int(request["response_body"]),
        _endpoint(request, "peer"),
        _endpoint(request, "local"),
        bool(request["flags"] & ENCRYPTED),
        totals=totals_of(request["owned"]) if is_known else NOT_KNOWN,
        work=tuple(_works(request, wall_ns, copy_functions)) if is_known else (),
        work_left_out=int(request["works_left_out"]),
        own=own,
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


def _works(request: np.void, wall_ns: Callable[[int], int], copy_functions: Mapping[int, bool]) -> list[GpuWork]:
    found = []
    # What nothing is held of any more is decided, whoever held it.
    is_held = any(request["held"].tobytes())
    for work in request["work"][: int(request["works"])]:
        if is_held and work["holder"]:
            continue  # what it was for is not decided
        start, end = int(work["began_ns"]), int(work["ended_ns"])
        if end < start:
            continue
        match int(work["kind"]):
            case KernelWork.BATCH:
                kind = WorkKind.BATCH
                totals = GpuTotals(int(work["launches"]), int(work["graph_launches"]))
            case KernelWork.WAIT:
                is_copy = copy_functions.get(int(work["function"]), False)
                kind = WorkKind.COPY if is_copy else WorkKind.WAIT
                totals = _waited(work, end - start) if is_copy else GpuTotals(synchronize_ns=end - start)
            case _:
                continue
        parent = SPAN_ID.pack(int(work["span"])) if work["span"] else b""
        found.append(GpuWork(kind, wall_ns(start), max(wall_ns(end), wall_ns(start)), totals, parent))
    return found


def _waited(work: np.void, waited_ns: int) -> GpuTotals:
    size = int(work["bytes"])
    match int(work["direction"]):
        case CopyKind.HOST_TO_DEVICE:
            return GpuTotals(copies_h2d=1, bytes_h2d=size, synchronize_ns=waited_ns)
        case CopyKind.DEVICE_TO_HOST:
            return GpuTotals(copies_d2h=1, bytes_d2h=size, synchronize_ns=waited_ns)
        case CopyKind.DEVICE_TO_DEVICE:
            return GpuTotals(copies_d2d=1, bytes_d2d=size, synchronize_ns=waited_ns)
    return GpuTotals(synchronize_ns=waited_ns)


def _endpoint(request: np.void, side: str) -> Endpoint | None:
    raw = bytes(request[side])
    port = int(request[f"{side}_port"])
    match int(request["address_family"]):
        case _Family.INET:
            return Endpoint(str(ipaddress.IPv4Address(raw[:4])), port)
        case _Family.INET6:
            address = ipaddress.IPv6Address(raw)
            return Endpoint(str(address.ipv4_mapped or address), port)
    return None
