"""What crosses between the kernel and the receiver of NCCL? The mirror of ebpf/abi/nccl.h; tests compare the two."""

from __future__ import annotations

import enum

import numpy as np

ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("comm", "<u8"),
        ("rank", "<i4"),
        ("ranks", "<i4"),
        ("family", "u1"),
        ("function", "u1"),
        ("datatype", "u1"),
        ("reduction", "u1"),
        ("bucket", "u1"),
        ("grouped", "u1"),
        ("alone", "u1"),
        ("pad", "u1"),
    ]
)
SIGNATURE = np.dtype(
    [
        ("count", "<u8"),
        ("root", "<i4"),
        ("function", "u1"),
        ("datatype", "u1"),
        ("reduction", "u1"),
        ("pad", "u1"),
    ]
)
COMM_KEY = np.dtype([("tgid", "<u4"), ("exec_id", "<u4"), ("address", "<u8")])
COMM = np.dtype(
    [
        ("comm", "<u8"),
        ("rank", "<i4"),
        ("ranks", "<i4"),
        ("sequence", "<u8"),
        ("entered_ns", "<u8"),
        ("returned_ns", "<u8"),
        ("last", SIGNATURE),
        ("began_second", "<u8"),
        ("in_second", "<u4"),
        ("mask", "<u4"),
        ("splits", "<u4"),
        ("pad", "<u4"),
    ]
)
ARRIVAL = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("comm", "<u8"),
        ("rank", "<i4"),
        ("ranks", "<i4"),
        ("sequence", "<u8"),
        ("entered_ns", "<u8"),
        ("returned_ns", "<u8"),
        ("signature", SIGNATURE),
        ("tid", "<u4"),
        ("flags", "<u4"),
    ]
)
ARRIVAL_GROUPED, ARRIVAL_GROUP = 1, 2
UNKNOWN_RANK = -1
MOST_RANKS = 1_000_000
ID_BYTES = 128
NO_DATATYPE = NO_REDUCTION = 255
CUSTOM_REDUCTION = 5


class RowFamily(enum.IntEnum):
    """What a row counts."""

    CALLS = 1
    INITS = 2
    ABORTS = 3
    GROUPS = 4
    ERRORS = 5
    DURATIONS = 6
