"""A program, what it has in tables, and what went wrong for it.

Generated from ebpf/abi/programs.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np

from .rows import ROW

PROGRAM_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
    ]
)
"""A program: what a process runs from exec to exec, or to its end."""
OWNER_AT = 8
"""Where values that are kept by thread, and groups of tensors, have the program_key of whose they are."""


class Loss(enum.IntEnum):
    """What went wrong in the kernel, one counter each."""

    ROWS_FULL = 0
    """Counted in the overflow rows instead of the table."""
    OVERFLOW_FULL = 1
    """Counted in the program's totals only."""
    CALLS_FULL = 2
    """A call's return could not be awaited."""
    LIVE_FULL = 3
    """An allocation, or a mapping of one, could not be remembered."""
    READ_FAILED = 4
    """The target's memory was not readable."""
    CAPTURES_FULL = 5
    """A capturing stream or event could not be remembered."""
    EVENTS_FULL = 6
    """The ring buffer was full."""
    BUSY_FULL = 7
    """A device's busy time could not be followed."""
    PINNED_FULL = 8
    """Page-locked memory could not be remembered."""
    CONTEXTS_FULL = 9
    """On which device a thread works could not be remembered."""
    GRAPHS_FULL = 10
    """What an executable graph holds could not be remembered."""
    NAMES_FULL = 11
    """Which kernel a handle is could not be remembered."""
    PROGRAMS_FULL = 12
    """There was no room for the program: nothing of the call was counted."""
    IMPLAUSIBLE = 13
    """A size that no memory has was taken for none."""
    REQUESTS_FULL = 14
    """A request, a connection or a context could not be followed, or whose work was whose."""
    RDMA_FULL = 15
    """A queue pair, its work, its memory or a call of it could not be remembered."""
    NCCL_ROWS_FULL = 16
    """A call of NCCL was counted without its communicator."""
    NCCL_OVERFLOW_FULL = 17
    """A call of NCCL was not counted."""
    NCCL_COMMS_FULL = 18
    """A communicator could not be remembered."""
    ARRIVALS_FULL = 19
    """That a rank arrived at a collective could not be told."""
    ARRIVALS_LEFT_OUT = 20
    """It was beyond what is told of a communicator in a second."""
    NCCL_PENDING_FULL = 21
    """When a call's work was done could not be found out."""
    RANGES_FULL = 22
    """Where a device's memory lies could not be remembered."""


LOSS_COUNT = 23


class Table(enum.IntEnum):
    """The tables that programs share, see lib/shares.bpf.h."""

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


TABLE_COUNT = 48


class Total(enum.IntEnum):
    """The first total of each family: what a program's calls come to when not even the overflow rows have room.

    A family has one for each row_key.kind; those of HIP are behind those of CUDA.
    """

    LAUNCH = 0
    GRAPH_LAUNCH = 1
    COPY = 2
    MEMSET = 8
    ALLOC = 9
    FREE = 16
    WAIT = 23
    ERROR = 24
    IDLE = 25
    ELAPSED = 26


TOTALS_OF_API = 27
TOTAL_COUNT = 54
RING_USE = np.dtype(
    [
        ("began", "<u8"),  # where in the ring its present stretch begins
        ("before", "<u8"),  # bytes that it sent in the stretch before
        ("sent", "<u8"),  # and in this one
    ]
)
"""How much of a ring buffer a program fills, see may_send()."""
PROGRAM = np.dtype(
    [
        ("start_ns", "<u8"),  # when its process began, by CLOCK_BOOTTIME
        ("executions", "<u8"),  # how often that had called exec
        ("ended_ns", "<u8"),  # CLOCK_MONOTONIC; 0 while it runs
        ("unloads", "<u8"),  # how often it unloaded something, whose handles may be other kernels' since
        ("comm", "S16"),
        ("captures", "<u4"),  # that go on
        ("reused", "<u4"),  # handles that became other kernels'
        ("is_announced", "u1"),
        ("holds_graphs", "u1"),  # it built graphs in which work waits for the host
        ("hides_memory", "u1"),  # it has some of which it is not known where it lies
        ("places_memory", "u1"),  # virtual memory or pools of it may lie elsewhere than on a device
        ("seen_whole", "u1"),  # the first that was seen of it is its first call of the driver
        ("pad", "u1", (7,)),
        ("parent", "<u4"),  # its process's parent when it showed itself; 0 when that is not to be seen from here
        ("captured", "<u4"),  # captures that ended since NCCL is followed
        ("connecting", "<u4"),  # calls of NCCL in progress, each of which may connect its communicator
        ("connecting_comm", "<u8"),  # the sum of their communicators: the one's where there is one
        ("nccl_code", "<u8"),  # an address in NCCL's code
        ("used", "<u4", (48,)),  # by table; what follows is aligned
        ("lost", "<u8", (23,)),
        ("profile_lost", "<u8", (23,)),  # likewise, of profile.bpf.c
        ("events", RING_USE),
        ("samples", RING_USE),
        ("arrivals", RING_USE),
        ("frames", RING_USE),
        ("range_levels", "<u8"),  # a bit for each that is used, see cuda/ranges.bpf.h
        ("totals", ROW, (54,)),
    ]
)
"""A program that has entries in tables."""
CONTEXT_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("context", "<u8"),
    ]
)
"""What a program has by handle: a context, or a graph or kernel in its place."""
KERNEL = np.dtype(
    [
        ("mark", "<u8"),  # tells its names apart; where none was told: UNNAMED, and the program's unloads by then
        ("generation", "<u4"),
        ("pad", "<u4"),
    ]
)
"""What is known of a handle that was named or launched."""
RUNNING = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("start_ns", "<u8"),
        ("executions", "<u8"),
    ]
)
"""Which program runs under a pid now."""
