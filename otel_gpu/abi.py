"""What crosses between the kernel and Python? The mirror of ebpf/abi.h; a test compares the two by BTF."""

from __future__ import annotations

import enum
import os
import struct

import numpy as np

ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("incarnation", "<u4"),
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
LIVE_KEY = np.dtype([("tgid", "<u4"), ("incarnation", "<u4"), ("address", "<u8")])
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

BUSY_KEY = np.dtype([("tgid", "<u4"), ("incarnation", "<u4"), ("device", "<u4"), ("pad", "<u4")])
BUSY_STREAMS = 8
_BUSY_TIMES = (
    "first_ns",
    "idle_ns",
    "lower_ns",
    "idle_since_ns",
    "idle_submissions",
    "submissions",
    "batch_first",
    "batch_opened_ns",
    "batch_lower_ns",
    "sampled",
)
BUSY = np.dtype(
    {
        "names": _BUSY_TIMES,
        "formats": ["<u8"] * len(_BUSY_TIMES),
        "offsets": [8 * i for i in range(len(_BUSY_TIMES))],
        "itemsize": 232 + BUSY_STREAMS * (56 + 8 * BUSY_STREAMS),
    }
)
"""What of struct busy the agent reads; its rest is the kernel's own."""
BATCH_PARTS = 4
BATCH_PART = np.dtype([("subject", "<u8"), ("calls", "<u8")])
BATCH_KIND = np.dtype([("key", BUSY_KEY), ("parts", BATCH_PART, (BATCH_PARTS,))])
BATCH_SUM = np.dtype([("batches", "<u8"), ("upper_ns", "<u8"), ("lower_ns", "<u8")])


def part_of(subject: int, function: int) -> int:
    """Return what tells submissions of one batch apart: a handle or, where there is none, the function."""
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
    BATCH = 5
    """A batch of which stacks were taken is over: submissions before it, up to its end, when it was opened, lower bound.

    Its tid is the device, its time the batch's end.
    """


class NodeType(enum.IntEnum):
    """What a graph's node does, as CUgraphNodeType."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH = 4
    """Launched while its stream was captured; its value is a version of an executable graph."""


EVENT = struct.Struct("<IIIIQQQQQ")
"""type, tgid, incarnation, tid, time_ns, a, b, c, d."""
CALL_ARGUMENTS = struct.Struct("<6Q256s")
ORIGIN = struct.Struct("<3Q5Q2048s")
"""ip, sp, fp; callee-saved registers; the stack from sp on."""

KIND_HIP = 0x80
"""Set in a row's kind, and in kinds everywhere else, for what was asked of HIP and not of CUDA."""


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


class Submitted(enum.IntEnum):
    """Who is asked to look at work that was submitted: the places of the map `submitted`."""

    FIRST = 0
    """The kernel's handle is argument 0."""
    SECOND = 1
    OTHER = 2
    """There is none."""


WORK_DEVICE_SHIFT = 56
"""A submission's sample has the device above these bits of its value, and below them the number."""


SAMPLE = struct.Struct("<IIIIQQQQHHI")
"""type, tgid, incarnation, tid, time_ns, value, count, subject, function, stop, frames; then the frames."""
FRAME_SIZE = 16

ENTERED_KEY = np.dtype([("pid_tgid", "<u8"), ("function", "<u8")])
ENTERED = np.dtype([(name, "<u8") for name in ("start_ns", "size", "address", "pitch_at")])
"""Calls that go on."""
ASKED = struct.Struct("<IIQQ")
"""tgid, tid, function, shortest stay off the CPU in ns: whom the programs of ebpf/resting.bpf.c are to look at."""

SAMPLER_KEY = np.dtype([("pid_tgid", "<u8"), ("type", "<u4"), ("incarnation", "<u4")])
SAMPLER = np.dtype(
    [
        ("window_start_ns", "<u8"),
        ("value", "<u8"),
        ("calls", "<u4"),
        ("in_window", "<u4"),
        ("period", "<u4"),
        ("countdown", "<u4"),
        ("group", "<u8"),
    ]
)
"""What a thread did since its last stack of one type (ebpf/profile.bpf.c)."""

TENSOR_GROUP = np.dtype([("bytes", "<u8"), ("tgid", "<u4"), ("incarnation", "<u4"), ("closed", "<u4"), ("pad", "<u4")])
TENSOR_FUNCTION, BACKWARD_FUNCTION = 0xFFF0, 0xFFF1
"""Stand in cookies for PyTorch's functions, which are in no table."""

DEVICE_UNKNOWN = 0xFF
BUCKET_ZERO = 0
BUCKET_NONE = 0xFF
BUCKET_SHIFT = 2
"""A row's bucket b is OTLP's scale-0 bucket b - BUCKET_SHIFT."""
DURATION_SHIFT = 32
"""The same for durations in seconds, which are counted in units of 2**-30 s."""

ARGUMENT_NONE = 15
FLAG_PER_THREAD, FLAG_DIRECT, FLAG_PITCHED, FLAG_RESULT, FLAG_EXEC, FLAG_PUSH, FLAG_PINS = 1, 2, 4, 8, 16, 32, 64
FLAG_INNER = 128
"""Another function of the same number may be the caller, and counts the call."""
CALL_ENDS_CAPTURE, CALL_ADDS_NODE, CALL_RESETS_PRIMARY, CALL_RELEASES_PRIMARY = 1, 2, 3, 4
CALL_ALIASES, CALL_UNLOADS = 5, 6
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
