"""What crosses between the kernel and Python? The mirror of ebpf/abi/; a test compares the two by BTF."""

from __future__ import annotations

import enum
import os
import struct

import numpy as np

ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("subject", "<u8"),
        ("function", "<u2"),
        ("family", "u1"),
        ("device", "u1"),
        ("kind", "u1"),
        ("detail", "u1"),
        ("bucket_a", "u1"),
        ("bucket_b", "u1"),
    ]
)
ROW = np.dtype([("count", "<u8"), ("sum_a", "<u8"), ("sum_b", "<u8")])
COUNTED_ROW = np.dtype([("others", ROW), ("alike", "<u8"), ("usual", "<u8")])
VALUE_B_BITS = 16
"""Of the two values in `usual`, those of the second."""
LIVE_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("address", "<u8")])
LIVE = np.dtype(
    [
        ("size", "<u8"),
        ("since_ns", "<u8"),
        ("context", "<u8"),
        ("type", "u1"),
        ("device", "u1"),
        ("refs", "<u2"),
        ("maps", "<u4"),
    ]
)
PINNED_KEY = np.dtype([("bits", "<u4"), ("tgid", "<u4"), ("exec_id", "<u4"), ("address", ">u8")])
RANGE_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("block", "<u8"), ("level", "<u4"), ("ends_beyond", "<u4")])

KIND_HIP = 0x80
"""Set in a row's kind, and in kinds everywhere else, for what was asked of HIP and not of CUDA."""

BUSY_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("device", "<u4"), ("pad", "<u4")])
BUSY_STREAMS = 8
_BUSY_TIMES = (
    "first_ns",
    "idle_ns",
    "lower_ns",
    "idle_since_ns",
    "idle_submissions",
    "submissions",
    "period_first",
    "period_opened_ns",
    "period_lower_ns",
    "sampled",
)
BUSY = np.dtype(
    {
        "names": _BUSY_TIMES,
        "formats": ["<u8"] * len(_BUSY_TIMES),
        "offsets": [8 * i for i in range(len(_BUSY_TIMES))],
        "itemsize": 248 + BUSY_STREAMS * (56 + 8 * BUSY_STREAMS),
    }
)
"""What of struct busy the agent reads; its rest is the kernel's own."""
PERIOD_PARTS = 4
PERIOD_PART = np.dtype([("subject", "<u8"), ("calls", "<u8")])
PERIOD_KIND = np.dtype([("key", BUSY_KEY), ("parts", PERIOD_PART, (PERIOD_PARTS,))])
PERIOD_SUM = np.dtype([("periods", "<u8"), ("upper_ns", "<u8"), ("lower_ns", "<u8")])


def part_of(subject: int, function: int) -> int:
    """Return what tells submissions of one busy period apart: a handle or, where there is none, the function."""
    return subject or 1 << 63 | function


class Family(enum.IntEnum):
    """What a row counts."""

    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY = 3
    MEMSET = 4
    ALLOC = 5
    FREE = 6
    WAIT = 7
    ERROR = 8
    IDLE = 9
    ELAPSED = 10


class CopyKind(enum.IntEnum):
    """The direction of a copy; the first five are cudaMemcpyKind."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4
    PEER = 5


class HostMemory(enum.IntEnum):
    """The host's side of a copy."""

    NONE = 0
    PAGEABLE = 1
    PINNED = 2


class MemoryType(enum.IntEnum):
    """The type of an allocation; UNKNOWN is freed memory that was allocated before the probes were there."""

    DEVICE = 0
    HOST = 1
    MANAGED = 2
    REGISTERED = 3
    ASYNC = 4
    VIRTUAL = 5
    UNKNOWN = 6


class FreeCause(enum.IntEnum):
    """How a free came about."""

    CALLED = 0
    IMPLICIT = 1
    UNTRACKED = 2
    """Of an unknown allocation, for which there may have been no room."""


class Allocation(enum.IntEnum):
    """What became of an allocation."""

    LIVES = 0
    UNTRACKED = 1
    """There was no room to remember it: it is in no sum of what lives."""


VERSION_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("handle", "<u8")])
"""Of what a program has by handle: executable graphs and their versions, kernels."""
KERNEL = np.dtype([("mark", "<u8"), ("generation", "<u4"), ("pad", "<u4")])


class Loss(enum.IntEnum):
    """What went wrong in the kernel."""

    ROWS_FULL = 0
    OVERFLOW_FULL = 1
    CALLS_FULL = 2
    LIVE_FULL = 3
    READ_FAILED = 4
    CAPTURES_FULL = 5
    EVENTS_FULL = 6
    BUSY_FULL = 7
    PINNED_FULL = 8
    CONTEXTS_FULL = 9
    GRAPHS_FULL = 10
    NAMES_FULL = 11
    PROGRAMS_FULL = 12
    IMPLAUSIBLE = 13
    REQUESTS_FULL = 14
    RDMA_FULL = 15
    NCCL_ROWS_FULL = 16
    NCCL_OVERFLOW_FULL = 17
    NCCL_COMMS_FULL = 18
    ARRIVALS_FULL = 19
    ARRIVALS_LEFT_OUT = 20
    NCCL_PENDING_FULL = 21
    RANGES_FULL = 22


class Table(enum.IntEnum):
    """The tables of which each program has a share; they are called so in the objects, but for capitals."""

    ROWS = 0
    OVERFLOW = 1
    THREADS = 2
    LIVE = 3
    MAPPED = 4
    PINNED = 5
    BUSY = 6
    PERIOD_KINDS = 7
    RECORDED = 8
    CAPTURING = 9
    CAPTURED_KERNELS = 10
    GRAPHS = 11
    CONTEXTS = 12
    PRIMARIES = 13
    KERNELS = 14
    SAMPLED_THREADS = 15
    OFF_CPU_WAITS = 16
    PERIOD_SAMPLERS = 17
    TENSORS = 18
    TENSOR_GROUPS = 19
    REQUESTS = 20
    CONNECTIONS = 21
    REQUEST_THREADS = 22
    PYTHON_CONTEXTS = 23
    QUEUE_ITEMS = 24
    ENGINES = 25
    STEPS = 26
    MESSAGES = 27
    STREAMS = 28
    QUEUE_PAIRS = 29
    GONE_PAIRS = 30
    WORK_RINGS = 31
    RDMA_ROWS = 32
    MEMORY_REGIONS = 33
    VERBS_CALLS = 34
    VERBS_PROGRAMS = 35
    NCCL_ROWS = 36
    NCCL_OVERFLOW = 37
    NCCL_COMMS = 38
    NCCL_THREADS = 39
    TLS_SESSIONS = 40
    HTTP2_CONNECTIONS = 41
    EXCHANGES = 42
    NCCL_STREAMS = 43
    NCCL_WORKS = 44
    NCCL_RECORDED = 45
    COMPLETION_QUEUES = 46
    RANGES = 47


_KINDS_OF_TOTAL = (
    (Family.LAUNCH, 1),
    (Family.GRAPH_LAUNCH, 1),
    (Family.COPY, len(CopyKind)),
    (Family.MEMSET, 1),
    (Family.ALLOC, len(MemoryType)),
    (Family.FREE, len(MemoryType)),
    (Family.WAIT, 1),
    (Family.ERROR, 1),
    (Family.IDLE, 1),
    (Family.ELAPSED, 1),
)
TOTALS: tuple[tuple[Family, int], ...] = tuple(
    (family, mark | kind) for mark in (0, KIND_HIP) for family, kinds in _KINDS_OF_TOTAL for kind in range(kinds)
)
"""What each of a program's totals counts: family and row_key.kind."""

_RING_USE = np.dtype([("began", "<u8"), ("before", "<u8"), ("sent", "<u8")])
PROGRAM_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4")])
PROGRAM = np.dtype(
    [
        ("start_ns", "<u8"),
        ("executions", "<u8"),
        ("ended_ns", "<u8"),
        ("unloads", "<u8"),
        ("comm", "S16"),
        ("captures", "<u4"),
        ("reused", "<u4"),
        ("is_announced", "u1"),
        ("holds_graphs", "u1"),
        ("hides_memory", "u1"),
        ("places_memory", "u1"),
        ("seen_whole", "u1"),
        ("pad", "u1", (7,)),
        ("parent", "<u4"),
        ("captured", "<u4"),
        ("connecting", "<u4"),
        ("connecting_comm", "<u8"),
        ("nccl_code", "<u8"),
        ("used", "<u4", ((len(Table) + 1) // 2 * 2,)),
        ("lost", "<u8", (len(Loss),)),
        ("profile_lost", "<u8", (len(Loss),)),
        ("events", _RING_USE),
        ("samples", _RING_USE),
        ("arrivals", _RING_USE),
        ("frames", _RING_USE),
        ("range_levels", "<u8"),
        ("totals", ROW, (len(TOTALS),)),
    ]
)


class EventType(enum.IntEnum):
    """What an event says; a, b, c and d are given behind each."""

    NAMED = 1
    """A kernel got its name: handle, module, address of the name; then the name."""
    FIRST_LAUNCH = 2
    """A row of launches was made: handle, its kind; then where from."""
    CAPTURED = 3
    """A capture recorded a node: capture, node type, handle, bytes or version, detail."""
    CALL = 4
    """A call succeeded: function, what it wrote to its out parameter, id, device; then its arguments."""
    BUSY_PERIOD = 5
    """A busy period of which stacks were taken is over: submissions before it, up to its end, when it was opened, lower bound.

    Its tid is the device, its time the busy period's end.
    """
    PROGRAM = 6
    """A program shows itself: when its process began, how often that had called exec, its parent; then who it is."""
    RECORDED = 7
    """A driver's record says this of a kernel without a name, ahead of its first launch: handle; then the text."""


class NodeType(enum.IntEnum):
    """What a graph's node does, as CUgraphNodeType."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH = 4
    """Launched while its stream was captured; its value is a version of an executable graph."""
    CONDITIONAL = 13
    """Has bodies, of which the device alone knows which it executes, and how often."""
    UNKNOWN = 255
    """Of a type that executes what the agent cannot tell."""


EVENT = struct.Struct("<IIIIQQQQQ")
"""type, tgid, exec_id, tid, time_ns, a, b, c, d."""
CALL_ARGUMENTS = struct.Struct("<6Q256s")
ORIGIN = struct.Struct("<3Q5Q2048s")
"""ip, sp, fp; callee-saved registers; the stack from sp on."""
RECORD_STEPS, RECORD_WAYS = 3, 4
RECORD_WAY = struct.Struct(f"<{RECORD_STEPS}HH")
"""A way from a handle to a text: offsets, each of which but the last is followed as a pointer; how many there are."""
_NAMES = 1024 + 256
IDENTITY_ARGUMENTS, IDENTITY_ENVIRONMENT = 1024, 8192
IDENTITY = struct.Struct(f"<16s4I{_NAMES}s{_NAMES}s{IDENTITY_ARGUMENTS}s{IDENTITY_ENVIRONMENT}s")
"""comm; how many bytes there are of path, control groups, arguments, environment; then these, each up to so many."""
RUNNING = struct.Struct("<IIQQ")
"""tgid, exec_id, when the process began, how often it has called exec."""


class SampleType(enum.IntEnum):
    """What a stack was taken for."""

    LAUNCH = 1
    WAIT = 2
    COPY = 3
    ALLOC = 4
    FREE = 5
    CPU = 6
    OFF_CPU = 7
    BACKWARD = 8
    BACKWARD_DONE = 9
    TENSOR = 10
    SUBMISSION = 11
    THREAD = 12


class ThreadActivity(enum.IntEnum):
    """What a thread did when it was looked at."""

    BLOCKED = 1
    READY = 2
    """To run, without a CPU."""
    RUNNING = 3
    """Its registers are on a CPU: it comes without a stack."""


class Submitted(enum.IntEnum):
    """Who is asked to look at work that was submitted: the places of the map `submitted`."""

    FIRST = 0
    """The kernel's handle is argument 0."""
    SECOND = 1
    OTHER = 2
    """There is none."""


WORK_DEVICE_SHIFT = 56
"""A submission's sample has the device above these bits of its value, and below them the number."""


SAMPLE = struct.Struct("<IIIIQQQQQQQ16s8sHBBI")
"""type, tgid, exec_id, tid, time_ns, value, count, subject, latest; request, holder, trace id, span id of the owner;
function, stop, addresses ahead, frames; then the frames, and the addresses as frames."""
FRAME_SIZE = 16

ASKED = struct.Struct("<II Q")
"""tgid, -, shortest wait off the CPU in ns: whom the programs of ebpf/profile/blocked.bpf.c are to look at."""

ENTERED = np.dtype(
    [(name, "<u8") for name in ("start_ns", "size", "address", "pitch_at")] + [("function", "<u4"), ("waits", "<u4")]
)
SAMPLER = np.dtype(
    [
        ("window_start_ns", "<u8"),
        ("value", "<u8"),
        ("calls", "<u4"),
        ("in_window", "<u4"),
        ("period", "<u4"),
        ("countdown", "<u4"),
        ("group", "<u8"),
        ("recording", "<u4"),
        ("device", "<u4"),
    ]
)
"""What a thread did since its last stack of one type."""
SAMPLED_TYPES = (
    SampleType.LAUNCH,
    SampleType.WAIT,
    SampleType.COPY,
    SampleType.ALLOC,
    SampleType.OFF_CPU,
    SampleType.TENSOR,
)
"""Those of a thread's samplers, in their order; of submissions there are more."""
SAMPLED_THREAD = np.dtype(
    [
        ("born_ns", "<u8"),
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("tid", "<u4"),
        ("pad", "<u4"),
        ("entered", ENTERED, (4,)),
        ("samplers", SAMPLER, (len(SAMPLED_TYPES),)),
        ("submissions", SAMPLER, (4,)),
    ]
)
REMAINDER_KEY = np.dtype([(name, "<u4") for name in ("tgid", "exec_id", "type", "device")])
REMAINDER = np.dtype([(name, "<u8") for name in ("value", "calls", "recording")])
"""What no stack stands for, of threads that have ended, or which found no room."""

TENSOR_GROUP = np.dtype([("bytes", "<u8"), ("tgid", "<u4"), ("exec_id", "<u4"), ("closed", "<u4"), ("pad", "<u4")])
TENSOR_FUNCTION, BACKWARD_FUNCTION = 0xFFF0, 0xFFF1
"""Stand in cookies for PyTorch's functions, which are in no table."""

DEVICE_UNKNOWN = 0xFF
ORDINALS = 64
"""Devices of one program that are told apart."""
NO_ERROR_CODE = 0
"""Stands in rows of errors for codes that neither CUDA nor HIP can have."""
BUCKET_ZERO = 0
BUCKET_NONE = 0xFF
BUCKET_SHIFT = 2
"""A row's bucket b is OTLP's scale-0 bucket b - BUCKET_SHIFT."""
DURATION_SHIFT = 32
"""The same for durations in seconds, which are counted in units of 2**-30 s."""

ARGUMENT_NONE = 15
LIBRARIES = 16
LIBRARY_SHIFT = 60
FLAG_PER_THREAD, FLAG_DIRECT, FLAG_PITCHED, FLAG_RESULT, FLAG_EXEC, FLAG_PUSH = 1, 2, 4, 8, 16, 32
FLAG_INNER = 128
"""Another function of the same number may be the caller, and counts the call."""
CALL_ENDS_CAPTURE, CALL_ADDS_NODE, CALL_RESETS_PRIMARY, CALL_RELEASES_PRIMARY = 1, 2, 3, 4
CALL_ALIASES, CALL_UNLOADS, CALL_DESTROYS_EXEC, CALL_DESTROYS_GREEN = 5, 6, 7, 8
CONTEXT_GREEN = 1
WAIT_CONTEXT, WAIT_STREAM, WAIT_EVENT = 0, 1, 2
COOKIE_PLACEHOLDER = 0x0C00C1E0C00C1E0C
"""Stands in the programs where kernels below 5.15 need the cookie as a number."""


def cookie(
    function: int,
    *,
    kind: int = 0,
    flags: int = 0,
    stream: int = ARGUMENT_NONE,
    host: int = ARGUMENT_NONE,
    size: int = ARGUMENT_NONE,
    size2: int = ARGUMENT_NONE,
    out: int = ARGUMENT_NONE,
    shift: int = 0,
    kind_at: int = ARGUMENT_NONE,
) -> int:
    """Pack an attach cookie; arguments are counted from 0."""
    return (
        function
        | kind << 16
        | flags << 24
        | stream << 32
        | host << 36
        | size << 40
        | size2 << 44
        | out << 48
        | shift << 52
        | kind_at << 56
    )


def pid_namespace() -> dict[str, int]:
    """Return the programs' variables that say which pid namespace this process numbers processes in."""
    namespace = os.stat("/proc/self/ns/pid")
    if namespace.st_ino == _INITIAL_PID_NAMESPACE:
        return {"pidns_dev": 0, "pidns_ino": 0}
    return {"pidns_dev": namespace.st_dev, "pidns_ino": namespace.st_ino}


_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO, include/linux/proc_ns.h."""
