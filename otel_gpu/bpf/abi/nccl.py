"""Collectives and communicators of NCCL and RCCL: what their calls came to, and who arrived when.

Generated from ebpf/abi/nccl.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np


class NcclFamily(enum.IntEnum):
    """What a row counts; its sums are given behind each."""

    CALLS = 1
    """Calls that put work on a stream: bytes, nanoseconds."""
    INITS = 2
    """Communicators that were made: -, nanoseconds."""
    ABORTS = 3
    """And aborted: -, -."""
    GROUPS = 4
    """Calls that end an outermost group: -, nanoseconds."""
    ERRORS = 5
    """Calls that failed; the code is in nccl_row_key.reduction: -, -."""
    DURATIONS = 6
    """Calls whose work the host saw done: bytes, nanoseconds since they were made."""


NCCL_DATATYPES = 12
"""Those that have a size: ncclInt8 to ncclFloat8e5m2."""
NCCL_NO_DATATYPE = 255
NCCL_NO_REDUCTION = 255
NCCL_CUSTOM_REDUCTION = 5
"""Of a program's own making, and all behind it."""
NCCL_UNKNOWN_RANK = -1
NCCL_MOST_RANKS = 1_000_000
NCCL_ID_BYTES = 128
"""Of ncclUniqueId."""
NCCL_ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("comm", "<u8"),  # hash of the communicator's id; 0: not known
        ("rank", "<i4"),  # NCCL_UNKNOWN_RANK: not known
        ("ranks", "<i4"),  # 0: not known
        ("family", "u1"),
        ("function", "u1"),
        ("datatype", "u1"),
        ("reduction", "u1"),
        ("bucket", "u1"),  # of the nanoseconds
        ("grouped", "u1"),
        ("alone", "u1"),  # nothing else of NCCL's was on its stream that the host had not seen done
        ("pad", "u1"),
    ]
)
NCCL_SIGNATURE = np.dtype(
    [
        ("count", "<u8"),
        ("root", "<i4"),  # -1: none
        ("function", "u1"),
        ("datatype", "u1"),
        ("reduction", "u1"),
        ("pad", "u1"),
    ]
)
"""What a rank asked for in one collective: the same on all ranks, or it cannot come to an end."""
NCCL_COMM_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("address", "<u8"),
    ]
)
NCCL_COMM = np.dtype(
    [
        ("comm", "<u8"),
        ("rank", "<i4"),
        ("ranks", "<i4"),
        ("sequence", "<u8"),  # collectives begun, the last one's number
        ("entered_ns", "<u8"),  # when that was begun
        ("returned_ns", "<u8"),  # and when the call of the last one that returned did so
        ("last", NCCL_SIGNATURE),
        ("began_second", "<u8"),  # of the budget of arrivals, see arrivals.bpf.h
        ("in_second", "<u4"),
        ("mask", "<u4"),
        ("splits", "<u4"),  # communicators made from it
        ("pad", "<u4"),
    ]
)
"""A communicator whose making was seen."""
NCCL_ARRIVAL_GROUPED = 1
"""It is submitted when the thread's group ends, which is told then."""
NCCL_ARRIVAL_GROUP = 2
"""That is it."""
NCCL_ARRIVAL = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("comm", "<u8"),
        ("rank", "<i4"),
        ("ranks", "<i4"),
        ("sequence", "<u8"),
        ("entered_ns", "<u8"),
        ("returned_ns", "<u8"),
        ("signature", NCCL_SIGNATURE),
        ("tid", "<u4"),
        ("flags", "<u4"),
    ]
)
"""A rank has arrived at a collective."""
