"""What is counted: a row of the count table, and what its key says.

Generated from ebpf/abi/rows.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np


class Family(enum.IntEnum):
    """What a row counts; row.sum_a and row.sum_b are given behind each."""

    LAUNCH = 1
    """Kernels: blocks in the grid, threads in a block."""
    GRAPH_LAUNCH = 2
    """Graph launches: - , -."""
    COPY = 3
    """Copies: bytes, -."""
    MEMSET = 4
    """Memsets: bytes, -."""
    ALLOC = 5
    """Allocations: bytes, -."""
    FREE = 6
    """Frees: bytes, -."""
    WAIT = 7
    """Blocking calls: nanoseconds, -."""
    ERROR = 8
    """Failed calls; row_key.subject is the code: - , -."""
    IDLE = 9
    """Gaps in which a device had nothing to do: nanoseconds, -."""
    ELAPSED = 10
    """Times between events, as the driver measured them: nanoseconds, -."""


FAMILY_COUNT = 11


class CopyKind(enum.IntEnum):
    """Copy kinds, in row_key.kind.

    The first five are cudaMemcpyKind.
    """

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4
    PEER = 5


COPY_KINDS = 6


class HostMemory(enum.IntEnum):
    """Host memory on the host's side of a copy, in row_key.detail."""

    NONE = 0
    PAGEABLE = 1
    PINNED = 2


class MemoryType(enum.IntEnum):
    """Memory types, in row_key.kind of allocations and frees."""

    DEVICE = 0
    HOST = 1
    MANAGED = 2
    REGISTERED = 3
    ASYNC = 4
    VIRTUAL = 5
    UNKNOWN = 6
    """Freed, but its allocation is not known."""


MEMORY_TYPES = 7


class FreeCause(enum.IntEnum):
    """How a free came about, in row_key.detail."""

    CALLED = 0
    IMPLICIT = 1
    """The address came back from the driver while we held it for live."""
    UNTRACKED = 2
    """Of an unknown allocation, for which there may have been no room."""


class Allocation(enum.IntEnum):
    """What became of an allocation, in row_key.detail."""

    LIVES = 0
    UNTRACKED = 1
    """There was no room to remember it: it is in no sum of what lives."""


KIND_HIP = 0x80
"""Set in row_key.kind, and in kinds everywhere else, for what was asked of HIP and not of CUDA."""
DEVICE_UNKNOWN = 0xFF
ORDINALS = 64
"""Devices of one program that are told apart; further ones are unknown."""
ERROR_CODES = 4096
"""Larger ones are none of CUDA's or HIP's; they count as 0, which is no error."""
BUCKET_ZERO = 0
"""The value was 0."""
BUCKET_NONE = 0xFF
"""There is no such value."""
ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),  # tells apart the programs that ran under one pid, see tell_apart()
        ("subject", "<u8"),  # kernel handle, graph, error code
        ("function", "<u2"),  # row of the hook table; of launches the handle's generation, see generation_of()
        ("family", "u1"),
        ("device", "u1"),
        ("kind", "u1"),
        ("detail", "u1"),
        ("bucket_a", "u1"),
        ("bucket_b", "u1"),
    ]
)
"""One row of the count table. Buckets are OTLP's exponential histogram at scale 0, plus 2: 1 holds the value 1, b
holds (2^(b-2), 2^(b-1)]."""
ROW = np.dtype(
    [
        ("count", "<u8"),
        ("sum_a", "<u8"),
        ("sum_b", "<u8"),
    ]
)
COUNTED_ROW = np.dtype(
    [
        ("others", ROW),
        ("alike", "<u8"),
        ("usual", "<u8"),  # VALUES of those; 0: none yet
    ]
)
"""A row of the count table, on one CPU. Most kernels are launched with one shape, and an atomic addition takes as
long as all that is looked up: calls with the two values that came first are counted by one, and not in `others`."""
VALUE_B_BITS = 16
"""Both values of a call in one number, where they fit; 0 where they do not, or are 0."""
